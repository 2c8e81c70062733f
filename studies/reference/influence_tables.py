"""Measured influence profiles of many models as tables: their shape, their precision, and other texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from posbias.comparison.samples import Sample
from posbias.rollout.profiles import u_shape

SMOOTH_LONG = 33
"""Width of the running mean under a trough, for prompts of 1,024 tokens."""


def redrawn(sample: Sample, rng: np.random.Generator) -> Sample:
    """Return as many units drawn with replacement; one that is drawn twice counts as two."""
    names = np.unique(sample.units)
    rows = [np.flatnonzero(sample.units == name) for name in rng.choice(names, names.size)]
    labels = np.repeat(np.arange(names.size), [row.size for row in rows])
    return Sample(sample.influence[np.concatenate(rows)], labels)


def scaled(sample: Sample, factor: Float[np.ndarray, "n"]) -> Sample:
    """Return a sample with the influence of each position multiplied."""
    return replace(sample, influence=sample.influence * factor)


def passes(
    check: Callable[[Mapping[str, Sample]], bool],
    samples: Mapping[str, Sample],
    broken: Callable[[str, Sample, np.random.Generator], Sample],
    runs: int,
) -> Iterator[bool]:
    """Yield whether a check passes on broken samples, run by run: each has units drawn anew."""
    for rng in np.random.default_rng(0).spawn(runs):
        yield check({name: broken(name, redrawn(sample, rng), rng) for name, sample in samples.items()})


def with_profile(sample: Sample, profile: Float[np.ndarray, "n"]) -> Sample:
    """Return a sample with another mean profile and its own noise about it, prompt by prompt, position by position."""
    p = sample.profile
    return scaled(sample, np.divide(profile, p, out=np.zeros_like(p), where=p > 0))


def shuffled(sample: Sample, rng: np.random.Generator) -> Sample:
    """Return a sample whose positions are shuffled, in each prompt anew."""
    return replace(sample, influence=rng.permuted(sample.influence, axis=1))


def start_moved(sample: Sample, power: float, *, smooth: int) -> Sample:
    """Return a sample whose first token stands (start / trough)^power above the trough."""
    p = sample.profile
    u = u_shape(p, smooth=smooth)
    factor = np.ones_like(p)
    if u.start > 0 and u.trough > 0:
        factor[0] = (u.start / u.trough) ** (power - 1)
    return scaled(sample, factor)
