"""Prompts whose answer stands at a known place: their tokens, their answers, and where each place begins."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int


@dataclass(frozen=True)
class PlacedPrompts:
    """Hold N prompts of n tokens with answers of L tokens, of which all but the last end the prompt.

    Parameters
    ----------
    ids
        Token ids; the next tokens after the last L of them are the answer.
    answers
        The answers.
    places
        Index of the place where each answer stands, from 0.
    starts, width
        First token of each of the P places, and how many tokens a place has.
    units
        What each prompt was drawn with: numbers that are equal for prompts that are not independent.
    values
        The values of all pairs of each prompt, place by place; None where there are none to choose from.
    controls
        The prompts with other text where the answer stands; None without a control.
    """

    ids: Int[np.ndarray, "N n"]
    answers: Int[np.ndarray, "N L"]
    places: Int[np.ndarray, "N"]
    starts: Int[np.ndarray, "P"]
    width: int
    units: Int[np.ndarray, "N"]
    values: Int[np.ndarray, "N P L"] | None = None
    controls: Int[np.ndarray, "N n"] | None = None

    @property
    def asked(self) -> Int[np.ndarray, "N m"]:
        """The prompts up to where the answer begins: what a profile is of."""
        return self.ids[:, : self.ids.shape[1] - self.answers.shape[1] + 1]

    @property
    def sha256(self) -> str:
        """Digest of prompts, answers and controls."""
        digest = hashlib.sha256()
        for x in (self.ids, self.answers, self.places, self.controls):
            digest.update(b"" if x is None else np.ascontiguousarray(x, dtype="<i8").tobytes())
        return digest.hexdigest()

    def subset(self, prompts: int) -> Int[np.ndarray, "M"]:
        """Return so many prompts, whose places are as evenly spread as those of all, in the order of the prompts."""
        order = np.argsort(self.places, kind="stable")
        return np.sort(order[evenly(prompts, len(order))])

    def by_place(self, profile: Float[np.ndarray, "... m"]) -> Float[np.ndarray, "... P"]:
        """Return what a profile over tokens has at each place: the sum over its tokens."""
        before = np.zeros((*profile.shape[:-1], 1))
        total = np.concatenate([before, np.cumsum(profile, axis=-1)], axis=-1)
        return np.asarray(total[..., self.starts + self.width] - total[..., self.starts])


def evenly(count: int, size: int) -> Int[np.ndarray, "count"]:
    """Return ``count`` numbers below ``size``, as evenly spaced as can be; repeated if there are more.

    >>> evenly(2, 4).tolist(), evenly(5, 2).tolist()
    ([1, 3], [0, 0, 1, 1, 1])
    """
    return ((np.arange(count) + 0.5) * size / max(count, 1)).astype(np.int64)


def spread(prompts: int, places: int, rng: np.random.Generator) -> Int[np.ndarray, "N"]:
    """Return a place for each prompt: each place as often as any other or once more, evenly, in random order.

    Parameters
    ----------
    prompts, places
        How many of either. With fewer prompts than places, places are left out evenly.
    rng
        For the order.

    >>> np.bincount(spread(7, 3, np.random.default_rng(0))).tolist()
    [2, 3, 2]
    """
    rounds, rest = divmod(prompts, places)
    found = np.concatenate([np.tile(np.arange(places), rounds), evenly(rest, places)])
    return np.asarray(rng.permutation(found))
