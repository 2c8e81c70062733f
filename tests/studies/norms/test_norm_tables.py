"""Tables of the measurements of norms, by hand on two prompts; the kept files; the network with a known answer."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")
xr = pytest.importorskip("xarray", reason="xarray is not installed")

from studies.norms.control import UNDONE, control_network
from studies.norms.layernorm_simulation import layer_logits, recency_share
from studies.norms.tables import (
    change_table,
    exponent_table,
    lower_everywhere,
    mean_interval,
    prompt_changes,
    size_table,
    uniform_attended,
    with_effect,
    with_random_signs,
)

PARTS = ["input", "branches", "rest", "branch", "values"]


def study():
    """Two prompts, three layers, four positions; only natural text has the condition ``queries``."""
    slope = np.zeros((1, 2, 5, 3))
    slope[0, :, 0] = [[9, -0.2, 0.1], [9, -0.4, -0.3]]  # of the input: layer 1 does not count
    slope[0, :, 1], slope[0, :, 2] = [9, 0.1, 0.3], [9, -0.3, 0.5]  # of what branches add, and of the rest
    slope[0, :, 4] = [[-0.5, -0.2, 0.0], [-0.3, 0.0, 0.2]]  # of the averaged values
    course = np.zeros((1, 5, 4, 3))
    course[0, 0, 0] = np.log([1, 2, 3])  # the first token's input; that of the others is 1
    course[0, 1, 1:] = np.log(0.5)
    preference = np.array([[[[0.6, 0.8], [0.4, 0.6]], [[0.5, 0.7], [0.5, 0.7]], [[np.nan] * 2] * 2]])
    influence = np.array([[[0.2, np.nan], [0.1, np.nan], [np.nan, np.nan]]])
    return xr.Dataset(
        {
            "slope": (("data", "prompt", "part", "layer"), slope),
            "course": (("data", "part", "position", "layer"), course),
            "preference": (("data", "condition", "prompt", "layer2"), preference),
            "positive": (("data", "condition", "prompt", "layer2"), preference / 2),
            "influence_last": (("data", "condition", "prompt"), influence),
        },
        coords={"data": ["text"], "part": PARTS, "condition": ["intact", "keys", "queries"]},
        attrs={"length": 4},
    )


def test_exponents_and_sizes_by_hand():
    (row,) = exponent_table({"m": study()}).itertuples()
    assert (row.values_first, row.values_deeper) == pytest.approx((-0.4, 0.0))
    assert row.input == pytest.approx(-0.2) and row.layers == 2
    assert (row.branches, row.rest) == pytest.approx((0.2, 0.1))
    assert (row.least, row.most) == pytest.approx((-0.3, -0.1))
    assert (row.input_low, row.input_high) == pytest.approx((-0.35, -0.05))
    (row,) = size_table({"m": study()}).itertuples()
    assert (row.first_low, row.first_high) == pytest.approx((1, 3))
    assert (row.branches, row.rest) == pytest.approx((0.5, 1.0))


def test_changes_by_hand():
    data = study().rename({"layer2": "layer"}).drop_vars(["slope", "course"])
    table = change_table({"m": data}, "preference").set_index("condition")
    assert table.index.tolist() == ["intact", "keys"]  # the third was not measured
    assert table.loc["intact", "change"] == 0 and table.loc["intact", "intact"] == pytest.approx(0.6)
    # by prompt: 0.7 to 0.6 and 0.5 to 0.6
    assert table.loc["keys", ["change", "low", "high"]].tolist() == pytest.approx([0, -0.1, 0.1])
    last = change_table({"m": data}, "influence_last").set_index("condition")
    assert last.loc["keys", ["intact", "change"]].tolist() == pytest.approx([0.2, -0.1])


def test_layers_fall_after_adjustment():
    slope = 0.01 * np.random.default_rng(0).normal(size=(1, 40, 5, 21))
    slope[0, :, 0, 1:4] -= 1.0  # three layers that fall; the others do by chance alone
    dims, coords = ("data", "prompt", "part", "layer"), {"data": ["text"], "part": PARTS}
    (row,) = exponent_table({"m": xr.Dataset({"slope": (dims, slope)}, coords, {"length": 4})}).itertuples()
    assert (row.falling, row.layers) == (3, 20) and row.input_p <= 0.001


def test_intervals_are_of_the_mean():
    x = np.random.default_rng(1).normal(size=400)
    mean, low, high, p = mean_interval(x)
    assert mean == x.mean() and high - low == pytest.approx(2 * 1.96 * x.std() / 20, rel=0.1)
    assert p > 0.05 and mean_interval(x + 1)[3] <= 0.001


def test_changes_are_counted_after_adjustment_and_against_a_null():
    rng = np.random.default_rng(0)
    intact = rng.normal(size=30)
    models = {}
    for k in range(10):
        shift = -1.0 if k == 0 else 0.0
        moved = intact + shift + 0.1 * rng.normal(size=30)
        shuffled = intact + shift + 0.1 * rng.normal(size=30) if k == 0 else intact
        models[f"m{k}"] = xr.Dataset(
            {"loss": (("data", "condition", "prompt"), [[intact, moved, shuffled]])},
            coords={"data": ["text"], "condition": ["intact", "keys course", "keys shuffled"]},
        )
    table = change_table(models, "loss").query("condition == 'keys course'").set_index("model")
    assert table["direction"].tolist() == ["lower"] + [""] * 9
    assert table.loc["m0", "adjusted"] == pytest.approx(10 * table.loc["m0", "p"])
    null = change_table(models, "loss", against="keys shuffled").query("condition == 'keys course'").set_index("model")
    assert null.loc["m0", "direction"] == "" and abs(null.loc["m0", "change"]) < 0.1  # the null falls as much
    changes = prompt_changes(models["m0"], "loss", "keys course")
    assert changes.mean() == pytest.approx(table.loc["m0", "change"])


def test_falling_everywhere_is_noticed_and_nothing_else():
    rng = np.random.default_rng(3)
    changes = {name: -0.5 + rng.normal(size=40) for name in "abc"}
    effects = dict.fromkeys("abc", -1.0)
    assert lower_everywhere({name: x - 1 for name, x in changes.items()})
    assert not lower_everywhere({**{name: x - 1 for name, x in changes.items()}, "d": rng.normal(size=40)})
    assert all(lower_everywhere(with_effect(changes, effects, k)) for k in range(5))
    assert not any(lower_everywhere(with_random_signs(changes, k)) for k in range(5))
    drawn = with_effect(changes, effects, 0)["a"]
    assert set(np.round(drawn + 1, 9)) <= set(np.round(changes["a"] - changes["a"].mean(), 9))


def test_uniform_attention_lies_half_way_and_later_under_a_window():
    wide, narrow = (xr.Dataset(attrs={"length": n}) for n in (65, 256))
    found = uniform_attended({"llama-12": wide, "mistral-12": narrow})
    assert found["llama-12"] == pytest.approx(0.5)
    assert 0.5 < found["mistral-12"] < 1


def test_the_instrument_finds_the_known_recency_and_undoing_takes_it_away():
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((150, 8, 16)) + rng.standard_normal((150, 1, 16))) / 4
    control = control_network(X, 3)
    known = recency_share(layer_logits(X, 3, residual="pre"))
    for layer in (1, 2, 3):
        p, error = control.of("intact", layer)
        assert p == pytest.approx(known[layer - 1].mean(), abs=2e-3)
        assert error == pytest.approx(known[layer - 1].std() / np.sqrt(150), rel=0.05)
    second, error = control.of("keys, constant", 2)
    assert abs(second - 0.5) < 4 * error and control.of("intact", 2)[0] - 0.5 > 4 * error
    assert len(control.recency) == 3 * (1 + len(UNDONE)) and control.exponents[1] < 0
