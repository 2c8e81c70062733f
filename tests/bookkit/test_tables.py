import pandas as pd

from bookkit.tables import frame_cells, show_table, table_markdown, table_text


def test_a_bar_in_a_cell_does_not_end_it():
    assert table_markdown([["a"], ["|x|"]]).splitlines()[-1] == "| \\|x\\| |"


def test_columns_are_aligned():
    lines = table_text([["model", "W"], ["bloom", "0.5"], ["mpt-30b", "12"]]).splitlines()
    assert lines == ["model      W", "bloom    0.5", "mpt-30b   12"]


FRAME = pd.DataFrame({"model": ["bloom", "mpt"], "W1": [0.12345, float("nan")], "heads": [112, 32]})


def test_a_frame_is_shown_with_its_formats(capsys):
    show_table(FRAME, {"W1": ".2f", "heads": lambda x: f"{x} heads"})
    assert r"model    W1      heads\nbloom  0.12  112 heads\nmpt       —   32 heads" in capsys.readouterr().out
    show_table(FRAME, fold="All models")
    assert r":::{dropdown} All models\n| model |" in capsys.readouterr().out


def test_a_named_index_is_shown_and_another_is_not():
    assert frame_cells(FRAME.set_index("model"), {})[0] == frame_cells(FRAME, {})[0] == ["model", "W1", "heads"]
