"""Printed tables against rollouts, on cases that can be counted by hand, and against W1 itself."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias.comparison.distances import normalised_wasserstein
from posbias.published import numbers
from posbias.rollout.profiles import mean_position
from studies.published.tables import (
    READINGS,
    VARIANTS,
    allowed_means,
    by_distance,
    by_mean,
    by_pair,
    closer_in_larger,
    closest_without_content,
    entry_frame,
    exchanged,
    gains,
    gaps_to,
    identity_frame,
    judged_frame,
    means_by_collapse,
    misplaced,
    moved,
    over_models,
    overlap,
    pair_frame,
    reading_frame,
    refines_larger,
    relabelled,
    shown,
    unnoticed,
    variant_config,
    variant_profile,
    vote,
)


@pytest.mark.parametrize("model", numbers.MODELS)
@pytest.mark.parametrize("variant", "ab")
def test_content_free_variants_are_the_authors_own_files(model, variant):
    own = numbers.config(model, "none", residual=variant == "b")
    assert np.array_equal(variant_profile(model, variant, 32), own.at_length(32).profile())


def test_each_letter_changes_one_thing():
    a, b, c = (variant_config("bloom-7b1", v, 16) for v in VARIANTS)
    assert (a.lambdas() == 1).all() and (b.lambdas() == c.lambdas()).all() and b.lambdas().max() < 1
    assert a.content_config == b.content_config and not np.any(b.content_config.diagonal_scores)
    assert np.any(c.content_config.diagonal_scores)
    assert {a.sequence_length, b.sequence_length, c.sequence_length} == {16}


def test_data_set_brings_its_own_schedule():
    here, there = (variant_config("mpt-7b", "b", 8, x).lambdas() for x in ("fineweb-edu", "wikipedia"))
    assert not np.allclose(here, there)


def test_readings_replace_slopes_and_scale():
    slopes = {r: variant_config("falcon-rw-7b", "c", 8, reading=r).kernels().slopes[0, 0] for r in READINGS}
    content = {r: variant_config("falcon-rw-7b", "c", 8, reading=r).kernels().diagonal[0, 0] for r in READINGS}
    assert slopes["both"] == slopes["slopes only"] == pytest.approx(slopes["as published"] / 8)  # head size 64
    assert content["both"] == content["content only"] == pytest.approx(content["as published"] / 8)
    assert (slopes["content only"], content["slopes only"]) == (slopes["as published"], content["as published"])


def test_profiles_are_kept_and_cannot_be_written_to():
    p = variant_profile("mpt-7b", "b", 8)
    assert variant_profile("mpt-7b", "b", 8) is p
    with pytest.raises(ValueError, match="read-only"):
        p[0] = 1


def test_frame_has_every_mean_once():
    frame = reading_frame(16)
    assert len(frame) == 5 * 2 * 4 and not frame.duplicated(["model", "variant", "reading"]).any()
    row = frame.query("model == 'bloom' and variant == 'c' and reading == 'both'").iloc[0]
    assert row["mean"] == mean_position(variant_profile("bloom", "c", 16, reading="both"))
    unchanged = frame.query("model == 'mpt-7b' and variant == 'b'")
    assert unchanged["mean"].nunique() == 1  # the file has MPT's slopes, and (b) has no content


@pytest.fixture(scope="module")
def entries():
    return entry_frame()


def test_every_printed_entry_is_a_row(entries):
    assert len(entries) == numbers.ENTRIES and not entries.isna().any().any()
    kept = {(r.table, r.model, r.variant, r.dataset): (r.n, r.printed, r.low, r.high) for r in entries.itertuples()}
    for e in numbers.printed_tables():
        assert kept[e.table, e.model, e.variant, e.dataset] == (e.n, e.wasserstein, e.low, e.high)


def test_content_is_of_its_own_data_set_and_b_of_fineweb(entries):
    assert (entries.query("variant == 'c'").schedule == entries.query("variant == 'c'").dataset).all()
    assert set(entries.query("variant != 'c'").schedule) == {"fineweb-edu"}
    row = entries.query("table == 3 and model == 'mpt-7b' and variant == 'c' and dataset == 'dclm'").iloc[0]
    assert row["mean"] == mean_position(variant_profile("mpt-7b", "c", 256, "dclm"))


def test_own_schedules_change_b_elsewhere_only(entries):
    own = entry_frame(own_schedule=True)
    changed = own.loc[own["mean"] != entries["mean"]]
    assert set(changed.variant) == {"b"} and set(changed.dataset) == {"dclm", "wikipedia"}
    assert len(changed) == 2 * 2 * 5


def test_reading_changes_means(entries):
    faithful = entry_frame(reading="both")
    same = faithful["mean"] == entries["mean"]
    assert same[(entries.model == "mpt-7b") & (entries.variant == "b")].all()
    assert not same[(entries.model == "falcon-rw-7b") & (entries.variant != "a")].any()


shares = st.floats(0, 1)


@given(st.integers(0, 10_000))
def test_a_profile_at_a_distance_has_an_allowed_mean(seed):
    p, q = np.random.default_rng(seed).dirichlet(np.full(7, 0.4), size=2)
    low, high = allowed_means(mean_position(p), normalised_wasserstein(p, q))
    assert low - 1e-12 <= mean_position(q) <= high + 1e-12


def test_ranges_stay_on_the_line_and_may_be_empty():
    assert allowed_means(0.25, 0.5) == (0.0, 0.75) and allowed_means(0.75, 0.5) == (0.25, 1.0)
    assert overlap((0.0, 0.25), (0.5, 1.0)) == (0.5, 0.25)
    assert shown((0.5, 0.25)) == "none (gap 0.250)"


@pytest.mark.parametrize(
    ("mean", "gaps"), [(0.25, (0.25, 0.5)), (0.5, (0, 0.25)), (0.625, (0, 0.125)), (1.0, (0.25, 0.5))]
)
def test_gaps_to_a_range(mean, gaps):
    assert gaps_to(mean, (0.5, 0.75)) == gaps


@given(shares, shares, shares, shares)
def test_vote_is_that_of_every_mean_in_the_range(old, new, a, b):
    means = min(a, b), max(a, b)
    x = np.unique(np.concatenate([np.linspace(*means, 50), np.clip([old, new], *means)]))
    change = np.abs(new - x) - np.abs(old - x)
    found = vote(old, new, means)
    if found == "towards":
        assert (change < 0).all()
    elif found == "away":
        assert (change > 0).all()
    elif found == "unchanged":
        assert abs(new - old) < 1e-12
    else:
        assert change.max() >= 0 >= change.min()


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [(0.2, 0.4, "towards"), (0.4, 0.2, "away"), (0.5, 0.8, "open"), (0.4, 0.4, "unchanged"), (0.2, 0.61, "towards")],
)
def test_votes_by_hand(old, new, verdict):
    assert vote(old, new, (0.6, 0.7)) == verdict


def test_a_distance_within_half_a_unit_rounds_to_the_printed_one():
    rows = pd.DataFrame({"printed_b": [0.08, 0.08, 0.08], "computed_b": [0.0751, 0.0849, 0.0851]})
    assert by_distance(rows).tolist() == [True, True, False]
    both = rows.assign(printed_a=0.65, computed_a=[0.651, 0.656, 0.651])
    assert by_distance(both).tolist() == [True, False, False]


def test_a_distance_below_the_difference_of_means_is_impossible():
    rows = pd.DataFrame({"printed_b": [0.10, 0.10, 0.10], "least_b": [0.104, 0.106, 0.0], "printed_c": 0.5})
    assert by_mean(rows).tolist() == [True, False, True]
    assert by_mean(rows.assign(least_c=[0.6, 0.0, 0.5])).tolist() == [False, False, True]
    with pytest.raises(ValueError, match="rows: expected a column least_"):
        by_mean(rows[["printed_b"]])


@pytest.mark.parametrize(
    ("b", "c", "possible"),
    [(0.25, 0.25, True), (0.24, 0.255, True), (0.20, 0.20, False), (0.10, 0.60, True), (0.10, 0.62, False)],
)
def test_a_pair_by_the_triangle_inequality(b, c, possible):
    assert by_pair(pd.DataFrame({"printed_b": [b], "printed_c": [c], "apart": [0.5]})).tolist() == [possible]


def test_moved_numbers_are_all_and_never_negative():
    rows = pd.DataFrame({"b": [0.01, 0.5], "c": [0.3, 0.4], "name": ["x", "y"]})
    tables = list(moved(rows, ["b", "c"], 0.02))
    assert len(tables) == 7  # 0.01 - 0.02 is no distance
    changed = [(t[["b", "c"]] != rows[["b", "c"]]).to_numpy().sum() for t in tables]
    assert changed == [1] * 7
    assert rows["b"].tolist() == [0.01, 0.5]


def test_exchanged_and_misplaced_change_one_row():
    rows = pd.DataFrame({"b": [0.1, 0.2, 0.1], "c": [0.3, 0.4, 0.3]})
    assert [t.loc[1, ["b", "c"]].tolist() for t in exchanged(rows, "b", "c")] == [[0.2, 0.4], [0.4, 0.2], [0.2, 0.4]]
    assert len(list(misplaced(rows, ["b", "c"]))) == 4  # the first row and the last hold the same numbers


def test_unnoticed_errors_leave_every_row_possible():
    rows = pd.DataFrame({"printed_b": [0.08, 0.65], "computed_b": [0.079, 0.651]})
    assert unnoticed(by_distance, [rows]) == [True]
    assert unnoticed(by_distance, moved(rows, ["printed_b"], 0.01)) == [False] * 4
    assert unnoticed(by_distance, moved(rows, ["printed_b"], 0.001)) == [True] * 4


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
    means = means_by_collapse(about(2, a=0.75, b=0.25))
    assert means.loc["m"].tolist() == pytest.approx([0.745, 0.755])
    shifted = about(2, a=0.75).assign(mean=0.1)
    assert means_by_collapse(shifted).loc["m"].tolist() == pytest.approx([0.645, 0.855])


@pytest.mark.parametrize(
    ("b", "verdict", "short"), [(0.25, "meets", -0.01), (0.3, "if they cross", -0.06), (0.2, "impossible", 0.04)]
)
def test_identity_by_the_range_of_differences(b, verdict, short):
    of_2 = about(2, a=0.75, b=b)
    row = identity_frame(of_2, means_by_collapse(of_2)).iloc[0]
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
    (row,) = pair_frame(about(4, b=b, c=c), profile).to_dict("records")
    assert row["apart"] == 0.5 and (row["mean_b"], row["mean_c"]) == (0.5, 1.0)
    assert (row["room"], row["rigid"], row["consistent"]) == (room, rigid, consistent)


def test_rounding_counts_for_the_printed_numbers():
    (row,) = pair_frame(about(4, b=0.24, c=0.255), profile).to_dict("records")
    assert row["room"] and row["consistent"]
    assert row["high"] - row["low"] == pytest.approx(0.005)
    far = [pair_frame(about(4, b=0.1, c=c), profile)["rigid"].item() for c in (0.608, 0.612)]
    assert far == [True, False]  # two prints are off by half a unit each


def test_strongest_test_decides():
    two = about(2, a=0.75, b=0.25, c=0.25)
    three = pd.concat([about(3, b=0.25, c=0.1), about(3, "dclm", b=0.2, c=0.2)])
    every = pd.concat([two, three, about(4, b=0.25, c=0.25)], ignore_index=True)
    found = judged_frame(every, profile, {}).set_index(["table", "dataset", "variant"])
    assert list(found["verdict"].str.startswith("not")) == [False, False, True, True, False, False]
    assert found.loc[(3, "fineweb-edu", "b"), "why"] == "by the mean that (a) gives: meets"
    assert found.loc[(3, "dclm", "c"), "why"] == "(b), (c) exclude each other: rollouts 0.500 apart"
    assert found.loc[(4, "fineweb-edu", "c"), "why"] == "(b) and (c) allow means from 0.745 to 0.755"
    curve = judged_frame(every, profile, {"m": np.array([0.25, 0.75])}).set_index(["table", "dataset", "variant"])
    assert curve.loc[(3, "fineweb-edu", "c"), ["verdict", "why"]].tolist() == [
        "not consistent",
        "the distance is 0.2500",
    ]
    assert curve.loc[(3, "fineweb-edu", "b"), "verdict"] == "consistent"


SIBLINGS = {"small": "large"}


def printed(**models):
    rows = []
    for model, pairs in models.items():
        for dataset, pair in zip("de", pairs, strict=False):
            rows += [
                {"model": model, "dataset": dataset, "variant": v, "printed": w}
                for v, w in zip("bc", pair, strict=True)
            ]
    return pd.DataFrame(rows)


def test_gains_are_whole_units_in_the_order_of_the_table():
    units = gains(printed(small=[(0.07, 0.06), (0.29, 0.58)], large=[(0.2, 0.2), (0.16, 0.05)]))
    assert units.loc["small"].tolist() == [1, -29] and units.loc["large"].tolist() == [0, 11]
    assert list(units.index) == ["small", "large"] and list(units.columns) == ["d", "e"]


@pytest.mark.parametrize(("units", "most"), [([[-1, -1], [0, 0]], False), ([[-1, -1], [-1, 5]], True)])
def test_most_is_more_than_half_and_ties_do_not_count(units, most):
    assert closest_without_content(pd.DataFrame(units)) is most


@pytest.mark.parametrize(
    ("small", "large", "refines"),
    [([-1, 2], [5, 5], True), ([3, 2], [5, 5], False), ([-9, -9], [0, 5], False), ([2, -9], [5, -1], False)],
)
def test_larger_models_gain_and_gain_more_than_rounding_makes(small, large, refines):
    assert refines_larger(pd.DataFrame([small, large], index=["small", "large"]), SIBLINGS) is refines


def test_places_in_which_the_larger_model_is_nearer():
    table = pd.DataFrame({"d": [0.10, 0.09], "e": [0.10, 0.10]}, index=["small", "large"])
    assert closer_in_larger(table, SIBLINGS) == 1
    assert closer_in_larger(table, {"large": "small"}) == 0


def test_relabelled_takes_every_other_order():
    table = pd.DataFrame({"d": [1, 2, 3]}, index=["x", "y", "z"])
    orders = {tuple(t["d"]) for t in relabelled(table)}
    assert len(orders) == 5 and (1, 2, 3) not in orders
    assert all(list(t.index) == ["x", "y", "z"] for t in relabelled(table))


def test_models_are_the_unit():
    units = pd.DataFrame([[-1, -1], [0, -2], [0, 0], [4, -1]], index=["x", "y", "z", "w"])
    found = over_models(units, dict(zip("xyzw", (7, 7, 30, 176), strict=True)))
    assert (found.nearer_b, found.nearer_c, found.tied) == (4, 1, 3)
    assert (found.models_b, found.models_c) == (2, 1)
    assert found.sign_p == 1.0  # two against one
    assert found.rank == pytest.approx(1.0)  # sums -2, -2, 0, 3 and sizes 7, 7, 30, 176 have the same ranks
    assert found.rank_p == pytest.approx(2 / 12)  # twice the share of orders with this correlation
