"""Others' methods by hand, and against the model's own passes."""

import numpy as np
import pytest
import torch
from measuring import make, prompts

from posbias.models.hooks import hooked
from studies.rivals.kernels import (
    attention_kernels,
    contribution_kernel,
    part_kernels,
    part_norms,
    rolled,
    row_shares,
)
from studies.rivals.layers import read_layers
from studies.rivals.logits import contrast, logit_parts
from studies.rivals.measure import rollouts_of, zeroing_of
from studies.rivals.relevance import identical, lessened, relevance_of
from studies.rivals.zeroing import zeroing_kernel


@pytest.fixture(scope="module")
def model():
    return make("llama").eval().requires_grad_(False)


@pytest.fixture(scope="module")
def layers(model):
    return read_layers(model, prompts(1)[0])


def whole_parts(layer):
    """Return all parts (query, key, d), with the residual stream, written out."""
    parts = torch.einsum("hij,hjd->ijd", layer.attention, layer.carried)
    own = torch.arange(len(layer.x))
    parts[own, own] += layer.x
    return parts


def test_parts_add_up_to_what_the_model_computes(model):
    seen = []
    watch = [(x.self_attn, lambda module, args, out: seen.append(out[0])) for x in model.model.layers]
    with hooked(after=watch):
        layers = read_layers(model, prompts(1)[0])
    for layer, out, after in zip(layers, seen, layers[1:], strict=False):
        assert torch.allclose(whole_parts(layer).sum(1) - layer.x, out[0], atol=1e-4)
        assert torch.allclose(layer.output, after.x, atol=1e-4)


def test_without_eager_attention_is_refused():
    with pytest.raises(ValueError, match="eager"):
        read_layers(make("llama", attention="sdpa"), prompts(1)[0])


def test_norms_are_those_of_the_parts(layers):
    layer = layers[1]
    parts, weight = whole_parts(layer), torch.linspace(0.5, 2, layer.x.shape[1])
    assert torch.allclose(part_norms(layer, weight), (parts * weight).norm(dim=-1), atol=1e-3)
    kernels = part_kernels(layer)
    behind = layer.module.post_attention_layernorm.weight
    for name, by in {
        "norms-norm": behind,
        "globenc": layers[2].module.input_layernorm.weight,
    }.items():
        assert torch.allclose(kernels[name], row_shares((parts * by).norm(dim=-1)), atol=1e-4)
    assert not torch.allclose(kernels["norms-norm"], kernels["globenc"], atol=1e-2)
    bare = torch.einsum("hij,hjd->ijd", layer.attention, layer.carried).norm(dim=-1)
    half = (row_shares(bare) + torch.eye(len(bare))) / 2
    assert torch.allclose(kernels["norms"], half, atol=1e-4)


def test_contributions_by_hand(layers):
    parts, y = whole_parts(layers[0]), layers[0].y
    shorter = y.abs().sum(-1)[:, None] - (y[:, None] - parts).abs().sum(-1)
    expected = row_shares(shorter.clamp_min(0).tril())
    assert torch.allclose(contribution_kernel(layers[0]), expected, atol=1e-5)


def test_attention_leaves_out_the_first_token(layers):
    kernels = attention_kernels(layers[1])
    A = layers[1].attention.mean(0)
    assert torch.allclose(kernels["attention-half"], (A + torch.eye(len(A))) / 2)
    assert (kernels["attention-rest"][1:, 0] == 0).all()
    assert torch.allclose(kernels["attention-half-rest"].sum(-1), torch.ones(len(A)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_value_zeroing_is_a_forward_pass_without_the_value(model, dtype):
    """Zero each token's value in one layer by a hook on its projection, and run the model."""
    ids, t = prompts(1)[0], 1
    layer = read_layers(model, ids)[t]
    found, outs = zeroing_kernel(layer, dtype), []
    for j in (None, *range(len(ids))):

        def silence(module, args, out, j=j):
            out = out.clone()
            if j is not None:
                out[:, j] = 0.0
            return out

        def see(module, args, out):
            outs.append((out[0] if isinstance(out, tuple) else out).reshape(len(ids), -1).double())

        after = [(layer.module.self_attn.v_proj, silence), (layer.module, see)]
        with hooked(after=after), torch.no_grad():
            model(ids[None], use_cache=False)
    apart = [1 - torch.cosine_similarity(outs[0], out, dim=-1) for out in outs[1:]]
    expected = row_shares(torch.stack(apart, 1)).float()
    assert torch.allclose(found, expected, atol=1e-4 if dtype == torch.float32 else 2e-2)


def test_alti_logit_sums_to_the_difference_of_logits(model, layers):
    u = contrast(model, layers[-1])
    mixed = [contribution_kernel(layer) for layer in layers]
    attended, whole = logit_parts(layers, mixed, u)
    with torch.no_grad():
        one, other = model(prompts(1)[0][None]).logits[0, -1].topk(2).values
    assert torch.isclose(whole.sum(), one - other, atol=1e-3)
    given = sum(layer.added[-1] @ u for layer in layers)
    assert torch.isclose(attended.sum(), given, atol=1e-3)


def test_alti_logit_of_one_layer_has_no_mixture(model, layers):
    u = contrast(model, layers[0])
    kernel = contribution_kernel(layers[0])
    attended, _ = logit_parts(layers[:1], [kernel], u)
    expected = torch.einsum("hj,hjd->jd", layers[0].attention[:, -1], layers[0].carried) @ u
    assert torch.allclose(attended, expected, atol=1e-4)


def test_rules_of_relevance_by_hand():
    """A gated unit: silu(2) · 3, of which the uniform rule gives each factor a half."""
    gate, up = torch.tensor(2.0, requires_grad=True), torch.tensor(3.0, requires_grad=True)
    out = lessened(identical(gate, torch.nn.functional.silu(gate)) * up, 0.5)
    out.backward()
    assert torch.isclose(gate * gate.grad, out / 2) and torch.isclose(up * up.grad, out / 2)


def test_relevance_is_conserved_with_attention_held(model):
    ids = prompts(1)[0]
    top = model(ids[None]).logits[0, -1].max()
    assert np.isclose(relevance_of(model, ids, fixed=True).sum(), float(top), rtol=1e-3)
    assert not np.isclose(relevance_of(model, ids).sum(), float(top), rtol=1e-2)


def test_attention_halves_both_of_its_products():
    """Values get a half of what an average is given; queries and keys a half each of the logits' half."""
    model, ids, seen = (
        make("llama", num_hidden_layers=1).eval().requires_grad_(False),
        prompts(1)[0],
        {},
    )
    layer = read_layers(model, ids)[0]
    attend = layer.module.self_attn

    def keep(name):
        def hook(module, args, out):
            out.retain_grad()
            seen[name] = out

        return hook

    def keep_average(module, args, kwargs):
        args[0].retain_grad()
        seen["average"] = args[0]

    after = [(getattr(attend, f"{x}_proj"), keep(x)) for x in "qkv"]
    with hooked([(attend.o_proj, keep_average)], after):
        relevance_of(model, ids)
    total = {name: float((x * x.grad).detach().sum()) for name, x in seen.items()}
    assert np.isclose(total["v"], total["average"] / 2, rtol=1e-4)
    A = layer.attention
    values = seen["v"].detach()[0].view(len(ids), -1, attend.head_dim).transpose(0, 1)
    values = values.repeat_interleave(len(A) // len(values), 0)
    given = seen["average"].grad[0].view(len(ids), len(A), -1).transpose(0, 1) @ values.mT
    by_logit = A * (given - (A * given).sum(-1, keepdim=True))
    expected = float((A.clamp_min(1e-38).log() * by_logit).sum()) / 4
    assert np.isclose(total["q"], expected, rtol=1e-3)
    assert np.isclose(total["k"], expected, rtol=1e-3)


def test_hooks_are_gone_afterwards(model):
    ids = prompts(1)[0]
    before = model(ids[None]).logits
    relevance_of(model, ids)
    assert torch.equal(model(ids[None]).logits, before)


def test_every_rollout_is_a_distribution(model):
    ids = prompts(1)[0]
    said = rollouts_of(model, ids) | zeroing_of(model, ids)
    for name, p in said.items():
        assert p.shape == ids.shape
        if "logit" not in name and "lrp" not in name:
            assert np.isclose(p.sum(), 1, atol=1e-4) and (p >= 0).all(), name
        if name.endswith("-rest"):
            assert np.isclose(p[0], 1 / len(ids))
    assert rolled([torch.eye(3)] * 2).tolist() == [0, 0, 1]
