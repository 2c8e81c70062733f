"""The command that trains the reference models: ``python -m studies.reference train``."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer

from posbias import errors
from posbias.shipped import HELD_OUT
from studies.reference.models import REFERENCES, Reference, reference

if TYPE_CHECKING:
    from studies.reference.tokens import Texts


def register(app: typer.Typer) -> None:
    """Add the command that trains to ``app``."""
    app.command("train")(train)


def train(
    names: Annotated[list[str], typer.Argument(help="Names of reference models, such as bloom-12, or 'all'.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write to, a folder in it for each model.")],
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed of the weights and the batches.")] = 0,
    steps: Annotated[
        int | None,
        typer.Option(help="Number of optimizer steps; 0 writes the untrained model. By default the model's own."),
    ] = None,
    init: Annotated[
        Literal["default", "unit"],
        typer.Option(help="Standard deviation of the initial weights: 0.02 (default) or 1/√D (unit)."),
    ] = "default",
    snapshots: Annotated[
        str, typer.Option(help="Also write the model after these steps, separated by commas, such as 0,30,100.")
    ] = "",
    checkpoint_every: Annotated[float, typer.Option(min=0, help="Seconds between checkpoints, at least.")] = 60.0,
) -> None:
    """Train reference models on the texts that come with Python.

    Models that are there are kept, and training that was stopped goes on.
    """
    wanted = _steps(snapshots)
    rows = [reference(name) for name in (REFERENCES if names == ["all"] else names)]
    if steps is not None:
        rows = [row.shortened(steps) for row in rows]
    output.mkdir(parents=True, exist_ok=True)
    left = [row for row in rows if not _is_there(output / row.name, row, seed, init)]
    if not left:
        typer.echo(f"{output}: nothing to do, every model is complete")
        return

    from transformers.utils import logging

    from studies.reference.tokens import python_texts

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    texts = python_texts()
    _write_held_out(output, texts.held_out)
    for row in left:
        kept = [step for step in wanted if step <= row.steps]
        done = _train_one(row, texts, output, seed=seed, init=init, snapshots=kept, checkpoint_every=checkpoint_every)
        typer.echo(f"{output / row.name}: {row.steps} steps, {done}")


def _train_one(row: Reference, texts: Texts, output: Path, **options: Any) -> str:
    """Train one model, from the one that it continues if there is such a one; return what its losses are, in words."""
    from studies.reference import pretraining

    goes_on = row.continues is not None and row.steps > 0
    start = pretraining.load_start(output / str(row.continues)) if goes_on else None
    log = pretraining.train(row, texts, output / row.name, start=start, progress=row.name, **options)
    if not row.steps:
        return "untrained"
    return f"training loss {log[-50:, 0].mean():.3f}, held-out loss {log[-1, 1]:.3f} nats a token"


def _is_there(folder: Path, row: Reference, seed: int, init: str) -> bool:
    """Tell whether a model's training has ended; ValueError if it was another than the one asked for."""
    if not (folder / "config.json").exists():
        return False
    try:
        there = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise errors.invalid(
            str(folder), "a folder without a model, or with one that was trained here", error
        ) from None
    for name, value in {"seed": seed, "init": init, "steps": row.steps}.items():
        if there.get(name) != value:
            raise errors.invalid(f"{folder}: {name}", f"{value}, or another --output", there.get(name))
    return True


def _write_held_out(folder: Path, documents: list[np.ndarray]) -> None:
    """Write token ids of documents, as :func:`posbias.shipped.held_out_documents` reads them."""
    lengths = np.array([ids.size for ids in documents], dtype=np.uint16)
    arrays = {"ids": np.concatenate(documents).astype(np.uint16), "lengths": lengths}
    with zipfile.ZipFile(folder / HELD_OUT, "w") as archive:  # as np.savez does, in two thirds of the bytes
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy")
            entry.compress_type = zipfile.ZIP_LZMA
            with archive.open(entry, "w") as stream:
                np.lib.format.write_array(stream, array)


def _steps(text: str) -> list[int]:
    try:
        found = [int(part) for part in text.split(",") if part.strip()]
        if min(found, default=0) < 0:
            raise ValueError
        return found
    except ValueError:
        raise errors.invalid("snapshots", "steps separated by commas, such as 0,30,100", text) from None
