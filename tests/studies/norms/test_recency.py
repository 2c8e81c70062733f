"""Grids of recency probabilities: simulated, beside the print, and checks that fail on what they exclude."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from studies.norms.layernorm_simulation import simulate_recency
from studies.norms.recency import (
    SETTING,
    altered,
    beside_print,
    by_depth,
    differences,
    disappears,
    growth,
    print_is_met,
    read_grid,
    residual_weakens,
    rises,
    simulate_grid,
    sizes_tried,
    turns_early,
)
from studies.published.numbers import printed_recency
from studies.results import FOLDER

GRID = read_grid(FOLDER / "recency.csv")
OWN = GRID.query("own_part and norm == 'layernorm' and layer > 1 and residual != 'post'").reset_index(drop=True)
LOW = OWN.query("alpha <= 0.8").reset_index(drop=True)
BARE = GRID.query("own_part and norm == 'none' and residual == 'none'").reset_index(drop=True)


def rows(*values):
    """Rows of LayerNorm at d = 16, layer 2: α, rms, probability, error."""
    frame = pd.DataFrame(
        [(16, alpha, "layernorm", "none", rms, 2, p, error) for alpha, rms, p, error in values],
        columns=[*SETTING, "probability", "error"],
    )
    return frame.assign(own_part=np.isclose(frame["rms"], (1 - frame["alpha"]) ** -0.5))


def test_the_grid_simulated_now_is_the_simulation_and_agrees_with_the_kept_one():
    live = simulate_grid([16], [0.0, 0.5], sequences=4000, n=10, layers=3, seed=1)
    (row,) = live.query("kind == 'LayerNorm, residual' and alpha == 0.5 and layer == 2").itertuples()
    found = simulate_recency(4000, d=16, alpha=0.5, n=10, layers=3, residual="pre", seed=1)
    assert row.probability == found.probability[1] and row.error == found.error[1]
    last = found.mean_logits[1, -1, :-1]
    assert row.slope == last[-1] - last[0] and row.mean_logit == last.mean()
    gap = differences(live, GRID)
    assert len(gap) == len(live) == 2 * 3 * 3
    assert (gap["difference"].abs() < 4.5 * gap["error"] + 2e-5).all()


def test_growth_by_hand():
    (up,) = growth(rows((0.5, 2**0.5, 0.6, 0.03), (0.0, 1.0, 0.5, 0.04))).itertuples()
    assert (up.first, up.last, up.peak) == (0.5, 0.6, 0.5)
    assert up.fall == pytest.approx(-2) and up.clear == pytest.approx(0.1 / 0.03)
    (down,) = growth(rows((0.0, 1.0, 0.5, 0.04), (0.5, 2**0.5, 0.6, 0.03), (0.8, 5**0.5, 0.5, 0.04))).itertuples()
    assert down.peak == 0.5 and down.fall == pytest.approx(2) and down.clear == 0


def test_beside_the_print_by_hand():
    entry = SimpleNamespace(d=16, alpha=0.5, norm="layernorm", residual="none", layer=2, probability=0.6)
    grid = rows((0.5, 2**0.5, 0.6001, 0.0001), (0.5, 1.0, 0.9, 0.0001))
    (row,) = beside_print(grid, [entry]).itertuples()
    assert row.difference == pytest.approx(1e-4) and row.beyond == pytest.approx(0.5)
    with pytest.raises(ValueError, match="expected every printed setting"):
        beside_print(rows((0.0, 1.0, 0.5, 0.1)), [entry])


def test_sizes_tried_takes_each_reading_of_a_token():
    entry = SimpleNamespace(d=16, alpha=0.5, norm="layernorm", residual="pre", layer=2, probability=0.0)
    tried = sizes_tried(GRID, [entry]).set_index("size of a token")
    of = GRID.query("d == 16 and alpha == 0.5 and norm == 'layernorm' and layer == 2")
    assert tried.loc["token of norm √d", "probability"] == of.query("rms == 4")["probability"].item()
    assert tried.loc["token of norm 1", "difference"] == of.query("rms == 1")["probability"].item()
    post = of.query("residual == 'post'")["probability"].item()
    assert tried.loc["residual taken of normalised states", "probability"] == post


def curve(*probabilities):
    return rows(*((0.1 * k, 1.0, p, 0.01) for k, p in enumerate(probabilities)))


def test_rising_curves_by_hand():
    assert rises(curve(0.5, 0.55, 0.7)) and rises(curve(0.5, 0.7, 0.66))
    assert not rises(pd.concat([curve(0.5, 0.55, 0.7), curve(0.5, 0.7, 0.64).assign(d=64)]))  # falls by 6/√2 errors
    assert not rises(curve(0.5, 0.55, 0.59))  # ends 9 errors above


def test_the_print_is_met_and_one_that_is_off_is_not():
    beside = beside_print(GRID, printed_recency())
    assert print_is_met(beside)
    one = beside.assign(difference=beside["difference"] + 5e-4 * (beside.index == 9))
    assert not print_is_met(one)
    assert not print_is_met(beside.assign(difference=np.maximum(beside["difference"], 1e-4)))  # all together


def test_a_residual_that_does_nothing_or_everything_is_noticed():
    assert residual_weakens(LOW)
    by = (LOW["d"] == 64) & (LOW["alpha"] == 0.5) & (LOW["layer"] == 3)
    bare, mixed = (LOW.index[by & (LOW["residual"] == kind)][0] for kind in ("none", "pre"))
    for target in (0.5, LOW["probability"][bare], LOW["probability"][bare] + 0.01):
        assert not residual_weakens(altered(LOW, [mixed], target - LOW["probability"][mixed]))


def test_early_turn_and_disappearance():
    assert turns_early(BARE) and not turns_early(BARE.assign(probability=0.5))
    exchanged = BARE["layer"].replace({3: 4, 4: 3})
    assert not turns_early(BARE.assign(layer=exchanged))
    assert not turns_early(GRID.query("norm == 'none' and residual == 'none' and not own_part"))
    assert not disappears(LOW) and disappears(BARE.query("layer > 2"))
    assert disappears(LOW.query("alpha == 0 and d >= 64"))
    assert not disappears(pd.DataFrame({"probability": [0.5, 0.541], "error": [0.01, 0.01]}))


def test_readings_by_depth_are_those_of_the_network():
    X = np.random.default_rng(0).normal(size=(300, 4, 16)) / 4
    table = by_depth(X, 3, "pre")
    u = X - X.mean(-1, keepdims=True)
    u *= 4 / np.linalg.norm(u, axis=-1, keepdims=True)
    last = np.einsum("bd,bjd->bj", u[:, 3], u[:, :3]) / 4
    weight = np.exp(last) / np.exp(last).sum(1, keepdims=True)
    first = table.query("layer == 1").iloc[0]
    assert first["slope"] == pytest.approx((last[:, 2] - last[:, 0]).mean())
    assert first["attended"] == pytest.approx((weight @ [0, 0.5, 1]).mean())
    share = (last[:, [1, 2, 2]] > last[:, [0, 0, 1]]).sum(1)  # of the last query, with the third's own below
    third = np.einsum("bd,bjd->bj", u[:, 2], u[:, :2]) / 4
    share = (share + (third[:, 1] > third[:, 0])) / 4
    assert first["probability"] == pytest.approx(share.mean())
    assert first["error"] == pytest.approx(share.std(ddof=1) / 300**0.5)
    assert table["layer"].tolist() == [1, 2, 3] and (table["residual"] == "pre").all()
