"""Tables of scores: predictions of one measurement, of many models, and through training."""

import numpy as np
import pytest
import xarray as xr
from scipy.linalg import expm

from posbias.predict import position_kernels, predict
from studies.ladder import scores as scoring

T, H, N = 3, 2, 6


def summary(seed=0, n=N, lambdas=(0.2, 0.3, 0.4)):
    """Return a summary of a made-up model with ALiBi slopes."""
    prompts = np.random.default_rng(seed).gamma(2.0, size=(8, n)) * np.linspace(1, 3, n)
    measured = xr.Dataset(
        {
            "influence": (("position",), prompts.sum(0) / prompts.sum()),
            "influence_prompts": (("prompt", "position"), prompts),
            "lambda_frobenius": (("layer",), np.array(lambdas)),
            "slopes": (("layer", "head"), np.full((T, H), [0.5, 0.1])),
            "window": (("layer",), np.zeros(T, dtype=int)),
            "content_offdiagonal": (("layer", "head"), np.zeros((T, H))),
            "content_diagonal": (("layer", "head"), np.ones((T, H))),
        },
        attrs={"length": n},
    )
    rows = [predict(measured, variant) for variant in "abc"]
    measured["rollout"] = (("variant", "position"), np.stack([*rows, rows[0]]))
    return measured.assign_coords(variant=["a", "b", "c", "kernels"])


@pytest.fixture
def kept():
    return {
        "one.builtin": summary(0),
        "two.builtin": summary(1),
        "one.random": summary(2),
        "one-untrained-unit.builtin": summary(3),
        "one-untrained-default.builtin": summary(4, n=N + 1),
    }


def test_baselines_by_hand(kept):
    found = scoring.predictions(kept["one.builtin"])
    assert set(found) == set(scoring.LABELS) - {"untrained-default", "untrained-unit", "own", "untrained", "aligned"}
    assert found["uniform"].tolist() == [1 / N] * N
    assert found["first"].tolist() == [1.0, 0, 0, 0, 0, 0] and found["last"].tolist() == [0.0, 0, 0, 0, 0, 1]
    A = position_kernels(kept["one.builtin"]).dense(0, N)
    assert np.allclose(found["clock"], expm(0.9 * (A - np.eye(N)))[-1])


def test_a_gain_is_decided_among_all_models_with_its_pair(kept):
    """50 resamples give p ≥ 2/51: enough for one comparison at 5%, not for two."""
    table = scoring.gain_table(kept, ["two"], [("a", "b"), ("last", "b")], resamples=50)
    assert (table["p_value"] == 2 / 51).all() and (table["decided"] == np.sign(table["gain"])).all()
    both = scoring.gain_table(kept, ["one", "two"], [("last", "b")], resamples=50)
    assert (both["p_value"] == 2 / 51).all() and not both["decided"].any()
