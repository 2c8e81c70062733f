"""Answers scored, all teacher-forced; and scores by place: means over groups of neighbouring places, with intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.stats import binomtest, rankdata
from torch import Tensor

from posbias.comparison.resampling import hull_interval, interval, resample_weights
from posbias.lookup.prompts import PlacedPrompts
from posbias.measure.instrument import Instrument

MOST_GROUPS = 16
"""Groups of neighbouring places at most."""
LEAST_PROMPTS = 4
"""Prompts of a group on average, at least."""
RESAMPLES = 2000
NOWHERE = (float("nan"), float("nan"))
"""The ends of an interval that there is not."""


def read_scores(instrument: Instrument, prompts: PlacedPrompts, rows: slice) -> dict[str, Float[Tensor, "B"]]:
    """Return the scores of a batch of the prompts, by name, in 64 bits."""
    answers = torch.from_numpy(prompts.answers[rows])
    asked = [prompts.ids, *([] if prompts.controls is None else [prompts.controls])]
    logits = [instrument.tail(torch.from_numpy(ids[rows]), answers.shape[1]).cpu() for ids in asked]
    told = [x.double().log_softmax(-1).gather(-1, answers[..., None])[..., 0] for x in logits]
    if prompts.controls is not None:
        loss, without = (-x.mean(-1) for x in told)
        return {"gain": without - loss, "loss": loss, "loss_without": without}
    assert prompts.values is not None
    values = torch.from_numpy(prompts.values[rows])
    best = values.gather(-1, logits[0][:, 0].gather(-1, values).argmax(-1, keepdim=True))
    return {
        "accuracy": (logits[0].argmax(-1) == answers).all(-1).double(),
        "accuracy_among": (best == answers)[:, 0].double(),
        "log_probability": told[0].sum(-1),
    }


@dataclass(frozen=True)
class Groups:
    """Say which places belong together and how often each prompt is drawn in each resample.

    ``edges`` are the first place of each group and the number of places; ``member`` is the group of each prompt.
    """

    edges: Int[np.ndarray, "G_plus_1"]
    member: Int[np.ndarray, "N"]
    weights: Float[np.ndarray, "B N"]

    @property
    def count(self) -> int:
        """Number of groups G."""
        return len(self.edges) - 1


@dataclass(frozen=True)
class GroupMeans:
    """Hold a score's mean for each group of places, and over all prompts (mean, low, high), with 95% intervals.

    Ends are NaN where resamples give none; ``drawn`` is NaN where none of a group's prompts was drawn.
    """

    mean: Float[np.ndarray, "G"]
    low: Float[np.ndarray, "G"]
    high: Float[np.ndarray, "G"]
    overall: tuple[float, float, float]
    drawn: Float[np.ndarray, "B G"]


def groups_of(
    places: Int[np.ndarray, "N"], count: int, units: Int[np.ndarray, "N"], *, resamples: int = RESAMPLES, seed: int = 0
) -> Groups:
    """Return groups of neighbouring places: at most 16, and so few that each has four prompts on average.

    >>> groups_of(np.arange(12), 12, np.arange(12), resamples=1).edges.tolist()
    [0, 4, 8, 12]
    """
    G = max(1, min(MOST_GROUPS, count, len(places) // LEAST_PROMPTS))
    edges = np.linspace(0, count, G + 1).round().astype(np.int64)
    member = np.searchsorted(edges, places, side="right") - 1
    return Groups(edges, member, resample_weights(units, resamples, seed=seed))


def group_means(values: Float[np.ndarray, "N"], groups: Groups, *, is_share: bool = False) -> GroupMeans:
    """Return means and intervals of a score.

    Of shares, 0 and 1 of independent prompts, the intervals are Clopper and Pearson's, which are not empty where all
    prompts agree, as those of resamples would be.

    >>> groups = groups_of(np.array([0, 0, 0, 0, 1, 1, 1, 1]), 2, np.arange(8), resamples=50)
    >>> group_means(np.array([1.0, 1, 1, 1, 0, 0, 0, 0]), groups).mean.tolist()
    [1.0, 0.0]
    """
    inside = np.eye(groups.count)[groups.member]
    sizes = inside.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = values @ inside / sizes
        drawn = (groups.weights * values) @ inside / (groups.weights @ inside)
    if is_share:
        ends = [_share_interval(values[groups.member == g]) for g in range(groups.count)]
        overall = _share_interval(values)
    else:
        ends = [_interval(column) for column in drawn.T]
        overall = _interval((groups.weights @ values) / groups.weights.sum(1))
        # one prompt drawn again and again says nothing of others
        ends = [end if size > 1 else NOWHERE for end, size in zip(ends, sizes, strict=True)]
        overall = overall if len(values) > 1 else NOWHERE
    low, high = np.array(ends).T
    return GroupMeans(mean, low, high, (float(values.mean()), *overall), drawn)


def grouped_profile(profile: Float[np.ndarray, "... P"], groups: Groups) -> Float[np.ndarray, "... G"]:
    """Return the mean of a profile over the places of each group.

    >>> groups = groups_of(np.array([0, 1, 2, 3] * 2), 4, np.arange(8), resamples=1)
    >>> grouped_profile(np.array([1.0, 3.0, 5.0, 7.0]), groups).tolist()
    [2.0, 6.0]
    """
    return np.asarray(np.add.reduceat(profile, groups.edges[:-1], axis=-1) / np.diff(groups.edges))


def difference_p_value(values: Float[np.ndarray, "N"], groups: Groups, *, seed: int = 0) -> float:
    """Return the p value of no difference between places: how often prompts in random places differ as much or more.

    The statistic is the variance between groups of places. With P permutations no p value is below 1 / (P + 1).

    >>> groups = groups_of(np.repeat([0, 1], 20), 2, np.arange(40), resamples=99)
    >>> difference_p_value(np.repeat([0.0, 1.0], 20), groups)
    0.01
    """
    inside = np.eye(groups.count)[groups.member]
    rng, P = np.random.default_rng(seed), len(groups.weights)
    shuffled = rng.permuted(np.tile(values - values.mean(), (P, 1)), axis=1)
    rows = np.vstack([values - values.mean(), shuffled])
    between = ((rows @ inside) ** 2 / np.maximum(inside.sum(0), 1)).sum(1)
    return float((1 + (between[1:] >= between[0] * (1 - 1e-12)).sum()) / (P + 1))


def drawn_profile(
    influence: Float[np.ndarray, "M G"], totals: Float[np.ndarray, "M"], weights: Float[np.ndarray, "B M"]
) -> Float[np.ndarray, "B G"]:
    """Return a measured profile in each resample of its prompts; NaN where none of them was drawn.

    ``influence`` is of each prompt in each group of places, ``totals`` over all of its tokens.

    >>> drawn_profile(np.array([[1.0, 3.0], [2.0, 2.0]]), np.array([4.0, 4.0]), np.array([[1.0, 1.0]])).tolist()
    [[0.375, 0.625]]
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(weights @ influence / (weights @ totals)[:, None])


def rank_correlation(
    score: GroupMeans, profile: Float[np.ndarray, "G"], drawn: Float[np.ndarray, "B G"] | None = None
) -> tuple[float, float, float]:
    """Return Spearman's rank correlation of a score with a profile over groups of places, and its 95% interval.

    NaN for fewer than three groups, and where score or profile is the same in all of them. Noise in the means moves a
    correlation towards 0, in a resample once more than in the sample; the interval is therefore the hull of the
    percentile and the basic one (:func:`~posbias.comparison.resampling.hull_interval`). ``drawn`` is the profile in
    each resample, where its prompts are drawn again too.
    """
    if len(profile) < 3:
        return np.nan, *NOWHERE
    estimate = float(_correlation(score.mean[None], profile[None])[0])
    others = np.broadcast_to(profile, score.drawn.shape) if drawn is None else drawn
    whole = np.isfinite(score.drawn).all(1) & np.isfinite(others).all(1)
    found = _correlation(score.drawn[whole], others[whole])
    found = found[np.isfinite(found)]
    if not np.isfinite(estimate) or found.size == 0:
        return estimate, *NOWHERE
    low, high = hull_interval(estimate, found, least=-1.0)
    return estimate, low, min(high, 1.0)


def _correlation(x: Float[np.ndarray, "B G"], y: Float[np.ndarray, "B G"]) -> Float[np.ndarray, "B"]:
    """Return the rank correlation of each row of two arrays, NaN for constant rows."""
    a, b = (rankdata(values, axis=-1) - (values.shape[-1] + 1) / 2 for values in (x, y))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((a * b).sum(-1) / np.sqrt((a**2).sum(-1) * (b**2).sum(-1)))


def _interval(values: Float[np.ndarray, "B"]) -> tuple[float, float]:
    """Return the 95% interval of the resamples that have a value, NaN where none has."""
    known = values[np.isfinite(values)]
    low, high = interval(known) if known.size else NOWHERE
    return float(low), float(high)


def _share_interval(values: Float[np.ndarray, "N"]) -> tuple[float, float]:
    """Return Clopper and Pearson's 95% interval of a share, NaN without prompts."""
    if not values.size:
        return NOWHERE
    ends = binomtest(int(values.sum()), values.size).proportion_ci(0.95)
    return float(ends.low), float(ends.high)
