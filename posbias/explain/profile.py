"""The position profile that a prompt is set beside: influence by place in other prompts of as many tokens."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.comparison.pairs import usable
from posbias.comparison.resampling import resampled_profiles
from posbias.measure.corpus import known_units
from posbias.measure.measurement import Measurement, load

RESAMPLES = 2000


def given_profile(profile: Any, source: Any, length: int) -> Measurement:
    """Return a measurement, or the one in a file, or raise ValueError unless it is of this model at this length.

    The message says which command measures what is wanted.
    """
    found = load(profile) if isinstance(profile, str | PathLike) else profile
    if not isinstance(found, Measurement):
        raise errors.invalid("profile", "a measurement, or a file of one (.nc)", repr(profile)[:60])
    attrs, name = found.results.attrs, source.name()
    command = f"posbias measure {name} -n {length} -d builtin -N 32 -q mixing,influence -o profile.nc"
    if "prompt_length" in found.results or found.length != length:
        whole = "whole prompts" if "prompt_length" in found.results else f"{found.length}"
        raise errors.invalid("profile", f"prompts of {length} tokens ({command})", whole)
    if attrs["model"] != name or "added_bias" in attrs:
        added = " with a bias that was added" if "added_bias" in attrs else ""
        raise errors.invalid("profile", f"a measurement of {name} ({command})", f"{attrs['model']}{added}")
    if attrs.get("revision") != (version := source.version()):
        raise errors.invalid("profile", f"{name} as it is, {version} ({command})", attrs.get("revision"))
    for field in {"lambda_frobenius", "lambda_token"} & {*found.results}:
        errors.mixing_coefficients(f"profile: {field}", found.results[field].values)
    for field in ("influence", "influence_prompts"):
        if field in found.results:
            errors.finite_array(f"profile: {field}", found.results[field].values, ndim=(1, 2))
    return found


def shares(profile: Measurement) -> Float[np.ndarray, "N n"] | None:
    """Return each prompt's shares of influence by position, None where the file does not tell prompts.

    Gradients of a model that is sure are small: summed as they are, a few prompts of which it is not would be the
    whole profile.
    """
    prompts = profile.influence.prompts
    if prompts is None or not usable(prompts):
        return None
    return np.asarray(prompts / prompts.sum(1, keepdims=True))


def by_place(profile: Measurement) -> Float[np.ndarray, "n"]:
    """Return the mean share by position, each prompt counted alike; of a file without prompts the mean influence."""
    each = shares(profile)
    return profile.influence.values if each is None else np.asarray(each.mean(0))


def drawn_again(profile: Measurement, seed: int = 0) -> Float[np.ndarray, "B n"] | None:
    """Return the mean shares of resampled documents, None where the file does not tell prompts or has one document."""
    prompts, units = shares(profile), known_units(profile.results)
    if prompts is None:
        return None
    units = np.arange(len(prompts)) if units is None else units
    return None if np.unique(units).size < 2 else resampled_profiles(prompts, RESAMPLES, units=units, seed=seed)
