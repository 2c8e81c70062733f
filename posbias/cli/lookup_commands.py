"""The command that asks a model by place: ``posbias lookup``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from posbias.cli.options import MODEL, group, with_options
from posbias.files import check_output
from posbias.lookup.contexts import read_rows
from posbias.lookup.tasks import Task
from posbias.settings import Opening, Settings


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("lookup", short_help="Ask a model for what stands at each place.")(lookup)


@with_options(
    opening=[Opening],
    asked=[Task],
    asking=group(Settings, door="lookup", prompts=None),
)
def lookup(
    model: MODEL,
    rows: Annotated[
        str | None,
        typer.Argument(
            metavar="[ROWS]",
            help="Documents, question, answer, and its first words as begin: .jsonl, .csv or .parquet.",
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="netCDF file to write.")] = Path("lookup.nc"),
    figure: Annotated[
        Path | None, typer.Option(help="Also draw right answers by place, with intervals: .png or .svg.")
    ] = None,
    task: Annotated[str, typer.Option("--task", "-t", help="documents; kv: a key's value.")] = "documents",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the first prompt; no weights are read.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    *,
    opening: dict[str, Any],
    asked: dict[str, Any],
    asking: dict[str, Any],
) -> None:
    """Ask a model for what stands at each place of its prompt: scores by place, and whether the middle is lost."""
    from posbias.models.opening import check_model

    if not dry_run:
        check_output(output, overwrite=overwrite)
        if figure is not None:
            check_output(figure, (".png", ".svg"), "figure", overwrite=overwrite)
    Task(task, **asked).check_given(rows, asking["prompts"])  # before anything heavy is loaded
    check_model(model)
    given = None if rows is None else read_rows(rows)
    import posbias
    from posbias.measure.progress import progress

    with progress(1, "model", "opening"):
        opened = posbias.open(model, **opening)
    named = {"task": task, "rows": given, **asked, **asking}
    if dry_run:
        with progress(1, "step", "writing prompts"):
            preview = opened.preview_lookup(**named)
        typer.echo(preview)
        return
    found = opened.lookup(**named, progress=True)
    typer.echo(f"{found.save(output)}: {found!r}")
    if figure is not None:
        typer.echo(f"{found.figure(figure)}: figure")
