"""Results of trained networks, broken on purpose: what a check of the paper's claims should notice."""

from __future__ import annotations

import numpy as np
import xarray as xr

from studies.icl.outcomes import gaps
from studies.icl.tables import Runs


def _changed(x: xr.Dataset, name: str, values: np.ndarray) -> xr.Dataset:
    """Return the one variable that was broken, with what else a claim reads."""
    new = {name: (x[name].dims, values)}
    return xr.Dataset(new, coords={"seed": x["seed"].values}, attrs=x.attrs)


def shuffled_settings(runs: Runs, rng: np.random.Generator) -> Runs:
    """Return the same results under other settings' names."""
    settings, results = list(runs), list(runs.values())
    order = rng.permutation(len(settings))
    return {settings[k]: results[int(other)] for k, other in enumerate(order)}


def swapped_ends(runs: Runs, rng: np.random.Generator) -> Runs:
    """Return results in which first and last are swapped in half of the networks."""
    found = {}
    for setting, x in runs.items():
        accuracy = x["accuracy"].values
        mirrored = accuracy[..., ::-1, ::-1]
        swap = rng.random(len(accuracy)) < 0.5
        values = np.where(swap[:, None, None], mirrored, accuracy)
        found[setting] = _changed(x, "accuracy", values)
    return found


def noise_of_seeds(runs: Runs, rng: np.random.Generator) -> Runs:
    """Return results whose gaps are the seeds' deviations from their mean alone."""
    seeds = min(x.sizes["seed"] for x in runs.values())
    pool = np.concatenate([gaps(x) - gaps(x).mean(0) for x in runs.values()])
    pool *= np.sqrt(seeds / (seeds - 1))
    found = {}
    for setting, x in runs.items():
        drawn = pool[rng.integers(len(pool), size=x.sizes["seed"])]
        half = np.stack([drawn, -drawn], axis=-1) / 2
        mean = x["accuracy"].values.mean(-1, keepdims=True)
        found[setting] = _changed(x, "accuracy", mean + half)
    return found


def shuffled_tokens(runs: Runs, rng: np.random.Generator) -> Runs:
    """Return results whose sink metric is the same numbers on other tokens."""
    found = {}
    for setting, x in runs.items():
        tokens = x.sizes["key"]
        order = np.append(rng.permutation(tokens - 1), tokens - 1)
        found[setting] = _changed(x, "sinks", x["sinks"].values[..., order])
    return found


GAPS = {
    "settings exchanged": shuffled_settings,
    "ends swapped": swapped_ends,
    "noise of seeds": noise_of_seeds,
}
SINKS = {"tokens shuffled": shuffled_tokens, "settings exchanged": shuffled_settings}
