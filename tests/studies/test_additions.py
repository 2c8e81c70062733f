"""What is tried on a finished model: proposals of every kind, temperatures, and searches of as many settings."""

import numpy as np
import pytest
import torch
from biased import first_layer, implementations
from measuring import CONFIGS, make, prompts

from posbias.conditions.each.sharper import sharper
from posbias.design import Attended, choose_bias
from posbias.measure.instrument import Instrument
from posbias.rollout.position_bias import AlibiBias, LogBias, NoBias, describe, layered_biases
from studies.additions import Additions, Attempt, bezier_curve, genetic_search, proposed, strengthened


def test_proposals_are_as_many_as_asked_for_and_of_every_kind():
    distance = np.subtract.outer(np.arange(32), np.arange(32)).clip(0)
    A = np.tril(np.exp(-0.2 * distance))
    model = Attended(np.tile(A / A.sum(-1, keepdims=True), (3, 1, 1, 1)), np.full(3, 0.4), 6)
    for number in (4, 9, 32):
        found = proposed(model, number)
        assert len(found) == number and {setting[0] for setting in found} == {0, 1, 2, 3}
        for description in found.values():
            layered_biases(description, 3, 6)
    shares = [setting[1] for setting in found if setting[0] == 3]
    assert len(shares) == 6 and max(shares) == 1
    assert [part["kind"] for part in found[3.0, 0.5]] == ["none"] * 3 + ["flat"] * 3
    assert found[0.0, 1.5] == strengthened(choose_bias(model, "log").description, 1.5)
    assert strengthened(describe(AlibiBias(-0.2)), 0.5) == describe(AlibiBias(-0.1))
    assert strengthened(describe(LogBias(-2.0)), 0.25) == describe(LogBias(-0.5))


def test_curves_by_hand():
    assert bezier_curve((2.0,), 3).tolist() == [2, 2, 2] and bezier_curve((1.0, 3.0), 3).tolist() == [1, 2, 3]
    curve = bezier_curve((1.0, 4.0, 2.0, 3.0), 5)
    assert curve[[0, -1]].tolist() == [1, 3] and curve[2] == pytest.approx((1 + 3 * 4 + 3 * 2 + 3) / 8)


def test_a_genetic_search_uses_what_it_is_given_and_comes_near_the_lowest_point():
    tried = []

    def attempt(setting):
        tried.append(setting)
        return Attempt(setting, float(np.sum(np.square(np.array(setting) - 3))), 1.0)

    found = genetic_search(attempt, np.ones(2), np.full(2, 4.0), 41)
    assert [x.setting for x in found] == tried and len(tried) == 41 and tried[0] == (1.0, 1.0)
    assert (np.array(tried) >= 1).all() and (np.array(tried) <= 4).all()
    best = min(x.distance for x in found)
    assert best < min(x.distance for x in found[:11]) / 2 and best < 0.1
    assert len(genetic_search(attempt, np.ones(2), np.full(2, 4.0), 1)) == 1


@pytest.mark.parametrize("name", ["bloom", "llama"])
def test_additions_act_and_their_searches_try_as_many(name):
    instrument, ids = Instrument(make(name)), prompts(B=5)
    added = Additions(instrument, ids, 2)
    kernels = np.zeros((3, 4, 12, 12))
    instrument.forward(ids, lambda x: kernels.__setitem__(x.layer, x.probabilities.double().mean(0).numpy()))
    np.testing.assert_allclose(added.attended.kernels, kernels, atol=1e-6)
    mixing = instrument.measure(ids).lambda_frobenius.double().mean(0)
    np.testing.assert_allclose(added.attended.lambda_, mixing, rtol=1e-5)
    plain = instrument.measure(ids).influence
    for way in ("chosen", "temperatures", "temperature"):
        tried = []
        found = added.tried(way, 9, lambda setting, seen=tried: seen.append(setting) or Attempt(setting, 0.0, 0.0))
        assert [x.setting for x in found] == tried and len(tried) == 9
        with added.context(way, tried[-1]):
            assert not torch.allclose(instrument.measure(ids).influence, plain, rtol=1e-3), way
    assert added.temperatures("temperatures", (1.0,) * 4).tolist() == [2, 2, 2]
    assert added.temperatures("temperature", (0.5,)).tolist() == [0.5] * 3
    assert added.temperatures("chosen", tried[0]).tolist() == [1] * 3 and added.bias("temperature", (1.0,)) == describe(
        NoBias()
    )
    torch.testing.assert_close(instrument.measure(ids).influence, plain)


@pytest.mark.parametrize("name", ["bloom", "llama", "gpt2", "gemma2", "qwen3", "deepseek_v2"])
def test_a_temperature_divides_content_logits_alone(name):
    """Before a soft cap, where there is one."""
    uncapped = (lambda z: 5 * np.arctanh(z / 5)) if "softcapping" in str(CONFIGS[name]) else lambda z: z
    for attention in implementations(name):
        instrument = Instrument(make(name, attention=attention))
        plain, before = first_layer(instrument)
        with sharper(instrument.model, [0.5, 1.0, 2.0]):
            found, weights = first_layer(instrument)
        seen = before > 0
        assert np.allclose(2 * uncapped(found[seen]), uncapped(plain[seen]), rtol=1e-3, atol=5e-5)
        assert np.abs(weights - before).max() > 1e-3


def test_queries_that_are_normed_after_their_rotation_are_not_multiplied():
    with pytest.raises(ValueError, match="model: expected queries that can be multiplied"):
        with sharper(make("llama4_text"), 2.0):
            pass
