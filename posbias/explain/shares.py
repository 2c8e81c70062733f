"""Shares of influence: of segments, of places in other prompts, and what is left once place is divided out."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from posbias import errors
from posbias.comparison.pairs import usable
from posbias.comparison.resampling import resampled_profiles
from posbias.measure.corpus import known_units
from posbias.measure.measurement import Measurement, load


def by_segment(values: Float[np.ndarray, "*B n"], segment: Int[np.ndarray, "n"]) -> Float[np.ndarray, "*B S"]:
    """Return the sum over each segment's tokens; start tokens, of segment -1, are in none.

    >>> by_segment(np.array([0.5, 0.25, 0.125, 0.125]), np.array([-1, 0, 1, 0])).tolist()
    [0.375, 0.125]
    """
    return np.asarray(values @ (segment[:, None] == np.arange(segment.max() + 1)))


def without_position(share: Float[np.ndarray, "S"], expected: Float[np.ndarray, "*B S"]) -> Float[np.ndarray, "*B S"]:
    """Return shares divided by what their places get in other prompts, normalised to sum 1.

    Influence of a passage is about a product of an effect of its place and one of its content: the chapter
    ``documents`` measures how nearly.

    >>> without_position(np.array([0.25, 0.5]), np.array([0.25, 0.25])).round(3).tolist()
    [0.333, 0.667]
    """
    left = share / expected
    return np.asarray(left / left.sum(-1, keepdims=True))


def place_shares(profile: Measurement) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "B n"] | None]:
    """Return the mean share of influence by position, and that of resampled documents.

    Each prompt counts alike: gradients of a model that is sure are small, and summed as they are, a few prompts of
    which it is not would be the whole profile. Of a file without prompts the first is the mean influence; without them,
    and of one document, there is no second.
    """
    prompts = profile.influence.prompts
    if prompts is None or not usable(prompts):
        return profile.influence.values, None
    shares, units = prompts / prompts.sum(1, keepdims=True), known_units(profile.results)
    if units is None:
        units = np.arange(len(shares))
    return shares.mean(0), resampled_profiles(shares, units=units) if np.unique(units).size > 1 else None


def read_profile(profile: Any, source: Any, length: int) -> Measurement:
    """Return a measurement, or the one in a file, or raise ValueError unless it is of this model at this length.

    The message says which command measures what is wanted.
    """
    measured = load(profile) if isinstance(profile, str | PathLike) else profile
    if not isinstance(measured, Measurement):
        raise errors.invalid("profile", "a measurement, or a file of one (.nc)", repr(profile)[:60])
    attrs, name, version = measured.results.attrs, source.name(), source.version()
    received = (
        attrs["model"],
        attrs.get("revision"),
        f"{measured.length} tokens",
        "a bias added" if "added_bias" in attrs else "as it is",
    )
    expected = (name, version, f"{length} tokens", "as it is")
    if received != expected:
        command = f"posbias measure {name} -n {length} -d builtin -N 32 -q mixing,influence -o profile.nc"
        raise errors.invalid("profile", f"{', '.join(expected)} ({command})", ", ".join(map(str, received)))
    for field in {"influence", "influence_prompts"} & {*measured.results}:
        errors.finite_array(f"profile: {field}", measured.results[field].values, ndim=(1, 2))
    return measured
