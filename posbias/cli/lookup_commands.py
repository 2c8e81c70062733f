"""The command that asks a model by place: ``posbias lookup``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from posbias.cli.options import MODEL, group, named_model, with_options
from posbias.files import check_output
from posbias.lookup.tasks import Task, checked_counts, one_change
from posbias.measure.biases import HELP
from posbias.measure.corpus import Corpus, chosen_corpus
from posbias.settings import Opening, Settings


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("lookup", short_help="Ask a model for what stands at each place.")(lookup)


@with_options(
    opening=[Opening],
    asked=[Task],
    documents=group(Corpus, dataset=None),
    asking=group(Settings, door="lookup"),
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
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output if it is there.")] = False,
    *,
    opening: dict[str, Any],
    asked: dict[str, Any],
    documents: dict[str, Any],
    asking: dict[str, Any],
) -> None:
    """Ask a model for what stands at each place of its prompt: scores by place, beside the prompts' profiles."""
    from posbias.models.opening import check_subject

    model = named_model(subject, opening.pop("model"))
    check_output(output, overwrite=overwrite)
    Settings(None, None, **asking)  # this and the next lines raise before anything heavy is loaded
    checked_counts(Task(task, **asked), asking["prompts"], profile_prompts, documents["dataset"])
    one_change(bias, temperature)
    check_subject(model, None, row=True)
    chosen_corpus(documents)
    import posbias

    found = posbias.open(model, **opening).lookup(
        task, **asked, **documents, **asking,
        profile_prompts=profile_prompts, bias=bias, temperature=temperature, progress=True,
    )  # fmt: skip
    typer.echo(f"{found.save(output)}: {found!r}")
