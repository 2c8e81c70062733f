"""The command that trains small decoders to find values by their keys: ``python -m studies.lookup train``."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posbias import errors

if TYPE_CHECKING:
    from studies.lookup.settings import Setting, Training

MOST_SEEDS = 1000


def register(app: typer.Typer) -> None:
    """Add the command that trains to ``app``."""
    app.command("train")(train)


def train(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Folder for lookup.nc, with entries for each setting, and the networks."),
    ],
    encoding: Annotated[
        list[str] | None,
        typer.Option("--encoding", "-e", help="Positions: none, alibi, steep, rope, log, early or flat; repeatable."),
    ] = None,
    layers: Annotated[list[int] | None, typer.Option(help="Number of layers; repeatable.")] = None,
    pairs: Annotated[list[int] | None, typer.Option(help="Pairs of a key and a value; repeatable.")] = None,
    tokens: Annotated[int, typer.Option(help="Tokens of a pair, 1 or 2.")] = 1,
    places: Annotated[str, typer.Option(help="Where answers stand in training: even or ends.")] = "even",
    iterations: Annotated[int, typer.Option(help="Number of optimizer steps.")] = 800,
    batch_size: Annotated[int, typer.Option(help="Prompts in a step.")] = 64,
    rate: Annotated[
        float | None, typer.Option(help="Learning rate; 0.003, and 0.001 where a pair has two tokens.")
    ] = None,
    chapter: Annotated[
        bool, typer.Option("--chapter", help="Train the settings of the chapter `lookup`, in place of others.")
    ] = False,
    seeds: Annotated[int, typer.Option(help="Number of networks for each setting; their seeds are 0, 1, …")] = 3,
    remedies: Annotated[
        bool, typer.Option("--remedies", help="Search biases and temperatures for the finished networks as well.")
    ] = False,
    explained: Annotated[
        bool, typer.Option("--explained", help="Count how often `posbias explain` names the pair with the answer.")
    ] = False,
    processes: Annotated[int, typer.Option(help="Number of networks to train at a time, each on one thread.")] = 1,
    checkpoint_every: Annotated[float, typer.Option(help="Minimum time between checkpoints, in seconds.")] = 60.0,
) -> None:
    """Train small decoders to find the value of a key, and test by place how well they do, during and after.

    Entries that are there are kept, and training that was stopped goes on.
    """
    from posbias.files import check_folder
    from studies.lookup.settings import RATES, Setting, Training, described, grid

    errors.seconds("checkpoint_every", checkpoint_every)
    for name, value in (("seeds", seeds), ("processes", processes)):
        errors.positive_integer(name, value)
    if seeds > MOST_SEEDS:
        raise errors.invalid("seeds", f"at most {MOST_SEEDS}", seeds)
    if chapter:
        own: dict[str, tuple[Any, Any]] = {
            "encoding": (encoding, None), "layers": (layers, None), "pairs": (pairs, None), "tokens": (tokens, 1),
            "places": (places, "even"), "iterations": (iterations, 800), "batch_size": (batch_size, 64),
            "rate": (rate, None),
        }  # fmt: skip
        for name, (value, usual) in own.items():
            if value != usual:
                raise errors.invalid(name, "none with --chapter, which has its own settings", value)
    given: Any = product(encoding or ["none"], layers or [4], pairs or [32])
    asked: Mapping[Setting, Training | None] = (
        grid() if chapter else {Setting(kind, T, n, tokens, places): None for kind, T, n in given}
    )
    training = Training(iterations, batch_size, RATES[tokens] if rate is None else rate)
    wanted = {setting: training if own is None else own for setting, own in asked.items()}
    check_folder(output)

    from studies import results
    from studies.lookup.explained import measure_explained
    from studies.lookup.measure import measure_lookup_remedies, measure_profiles
    from studies.lookup.tables import PARTS
    from studies.lookup.training import run_settings
    from studies.train import missing

    fewest = min(setting.pairs for setting in wanted)
    if remedies and fewest < PARTS:
        raise errors.invalid("pairs", f"at least {PARTS} with --remedies, one for each part of the places", fewest)
    output.mkdir(parents=True, exist_ok=True)
    path, numbers = output / "lookup.nc", list(range(seeds))
    names = missing(path, {s.name: described(s, own) for s, own in wanted.items()}, numbers)

    def finish(setting: Setting) -> None:
        """Measure what is still missing of a setting's networks."""
        kept = results.Results(path)
        if (entry := f"{setting.name}.profiles") not in kept:
            results.save(path, {entry: measure_profiles(setting, numbers, output)})
        if remedies and (entry := f"{setting.name}.remedies") not in kept:
            results.save(path, {entry: measure_lookup_remedies(setting, numbers, output)})
        if explained and (entry := f"{setting.name}.explained") not in kept:
            results.save(path, {entry: measure_explained(setting, numbers, output)})

    for setting in wanted:
        if setting.name not in names:
            finish(setting)
    todo = {setting: own for setting, own in wanted.items() if setting.name in names}
    outcomes = run_settings(
        todo, numbers, output, processes=processes, checkpoint_every=checkpoint_every, progress=True
    )
    for setting, (name, data) in zip(todo, outcomes, strict=True):
        finish(setting)
        found = data["accuracy_1"].mean("seed").values
        typer.echo(
            f"{name}: {seeds} seeds, found {found.mean():.2f} of the values, first {found[0]:.2f}, last {found[-1]:.2f}"
        )
    typer.echo(f"{path}: {len(names)} entries made, {len(wanted) - len(names)} kept")
