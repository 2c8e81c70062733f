"""Between law of untrained networks and aligned sum: both ends, the rule at a sum, coherence of known vectors."""

import numpy as np
import pytest
import torch
from measuring import make, prompts

from posbias.measure.instrument import Instrument
from posbias.models.families import output_projection
from posbias.rollout import masks
from posbias.rollout.kernels import attention_kernel
from posbias.rollout.untrained import aligned_profile, untrained_profile
from studies.ladder.alignment import JOINS, branch_shares, coherent_profile, cross_terms, read_coherence
from studies.ladder.gradients import read_streams

N, T, H = 9, 4, 3


@pytest.fixture
def numbers():
    rng = np.random.default_rng(3)
    J = rng.standard_normal((T, N, 5))
    return {
        "kernels": attention_kernel(2 * rng.standard_normal((T, H, N, N)), masks.causal()),
        "gains": rng.uniform(0.3, 1.2, (T, H)),
        "scales": rng.uniform(0.5, 2.0, (T, N)),
        "outputs": rng.uniform(0.5, 2.0, (T, N)),
        "steps": 0.2 * J @ J.transpose(0, 2, 1),
    }


@pytest.mark.parametrize("parallel", [0, 1])
def test_it_begins_at_the_law_of_untrained_networks_and_ends_at_the_aligned_sum(numbers, parallel):
    kernels, gains = numbers.pop("kernels"), numbers.pop("gains")
    for rho, limit in ((0.0, untrained_profile), (1.0, aligned_profile)):
        wanted = limit(kernels, gains, parallel=parallel, **numbers)
        found = coherent_profile(kernels, gains, rho, parallel=parallel, **numbers)
        np.testing.assert_allclose(found, wanted, rtol=1e-10)


def test_shares_take_the_place_of_what_the_gains_say(numbers):
    own = branch_shares(**numbers)
    assert ((own > 0) & (own < 1)).all()
    law = untrained_profile(**numbers)
    np.testing.assert_allclose(coherent_profile(coherence=0.0, shares=own, **numbers), law, rtol=1e-10)
    louder = numbers | {"gains": 3 * numbers["gains"], "steps": 2 * numbers["steps"]}
    assert abs(untrained_profile(**louder) - law).max() > 0.01
    np.testing.assert_allclose(coherent_profile(coherence=0.0, shares=own, **louder), law, rtol=1e-10)
    alone = coherent_profile(coherence=0.0, shares=0.0, **numbers)
    np.testing.assert_allclose(alone, np.eye(N)[-1], atol=1e-12)


def instrument(name):
    return Instrument(make(name, dtype=torch.float64))


def test_coherence_of_known_vectors():
    u = torch.randn(1, 2, 3, 4, dtype=torch.float64)
    aligned = cross_terms(torch.cat([u, 2 * u, 0.5 * u]))
    assert torch.allclose(aligned[0], aligned[1]) and (aligned[1] > 0).all()
    opposed = cross_terms(torch.cat([u, -u]))
    assert torch.allclose(opposed[0], -opposed[1])
    many = cross_terms(torch.randn(20, 1, 200, 400))
    assert abs(many[0] / many[1]) < 0.01
    assert not cross_terms(torch.zeros(3, 2, 4, 5)).any()


@pytest.mark.parametrize("name", ["bloom", "falcon-rotary", "gpt2", "gemma"])
def test_what_meets_at_an_attention_is_what_the_streams_have(name):
    ours, ids = instrument(name), prompts(B=1)
    cross, possible = read_coherence(ours, ids).layers[:, JOINS.index("attention"), :, 0]
    streams = read_streams(ours, ids)
    around, through = streams.around[:, 0], streams.branch[:, 0]
    product = (streams.entering[:-1, 0].square() - around.square() - through.square()) / 2  # ‖u + w‖² less both
    np.testing.assert_allclose(cross / possible, product.sum(1) / (around * through).sum(1), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("name", ["bloom", "falcon-new"])
def test_a_silent_branch_has_no_cross_terms(name):
    """Without its output projection an attention sends nothing back."""
    ours, ids = instrument(name), prompts(B=1)
    before = read_coherence(ours, ids).layers
    assert (before[1, :, :-1] > 0).all()
    output_projection(ours.attentions[1]).weight.data.zero_()
    after = read_coherence(ours, ids).layers
    assert abs(after[:, JOINS.index("attention"), 1]).max() < 1e-12
    step = JOINS.index("step")
    assert (after[1, step, 1] > 0).all()
    ours.layers[1].mlp.dense_4h_to_h.weight.data.zero_()
    silent = read_coherence(ours, ids).layers[:, step]
    assert abs(silent[:, 1]).max() < 1e-12 < silent[1, 0].min()
