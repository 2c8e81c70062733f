"""What is told of trained decoders with designed positions: losses, prices, what they listen to."""

import numpy as np
import pytest
import xarray as xr

from studies.design import tables


def entry(loss, profile, length=256):
    """Return an entry whose loss is 1 in the first half of places and more in the second."""
    n = len(profile)
    places = np.where(np.arange(16) < 8, 1.0, 1.0 + loss)
    return xr.Dataset(
        {
            "loss_places": (("prompt", "place"), np.tile(places, (8, 1))),
            "influence_prompts": (("prompt", "position"), np.tile(profile, (8, 1))),
            "lambda_frobenius": ("layer", [0.1, 0.2]),
            "rollout": (("variant", "position"), np.full((2, n), 1 / n)),
        },
        coords={"variant": ["b", "untrained"]},
        attrs={"length": length, "prompts": 8, "dataset": "random tokens", "rule": "random"},
    )


@pytest.fixture
def seeds():
    rising = np.arange(1.0, 65.0)
    return {
        "llama-12": {k: entry(0.2, rising) for k in range(3)},
        "llama-12-flat": {k: entry(0.2 + 0.1 * (k + 1), np.ones(64)) for k in range(3)},
    }


def test_losses_and_prices(seeds):
    table = tables.losses(seeds)
    assert np.allclose(table.loc["llama-12"], 1.1)
    assert np.allclose(tables.losses(seeds, beyond=128).loc["llama-12-flat"], [1.3, 1.4, 1.5])
    price = tables.prices(table)
    assert price.loc["llama-12", ["price", "price_low", "price_high"]].tolist() == [0, 0, 0]
    flat = price.loc["llama-12-flat"]
    half = 4.302653 * 0.05 / 3**0.5  # Student's t of two degrees of freedom
    assert np.allclose([flat.price, flat.price_low, flat.price_high], [0.1, 0.1 - half, 0.1 + half], atol=1e-6)
    assert (flat.body, flat.kind) == ("llama-12", "flat")


def test_what_is_reached(seeds):
    table = tables.reached(seeds, resamples=250).set_index(["model", "seed"])
    even, rising = table.loc["llama-12-flat", 0], table.loc["llama-12", 0]
    assert np.isclose(even.flatness, 0) and np.isclose(even["to rollout"], 0) and np.isclose(rising.tau, 0.3)
    assert np.isclose(rising["to rollout"], rising.flatness) and rising.flatness > 0.1 and even.kind == "flat"
    assert rising["to squares"] == rising["to rollout"]
    assert rising.near == pytest.approx((61 + 62 + 63 + 64) / (64 * 65 / 2))
