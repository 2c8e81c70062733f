"""What chapters quote of several seeds, on files made up so that the answer is known."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")
xr = pytest.importorskip("xarray", reason="xarray is not installed")

from posbias.comparison.samples import Sample
from posbias.measure.corpus import Corpus
from posbias.measure.run import measure
from posbias.models.loading import Source
from posbias.rollout.order import stochastic_monotonicity
from posbias.settings import Settings
from studies.reference import training_seeds
from studies.reference.measure import measure_seed, shortfalls_without
from studies.reference.training_seeds import jackknife_error, resampled_error, spread_table
from studies.results import load

N, n, T, H, G = 12, 40, 2, 2, 4
SEEDS = (0, 1, 2)


@pytest.fixture
def units(monkeypatch):
    """Let made-up prompts be units of their own."""
    monkeypatch.setattr(
        training_seeds, "sample_of", lambda x: Sample(x["influence_prompts"].values, np.arange(x.sizes["prompt"]))
    )


def seed_file(seed, lambda_=0.5, start=3.0, noise=0.1):
    rng = np.random.default_rng(seed)
    p = np.r_[start, np.ones(n - 3), 3.0, 5.0]
    lambdas = lambda_ + noise * rng.normal(size=(N, T))
    return xr.Dataset(
        {
            "influence_prompts": (("prompt", "position"), p * (1 + noise * rng.uniform(-1, 1, size=(N, n)))),
            "lambda_frobenius_prompts": (("prompt", "layer"), lambdas),
            "offset_groups": (("group", "layer", "head"), np.full((G, T, H), 1.0 + seed)),
            "content_diagonal": (("layer", "head"), np.full((T, H), 1.0 + seed)),
            "content_offdiagonal": (("layer", "head"), np.zeros((T, H))),
            "monotonicity_shortfall": (("layer",), [0.001, 0.002 + seed]),
            "shortfall_without": (("group", "layer"), np.array([[0.0, 1.0 + k] for k in range(G)])),
            "group_of": (("prompt",), np.arange(N) % G),
        },
        attrs={"held_out_loss": 4.0 + seed, "prompts": N},
    )


FILES = {"a": {seed: seed_file(seed, 0.3 + 0.1 * seed) for seed in SEEDS}}


def test_mixing_differs_by_seed_and_little_by_prompt(units):
    row = training_seeds.mixing_over_seeds(FILES).loc["a"]
    assert [row[f"seed {k}"] for k in SEEDS] == pytest.approx([0.6, 0.8, 1.0], abs=0.1)
    assert row["over_seeds"] == pytest.approx(0.2, abs=0.08)
    assert row["over_prompts"] == pytest.approx(0.1 * (T / N) ** 0.5, rel=0.5)
    assert row["ratio"] == pytest.approx(row["over_seeds"] / row["over_prompts"])


def test_offsets_and_shortfalls():
    row = training_seeds.offsets_over_seeds(FILES).loc["a"]
    assert [row[f"seed {k}"] for k in SEEDS] == [1, 2, 3] and row["over_seeds"] == 1
    assert row["over_prompts"] == pytest.approx(0)
    row = training_seeds.shortfalls_over_seeds(FILES).loc["a"]
    assert row["seed 2"] == pytest.approx(2.002) and row["over_prompts"] == pytest.approx((3 / 4 * 5) ** 0.5)


def test_profiles_of_equal_seeds_differ_as_resampled_prompts_do(units):
    row = training_seeds.profiles_over_seeds(FILES, resamples=50).loc["a"]
    assert row["between_seeds"] == pytest.approx(row["between_prompts"], rel=0.5)
    assert row["with_u"] == 3
    others = {"a": {0: seed_file(0), 1: seed_file(1, start=0.2)}}
    row = training_seeds.profiles_over_seeds(others, resamples=50).loc["a"]
    assert row["between_seeds"] > 5 * row["between_prompts"] and row["with_u"] == 1
    starts = training_seeds.starts_over_seeds(others).loc["a"]
    assert starts["ratio"] > 5 and starts["seed 1"] < starts["seed 0"] / 5


def test_no_seeds_make_empty_tables():
    for table in (training_seeds.mixing_over_seeds({}), training_seeds.profiles_over_seeds({})):
        assert table.empty and "over_seeds" in table or "with_u" in table


SETTINGS = Settings(Source("reference/bloom-8"), Corpus("builtin"), 6, 24, 4, dtype="float32")


@pytest.fixture(scope="module")
def measurement():
    return measure_seed(SETTINGS)


def test_groups_add_up_to_the_whole(measurement):
    whole = measure(SETTINGS)
    sizes = np.bincount(measurement["group_of"])
    assert sizes.sum() == 6 and len(sizes) > 2
    offset = np.average(measurement["offset_groups"], axis=0, weights=sizes)
    assert np.allclose(offset, whole["content_diagonal"] - whole["content_offdiagonal"], atol=1e-4)
    assert measurement["shortfall_without"].shape == (len(sizes), 8)
    assert np.allclose(measurement["influence"], whole["influence"], atol=1e-6)
    with pytest.raises(ValueError, match="prompts: expected some of two modules or more, received 1 of one"):
        measure_seed(Settings(Source("reference/bloom-8"), Corpus("builtin"), 1, 24))


def test_shortfall_without_a_group_is_that_of_the_others():
    order = np.arange(3)
    good, bad = np.tril(np.ones((3, 3))) / (order[:, None] + 1), np.eye(3)[[0, 1, 0]]
    found = shortfalls_without(np.stack([[good], [bad]]), np.array([1, 3]))
    expected = [stochastic_monotonicity(bad).shortfall, stochastic_monotonicity(good).shortfall]
    assert found.ravel() == pytest.approx(expected) and expected[0] > 0.1 and expected[1] == 0


def test_jackknife_of_a_mean_is_the_usual_error():
    x = np.random.default_rng(0).normal(size=(20, 2))
    assert jackknife_error((x.sum(0) - x) / 19) == pytest.approx(x.std(0, ddof=1) / 20**0.5)


def test_spread_over_prompts_is_that_of_modules():
    kept = load("models")["bloom-8.builtin"]

    def share(x, weights):
        return float(weights @ np.arange(weights.size) / weights.sum())

    assert 5 < resampled_error(kept, share, resamples=100) < 20
    one = xr.zeros_like(kept)
    assert resampled_error(one, lambda x, w: 1.0, resamples=10) == 0


def test_spreads_by_hand():
    seeds = {"a": {s: xr.Dataset({"x": v}) for s, v in enumerate((1.0, 2.0, 3.0))}}
    assert spread_table(seeds, lambda x: float(x["x"]), lambda x: 0.5).loc["a"].tolist() == [1, 2, 3, 1, 0.5, 2]
