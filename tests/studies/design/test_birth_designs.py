"""The study of untrained networks with designed biases: what it builds, and that its predictions are both laws'."""

import json
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("xarray", reason="xarray is not installed")

from conftest import ROOT
from measuring import settings as tiny

from posbias.comparison.distances import normalised_wasserstein
from posbias.measure.branches import read_branches
from posbias.measure.corpus import Corpus
from posbias.measure.loading import Source
from posbias.measure.session import Session
from posbias.measure.settings import Settings
from posbias.measure.untrained import Untrained
from posbias.netcdf import load
from posbias.rollout.biased import biased_kernels
from posbias.rollout.influence import influence_profile
from posbias.rollout.untrained import aligned_profile, untrained_profile
from studies.design.untrained_designs import (
    BIASES,
    LAWS,
    design_table,
    designed_biases,
    measure_designs,
)

PROMPTS, LENGTH = 3, 24


@pytest.fixture(scope="module")
def body(tmp_path_factory):
    folder = tmp_path_factory.mktemp("birth") / "little"
    tiny("llama", num_hidden_layers=2).save_pretrained(folder)
    return Settings(Untrained(str(folder)), Corpus("builtin"), PROMPTS, LENGTH, 2, rule="random")


@pytest.fixture(scope="module")
def found(body):
    return measure_designs(body, "unit", seeds=2)


def test_biases_are_those_of_theory():
    biases = designed_biases(3.0, 4)
    assert list(biases) == list(BIASES) and biases["log"] == {"kind": "log", "alpha": 2.0}
    assert biases["flat"] == {"kind": "flat", "tau": 3.0} and [x["slope"] for x in biases["alibi"]][0] == 0.25
    assert [x["kind"] for x in biases["mixed"]] == ["alibi", "alibi", "flat", "flat"]
    assert biases["mixed"][3]["tau"] == 1.5 and designed_biases(0.0, 2)["flat"]["tau"] > 0


def test_a_file_holds_every_bias_and_seed(found):
    assert dict(found["influence_prompts"].sizes) == {"bias": 5, "seed": 2, "prompt": PROMPTS, "position": LENGTH}
    np.testing.assert_allclose(found["influence_prompts"].sum("position"), 1, rtol=1e-3)
    np.testing.assert_allclose(found["profile"].sum("position"), 1, rtol=1e-5)
    assert [*found["bias"].values] == [*BIASES] and all("long_name" in x.attrs for x in found.data_vars.values())
    assert found.attrs["init"] == "unit" and found.attrs["seed"] == "0 to 1" and "position_bias" not in found.attrs
    none = found["lambda_frobenius"].sel(bias="none").sum("layer").mean()
    assert found.attrs["tau"] == pytest.approx(float(none), rel=1e-6)
    assert json.loads(found.attrs["position_biases"]) == designed_biases(found.attrs["tau"], 4)


@pytest.mark.parametrize("bias", ["none", "mixed"])
def test_predictions_are_those_of_the_network_with_that_bias(body, found, bias):
    description = json.loads(found.attrs["position_biases"])[bias]
    source = replace(body.source, seed=1, spread=32**-0.5, position_bias=description)
    study = Session(replace(body, source=source, seed=1))
    influence = torch.cat([study.instrument.measure(ids).influence for _, ids in study.batches()])
    shares = influence / influence.sum(1, keepdim=True)
    one = found.sel(bias=bias).isel(seed=1)
    np.testing.assert_allclose(one["influence_prompts"], shares, rtol=2e-3)
    read, kernels = read_branches(study.instrument, study.ids[:4]), biased_kernels(2, description, H=4)
    numbers = {"scales": read.branch_scale, "outputs": read.output_scale, "steps": read.step_gain}
    laws = {
        "b": influence_profile(kernels, one["lambda_frobenius"].values, LENGTH),
        "birth": untrained_profile(kernels, read.branch_gain, LENGTH, **numbers),
        "aligned": aligned_profile(kernels, read.branch_gain, LENGTH, **numbers),
    }
    for name, p in laws.items():
        np.testing.assert_allclose(one["profile"].sel(prediction=name), p, rtol=1e-5)


def test_biases_change_what_is_measured_and_the_table_says_how(found):
    table = design_table(found)
    assert len(table) == 10 and {"measured", "mean", "tau", *LAWS, *(f"to {name}" for name in LAWS)} < set(table)
    row = table.query("bias == 'flat' and seed == 1").iloc[0]
    p = found["influence_prompts"].sel(bias="flat").values[1].astype(float).mean(0)
    law = found["profile"].sel(bias="flat", prediction="birth").values[1]
    assert row["to birth"] == pytest.approx(normalised_wasserstein(p / p.sum(), law / law.sum()))
    assert row["measured"] == pytest.approx(normalised_wasserstein(p / p.sum(), np.full(LENGTH, 1 / LENGTH)))
    assert table.groupby("bias")["mean"].mean().std() > 0.02


def test_what_cannot_be_is_refused(body):
    with pytest.raises(ValueError, match="init: expected default or unit, received zero"):
        measure_designs(body, "zero")
    with pytest.raises(ValueError, match="source: expected a network at birth, received reference/llama-12"):
        measure_designs(replace(body, source=Source("reference/llama-12")), "unit")


@pytest.mark.parametrize("file", sorted((ROOT / "results" / "design").glob("birth-*.nc")), ids=lambda x: x.name)
def test_committed_files_are_small_and_the_law_at_birth_is_nearer_than_the_aligned_one(file):
    """Over all biases and seeds; at 256 tokens the two laws are far apart."""
    assert file.stat().st_size < 300_000
    data = load(file)
    assert dict(data["profile"].sizes) == {"bias": 5, "seed": 3, "prediction": 6, "position": 256}
    table = design_table(data)
    assert table["to birth"].mean() < table["to aligned"].mean() / 2
