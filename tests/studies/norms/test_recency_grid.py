"""Grids of recency probabilities: read, simulated, compared with each other and with the print."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT

from studies.norms.layernorm_simulation import simulate_recency
from studies.norms.recency_grid import (
    SETTING,
    beside_print,
    differences,
    growth,
    read_grid,
    simulate_grid,
    sizes_tried,
)

KEPT = ROOT / "results" / "layernorm" / "recency.csv"


def rows(*values):
    """Rows of LayerNorm at d = 16, layer 2: α, rms, probability, error."""
    frame = pd.DataFrame(
        [(16, alpha, "layernorm", "none", rms, 2, p, error) for alpha, rms, p, error in values],
        columns=[*SETTING, "probability", "error"],
    )
    return frame.assign(own_part=np.isclose(frame["rms"], (1 - frame["alpha"]) ** -0.5))


def test_the_kept_grid_has_every_setting_once():
    grid = read_grid(KEPT)
    assert not grid.duplicated(SETTING).any()
    assert ((grid["probability"] >= 0) & (grid["probability"] <= 1) & (grid["sequences"] >= 200_000)).all()
    usual = grid.query("own_part and alpha <= 0.8 and residual != 'post'")
    assert len(usual) == 4 * 9 * 3 * 2 * 4
    fixed = grid[np.isclose(grid["rms"], 2**0.5, atol=1e-4)].query("norm == 'layernorm' and residual == 'pre'")
    assert sorted(fixed["alpha"].unique()) == [*(k / 10 for k in range(9)), 0.9, 0.95, 0.99]


def test_the_grid_simulated_now_is_the_simulation_and_agrees_with_the_kept_one():
    live = simulate_grid([16], [0.0, 0.5], sequences=4000, n=10, layers=3, seed=1)
    (row,) = live.query("kind == 'LayerNorm, residual' and alpha == 0.5 and layer == 2").itertuples()
    found = simulate_recency(4000, d=16, alpha=0.5, n=10, layers=3, residual="pre", seed=1)
    assert row.probability == found.probability[1] and row.error == found.error[1]
    last = found.mean_logits[1, -1, :-1]
    assert row.slope == last[-1] - last[0] and row.mean_logit == last.mean()
    gap = differences(live, read_grid(KEPT))
    assert len(gap) == len(live) == 2 * 3 * 3
    assert (gap["difference"].abs() < 4.5 * gap["error"] + 2e-5).all()
    other = differences(live.assign(probability=live["probability"] + 0.1), read_grid(KEPT))
    assert (other["difference"].abs() > 4.5 * other["error"]).all()


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
    grid = read_grid(KEPT)
    entry = SimpleNamespace(d=16, alpha=0.5, norm="layernorm", residual="pre", layer=2, probability=0.0)
    tried = sizes_tried(grid, [entry]).set_index("size of a token")
    of = grid.query("d == 16 and alpha == 0.5 and norm == 'layernorm' and layer == 2")
    assert tried.loc["token of norm √d", "probability"] == of.query("rms == 4")["probability"].item()
    assert tried.loc["token of norm 1", "difference"] == of.query("rms == 1")["probability"].item()
    post = of.query("residual == 'post'")["probability"].item()
    assert tried.loc["residual taken of normalised states", "probability"] == post
    assert sizes_tried(grid, [SimpleNamespace(**{**vars(entry), "residual": "none"})]).empty
