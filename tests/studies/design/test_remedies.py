"""Remedies for position bias: what is read inside their contexts, searches, and what a study of them holds."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from measuring import make, prompts, save, write_documents
from transformers import AutoModelForCausalLM

from posbias.measure.corpus import Corpus
from posbias.measure.instrument import Instrument
from posbias.measure.run import measure
from posbias.measure.session import Session, cut_prompts
from posbias.models.biases import added_biases
from posbias.models.loading import Source
from posbias.predict import predict
from posbias.rollout.influence import influence_profile
from posbias.rollout.position_bias import FlatBias, LogBias, NoBias, describe, layered_biases
from posbias.settings import Settings
from posbias.shipped import held_out_modules
from studies.additions import Attempt
from studies.design import remedies
from studies.design.copying import PARTS, copy_gains, copy_prompts
from studies.design.forward import read_forward, rolled_out
from studies.design.hooks import head_scales
from studies.design.remedies import (
    ADDED,
    CHOICES,
    KNOWN,
    REMEDIES,
    Remedies,
    measure_added_biases,
    measure_remedies,
    prompts_aside,
)
from studies.design.tables import remedy_table
from studies.interventions import losses_of

ALL_HEADS = {"num_key_value_heads": 4}


@pytest.mark.parametrize("name", ["llama", "bloom", "gemma2"])
def test_a_forward_pass_gives_what_the_instrument_measures(name):
    instrument, ids, kernels = Instrument(make(name)), prompts(B=3), []
    reading = read_forward(instrument, ids, 2)
    assert np.allclose(reading.mixing, instrument.measure(ids).lambda_frobenius, rtol=1e-5)
    instrument.forward(ids, lambda x: kernels.append(x.probabilities.mean(1).numpy()))
    assert np.allclose(reading.kernels.swapaxes(0, 1), kernels, atol=1e-6)
    assert np.allclose(reading.loss, losses_of(instrument, ids).mean(-1), rtol=1e-5)


def test_weighted_rollouts_are_those_of_weighted_means():
    rng = np.random.default_rng(0)
    kernels = np.tril(rng.random((3, 4, 5, 5)) + 0.1)
    kernels /= kernels.sum(-1, keepdims=True)
    mixing, weights = rng.uniform(0.1, 0.6, (3, 4)), np.array([[1.0, 1.0, 1.0], [0.0, 2.0, 0.0], [3.0, 0.0, 1.0]])
    shares = weights / weights.sum(1, keepdims=True)
    expected = [influence_profile(np.einsum("k,ktij->tij", w, kernels), w @ mixing) for w in shares]
    assert np.allclose(rolled_out(kernels, mixing, weights), expected, atol=1e-12)


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    root = tmp_path_factory.mktemp("remedies")
    corpus = Corpus(str(write_documents(root / "d.jsonl", [40] * 20)))
    return Settings(Source(str(save(root / "model", **ALL_HEADS))), corpus, prompts=4, length=16, batch_size=3)


@pytest.fixture(scope="module")
def quick():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remedies, "EVALUATIONS", 6)
        patch.setattr(remedies, "CALIBRATION_PROMPTS", 5)
        patch.setattr(remedies, "RESAMPLES", 20)
        yield patch


@pytest.fixture(scope="module")
def found(settings, quick):
    return measure_remedies(settings)


def test_prompts_aside_are_from_other_documents(settings):
    session = Session(settings)
    aside = prompts_aside(session, 6, 16)
    own = {tuple(row) for row in session.ids.tolist()}
    assert aside.shape == (6, 16) and not own & {tuple(row) for row in aside.tolist()}
    with pytest.raises(ValueError, match="expected .* prompts of 16 tokens"):
        prompts_aside(session, 17, 16)
    shipped = Session(Settings(Source("reference/llama-12"), Corpus("builtin"), 24, 32))
    modules = np.array(held_out_modules())
    own = set(modules[shipped.prompts.origins])
    aside = prompts_aside(shipped, 6, 32)
    cut = cut_prompts(replace(shipped.settings, prompts=60))
    places = [int(np.flatnonzero((cut.ids == row).all(1))[0]) for row in aside.numpy()]
    assert not own & set(modules[cut.origins[places]])


def test_the_study_measures_what_the_settings_say(found, settings):
    remedy, choice = found["remedy"].values.tolist(), found["choice"].values.tolist()
    assert remedy[0] == "intact" and set(remedy) == set(KNOWN) and set(choice) <= set(CHOICES)
    plain = measure(settings)
    intact = found.isel(condition=0)
    assert np.allclose(intact["lambda_frobenius"], plain["lambda_frobenius"], rtol=1e-5)
    assert np.allclose(intact["influence_prompts"], plain["influence_prompts"], rtol=1e-3)
    assert np.allclose(intact["rollout"].sel(variant="kernels"), predict(plain, "kernels"), atol=1e-5)
    for k, name in enumerate(remedy):
        setting = found["setting"].values[k]
        unscaled = name in ("layers", "one scale") and bool((setting[~np.isnan(setting)] == 1).all())
        same = np.allclose(found["influence_prompts"][k], intact["influence_prompts"], rtol=1e-3)
        assert same == (name == "intact" or unscaled), name
    assert found.attrs["evaluations"] == 6


def test_scales_and_biases_are_those_of_their_formulas(settings):
    session = Session(settings)
    own = Remedies(session.instrument, session.ids)
    assert own.bias("log", (1.5,)) == describe(LogBias(1.5)) and own.bias("flat", (2.0,)) == describe(FlatBias(2.0))
    assert own.bias("mixed flat", (2.0,)) == [describe(NoBias())] * 2 + [describe(FlatBias(2.0))] * 2
    assert own.bias("layers", (1.0,) * 4) == describe(NoBias())
    assert (own.scales("layers", (3.0,) * 4) == 3).all() and (own.scales("one scale", (2.0,)) == 2).all()
    by_head = own.scales("heads", (1.2, 1.8))
    for name in KNOWN:
        if REMEDIES[name].searched:
            assert len(own.tried(name, 7, lambda setting: Attempt(setting, 0.0, 0.0))) == 7, name
    assert (by_head[:2] == 1).all() and np.array_equal(by_head[2:], head_scales(own.awareness[2:], 4))


@pytest.mark.parametrize("name", ["llama", "bloom"])
def test_an_added_bias_is_measured_beside_rivals_of_as_many_evaluations(name, settings, quick, tmp_path):
    def score(model):  # the mean size of the logits in four places
        with torch.no_grad():
            return model(prompts(), use_cache=False).logits.abs().mean((0, 2)).reshape(4, -1).mean(1).numpy()

    quick.setattr(remedies, "EVALUATIONS", 5)
    quick.setattr(remedies, "copy_gains", lambda settings: score)
    if name == "bloom":
        settings = replace(settings, source=Source(str(save(tmp_path / "bloom", "bloom"))))
    found = measure_added_biases(settings)
    remedy = found["remedy"].values.tolist()
    rival = "layers" if name == "llama" else "temperatures"
    assert remedy[0] == "intact" and set(remedy) == {"intact", "chosen", rival, "temperature"} <= set(ADDED)
    for bias, one in zip(map(json.loads, found["added_bias"].values.tolist()), remedy, strict=True):
        assert (bias == {"kind": "none"}) == (one != "chosen")
        layered_biases(bias, 3, 4)
    assert found["score"].dims == ("condition", "place") and np.unique(found["score"][:, 0]).size > 2
    assert np.allclose(found["score"][0], score(Session(settings).instrument.model))
    k = remedy.index("chosen")
    again = measure(replace(settings, condition=f"bias:{found['added_bias'].values[k]}"))
    assert np.allclose(found["lambda_frobenius"][k], again["lambda_frobenius"], rtol=1e-4)
    assert np.allclose(found["rollout"][k].sel(variant="kernels"), predict(again, "kernels"), atol=1e-5)
    table = remedy_table(found)
    assert np.allclose(table["score_worst"], found["score"].min("place"))
    assert np.allclose(table["score_mean"], found["score"].mean("place"))


CUE, SEGMENT, PLACES, COPIES = 4, 16, 12, 30
LENGTH = 1 + PLACES - 1 + 2 * (CUE + SEGMENT)  # of prompts with so many places after the start token


@torch.no_grad()
def gains_by_hand(model, settings):
    """Return the gain of each part from the model's logits alone, a prompt at a time."""
    drawn = copy_prompts(settings, COPIES)
    assert len(drawn.starts) == PLACES and set(drawn.places) == set(range(PLACES))
    found = [[] for _ in range(PARTS)]
    for ids, control, answer, place in zip(drawn.ids, drawn.controls, drawn.answers, drawn.places, strict=True):
        seen, without = (
            model(torch.from_numpy(x[None])).logits[0, -SEGMENT:].double().log_softmax(-1).numpy()
            for x in (ids, control)
        )
        at = np.arange(SEGMENT), answer
        found[int(place / PLACES * PARTS)].append((seen[at] - without[at]).mean())
    return np.array([np.mean(x) for x in found])


def test_copying_is_scored_by_part_for_the_model_as_it_is_then(tmp_path):
    corpus = Corpus(str(write_documents(tmp_path / "d.jsonl", [40] * COPIES)))
    settings = Settings(Source(str(save(tmp_path / "llama"))), corpus, prompts=4, length=LENGTH, batch_size=7)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "llama", attn_implementation="eager").eval()
    gains, expected = copy_gains(settings, COPIES), gains_by_hand(model, settings)
    found = gains(model)
    assert found.shape == (PARTS,) and np.ptp(expected) > 0.1
    np.testing.assert_allclose(found, expected, atol=1e-5)
    with added_biases(model, {"kind": "alibi", "slope": 0.3}):
        inside, expected = gains(model), gains_by_hand(model, settings)
    assert (np.abs(inside - found) > 1e-3).all()
    np.testing.assert_allclose(inside, expected, atol=1e-5)
