"""What is told of trained decoders with designed positions."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
import xarray as xr
from torch import nn

from studies.design import designed_tables, prior_map
from studies.design.designed import place_losses
from studies.reference.models import DESIGNED


class Fixed(nn.Module):
    """Give the same logits to every token."""

    def __init__(self, logits):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits))

    def forward(self, ids, use_cache):
        logits = self.logits.expand(*ids.shape, -1)
        return type("Output", (), {"logits": logits})


def test_losses_by_place_by_hand():
    model = Fixed([0.0, np.log(3.0)])  # 1/4 and 3/4
    found = place_losses(model, torch.tensor([[0, 1, 1, 0], [1, 0, 0, 1]]), places=2)
    low, high = -np.log(0.25), -np.log(0.75)
    assert np.allclose(found, [[high, (high + low) / 2], [low, (low + high) / 2]])


def test_places_without_a_token_have_no_loss():
    found = place_losses(Fixed([0.0, 0.0]), torch.tensor([[0, 1]]), places=4)
    assert np.isnan(found[0, [0, 1, 3]]).all() and np.isclose(found[0, 2], np.log(2))


def test_every_designed_model_names_its_body_and_kind():
    for name, row in DESIGNED.items():
        body, kind = designed_tables.body_and_kind(name)
        assert body in designed_tables.BODIES and kind in prior_map.LABELS
        assert row.name == name and row.family == body.split("-")[0]


def file(loss, profile, length=256):
    """Return a file whose loss is 1 in the first half of places and more in the second."""
    n = len(profile)
    places = np.where(np.arange(16) < 8, 1.0, 1.0 + loss)
    return xr.Dataset(
        {
            "loss_places": (("prompt", "place"), np.tile(places, (8, 1))),
            "influence_prompts": (("prompt", "position"), np.tile(profile, (8, 1))),
            "lambda_frobenius": ("layer", [0.1, 0.2]),
            "rollout": (("variant", "position"), np.full((2, n), 1 / n)),
        },
        coords={"variant": ["b", "birth"]},
        attrs={"length": length, "prompts": 8, "dataset": "random tokens", "rule": "random"},
    )


@pytest.fixture
def seeds():
    rising = np.arange(1.0, 65.0)
    return {
        "llama-12": {k: file(0.2, rising) for k in range(3)},
        "llama-12-flat": {k: file(0.2 + 0.1 * (k + 1), np.ones(64)) for k in range(3)},
    }


def test_losses_and_prices(seeds):
    table = designed_tables.losses(seeds)
    assert np.allclose(table.loc["llama-12"], 1.1)
    assert np.allclose(designed_tables.losses(seeds, beyond=128).loc["llama-12-flat"], [1.3, 1.4, 1.5])
    price = designed_tables.prices(table)
    assert price.loc["llama-12", ["price", "price_low", "price_high"]].tolist() == [0, 0, 0]
    flat = price.loc["llama-12-flat"]
    half = 4.302653 * 0.05 / 3**0.5  # Student's t of two degrees of freedom
    assert np.allclose([flat.price, flat.price_low, flat.price_high], [0.1, 0.1 - half, 0.1 + half], atol=1e-6)
    assert (flat.body, flat.kind) == ("llama-12", "flat")


def test_what_is_reached(seeds):
    table = designed_tables.reached(seeds, resamples=250).set_index(["model", "seed"])
    even, rising = table.loc["llama-12-flat", 0], table.loc["llama-12", 0]
    assert np.isclose(even.flatness, 0) and np.isclose(even["to rollout"], 0) and np.isclose(rising.tau, 0.3)
    assert np.isclose(rising["to rollout"], rising.flatness) and rising.flatness > 0.1
    assert rising["to squares"] == rising["to rollout"] and rising["last"] == 64 / (64 * 65 / 2)
    assert rising.near == pytest.approx((61 + 62 + 63 + 64) / (64 * 65 / 2))


def test_only_models_with_three_seeds_are_read(tmp_path, seeds):
    folder = tmp_path / "design"
    folder.mkdir()
    for seed, x in seeds["llama-12"].items():
        x.to_netcdf(folder / f"llama-12.seed-{seed}.designed.nc", engine="h5netcdf")
    seeds["llama-12-flat"][0].to_netcdf(folder / "llama-12-flat.seed-0.designed.nc", engine="h5netcdf")
    assert {model: list(files) for model, files in designed_tables.read_designed(tmp_path, "designed").items()} == {
        "llama-12": [0, 1, 2]
    }


def test_the_place_that_is_heard_least(seeds):
    rising = np.arange(1.0, 65.0) / (64 * 65 / 2)
    assert np.isclose(prior_map.lowest(seeds["llama-12"]), 64 * rising[:9].mean())
    assert np.isclose(prior_map.lowest(seeds["llama-12-flat"]), 1.0)
