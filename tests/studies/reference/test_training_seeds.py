"""Spread over seeds beside spread over prompts, on numbers whose spreads are known."""

import numpy as np
import pytest
from conftest import ROOT

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
xr = pytest.importorskip("xarray", reason="xarray is not installed")

from posbias.measure.corpus import Corpus
from posbias.measure.loading import Source
from posbias.measure.results import SCHEMA
from posbias.measure.run import measured
from posbias.measure.settings import Settings
from posbias.measure.summary import read_summaries, read_summary
from posbias.rollout.order import stochastic_monotonicity
from studies.reference.training_seeds import (
    complete,
    jackknife_error,
    measure_seed,
    read_seeds,
    resampled_error,
    shortfalls_without,
    spread_table,
)

SETTINGS = Settings(Source("reference/bloom-8"), Corpus("builtin"), 6, 24, 4, dtype="float32")


@pytest.fixture(scope="module")
def seed_file():
    return measure_seed(SETTINGS)


def test_groups_add_up_to_the_whole(seed_file):
    whole = measured(SETTINGS)
    sizes = np.bincount(seed_file["group_of"])
    assert sizes.sum() == 6 and len(sizes) > 2
    offset = np.average(seed_file["offset_groups"], axis=0, weights=sizes)
    assert np.allclose(offset, whole["content_diagonal"] - whole["content_offdiagonal"], atol=1e-4)
    assert seed_file["shortfall_without"].shape == (len(sizes), 8)
    assert np.allclose(seed_file["influence"], whole["influence"], atol=1e-6)
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
    without = (x.sum(0) - x) / 19
    assert jackknife_error(without) == pytest.approx(x.std(0, ddof=1) / 20**0.5)
    with pytest.raises(ValueError, match="groups: expected two or more, received 1"):
        jackknife_error(without[:1])


def test_files_of_seeds_are_read_by_model_and_seed(tmp_path):
    for name in ("b.seed-2.gap", "b.seed-10.gap", "a.seed-0.gap", "a.seed-1.builtin", "c.gap"):
        xr.Dataset({"x": ("k", [1.0])}, attrs={"summary": 1, "posbias_schema": SCHEMA}).to_netcdf(
            tmp_path / f"{name}.nc", engine="h5netcdf"
        )
    found = read_seeds(tmp_path, "gap", ["a", "b", "c"])
    assert {model: list(files) for model, files in found.items()} == {"a": [0], "b": [2, 10]}
    assert list(complete(found, 2)) == ["b"] and read_seeds(tmp_path, "none", ["a"]) == {}
    assert list(read_summaries(tmp_path)) == ["c.gap"]


def test_spread_over_prompts_is_that_of_modules():
    kept = read_summary(ROOT / "results" / "models" / "bloom-8.builtin.nc")

    def share(x, weights):
        return float(weights @ np.arange(weights.size) / weights.sum())

    assert 5 < resampled_error(kept, share, resamples=100) < 20
    one = xr.zeros_like(kept)
    assert resampled_error(one, lambda x, w: 1.0, resamples=10) == 0


def test_spreads_by_hand():
    seeds = {"a": {s: xr.Dataset({"x": v}) for s, v in enumerate((1.0, 2.0, 3.0))}}
    row = spread_table(seeds, lambda x: float(x["x"]), lambda x: 0.5).loc["a"]
    assert row.tolist() == [1, 2, 3, 1, 0.5, 2]
    assert spread_table(seeds, lambda x: 1.0, lambda x: 0.0).loc["a", "over_seeds"] == 0
