"""The table of known models: what ships agrees with results/ and with the published numbers."""

import pandas as pd
import pytest
from conftest import ROOT

pytest.importorskip("torch", reason="torch is not installed")

from posbias.report.known_models import COLUMNS, KINDS, TABLE, known_models
from studies.reference import known_models as made

needs_results = pytest.mark.skipif(not (ROOT / "results").is_dir(), reason="results/ is not here")


@needs_results
def test_the_table_that_ships_is_what_results_give(tmp_path):
    ours, fresh = known_models(), known_models(made.rebuild(tmp_path / "table.csv"))
    assert ours["name"].is_unique and tuple(ours.columns) == COLUMNS
    pd.testing.assert_frame_equal(ours, fresh, rtol=0, atol=2e-5)
    assert TABLE.read_text().startswith(made.HEADER)


def test_rows_by_hand():
    """Published models as printed, and BLOOM-8 read off its summary by other means."""
    known = known_models().set_index("name")
    assert set(known["kind"]) == set(KINDS)
    assert known.loc["MPT-30B", ["a", "b", "c"]].tolist() == [0.61, 0.16, 0.05]
    assert known.loc["MPT-30B", ["mean", "depth"]].isna().all()
    assert known.loc["BLOOM-176B", "mean"] == pytest.approx(0.651, abs=1e-3)


@needs_results
def test_a_row_is_what_the_front_door_says_of_the_same_entry():
    from posbias.measure.measurement import Measurement
    from studies.results import load

    m, row = Measurement(load("models")["bloom-8.builtin"]), known_models().set_index("name").loc["bloom-8"]
    assert [row["mean"], row["mixing"]] == pytest.approx([m.influence.mean_position, m.mixing.sum()], abs=1e-5)
    assert row["b"] == pytest.approx(m.compare()["b"].wasserstein, abs=1e-5)
