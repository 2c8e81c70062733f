"""Tables of ``results/documents.nc``: what foretells accuracy by place, and which document an attribution names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float, Int
from scipy.stats import binomtest, rankdata

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


def foretold_table(
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


def source_table(
    ways: Mapping[str, Float[np.ndarray, "C P D"]], source: Int[np.ndarray, "C P"], correct: Float[np.ndarray, "C P"]
) -> pd.DataFrame:
    """Return how often each way names the document that holds the answer given, where one does (``source`` of 0 on).

    ``all`` of ``prompts`` with the interval of Clopper and Pearson (``low``, ``high``), ``right`` and ``wrong`` of
    the answers that are right and of those that are another document's.
    """
    rows, known = {}, source >= 0
    for way, values in ways.items():
        hit, right = (named(values) == source)[known], correct[known] == 1
        low, high = binomtest(int(hit.sum()), hit.size).proportion_ci(0.95)
        rows[way] = {
            "prompts": hit.size, "all": hit.mean(), "low": low, "high": high, "right": hit[right].mean(),
            "wrong": hit[~right].mean(),
        }  # fmt: skip
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("named by")


def names_most(
    ways: Mapping[str, Float[np.ndarray, "C P D"]], source: Int[np.ndarray, "C P"], best: str = "deletion"
) -> bool:
    """Tell whether one way names the source in every twentieth prompt more than any other of them, at least."""
    hits = {way: (named(values) == source)[source >= 0].mean() for way, values in ways.items()}
    return all(hits[best] - hit >= 0.05 for way, hit in hits.items() if way != best)


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


def ordered_score(score: Float[np.ndarray, "C P"], ranks: Float[np.ndarray, "P"], order: str) -> Float[np.ndarray, "C"]:
    """Return each context's mean score if the document that answers is ranked k-th with probability ``ranks[k]``."""
    return np.asarray(score[:, ORDERS[order](score.shape[1])] @ ranks)
