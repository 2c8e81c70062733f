"""What makes the finger blunt: answers with rotary positions, numbers or words of the question changed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int

from posbias.prompts import Ask
from posbias.settings import Settings
from studies.making import go_on
from studies.reading.heads import JUDGE, PLACES, competing, open_passes, unfinished
from studies.reading.passes import lay_out

DEALT = (0, 4, 1, 5, 2, 6, 3, 7)
"""Rotary slot, or number, of each document where these are dealt like cards: next to each other are 0, 2, 4, …"""
GAP = 100
"""Positions between documents that are put apart; a document has about 42."""

Where = tuple[Float[np.ndarray, "n"], tuple[float, float]]
"""Positions of tokens of the documents, then that of the question's first token and the step to the next."""


def as_read(segment: Int[np.ndarray, "n"], scale: float = 1.0) -> Where:
    """Return positions 0, 1, …, each times ``scale``.

    >>> positions, after = as_read(np.array([0, 1, 1]), 0.5)
    >>> positions.tolist(), after
    ([0.0, 0.5, 1.0], (1.5, 0.5))
    """
    return np.arange(len(segment)) * scale, (len(segment) * scale, scale)


def apart(segment: Int[np.ndarray, "n"], gap: int = GAP) -> Where:
    """Return positions with a gap before each document but the first, and before the question.

    >>> positions, after = apart(np.array([0, 1, 1, 2]), 10)
    >>> positions.tolist(), after
    ([0, 1, 2, 13], (24.0, 1.0))
    """
    shift = gap * np.maximum(segment - 1, 0)
    return np.arange(len(segment)) + shift, (float(len(segment) + gap * segment.max()), 1.0)


def dealt(segment: Int[np.ndarray, "n"], slots: tuple[int, ...] = DEALT) -> Where:
    """Return positions as if documents stood in another order, each in its slot; what is read first stays first.

    >>> dealt(np.array([0, 1, 1, 2]), (1, 0))[0].tolist()
    [0.0, 2.0, 3.0, 1.0]
    """
    positions, at = np.zeros(len(segment)), int((segment == 0).sum())
    positions[segment == 0] = np.arange(at)
    for document in np.argsort(slots[: int(segment.max())]):
        own = np.flatnonzero(segment == document + 1)
        positions[own] = at + np.arange(len(own))
        at += len(own)
    return positions, (float(at), 1.0)


def together(segment: Int[np.ndarray, "n"]) -> Where:
    """Return positions with which all documents begin at the same one; the question follows the longest.

    >>> positions, after = together(np.array([0, 1, 1, 2]))
    >>> positions.tolist(), after
    ([0.0, 1.0, 2.0, 1.0], (3.0, 1.0))
    """
    starts = np.array([np.flatnonzero(segment == k)[0] for k in range(segment.max() + 1)])
    positions = np.arange(len(segment)) - starts[segment] + np.where(segment == 0, 0, starts[1])
    return positions.astype(float), (float(positions.max() + 1), 1.0)


def alone(segment: Int[np.ndarray, "n"]) -> Bool[np.ndarray, "n n"]:
    """Return which tokens see which, where a document sees what stands before the first one, and itself."""
    seen = (segment[None, :] == 0) | (segment[None, :] == segment[:, None])
    return np.tri(len(segment), dtype=bool) & seen


def name_again(ask: Ask) -> Ask:
    """Return what is asked with the name that tells the documents apart three times in front of the question.

    >>> name_again(Ask((), "How? The Vanlin bell weighs …", "3", "The Vanlin bell weighs")).question
    'Vanlin, Vanlin, Vanlin. How? The Vanlin bell weighs …'
    """
    (name,) = re.findall(r"(?<=.)\b[A-Z]\w+", ask.begin)
    return replace(ask, question=f"{name}, {name}, {name}. {ask.question}")


@dataclass(frozen=True)
class Condition:
    """Say how documents are read: at which rotary positions, each alone or not, called what, and how they are asked."""

    where: Callable[[Int[np.ndarray, "n"]], Where] = as_read
    alone: bool = False
    numbers: tuple[int, ...] | None = None
    change: Callable[[Ask], Ask] | None = None


CONDITIONS = {
    "as it is": Condition(),
    "positions × 0.5": Condition(partial(as_read, scale=0.5)),
    "positions × 2": Condition(partial(as_read, scale=2.0)),
    "documents apart": Condition(apart),
    "positions dealt": Condition(dealt),
    "numbers dealt": Condition(numbers=tuple(k + 1 for k in DEALT)),
    "each alone": Condition(alone=True),
    "all at one place": Condition(together),
    "the name again": Condition(change=name_again),
}
"""What is tried, by name."""


def measure_blur(settings: Settings) -> xr.Dataset:
    """Return each answer's log-probability, ``told``, under :data:`CONDITIONS`, on sets of :data:`JUDGE`."""
    session, passes = open_passes(settings)
    sets = competing(settings.prompts, JUDGE)

    def read(k: int) -> dict[str, np.ndarray]:
        told = np.zeros((len(CONDITIONS), PLACES, PLACES))
        for row, condition in enumerate(CONDITIONS.values()):
            asks = sets[k] if condition.change is None else tuple(map(condition.change, sets[k]))
            documents = lay_out(session.tokenizer, asks, condition.numbers)
            positions, after = condition.where(documents.segment)
            visible = alone(documents.segment) if condition.alone else None
            passes.read_documents(documents.ids, positions, visible, after)
            told[row] = [passes.ask(question) for question in documents.questions]
        return {"told": told}

    rows = go_on(settings.prompts, read, unfinished(settings, "blur"), "sets")
    told = rows["told"].swapaxes(0, 1).astype(np.float32)
    arrays = {"told": (("condition", "context", "asked", "document"), told)}
    about = {"dealt": list(DEALT), "gap": GAP, "judge": JUDGE}
    return xr.Dataset(arrays, {"condition": list(CONDITIONS)}, session.provenance() | about)
