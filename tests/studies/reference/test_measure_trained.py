"""Tables of the reference models and of what was measured of them."""

import json

import numpy as np
import pytest
from conftest import ROOT

pytest.importorskip("xarray", reason="xarray is not installed")

from posbias import shipped
from posbias.measure.summary import read_summaries
from studies.reference.trained import (
    kept_measurements,
    largest_difference,
    loss_curve,
    training_records,
    variables,
)


def test_every_reference_model_has_its_row():
    rows = training_records()
    assert list(rows.index) == shipped.reference_names()
    for name in rows.index:
        config = json.loads((shipped.FOLDER / name / "config.json").read_text())
        layers = config.get("num_hidden_layers", config.get("n_layer", config.get("n_layers")))
        heads = config.get("num_attention_heads", config.get("n_head", config.get("n_heads")))
        assert (rows.loc[name, "T"], rows.loc[name, "H"]) == (layers, heads)
    assert rows.loc["nope-12", "positions"] == "none" and rows.loc["gpt2-12", "positions"] == "learned"
    assert rows["loss"].between(2, np.log(2048)).all()


def test_losses_are_those_of_the_file():
    lines = (shipped.FOLDER / "bloom-8" / "training.csv").read_text().splitlines()
    header, last = lines[0].split(","), lines[-1].split(",")
    curve = loss_curve("bloom-8")
    assert curve.loss.iloc[-1] == float(last[header.index("held_out_loss")])
    assert curve.step.iloc[-1] == len(lines) - 1 and curve.step.is_monotonic_increasing
    assert curve.loss.iloc[0] > curve.loss.iloc[-1]


def test_kept_measurements_say_where_they_come_from():
    kept = read_summaries(ROOT / "results" / "models")
    rows = kept_measurements({stem: kept[stem] for stem in ("bloom-8.builtin", "bloom-8.random")})
    assert list(rows.index) == ["bloom-8.builtin", "bloom-8.random"]
    assert rows.loc["bloom-8.random", "dataset"] == "random tokens"
    assert rows.loc["bloom-8.builtin", "prompts"] == kept["bloom-8.builtin"].sizes["prompt"]
    listed = variables(kept["bloom-8.builtin"])
    assert listed.loc["influence", "dimensions"] == "position 256"
    assert set(listed.index) == set(kept["bloom-8.builtin"].data_vars)


def test_prompts_that_two_measurements_share_are_compared_whichever_is_longer():
    long, short = np.array([[1.0, 2.5], [3.0, 4.0]]), np.array([[1.0, 2.0]])
    assert largest_difference(short, long) == pytest.approx(0.2)
    assert largest_difference(long, short) == pytest.approx(0.25)
    assert largest_difference(long, long) == 0
