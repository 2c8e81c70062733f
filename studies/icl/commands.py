"""The command that trains small networks from scratch: ``python -m studies.icl train``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from posbias import errors

if TYPE_CHECKING:
    import xarray as xr


def register(app: typer.Typer) -> None:
    """Add the command that trains to ``app``."""
    app.command("train")(train)


def train(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for icl.nc, with an entry for each setting, and checkpoints.")
    ],
    preset: Annotated[
        list[str],
        typer.Option(
            "--preset", "-p", help="Settings of a figure of Wu et al. (2025), figure2 to figure13, or spread, or deep."
        ),
    ],
    seeds: Annotated[int, typer.Option(help="Number of networks for each setting; their seeds are 0, 1, …")] = 5,
    iterations: Annotated[int, typer.Option(help="Number of optimizer steps.")] = 100_000,
    batch_size: Annotated[int, typer.Option(help="Sequences in a batch.")] = 128,
    precision: Annotated[
        Literal["float32", "bfloat16"], typer.Option(help="Precision of matrix products in training.")
    ] = "float32",
    device: Annotated[str | None, typer.Option(help="cpu, cuda, …; by default a GPU if there is one.")] = None,
    tested: Annotated[int, typer.Option(help="Number of test sequences in each order of the labels.")] = 10_000,
) -> None:
    """Train small attention-only networks on a retrieval task and measure which positions they favour.

    Entries that are there are kept, and training that was stopped goes on.
    """
    from studies.icl.settings import Training
    from studies.icl.settings import preset as settings_of

    training = Training(iterations, batch_size, precision=precision)
    for name, value in (("seeds", seeds), ("tested", tested)):
        errors.positive_integer(name, value)
    settings = list(dict.fromkeys(setting for name in preset for setting in settings_of(name)))

    from studies.icl import training as module
    from studies.train import missing

    where = _usable(device)
    output.mkdir(parents=True, exist_ok=True)
    path, numbers = output / "icl.nc", list(range(seeds))
    names = missing(path, {s.name: module.described(s, training, tested) for s in settings}, numbers)
    todo = [setting for setting in settings if setting.name in names]
    for name, results in module.run_settings(todo, numbers, training, output, size=tested, device=where, progress=True):
        _tell(name, results)
    typer.echo(f"{path}: {len(names)} entries made, {len(settings) - len(names)} kept")


def _usable(device: str | None) -> str:
    """Return the device that was asked for, or a GPU if there is one; ValueError if torch cannot use it here."""
    import torch

    where = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.zeros(1, device=where).item()
    except (RuntimeError, AssertionError):
        raise errors.invalid("device", "a device that torch can use here, such as cpu or cuda", where) from None
    return where


def _tell(name: str, results: xr.Dataset) -> None:
    """Print what a setting's networks favour, and which of them stopped early."""
    from studies.icl.outcomes import gaps

    for seed, step in zip(results["seed"].values, results["stopped"].values, strict=True):
        if step >= 0:
            typer.echo(f"{name}: seed {seed} stopped: its loss was not finite at step {step}", err=True)
    means = zip(results["pair"].values, gaps(results).mean(0), strict=True)
    typer.echo(f"{name}: {results.sizes['seed']} seeds, {', '.join(f'{pair} {gap:+.3f}' for pair, gap in means)}")
