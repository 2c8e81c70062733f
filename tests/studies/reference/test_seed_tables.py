"""What chapters quote of several seeds, on files made up so that the answer is known."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
xr = pytest.importorskip("xarray", reason="xarray is not installed")

from posbias.report import scoring
from studies.reference import seed_tables, training_seeds

N, n, T, H, G = 12, 40, 2, 2, 4
SEEDS = (0, 1, 2)


@pytest.fixture(autouse=True)
def units(monkeypatch):
    """Let made-up prompts be units of their own."""
    for module in (scoring, training_seeds):
        monkeypatch.setattr(module, "prompt_units", lambda x: np.arange(x.sizes["prompt"]))


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


def test_mixing_differs_by_seed_and_little_by_prompt():
    row = seed_tables.mixing_over_seeds(FILES).loc["a"]
    assert [row[f"seed {k}"] for k in SEEDS] == pytest.approx([0.6, 0.8, 1.0], abs=0.1)
    assert row["over_seeds"] == pytest.approx(0.2, abs=0.08) and row["over_prompts"] == pytest.approx(
        0.1 * (T / N) ** 0.5, rel=0.5
    )
    assert row["ratio"] == pytest.approx(row["over_seeds"] / row["over_prompts"])


def test_offsets_and_shortfalls():
    row = seed_tables.offsets_over_seeds(FILES).loc["a"]
    assert [row[f"seed {k}"] for k in SEEDS] == [1, 2, 3] and row["over_seeds"] == 1
    assert row["over_prompts"] == pytest.approx(0)
    row = seed_tables.shortfalls_over_seeds(FILES).loc["a"]
    assert row["seed 2"] == pytest.approx(2.002) and row["over_prompts"] == pytest.approx((3 / 4 * 5) ** 0.5)


def test_profiles_of_equal_seeds_differ_as_resampled_prompts_do():
    row = seed_tables.profiles_over_seeds(FILES, resamples=50).loc["a"]
    assert row["between_seeds"] == pytest.approx(row["between_prompts"], rel=0.5)
    assert row["with_u"] == 3 and row["least_excess"] > 0
    others = {"a": {0: seed_file(0), 1: seed_file(1, start=0.2)}}
    row = seed_tables.profiles_over_seeds(others, resamples=50).loc["a"]
    assert row["between_seeds"] > 5 * row["between_prompts"] and row["with_u"] == 1
    starts = seed_tables.starts_over_seeds(others).loc["a"]
    assert starts["ratio"] > 5 and starts["seed 1"] < starts["seed 0"] / 5
    assert seed_tables.positions_over_seeds(others).loc["a", "seed 1"] > 0.5


def test_no_seeds_make_empty_tables():
    for table in (seed_tables.mixing_over_seeds({}), seed_tables.profiles_over_seeds({})):
        assert table.empty and "over_seeds" in table or "with_u" in table
    assert seed_tables.losses_over_seeds(FILES).loc["a"].tolist() == [4, 5, 6]
