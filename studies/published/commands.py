"""Commands around the authors' own files: ``python -m studies.published list``, download, verify and rebuild."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posbias import errors
from posbias.files import check_output
from posbias.published import numbers
from studies.published import originals


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command("list")(show)
    app.command("download")(download)
    app.command("verify")(verify)
    app.command("rebuild")(rebuild)


def show() -> None:
    """Print what ships of the authors' numbers, and the state of their own files."""
    typer.echo(f"ships with posbias, in {numbers.SHIPPED.parent}:")
    for model in numbers.MODELS:
        config = numbers.config(model)
        size = (
            f"{config.num_layers} layers x {config.attention_config.num_heads} heads, {config.sequence_length} tokens"
        )
        contents = "; ".join(f"{x}: {', '.join(numbers.corpora(model, x))}" for x in numbers.CONTENTS)
        typer.echo(f"  configuration {model}: {size}; content {contents}")
    for figure in originals.FIGURES:
        typer.echo(f"  figure {figure}: {numbers.figure_points(figure).size} tokens")
    typer.echo(f"  {len(numbers.printed_tables())} printed distances, {len(numbers.printed_recency())} probabilities")
    typer.echo(f"the authors' own files, which only verify and rebuild read, in {originals.data_dir().parent}:")
    for collection, name, state in originals.states():
        typer.echo(f"  {state:8} {collection}/{name}")
    typer.echo(f"from {' and '.join(originals.REPOSITORIES.values())}; download fetches those of the first")


def download() -> None:
    """Fetch those of the authors' own files that are missing."""
    typer.echo(f"{len(originals.download())} files fetched, in {originals.data_dir()}")


def verify() -> None:
    """Compare the numbers that ship with the authors' own files at hand; fail if one does not agree."""
    found = originals.verify()
    for check in found:
        typer.echo(f"{check.outcome:13} {check.collection}/{check.name}")
    equal = sum(check.outcome == "equal" for check in found)
    typer.echo(f"{equal} of {len(found)} files equal what ships, in {originals.data_dir().parent}")
    if any(check.outcome == "unread" for check in found):
        typer.echo("reading figures needs pypdf: in a checkout, pip install '.[originals]'")
    bad = [check for check in found if check.outcome in ("differs", "other numbers")]
    if bad:
        received = "; ".join(f"{check.outcome}: {originals.data_dir(check.collection) / check.name}" for check in bad)
        raise errors.invalid("authors' files", "what ships, with the registry's checksums", received)


def rebuild(
    output: Annotated[Path, typer.Argument(help="File to write (.json.gz).")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it is there.")] = False,
) -> None:
    """Read the authors' own files and write the numbers that ship to a file."""
    check_output(output, ".gz", overwrite=overwrite)
    originals.rebuild(output)
    typer.echo(f"{output}: {output.stat().st_size} bytes")
