"""The command that trains small decoders to find values by their keys: ``python -m studies.lookup train``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posbias import errors

if TYPE_CHECKING:
    from studies.lookup.settings import Setting


def register(app: typer.Typer) -> None:
    """Add the commands that train to ``app``."""
    app.command("train")(train)
    app.command("rivals")(rivals)
    app.command("sources")(sources)


def train(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Folder for lookup.nc, with entries for each setting, and the networks."),
    ],
    seeds: Annotated[int, typer.Option(help="Number of networks for each setting; their seeds are 0, 1, …")] = 3,
    remedies: Annotated[
        bool, typer.Option("--remedies", help="Search biases and temperatures for the finished networks as well.")
    ] = False,
) -> None:
    """Train the settings of the chapter `networks` to find the value of a key, and test by place how well they do.

    Entries that are there are kept, and training that was stopped goes on.
    """
    from studies.lookup import settings

    errors.positive_integer("seeds", seeds)

    from studies.lookup.training import run_settings
    from studies.train import missing

    output.mkdir(parents=True, exist_ok=True)
    path, numbers, grid = output / "lookup.nc", list(range(seeds)), settings.grid()
    names = missing(path, {s.name: settings.described(s, training) for s, training in grid.items()}, numbers)

    for setting in grid:
        if setting.name not in names:
            _finish(path, setting, numbers, remedies)
    todo = {setting: training for setting, training in grid.items() if setting.name in names}
    for setting, (name, data) in zip(todo, run_settings(todo, numbers, output, progress=True), strict=True):
        _finish(path, setting, numbers, remedies)
        found = data["accuracy_1"].mean("seed").values
        typer.echo(
            f"{name}: {seeds} seeds, found {found.mean():.2f} of the values, first {found[0]:.2f}, last {found[-1]:.2f}"
        )
    typer.echo(f"{path}: {len(names)} entries made, {len(grid) - len(names)} kept")


def _finish(path: Path, setting: Setting, numbers: list[int], remedies: bool) -> None:
    """Measure what is still missing of a setting's networks, and remedies if they are asked for."""
    from studies import results
    from studies.lookup.measure import measure_lookup_remedies, measure_profiles

    kept = results.Results(path)
    if (entry := f"{setting.name}.profiles") not in kept:
        results.save(path, {entry: measure_profiles(setting, numbers, path.parent)})
    if remedies and (entry := f"{setting.name}.remedies") not in kept:
        results.save(path, {entry: measure_lookup_remedies(setting, numbers, path.parent)})


def rivals(
    output: Annotated[Path, typer.Option("--output", "-o", help="File of results, to which entries are added.")],
    seeds: Annotated[int, typer.Option(help="Number of networks for each encoding.")] = 3,
) -> None:
    """Train networks to look facts up among others that share half of the key; entries that are there are kept."""
    from studies import results
    from studies.lookup.rivals import ENCODINGS, train_rivals

    errors.positive_integer("seeds", seeds)
    for encoding in ENCODINGS:
        if output.is_file() and f"{encoding}.rivals" in results.load(output.stem, output.parent):
            continue
        results.save(output, {f"{encoding}.rivals": train_rivals(encoding, seeds)})
        typer.echo(f"{output}: {encoding}.rivals")


def sources(
    output: Annotated[Path, typer.Option("--output", "-o", help="File of results, to which entries are added.")],
    seeds: Annotated[int, typer.Option(help="Number of networks for each encoding and way of training.")] = 3,
) -> None:
    """Train networks at the two ends and at every place, and keep from which pair each of their answers is."""
    from studies import results
    from studies.lookup.sources import ARMS, ENCODINGS, measure_sources

    errors.positive_integer("seeds", seeds)
    for name in [f"{encoding}.{arm}" for arm in ARMS for encoding in ENCODINGS]:
        if output.is_file() and f"{name}.sources" in results.load(output.stem, output.parent):
            continue
        encoding, arm = name.split(".")
        results.save(output, {f"{name}.sources": measure_sources(encoding, arm, seeds)})
        typer.echo(f"{output}: {name}.sources")
