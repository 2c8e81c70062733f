"""The leakage of absolute position: the estimator on known leakage, and interventions that leave no trace."""

import numpy as np
import pytest
import torch
from measuring import N, make, prompts

from posbias.measure.instrument import Instrument
from studies.absolute.here import Here, rotation_losses
from studies.absolute.interventions import bidirectional, replaced_embeddings
from studies.absolute.leakage import explained, leakage, permutation_p_values, position_basis, sample_pairs
from studies.absolute.measure import first_trajectory, path_spread, read_components, read_heads, read_pairs
from studies.interventions import replaced_rope, rotary_module

RNG = np.random.default_rng(0)
BASIS = position_basis(sample_pairs(32, 24))
I, J = BASIS.pairs  # noqa: E741 - i and j of the page


def offset_less(y):
    """Take each offset's mean out: the slow way."""
    out = y.astype(float).copy()
    for r in np.unique(I - J):
        out[I - J == r] -= y[I - J == r].mean()
    return out


def content(N=40, heads=(), seed=0):
    """Return logits that are content alone: an effect of each prompt's keys and queries, and noise."""
    rng = np.random.default_rng(seed)
    key, query = (rng.normal(size=(N, *heads, 32)) for _ in range(2))
    return 2 * key[..., J] + query[..., I] + rng.normal(size=(N, *heads, I.size)) + np.cos(I - J)


def test_basis_is_orthonormal_and_blind_to_offsets():
    U = BASIS.both
    assert np.allclose(U.T @ U, np.eye(U.shape[1]), atol=1e-10)
    assert abs(U.T @ np.sin(I - J)).max() < 1e-10
    query = offset_less(np.sqrt(I + 1.0))
    assert np.allclose(BASIS.query @ (BASIS.query.T @ query), query)
    assert abs(BASIS.key.T @ np.log(I + 1.0)).max() < 1e-9


def test_additive_leakage_is_what_least_squares_finds():
    y = RNG.normal(size=32)[I] + RNG.normal(size=32)[J]
    found = leakage(BASIS.both, np.tile(y + np.cos(I - J), (3, 1)))
    assert np.isclose(found.variance, np.square(offset_less(y)).mean())
    assert np.isclose(found.share, np.square(offset_less(y)).mean() / (y + np.cos(I - J)).var())
    noisy = leakage(BASIS.both, content(400) + y)
    assert np.isclose(noisy.variance, np.square(offset_less(y)).mean(), rtol=0.1)


def test_prompts_of_one_document_are_no_pair_by_hand():
    """Three documents, the first of two prompts: five pairs of prompts are apart, each counted twice."""
    units = np.array([7, 7, 2, 5])
    G = np.array([[9.0, 8, 1, 2], [8, 9, 3, 4], [1, 3, 9, 5], [2, 4, 5, 9]])
    assert explained(G, units) == pytest.approx((1 + 2 + 3 + 4 + 5) / 5)
    assert explained(G) == pytest.approx((8 + 1 + 2 + 3 + 4 + 5) / 6)
    whole = np.kron(np.array([[1.0, 0.2], [0.2, 1.0]]), np.ones((6, 6)))  # 12 prompts of 2 documents
    with pytest.raises(ValueError, match="prompts: expected at least 11 of different documents .* received 2"):
        permutation_p_values(whole, units=np.repeat([0, 1], 6))


def shared_content(documents, each, heads, seed):
    """Return prompts that share most of their content with those of their document, and the documents."""
    own = content(documents * each, heads, seed)
    return np.repeat(content(documents, heads, seed + 1), each, axis=0) + 0.5 * own, np.arange(len(own)) // each


def test_prompts_of_a_document_flip_together():
    """Taken one by one they look like position: null heads are rejected far more often than at the level."""
    y, units = shared_content(16, 6, (100,), 5)
    wrong, right = (leakage(BASIS.both, y, u).p_values(199) for u in (None, units))
    assert (wrong <= 0.05).mean() > 0.5 and 0.01 < (right <= 0.05).mean() < 0.1
    assert abs(leakage(BASIS.both, y, units).variance.mean()) < 0.3 * leakage(BASIS.both, y).variance.mean()


PAIRS = sample_pairs(N, reach=5)


def attention(instrument, ids):
    """Return all logits and weights of a forward pass, (T, B, H, n, n), and what is allowed."""
    seen = []
    instrument.forward(ids, lambda r: seen.append((r.logits.clone(), r.probabilities.clone(), r.allowed.clone())))
    return [torch.stack(x) for x in zip(*seen, strict=True)]


INTERVENTIONS = {
    "bidirectional": bidirectional,
    **{by: lambda instrument, by=by: replaced_rope(instrument, by, 1) for by in ("identity", "scrambled")},
    **{which: lambda instrument, which=which: replaced_embeddings(instrument, which) for which in ("first", "all")},
}


@pytest.mark.parametrize("name", ["llama", "gpt_neox"])
@pytest.mark.parametrize("kind", INTERVENTIONS)
def test_interventions_act_and_leave_no_trace(name, kind):
    ours, ids = Instrument(make(name)), prompts()
    weights = {key: x.clone() for key, x in ours.model.state_dict().items()}
    logits, A, _ = attention(ours, ids)
    with pytest.raises(KeyError, match="inside"), INTERVENTIONS[kind](ours):
        changed, B, _ = attention(ours, ids)
        raise KeyError("inside")
    assert not torch.allclose(A, B, atol=1e-3)
    if kind == "first":  # before anything mixes, other tokens are as they were
        torch.testing.assert_close(logits[0, :, :, 1:, 1:], changed[0, :, :, 1:, 1:])
    assert torch.allclose(attention(ours, ids)[1], A, atol=1e-6) and ours.causal
    assert all(torch.equal(x, weights[key]) for key, x in ours.model.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in ours.model.modules())


@pytest.mark.parametrize("name", ["llama", "mistral", "falcon-rotary"])
def test_bidirectional_attention_changes_the_mask_alone(name):
    ours, ids = Instrument(make(name)), prompts()
    logits, _, before = attention(ours, ids)
    with bidirectional(ours):
        free, A, allowed = attention(ours, ids)
    assert torch.equal(allowed, before | before.mT) and torch.allclose(A.sum(-1), torch.ones(()), atol=1e-5)
    shown = before[0].expand_as(logits[0])
    assert torch.allclose(free[0][shown], logits[0][shown], atol=1e-6)  # the first layer's logits know no mask
    assert (A.masked_select(~allowed[:, None, None].expand_as(A)) == 0).all()


@pytest.mark.parametrize("by", ["identity", "scrambled"])
def test_other_rotations(by):
    ours, ids = Instrument(make("llama")), torch.full((1, N), 5)
    rotary = rotary_module(ours)
    x, positions = torch.zeros(1, N, 8), torch.arange(N)[None]
    cos, sin = rotary(x, positions)
    with replaced_rope(ours, by, 1):
        cos_, sin_ = rotary(x, positions)
        logits = attention(ours, ids)[0][0, 0, 0]
    assert torch.allclose(cos_**2 + sin_**2, torch.ones(()))
    assert torch.equal(cos_.sort(-1).values, cos.sort(-1).values) == (by == "scrambled")
    lower = [logits.diagonal(-r) for r in range(N)]  # equal tokens: a function of i - j alone
    assert all(torch.allclose(d, d[0], atol=1e-4) for d in lower)
    if by == "identity":
        assert not sin_.any() and torch.allclose(torch.stack([d[0] for d in lower]), lower[0][0], atol=1e-4)
    assert torch.equal(rotary(x, positions)[0], cos)


def test_pairs_are_those_of_the_model():
    ours, ids = Instrument(make("mistral")), prompts()
    logits, A, _ = attention(ours, ids)
    found = read_pairs(ours, ids.numpy(), PAIRS, batch_size=2)
    i, j = PAIRS
    assert np.allclose(found.logits, logits.transpose(0, 1)[..., i, j], atol=1e-5)
    assert np.allclose(np.exp(found.log_probabilities), A.transpose(0, 1)[..., i, j], atol=1e-5)
    parts = read_components(ours, ids.numpy(), position_basis(PAIRS))
    V = [float(explained(x).sum()) for x in (parts.total.gram, parts.logits.gram, parts.denominators.gram, parts.cross)]
    assert V[0] == pytest.approx(V[1] + V[2] - 2 * V[3], rel=1e-3, abs=1e-4)


def test_position_0_is_closed_if_its_token_is_fixed():
    ours, ids = Instrument(make("llama")), prompts(B=4).clone()
    free = first_trajectory(ours, ids.numpy())
    assert (path_spread(free) > 0.1).all()
    ids[:, 0] = 3
    path = first_trajectory(ours, ids.numpy())
    assert path.shape == (4, 4, 32) and not path.std(0).any() and path.std(1).all()
    assert not path_spread(path).any()
    assert path_spread(first_trajectory(ours, ids.numpy(), position=1)).all()
    with bidirectional(ours):
        assert first_trajectory(ours, ids.numpy()).std(0)[1:].all()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in ours.model.modules())


def test_heads_are_those_of_the_model():
    ours, ids = Instrument(make("llama")), prompts(B=4).clone()
    ids[:] = ids[:1]
    found = read_heads(ours, ids.numpy(), batch_size=3)
    _, A, _ = attention(ours, ids)
    assert np.allclose(found.first, A[..., 1:, 0].mean(-1).transpose(0, 1), atol=1e-5)
    assert np.allclose(found.constancy().share, 1, atol=1e-5)  # equal prompts: equal outputs
    assert np.allclose(found.uniform, np.mean(1 / np.arange(2, N + 1)))


def test_models_that_an_intervention_cannot_act_on_are_refused():
    with pytest.raises(ValueError, match="model: expected one with rotary positions"):
        rotary_module(Instrument(make("bloom")))
    mpt = Instrument(make("mpt"))
    with pytest.raises(ValueError, match="model: expected attention with a mask"), bidirectional(mpt):
        mpt.forward(prompts(), lambda reading: None)
    assert mpt.causal and not any(m._forward_pre_hooks for m in mpt.model.modules())


def test_losses_with_other_rotations_are_those_of_the_model():
    ours, ids = Instrument(make("llama")), prompts()
    found = rotation_losses(Here(ours, None, ids.numpy(), None))
    with torch.no_grad():
        own = torch.nn.functional.cross_entropy(ours.model(ids).logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    assert found["absolute_loss_own"] == pytest.approx(float(own), rel=1e-5) and len({*found.values()}) == 3
