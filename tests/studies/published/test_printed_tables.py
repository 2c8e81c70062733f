"""Printed tables against rollouts, on cases that can be counted by hand, and against W1 itself."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias.comparison.distances import normalised_wasserstein
from posbias.published import numbers
from posbias.rollout.profiles import mean_position
from studies.published import tables


@pytest.mark.parametrize("model", numbers.MODELS)
@pytest.mark.parametrize("variant", "ab")
def test_content_free_variants_are_the_authors_own_files(model, variant):
    own = numbers.config(model, "none", residual=variant == "b")
    assert np.array_equal(tables.variant_profile(model, variant, 32), own.at_length(32).profile())


def test_each_letter_changes_one_thing():
    a, b, c = (tables.variant_config("bloom-7b1", v, 16) for v in tables.VARIANTS)
    assert (a.lambdas() == 1).all() and (b.lambdas() == c.lambdas()).all() and b.lambdas().max() < 1
    assert a.content_config == b.content_config and not np.any(b.content_config.diagonal_scores)
    assert np.any(c.content_config.diagonal_scores)
    assert {a.sequence_length, b.sequence_length, c.sequence_length} == {16}


def test_readings_replace_slopes_and_scale():
    kernels = {r: tables.variant_config("falcon-rw-7b", "c", 8, reading=r).kernels() for r in tables.READINGS}
    slopes, content = ({r: getattr(x, name)[0, 0] for r, x in kernels.items()} for name in ("slopes", "diagonal"))
    assert slopes["both"] == slopes["slopes only"] == pytest.approx(slopes["as published"] / 8)  # head size 64
    assert content["both"] == content["content only"] == pytest.approx(content["as published"] / 8)
    assert (slopes["content only"], content["slopes only"]) == (slopes["as published"], content["as published"])


@pytest.fixture(scope="module")
def entries():
    return tables.entry_frame()


def test_every_printed_entry_is_a_row(entries):
    assert len(entries) == numbers.ENTRIES and not entries.isna().any().any()
    kept = {(r.table, r.model, r.variant, r.dataset): (r.n, r.printed, r.low, r.high) for r in entries.itertuples()}
    for e in numbers.printed_tables():
        assert kept[e.table, e.model, e.variant, e.dataset] == (e.n, e.wasserstein, e.low, e.high)


def test_content_is_of_its_own_data_set_and_b_of_fineweb(entries):
    assert (entries.query("variant == 'c'").schedule == entries.query("variant == 'c'").dataset).all()
    assert set(entries.query("variant != 'c'").schedule) == {"fineweb-edu"}
    row = entries.query("table == 3 and model == 'mpt-7b' and variant == 'c' and dataset == 'dclm'").iloc[0]
    assert row["mean"] == mean_position(tables.variant_profile("mpt-7b", "c", 256, "dclm"))


def test_own_schedules_change_b_elsewhere_only(entries):
    own = tables.entry_frame(own_schedule=True)
    changed = own.loc[own["mean"] != entries["mean"]]
    assert set(changed.variant) == {"b"} and set(changed.dataset) == {"dclm", "wikipedia"}
    assert len(changed) == 2 * 2 * 5


shares = st.floats(0, 1)


@given(st.integers(0, 10_000))
def test_a_profile_at_a_distance_has_an_allowed_mean(seed):
    p, q = np.random.default_rng(seed).dirichlet(np.full(7, 0.4), size=2)
    low, high = tables.allowed_means(mean_position(p), normalised_wasserstein(p, q))
    assert low - 1e-12 <= mean_position(q) <= high + 1e-12


@given(shares, shares, shares, shares)
def test_vote_is_that_of_every_mean_in_the_range(old, new, a, b):
    means = min(a, b), max(a, b)
    x = np.unique(np.concatenate([np.linspace(*means, 50), np.clip([old, new], *means)]))
    change = np.abs(new - x) - np.abs(old - x)
    found = tables.vote(old, new, means)
    assert {
        "towards": (change < 0).all(),
        "away": (change > 0).all(),
        "unchanged": abs(new - old) < 1e-12,
        "open": change.max() >= 0 >= change.min(),
    }[found]


def test_a_distance_below_the_difference_of_means_is_impossible():
    rows = pd.DataFrame({"printed_b": [0.10, 0.10, 0.10], "least_b": [0.104, 0.106, 0.0], "printed_c": 0.5})
    assert tables.by_mean(rows).tolist() == [True, False, True]
    assert tables.by_mean(rows.assign(least_c=[0.6, 0.0, 0.5])).tolist() == [False, False, True]


def test_moved_numbers_are_all_and_never_negative():
    rows = pd.DataFrame({"b": [0.01, 0.5], "c": [0.3, 0.4], "name": ["x", "y"]})
    moves = list(tables.moved(rows, ["b", "c"], 0.02))
    assert len(moves) == 7  # 0.01 - 0.02 is no distance
    changed = [(t[["b", "c"]] != rows[["b", "c"]]).to_numpy().sum() for t in moves]
    assert changed == [1] * 7
    assert rows["b"].tolist() == [0.01, 0.5]


FIRST, EVEN, LAST = np.array([1.0, 0.0]), np.array([0.5, 0.5]), np.array([0.0, 1.0])
PROFILES = {"a": FIRST, "b": EVEN, "c": LAST}


def profile(model, variant, n, schedule):
    return PROFILES[variant]


def about(table, dataset="fineweb-edu", **printed):
    rows = [
        {"table": table, "n": 2, "dataset": dataset, "corpus": dataset, "model": "m", "label": "M", "variant": v}
        | {"printed": w, "low": w - 0.005, "high": w + 0.005, "schedule": dataset, "mean": mean_position(PROFILES[v])}
        for v, w in printed.items()
    ]
    return pd.DataFrame(rows)


def test_collapse_gives_the_measured_mean():
    means = tables.means_by_collapse(about(2, a=0.75, b=0.25))
    assert means.loc["m"].tolist() == pytest.approx([0.745, 0.755])
    shifted = about(2, a=0.75).assign(mean=0.1)
    assert tables.means_by_collapse(shifted).loc["m"].tolist() == pytest.approx([0.645, 0.855])


@pytest.mark.parametrize(
    ("b", "verdict", "short"), [(0.25, "meets", -0.01), (0.3, "if they cross", -0.06), (0.2, "impossible", 0.04)]
)
def test_identity_by_the_range_of_differences(b, verdict, short):
    of_2 = about(2, a=0.75, b=b)
    row = tables.identity_frame(of_2, tables.means_by_collapse(of_2)).iloc[0]
    assert (row["variant"], row["identity"]) == ("b", verdict)
    assert row["short"] == pytest.approx(short)
    assert (row["least"], row["largest"]) == (pytest.approx(0.245), pytest.approx(0.255))


@pytest.mark.parametrize(
    ("b", "c", "room", "rigid", "consistent"),
    [
        (0.25, 0.25, True, True, True),  # rollouts 0.5 apart, and a mean of 0.75 does for both
        (0.20, 0.20, False, True, False),  # 0.2 + 0.2 < 0.5
        (0.10, 0.80, True, False, False),  # 0.8 - 0.1 > 0.5
    ],
)
def test_pairs_by_the_triangle_inequality(b, c, room, rigid, consistent):
    (row,) = tables.pair_frame(about(4, b=b, c=c), profile).to_dict("records")
    assert row["apart"] == 0.5 and (row["mean_b"], row["mean_c"]) == (0.5, 1.0)
    assert (row["room"], row["rigid"], row["consistent"]) == (room, rigid, consistent)


def test_strongest_test_decides():
    two = about(2, a=0.75, b=0.25, c=0.25)
    three = pd.concat([about(3, b=0.25, c=0.1), about(3, "dclm", b=0.2, c=0.2)])
    every = pd.concat([two, three, about(4, b=0.25, c=0.25)], ignore_index=True)
    found = tables.judged_frame(every, profile, {}).set_index(["table", "dataset", "variant"])
    assert list(found["verdict"].str.startswith("not")) == [False, False, True, True, False, False]
    assert found.loc[(3, "fineweb-edu", "b"), "why"] == "by the mean that (a) gives: meets"
    assert found.loc[(3, "dclm", "c"), "why"] == "(b), (c) exclude each other: rollouts 0.500 apart"
    assert found.loc[(4, "fineweb-edu", "c"), "why"] == "(b) and (c) allow means from 0.745 to 0.755"
    curve = tables.judged_frame(every, profile, {"m": np.array([0.25, 0.75])})
    curve = curve.set_index(["table", "dataset", "variant"])
    both = curve.loc[(3, "fineweb-edu", "c"), ["verdict", "why"]]
    assert both.tolist() == ["not consistent", "the distance is 0.2500"]
    assert curve.loc[(3, "fineweb-edu", "b"), "verdict"] == "consistent"


SIBLINGS = {"small": "large"}


@pytest.mark.parametrize(("units", "most"), [([[-1, -1], [0, 0]], False), ([[-1, -1], [-1, 5]], True)])
def test_most_is_more_than_half_and_ties_do_not_count(units, most):
    assert tables.closest_without_content(pd.DataFrame(units)) is most


@pytest.mark.parametrize(
    ("small", "large", "refines"),
    [([-1, 2], [5, 5], True), ([3, 2], [5, 5], False), ([-9, -9], [0, 5], False), ([2, -9], [5, -1], False)],
)
def test_larger_models_gain_and_gain_more_than_rounding_makes(small, large, refines):
    assert tables.refines_larger(pd.DataFrame([small, large], index=["small", "large"]), SIBLINGS) is refines


def test_places_in_which_the_larger_model_is_nearer():
    table = pd.DataFrame({"d": [0.10, 0.09], "e": [0.10, 0.10]}, index=["small", "large"])
    assert tables.closer_in_larger(table, SIBLINGS) == 1
    assert tables.closer_in_larger(table, {"large": "small"}) == 0


def test_relabelled_takes_every_other_order():
    table = pd.DataFrame({"d": [1, 2, 3]}, index=["x", "y", "z"])
    orders = {tuple(t["d"]) for t in tables.relabelled(table)}
    assert len(orders) == 5 and (1, 2, 3) not in orders
    assert all(list(t.index) == ["x", "y", "z"] for t in tables.relabelled(table))


def test_models_are_the_unit():
    units = pd.DataFrame([[-1, -1], [0, -2], [0, 0], [4, -1]], index=["x", "y", "z", "w"])
    found = tables.over_models(units, dict(zip("xyzw", (7, 7, 30, 176), strict=True)))
    assert (found.nearer_b, found.nearer_c, found.tied) == (4, 1, 3)
    assert (found.models_b, found.models_c) == (2, 1)
    assert found.sign_p == 1.0  # two against one
    assert found.rank == pytest.approx(1.0)  # sums -2, -2, 0, 3 and sizes 7, 7, 30, 176 have the same ranks
    assert found.rank_p == pytest.approx(2 / 12)  # twice the share of orders with this correlation


def test_unnoticed_errors_leave_every_row_possible():
    rows = pd.DataFrame({"printed_b": [0.08, 0.65], "computed_b": [0.079, 0.651]})
    assert tables.unnoticed(tables.by_distance, [rows]) == [True]
    assert tables.unnoticed(tables.by_distance, tables.moved(rows, ["printed_b"], 0.01)) == [False] * 4
    assert tables.unnoticed(tables.by_distance, tables.moved(rows, ["printed_b"], 0.001)) == [True] * 4


def test_rounding_counts_for_the_printed_numbers():
    (row,) = tables.pair_frame(about(4, b=0.24, c=0.255), profile).to_dict("records")
    assert row["room"] and row["consistent"]
    assert row["high"] - row["low"] == pytest.approx(0.005)
    far = [tables.pair_frame(about(4, b=0.1, c=c), profile)["rigid"].item() for c in (0.608, 0.612)]
    assert far == [True, False]  # two prints are off by half a unit each
