"""The command that asks a model by place: ``posbias lookup``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from posbias import errors
from posbias.cli.options import MODEL, Running, group, named_model, with_options
from posbias.lookup.tasks import PROFILE_PROMPTS, Task, check_counts
from posbias.measure.biases import HELP, read_bias
from posbias.measure.corpus import Corpus, chosen_corpus
from posbias.measure.settings import Opening, Settings, check_settings
from posbias.measure.unfinished import check_run, own_checkpoint, resumable

OF_MEASURING = (
    "length", "rule", "per_document", "quantities", "kernel_size", "pairings", "attention", "tokens", "target",
    "against", "of",
)  # fmt: skip
"""Settings of a measurement that a lookup does not leave open."""


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("lookup", short_help="Ask a model for what stands at each place.")(lookup)


@with_options(
    opening=[Opening],
    asked=[Task],
    documents=group(Corpus, dataset=None),
    asking=group(Settings, without=OF_MEASURING),
    running=[Running],
)
def lookup(
    output: Annotated[Path, typer.Option("--output", "-o", help="netCDF file to write (.nc).")],
    subject: MODEL = None,
    task: Annotated[
        str, typer.Option("--task", "-t", help="kv: find the value of a key; copy: go on with a segment of the text.")
    ] = "kv",
    profile_prompts: Annotated[
        int | None,
        typer.Option(help="How many prompts also give a profile; 32, or all if there are fewer; 0 for none."),
    ] = None,
    bias: Annotated[str, typer.Option(help=HELP)] = "none",
    temperature: Annotated[
        float, typer.Option(help="Divide what content adds to attention's logits by this: below 1 sharpens it; 1.")
    ] = 1.0,
    report: Annotated[Path | None, typer.Option(help="Also write a report with figures: one file (.html).")] = None,
    *,
    opening: dict[str, Any],
    asked: dict[str, Any],
    documents: dict[str, Any],
    asking: dict[str, Any],
    running: dict[str, bool],
) -> None:
    """Ask a model for what stands at each place of its prompt: scores by place, beside the prompts' profiles."""
    from posbias.measure.opening import check_subject

    opening["model"] = named_model(subject, opening["model"])
    wanted, prompts = Task(task, **asked), asking["prompts"]
    profiled = min(PROFILE_PROMPTS, prompts) if profile_prompts is None else profile_prompts
    check_settings(asking)
    check_counts(wanted, prompts, profiled)
    if documents["dataset"] is not None and task != "copy":
        raise errors.invalid("dataset", f"none with the task {task}, which reads no text", documents["dataset"])
    check_subject(opening["model"], None, row=True)
    added = read_bias(bias)
    errors.finite_array("temperature", temperature, ndim=(0,))
    if temperature <= 0 or (temperature != 1 and added is not None):
        expected = "a number above 0" if temperature <= 0 else "1 with --bias: one change at a time"
        raise errors.invalid("temperature", expected, temperature)
    corpus, _ = chosen_corpus(documents)
    check_run(output, **running, report=report)
    with resumable(lambda: [own_checkpoint(output)]):
        from posbias.lookup.file import summary_lines
        from posbias.lookup.run import Lookup, added_bias, divided, look_up
        from posbias.measure.measurement import extra
        from posbias.measure.model import chosen_source

        if report is not None:  # what it needs is asked for before the run
            with extra("book"):
                from posbias.report.lookup_page import write_lookup_report
        source = chosen_source(opening)
        change = None if temperature == 1 else divided(temperature)
        if added is not None:
            config = source.config()
            added.check(opening["model"], config.num_hidden_layers, config.num_attention_heads)
            change = added_bias(added.description)
        settings = Settings(source=source, corpus=corpus, **asking, attention=None)
        results = look_up(Lookup(settings, wanted, profiled, change), output, **running, progress=True)
        if results is not None:
            first, *others = summary_lines(results)
            typer.echo("\n".join([f"{output}: {first}", *others]))
            if report is not None:
                typer.echo(f"{write_lookup_report(report, results)}: report")
