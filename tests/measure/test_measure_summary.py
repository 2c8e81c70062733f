"""Measurements without their matrices."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("xarray", reason="xarray is not installed")

from measuring import save, write_documents

import posbias
from posbias.measure.corpus import Corpus
from posbias.measure.results import read_results, write_results
from posbias.measure.run import measure
from posbias.measure.summary import read_summary, shaved, summarise, write_summary
from posbias.models.loading import Source
from posbias.predict import (
    PREDICTORS,
    available,
    dense,
    measured_kernels,
    position_kernels,
    predict,
    self_preferring_kernels,
)
from posbias.rollout.order import stochastic_monotonicity
from posbias.rollout.token_bins import TokenBins
from posbias.settings import DEFAULT, Settings

EVERYTHING = (*DEFAULT, "heads", "logits")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    root = tmp_path_factory.mktemp("measured")
    corpus = Corpus(str(write_documents(root / "d.jsonl", [30] * 6)))
    found = measure(Settings(Source(str(save(root / "bloom", "bloom"))), corpus, 5, 16, quantities=EVERYTHING))
    write_results(root / "m.nc", found)
    return root / "m.nc"


def test_a_summary_has_what_needs_the_matrices_and_not_them(tmp_path, path):
    results = read_results(path)
    write_summary(tmp_path / "s.nc", summarise(results))
    summary = read_summary(tmp_path / "s.nc")
    assert not {"content_logits", "attention", "attention_heads", "histogram_diagonal", "query", "bin"} & set(summary)
    assert "step_gain" in results and "step_gain" not in summary
    kept = {PREDICTORS[name].kept_as: predict(results, name) for name in available(results)}
    assert set(kept) == {"a", "b", "c", "kernels", "own", "untrained", "head-gains-added"}
    for name, expected in kept.items():
        assert np.allclose(summary["rollout"].sel(variant=name), expected, atol=1e-15)
        assert np.allclose(predict(summary, name), expected, atol=1e-15)
    A = results["attention"].values.astype(float)
    for t, K in enumerate(A / A.sum(-1, keepdims=True)):
        found = stochastic_monotonicity(K)
        assert float(summary["monotonicity_violated"][t]) == pytest.approx(found.violated)
        assert float(summary["monotonicity_shortfall"][t]) == pytest.approx(found.shortfall)
    received = [A[0, k:, k].mean() for k in range(16)]
    assert np.allclose(summary["attention_received"][0], received, atol=1e-6)
    assert np.array_equal(summary["influence"], results["influence"])
    assert {**results.attrs, "summary": 1} == summary.attrs
    again = predict(summary, "c")
    assert np.allclose(again, summary["rollout"].sel(variant="c"), atol=1e-15)
    assert (tmp_path / "s.nc").stat().st_size < path.stat().st_size


def test_in_cells_a_key_receives_the_mean_of_its_cell(path):
    results, cells = read_results(path), TokenBins(16, np.array([0, 1, 4, 9, 15]))
    A = results["attention"].values.astype(float)
    A /= A.sum(-1, keepdims=True)
    near = np.stack([np.pad(np.diagonal(A, -x, 1, 2), ((0, 0), (x, 0))) for x in range(16)], axis=-1)
    given, band = (np.add.reduceat(x, cells.starts, axis=1) / cells.sizes[:, None] for x in (A, near))
    given = np.add.reduceat(given, cells.starts, axis=2)
    coarse = results.drop_vars(["attention", "attention_heads"]).assign(
        attention_cells=(("layer", "query_cell", "key_cell"), given),
        attention_band=(("layer", "query_cell", "distance"), band),
        cell_start=("cell", cells.starts),
    )
    received = np.add.reduceat(A.sum(1), cells.starts, axis=1) / cells.sizes
    expected = received[:, cells.index] / np.arange(16, 0, -1)
    assert np.allclose(summarise(coarse)["attention_received"], expected)


def test_prompts_are_kept_to_ten_bits_or_not_at_all(path):
    results = read_results(path)
    kept, left = summarise(results)["influence_prompts"].values, results["influence_prompts"].values
    assert abs(kept / left - 1).max() <= 2**-11 * 1.001 and (kept.view(np.uint32) & 0x1FFF == 0).all()
    x = np.random.default_rng(0).lognormal(0, 20, 1000).astype(np.float32)
    assert np.array_equal(shaved(-x), -shaved(x)) and (shaved(x) != x).any()
    without = summarise(results, prompts=False)
    assert not {"influence_prompts", "influence_signed_prompts", "lambda_token_prompts", "document"} & set(without)
    with pytest.raises(ValueError, match="expected a summary of layout 1, saved without matrices"):
        read_summary(path)


def test_a_measurement_is_saved_without_its_matrices(path, tmp_path):
    measured = posbias.load(path)
    for prompts in (True, False):
        small = posbias.load(measured.save(tmp_path / "s.nc", matrices=False, prompts=prompts))
        assert small.variants == measured.variants and "attention" not in small.results
        assert ("influence_prompts" in small.results) == prompts == ("document" in small.results)
    assert (tmp_path / "s.nc").stat().st_size < path.stat().st_size


def test_dense_kernels_are_those_of_the_rollout(path):
    results = read_results(path)
    lambda_ = results["lambda_frobenius"].values
    ways = {
        "layer-shares": position_kernels,
        "layer-shares-self": self_preferring_kernels,
        "measured-attention": measured_kernels,
    }
    for name, kernels in ways.items():
        P = np.eye(16)
        for t, A in enumerate(dense(kernels(results), 3, 16)):
            P = (1 - lambda_[t]) * P + lambda_[t] * (A @ P)
        assert np.allclose(P[-1], predict(results, name), atol=1e-12)
