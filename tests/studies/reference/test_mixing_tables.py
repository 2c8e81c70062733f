"""Tables of residual mixing, on measurements made up so that the answer is known."""

import numpy as np
import pytest

xr = pytest.importorskip("xarray", reason="xarray is not installed")

from studies.reference.mixing_tables import (
    mixing_by_initialisation,
    mixing_by_model,
    mixing_over_training,
    most_fall,
    nearly_all_below_half,
    schedule_shapes,
)


def measured(frobenius, token=None):
    frobenius = np.asarray(frobenius)
    token = frobenius if token is None else np.asarray(token)
    arrays = {"lambda_frobenius": frobenius, "lambda_token": token}
    spread = {f"{name}_std": x / 10 for name, x in arrays.items()}
    return xr.Dataset({name: ("layer", x) for name, x in (arrays | spread).items()})


def test_a_row_for_each_model():
    one = measured([0.4, 0.2], [0.3, 0.25])
    kept = {"one.wikitext-2": measured([0.5, 0.5]), "one.random": measured([0.1, 0.1])}
    table = mixing_by_model(kept, {"one": one})
    assert table.loc["one"].tolist() == pytest.approx([0.6, 0.55, 0.4, 0.1, 0.1, 1.0, 0.2])


def test_shapes_of_schedules():
    schedules = {
        "falls": np.linspace(0.9, 0.1, 8),
        "rises": np.linspace(0.1, 0.2, 8),
        "none": np.array([0.3, 0.2, 0.4, 0.1, 0.1, 0.4, 0.2, 0.3]),
    }
    shapes = schedule_shapes(schedules)
    assert shapes["trend"].to_dict() == {name: name for name in schedules}
    assert shapes["below_half"].tolist() == [0.5, 1, 1]
    assert shapes.loc["falls", "rank"] == -1
    assert shapes.loc["none", "early"] == pytest.approx(1.0) and shapes["layers"].tolist() == [8] * 3
    twelve = schedule_shapes({"twelve": np.arange(12, 0, -1) / 20}).loc["twelve"]
    assert twelve["early"] == pytest.approx(11 / 6.5)  # the first three layers of twelve over all
    assert schedule_shapes(schedules, level=0.0)["trend"].tolist() == ["none"] * 3
    assert shapes.loc["falls", "p"] == pytest.approx(2 / 40320)  # of 8! orders, two are this one and its reverse
    weak = np.array([0.5, 0.3, 0.4, 0.2, 0.35, 0.1, 0.15])
    alone, family = (schedule_shapes({str(k): weak for k in range(m)}).loc["0"] for m in (1, 5))
    assert alone["trend"] == "falls" and family["trend"] == "none"
    assert family["adjusted"] == pytest.approx(5 * family["p"]) and alone["adjusted"] == alone["p"]


def test_training_ends_with_the_trained_model():
    stages = {"a.step-000010": measured([0.2]), "a.step-000000": measured([0.1])}
    table = mixing_over_training(stages, {"a": (600, measured([0.3])), "unstaged": (5, measured([0.9]))})
    assert table.values.tolist() == [["a", 0, 1, 0.1], ["a", 10, 1, 0.2], ["a", 600, 1, 0.3]]


def test_models_without_both_twins_are_left_out():
    kept = {"a-untrained-default.builtin": measured([0.1]), "a-untrained-unit.builtin": measured([0.2])}
    kept["b-untrained-unit.builtin"] = measured([0.2])
    table = mixing_by_initialisation(kept, {"a": measured([0.3]), "b": measured([0.4])})
    assert table.index.tolist() == ["a"] and table.loc["a"].tolist() == [0.1, 0.2, 0.3]


def test_majorities():
    falls, rises = np.linspace(0.9, 0.1, 8), np.linspace(0.1, 0.9, 8)
    assert most_fall({"a": falls, "b": falls, "c": rises}) and not most_fall({"a": falls, "c": rises})
    low, high = np.full(19, 0.2), np.full(2, 0.6)
    assert nearly_all_below_half({"a": low, "b": high})
    assert not nearly_all_below_half({"a": low}, {"a": low, "b": np.full(3, 0.6)})
