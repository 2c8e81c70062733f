"""Rollouts with skip and branch added as sizes, and at right angles."""

import numpy as np
import pytest
import xarray as xr

from posbias import influence_profile
from studies.ladder.joining import join_table, joined_profile

T, H, N = 3, 2, 6


def test_right_angles_by_hand():
    """One layer, λ = 1/4: position 1 keeps 3/4 and is sent 1/8, position 0 is sent 1/8."""
    A = np.array([[[1.0, 0.0], [0.5, 0.5]]])
    at_1 = np.hypot(0.75, 0.125)
    assert joined_profile(A, [0.25], power=2.0) == pytest.approx(np.array([0.125, at_1]) / (0.125 + at_1))


def test_sizes_are_the_rollout():
    rng = np.random.default_rng(0)
    A = np.tril(rng.uniform(size=(4, 5, 5)))
    A, lambda_ = A / A.sum(-1, keepdims=True), rng.uniform(0.1, 0.9, 4)
    assert np.allclose(joined_profile(A, lambda_, row=3), influence_profile(A, lambda_, row=3), atol=1e-14)


def summary(seed=0):
    """Return a summary of a made-up model with ALiBi slopes."""
    prompts = np.random.default_rng(seed).gamma(2.0, size=(8, N)) * np.linspace(1, 3, N)
    return xr.Dataset(
        {
            "influence": (("position",), prompts.sum(0) / prompts.sum()),
            "influence_prompts": (("prompt", "position"), prompts),
            "lambda_frobenius": (("layer",), np.array([0.2, 0.3, 0.4])),
            "slopes": (("layer", "head"), np.full((T, H), [0.5, 0.1])),
            "window": (("layer",), np.zeros(T, dtype=int)),
        },
        attrs={"length": N},
    )


def test_a_join_is_decided_among_all_models():
    """50 resamples give p ≥ 2/51: enough for one comparison at 5%, not for two."""
    one = join_table({"one": summary(0)}, resamples=50)
    assert (one["p_value"] == 2 / 51).all() and one["decided"].all()
    both = join_table({"one": summary(0), "two": summary(1)}, resamples=50)
    assert (both["p_value"] == 2 / 51).all() and not both["decided"].any()
