"""The rungs of a reference model, as the study measures them, and their tables."""

import numpy as np
import pytest
import torch

from posbias.comparison.distances import normalised_wasserstein
from posbias.measure.corpus import Corpus
from posbias.measure.ladder import Rungs
from posbias.measure.run import measure
from posbias.measure.session import Session
from posbias.models.loading import Source
from posbias.settings import RUNGS, Settings
from posbias.shipped import shipped_names
from studies import interventions
from studies.ladder import rung_tables, rungs


def settings(model, prompts=4, length=24):
    return Settings(Source(f"reference/{model}"), Corpus("builtin"), prompts, length, batch_size=2)


@pytest.fixture(scope="module")
def llama():
    return rungs.measure_rungs(settings("llama-12"), more=True)


def test_an_entry_has_the_exact_influence_and_every_rung(llama):
    plain = measure(settings("llama-12"))
    np.testing.assert_allclose(llama["influence_prompts"], plain["influence_prompts"], rtol=2e-3)  # of 10 bits
    assert list(llama["rung"].values) == [*RUNGS, rungs.SHIFTED, rungs.ROTARY]
    own = llama["rung_pairings"].sel(pairing=rungs.OWN, rung="independent")
    np.testing.assert_allclose(own, llama["influence_prompts"].mean("prompt"), rtol=3e-3)
    random = llama["rung_pairings"].sel(pairing=["1", "2"]).mean("pairing")
    np.testing.assert_allclose(random, llama["rung_mean"], rtol=5e-3)
    assert (llama["document"].values == plain["document"].values).all()


@pytest.mark.parametrize("model", ["bloom-8", "llama-12"])
def test_exchanged_maps_are_those_of_the_next_layer_and_own_ones_are_the_rung(model):
    x = rungs.measure_exchanged(settings(model))
    plain = rungs.measure_rungs(settings(model))
    np.testing.assert_allclose(x["influence_prompts"], plain["influence_prompts"], rtol=1e-3)
    np.testing.assert_allclose(x["own_prompts"].mean("prompt"), plain["rung_mean"].sel(rung="vectors"), rtol=5e-3)
    session = Session(settings(model))
    instrument, ids = session.instrument, session.ids[:2]
    T = instrument.T
    kernels = rungs.read_layers(instrument, ids, rungs.mean)
    rungs_of = rungs.exchanged_rungs(instrument, np.array([[1, 0]]), kernels)
    found = instrument.measure(ids, rungs=rungs_of).ladder[:, 0, 0].numpy()
    assert [instrument.family.attention_of(layer) for layer in instrument.layers] == instrument.attentions
    assert not np.allclose(found, x["own_prompts"][:2], rtol=0.1)
    with rungs_of.changed(T - 1):  # the last layer has the first one's
        assert instrument.family.attention_of(instrument.layers[-1]) is instrument.attentions[0]


@pytest.mark.parametrize("model", shipped_names())
def test_hidden_units_exchange_their_gates_and_have_them_back(model):
    session = Session(settings(model, prompts=2))
    instrument, ids = session.instrument, session.ids
    kernels = rungs.read_layers(instrument, ids, rungs.mean)
    pairing = np.array([[1, 0]])
    permuted = rungs.permuted_rungs(instrument, pairing, kernels, 0)
    act = interventions.activation_of(instrument, 1)
    h = torch.tensor([[-1.0, 0.5, 2.0, 0.0]])
    own, order = act(h), np.random.default_rng((0, 1)).permutation(4)
    with permuted.changed(1):
        found = act(h)
    share = own / torch.tensor([-1.0, 0.5, 2.0, 1.0])
    torch.testing.assert_close(found, h * share[:, torch.from_numpy(order)])
    assert not torch.allclose(found, own) and torch.equal(act(h), own)
    plain = instrument.measure(ids, rungs=Rungs(pairing, kernels, ("positions",)))
    other = instrument.measure(ids, rungs=permuted)
    assert torch.equal(other.influence, plain.influence) and not torch.allclose(other.ladder, plain.ladder, rtol=0.02)


def test_before_training_no_rung_costs_much():
    untrained = rungs.measure_rungs(settings("bloom-8"), init="default")
    exact = untrained["influence_prompts"].values.sum(0)
    for profile in rung_tables.rung_profiles(untrained).values():
        assert normalised_wasserstein(profile, exact / exact.sum()) < 0.01


def test_kernels_of_positions_are_those_of_rollout_b():
    session = Session(settings("llama-12"))
    free = rungs.read_layers(session.instrument, session.ids[:1], rungs.content_free).numpy()
    np.testing.assert_allclose(free[0, :, -1], 1 / 24, rtol=1e-5)
    moved = rungs.shifted(rungs.read_layers(session.instrument, session.ids[:1], rungs.content_free)).numpy()
    np.testing.assert_array_equal(moved[:, :, 1:], free[:, :, :-1])
    rotary = rungs.rotary_kernels(session.instrument, session.prompts.ids, 2).numpy()
    np.testing.assert_allclose(rotary.sum(-1), 1, rtol=1e-5)
    assert not np.allclose(rotary, free, atol=0.05)
