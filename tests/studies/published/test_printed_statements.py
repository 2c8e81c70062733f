"""Statements about printed tables, decided on tables of two to four models, and what refuses to be decided."""

import pandas as pd
import pytest

from studies.published.printed_statements import (
    closer_in_larger,
    closest_without_content,
    distance_tables,
    gains,
    over_models,
    refines_larger,
    relabelled,
)

SIBLINGS = {"small": "large"}


def entries(**models):
    rows = []
    for model, pairs in models.items():
        for dataset, pair in zip("de", pairs, strict=False):
            rows += [
                {"model": model, "dataset": dataset, "variant": v, "printed": w}
                for v, w in zip("bc", pair, strict=True)
            ]
    return pd.DataFrame(rows)


def test_gains_are_whole_units_in_the_order_of_the_table():
    units = gains(entries(small=[(0.07, 0.06), (0.29, 0.58)], large=[(0.2, 0.2), (0.16, 0.05)]))
    assert units.loc["small"].tolist() == [1, -29] and units.loc["large"].tolist() == [0, 11]
    assert list(units.index) == ["small", "large"] and list(units.columns) == ["d", "e"]


def test_one_number_for_each_place():
    every = entries(small=[(0.1, 0.2), (0.1, 0.2)])
    with pytest.raises(ValueError, match="entries: expected one for each model"):
        distance_tables(pd.concat([every, every]))
    with pytest.raises(ValueError, match="received none for some of c"):
        distance_tables(every.drop(index=3))


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
    with pytest.raises(ValueError, match="units: expected 3 to 8 models, received 2"):
        over_models(units.iloc[:2], {"x": 1, "y": 2})
