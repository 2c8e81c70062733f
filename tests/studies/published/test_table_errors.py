"""Errors in a printed table: which are made, and which a test notices, on numbers that can be counted by hand."""

import pandas as pd
import pytest

from studies.published.table_errors import by_distance, by_mean, by_pair, exchanged, misplaced, moved, unnoticed


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
    with pytest.raises(ValueError, match="amount: expected a positive number"):
        next(moved(rows, ["b"], 0.0))


def test_exchanged_and_misplaced_change_one_row():
    rows = pd.DataFrame({"b": [0.1, 0.2, 0.1], "c": [0.3, 0.4, 0.3]})
    assert [t.loc[1, ["b", "c"]].tolist() for t in exchanged(rows, "b", "c")] == [[0.2, 0.4], [0.4, 0.2], [0.2, 0.4]]
    assert len(list(misplaced(rows, ["b", "c"]))) == 4  # the first row and the last hold the same numbers


def test_unnoticed_errors_leave_every_row_possible():
    rows = pd.DataFrame({"printed_b": [0.08, 0.65], "computed_b": [0.079, 0.651]})
    assert unnoticed(by_distance, [rows]) == [True]
    assert unnoticed(by_distance, moved(rows, ["printed_b"], 0.01)) == [False] * 4
    assert unnoticed(by_distance, moved(rows, ["printed_b"], 0.001)) == [True] * 4
