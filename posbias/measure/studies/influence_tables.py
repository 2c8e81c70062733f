"""Measured influence profiles of many models as tables: their shape, their precision, other texts, and signs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias.comparison.distances import normalised_wasserstein, wasserstein_to
from posbias.rollout.profiles import mean_position, u_shape
from posbias.statistics.resampling import interval, resampled_profiles

SMOOTH = 9
"""Width of the running mean under a trough, in tokens."""


def resampling_noise(
    influence: Float[np.ndarray, "N n"], sizes: Sequence[int], *, resamples: int = 500
) -> pd.DataFrame:
    """Return how far a profile of resampled prompts is from the profile itself, by the number of prompts.

    Parameters
    ----------
    influence
        Each prompt's influence at each position.
    sizes
        Numbers of prompts; the first so many are taken.
    resamples
        Of the bootstrap.

    Returns
    -------
    table : DataFrame
        Index ``prompts``; columns ``distance``, the median normalised W₁, and ``scaled``, the same times √N.
    """
    rows = {}
    for size in sizes:
        some = influence[:size]
        apart = wasserstein_to(resampled_profiles(some, resamples), some.sum(0) / some.sum())
        rows[size] = {"distance": float(np.median(apart)), "scaled": float(np.median(apart)) * size**0.5}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("prompts")


def profile_shapes(models: Mapping[str, xr.Dataset], *, resamples: int = 300) -> pd.DataFrame:
    """Return where influence lies, and whether the start stands above a trough.

    The depth of a U is 1 - trough / rim: the rim is the lower of both ends, the trough the lowest running mean over
    :data:`SMOOTH` positions; 0 or less is no U (:func:`posbias.rollout.profiles.u_shape`).

    Parameters
    ----------
    models
        Name → measurement with influence_prompts; at least 17 positions.
    resamples
        Of the bootstrap over prompts.

    Returns
    -------
    table : DataFrame
        Index ``model``. Columns: ``mean`` position; ``first``, influence of the first token times n; ``last``, that of
        the last; ``depth`` with ``low`` and ``high``, its 95 % interval; ``trough``, its place as a share of the
        prompt, with ``trough_low`` and ``trough_high``; ``depth_aside``, without the first token; ``depth_eight``,
        where each end is a mean over eight tokens.
    """
    rows = {}
    for name, x in models.items():
        g = x["influence_prompts"].values
        p = x["influence"].values
        found = [u_shape(q, smooth=SMOOTH) for q in resampled_profiles(g, resamples)]
        low, high = interval(np.array([u.depth for u in found]))
        trough_low, trough_high = interval(np.array([u.location for u in found]))
        whole = u_shape(p, smooth=SMOOTH)
        rows[name] = {
            "mean": mean_position(p),
            "first": float(p[0]) * p.size,
            "last": float(p[-1]),
            "depth": whole.depth,
            "low": float(low),
            "high": float(high),
            "trough": whole.location,
            "trough_low": float(trough_low),
            "trough_high": float(trough_high),
            "depth_aside": u_shape(without_first(p), smooth=SMOOTH).depth,
            "depth_eight": u_shape(p, ends=8, smooth=SMOOTH).depth,
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")


def without_first(p: Float[np.ndarray, "n"]) -> Float[np.ndarray, "_"]:
    """Return the influence of all tokens but the first, normalised again.

    >>> without_first(np.array([0.5, 0.1, 0.4])).tolist()
    [0.2, 0.8]
    """
    return p[1:] / p[1:].sum()


def flat_depth(prompts: int, n: int, *, repeats: int = 200, seed: int = 0) -> float:
    """Return the mean depth of the U that noise alone gives a flat profile, each prompt's influence being gamma noise.

    Parameters
    ----------
    prompts, n
        How many prompts of how many tokens.
    repeats, seed
        Of the simulation; the gamma distribution has shape 1/2, as squares of normal variables have.
    """
    noise = np.random.default_rng(seed).gamma(0.5, size=(repeats, prompts, n)).mean(1)
    return float(np.mean([u_shape(p / p.sum(), smooth=SMOOTH).depth for p in noise]))


def text_distances(kept: Mapping[str, xr.Dataset], models: Mapping[str, xr.Dataset]) -> pd.DataFrame:
    """Return W₁ of each model's profile to that on other texts, and its mean position without the first token.

    Parameters
    ----------
    kept
        Summaries by ``MODEL.CORPUS``; WikiText-2 and random tokens are looked up there.
    models
        Name → summary that is compared with.

    Returns
    -------
    table : DataFrame
        Index ``model``; columns ``mean_aside``, ``wikitext`` and ``random``.
    """
    rows = {}
    for name, x in models.items():
        p = x["influence"].values
        others = {"wikitext": kept[f"{name}.wikitext-2"], "random": kept[f"{name}.random"]}
        apart = {text: normalised_wasserstein(p, other["influence"].values) for text, other in others.items()}
        rows[name] = {"mean_aside": mean_position(without_first(p))} | apart
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")


def signed_influence(models: Mapping[str, xr.Dataset]) -> pd.DataFrame:
    """Return how much of gradient times input cancels over prompts.

    Parameters
    ----------
    models
        Name → measurement with influence_signed_prompts.

    Returns
    -------
    table : DataFrame
        Index ``model``; columns ``cancels``, 1 - Σ|mean| / Σ mean of sizes, ``positive``, the share above 0, and
        ``distance``, W₁ of the profile of mean sizes to that of the gradient's norm.
    """
    rows = {}
    for name, x in models.items():
        signed = x["influence_signed_prompts"].values
        size = abs(signed).mean(0)
        rows[name] = {
            "cancels": cancelled(signed),
            "positive": float((signed > 0).mean()),
            "distance": normalised_wasserstein(size / size.sum(), x["influence"].values),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")


def cancelled(signed: Float[np.ndarray, "N n"]) -> float:
    """Return the share of signed influence that cancels in the mean over prompts, 1 - Σ|mean| / Σ mean of sizes.

    >>> cancelled(np.array([[1.0, 2.0], [-1.0, 2.0]])).__round__(3)
    0.333
    """
    return float(1 - abs(signed.mean(0)).sum() / abs(signed).mean(0).sum())


def random_cancelled(signed: Float[np.ndarray, "N n"], *, seed: int = 0) -> float:
    """Return what :func:`cancelled` is after every sign is drawn at random."""
    signs = np.random.default_rng(seed).choice([-1, 1], size=signed.shape)
    return cancelled(abs(signed) * signs)


def long_shapes(models: Mapping[str, xr.Dataset]) -> pd.DataFrame:
    """Return the shape of profiles of long prompts.

    Parameters
    ----------
    models
        Name → measurement; the number of tokens is a multiple of four.

    Returns
    -------
    table : DataFrame
        Index ``model``. Columns: ``prompts``; ``mean`` position; ``first``, influence of the first token times n;
        ``quarter_1`` to ``quarter_4``, influence of each quarter of the prompt; ``depth`` of the U under a running mean
        of 33 positions (-inf where the first token has no influence) and its ``trough``.
    """
    rows = {}
    for name, x in models.items():
        p = x["influence"].values
        u = u_shape(p, smooth=33)
        quarters = {f"quarter_{k + 1}": float(part.sum()) for k, part in enumerate(np.split(p, 4))}
        whole = {"prompts": x.attrs["prompts"], "mean": mean_position(p), "first": float(p[0]) * p.size}
        rows[name] = whole | quarters | {"depth": u.depth, "trough": u.location}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")
