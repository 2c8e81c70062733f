"""Grids of recency probabilities: simulated, beside the print, and checks that fail on what they exclude."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from studies.norms.layernorm_simulation import simulate_recency
from studies.norms.recency import (
    KINDS,
    SETTING,
    beside_print,
    print_is_met,
    read_grid,
)
from studies.published.numbers import printed_recency
from studies.results import FOLDER

GRID = read_grid(FOLDER / "recency.csv")


def rows(*values):
    """Rows of LayerNorm at d = 16, layer 2: α, rms, probability, error."""
    frame = pd.DataFrame(
        [(16, alpha, "layernorm", "none", rms, 2, p, error) for alpha, rms, p, error in values],
        columns=[*SETTING, "probability", "error"],
    )
    return frame.assign(own_part=np.isclose(frame["rms"], (1 - frame["alpha"]) ** -0.5))


@pytest.mark.parametrize("kind", KINDS)
def test_the_kept_grid_is_what_a_simulation_gives(kind):
    norm, residual = KINDS[kind]
    found = simulate_recency(4000, d=16, alpha=0.5, n=10, layers=3, norm=norm, residual=residual, seed=1)
    here = "d == 16 and alpha == 0.5 and norm == @norm and residual == @residual and own_part and layer <= 3"
    kept = GRID.query(here).sort_values("layer")
    error = np.hypot(kept["error"], found.error)
    assert len(kept) == 3 and (abs(kept["probability"] - found.probability) < 4.5 * error + 2e-5).all()


def test_beside_the_print_by_hand():
    entry = SimpleNamespace(d=16, alpha=0.5, norm="layernorm", residual="none", layer=2, probability=0.6)
    grid = rows((0.5, 2**0.5, 0.6001, 0.0001), (0.5, 1.0, 0.9, 0.0001))
    (row,) = beside_print(grid, [entry]).itertuples()
    assert row.difference == pytest.approx(1e-4) and row.beyond == pytest.approx(0.5)
    with pytest.raises(ValueError, match="expected every printed setting"):
        beside_print(rows((0.0, 1.0, 0.5, 0.1)), [entry])


def test_the_print_is_met_and_one_that_is_off_is_not():
    beside = beside_print(GRID, printed_recency())
    assert print_is_met(beside)
    one = beside.assign(difference=beside["difference"] + 5e-4 * (beside.index == 9))
    assert not print_is_met(one)
    assert not print_is_met(beside.assign(difference=np.maximum(beside["difference"], 1e-4)))  # all together
