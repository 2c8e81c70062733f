"""Kept results of trained networks, broken on purpose: what the checks of claims should reject.

Broken results hold the one variable that was broken, with seeds and attributes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr
from jaxtyping import Float

from studies.icl.outcomes import gaps
from studies.icl.settings import Setting

Runs = Mapping[Setting, xr.Dataset]


def mirrored(accuracy: Float[np.ndarray, "*seeds 3 2"]) -> Float[np.ndarray, "*seeds 3 2"]:
    """Return accuracies by pair and order as if first and last had been swapped: the gaps of the mirrored places.

    Parameters
    ----------
    accuracy
        Pairs in the order of :data:`studies.icl.settings.PAIRS`; order 0 is [a, b], order 1 [b, a].

    >>> accuracy = np.array([[0.9, 0.1], [0.7, 0.2], [0.6, 0.3]])
    >>> mirrored(accuracy).tolist()
    [[0.3, 0.6], [0.2, 0.7], [0.1, 0.9]]
    """
    return accuracy[..., ::-1, ::-1].copy()


def shuffled_settings(runs: Runs, rng: np.random.Generator) -> dict[Setting, xr.Dataset]:
    """Return the same results under other settings' names: nothing depends on the architecture or the data.

    Parameters
    ----------
    runs
        Settings → results.
    rng
        Of the permutation.
    """
    settings, results = list(runs), list(runs.values())
    return {settings[k]: results[int(other)] for k, other in enumerate(rng.permutation(len(settings)))}


def swapped_ends(runs: Runs, rng: np.random.Generator) -> dict[Setting, xr.Dataset]:
    """Return results in which first and last are swapped in half of the networks, by a coin for each seed.

    Sizes and their relation to the architecture stay; no direction is left.

    Parameters
    ----------
    runs
        Settings → results.
    rng
        Of the coins.
    """
    broken = {}
    for setting, x in runs.items():
        accuracy = x["accuracy"].values
        swap = rng.random(len(accuracy)) < 0.5
        broken[setting] = _with_accuracy(x, np.where(swap[:, None, None], mirrored(accuracy), accuracy))
    return broken


def noise_of_seeds(runs: Runs, rng: np.random.Generator) -> dict[Setting, xr.Dataset]:
    """Return results whose gaps are the seeds' deviations from their mean alone, drawn from all settings.

    Parameters
    ----------
    runs
        Settings → results, all with the same number of seeds, at least 2.
    rng
        Of the draws.
    """
    seeds = min(x.sizes["seed"] for x in runs.values())
    pool = np.concatenate([gaps(x) - gaps(x).mean(0) for x in runs.values()]) * np.sqrt(seeds / (seeds - 1))
    broken = {}
    for setting, x in runs.items():
        drawn = pool[rng.integers(len(pool), size=x.sizes["seed"])]
        half = np.stack([drawn, -drawn], axis=-1) / 2
        broken[setting] = _with_accuracy(x, x["accuracy"].values.mean(-1, keepdims=True) + half)
    return broken


def shuffled_tokens(runs: Runs, rng: np.random.Generator) -> dict[Setting, xr.Dataset]:
    """Return results whose sink metric is the same numbers on other tokens, the query aside.

    Parameters
    ----------
    runs
        Settings → results.
    rng
        Of one permutation for each setting.
    """
    broken = {}
    for setting, x in runs.items():
        tokens = x.sizes["key"]
        order = np.append(rng.permutation(tokens - 1), tokens - 1)
        variables = {"sinks": (x["sinks"].dims, x["sinks"].values[..., order])}
        broken[setting] = xr.Dataset(variables, coords={"seed": x["seed"].values}, attrs=x.attrs)
    return broken


def _with_accuracy(x: xr.Dataset, accuracy: np.ndarray) -> xr.Dataset:
    """Return accuracies alone, with the seeds and attributes of the results."""
    variables = {"accuracy": (x["accuracy"].dims, accuracy)}
    return xr.Dataset(variables, coords={"seed": x["seed"].values}, attrs=x.attrs)
