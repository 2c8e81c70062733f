"""The command that asks a model by place: ``posbias lookup``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from posbias.cli.options import MODEL, Running, group, named_model, with_options
from posbias.lookup.tasks import Task, checked_counts, one_change
from posbias.measure.biases import HELP
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
    wanted = Task(task, **asked)
    check_settings(asking)
    profiled = checked_counts(wanted, asking["prompts"], profile_prompts, documents["dataset"])
    check_subject(opening["model"], None, row=True)
    described = one_change(bias, temperature)
    corpus, _ = chosen_corpus(documents)
    check_run(output, **running, report=report)
    with resumable(lambda: [own_checkpoint(output)]):
        from posbias.lookup.found import ask
        from posbias.measure.measurement import extra
        from posbias.measure.model import chosen_source

        if report is not None:  # what it needs is asked for before the run
            with extra("book"):
                import posbias.report.lookup_page  # noqa: F401
        settings = Settings(source=chosen_source(opening), corpus=corpus, **asking, attention=None)
        found = ask(settings, wanted, profiled, described, temperature, output=output, **running, progress=True)
        if found is not None:
            typer.echo(f"{output}: {found!r}")
            if report is not None:
                typer.echo(f"{found.report(report)}: report")
