"""The command that answers in one page: ``posbias report``, on a file, or on a model that it measures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from posbias import errors
from posbias.files import check_output
from posbias.settings import REPORTED

DEFAULTS = {"prompts": 200, "length": 256}
"""What is measured unless given, as by the other commands."""


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("report", short_help="Write one page about a measurement or a model.")(report)


def report(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="MODEL_OR_FILE",
            help="File of posbias measure (.nc); or a model to measure: directory, GGUF file, id on the hub, or "
            "reference/NAME. What is not said here, posbias measure takes.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML file to write (.html).")],
    lookup: Annotated[
        Path | None, typer.Option(help="File of posbias lookup on the same model (.nc): where a passage is found best.")
    ] = None,
    keep: Annotated[Path | None, typer.Option(help="Of a model: also keep the measurement, as a file (.nc).")] = None,
    dataset: Annotated[
        str | None, typer.Option("--dataset", "-d", help="Of a model: as for posbias measure; builtin unless given.")
    ] = None,
    prompts: Annotated[int | None, typer.Option("--prompts", "-N", help="Of a model: number of prompts; 200.")] = None,
    length: Annotated[int | None, typer.Option("--length", "-n", help="Of a model: tokens in each; 256.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Of a model: print memory, disk and time, from one prompt.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
) -> None:
    """Answer in one page: what its prompts' tenths receive, is the middle lost, what predicts it; with figures."""
    is_file = subject.endswith(".nc") and not Path(subject).is_dir()
    check_output(output, ".html", overwrite=overwrite or dry_run)
    given = {"dataset": dataset, "prompts": prompts, "length": length, "dry_run": dry_run or None}
    given = {name: value for name, value in given.items() if value is not None}
    if is_file and (given or keep):
        raise errors.invalid(next(iter(given), "keep"), "a model to measure", f"the file {subject}, measured already")
    given.pop("dry_run", None)
    asked = complete_settings(given)
    if keep is not None:
        check_output(keep, field="keep", overwrite=overwrite or dry_run)
    import posbias
    from posbias.measure.measurement import load

    tried = None if lookup is None else posbias.load_lookup(lookup)
    if dry_run:
        from posbias.measure.progress import progress
        from posbias.measure.run import estimate

        with progress(1, "prompt", "measuring"), posbias.open(subject)._running(asked, False) as (settings, _):
            said = estimate(settings)
        typer.echo(said)
        return
    measured = load(subject) if is_file else posbias.open(subject).measure(**asked)
    if keep is not None:
        typer.echo(f"{measured.save(keep)}: {measured.prompts} prompts of {measured.length} tokens")
    path = measured.report(output, lookup=tried)
    typer.echo(f"{path}: {path.stat().st_size / 1024:.0f} KiB, {measured.described}")


def complete_settings(given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a measurement: what is not given as reports have it; one prompt climbs no ladder."""
    asked = DEFAULTS | given
    return asked if asked["prompts"] == 1 else REPORTED | asked
