"""Tables of trained networks' results, on results made up so that the answer is known."""

from dataclasses import replace

import numpy as np
import pytest

xr = pytest.importorskip("xarray", reason="xarray is not installed")
pytest.importorskip("torch", reason="torch is not installed")

from studies.icl.gap_tables import (
    PAIR_NAMES,
    described,
    gap_arrays,
    gap_table,
    outcome_table,
    read_runs,
    run_size,
    training_table,
)
from studies.icl.outcomes import VARIABLES, make_results, write_results
from studies.icl.settings import Setting, preset

SIZES = {"seed": 2, "pair": 3, "order": 2, "layer": 2, "query": 17, "key": 17, "logged": 4, "judged": 1}
MADE = {"iterations": 40_000, "precision": "float32", "device": "cpu", "torch": "2"}


def results(accuracy=0.5, seeds=(0, 5), **attributes):
    arrays = {name: np.zeros([SIZES[d] for d in dims]) for name, (dims, _) in VARIABLES.items()}
    arrays["accuracy"] += accuracy
    arrays["loss"] += [4, 3, 2, 1]
    arrays["accuracy_novel"] += [0.25, 0.75]
    arrays["stopped"] = np.array([-1, 7])
    return make_results(arrays, list(seeds), MADE | attributes)


def test_a_row_for_each_network_and_pair():
    accuracy = np.zeros((2, 3, 2))
    accuracy[1, 2] = 0.6, 0.2
    setting = preset("figure8")[1]
    table = gap_table({setting: results(accuracy)})
    assert len(table) == 6 and table["seed"].tolist() == [0, 0, 0, 5, 5, 5]
    (row,) = table.query("gap != 0").to_dict("records")
    assert row["seed"] == 5 and row["pair"] == "middle vs last"
    assert row["gap"] == pytest.approx(0.4) and row["preference"] == pytest.approx(0.5)
    assert (row["mask"], row["width"], row["layers"], row["residual"]) == ("window", 5, 2, False)
    assert table["pair"].cat.categories.tolist() == list(PAIR_NAMES)


def test_gaps_by_panel_and_bar():
    accuracy = np.zeros((2, 3, 2))
    accuracy[1, 2] = 0.6, 0.2
    runs = {s: results(accuracy if s.network.layers == 4 else 0.5) for s in preset("figure5")}
    table = gap_table(runs)
    panels = gap_arrays(table.assign(depth=table["layers"].astype(str)), "depth", "encoding")
    assert list(panels) == ["2", "4", "6"] and list(panels["2"]) == ["none", "decay", "rope"]
    np.testing.assert_allclose(panels["4"]["rope"], [[0, 0, 0], [0, 0, 0.4]], atol=1e-12)
    assert not panels["2"]["rope"].any()


def test_no_runs_are_an_empty_table():
    assert gap_table({}).empty and outcome_table({}).empty
    assert training_table({"figure7": {}}, {"figure7": preset("figure7")}).empty


def test_losses_at_the_end_and_earlier():
    table = outcome_table({Setting(): results()})
    assert table["early_loss"].tolist() == [4, 4]  # logged after 10,000, 20,000, …
    assert table["loss"].tolist() == [1, 1] and table["novel"].tolist() == [0.25, 0.75]
    assert outcome_table({Setting(): results()}, early=30_000)["early_loss"].tolist() == [2, 2]
    assert outcome_table({Setting(): results()}, early=90_000)["early_loss"].tolist() == [1, 1]


def test_every_field_distinguishes():
    short = replace(Setting(), task=replace(Setting().task, spread="code"))
    assert described(short) | {"spread": "text"} == described(Setting())


def test_the_first_folder_takes_precedence(tmp_path):
    mine, kept = tmp_path / "mine", tmp_path / "kept"
    one, two, three = preset("figure4")[:3]
    for folder, settings, iterations in ((mine, [one], 1), (kept, [one, two], 2)):
        folder.mkdir()
        for setting in settings:
            write_results(folder / f"{setting.name}.nc", results(iterations=iterations))
    found = read_runs([one, two, three], [mine, kept])
    assert {s: x.attrs["iterations"] for s, x in found.items()} == {one: 1, two: 2}
    with pytest.raises(
        ValueError, match=r"results: expected a folder written by posbias train-icl, received .*nowhere"
    ):
        read_runs([one], [tmp_path / "nowhere"])


def test_how_results_were_made():
    figures = {"figure4": dict.fromkeys(preset("figure4")[:2], results())}
    (row,) = training_table(figures, {"figure4": preset("figure4")}).to_dict("records")
    expected = {"preset": "figure4", "settings": "2 of 9", "seeds": "2", "iterations": "40000"}
    assert row == expected | {"precision": "float32", "device": "cpu", "torch": "2", "stopped": 2}
    assert run_size(figures["figure4"]) == "2 seeds × 40,000 iterations"
    one, two = preset("figure4")[:2]
    assert run_size({one: results(), two: results(iterations=500)}) == "2 seeds × 40,000 or 500 iterations"
