"""Tables of ``results/documents.nc``: what predicts accuracy by place, and which document an attribution names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Bool, Float, Int
from scipy.stats import beta, rankdata

from posbias.comparison.resampling import interval, resample_weights


def of_gold(entry: xr.Dataset, way: str) -> Float[np.ndarray, "C P"]:
    """Return what the document that holds the asked answer has by some way, for each context and place."""
    return np.asarray(np.diagonal(entry[way].values.astype(np.float64), axis1=1, axis2=2))


def of_place(entry: xr.Dataset, way: str) -> Float[np.ndarray, "C P"]:
    """Return what a place has by some way while another document is asked for: each context's mean.

    >>> values = np.array([[[9.0, 1.0], [3.0, 9.0]]])
    >>> of_place(xr.Dataset({"x": (("context", "asked", "document"), values)}), "x").tolist()
    [[3.0, 1.0]]
    """
    values = entry[way].values.astype(np.float64)
    P = values.shape[1]
    return np.asarray((values * ~np.eye(P, dtype=bool)).sum(1) / (P - 1))


def rank_correlation(x: Float[np.ndarray, "... n"], y: Float[np.ndarray, "... n"]) -> Float[np.ndarray, "..."]:
    """Return Spearman's rank correlation along the last axis; nan where one side is constant.

    >>> float(rank_correlation(np.array([1.0, 2.0, 9.0]), np.array([3.0, 2.0, 1.0])))
    -1.0
    """
    a, b = (rankdata(z, axis=-1) for z in (x, y))
    a, b = (z - z.mean(-1, keepdims=True) for z in (a, b))
    with np.errstate(invalid="ignore"):
        return np.asarray((a * b).sum(-1) / np.sqrt((a**2).sum(-1) * (b**2).sum(-1)))


def rank_table(
    predictors: Mapping[str, Float[np.ndarray, "C P"]], score: Float[np.ndarray, "K P"], *, resamples: int = 2000
) -> pd.DataFrame:
    """Return how well numbers of each place rank the places as a score does.

    ``rank`` is the rank correlation of the means over contexts, ``low`` and ``high`` its interval over resampled
    contexts: those of the score and those of a predictor are drawn apart, for they may be others. A predictor of one
    row is known for sure.
    """
    rows, drawn_score = {}, resample_weights(len(score), resamples, seed=1) @ score
    for name, x in predictors.items():
        drawn = rank_correlation(resample_weights(len(x), resamples) @ x, drawn_score)
        low, high = interval(drawn[np.isfinite(drawn)])
        rank = float(rank_correlation(x.mean(0), score.mean(0)))
        rows[name] = {"rank": rank, "low": float(low), "high": float(high)}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("predictor")


def divide_place(shares: Float[np.ndarray, "C P P"]) -> Float[np.ndarray, "C P P"]:
    """Return shares divided by the mean share that their place has in the other contexts."""
    C = len(shares)
    means = shares.mean(1)
    return np.asarray(shares / ((means.sum(0) - means) / (C - 1))[:, None])


def named(values: Float[np.ndarray, "C P D"]) -> Int[np.ndarray, "C P"]:
    """Return the document that has most of something, for each context and place asked for."""
    return np.asarray(values.argmax(-1))


def mean_by_context(values: Float[np.ndarray, "C P"], known: Bool[np.ndarray, "C P"]) -> Float[np.ndarray, "C"]:
    """Return for each context a number: their mean is that of all known values, their spread (to first order) its."""
    of, total = known.sum(1), (values * known).sum(1)
    mean = total.sum() / of.sum()
    return np.asarray(mean + (total - mean * of) / of.mean())


def share_interval(each: Float[np.ndarray, "C"]) -> tuple[float, float]:
    """Return Clopper and Pearson's 95% interval of a mean of shares, as if each was a trial, which is cautious.

    >>> tuple(round(x, 3) for x in share_interval(np.ones(24))), share_interval(np.zeros(2))[0]
    ((0.858, 1.0), 0.0)
    """
    C, found = len(each), float(each.sum())
    low = beta.ppf(0.025, found, C - found + 1) if found > 0 else 0.0
    high = beta.ppf(0.975, found + 1, C - found) if found < C else 1.0
    return float(low), float(high)


def source_table(
    ways: Mapping[str, Float[np.ndarray, "C P D"]], source: Int[np.ndarray, "C P"], correct: Float[np.ndarray, "C P"]
) -> pd.DataFrame:
    """Return how often each way names the document that holds the answer given, where one does (``source`` of 0 on).

    ``all`` of ``prompts``, ``right`` and ``wrong`` of the answers that are right and of those that are another
    document's. ``low`` and ``high`` are the ends of :func:`share_interval` over contexts, which alone are independent.
    """
    rows, known = {}, source >= 0
    for way, values in ways.items():
        hits = (named(values) == source).astype(np.float64)
        hit, right, each = hits[known], correct[known] == 1, mean_by_context(hits, known)
        low, high = share_interval(each)
        rows[way] = {
            "prompts": hit.size, "all": hit.mean(), "low": low, "high": high,
            "right": hit[right].mean(), "wrong": hit[~right].mean(),
        }  # fmt: skip
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("named by")


ORDERS: Mapping[str, Callable[[int], Int[np.ndarray, "n"]]] = {
    "as retrieved, best first": lambda n: np.arange(n),
    "best last": lambda n: np.arange(n)[::-1],
    "both ends, best last": lambda n: n - 1 - place_at_ends(n),
    "both ends, best first": lambda n: place_at_ends(n),
}
"""Place, from 0, of the documents in the order in which a search ranks them: of LangChain's LongContextReorder and of
Haystack's LostInTheMiddleRanker the last two."""


def place_at_ends(n: int) -> Int[np.ndarray, "n"]:
    """Return places of ranked documents, from both ends inwards: the first, the last, the second, ...

    >>> place_at_ends(5).tolist()
    [0, 4, 1, 3, 2]
    """
    return np.array([k // 2 if k % 2 == 0 else n - 1 - k // 2 for k in range(n)])
