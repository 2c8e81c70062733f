"""Texts whose memory is known, and what optimal prediction of them loses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

LETTERS, STAY, LENGTH = 16, 0.9, 128
BURN = 4
"""Memories' lengths that are drawn before a text begins, so that its beginning is like its middle."""


@dataclass(frozen=True)
class Text:
    """Say how a letter follows from those before it: from one of the last ``memory``, or from that so far back."""

    memory: int
    copy: bool = False
    steps: int = 200
    """Of training on it."""


TEXTS = {
    "none": Text(0, steps=80),
    "memory-1": Text(1, steps=150),
    "memory-8": Text(8, steps=200),
    "memory-64": Text(64, steps=300),
    "copy-64": Text(64, copy=True, steps=300),
}


def draw_text(text: Text, many: int, rng: np.random.Generator) -> Int[np.ndarray, "many n"]:
    """Return texts of 128 letters; equal generators draw the same."""
    k = text.memory
    total = LENGTH + (0 if text.copy else BURN * k)
    letters = rng.integers(LETTERS, size=(many, total))
    if k == 0:
        return letters
    stays = rng.random((many, total)) < STAY
    back = np.full((many, total), k) if text.copy else rng.integers(1, k + 1, size=(many, total))
    rows = np.arange(many)
    for t in range(k, total):
        letters[:, t] = np.where(stays[:, t], letters[rows, t - back[:, t]], letters[:, t])
    return letters[:, -LENGTH:]


def predict_next(text: Text, letters: Int[np.ndarray, "many n"]) -> Float[np.ndarray, "many L"]:
    """Return the optimal prediction of the letter behind each row, of ``memory`` letters or more.

    >>> predict_next(Text(2), np.array([[5, 0, 1]]))[0, [0, 1, 5]].round(5).tolist()
    [0.45625, 0.45625, 0.00625]
    """
    k = text.memory
    if k == 0:
        return np.full((len(letters), LETTERS), 1 / LETTERS)
    used = letters[:, -k:][:, :1] if text.copy else letters[:, -k:]
    share = np.eye(LETTERS)[used].mean(1)
    return STAY * share + (1 - STAY) / LETTERS


def optimal_loss(text: Text, letters: Int[np.ndarray, "many n"]) -> float:
    """Return the mean loss of the second half's letters under optimal prediction, nats."""
    losses = []
    for t in range(LENGTH // 2, LENGTH):
        found = predict_next(text, letters[:, :t])
        losses.append(-np.log(found[np.arange(len(letters)), letters[:, t]]))
    return float(np.mean(losses))
