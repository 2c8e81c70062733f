"""How models copy by place, in a table."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("xarray")

from posbias.lookup.file import read_retrieval, write_retrieval
from studies.lookup.copy_tables import copy_table

KEPT = Path(__file__).parent.parent / "results" / "lookup" / "copies"


def test_a_row_holds_what_the_file_says(tmp_path):
    """Gains of the first and last sixteenth are means over the prompts whose answers stand there."""
    found = read_retrieval(KEPT / "bloom-8.nc")
    table = copy_table(KEPT)
    assert len(table) == 10
    row, gain, place = table.loc["bloom-8"], found["gain"].values, found["place"].values
    ends = found["group_first"].values, found["group_last"].values
    for name, k in (("first", 0), ("middle", 8), ("last", -1)):
        inside = (place >= ends[0][k]) & (place <= ends[1][k])
        assert row[name] == pytest.approx(gain[inside].mean())
    assert row["gain"] == pytest.approx(gain.mean()) and row["gain_low"] < row["gain"] < row["gain_high"]
    assert (table["influence_low"] <= table["influence"]).all() and (table["influence"].abs() <= 1).all()
    assert np.isfinite(table.astype(float).to_numpy()).all()
    write_retrieval(tmp_path / "mine.nc", found)
    assert copy_table(tmp_path).index.tolist() == ["mine"]


def test_other_folders_and_other_tasks_are_refused(tmp_path):
    with pytest.raises(ValueError, match="expected files of posbias retrieval --task copy, received none"):
        copy_table(tmp_path)
    found = read_retrieval(KEPT / "bloom-8.nc")
    names = {f"{score}{end}" for score in ("gain", "loss", "loss_without") for end in ("", "_mean", "_low", "_high")}
    other = found.assign_attrs(task="kv").drop_vars([*names, "rank_correlation", "overall", "difference_p_value"])
    write_retrieval(tmp_path / "kv.nc", other)
    with pytest.raises(ValueError, match=r"kv\.nc"):
        copy_table(tmp_path)
