"""Results of trained networks as tables: gaps, sinks, what was learnt, and influence beside what is favoured.

``runs`` are results by setting, entries of :mod:`studies.icl.training`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias.comparison.multiplicity import holm, sign_p_value
from posbias.comparison.resampling import interval, resample_weights
from posbias.rollout.influence import influence_profile
from studies.icl.outcomes import gaps
from studies.icl.settings import PAIRS, SINK, Setting, Task, preset
from studies.results import load

PAIR_NAMES = tuple(f"{a} vs {b}" for a, b in PAIRS)
"""Names of the pairs of places, in their order."""
FIELDS = ("vocabulary", "bias", "mask", "width", "encoding", "layers", "residual", "spread")
"""What distinguishes one setting from another, as columns."""
NAMES = {"none": "no encoding", "decay": "decay mask", "sinusoidal": "sinusoidal", "rope": "RoPE"}
"""Encodings, as figures and sentences call them."""
KEPT = (*(f"figure{k}" for k in (3, 4, 5, 6, 8, 9, 10, 11, 13)), "spread")
"""Presets whose results the book keeps; the other figures of the article are among these."""

Runs = Mapping[Setting, xr.Dataset]


def kept_runs(folder: str = "") -> dict[str, Runs]:
    """Return results by preset and setting: those the book keeps, and in their place those that ``folder`` has."""
    kept = dict(load("icl")) | dict(load("icl", folder) if folder else {})
    return {name: {setting: kept[setting.name] for setting in preset(name) if setting.name in kept} for name in KEPT}


def joined(figures: Mapping[str, Runs], *names: str) -> Runs:
    """Return all results of some presets."""
    return {setting: x for name in names for setting, x in figures[name].items()}


def described(setting: Setting) -> dict[str, Any]:
    """Return the :data:`FIELDS` of a setting.

    >>> described(Setting())
    {'vocabulary': 'mixture', 'bias': 'none', 'mask': 'causal', 'width': 0, 'encoding': 'none', 'layers': 2, \
'residual': False, 'spread': 'text'}
    """
    task, network = setting.task, setting.network
    mask = {"mask": network.mask.kind, "width": network.mask.width}
    values = vars(task) | vars(network) | mask
    return {name: values[name] for name in FIELDS}


def gap_table(runs: Runs) -> pd.DataFrame:
    """Return the gaps of every network: columns :data:`FIELDS`, seed, pair and gap."""
    rows = []
    for setting, x in runs.items():
        for seed, found in zip(x["seed"].values, gaps(x), strict=True):
            for pair, gap in zip(PAIR_NAMES, found, strict=True):
                rows.append(described(setting) | {"seed": int(seed), "pair": pair, "gap": gap})
    table = pd.DataFrame(rows, columns=[*FIELDS, "seed", "pair", "gap"])
    return table.assign(pair=pd.Categorical(table["pair"], PAIR_NAMES, ordered=True))


def outcome_table(runs: Runs, *, early: int = 10_000) -> pd.DataFrame:
    """Return what every network learnt: columns :data:`FIELDS`, seed, novel, loss at the end and early_loss."""
    rows = []
    for setting, x in runs.items():
        logged, iterations = x.sizes["logged"], int(x.attrs["iterations"])
        at = min(early * logged // iterations, logged) - 1
        for seed, novel, loss in zip(x["seed"].values, x["accuracy_novel"].values, x["loss"].values, strict=True):
            learnt = {"novel": float(novel), "loss": float(loss[-1]), "early_loss": float(loss[at])}
            rows.append(described(setting) | {"seed": int(seed)} | learnt)
    return pd.DataFrame(rows, columns=[*FIELDS, "seed", "novel", "loss", "early_loss"])


def sink_table(runs: Runs, *, last_layer: bool = False, beyond_even: bool = False) -> pd.DataFrame:
    """Return the sink metric, mean over seeds: a row for each (mask, width), a column for each token but the query.

    The metric of token j is the share of the queries that see it whose attention on it exceeds 0.2: of the mean over
    layers, or of the last layer alone; less that of :func:`even_sinks` with ``beyond_even``, as a query of fewer than
    five tokens exceeds 0.2 by counting alone.

    Source: Wu et al. 2025, appendix K.4.
    """
    rows: dict[tuple[str, int], np.ndarray] = {}
    for setting, x in runs.items():
        by_layer = x["sinks"].values.mean(0)
        metric = by_layer[-1] if last_layer else by_layer.mean(0)
        row = metric - even_sinks(setting) if beyond_even else metric
        rows[setting.network.mask.kind, setting.network.mask.width] = row[:-1]
    index = pd.MultiIndex.from_tuples(list(rows), names=["mask", "width"])
    values = np.stack(list(rows.values()))
    return pd.DataFrame(values, index=index, columns=range(1, values.shape[1] + 1))


def tables_by_seed(runs: Runs, **options: bool) -> list[pd.DataFrame]:
    """Return :func:`sink_table` of each seed that all settings have, with the same options."""
    seeds = min((x.sizes["seed"] for x in runs.values()), default=0)
    return [sink_table({s: x.isel(seed=[k]) for s, x in runs.items()}, **options) for k in range(seeds)]


def even_sinks(setting: Setting) -> Float[np.ndarray, "tokens"]:
    """Return the sink metric of attention that is uniform over what each query sees, (2n + 1,).

    >>> even_sinks(Setting()).round(3)[:6]
    array([0.235, 0.188, 0.133, 0.071, 0.   , 0.   ])
    """
    seen = setting.network.mask.matrix(setting.task.tokens)
    even = seen / seen.sum(1, keepdims=True)
    return (even > SINK).sum(0) / seen.sum(0)


def predicted_profiles(results: xr.Dataset) -> np.ndarray:
    """Return the last row of P = R_T … R_1 for each seed, (seeds, tokens), from measured kernels and measured λ."""
    kernels = results["kernels"].values.astype(float)
    kernels /= kernels.sum(-1, keepdims=True)  # 32 bits are kept of them
    lambdas = results["lambda_frobenius"].values.astype(float)
    return np.stack([influence_profile(A, lambda_) for A, lambda_ in zip(kernels, lambdas, strict=True)])


def differences(profiles: np.ndarray, items: int) -> np.ndarray:
    """Return how much more weight lies on place a than on place b for each pair of places, item and label together.

    >>> differences(np.array([0.3, 0.2, 0, 0, 0.1, 0.1, 0.0, 0.2, 0.1]), 4)
    array([ 0.5,  0.3, -0.2])
    """
    of_items = profiles[..., :-1].reshape(*profiles.shape[:-1], items, 2).sum(-1)
    places = Task(items=items, burstiness=1).places
    earlier, later = ([places[pair[k]] for pair in PAIRS] for k in (0, 1))
    return np.asarray(of_items[..., earlier] - of_items[..., later])


def guesses(task: Task) -> list[int]:
    """Return for each pair of places which one a guess names from the data alone: 1 for the earlier, -1 for the later.

    It is the later one if training had answers there and none at the earlier, and the earlier one otherwise.

    >>> guesses(Task()), guesses(Task(bias="middle")), guesses(Task(bias="ends"))
    ([1, 1, 1], [-1, 1, 1], [1, 1, -1])
    """
    asked = [[task.places[place] in task.targets for place in pair] for pair in PAIRS]
    return [-1 if later and not earlier else 1 for earlier, later in asked]


def agreement_points(runs: Runs) -> pd.DataFrame:
    """Return influence beside accuracy, means over seeds: a row for each setting and pair of places.

    The columns are :data:`FIELDS`, pair, difference (of influence in the rollout), gap (in accuracy), guess (of
    :func:`guesses`), and novel, the accuracy on novel classes without position bias.
    """
    rows = []
    for setting, x in runs.items():
        known = described(setting) | {"novel": float(x["accuracy_novel"].mean())}
        difference = differences(predicted_profiles(x), setting.task.items).mean(0)
        found = zip(PAIR_NAMES, difference, gaps(x).mean(0), guesses(setting.task), strict=True)
        for pair, more, gap, guess in found:
            rows.append(known | {"pair": pair, "difference": more, "gap": gap, "guess": guess})
    table = pd.DataFrame(rows)
    return table.assign(pair=pd.Categorical(table["pair"], PAIR_NAMES, ordered=True))


def agreement_scores(points: pd.DataFrame, groups: Mapping[str, str], *, least: float) -> pd.DataFrame:
    """Return how well influence tells what is favoured: a row for each group of networks, a query.

    ``gaps`` are those beyond ``least``, which alone have a sign; ``sign`` is the share of them whose sign the
    difference of influence has; ``guess`` the share in which the guessed place is favoured.
    """
    rows = {}
    for name, query in groups.items():
        chosen = points.query(query) if query else points
        clear = chosen[chosen["gap"].abs() > least]
        right, guessed = (np.sign(clear[x]) == np.sign(clear["gap"]) for x in ("difference", "guess"))
        rows[name] = {"gaps": len(clear), "sign": right.mean(), "guess": guessed.mean()}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("networks")


def agreement_intervals(
    points: pd.DataFrame, groups: Mapping[str, str], *, least: float, resamples: int = 2000, seed: int = 0
) -> pd.DataFrame:
    """Return intervals for the lead of the rollout over the guess, by resampling settings with their three gaps.

    ``ahead`` is the share of signs less that of the guess, with its 95% interval ``ahead_low``, ``ahead_high``; its p
    value is ``p``, and ``adjusted`` by Holm over the groups.
    """
    rows = {}
    for name, query in groups.items():
        chosen = points.query(query) if query else points
        rows[name] = _lead(chosen[chosen["gap"].abs() > least], resamples, seed)
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("networks")
    return table.assign(adjusted=holm(table["p"].to_numpy()))


def _lead(clear: pd.DataFrame, resamples: int, seed: int) -> dict[str, float]:
    """Return the lead of the rollout over the guess, with its interval, settings as units."""
    unit = clear.groupby(list(FIELDS)).ngroup().to_numpy()
    weights = resample_weights(unit, resamples, seed=seed)
    weights = weights / weights.sum(1, keepdims=True)
    right, guessed = ((np.sign(clear[x]) == np.sign(clear["gap"])).to_numpy(float) for x in ("difference", "guess"))
    ahead = right - guessed
    low, high = interval(weights @ ahead)
    p = sign_p_value(np.round(weights @ ahead, 12))  # a tie is 0 on every processor
    return {"ahead": float(ahead.mean()), "ahead_low": float(low), "ahead_high": float(high), "p": p}
