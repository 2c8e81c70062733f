"""The command that trains small networks from scratch: ``python -m studies.icl train``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from posbias import errors

if TYPE_CHECKING:
    import xarray as xr

    from studies.icl.settings import Setting


def register(app: typer.Typer) -> None:
    """Add the command that trains to ``app``."""
    app.command("train")(train)


def train(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for icl.nc, with an entry for each setting, and checkpoints.")
    ],
    preset: Annotated[
        list[str] | None,
        typer.Option(
            "--preset", "-p", help="Settings of a figure of Wu et al. (2025), figure2 to figure13, or spread, or deep."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of networks for each setting; their seeds are 0, 1, …")] = 5,
    iterations: Annotated[int, typer.Option(help="Number of optimizer steps.")] = 100_000,
    batch_size: Annotated[int, typer.Option(help="Sequences in a batch.")] = 128,
    precision: Annotated[
        Literal["float32", "bfloat16"], typer.Option(help="Precision of matrix products in training.")
    ] = "float32",
    device: Annotated[str | None, typer.Option(help="cpu, cuda, …; by default a GPU if there is one.")] = None,
    processes: Annotated[int, typer.Option(help="Number of networks to train at a time, each on one thread.")] = 1,
    tested: Annotated[int, typer.Option(help="Number of test sequences in each order of the labels.")] = 10_000,
    mask: Annotated[
        Literal["full", "causal", "window", "prefix"], typer.Option(help="Attention mask, without a preset.")
    ] = "causal",
    width: Annotated[int | None, typer.Option(help="Number of tokens in the window or the prefix.")] = None,
    encoding: Annotated[
        Literal["none", "decay", "sinusoidal", "rope"],
        typer.Option(help="Positional encoding, without a preset."),
    ] = "none",
    layers: Annotated[int, typer.Option(help="Number of layers, without a preset.")] = 2,
    residual: Annotated[bool, typer.Option("--residual", help="Add residual connections, without a preset.")] = False,
    bias: Annotated[
        Literal["none", "first", "middle", "last", "ends"],
        typer.Option(help="Place of the answer in the training data, without a preset."),
    ] = "none",
    items: Annotated[int | None, typer.Option(help="Item-label pairs in a sequence, n.")] = None,
    classes: Annotated[int | None, typer.Option(help="Number of classes, K.")] = None,
    labels: Annotated[int | None, typer.Option(help="Number of labels, L.")] = None,
    burstiness: Annotated[int | None, typer.Option(help="Items of each class in a training sequence.")] = None,
    dimension: Annotated[int | None, typer.Option(help="Dimension of a token, d.")] = None,
    vocabulary: Annotated[
        Literal["mixture", "fixed"] | None,
        typer.Option(help="Whether items scatter about their class (mixture) or equal its vector (fixed)."),
    ] = None,
    spread: Annotated[
        Literal["text", "code"] | None,
        typer.Option(help="Components of class vectors: variance 1/d (text), or standard deviation 1/d (code)."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the last checkpoints, which hold the weights.")] = False,
    checkpoint_every: Annotated[float, typer.Option(help="Minimum time between checkpoints, in seconds.")] = 60.0,
) -> None:
    """Train small attention-only networks on a retrieval task and measure which positions they favour.

    Entries that are there are kept, and training that was stopped goes on.
    """
    from posbias.files import check_folder
    from posbias.rollout.masks import Mask
    from studies.icl.settings import Network, Setting, Task, Training, check_memory
    from studies.icl.settings import preset as settings_of

    errors.seconds("checkpoint_every", checkpoint_every)
    if device is not None:
        errors.device("device", device)
    training = Training(iterations, batch_size, precision=precision)
    for name, value in (("seeds", seeds), ("processes", processes), ("tested", tested)):
        errors.positive_integer(name, value)
    task = {
        "items": items, "classes": classes, "labels": labels, "burstiness": burstiness, "dimension": dimension,
        "vocabulary": vocabulary, "spread": spread,
    }  # fmt: skip
    if preset:
        wanted = _with([setting for name in preset for setting in settings_of(name)], "task", task)
    else:
        if (width is None) == (mask in ("window", "prefix")):
            raise errors.invalid(
                "width", "a number of tokens with --mask window or prefix, none with other masks", width
            )
        one = Setting(Task(bias=bias), Network(layers, Mask("causal"), encoding, residual))
        wanted = _with(_with([one], "task", task), "network", {"mask": Mask(mask, width or 0)})

    for setting in wanted:
        check_memory(setting, training, tested, seeds)
    check_folder(output)

    import torch

    from studies.icl import training as module
    from studies.train import missing

    where = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(1, device=where)
    except (RuntimeError, AssertionError):
        raise errors.invalid("device", "a device that torch can use here, such as cpu or cuda", where) from None
    output.mkdir(parents=True, exist_ok=True)
    path, numbers = output / "icl.nc", list(range(seeds))
    names = missing(path, {s.name: module.described(s, training, tested) for s in wanted}, numbers)
    outcomes = module.run_settings(
        [setting for setting in wanted if setting.name in names], numbers, training, output, size=tested, device=where,
        processes=processes, keep=keep, checkpoint_every=checkpoint_every, progress=True,
    )  # fmt: skip
    for name, results in outcomes:
        _tell(name, results)
    typer.echo(f"{path}: {len(names)} entries made, {len(wanted) - len(names)} kept")


def _with(settings: list[Setting], part: str, given: dict[str, Any]) -> list[Setting]:
    """Return the settings with the given fields of a part, ``task`` or ``network``, replaced; without duplicates."""
    from dataclasses import replace

    given = {name: value for name, value in given.items() if value is not None}
    return list(dict.fromkeys(replace(s, **{part: replace(getattr(s, part), **given)}) for s in settings))


def _tell(name: str, results: xr.Dataset) -> None:
    """Print what a setting's networks favour, and which of them stopped early."""
    from studies.icl.outcomes import gaps

    for seed, step in zip(results["seed"].values, results["stopped"].values, strict=True):
        if step >= 0:
            typer.echo(f"{name}: seed {seed} stopped: its loss was not finite at step {step}", err=True)
    means = zip(results["pair"].values, gaps(results).mean(0), strict=True)
    typer.echo(f"{name}: {results.sizes['seed']} seeds, {', '.join(f'{pair} {gap:+.3f}' for pair, gap in means)}")
