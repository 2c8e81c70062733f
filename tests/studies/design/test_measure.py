"""Networks with designed positions: losses by place, untrained bodies with biases, and designs that keep a promise."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from measuring import settings as tiny
from torch import nn

from posbias.comparison.distances import normalised_wasserstein
from posbias.measure.branches import read_branches
from posbias.measure.corpus import Corpus
from posbias.measure.session import Session
from posbias.models.loading import Source
from posbias.rollout.influence import influence_profile
from posbias.rollout.structured import biased_kernels
from posbias.rollout.untrained import aligned_profile, untrained_profile
from posbias.settings import Settings
from studies.design.measure import (
    BIASES,
    CONTENTS,
    DESIGNS,
    KEPT,
    designed_biases,
    measure_designed,
    measure_designs,
    measure_gated,
    place_losses,
    quieten,
)
from studies.design.tables import gated_table
from studies.interventions import losses_of
from studies.reference.models import reference
from studies.rotation import NO_ROTATION
from studies.sizes import Untrained

PROMPTS, LENGTH = 3, 24


class Fixed(nn.Module):
    """Give the same logits to every token."""

    def __init__(self, logits):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits))

    def forward(self, ids, use_cache):
        return SimpleNamespace(logits=self.logits.expand(*ids.shape, -1))


def test_losses_by_place_by_hand():
    model = Fixed([0.0, np.log(3.0)])  # 1/4 and 3/4
    found = place_losses(model, torch.tensor([[0, 1, 1, 0], [1, 0, 0, 1]]), places=2)
    low, high = -np.log(0.25), -np.log(0.75)
    assert np.allclose(found, [[high, (high + low) / 2], [low, (low + high) / 2]])
    few = place_losses(Fixed([0.0, 0.0]), torch.tensor([[0, 1]]), places=4)
    assert np.isnan(few[0, [0, 1, 3]]).all() and np.isclose(few[0, 2], np.log(2))


def test_what_is_kept_of_a_trained_network():
    """Its loss is that of the model, its law of squares is kept for short prompts alone."""
    settings = Settings(Source("reference/bloom-8"), Corpus("builtin"), 2, 16)
    found = measure_designed(settings)
    assert set(found.data_vars) == {*KEPT} and "untrained" in found["variant"].values
    session = Session(settings)
    losses = losses_of(session.instrument, session.ids).mean(-1)
    np.testing.assert_allclose(np.nanmean(found["loss_places"], axis=1), losses, rtol=2e-3)  # a token a place
    np.testing.assert_array_equal(found["document"], session.prompts.origins)


@pytest.fixture(scope="module")
def body(tmp_path_factory):
    folder = tmp_path_factory.mktemp("untrained") / "little"
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


def test_an_entry_holds_every_bias_and_seed(found):
    assert dict(found["influence_prompts"].sizes) == {"bias": 5, "seed": 2, "prompt": PROMPTS, "position": LENGTH}
    np.testing.assert_allclose(found["influence_prompts"].sum("position"), 1, rtol=1e-3)
    np.testing.assert_allclose(found["profile"].sum("position"), 1, rtol=1e-5)
    assert [*found["bias"].values] == [*BIASES] and all("long_name" in x.attrs for x in found.data_vars.values())
    assert found.attrs["init"] == "unit" and found.attrs["seed"] == "0 to 1" and "position_bias" not in found.attrs
    none = found["lambda_frobenius"].sel(bias="none").sum("layer").mean()
    assert found.attrs["tau"] == pytest.approx(float(none), rel=1e-6)
    assert json.loads(found.attrs["position_biases"]) == designed_biases(found.attrs["tau"], 4)


def test_predictions_are_those_of_the_network_with_that_bias(body, found):
    bias = "mixed"
    description = json.loads(found.attrs["position_biases"])[bias]
    source = replace(body.source, seed=1, spread=32**-0.5, position_bias=description)
    session = Session(replace(body, source=source, seed=1))
    influence = torch.cat([session.instrument.measure(ids).influence for _, ids in session.batches()])
    one = found.sel(bias=bias).isel(seed=1)
    np.testing.assert_allclose(one["influence_prompts"], influence / influence.sum(1, keepdim=True), rtol=2e-3)
    read, kernels = read_branches(session.instrument, session.ids[:4]), biased_kernels(2, description, H=4)
    numbers = {"scales": read.branch_scale, "outputs": read.output_scale, "steps": read.step_gain}
    laws = {
        "b": influence_profile(kernels, one["lambda_frobenius"].values, LENGTH),
        "untrained": untrained_profile(kernels, read.branch_gain, LENGTH, **numbers),
        "aligned": aligned_profile(kernels, read.branch_gain, LENGTH, **numbers),
    }
    for name, p in laws.items():
        np.testing.assert_allclose(one["profile"].sel(prediction=name), p, rtol=1e-5)


def test_a_network_with_weights_is_refused(body):
    with pytest.raises(ValueError, match="source: expected an untrained network, received reference/llama-12"):
        measure_designs(replace(body, source=Source("reference/llama-12")), "unit")


N = 16


@pytest.fixture(scope="module")
def gated(tmp_path_factory):
    """Return what is measured of the reference Llama's body with four layers and without positions."""
    folder = tmp_path_factory.mktemp("bodies")
    fields = {"position_bias": {"kind": "none"}, **NO_ROTATION}
    reference("llama-12").config(num_hidden_layers=4, **fields).save_pretrained(folder)
    settings = Settings(Untrained(str(folder)), Corpus("builtin"), 4, N, 4, rule="random")
    return measure_gated(settings, "unit", seeds=2)


def test_an_entry_holds_designs_contents_and_seeds(gated):
    data = gated
    assert dict(data["influence_prompts"].sizes) == {"design": 3, "content": 2, "seed": 2, "prompt": 4, "position": N}
    assert [*data["design"].values] == [*DESIGNS] and [*data["content"].values] == [*CONTENTS]
    np.testing.assert_allclose((data["influence_prompts"] ** 2).sum("position"), 1, rtol=3e-3)
    np.testing.assert_allclose(data["promise"].sum("position"), 1, rtol=1e-5)
    assert data.attrs["init"] == "unit" and data.attrs["seed"] == "0 to 1"
    assert all("long_name" in x.attrs for x in data.data_vars.values())
    row = gated_table(data).query("design == 'gates' and content == 'none' and seed == 1").iloc[0]
    one = data.sel(design="gates", content="none")
    p = np.sqrt((one["influence_prompts"].values[1].astype(float) ** 2).mean(0))
    even = np.full(N, 1 / N)
    for key, pair in {
        "measured": (p, even), "promised": (one["promise"].values, even), "to promise": (p, one["promise"].values)
    }.items():  # fmt: skip
        assert row[key] == pytest.approx(normalised_wasserstein(*(x / x.sum() for x in pair)), rel=1e-5)


@pytest.mark.parametrize("family", ["llama", "bloom"])
def test_queries_of_zero_leave_attention_to_positions(family, tmp_path):
    tiny(family).save_pretrained(tmp_path / family)
    source = Untrained(str(tmp_path / family), spread=0.5)
    session = Session(Settings(source, Corpus("builtin"), 2, 12, 2, rule="random"))

    def sizes():
        found, ids = [], session.ids[:1]
        session.instrument.forward(ids, lambda x: found.append(x.content()[..., x.allowed].abs().max().item()))
        return found

    assert min(sizes()) > 1e-3
    quieten(session.instrument)
    assert max(sizes()) == 0.0
