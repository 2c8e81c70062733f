"""What the chapter on retrieval tells: how soon networks find values at each place, beside what profiles predict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float
from scipy.stats import spearmanr

from posbias import errors
from posbias.rollout.biased import biased_kernels
from studies.lookup.profiles import profiles_path, read_profiles
from studies.lookup.results import read_results
from studies.lookup.settings import Setting

PARTS = 8
"""Equal parts of a prompt's places."""
TASK = "hops of the task"
PREDICTORS = {
    TASK: "as many hops as the task needs",
    "one hop": "one hop",
    "two hops": "two hops",
    "squares_born": "law of squares",
    "rollout_born": "rollout",
    "influence_born": "influence at birth",
    "distance": "distance",
    "recency": "recency",
    "end": "the end that the prior favours",
}
"""What may give the order of learning, and its name: parts of the rollout, profiles of untrained networks, and rules.

``one hop`` and ``two hops`` are last rows of the kernel of the network's biases and of its square, mean over heads. A
task needs as many hops as a pair has tokens: a value that stands beside its key has to read it first.
``distance`` is 1 over the tokens back from the end, ``recency`` the place itself, ``end`` the place counted from the
end that has less of the hops of the task: it knows which way the prior leans, and nothing of its shape.
"""
LINE = ("encoding", "layers", "pairs", "tokens", "places")
"""What of a setting stands in each row of a table."""
LEARNED = 0.75
"""A network has learned if it finds more than this share of the values at the end of training."""


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
    def learned(self) -> list[bool]:
        """Whether each network came to find values, at the trained length and evenly asked."""
        return (self.results["accuracy_1"].mean("place").values > LEARNED).tolist()


def finished(runs: Sequence[Run]) -> list[Run]:
    """Return settings with those of their networks that came to find values; settings without any are left out."""
    found = [(run, np.flatnonzero(run.learned)) for run in runs]
    return [Run(run.results.isel(seed=rows), run.profiles.isel(seed=rows)) for run, rows in found if rows.size]


def read_runs(folder: Path | str) -> list[Run]:
    """Read the results and profiles that a folder holds, sorted by name.

    Raises
    ------
    ValueError
        If there is none, or a file is not what it should be.
    OSError
        If a file cannot be read, or its profiles are missing.
    """
    paths = sorted(path for path in Path(folder).glob("*.nc") if path.name.count(".") == 1)
    if not paths:
        raise errors.invalid(str(folder), "results of posbias train-retrieval", "none")
    return [Run(read_results(path), read_profiles(profiles_path(path))) for path in paths]


def parted(values: Float[np.ndarray, "... places"], parts: int = PARTS) -> Float[np.ndarray, "... parts"]:
    """Return means over equal parts of the places.

    Raises
    ------
    ValueError
        If the places cannot be divided so.

    >>> parted(np.array([1.0, 3.0, 5.0, 7.0]), 2).tolist()
    [2.0, 6.0]
    """
    if values.shape[-1] % parts:
        raise errors.invalid("places", f"a multiple of {parts}", values.shape[-1])
    return values.reshape(*values.shape[:-1], parts, -1).mean(-1)


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
    """Return a profile over parts of the places, mean over seeds; pairs of several tokens have their tokens' sum.

    Parameters
    ----------
    run
        The setting.
    predictor
        One of :data:`PREDICTORS`, or another variable of the profiles.
    times
        Length of the prompts, as a multiple of those in training.
    parts
        Of the places.
    """
    tokens, n = int(run.results.attrs["tokens"]), times * int(run.results.attrs["pairs"])
    if predictor == "end":
        found = predicted(run, "recency", times=times, parts=parts)
        return found if tilt(predicted(run, TASK, times=times)) >= 0 else found[::-1]
    if predictor == "recency":
        by_token = np.repeat(np.arange(1.0, n + 1), tokens)
    elif predictor == "distance":
        by_token = 1 / np.arange(tokens * n, 0, -1.0)
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


def order_table(runs: Sequence[Run]) -> pd.DataFrame:
    """Return how far each predictor gives the order in which places are learned.

    Returns
    -------
    table : DataFrame
        A row for each setting: Spearman's correlation of each of :data:`PREDICTORS` with the speed of learning, the
        inverse of the learning time; ``seeds``: the mean correlation of two seeds' times; ``spread``: largest over
        smallest learning time.
    """
    rows = []
    for run in runs:
        times = learning_times(run)
        mean = times.mean(0)
        pairs = [rank(times[i], times[j]) for i in range(len(times)) for j in range(i)]
        found = {name: rank(predicted(run, name), -mean) for name in PREDICTORS}
        row = {"setting": run.name, **{name: run.results.attrs[name] for name in LINE}, **found}
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
    """Return how much sooner the last quarter is learned than the first, and how much is predicted.

    Returns
    -------
    table : DataFrame
        A row for each setting: :func:`tilt` of the speed, ``measured`` (mean over seeds) and ``spread`` (standard
        deviation over them), and of each of :data:`PREDICTORS`.
    """
    rows = {}
    for run in runs:
        seeds = [tilt(speed) for speed in 1 / learning_times(run)]
        spread = float(np.std(seeds, ddof=1)) if len(seeds) > 1 else np.nan
        given = {predictor: tilt(predicted(run, predictor)) for predictor in PREDICTORS}
        rows[run.name] = {"measured": float(np.mean(seeds)), "spread": spread, **given}
    return pd.DataFrame(rows).T


def end_table(runs: Sequence[Run]) -> pd.DataFrame:
    """Return how accuracy at the end of training depends on the place, within the trained length and beyond.

    Returns
    -------
    table : DataFrame
        A row for each setting and length: ``worst`` and ``best`` part's accuracy and ``where`` the worst is (0 first, 1
        last); Spearman's correlation of the log-probability by part with the trained networks' rollout and influence.
    """
    rows = []
    for run in runs:
        for times in (1, 2, 4):
            end = "" if times == 1 else f"_{times}"
            accuracy = parted(run.results[f"accuracy_{times}"].values.astype(np.float64).mean(0))
            log_p = parted(run.results[f"log_probability_{times}"].values.astype(np.float64).mean(0))
            row = {"setting": run.name, **{name: run.results.attrs[name] for name in LINE}, "times": times}
            row |= {"mean": accuracy.mean(), "worst": accuracy.min(), "best": accuracy.max()}
            row |= {"where": int(accuracy.argmin()) / (PARTS - 1)}
            row[TASK] = rank(predicted(run, TASK, times=times), log_p)
            for name in ("rollout_trained", "influence_trained"):
                row[name] = rank(predicted(run, f"{name}{end}", times=times), log_p)
            rows.append(row | {"recency": rank(np.arange(float(PARTS)), log_p)})
    return pd.DataFrame(rows).set_index(["setting", "times"])


def rank(x: np.ndarray, y: np.ndarray) -> float:
    """Return Spearman's correlation, 0 if one of them is constant: it then gives no order.

    >>> rank(np.arange(3.0), np.array([0.0, 5.0, 6.0])), rank(np.ones(3), np.arange(3.0))
    (1.0, 0.0)
    """
    return 0.0 if np.ptp(x) == 0 or np.ptp(y) == 0 else float(spearmanr(x, y).statistic)
