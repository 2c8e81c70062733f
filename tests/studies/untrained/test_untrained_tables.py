"""Tables of untrained networks, on made-up files whose answers are known."""

import numpy as np
import pytest
import xarray as xr

from posbias.rollout.structured import structured_kernels
from studies.untrained.tables import (
    cesaro_profile,
    distance_table,
)

N = 40
FALLING = np.linspace(2.0, 1.0, N)
VALLEY = 1.0 + np.abs(np.linspace(-1, 1, N))


def file(profiles, prediction, layers=3):
    """Return a file of networks with these measured profiles and one prediction that is the same for all."""
    profiles = np.asarray([p / p.sum() for p in profiles])
    prediction = prediction / prediction.sum()
    ones = np.ones((len(profiles), layers))
    return xr.Dataset(
        {
            "influence": (("seed", "position"), np.array(profiles)),
            "profile": (("seed", "prediction", "position"), np.stack([[prediction, prediction[::-1]]] * len(profiles))),
            **{name: (("seed", "layer"), ones * k) for k, name in enumerate(("overlap", "content", "branch_gain"))},
            "lambda_frobenius": (("seed", "layer"), ones / 2),
        },
        coords={"prediction": ["untrained", "aligned"]},
    )


@pytest.fixture
def kept():
    return {
        ("one", "random"): file([FALLING, VALLEY], FALLING),
        ("one", "random-unrotated"): file([FALLING, FALLING], FALLING),
        ("two", "random"): file([VALLEY], VALLEY),
    }


def test_distances_are_those_of_each_network(kept):
    table = distance_table(kept).set_index(["model", "part", "seed", "prediction"])
    assert table.loc[("one", "random", 0, "untrained"), "W1"] == pytest.approx(0, abs=1e-7)
    assert table.loc[("one", "random", 0, "untrained"), "spearman"] == pytest.approx(1)
    assert table.loc[("one", "random", 0, "aligned"), "spearman"] == pytest.approx(-1)
    step = np.abs(np.cumsum(VALLEY / VALLEY.sum() - FALLING / FALLING.sum()))[:-1].sum() / (N - 1)
    assert table.loc[("one", "random", 1, "untrained"), "W1"] == pytest.approx(step)
    assert len(table) == 5 * 6


@pytest.mark.parametrize("alpha", [0.0, 0.13, 0.5, 0.9])
def test_cesaro_powers_are_those_of_skip_and_average(alpha):
    M = (1 - alpha) * np.eye(N) + alpha * structured_kernels(1).dense(0, N)
    np.testing.assert_allclose(cesaro_profile(4, N, alpha), np.linalg.matrix_power(M, 4)[-1], rtol=1e-12, atol=1e-15)
