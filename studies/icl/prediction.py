"""What the residual-aware rollout says of a trained network: the difference of influence between two places."""

from __future__ import annotations

import numpy as np
import xarray as xr

from posbias.rollout.influence import influence_profile
from studies.icl.settings import PAIRS, Task


def predicted_profiles(results: xr.Dataset) -> np.ndarray:
    """Return the last row of P = R_T … R_1 for each seed, (seeds, tokens), from measured kernels and measured λ.

    Parameters
    ----------
    results
        From :func:`studies.icl.outcomes.read_results`; λ = 1 in networks without a residual.
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
    one, other = _at_places(profiles, items)
    return one - other


def shares(profiles: np.ndarray, items: int) -> np.ndarray:
    """Return the :func:`differences` as shares of the weight on both places, from -1 to 1; NaN where there is none.

    What :func:`studies.icl.outcomes.preferences` is of accuracies, this is of influence.

    Parameters
    ----------
    profiles, items
        As for :func:`differences`.

    >>> shares(np.array([0.3, 0.1, 0, 0, 0.1, 0.1, 0.0, 0.1, 0.3]), 4).round(2)
    array([ 1. ,  0.6, -1. ])
    """
    one, other = _at_places(profiles, items)
    return np.divide(one - other, one + other, out=np.full_like(one, np.nan), where=one + other > 0)


def _at_places(profiles: np.ndarray, items: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the weight on the earlier and on the later place of each pair, item and label together."""
    of_items = profiles[..., :-1].reshape(*profiles.shape[:-1], items, 2).sum(-1)
    places = Task(items=items, burstiness=1).places
    earlier, later = ([places[pair[k]] for pair in PAIRS] for k in (0, 1))
    return of_items[..., earlier], of_items[..., later]
