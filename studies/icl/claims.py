"""What the figures of Wu et al. (2025) are said to show: a table of named checks on trained networks' results.

``runs`` are results by setting. Seeds are the unit: a claim holds where all of them agree, and is contradicted if they
reverse something that it needs (:func:`reversed_claims`). How much a check can tell is asked of results that are broken
on purpose (:func:`claims_on_broken`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float, Int
from scipy.stats import t as student

from posbias import errors
from posbias.comparison.multiplicity import holm
from studies.icl.settings import Bias, Setting
from studies.icl.tables import NAMES, PAIR_NAMES, gap_table

LEAST = 0.01
"""Differences in accuracy below this have no sign: on 10,000 sequences the standard error is below 0.007."""
SAMPLING = 0.007
"""Standard error of a gap in accuracy on 10,000 sequences of each order, at most: the least spread of seeds."""
DIFFERENCE = SAMPLING * 2**0.5
"""The same of a difference of two gaps."""
LEVEL = 0.05
"""At most this is the probability that any claim is called contradicted by chance."""
PRINTED_ITERATIONS = 100_000
"""Optimizer steps of the paper's networks."""
SLIGHTLY = 0.1
"""A gap below this is called slight."""
FM, FL, ML = PAIR_NAMES
"""First against middle, first against last, middle against last."""
MASKS = {"full": "no mask", "causal": "causal"}
"""Masks, as figures and sentences call them."""
DEPTH_ENCODINGS = ("none", "decay", "rope")
"""Encodings of the figures that go over depths."""
CAPTURED: dict[Bias, dict[str, int]] = {
    "ends": {FM: 1, ML: -1}, "first": {FM: 1, FL: 1}, "middle": {FM: -1, ML: 1}, "last": {FL: -1, ML: -1}
}  # fmt: skip
"""Bias of the training data → the signs that some pairs' gaps must have for it to count as captured."""

Runs = Mapping[Setting, xr.Dataset]


def sign(values: Float[np.ndarray, "*other seeds"]) -> Int[np.ndarray, "*other"]:
    """Return the sign of a quantity over seeds: 0 if its mean is within ±:data:`LEAST`, or if the seeds disagree.

    >>> sign(np.array([[0.2, 0.1], [0.2, -0.1], [0.005, 0.004], [-0.3, -0.02]]))
    array([ 1,  0,  0, -1])
    """
    x = np.asarray(values, dtype=float)
    of_mean = np.sign(x.mean(-1))
    agreed = (np.sign(x) == of_mean[..., None]).all(-1) & (np.abs(x.mean(-1)) > LEAST)
    return np.where(agreed, of_mean, 0).astype(int)


def signs(gap_rows: pd.DataFrame, by: Sequence[str]) -> pd.Series:
    """Return the :func:`sign` of the gaps of each group of networks and pair of places, by ``by`` and ``pair``."""
    g = gap_rows.groupby([*by, "pair"], observed=True)["gap"].agg(["mean", "min", "max", "size", "count"])
    agreed = (g["min"] * g["max"] > 0) & (g["size"] == g["count"]) & (g["mean"].abs() > LEAST)
    return np.sign(g["mean"]).where(agreed, 0).astype(int)


def depth_claims(runs: Runs) -> pd.DataFrame:
    """Check what figures 2, 4 and 5, or 9 and 10, say of depth, encodings and the residual, without bias in the data.

    A quantity rises with depth if its difference from each depth to the next is positive in the sense of :func:`sign`.
    The text has the two vocabularies differ with a residual alone: with mixtures depth is not monotonic, and deep
    networks with RoPE lose the middle; with a fixed vocabulary depth "consistently amplifies" the bias, which is read
    as the mean size of the three gaps. Runs are those of ``figure4`` and ``figure5`` (or 9 and 10); depths that lack an
    encoding are left out, and so are claims on networks with a residual with fewer than three depths.

    The table is by ``name``: ``claim`` (a sentence), ``holds``, ``contradicted`` and ``measured``; three numbers in a
    row are for the three depths. A claim is unclear if it neither holds nor is contradicted.

    Source: Wu et al. 2025, section 5.1, K.1 to K.3, L and the captions of figures 2, 4, 5, 9 and 10.
    """
    plain, residual = (_by_depth(runs, residual=residual) for residual in (False, True))
    if len(_depths(plain)) < 2:
        raise errors.invalid("runs", "two depths with every encoding, without a residual", len(_depths(plain)))
    rows = _plain_claims(plain)
    if len(_depths(residual)) >= 3:
        fixed = any(s.task.vocabulary == "fixed" for s in runs)
        rows |= _fixed_residual_claims(residual) if fixed else _residual_claims(residual)
    return _table(rows)


def _plain_claims(g: pd.DataFrame) -> dict[str, tuple]:
    """Return the claims on networks without a residual; g is by (encoding, pair, layers), with seeds as columns."""
    rows: dict[str, tuple] = {}
    for e in DEPTH_ENCODINGS:
        middle, last = g.loc[e, FM], g.loc[e, FL]
        claim = f"no residual, {NAMES[e]}: the deeper, the more the first is favoured"
        measured = f"over the middle {_signed(middle.mean(axis=1))}; over the last {_signed(last.mean(axis=1))}"
        needed = _each(middle.diff().iloc[1:], last.diff().iloc[1:])
        rows[f"deeper-{e}"] = (claim, _rises(middle) and _rises(last), measured, needed)
    for name, one, other, claim in (
        ("decay-lowers", "decay", "none", "no residual: the decay mask lowers the gap of first and last"),
        ("rope-lowers", "rope", "none", "no residual: RoPE lowers the gap of first and last"),
        ("decay-lowers-more", "decay", "rope", "no residual: the decay mask lowers it more than RoPE"),
    ):
        change = g.loc[one, FL] - g.loc[other, FL]
        rows[name] = (claim, (sign(change.to_numpy()) < 0).all(), _signed(change.mean(axis=1)), _each(-change))
    size = g.abs()
    nearest = np.minimum(size.xs(FM, level="pair"), size.xs(FL, level="pair"))
    small = (size.xs(ML, level="pair") < nearest).all(axis=1)
    others = sorted({NAMES[e] for e in small[~small].index.get_level_values("encoding")})
    measured = f"{small.sum()} of {len(small)}" + f"; not {', '.join(others)}" * bool(others)
    claim = "no residual: the gap of middle and last is smaller than those with the first"
    needed = _each(nearest - size.xs(ML, level="pair"))
    return rows | {"middle-last-smallest": (claim, small.all(), measured, needed)}


def _residual_claims(g: pd.DataFrame) -> dict[str, tuple]:
    """Return the claims on networks with a residual, mixtures of classes."""
    lines = {e: g.loc[e, FL] for e in DEPTH_ENCODINGS}
    turns = [{-1, 1} <= set(_steps(line)) for line in lines.values()]
    measured = "; ".join(f"{NAMES[e]} {_signed(line.mean(axis=1))}" for e, line in lines.items())
    claim = "with a residual depth raises or lowers the gap of first and last, depending on the encoding"
    rows: dict[str, tuple] = {"not-monotonic": (claim, any(turns), measured, [])}
    lost = {e: [T for T in _depths(g) if _loses_the_middle(g.loc[e].xs(T, level="layers"))] for e in DEPTH_ENCODINGS}
    found = "; ".join(f"{NAMES[e]} with {', '.join(map(str, at))} layers" for e, at in lost.items() if at)
    holds = _depths(g)[-1] in lost["rope"] and not lost["none"] and not lost["decay"]
    claim = "with a residual the middle is lost with deep RoPE alone"
    ends = {e: (g.loc[e, FM], g.loc[e, ML]) for e in DEPTH_ENCODINGS}
    needed = _each(ends["rope"][0].iloc[-1:], -ends["rope"][1].iloc[-1:])
    for middle, last in (ends["none"], ends["decay"]):
        needed += [np.stack([-middle.loc[T], last.loc[T]]) for T in _depths(g)]
    return rows | {"middle-lost-deep-rope": (claim, holds, found or "by none", needed)}


def _fixed_residual_claims(g: pd.DataFrame) -> dict[str, tuple]:
    """Return the claims on networks with a residual, fixed vocabulary."""
    rows = {}
    for e in DEPTH_ENCODINGS:
        size = g.loc[e].abs().groupby(level="layers").mean()
        claim = f"with a residual, {NAMES[e]}: the deeper, the larger the gaps"
        rows[f"larger-{e}"] = (
            claim,
            _rises(size),
            ", ".join(f"{x:.2f}" for x in size.mean(axis=1)),
            _each(size.diff().iloc[1:]),
        )
    return rows


def bias_claims(runs: Runs) -> pd.DataFrame:
    """Check what figures 3 and 6, or 11, say of networks trained on data with the answer at chosen places.

    Runs are those of ``figure3`` and ``figure6`` (or of ``figure11``), and of two causal layers with a residual and no
    encoding trained without bias (in ``figure5`` or ``figure10``), which "captured" is measured from.

    Source: Wu et al. 2025, sections 5.2 and K.3, and the captions of figures 3, 6 and 11.
    """
    alike = gap_table(runs).query("layers == 2 and residual")
    keys = ["bias", "mask", "encoding", "pair"]
    g = (
        alike.assign(most=alike["gap"].abs())
        .groupby(keys, observed=True)
        .agg(mean=("gap", "mean"), most=("most", "max"))
    )
    g["sign"] = signs(alike, keys[:-1])
    seeds = alike.pivot_table(index=keys, columns="seed", values="gap", observed=True).dropna(axis=1).sort_index()
    networks = list(alike[keys[:-1]].drop_duplicates().itertuples(index=False, name=None))
    wanted = {(b, m, e) for b in CAPTURED for m in ("full", "causal") for e in ("none", "sinusoidal", "rope")}
    if missing := (wanted | {("none", "causal", "none")}) - set(networks):
        what = "every mask, encoding and bias of figures 3 and 6, and one without bias"
        raise errors.invalid("runs", what, f"{len(missing)} fewer")
    of, gap = {name: _by_network(g.index, g[name]) for name in g}, _by_network(seeds.index, seeds.to_numpy())
    biased = [key for key in networks if key[0] != "none" and _middle_is_lost(of["sign"][key])]
    elsewhere = [f"{MASKS[mask]} {NAMES[e]} on {b}" for b, mask, e in biased if b != "ends"]
    measured = f"{len(biased) - len(elsewhere)} of 6 there; elsewhere {', '.join(elsewhere) or 'none'}"
    claim = "among biased data the middle is lost only when trained on ends"
    others = [key for key in networks if key[0] not in ("none", "ends")]
    needed = [np.stack([-gap[key][FM], gap[key][ML]]) for key in others]
    lost_only = {"lost-only-on-ends": (claim, bool(biased) and not elsewhere, measured, needed)}
    return _table(_without_encoding(of, gap) | _with_encoding(of, gap) | lost_only)


def _by_network(index: pd.MultiIndex, values: Iterable[Any]) -> dict[tuple, dict[str, Any]]:
    """Return values by (bias, mask, encoding), then by pair: in a frame each look-up takes a thousand times as long."""
    found: dict[tuple, dict[str, Any]] = {}
    for (*network, pair), value in zip(index, values, strict=True):
        found.setdefault(tuple(network), {})[pair] = value
    return found


def _without_encoding(of: Mapping[str, dict], gap: Mapping[tuple, dict]) -> dict[str, tuple]:
    """Return the claims on no encoding: nothing without a mask, the first place with the causal one."""
    silent = [np.nanmax(list(of["most"][b, "full", "none"].values())) < LEAST for b in CAPTURED]
    gaps = [x for b in CAPTURED for x in gap[b, "full", "none"].values()]
    needed = _each(*(LEAST - x for x in gaps), *(LEAST + x for x in gaps))
    rows: dict[str, tuple] = {"no-mask": ("no mask, no encoding: no position bias", all(silent), _of(silent), needed)}
    for b in CAPTURED:
        one = (b, "causal", "none")
        claim = f"causal mask, no encoding, trained on {b}: the first is favoured"
        holds = all(of["sign"][one][pair] > 0 for pair in (FM, FL))
        rows[f"causal-{b}"] = (claim, holds, _signed(of["mean"][one].values()), _each(gap[one][FM], gap[one][FL]))
    last, without = (of["mean"][b, "causal", "none"][ML] for b in ("ends", "none"))
    claim = "causal mask, no encoding, trained on ends: the last gains nothing on the middle over data without bias"
    measured = f"{last:+.2f}, without bias {without:+.2f}"
    change = gap["ends", "causal", "none"][ML] - gap["none", "causal", "none"][ML]
    return rows | {"causal-ends-last": (claim, last > without - LEAST, measured, _each(change + LEAST))}


def _with_encoding(of: Mapping[str, dict], gap: Mapping[tuple, dict]) -> dict[str, tuple]:
    """Return the claims on the sinusoidal encoding and RoPE: each bias is captured, at both ends as a U."""
    ways = [(mask, e) for mask in ("full", "causal") for e in ("sinusoidal", "rope")]
    rows: dict[str, tuple] = {}
    for b, wanted in CAPTURED.items():
        signs = [of["sign"][b, *way] for way in ways]
        captured = [all(found[pair] == w for pair, w in wanted.items()) for found in signs]
        claim = f"sinusoidal and RoPE, trained on {b}: the bias is captured, with and without mask"
        needed = _each(*(gap[b, *way][pair] * w for way in ways for pair, w in wanted.items()))
        rows[f"captured-{b}"] = (claim, all(captured), _of(captured), needed)
    ahead = {way: of["mean"]["ends", *way][FL] for way in ways}
    measured = ", ".join(f"{MASKS[mask]} {NAMES[e]} {x:+.2f}" for (mask, e), x in ahead.items())
    claim = f"trained on ends: the first is better than the last, by less than {SLIGHTLY}"
    leads = [gap["ends", *way][FL] for way in ways]
    needed = _each(*leads, *(SLIGHTLY - x for x in leads))
    return rows | {"ends-first-slightly": (claim, all(0 < x < SLIGHTLY for x in ahead.values()), measured, needed)}


def sink_claims(sinks: pd.DataFrame, seeds: Sequence[pd.DataFrame] = ()) -> pd.DataFrame:
    """Check what figures 7 and 8 say of attention sinks under causal, sliding-window and prefix masks.

    The tables are those of ``figure8`` (or 13) from :func:`~studies.icl.tables.sink_table`, of all seeds and of each;
    without the latter no claim is contradicted.

    Source: Wu et al. 2025, section K.4 and the captions of figures 7, 8, 12 and 13.
    """
    kinds = sinks.index.get_level_values("mask").unique()
    if not {"causal", "window", "prefix"} <= set(kinds):
        raise errors.invalid("runs", "causal, window and prefix masks", ", ".join(kinds) or "none")
    causal, needed = sinks.loc[("causal", 0)], [_lead([x.loc[("causal", 0)] for x in seeds], 1)]
    claim = "causal mask: the first token is a sink"
    rows: dict[str, tuple] = {"sink-causal": (claim, causal.idxmax() == 1, _tops(causal), needed)}
    windows = sinks.loc["window"].sort_index()
    lead = windows[1] - windows.drop(columns=1).max(axis=1)
    measured = ", ".join(f"ahead by {x:+.2f} at {w}" for w, x in lead.items())
    claim = "wide windows make the first token a sink, narrow ones do not"
    narrow, wide = (_lead([x.loc[("window", w)] for x in seeds], 1) for w in lead.index[[0, -1]])
    rows["sink-windows"] = (claim, lead.iloc[0] < 0 < lead.iloc[-1], measured, [-narrow, wide])
    for K, x in sinks.loc["prefix"].sort_index().iterrows():
        claim = f"prefix of {K}: every prefix token is more of a sink than any other"
        needed = [_lead([one.loc[("prefix", K)] for one in seeds], K)]
        rows[f"sink-prefix{K}"] = (claim, x.loc[:K].min() > x.loc[K + 1 :].max(), _tops(x), needed)
    return _table(rows)


def scale(runs: Runs) -> str:
    """Return at what scale networks were trained, against the 100,000 iterations of the paper."""
    shares = " or ".join(sorted({f"{x.attrs['iterations'] / PRINTED_ITERATIONS:.0%}" for x in runs.values()}))
    seeds = " or ".join(sorted({str(x.sizes["seed"]) for x in runs.values()}))
    return f"{shares} of the iterations, {seeds} seeds"


def _table(rows: Mapping[str, tuple]) -> pd.DataFrame:
    """Return claims by name."""
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["claim", "holds", "measured", "needs"])
    against = reversed_claims(table["needs"].to_dict())
    table["holds"] = table["holds"].map(bool)
    table.insert(2, "contradicted", table.index.map(against) & ~table["holds"])
    return table.drop(columns="needs").rename_axis("name")


def outcomes(table: pd.DataFrame) -> pd.Series:
    """Return 1 for a claim that holds, -1 for one that is contradicted, and 0 for an unclear one."""
    return table["holds"].astype(int) - table["contradicted"].astype(int)


def _each(*values: pd.DataFrame | np.ndarray) -> list[np.ndarray]:
    """Return each row of values by seed as a group of its own."""
    return [row[None] for x in values for row in np.atleast_2d(np.asarray(x))]


def _lead(metrics: Sequence[pd.Series], K: int) -> Float[np.ndarray, "1 seeds"]:
    """Return by seed how far the least of the first K tokens is ahead of the largest of the others."""
    return np.array([[x.loc[:K].min() - x.loc[K + 1 :].max() for x in metrics]])


def _by_depth(runs: Runs, *, residual: bool) -> pd.DataFrame:
    """Return the gaps of causal networks by (encoding, pair, layers), a column for each seed that all settings have."""
    table = gap_table(runs).query("mask == 'causal' and encoding in @DEPTH_ENCODINGS and residual == @residual")
    found = table.groupby("layers")["encoding"].nunique()
    complete = found.index[found == len(DEPTH_ENCODINGS)]
    table = table[table["layers"].isin(complete)]
    wide = table.pivot(index=["encoding", "pair", "layers"], columns="seed", values="gap").sort_index()
    rows = table.groupby("seed").size()
    return wide[rows.index[rows == len(wide)]]


def _depths(g: pd.DataFrame) -> list[int]:
    return sorted(set(g.index.get_level_values("layers")))


def _steps(by_depth: pd.DataFrame) -> list[int]:
    """Return the sign of the change from each depth to the next; rows are depths, columns seeds."""
    return sign(by_depth.diff().iloc[1:].to_numpy()).tolist()


def _rises(by_depth: pd.DataFrame) -> bool:
    return all(step > 0 for step in _steps(by_depth))


def _loses_the_middle(by_pair: pd.DataFrame) -> bool:
    """Say whether both ends are favoured over the middle; rows are pairs, columns seeds."""
    return _middle_is_lost(pd.Series(sign(by_pair.to_numpy()), index=by_pair.index))


def _middle_is_lost(signs: pd.Series | Mapping[str, int]) -> bool:
    return bool(signs[FM] > 0 > signs[ML])


def _signed(values: Iterable[float]) -> str:
    return ", ".join(f"{x:+.2f}" for x in values)


def _of(found: Sequence[object]) -> str:
    return f"{sum(map(bool, found))} of {len(found)}"


def _tops(sinks: pd.Series) -> str:
    """Return the three tokens with the largest metric."""
    order = np.argsort(-sinks.to_numpy())[:3]
    return "tokens " + ", ".join(f"{sinks.index[k]} ({sinks.iloc[k]:.2f})" for k in order)


def seed_p_values(values: Float[np.ndarray, "groups seeds"], *, least: float = SAMPLING) -> Float[np.ndarray, "groups"]:
    """Return two-sided p values of "the mean over seeds is 0", by Student's t with seeds - 1 degrees of freedom.

    The standard deviation over seeds is at least ``least``: few seeds can agree by chance to more than a test can tell.

    >>> seed_p_values(np.array([[0.2, 0.21, 0.19], [0.3, -0.3, 0.0]])).round(4).tolist()
    [0.0008, 1.0]
    """
    seeds = values.shape[1]
    spread = np.maximum(values.std(axis=1, ddof=1), least)
    return np.asarray(2 * student.sf(np.abs(values.mean(axis=1)) / spread * np.sqrt(seeds), seeds - 1))


def reversed_claims(
    needs: Mapping[str, Sequence[Float[np.ndarray, "terms seeds"]]],
) -> dict[str, bool]:
    """Return for each claim whether the seeds contradict it, at a level that holds for all claims together.

    ``needs`` are groups of terms by seed, each of which the claim asks to have one term that is not negative. A claim
    is contradicted if one of the things that it excludes stands: all terms of a group are negative in every seed,
    beyond :data:`LEAST` on the mean, and the largest p value of its terms, adjusted by Holm's rule over the groups of
    all claims, is at most :data:`LEVEL`.

    >>> up, down = np.array([[0.2, 0.21, 0.19]]), np.array([[-0.2, -0.21, -0.19]])
    >>> split = np.array([[-0.2, -0.21, 0.01]])
    >>> reversed_claims({"up": [up], "down": [up, down], "split": [split]})
    {'up': False, 'down': True, 'split': False}
    """
    owners = [name for name, groups in needs.items() for _ in groups]
    if not owners:
        return dict.fromkeys(needs, False)
    adjusted = holm(np.array([_reversal(x) for groups in needs.values() for x in groups]))
    against = {name for name, p in zip(owners, adjusted, strict=True) if p <= LEVEL}
    return {name: name in against for name in needs}


def _reversal(terms: Float[np.ndarray, "terms seeds"]) -> float:
    """Return the p value of terms that are all negative in every seed, 1 if one is not."""
    x = np.asarray(terms, dtype=float)
    if x.shape[1] < 2 or not (x < 0).all() or not (x.mean(axis=1) < -LEAST).all():
        return 1.0
    return float(seed_p_values(x, least=DIFFERENCE).max())


Break = Callable[[Runs, np.random.Generator], Runs]
"""Makes broken results of kept ones, such as :func:`swapped_ends`."""


def claims_on_broken(
    check: Callable[[Runs], pd.DataFrame], runs: Runs, breaks: Mapping[str, Break], *, times: int = 20, seed: int = 0
) -> dict[str, pd.DataFrame]:
    """Return for each way to break the results what becomes of the claims: a row for each run, a column for each claim.

    As :func:`outcomes`: 1 if it holds, -1 if it is contradicted, 0 if it is unclear.
    """
    found = {}
    for what, broken in breaks.items():
        rng = np.random.default_rng(seed)
        found[what] = pd.DataFrame([outcomes(check(broken(runs, rng))) for _ in range(times)]).reset_index(drop=True)
    return found
