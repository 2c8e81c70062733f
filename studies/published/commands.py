"""Commands around the authors' numbers and files: ``python -m studies.published list``, write, download, …."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posbias import errors
from posbias.files import check_output, write_whole
from posbias.rollout.profiles import write_profile
from studies.published import numbers, originals

Replace = Annotated[bool, typer.Option("--overwrite", help="Replace the file if it is there.")]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command("list")(show)
    for command in (write, download, verify):
        app.command()(command)


def show() -> None:
    """Print what is kept of the authors' numbers, and the state of their own files."""
    for model in numbers.MODELS:
        config = numbers.config(model)
        size = (
            f"{config.num_layers} layers x {config.attention_config.num_heads} heads, {config.sequence_length} tokens"
        )
        contents = "; ".join(f"{x}: {', '.join(numbers.corpora(model, x))}" for x in numbers.CONTENTS)
        typer.echo(f"configuration {model}: {size}; content {contents}")
    for figure in originals.FIGURES:
        typer.echo(f"figure {figure}: {numbers.figure_points(figure).size} tokens")
    typer.echo(f"{len(numbers.printed_tables())} printed distances, {len(numbers.printed_recency())} probabilities")
    typer.echo("the authors' own files, which verify alone reads:")
    for source, name, state in originals.states():
        typer.echo(f"  {state:8} {originals.path(name, source['collection'])}")


def write(
    name: Annotated[str, typer.Argument(help="A model, such as bloom or mpt-7b, or a figure, as list prints them.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Configuration (.yaml), or curve (.csv), to write.")],
    content: Annotated[str, typer.Option(help="none, mean (one value), or all (by layer and head).")] = "all",
    corpus: Annotated[str, typer.Option(help="Measured on fineweb-edu, dclm or wikipedia.")] = "fineweb-edu",
    no_residual: Annotated[bool, typer.Option("--no-residual", help="With a mixing of 1 in every layer.")] = False,
    overwrite: Replace = False,
) -> None:
    """Write a published configuration, which posbias rollout reads, or the curve of a figure of BLOOM-176B."""
    check_output(output, (".yaml", ".csv"), overwrite=overwrite)
    if output.suffix == ".csv":
        write_profile(output, numbers.figure_profile(name))
    else:
        write_whole(output, numbers.written_config(name, content, corpus, not no_residual))
    typer.echo(f"written: {output}")


def download() -> None:
    """Fetch those of the authors' own files that are missing."""
    typer.echo(f"{len(originals.download())} files fetched, in {originals.path('')}")


def verify() -> None:
    """Compare the numbers that are kept with the authors' own files at hand; fail if one does not agree."""
    found = originals.verify()
    for outcome, place in found:
        typer.echo(f"{outcome:13} {place}")
    equal = sum(outcome == "equal" for outcome, _ in found)
    typer.echo(f"{equal} of {len(found)} files equal what is kept, in {originals.path('').parent}")
    bad = [f"{outcome}: {place}" for outcome, place in found if outcome in ("differs", "other numbers")]
    if bad:
        raise errors.invalid("authors' files", "what is kept", "; ".join(bad))
