"""The kept grid of recency probabilities is what a simulation gives."""

import numpy as np
import pytest

from studies.norms.layernorm_simulation import simulate_recency
from studies.norms.recency import KINDS, read_grid
from studies.results import FOLDER

GRID = read_grid(FOLDER / "recency.csv")


@pytest.mark.parametrize("kind", KINDS)
def test_the_kept_grid_is_what_a_simulation_gives(kind):
    norm, residual = KINDS[kind]
    found = simulate_recency(4000, d=16, alpha=0.5, n=10, layers=3, norm=norm, residual=residual, seed=1)
    here = "d == 16 and alpha == 0.5 and norm == @norm and residual == @residual and own_part and layer <= 3"
    kept = GRID.query(here).sort_values("layer")
    error = np.hypot(kept["error"], found.error)
    assert len(kept) == 3 and (abs(kept["probability"] - found.probability) < 4.5 * error + 2e-5).all()
