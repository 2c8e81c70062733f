"""Checks of the chapter on absolute position, each a function of its input, and inputs that they should reject."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.stats import f_oneway

from posbias.comparison.resampling import interval
from studies.absolute.leakage import Leakage, PositionBasis, leakage, permutation_p_values
from studies.absolute.tables import LEVEL, Estimate, significant


def estimator_sound(found: pd.DataFrame) -> bool:
    """Tell whether an estimator finds known leakage: true variances, its null, and intervals at zero."""
    error = np.array([x.draws.std() for x in found["estimate"]])
    value = np.array([x.value for x in found["estimate"]])
    null = found[found["true"] == 0]
    right = np.abs(value - found["true"]) <= 4 * error
    return bool(right.all() and (null["raw"] <= 0.1).all() and null["covered"].between(0.9, 0.985).all())


def linear_baseline(pairs: Int[np.ndarray, "2 m"]) -> PositionBasis:
    """Return a basis beyond a baseline that is a line in the offset, instead of a parameter for each offset.

    >>> from studies.absolute.leakage import sample_pairs
    >>> basis = linear_baseline(sample_pairs(16))
    >>> offsets = basis.pairs[0] - basis.pairs[1]
    >>> bool(abs(basis.both.T @ offsets).max() < 1e-9 < abs(basis.both.T @ np.cos(offsets)).max())
    True
    """
    i, j = pairs
    line = np.linalg.qr(np.stack([np.ones(i.size), i - j], axis=1))[0]
    positions = np.hstack([i[:, None] == np.unique(i), j[:, None] == np.unique(j)]).astype(float)
    u, s, _ = np.linalg.svd(positions - line @ (line.T @ positions), full_matrices=False)
    return PositionBasis(pairs, u[:, s > 1e-9 * s[0]], u[:, :0])


def detection(
    basis: PositionBasis, sizes: Sequence[float], prompts: int, heads: int = 60, *, seed: int = 0
) -> pd.DataFrame:
    """Return how often leakage of a given size is found: a row for each share of the variance that leaks.

    The logits are content (random keys and queries in each prompt, variance 5) and a function of the query, √i, of the
    size asked for. ``covered`` is the share of heads whose interval contains the true variance, ``detected`` that of
    heads with p ≤ 5%.
    """
    i, j = basis.pairs
    effect = basis.both @ (basis.both.T @ np.sqrt(i))
    effect /= np.sqrt(np.square(effect).mean())
    rows = []
    for size in sizes:
        rng = np.random.default_rng(seed)
        content = 2 * rng.normal(size=(prompts, heads, i.max() + 1))[..., j] + rng.normal(size=(prompts, heads, i.size))
        true = 5 * size / (1 - size)
        found = leakage(basis.both, content + np.sqrt(true) * effect)
        low, high = interval(found.resampled_variance(400))
        covered = ((low <= true) & (true <= high)).mean()
        rows.append((prompts, size, float(covered), float((found.p_values() <= LEVEL).mean())))
    return pd.DataFrame(rows, columns=["prompts", "leaks", "covered", "detected"])


def shrunken(found: Leakage, factor: float) -> Leakage:
    """Return a leakage whose mean effect is ``factor`` times what it was, and its content as it was.

    >>> G = np.ones((4, 4)) + np.eye(4)
    >>> float(shrunken(Leakage(G, np.ones(4)), 0.5).gram[0, 1])
    0.0625
    """
    N = found.gram.shape[-1]
    turn = np.eye(N) - (1 - factor) / N
    return Leakage(turn @ found.gram @ turn, found.spread, found.units)


def mostly_significant(found: Leakage) -> bool:
    """Tell whether the leakage of more than half of the heads is significant after control."""
    return significant(permutation_p_values(found.gram, units=found.units)) > 0.5


def within(one: Estimate, other: Estimate, factor: float = 2.0) -> bool:
    """Tell whether two positive estimates are within a factor of each other."""
    small, large = sorted((one.value, other.value))
    return bool(0 < small and large < factor * small)


def contents_agree(text: Mapping[str, Estimate], random: Mapping[str, Estimate]) -> bool:
    """Tell whether text and random tokens agree: shares to a quarter of the larger, balances to a factor of 2."""
    totals = [x["total"].value for x in (text, random)]
    near = abs(totals[0] - totals[1]) <= max(totals) / 4
    return bool(near and within(text["balance"], random["balance"]))


def sinks_pass_on(varying: pd.DataFrame) -> bool:
    """Tell whether sink heads pass on a fingerprint of the start token."""
    varies = varying.set_index(["start", "heads"])["varies"]
    if not {("with", "sink"), ("with", "other"), ("without", "sink")} <= set(varies.index):
        return False
    sunk, other = varies["with", "sink"], varies["with", "other"]
    rise = varies["without", "sink"] - sunk
    return bool(rise.low > 0 and sunk.value < min(0.5, other.value))


def every_figure_has_an_interval(data: Any) -> bool:
    """Tell whether each figure of a kept file has an interval of its own and a p-value of the flips.

    An interval is finite, of some width, and around its figure; a p-value is one of (1 … P + 1) / (P + 1) for P flips.
    It does for every share (condition and part) and for the variance of every layer; ``True`` cannot be had by numbers
    that are merely finite.
    """
    share = data["variance"].sum(("layer", "head")) / data["spread"].sum(("layer", "head"))
    layers = data["variance"].sum("head")
    figures = [(share, data["resampled_share"]), (layers, data["resampled"])]
    for value, draws in figures:
        if not np.isfinite(draws.values).all():
            return False
        low, high = (draws.quantile(x, "resample") for x in (0.025, 0.975))
        slack = 1e-5 * abs(value)  # draws are kept in 32 bits
        if not bool(((low < high) & (low - slack <= value) & (value <= high + slack)).all()):
            return False
    steps = data["p_value"].values * (int(data.attrs["permutations"]) + 1)
    whole = np.abs(steps - np.round(steps)) < 1e-3  # kept in 32 bits
    return bool(np.isfinite(steps).all() and whole.all() and (steps >= 1 - 1e-3).all())


def strata_are_equal(pairs: Int[np.ndarray, "2 m"], per_stratum: int, n: int) -> bool:
    """Tell whether each octave of queries and offsets has ``per_stratum`` pairs, or all that it has.

    >>> from studies.absolute.leakage import sample_pairs
    >>> strata_are_equal(sample_pairs(32, 8), 8, 32), strata_are_equal(sample_pairs(32, 8)[:, 1:], 8, 32)
    (True, False)
    """
    first = int(pairs[1].min())

    def counted(i: Int[np.ndarray, "k"], j: Int[np.ndarray, "k"]) -> dict[tuple[int, int], int]:
        octaves = np.floor(np.log2(np.stack([i + 1, i - j + 1]))).astype(int)
        names, counts = np.unique(octaves, axis=1, return_counts=True)
        return {(int(a), int(b)): int(count) for (a, b), count in zip(names.T, counts, strict=True)}

    i, j = np.tril_indices(n)
    there = counted(i[j >= first], j[j >= first])
    return counted(*pairs) == {name: min(per_stratum, count) for name, count in there.items()}


def stream_alone(first_layer: Float[np.ndarray, "draws heads"], later: Estimate) -> bool:
    """Tell whether bidirectional logits leak where the residual stream can carry position, and nowhere else."""
    return bool(significant(first_layer) == 0 and later.low > 0)


def weakened(estimate: Estimate, factor: float) -> Estimate:
    """Return an estimate of ``factor`` times the size, as noisy as it was.

    >>> weakened(Estimate(2.0, np.array([1.0, 3.0])), 0.5).draws.tolist()
    [0.0, 2.0]
    """
    return Estimate(factor * estimate.value, estimate.draws - (1 - factor) * estimate.value)


def balances_differ(networks: pd.DataFrame) -> bool:
    """Tell whether an analysis of variance over networks finds that architectures have other mean balances."""
    groups = [x["balance"].to_numpy() for _, x in networks.groupby("model")]
    return bool(f_oneway(*groups).pvalue <= LEVEL)


def depth_is_of_architectures(networks: pd.DataFrame) -> bool:
    """Tell whether the balance of an architecture's networks changes with depth in one direction for all of them."""
    groups = [x["rise"].to_numpy() for _, x in networks.groupby("model") if len(x) > 1]
    return bool(groups) and all(np.unique(np.sign(x)).size == 1 for x in groups)


def order_as_published(networks: pd.DataFrame) -> bool:
    """Tell whether the larger base has the lowest mean balance, the plain rotation lies between, the window's rises."""
    mean = networks.groupby("model")[["balance", "rise"]].mean()
    balance = mean["balance"]
    ordered = balance["llama-ntk-12"] < balance["llama-12"] < balance["mistral-12"]
    return bool(ordered and mean["rise"]["mistral-12"] > 0)


def anchored(starts: pd.DataFrame, balances: Mapping[str, tuple[Estimate, Estimate]]) -> bool:
    """Tell whether position 0 stays an anchor when the start token is left out."""
    sinks = starts.pivot(index="model", columns="start", values="sinks").dropna()
    kept = all(bare.low > 0 and bare.value >= whole.value / 2 for whole, bare in balances.values())
    return bool((sinks["bare"] >= sinks["start"] / 2).all() and kept)


def path_follows_token(starts: pd.DataFrame) -> bool:
    """Tell whether position 0's trajectory is fixed by the first token, and by nothing else."""
    places = starts[["first_layer", "middle", "last"]]
    fixed, free = (places[starts["start"] == x] for x in ("start", "bare"))
    return bool((starts["peers"] == 0).all() and (fixed == 0).all(axis=None) and (free > 0.01).all(axis=None))


def without_intervals(data: Any, conditions: int = 5) -> dict[str, list[Any]]:
    """Return copies of a kept file in which one condition's figures have no interval of their own, by what is wrong."""
    where = np.linspace(0, data.sizes["condition"] - 2, conditions).astype(int)
    found: dict[str, list[Any]] = {
        "resamples lost": [],
        "resamples all alike": [],
        "the next condition's resamples": [],
    }
    for k in where:
        for kind, copies in found.items():
            wrong = data.copy(deep=True)
            for name in ("resampled", "resampled_share"):
                here, other = wrong[name].values[k], data[name].values[k + 1]
                new = {"resamples lost": np.nan * here, "resamples all alike": here.mean(1, keepdims=True) + 0 * here}
                wrong[name].values[k] = new.get(kind, other)
            copies.append(wrong)
    return found


def other_paths(data: Any) -> dict[str, list[Any]]:
    """Return copies of the kept readings of position 0 in which one reading's trajectory is another thing's."""
    names = data["reading"].values.tolist()
    found: dict[str, list[Any]] = {"position 1 for 0 in one model": [], "one path for all first tokens": []}
    for name in names:
        wrong = data.copy(deep=True)
        fixed = name.endswith(" start")
        wrong["path"].loc[{"reading": name}] = data["path_next"].sel(reading=name) if fixed else 0.0
        found["position 1 for 0 in one model" if fixed else "one path for all first tokens"].append(wrong)
    return found


def without_anchor(
    starts: pd.DataFrame, balances: Mapping[str, tuple[Estimate, Estimate]], part: float
) -> list[tuple[pd.DataFrame, dict[str, tuple[Estimate, Estimate]]]]:
    """Return what :func:`anchored` should reject: all as with the start token, but one model with a part of it left."""
    whole = starts.set_index(["model", "start"])["sinks"]
    same = {name: (x, x) for name, (x, _) in balances.items()}
    found = []
    for name in balances:
        fewer = starts.copy()
        for model in balances:
            here = (fewer["model"] == model) & (fewer["start"] == "bare")
            fewer.loc[here, "sinks"] = whole[model, "start"]
        found.append((fewer, same | {name: (balances[name][0], weakened(balances[name][0], part))}))
        if whole[name, "start"] > 0:
            one = fewer.copy()
            one.loc[(one["model"] == name) & (one["start"] == "bare"), "sinks"] *= part
            found.append((one, same))
    return found
