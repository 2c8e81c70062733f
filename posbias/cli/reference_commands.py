"""The command that trains the reference models: ``posbias train-reference``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from posbias import checks
from posbias.shipped import write_held_out


def register(app: typer.Typer) -> None:
    """Add the command that trains to ``app``."""
    app.command("train-reference")(train_reference)


def train_reference(
    names: Annotated[list[str], typer.Argument(help="Reference models, such as bloom-12; all of them if 'all'.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder that gets a folder for each model.")],
    seed: Annotated[int, typer.Option(help="Of weights and batches.")] = 0,
    steps: Annotated[int | None, typer.Option(help="Optimizer steps; 0 writes the untrained twin.")] = None,
    init: Annotated[
        Literal["default", "unit"], typer.Option(help="Standard deviation of the first weights: 0.02, or 1/√D.")
    ] = "default",
    snapshots: Annotated[
        str, typer.Option(help="Steps after which to write the model too, if it has as many, such as 0,30,100.")
    ] = "",
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoints, if there are any.")] = False,
    checkpoint_every: Annotated[float, typer.Option(help="Least seconds between checkpoints.")] = 60.0,
) -> None:
    """Train reference models on the texts that this Python carries."""
    from transformers.utils import logging

    from posbias.training.reference.models import REFERENCES, reference

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    rows = [reference(name) for name in (REFERENCES if names == ["all"] else names)]
    wanted = _steps(snapshots)
    if steps is not None:
        rows = [row.shortened(steps) for row in rows]
    output.mkdir(parents=True, exist_ok=True)
    left = [row for row in rows if not (resume and (output / row.name / "config.json").exists())]
    if not left:
        typer.echo(f"{output}: all there")
        return

    from posbias.training.reference.pretraining import load_start, train
    from posbias.training.reference.tokens import python_texts

    texts = python_texts()
    write_held_out(output, texts.held_out)
    for row in left:
        start = None
        if row.continues is not None and row.steps > 0:
            start = load_start(output / row.continues)
        log = train(
            row,
            texts,
            output / row.name,
            seed=seed,
            init=init,
            start=start,
            snapshots=[step for step in wanted if step <= row.steps],
            resume=resume,
            checkpoint_every=checkpoint_every,
            progress=sys.stderr.isatty(),
        )
        done = "untrained"
        if row.steps:
            done = f"training loss {log[-50:, 0].mean():.3f}, held-out loss {log[-1, 1]:.3f} nats a token"
        typer.echo(f"{output / row.name}: {row.steps} steps, {done}")


def _steps(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise checks.refuse("snapshots", "steps with commas between, such as 0,30,100", text) from None
