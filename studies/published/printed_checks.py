"""Checks of the printed distances: what the files allow, and how large an error each test would notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from pandas import DataFrame
from scipy.optimize import linprog

import posbias as pb
from studies.checks import Check
from studies.published import audit, tables
from studies.published.audit import MODELS, Audit
from studies.published.tables import UNIT, by_pair, variant_profile

Broken = Mapping[str, Mapping[str, list[bool]]]


class Printed:
    """Hold the printed distances with what the files say of them."""

    def __init__(self, seen: Audit):
        self.seen = seen
        self.entries = tables.entry_frame()
        self.table_2 = self.entries.query("table == 2")
        self.means = tables.means_by_collapse(self.table_2)
        self.pairs = tables.pair_frame(self.entries)

    @cached_property
    def identity(self) -> DataFrame:
        """Entries (b) and (c) of Table 2, with the distances that the difference of means allows."""
        rows = self.table_2.query("variant != 'a'").copy()
        bounds = [self.means.loc[x] for x in rows["model"]]
        gaps = map(tables.gaps_to, rows["mean"], bounds)
        rows[["least", "largest"]] = np.array(list(gaps))
        rows["short"] = rows["least"] - rows["high"]
        meets = np.where(rows["low"] <= rows["largest"], "meets", "if they cross")
        rows["identity"] = np.where(rows["short"] > 0, "impossible", meets)
        return rows

    @cached_property
    def bloom(self) -> DataFrame:
        """The printed distances of BLOOM-176B in Table 2, and those of (a) and (b) as computed."""
        rows = self.table_2.query("model == 'bloom'").set_index("variant")["printed"]
        of_bloom = DataFrame([rows.add_prefix("printed_")], index=["bloom"])
        return of_bloom.assign(computed_a=self.computed("a"), computed_b=self.computed("b"))

    def computed(self, v: str) -> float:
        """Return the distance of a prediction of BLOOM-176B from the measured curve."""
        return pb.normalised_wasserstein(self.seen.bloom[v], self.seen.measured)

    @cached_property
    def caught(self) -> Broken:
        """By test and error: whether tables pass that have it."""
        means = self.identity.pivot(index="model", columns="variant", values=["printed", "least"])
        means.columns = pd.Index([f"{name}_{v}" for name, v in means.columns])
        pairs = self.pairs.query("consistent")
        tests: dict[str, tuple[Callable[[Any], Any], DataFrame, str]] = {
            "distance": (by_distance, self.bloom, "ab"),
            "mean": (by_mean, means[by_mean(means)], "bc"),
            "pair, Table 3": (by_pair, pairs.query("table == 3"), "bc"),
            "pair, Table 4": (by_pair, pairs.query("table == 4"), "bc"),
        }
        found = {}
        for name, (test, rows, tested) in tests.items():
            columns = [f"printed_{v}" for v in tested]
            errors: dict[str, Iterator[DataFrame]] = {}
            for x in (0.01, 0.1):
                errors[f"off by {x}"] = moved(rows, columns, x)
            errors["(b), (c) exchanged"] = exchanged(rows, "printed_b", "printed_c")
            errors["another row's"] = misplaced(rows, columns)
            found[name] = {error: passes(test, broken) for error, broken in errors.items()}
        return found


def passes(test: Callable[[Any], Any], broken: Iterator[DataFrame]) -> list[bool]:
    """Return for each broken table whether it passes a test in every row."""
    return [bool(test(x).all()) for x in broken]


def by_distance(rows: DataFrame) -> Any:
    """Say whether what is computed rounds to what is printed, in every row."""
    tested = [x.removeprefix("computed_") for x in rows if x.startswith("computed_")]
    off = [abs(rows[f"computed_{v}"] - rows[f"printed_{v}"]) for v in tested]
    return np.all([x <= UNIT / 2 for x in off], axis=0)


def by_mean(rows: DataFrame) -> Any:
    """Say whether profiles whose means differ so can be at the printed distance."""
    reached = [rows[f"printed_{v}"] + UNIT / 2 >= rows[f"least_{v}"] for v in "bc"]
    return np.all(reached, axis=0)


def with_row(rows: DataFrame, index: Any, numbers: Mapping[Any, Any]) -> DataFrame:
    """Return the table with some numbers of one row in place of its own."""
    place, changed = rows.index.get_loc(index), {}
    for name, number in numbers.items():
        changed[name] = rows[name].to_numpy(copy=True)
        changed[name][place] = number
    return rows.assign(**changed)


def moved(rows: DataFrame, columns: list[str], amount: float) -> Iterator[DataFrame]:
    """Yield tables with one number larger or smaller by an amount, but not negative."""
    for index in rows.index:
        for column in columns:
            for new in (rows.loc[index, column] - amount, rows.loc[index, column] + amount):
                if new > -1e-9:
                    yield with_row(rows, index, {column: new})


def exchanged(rows: DataFrame, one: str, other: str) -> Iterator[DataFrame]:
    """Yield tables with the numbers of two columns exchanged in one row."""
    for index, row in rows.iterrows():
        yield with_row(rows, index, {one: row[other], other: row[one]})


def misplaced(rows: DataFrame, columns: list[str]) -> Iterator[DataFrame]:
    """Yield tables with the numbers of another row in one row, where these differ."""
    for index in rows.index:
        for other in rows.index:
            table = with_row(rows, index, dict(rows.loc[other, columns]))
            if not table.equals(rows):
                yield table


def rounds(printed: Printed, **computed: float) -> bool:
    """Say whether distances of BLOOM-176B, by variant, round to those of Table 2."""
    rows = printed.bloom.drop(columns=["computed_a", "computed_b"])
    return bool(by_distance(rows.assign(**computed)).all())


def bloom_checks(printed: Printed) -> list[Check]:
    """Return the checks of Table 2's three distances of BLOOM-176B."""
    seen, n, row = printed.seen, printed.seen.measured.size, printed.bloom.loc["bloom"]
    by_model: dict[str, list[bool]] = {}
    for v in "bc":
        foreign = [variant_profile(x, v, n) for x in MODELS if x != "bloom"]
        found = [pb.normalised_wasserstein(p, seen.measured) for p in foreign]
        by_model[v] = [rounds(printed, **{f"computed_{v}": w}) for w in found]
    percent = []
    for factor in (0.98, 1.02):
        w = pb.normalised_wasserstein(audit.remixed(factor, n), seen.measured)
        percent.append(rounds(printed, computed_b=w))
    W = {v: printed.computed(v) for v in "abc"}
    return [
        Check(
            "RA-T2-T3", "BLOOM-176B (a), (b)", "Table 2, BLOOM-176B (a), (b).",
            rounds(printed, computed_a=W["a"], computed_b=W["b"]),
            f"BLOOM-176B (a) {W['a']:.4f}, (b) {W['b']:.4f}, printed {row['printed_a']:.2f} and "
            f"{row['printed_b']:.2f}; λ off by 1% would still round to it",
            "a distance from the recovered curve does not round to the printed one",
            {
                "a printed number off by 0.01": printed.caught["distance"]["off by 0.01"],
                "all λ off by 2%": percent,
                "the rollout (b) of another model": by_model["b"],
            },
            "a distance does not round to the printed one", {"kind": "reproduced"},
        ),
        Check(
            "RA-T2-T3", "BLOOM-176B (c)", "Table 2, BLOOM-176B (c).",
            rounds(printed, computed_c=W["c"]),
            f"BLOOM-176B (c) {W['c']:.4f}, printed {row['printed_c']:.2f} (0.02 would pass)",
            "the distance from the recovered curve does not round to the printed one",
            {"the rollout (c) of another model": by_model["c"]},
            f"it rounds to {W['c']:.2f}; the cause is unknown", {},
        ),
    ]  # fmt: skip


def entry_check(printed: Printed) -> Check:
    """Return the check of all other printed distances of Tables 2 and 3."""
    identity, caught = printed.identity, printed.caught
    impossible = identity.query("identity == 'impossible'")
    names = ", ".join(impossible["label"] + " (" + impossible["variant"] + ")")
    met, pairs_3 = identity.query("identity == 'meets'"), printed.pairs.query("table == 3")
    excluding = pairs_3.query("not consistent")
    exclude = ", ".join(excluding["label"] + " on " + excluding["corpus"])
    by_means, by_pairs = caught["mean"], caught["pair, Table 3"]
    return Check(
        "RA-T2-T3", "other entries", "Tables 2 and 3, the other entries.",
        impossible.empty and bool(by_pair(pairs_3).all()),
        f"Table 2: in {len(met)} of {len(identity)} entries (b), (c) the distance can be "
        f"the difference of means, in {len(identity) - len(met) - len(impossible)} it is "
        f"larger, as is allowed, in {len(impossible)} smaller, which is impossible; Table "
        f"3: in {len(excluding)} of {len(pairs_3)} cases no measured curve fits both (b) "
        "and (c)",
        "an entry is below the difference of means, or a pair breaks the triangle "
        "inequality, by more than rounding",
        {
            "mean: one entry off by 0.01": by_means["off by 0.01"],
            "mean: (b), (c) exchanged": by_means["(b), (c) exchanged"],
            "pair: one entry off by 0.01": by_pairs["off by 0.01"],
            "pair: another row's numbers": by_pairs["another row's"],
        },
        f"{names} below the bound that (a) sets; {exclude} contradict themselves",
        {"in_part": len(met) > 0},
    )  # fmt: skip


def long_check(printed: Printed) -> Check:
    """Return the check of the printed distances at 2,048 tokens."""
    long, caught = printed.pairs.query("table == 4"), printed.caught["pair, Table 4"]
    return Check(
        "RA-T4", "", "Table 4, 2,048 tokens.",
        bool(by_pair(long).all() and long["room"].all()),
        f"{int(long['room'].sum())} of {len(long)} pairs (b), (c) at 2048 tokens leave "
        f"room for a measured mean; rollout means from {long['mean_b'].min():.2f}; no "
        "measured curve published, so no entry is reproduced",
        "the distances of (b) and (c) allow no common measured mean, or break the "
        "triangle inequality, by more than rounding",
        {
            "one entry off by 0.01": caught["off by 0.01"],
            "one entry off by 0.1": caught["off by 0.1"],
            "(b), (c) exchanged": caught["(b), (c) exchanged"],
            "another row's numbers": caught["another row's"],
        },
        "some pairs of printed entries exclude each other", {},
    )  # fmt: skip


def transport_cost(p: audit.Curve, q: audit.Curve) -> float:
    """Return W₁ as the cheapest plan: a linear program over what goes from i to j."""
    j, every = np.arange(p.size), np.eye(p.size)
    cost = np.abs(j[:, None] - j).ravel() / (p.size - 1)
    sums = np.vstack([np.kron(every, np.ones(p.size)), np.tile(every, p.size)])
    return float(linprog(cost, A_eq=sums, b_eq=np.append(p, q)).fun)


def identity_holds(cases: list[Any], mean: Any = pb.mean_position, off: float = 0.0, every: bool = False) -> bool:
    """Say whether W₁ ≥ |Δmean| for all (p, q, W₁), with equality where and only where ordered."""
    for p, q, distance in cases:
        gap = distance + off - abs(mean(q) - mean(p))
        ordered = every or pb.dominates(p, q) or pb.dominates(q, p)
        if gap < -1e-8 or (gap < 1e-8) != ordered:
            return False
    return True


def drawn_cases(rng: np.random.Generator, pairs: int = 10) -> list[Any]:
    """Return random pairs with their transport cost, each followed by an ordered one."""
    cases = []
    for _ in range(pairs):
        size, concentration = rng.integers(3, 8), rng.uniform(0.3, 3)
        p, q = rng.dirichlet(np.full(size, concentration), size=2)
        before = np.diff(np.maximum(p.cumsum(), q.cumsum()), prepend=0.0)
        for x, y in ((p, q), (before / before.sum(), q)):
            cases.append((x, y, transport_cost(x, y)))
    return cases


def identity_check() -> Check:
    """Return the check of the mean identity against a linear program."""
    rng = np.random.default_rng(2)
    batches = [drawn_cases(rng) for _ in range(20)]
    crossing = pb.compare([0.5, 0, 0.5], [0, 1, 0])
    breaks: dict[str, dict[str, Any]] = {
        "distances too small by 0.01": {"off": -0.01},
        "distances too large by 0.001": {"off": 0.001},
        "means divided by n in place of n - 1": {"mean": lambda p: p @ np.arange(p.size) / p.size},
        "equality asked of all pairs, ordered or not": {"every": True},
    }
    broken = {}
    for what, change in breaks.items():
        broken[what] = [identity_holds(x, **change) for x in batches]
    errors = [abs(pb.normalised_wasserstein(p, q) - w) for x in batches for p, q, w in x]
    return Check(
        "RA-mean", "identity",
        "Ours: if one profile lies before another, their distance is that of their means.",
        all(map(identity_holds, batches)) and max(errors) < 1e-8,
        f"{len(errors)} random pairs, distance by a linear program: W₁ ≥ |Δmean|, "
        f"equal exactly where ordered; crossing pair {crossing.wasserstein:.2f} against 0",
        "a distance is below the difference of means, or equals it for a pair "
        "that is not ordered, or exceeds it for one that is, by more than 1e-8",
        broken,
        "the identity fails for a random pair", {"kind": "proved"},
    )  # fmt: skip


def mean_check(printed: Printed) -> Check:
    """Return the check that the printed distance of (a) is the measured mean."""
    measured, n, identity = printed.seen.measured, printed.seen.measured.size, printed.identity

    def allowed(curve: audit.Curve = measured, off: float = 0.0, of: str = "bloom") -> bool:
        low, high = printed.means.loc[of] + off
        return bool(low <= pb.mean_position(curve) <= high)

    def carried(tokens: int) -> audit.Curve:
        place = np.clip(np.arange(n) + tokens, 0, n - 1)
        return np.bincount(place, weights=measured, minlength=n)

    low, high = printed.means.loc["bloom"]
    met, impossible = (int((identity["identity"] == x).sum()) for x in ("meets", "impossible"))
    return Check(
        "RA-mean", "measured mean of BLOOM-176B", "Ours: the distance of (a) is the measured mean.",
        allowed(),
        f"W(a) gives BLOOM-176B a mean in [{low:.3f}, {high:.3f}], its recovered curve has "
        f"{pb.mean_position(measured):.4f}; applied to five models: {met} of "
        f"{len(identity)} entries meet it, {impossible} impossible",
        "the mean of the recovered curve is outside the interval that the printed W₁(a) allows",
        {
            "the printed number off by 0.01": [allowed(off=x) for x in (-0.01, 0.01)],
            "the curve moved by 2 tokens": [allowed(carried(x)) for x in (-2, 2)],
            "another model's printed number": [allowed(of=x) for x in MODELS if x != "bloom"],
        },
        "the recovered measured mean is outside the interval that W(a) allows", {},
    )  # fmt: skip


def odd_entries(printed: Printed) -> DataFrame:
    """Return the printed distances that contradict the files, and by how much beyond rounding."""
    odd = []
    for x in printed.identity.query("short > 0").itertuples():
        odd.append((f"{x.label} (c), FineWeb-Edu", "mean", x.short))
    for x in printed.pairs.query("table == 3 and not room").itertuples():
        odd.append((f"{x.label} (b) and (c), {x.corpus}", "pair", x.low - x.high))
    beyond = printed.computed("c") - printed.table_2.query("model == 'bloom'")["high"].min()
    odd.append(("BLOOM-176B (c), FineWeb-Edu", "distance", beyond))
    return DataFrame(odd, columns=["entry", "test", "contradiction, beyond rounding"])


def printed_shown(printed: Printed) -> DataFrame:
    """Return Table 2 as printed."""
    table = printed.table_2.pivot(index="label", columns="variant", values="printed")
    table = table.loc[list(audit.LABEL.values()), list(tables.VARIANTS)]
    return table.rename(columns=tables.VARIANTS).rename_axis("printed distance")


def numbers(printed: Printed) -> dict[str, Any]:
    """Return how many errors of 0.1 the test of Table 4 notices."""
    runs = printed.caught["pair, Table 4"]["off by 0.1"]
    return {"controlled_long_tenth": f"{runs.count(False)} of {len(runs)}"}


def printed_checks(printed: Printed) -> list[Check]:
    """Return all checks of the printed distances."""
    found = [*bloom_checks(printed), entry_check(printed), long_check(printed)]
    return [*found, identity_check(), mean_check(printed)]
