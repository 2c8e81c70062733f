"""Tables of networks that look something up: when values are found at each place, what predicts it, and remedies.

Settings of one encoding have kernels of one shape and are no independent cases: encodings are what is resampled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float
from scipy.stats import spearmanr
from scipy.stats import t as student

from posbias.comparison.resampling import interval, resample_weights
from posbias.predict import find
from posbias.rollout.structured import biased_kernels
from studies.lookup.settings import Setting

PARTS = 8
"""Equal parts of a prompt's places."""
TASK = "hops of the task"
PREDICTORS = {
    TASK: "as many hops as the task needs",
    "one hop": "prior (one hop)",
    "two hops": "two hops",
    "squares_born": find("head-gains-squared").label,
    "rollout_born": "rollout (all hops)",
    "influence_born": "influence before training",
    "recency": "last place first",
    "end": "favoured end first",
}
"""What may give the order of learning, and its name: parts of the rollout, profiles of untrained networks, and rules.

``one hop`` and ``two hops`` are last rows of the kernel of the network's biases and of its square, mean over heads. A
task needs as many hops as a pair has tokens: a value that stands beside its key has to read it first.
``recency`` is the place itself, ``end`` the place counted from the end that has less of the hops of the task: it knows
which way the prior leans, and nothing of its shape.
"""
LINE = ("encoding", "layers", "pairs", "tokens", "places")
"""What of a setting stands in each row of a table."""
LEARNED = 0.75
"""A network has learned if it finds more than this share of the values at the end of training."""
ORDERED = 1.05
"""A profile gives an order of places if its largest part has so many times the weight of its smallest."""
HIDDEN = 0.02
"""Share of the mean below which a place is hidden."""
SHARED = ("steep", "log", "early", "flat")
"""Positions that are the same in all heads, with pairs of one token."""
RESAMPLES = 2000
SEARCHES = ("chosen", "temperatures", "temperature")
"""Remedies that are searched: biases that the engine proposes, a temperature for each layer, one for all."""
CONDITIONS = ("intact", "engine", "removed", *SEARCHES)
"""``engine`` is what the engine chooses from attention alone: it sees no answer. ``removed`` is the network without the
bias that it was trained with, which takes knowing it; where none can be taken back, as it is."""


@dataclass(frozen=True)
class Run:
    """Hold the networks of a setting: results of training, and profiles."""

    results: xr.Dataset
    profiles: xr.Dataset

    @property
    def name(self) -> str:
        """The setting's."""
        return str(self.results.attrs["setting"])

    @property
    def line(self) -> dict[str, object]:
        """What of the setting stands in each row of a table."""
        return {name: self.results.attrs[name] for name in LINE}

    @property
    def learned(self) -> list[bool]:
        """Whether each network came to find values, at the trained length and evenly asked."""
        return (self.results["accuracy_1"].mean("place").values > LEARNED).tolist()


def read_runs(kept: Mapping[str, xr.Dataset]) -> list[Run]:
    """Return the results and profiles of all settings, by name."""
    return [Run(kept[name], kept[f"{name}.profiles"]) for name in kept if f"{name}.profiles" in kept]


def finished(runs: Sequence[Run]) -> list[Run]:
    """Return settings with those of their networks that came to find values; settings without any are left out."""
    found = [(run, np.flatnonzero(run.learned)) for run in runs]
    return [Run(run.results.isel(seed=rows), run.profiles.isel(seed=rows)) for run, rows in found if rows.size]


def parted(values: Float[np.ndarray, "... places"], parts: int = PARTS) -> Float[np.ndarray, "... parts"]:
    """Return means over equal parts of the places.

    >>> parted(np.array([1.0, 3.0, 5.0, 7.0]), 2).tolist()
    [2.0, 6.0]
    """
    return values.reshape(*values.shape[:-1], parts, -1).mean(-1)


def found_at_the_end(run: Run, times: int, name: str = "accuracy") -> Float[np.ndarray, "parts"]:
    """Return what a setting's networks find by part in prompts of some times the length, mean over seeds."""
    return parted(run.results[f"{name}_{times}"].values.astype(np.float64).mean(0))


def learning_times(run: Run, parts: int = PARTS) -> Float[np.ndarray, "seeds parts"]:
    """Return the mean number of steps that it took to find values, by place.

    That is Σ (1 - a) over steps, a the accuracy above chance as a share of what is possible: what is found from step s
    on, and by chance before, took s steps.
    """
    chance = 1 / float(run.results.attrs["values"])
    found = (parted(run.results["accuracy"].values.astype(np.float64), parts) - chance) / (1 - chance)
    steps = np.diff(run.results["tested"].values, prepend=0)
    return np.einsum("stp,t->sp", 1 - found, steps).round(6)  # so that ties are ties


def predicted(run: Run, predictor: str, *, times: int = 1, parts: int = PARTS) -> Float[np.ndarray, "parts"]:
    """Return a predictor, or another variable of the profiles, over parts of the places, mean over seeds."""
    tokens, n = int(run.results.attrs["tokens"]), times * int(run.results.attrs["pairs"])
    if predictor == "end":
        found = predicted(run, "recency", times=times, parts=parts)
        return found if tilt(predicted(run, TASK, times=times)) >= 0 else found[::-1]
    if predictor == "recency":
        by_token = np.repeat(np.arange(1.0, n + 1), tokens)
    elif (hops := {TASK: tokens, "one hop": 1, "two hops": 2}.get(predictor)) is not None:
        by_token = _hops(run, tokens * n + 1, hops)[:-1]
    else:
        by_token = run.profiles[predictor].values.astype(np.float64).mean(0)[:-1]
    return parted(by_token.reshape(n, tokens).sum(1), parts)


def _hops(run: Run, length: int, hops: int) -> Float[np.ndarray, "n"]:
    """Return the last row of a power of the kernel of a setting's position biases, which are those of every layer."""
    of = run.results.attrs
    T, n, tokens = (int(of[name]) for name in ("layers", "pairs", "tokens"))
    setting = Setting(str(of["encoding"]), T, n, tokens, heads=int(of["heads"]))
    kernel = biased_kernels(1, setting.position_bias or {"kind": "none"}, H=setting.heads).dense(0, length)
    row = kernel[-1]
    for _ in range(hops - 1):
        row = row @ kernel
    return np.asarray(row)


def gives_order(run: Run) -> bool:
    """Return whether the hops that the task needs are not spread evenly over the places."""
    profile = predicted(run, TASK)
    return bool(profile.max() > ORDERED * profile.min())


def order_table(runs: Sequence[Run]) -> pd.DataFrame:
    """Return how far each predictor gives the order in which places are learned, a row for each setting.

    Spearman's correlation of each of :data:`PREDICTORS` with the speed of learning, the inverse of the learning time;
    ``seeds``: the mean correlation of two seeds' times; ``spread``: largest over smallest learning time.
    """
    rows = []
    for run in runs:
        times = learning_times(run)
        mean = times.mean(0)
        pairs = [rank(times[i], times[j]) for i in range(len(times)) for j in range(i)]
        row = {"setting": run.name, **run.line, **{name: rank(predicted(run, name), -mean) for name in PREDICTORS}}
        rows.append(row | {"seeds": float(np.mean(pairs)) if pairs else np.nan, "spread": mean.max() / mean.min()})
    return pd.DataFrame(rows).set_index("setting")


def tilt(values: Float[np.ndarray, "parts"]) -> float:
    """Return the logarithm of the mean over the last quarter of the places over that of the first; -∞ for none.

    >>> float(tilt(np.exp([0.0, 1.0, 1.0, 2.0])))
    2.0
    """
    first, last = parted(values, 4)[[0, -1]]
    with np.errstate(divide="ignore"):  # hidden places weigh nothing
        return float(np.log(last / first))


def tilt_table(runs: Sequence[Run]) -> pd.DataFrame:
    """Return how much sooner the last quarter is learned than the first, a row for each setting.

    :func:`tilt` of the speed, ``measured`` (mean over seeds) and ``spread`` (standard deviation over them), and of each
    of :data:`PREDICTORS`.
    """
    rows = {}
    for run in runs:
        seeds = [tilt(speed) for speed in 1 / learning_times(run)]
        spread = float(np.std(seeds, ddof=1)) if len(seeds) > 1 else np.nan
        given = {predictor: tilt(predicted(run, predictor)) for predictor in PREDICTORS}
        rows[run.name] = {"measured": float(np.mean(seeds)), "spread": spread, **given}
    return pd.DataFrame(rows).T


def certain(
    values: Float[np.ndarray, "settings"], spread: Float[np.ndarray, "settings"], lines: Sequence[object], seeds: int
) -> Float[np.ndarray, "settings"]:
    """Return half the widths of intervals for means over seeds that hold for all settings at once, at 95%.

    Three seeds say little of their own spread: it is pooled over the settings of a line, which differ in their
    positions alone. The level is divided by the number of settings (Bonferroni).
    """
    found = np.empty(len(values))
    names = np.array([str(line) for line in lines])
    for line in set(names):
        rows = names == line
        freedom = rows.sum() * (seeds - 1)
        pooled = np.sqrt((spread[rows] ** 2).mean())
        found[rows] = student.ppf(1 - 0.025 / len(values), freedom) * pooled / np.sqrt(seeds)
    return found


def rank_means(order: pd.DataFrame, resamples: int = RESAMPLES) -> pd.DataFrame:
    """Return the mean rank correlation of each predictor over the settings of :func:`order_table`.

    ``mean`` with ``low`` and ``high``, ``right`` (share of settings with a correlation above 0), and ``behind`` with
    ``behind_low`` and ``behind_high``, by how much the mean is below that of the hops of the task, over the same
    resamples of the encodings.
    """
    _, encoding = np.unique(order["encoding"].to_numpy(), return_inverse=True)
    weights = resample_weights(encoding, resamples)
    weights = weights / weights.sum(1, keepdims=True)
    rows = {}
    for name in PREDICTORS:
        rank = order[name].to_numpy(float)
        row = {"mean": rank.mean(), "right": (rank > 0).mean()}
        row |= dict(zip(("low", "high"), map(float, interval(weights @ rank)), strict=True))
        behind = order[TASK].to_numpy(float) - rank
        row["behind"] = behind.mean()
        row |= dict(zip(("behind_low", "behind_high"), map(float, interval(weights @ behind)), strict=True))
        rows[name] = row
    return pd.DataFrame(rows).T


def nat_table(runs: Sequence[Run], predictor: str = TASK) -> pd.DataFrame:
    """Return how many steps sooner a place is learned for each nat that the logarithm of a profile is higher there.

    If attention finds a value once its content logit outweighs what the prior takes from its place, and content logits
    grow at some rate while a network learns, then learning times are linear in the logarithm of the prior, and a nat
    costs the same number of steps whatever the prior's shape is.

    A row for each setting with networks that learned: :data:`LINE`; ``steps`` a nat, by least squares over parts of the
    places, mean over networks; ``explained``, the mean R²; ``time``, the mean learning time. Hidden places, with less
    than :data:`HIDDEN` of the mean, are left out.
    """
    rows = {}
    for run in finished(runs):
        profile = predicted(run, predictor)
        seen = profile > HIDDEN * profile.mean()
        x, times = np.log(profile[seen]), learning_times(run)[:, seen]
        steps = [-float(np.polyfit(x, t, 1)[0]) for t in times]
        explained = np.mean([np.corrcoef(x, t)[0, 1] ** 2 for t in times])
        rows[run.name] = {**run.line, "steps": np.mean(steps), "explained": explained, "time": times.mean()}
    return pd.DataFrame(rows).T.rename_axis("setting")


def nat_spread(table: pd.DataFrame, encodings: Sequence[str] = SHARED) -> pd.Series:
    """Return, for each line, the largest over the smallest steps a nat; ∞ where one has the other sign.

    Settings are compared whose heads share one bias: where heads differ, the mean kernel is not what the head has that
    finds the value.
    """
    chosen = table[table["encoding"].isin(encodings)]
    groups = chosen.astype({"steps": float}).groupby(["tokens", "pairs", "layers"])["steps"]
    return (groups.max() / groups.min()).where(groups.min() > 0, np.inf)


def rank(x: np.ndarray, y: np.ndarray) -> float:
    """Return Spearman's correlation, 0 if one of them is constant: it then gives no order.

    >>> rank(np.arange(3.0), np.array([0.0, 5.0, 6.0])), rank(np.ones(3), np.arange(3.0))
    (1.0, 0.0)
    """
    return 0.0 if np.ptp(x) == 0 or np.ptp(y) == 0 else float(spearmanr(x, y).statistic)


def worst_places(remedies: xr.Dataset) -> pd.DataFrame:
    """Return what each condition does for the worst part and for the mean of all, by length and condition."""
    accuracy = remedies["accuracy"].astype(float)
    worst, mean = accuracy.min("part"), accuracy.mean("part")
    rows = {
        "worst": worst.mean("seed"),
        "worst_gain_low": (worst - worst.sel(condition="intact")).min("seed"),
        "mean": mean.mean("seed"),
        "mean_gain": (mean - mean.sel(condition="intact")).mean("seed"),
    }
    return xr.Dataset(rows).to_dataframe()
