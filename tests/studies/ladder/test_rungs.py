"""The rungs of a reference model, as the study measures them, and their tables."""

import numpy as np
import pytest
import xarray as xr

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from posbias.comparison.distances import normalised_wasserstein
from posbias.measure.corpus import Corpus
from posbias.measure.ladder import Rungs
from posbias.measure.run import measure
from posbias.measure.session import Session
from posbias.models.loading import Source
from posbias.settings import RUNGS, Settings
from posbias.shipped import shipped_names
from studies.ladder import rung_tables, rungs
from studies.results import load, of_kind

NAMES = [name for names in rung_tables.ENCODINGS.values() for name in names]


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
    rungs_of = rungs.exchanged_rungs(
        instrument, np.array([[1, 0]]), rungs.mean_kernels(instrument, ids), np.roll(np.arange(T), -1)
    )
    found = instrument.measure(ids, rungs=rungs_of).ladder[:, 0, 0].numpy()
    assert [instrument.family.attention_of(layer) for layer in instrument.layers] == instrument.attentions
    assert not np.allclose(found, x["own_prompts"][:2], rtol=0.1)
    with rungs_of.changed(T - 1):  # the last layer has the first one's
        assert instrument.family.attention_of(instrument.layers[-1]) is instrument.attentions[0]


@pytest.mark.parametrize("model", shipped_names())
def test_hidden_units_exchange_their_gates_and_have_them_back(model):
    session = Session(settings(model, prompts=2))
    instrument, ids = session.instrument, session.ids
    kernels = rungs.mean_kernels(instrument, ids)
    pairing = np.array([[1, 0]])
    permuted = rungs.permuted_rungs(instrument, pairing, kernels, 0)
    act = rungs.activation_of(instrument, 1)
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


def test_what_is_permuted_stands_beside_the_rung():
    x = rungs.measure_permuted(settings("llama-12"))
    plain = rungs.measure_exchanged(settings("llama-12"))
    np.testing.assert_array_equal(x["own_prompts"], plain["own_prompts"])
    assert not np.allclose(x["permuted_prompts"], x["own_prompts"], rtol=0.02)


def test_before_training_no_rung_costs_much():
    untrained = rungs.measure_rungs(settings("bloom-8"), init="default")
    exact = untrained["influence_prompts"].values.sum(0)
    for profile in rung_tables.rung_profiles(untrained).values():
        assert normalised_wasserstein(profile, exact / exact.sum()) < 0.01


def test_kernels_of_positions_are_those_of_rollout_b():
    session = Session(settings("llama-12"))
    free = rungs.content_free_kernels(session.instrument, session.ids[:1]).numpy()
    np.testing.assert_allclose(free[0, :, -1], 1 / 24, rtol=1e-5)
    moved = rungs.shifted(rungs.content_free_kernels(session.instrument, session.ids[:1])).numpy()
    np.testing.assert_array_equal(moved[:, :, 1:], free[:, :, :-1])
    rotary = rungs.rotary_kernels(session.instrument, session.prompts.ids, 2).numpy()
    np.testing.assert_allclose(rotary.sum(-1), 1, rtol=1e-5)
    assert not np.allclose(rotary, free, atol=0.05)


def entry(profiles, documents=6):
    """Return an entry whose prompts all have the influence (1, 2, 3), and rungs of given profiles."""
    influence = np.tile([1.0, 2.0, 3.0], (documents, 1))
    pairings = np.stack([np.stack([p, p, np.roll(p, 1)]) for p in profiles.values()])
    fields = {
        "influence_prompts": (("prompt", "position"), influence),
        "rung_mean": (("rung", "position"), np.stack(list(profiles.values()))),
        "rung_pairings": (("rung", "pairing", "position"), pairings),
        "document": ("prompt", np.arange(documents)),
    }
    coords = {"rung": list(profiles), "pairing": ["own", "1", "2"]}
    return xr.Dataset(fields, coords, {"dataset": "a file", "prompts": documents})


def test_tables_have_the_distances_of_rungs_and_of_pairings():
    x = entry({"independent": np.array([1.0, 2.0, 3.0]), "vectors": np.array([3.0, 2.0, 1.0])})
    table = rung_tables.rung_table({"llama-12": x}, {}, {}, resamples=10).set_index("prediction")["W1"]
    assert table["independent"] == pytest.approx(0, abs=1e-12) and table["vectors"] == pytest.approx(1 / 3)
    pairs = rung_tables.pairing_table({"llama-12": x}).set_index("rung")
    assert pairs.loc["vectors", "own"] == pytest.approx(1 / 3)
    one, other = np.array([1.0, 2.0, 3.0]) / 6, np.array([3.0, 1.0, 2.0]) / 6
    assert pairs.loc["independent", "apart"] == pytest.approx(normalised_wasserstein(one, other) / 2)


def test_decisions_are_signs_of_gains():
    x = {name: entry({"independent": np.ones(3)}) for name in ("a", "b")}
    near, far = np.array([1.0, 2.0, 3.0]) / 6, np.ones(3) / 3
    signs = rung_tables.decisions(x, {"a": far, "b": near}, {"a": near, "b": far}, resamples=200)
    assert signs.to_dict() == {"a": 1, "b": -1}
    gains = rung_tables.gain_table(x, {}, {}, [("last", "independent"), ("b", "law")], resamples=200)
    assert list(gains["model"]) == ["a", "b"] and (gains["gain"] > 0).all()


def test_what_is_kept_has_ten_models_and_the_controls():
    kept = load("ladder")
    assert list(of_kind(kept, "rungs", NAMES)) == NAMES
    for kind in ("rungs-untrained", "rungs-random"):
        assert len(of_kind(kept, kind, NAMES)) == 10
    assert {"gpt2.rungs-large", "pythia-160m.rungs-large"} <= set(kept)
    table = rung_tables.pairing_table(of_kind(kept, "rungs", NAMES)).query("rung == 'independent'")
    assert len(table) == 10 and table["random"].max() < 0.05
