"""What the residual-aware rollout says of a trained network: the difference of influence between two places."""

from __future__ import annotations

import numpy as np
import xarray as xr

from posbias.rollout import influence_profile
from posbias.scratch.settings import PAIRS, Task


def predicted_profiles(results: xr.Dataset) -> np.ndarray:
    """Return the last row of P = R_T … R_1 for each seed, (seeds, tokens), from measured kernels and measured λ.

    Parameters
    ----------
    results
        From :func:`posbias.scratch.results.read_results`; λ = 1 in networks without a residual.
    """
    kernels = results["kernels"].values.astype(float)
    kernels /= kernels.sum(-1, keepdims=True)  # 32 bits are kept of them
    lambdas = results["lambda_frobenius"].values.astype(float)
    return np.stack([influence_profile(A, lambda_) for A, lambda_ in zip(kernels, lambdas, strict=True)])


def differences(profiles: np.ndarray, items: int) -> np.ndarray:
    """Return how much more weight lies on place a than on place b for each pair of places, item and label together.

    Parameters
    ----------
    profiles
        (…, 2 · items + 1), over the tokens x_1, y_1, …, x_n, y_n, query.
    items
        n.

    >>> differences(np.array([0.3, 0.2, 0, 0, 0.1, 0.1, 0.0, 0.2, 0.1]), 4)
    array([ 0.5,  0.3, -0.2])
    """
    of_items = profiles[..., :-1].reshape(*profiles.shape[:-1], items, 2).sum(-1)
    places = Task(items=items, burstiness=1).places
    return np.stack([of_items[..., places[a]] - of_items[..., places[b]] for a, b in PAIRS], -1)
