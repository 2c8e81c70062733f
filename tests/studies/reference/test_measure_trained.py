"""Tables of the reference models and of what was measured of them."""

import json

import numpy as np
import pytest

pytest.importorskip("xarray", reason="xarray is not installed")

from posbias import shipped
from studies.reference.trained import loss_curve, training_records


def test_every_reference_model_has_its_row():
    rows = training_records()
    assert list(rows.index) == shipped.reference_names()
    for name in rows.index:
        config = json.loads((shipped.reference_folder(name) / "config.json").read_text())
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
