"""Measured influence profiles of many models as tables: their shape, their precision, and other texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias.comparison.distances import normalised_wasserstein, wasserstein_to
from posbias.comparison.resampling import interval
from posbias.comparison.samples import SMOOTH, Sample, u_decisions
from posbias.rollout.profiles import mean_position, u_shape

SMOOTH_LONG = 33
"""Width of the running mean under a trough, for prompts of 1,024 tokens."""


def most_have_a_u(samples: Mapping[str, Sample], *, smooth: int, resamples: int = 600) -> bool:
    """Tell whether more than half of the models have a U by :func:`u_decisions`."""
    return bool((u_decisions(samples, smooth=smooth, resamples=resamples)["u"] == "yes").mean() > 0.5)


def end_dominates(samples: Mapping[str, Sample]) -> bool:
    """Tell whether the last quarter has more influence than any other quarter, in every model."""
    return all(quarters(sample.profile).argmax() == 3 for sample in samples.values())


def quarters(p: Float[np.ndarray, "n"]) -> Float[np.ndarray, "4"]:
    """Return the influence of each quarter of a prompt.

    >>> quarters(np.array([0.1, 0.2, 0.3, 0.4])).tolist()
    [0.1, 0.2, 0.3, 0.4]
    """
    return np.asarray(p.reshape(4, -1).sum(1))


def passes(
    check: Callable[[Mapping[str, Sample]], bool],
    samples: Mapping[str, Sample],
    broken: Callable[[str, Sample, np.random.Generator], Sample],
    runs: int,
) -> Iterator[bool]:
    """Yield whether a check passes on broken samples, run by run: each has units drawn anew."""
    for rng in np.random.default_rng(0).spawn(runs):
        yield check({name: broken(name, sample.redrawn(rng), rng) for name, sample in samples.items()})


def lead_turned(sample: Sample, power: float = -0.5) -> Sample:
    """Return a sample whose last quarter has (last / best other)^power of the influence of the best other quarter."""
    shares = quarters(sample.profile)
    lead = shares[3] / shares[:3].max()
    factor = np.ones(sample.influence.shape[1])
    factor[-factor.size // 4 :] = lead ** (power - 1)
    return sample.scaled(factor)


def with_profile(sample: Sample, profile: Float[np.ndarray, "n"]) -> Sample:
    """Return a sample with another mean profile and its own noise about it, prompt by prompt, position by position."""
    p = sample.profile
    return sample.scaled(np.divide(profile, p, out=np.zeros_like(p), where=p > 0))


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
    return sample.scaled(factor)


def resampling_noise(sample: Sample, sizes: Sequence[int], *, resamples: int = 500) -> pd.DataFrame:
    """Return how far a profile of resampled prompts is from the profile itself, by the number of prompts.

    Index ``prompts``; columns ``units``, how many they are from, ``distance``, the median normalised W₁, and
    ``scaled``, the same times √units.
    """
    rows = {}
    for size in sizes:
        some = Sample(sample.influence[:size], sample.units[:size])
        distance, units = (
            float(np.median(wasserstein_to(some.resampled(resamples), some.profile))),
            some.units.max() + 1,
        )
        rows[size] = {"units": int(units), "distance": distance, "scaled": distance * units**0.5}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("prompts")


def profile_shapes(samples: Mapping[str, Sample], *, resamples: int = 1000) -> pd.DataFrame:
    """Return where influence lies, and whether the start stands above a trough.

    Index ``model``. Columns: ``mean`` position; ``first``, influence of the first token times n; ``last``, that of
    the last; ``depth`` of the U (:func:`~posbias.rollout.profiles.u_shape`, running mean of :data:`SMOOTH`); its
    ``trough``, the place as a share of the prompt, with ``trough_low`` and ``trough_high``, the 95% interval;
    ``excess``, ``adjusted`` and ``u`` of :func:`u_decisions`; ``depth_aside``, without the first token;
    ``u_eight``, where each end is a mean over eight tokens.
    """
    decided, of_eight = (u_decisions(samples, ends=ends, resamples=resamples) for ends in (1, 8))
    rows = {}
    for name, sample in samples.items():
        p = sample.profile
        places = [u_shape(q, smooth=SMOOTH).location for q in sample.resampled(resamples)]
        low, high = interval(np.array(places))
        whole = u_shape(p, smooth=SMOOTH)
        rows[name] = {
            "mean": mean_position(p),
            "first": float(p[0]) * p.size,
            "last": float(p[-1]),
            "depth": whole.depth,
            "trough": whole.location,
            "trough_low": float(low),
            "trough_high": float(high),
            "depth_aside": u_shape(without_first(p), smooth=SMOOTH).depth,
        }
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")
    return table.join(decided).assign(u_eight=of_eight["u"])


def without_first(p: Float[np.ndarray, "n"]) -> Float[np.ndarray, "_"]:
    """Return the influence of all tokens but the first, normalised again.

    >>> without_first(np.array([0.5, 0.1, 0.4])).tolist()
    [0.2, 0.8]
    """
    return p[1:] / p[1:].sum()


def text_distances(kept: Mapping[str, xr.Dataset], models: Mapping[str, xr.Dataset]) -> pd.DataFrame:
    """Return W₁ of each model's profile to that on WikiText-2 and on random tokens; index ``model``."""
    rows = {}
    for name, x in models.items():
        p = x["influence"].values
        others = {"wikitext": kept[f"{name}.wikitext-2"], "random": kept[f"{name}.random"]}
        apart = {text: normalised_wasserstein(p, other["influence"].values) for text, other in others.items()}
        rows[name] = apart
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")


def long_shapes(samples: Mapping[str, Sample], *, resamples: int = 1000) -> pd.DataFrame:
    """Return the shape of profiles of long prompts.

    Index ``model``. Columns: ``prompts`` and ``units``; ``mean`` position; ``first``, influence of the first token
    times n; ``quarter_1`` to ``quarter_4``, influence of each quarter of the prompt; ``depth`` of the U under a
    running mean of :data:`SMOOTH_LONG` positions (-inf where the first token has no influence), its ``trough``
    with ``trough_low`` and ``trough_high``; ``excess``, ``adjusted`` and ``u`` of :func:`u_decisions`.
    """
    rows = {}
    for name, sample in samples.items():
        p = sample.profile
        u = u_shape(p, smooth=SMOOTH_LONG)
        low, high = interval(np.array([u_shape(q, smooth=SMOOTH_LONG).location for q in sample.resampled(resamples)]))
        parts = {f"quarter_{k}": float(part) for k, part in enumerate(quarters(p), 1)}
        size = {"prompts": len(sample.influence), "units": int(sample.units.max()) + 1}
        whole = size | {"mean": mean_position(p), "first": float(p[0]) * p.size}
        shape = {"depth": u.depth, "trough": u.location, "trough_low": float(low), "trough_high": float(high)}
        rows[name] = whole | parts | shape
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")
    return table.join(u_decisions(samples, smooth=SMOOTH_LONG, resamples=resamples))
