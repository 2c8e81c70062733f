"""How much a model copies from each part of a prompt: one number for a part, for studies that change the model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from torch import nn

from posbias import errors
from posbias.lookup.answers import read_scores
from posbias.lookup.copies import copy_prompts
from posbias.lookup.tasks import Task
from posbias.measure.instrument import Instrument
from posbias.measure.study import Settings

PARTS = 8
"""Equal parts of the places."""
PROMPTS = 128


def copy_gains(settings: Settings, prompts: int = PROMPTS) -> Callable[[nn.Module], Float[np.ndarray, "part"]]:
    """Return what measures how much a model gains from the first occurrence of a segment, nats a token, by part.

    Parameters
    ----------
    settings
        Corpus, tokenizer, length and batch size are these.
    prompts
        How many prompts of copying.

    Raises
    ------
    ValueError
        As :func:`~posbias.lookup.copies.copy_prompts` does, and for fewer places than parts.
    """
    task, tokenizer = Task("copy", length=settings.length), settings.source.load_tokenizer()
    placed = copy_prompts(task, settings.corpus, tokenizer, prompts, special_tokens=settings.special_tokens)
    if (few := PARTS - len(placed.starts)) > 0:
        raise errors.invalid("length", f"at least {settings.length + few}, for {PARTS} places", settings.length)
    part = placed.places * PARTS // len(placed.starts)

    def gains(model: nn.Module) -> Float[np.ndarray, "part"]:
        instrument, found = Instrument(model), np.empty(prompts)
        for start in range(0, prompts, settings.batch_size):
            rows = slice(start, min(start + settings.batch_size, prompts))
            found[rows] = read_scores(instrument, placed, rows)["gain"].numpy()
        return np.array([found[part == k].mean() for k in range(PARTS)])

    return gains
