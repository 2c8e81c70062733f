"""Train a network on a text of known memory, and measure by place what it has of its prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor, nn

from studies import train as trainer
from studies.changes import measure_changes, measure_gradient
from studies.memory.texts import LENGTH, LETTERS, TEXTS, draw_text, optimal_loss
from studies.reference.models import Reference
from studies.reference.pretraining import initial_model
from studies.rotation import THETA
from studies.summaries import shave

LAYERS, WIDTH, HEADS, BATCH, RATE, RISE = 2, 64, 4, 8, 3e-3, 50
ROTARY = {"rope_parameters": {"rope_type": "default", "rope_theta": THETA}}
NETWORKS = {
    "alibi": Reference("alibi", "bloom", LAYERS, WIDTH, HEADS, {"vocab_size": LETTERS}),
    "rope": Reference("rope", "llama", LAYERS, WIDTH, HEADS, {"vocab_size": LETTERS, **ROTARY}),
    "nope": Reference("nope", "gpt2", LAYERS, WIDTH, HEADS, {"vocab_size": LETTERS}, positions=False, length=LENGTH),
}
"""One network for each way of telling places apart, of the families that the reference models have."""
HELD_OUT, PROMPTS = 64, 28
"""Texts that a loss is of, and prompts that a profile is of."""
DENSE, EACH = 16, 7
"""How many letters at the end are all replaced, and of how many before them one is, which moves with the prompt."""
TEST_SEED = 10_000


def learning_rate(step: int, steps: int) -> float:
    """Return the learning rate of a step: a rise, a plateau, and a fall in the last third.

    >>> [round(learning_rate(step, 150), 6) for step in (0, 49, 100, 149)]
    [6e-05, 0.003, 0.00294, 6e-05]
    """
    left = 3 * (steps - step - 1) / steps
    return RATE * min(1.0, (step + 1) / RISE, max(left, 1 / RISE))


def loss_of(network: Any, letters: Int[np.ndarray, "B n"], first: int = 1) -> Tensor:
    """Return the mean loss of the letters from ``first`` on, nats."""
    ids = torch.from_numpy(letters)
    logits = network(input_ids=ids, use_cache=False).logits[:, first - 1 : -1]
    return nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, first:].flatten())


def train_network(name: str, seed: int, path: Path) -> tuple[Any, float]:
    """Return a network trained on its text, from its checkpoint if there is one, and the seconds that it took."""
    encoding, _, kind = name.partition(".")
    text = TEXTS[kind]
    network = initial_model(NETWORKS[encoding], seed, "unit")
    weights = [x for x in network.parameters() if x.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=RATE, betas=(0.9, 0.95), weight_decay=0.01)

    def loss(step: int) -> Tensor:
        return loss_of(network, draw_text(text, BATCH, np.random.default_rng([seed, step])))

    settings = {"name": name, "seed": seed, "steps": text.steps, "batch": BATCH, "rate": RATE}
    run = trainer.Run(
        network, optimizer, loss, text.steps, settings, torch.full((1,), torch.nan),
        lambda _: held_out(network, kind)[0],
        rate=lambda step: learning_rate(step, text.steps), clip=1.0,
    )  # fmt: skip
    trainer.train(run, path)
    network.eval()
    return network, float(run.seconds)


@torch.no_grad()
def held_out(network: Any, kind: str) -> tuple[float, float]:
    """Return a network's loss on the second halves of other texts, and that of optimal prediction, nats."""
    letters = draw_text(TEXTS[kind], HELD_OUT, np.random.default_rng(TEST_SEED))
    return float(loss_of(network, letters, LENGTH // 2)), optimal_loss(TEXTS[kind], letters)


def read_profiles(network: Any, kind: str) -> dict[str, Float[np.ndarray, "N n"]]:
    """Return use and gradient of each letter of each prompt of a text; use is nan where none is replaced."""
    ids = torch.from_numpy(draw_text(TEXTS[kind], PROMPTS, np.random.default_rng(TEST_SEED + 1)))
    others = torch.from_numpy(np.random.default_rng(TEST_SEED + 2).integers(1, LETTERS, size=ids.shape))
    use, gradient = [], []
    for k, row in enumerate(ids):
        places = sorted({*range(k % EACH, LENGTH, EACH), *range(LENGTH - DENSE, LENGTH)})
        use.append(measure_changes(network, row, (row + others[k]) % LETTERS, "replaced", (), places))
        gradient.append(measure_gradient(network, row))
    return {"use": np.stack(use), "gradient": np.stack(gradient)}


def measure_network(name: str, seed: int, path: Path) -> tuple[dict[str, np.ndarray], float]:
    """Return what is kept of one network: losses, and profiles on its own text and on independent letters."""
    kind = name.partition(".")[2]
    network, seconds = train_network(name, seed, path)
    loss, optimum = held_out(network, kind)
    own, free = (read_profiles(network, text) for text in (kind, "none"))
    arrays = {x: shave(np.stack([own[x], free[x]]).astype(np.float32)) for x in ("use", "gradient")}
    return arrays | {"loss": np.array(loss), "optimum": np.array(optimum)}, seconds


def train_all(names: Sequence[str], seeds: Sequence[int], path: Path) -> Iterator[tuple[str, xr.Dataset]]:
    """Yield each network's name and its results, all seeds, once they are in the file."""

    def labelled(name: str, arrays: dict[str, np.ndarray]) -> xr.Dataset:
        dims: dict[str, tuple[str, ...]] = {"loss": ("seed",), "optimum": ("seed",)}
        whole = ("seed", "text", "prompt", "position")
        kept: dict[str, Any] = {key: (dims.get(key, whole), x) for key, x in arrays.items()}
        return xr.Dataset(kept, {"seed": list(seeds), "text": ["own", "none"]})

    yield from trainer.train_entries(names, seeds, measure_network, labelled, path, progress=True)
