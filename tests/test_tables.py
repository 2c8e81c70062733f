import pytest

from posbias.book.tables import show_table, table_cells, table_markdown, table_text


def test_a_bar_in_a_cell_does_not_end_it():
    assert table_markdown([["a"], ["|x|"]]).splitlines()[-1] == "| \\|x\\| |"


def test_columns_are_aligned():
    lines = table_text(table_cells(["model", "W"], [["bloom", 0.5], ["mpt-30b", 12]])).splitlines()
    assert lines == ["model      W", "bloom    0.5", "mpt-30b   12"]


def test_rows_of_another_length_are_refused():
    with pytest.raises(ValueError, match="expected 2 cells, received 1"):
        table_cells(["a", "b"], [["x"]])


def test_both_forms_are_shown(capsys):
    show_table(["a", "b"], [["x", 1]])
    assert "x  1" in capsys.readouterr().out
