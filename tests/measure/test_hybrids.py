"""Families some of whose layers have no attention, against independent hooks and against plain loops over tokens."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from measuring import HYBRIDS, N, make, prompts
from torch import nn
from torch.nn import functional as F

import posbias
from posbias.measure import check
from posbias.measure.instrument import Instrument
from posbias.measure.quantities.contributions import LayerContributions
from posbias.models.check import comparisons
from posbias.models.families import FAMILIES
from posbias.models.hooks import hooked
from posbias.models.mixers import mamba2
from posbias.models.mixers.attention import Heads
from posbias.predict import PREDICTORS, advice

EVERY = sorted(HYBRIDS)
PLACES = {"lfm2": "conv", "granitemoehybrid": "mamba", "qwen3_next": "linear_attn"}
STEP = {"lfm2": "ffn_norm"}
TIMES = {"granitemoehybrid": 0.3}


def module_of(layer, name):
    """Return what mixes the tokens of a layer."""
    found = getattr(layer, PLACES[name], None)
    return layer.self_attn if found is None else found


def test_every_family_with_other_mixers_has_a_tiny_model():
    assert {kind for kind, _ in HYBRIDS.values()} == {name for name, row in FAMILIES.items() if row.mixers}


@pytest.mark.parametrize("name", EVERY)
def test_lambda_is_the_share_of_what_mixes_in_what_is_added(name):
    """x, a and their sum are taken off the model by hooks of this test."""
    model, seen = make(name), {"x": [], "a": [], "sum": []}
    layers = list(model.model.layers)
    handles = []
    for layer in layers:
        keep_x = lambda m, args, kw: seen["x"].append((args or (kw["hidden_states"],))[0].double())  # noqa: E731
        keep_a = lambda m, args, out: seen["a"].append((out[0] if isinstance(out, tuple) else out).double())  # noqa: E731
        after = getattr(layer, STEP.get(name, "post_attention_layernorm"))
        handles.append(layer.register_forward_pre_hook(keep_x, with_kwargs=True))
        handles.append(module_of(layer, name).register_forward_hook(keep_a))
        handles.append(after.register_forward_pre_hook(lambda m, args: seen["sum"].append(args[0].double())))
    with torch.no_grad():
        model(prompts(), use_cache=False)
    for handle in handles:
        handle.remove()
    reading = Instrument(model).measure(prompts())
    for t, (x, a, total) in enumerate(zip(*seen.values(), strict=True)):
        a = a * TIMES.get(name, 1.0)
        torch.testing.assert_close(x + a, total, rtol=1e-5, atol=1e-5)
        size_x, size_a = x.norm(dim=(1, 2)), a.norm(dim=(1, 2))
        torch.testing.assert_close(reading.lambda_frobenius[:, t], size_a / (size_x + size_a), atol=1e-6, rtol=0)
        token_x, token_a = x.norm(dim=-1), a.norm(dim=-1)
        mean = (token_a / (token_x + token_a)).mean(-1)
        torch.testing.assert_close(reading.lambda_token[:, t], mean, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", EVERY)
def test_layers_run_once_more_give_the_gradient_of_the_whole(name):
    model = make(name)
    found, x = Instrument(model).measure(prompts()), make(name).get_input_embeddings()(prompts()).detach()
    x.requires_grad_(True)
    p = make(name)(inputs_embeds=x, use_cache=False).logits[:, -1].softmax(-1).amax(-1)
    (gradient,) = torch.autograd.grad(p.sum(), x)
    assert torch.allclose(gradient.norm(dim=-1).double(), found.influence, rtol=1e-4, atol=1e-8)


def convolved(conv, u):
    """Return what a causal convolution makes of (n, c), and each token's part in it, by a loop."""
    n, reach = len(u), conv.weight.shape[-1]
    parts = torch.zeros(n, n, u.shape[1], dtype=torch.float64)  # of token j in what i has
    for i in range(n):
        for j in range(max(0, i - reach + 1), i + 1):
            parts[i, j] = conv.weight[:, 0, reach - 1 - (i - j)].double() * u[j]
    bias = 0.0 if conv.bias is None else conv.bias.double()
    return parts.sum(1) + bias, parts


def parts_of_lfm2(module, u):
    B, C, x = module.in_proj(u).double().chunk(3, dim=-1)
    _, parts = convolved(module.conv, B * x)
    return torch.stack([(C[i] * parts[i]) @ module.out_proj.weight.double().T for i in range(len(u))])


def scanned(module, x, B, C, dt):
    """Return what a state-space layer reads of values x (n, H, V), its state carried from token to token."""
    n, H, V = x.shape
    state, read = torch.zeros(H, V, B.shape[-1], dtype=torch.float64), []
    for i in range(n):
        for h in range(H):
            group = h // (H // module.n_groups)
            decay = torch.exp(-torch.exp(module.A_log[h].double()) * dt[i, h])
            state[h] = state[h] * decay + dt[i, h] * torch.outer(x[i, h], B[i, group])
        groups = torch.arange(H) // (H // module.n_groups)
        read.append(torch.einsum("hvs,hs->hv", state, C[i, groups]) + module.D.double()[:, None] * x[i])
    return torch.stack(read)


def parts_of_granitemoehybrid(module, u):
    H, wide, n = module.num_heads, module.intermediate_size, len(u)
    z, inputs, dt = module.in_proj(u).double().split([wide, module.conv_dim, H], dim=-1)
    total, parts = convolved(module.conv1d, inputs)
    B, C = F.silu(total)[:, wide:].reshape(n, 2, module.n_groups, -1).unbind(1)
    dt = F.softplus(dt + module.dt_bias.double()).clamp(*module.time_step_limit)
    whole = scanned(module, F.silu(total)[:, :wide].reshape(n, H, -1), B, C, dt).flatten(1) * F.silu(z)
    groups = whole.reshape(n, module.n_groups, -1)
    size = (groups.square().mean(-1) + module.norm.variance_epsilon).sqrt()
    size = size.repeat_interleave(groups.shape[-1], dim=1)
    made = []
    for j in range(n):
        value = (torch.sigmoid(total) * parts[:, j])[:, :wide].reshape(n, H, -1)
        read = scanned(module, value, B, C, dt).flatten(1)
        made.append(read * F.silu(z) / size * module.norm.weight.double() @ module.out_proj.weight.double().T * 0.3)
    return torch.stack(made, dim=1)


def recalled(q, k, v, g, beta):
    """Return what a gated delta rule reads of values v (n, H, V), its state corrected token by token."""
    n, H, V = v.shape
    state, read = torch.zeros(H, k.shape[-1], V, dtype=torch.float64), []
    for i in range(n):
        for h in range(H):
            state[h] = state[h] * g[i, h].exp()
            known = state[h].T @ k[i, h]
            state[h] += torch.outer(k[i, h], beta[i, h] * (v[i, h] - known))
        read.append(torch.stack([state[h].T @ q[i, h] for h in range(H)]))
    return torch.stack(read)


def parts_of_qwen3_next(module, u):
    n, H, Hk, D = len(u), module.num_v_heads, module.num_k_heads, module.head_k_dim
    made = module.in_proj_qkvz(u[None]), module.in_proj_ba(u[None])
    q, k, v, z, b, a = (x[0].double() for x in module.fix_query_key_value_ordering(*made))
    total, parts = convolved(module.conv1d, torch.cat([x.reshape(n, -1) for x in (q, k, v)], dim=-1))
    q, k, v = F.silu(total).split([module.key_dim, module.key_dim, module.value_dim], dim=-1)
    q, k = (x.reshape(n, Hk, D).repeat_interleave(H // Hk, dim=1) for x in (q, k))
    q, k = (x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt() for x in (q, k))
    q, beta = q / D**0.5, b.sigmoid()
    g = -module.A_log.double().exp() * F.softplus(a + module.dt_bias.double())
    whole = recalled(q, k, v.reshape(n, H, -1), g, beta)
    size = (whole.square().mean(-1, keepdim=True) + module.norm.variance_epsilon).sqrt()
    found = []
    for j in range(n):
        value = (torch.sigmoid(total) * parts[:, j])[:, -module.value_dim :].reshape(n, H, -1)
        read = recalled(q, k, value, g, beta) / size * module.norm.weight.double() * F.silu(z)
        found.append(read.flatten(1) @ module.out_proj.weight.double().T)
    return torch.stack(found, dim=1)


LOOPS = {"lfm2": parts_of_lfm2, "granitemoehybrid": parts_of_granitemoehybrid, "qwen3_next": parts_of_qwen3_next}


LIMITED = {"time_step_limit": (1.0, 1.8)}
"""Steps of a state-space layer that are cut at both ends."""


@pytest.mark.parametrize(("name", "changes"), [*((name, {}) for name in EVERY), ("granitemoehybrid", LIMITED)])
def test_parts_are_those_of_plain_loops(name, changes):
    """T_ij of the first and last layer: each token's values alone, carried from token to token in 64 bits."""
    model, ids, given = make(name, **changes), prompts(1), {}
    instrument, made = Instrument(model), {}

    def observe(seen):
        if seen.layer != 1:
            made[seen.layer] = next(iter(instrument.mixer(seen.layer).prompts(seen))).parts(slice(3, N))

    def kept(t):
        return lambda m, args, kw: given.update({t: (args or (kw["hidden_states"],))[0][0].clone()})

    places = [(module_of(model.model.layers[t], name), kept(t)) for t in (0, 2)]
    with hooked(places):
        instrument.measure(ids, observe)
    for t, (module, _) in zip((0, 2), places, strict=True):
        with torch.no_grad():
            loop = LOOPS[name](module, given[t])[3:].transpose(0, 1)
        off = (made[t].double() - loop).abs().max() / loop.abs().max()
        assert off < 1e-5, (t, off)


@pytest.mark.parametrize("name", EVERY)
def test_parts_of_one_query_at_a_time_are_those_of_all(name):
    """Of long prompts and wide models a block ends before the convolution's reach."""
    instrument, seen_layers = Instrument(make(name)), []

    def observe(seen):
        seen_layers.append(seen.layer)
        made = next(iter(instrument.mixer(seen.layer).prompts(seen)))
        whole = made.parts(slice(0, N))
        for i in range(N):
            one = made.parts(slice(i, i + 1))
            torch.testing.assert_close(one[:, 0], whole[: i + 1, i], rtol=1e-5, atol=1e-6)

    instrument.measure(prompts(1), observe)
    assert sorted(seen_layers) == [0, 1, 2]


@pytest.mark.parametrize("part", ["out_proj", "conv"])
@pytest.mark.parametrize("name", EVERY)
def test_codes_of_any_matrix_of_a_mixer_are_told(name, part):
    instrument = Instrument(make(name))
    mixer = instrument.layers[0].get_submodule(PLACES[name])
    module = mixer.get_submodule("conv1d" if part == "conv" and name != "lfm2" else part)
    assert instrument.mixer(0).lacking() is None
    codes = module.weight.detach().to(torch.float8_e4m3fn)
    module.weight = nn.Parameter(codes, requires_grad=False)
    assert str(instrument.mixer(0).lacking()).startswith("weights that are codes")


def test_parts_of_gated_attention_are_those_of_a_plain_loop():
    model, ids, kept = make("qwen3_next"), prompts(1), {}
    instrument, attention = Instrument(model), model.model.layers[1].self_attn

    def observe(seen):
        if seen.layer == 1:
            kept["values"] = seen.values[0].double()
            kept["parts"] = next(iter(instrument.mixer(1).prompts(seen))).parts(slice(0, N))

    before = [(attention, lambda m, args, kw: kept.update(u=kw["hidden_states"][0]))]
    with hooked(before):
        instrument.measure(ids, observe)
    A = model(ids, output_attentions=True, use_cache=False).attentions[-1][0].double()
    A, W = A.detach(), attention.o_proj.weight.detach().double()
    gate = attention.q_proj(kept["u"]).detach().double().reshape(N, 4, 2, 8)[:, :, 1].sigmoid()
    for i in range(N):
        for j in range(i + 1):
            heads = [A[h, i, j] * gate[i, h] * kept["values"][h, j] for h in range(4)]
            torch.testing.assert_close(kept["parts"][j, i].double(), W @ torch.cat(heads), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize(
    ("name", "changes"), [*((name, {}) for name in EVERY), ("granitemoehybrid", {"mamba_proj_bias": True})]
)
def test_what_is_right_is_let_pass_and_parts_add_up_in_every_layer(name, changes, attention):
    instrument = Instrument(make(name, attention=attention, **changes))
    found = [json.loads(check.check_instrument(instrument, ids)) for ids in prompts(5, 24)]
    assert all(x["parts"] < check.SUMS / 100 and x["sums"] < check.SUMS / 5 for x in found)
    gradients = [x["gradient"] for x in found if x["gradient"] is not None]
    assert len(gradients) >= 3 and np.median(gradients) < check.GRADIENT / 5


def test_steps_are_cut_as_the_model_cuts_them():
    model = make("granitemoehybrid", **LIMITED)
    layer, embedded = model.model.layers[0], model.get_input_embeddings()(prompts())
    made = layer.mamba.in_proj(layer.input_layernorm(embedded * model.config.embedding_multiplier))
    steps = F.softplus(made[..., -8:] + layer.mamba.dt_bias)
    low, high = LIMITED["time_step_limit"]
    assert (steps < low).any() and (steps > high).any(), "some are cut at either end"
    found = json.loads(check.check_instrument(Instrument(model), prompts(1, 20)[0]))
    assert found["parts"] < check.SUMS / 100


@pytest.mark.parametrize("name", EVERY)
def test_the_program_for_rows_agrees(name):
    found = list(comparisons(Instrument(make(name)), prompts(1)))
    assert all(one.holds for one in found), [str(one) for one in found if not one.holds]
    assert {one.what.partition(",")[0] for one in found} >= {"attention", "parts and biases of layer 0"}


@pytest.mark.parametrize("name", EVERY)
def test_contributions_are_markov_kernels(name):
    model = make(name)
    instrument, rows = Instrument(model), []

    def observe(seen):
        layer = LayerContributions(instrument, seen.layer, N, whole=False)
        rows.extend(kernel for _, _, kernel in layer.kernels(seen))

    instrument.measure(prompts(2), observe)
    for kernel in rows:
        torch.testing.assert_close(kernel.sum(-1), torch.ones(len(kernel)))
        assert (kernel >= 0).all()


def test_a_gate_that_the_row_forgets_is_refused():
    instrument = Instrument(make("qwen3_next"))
    instrument.family = replace(instrument.family, gate=None)
    with pytest.raises(ValueError, match=r"^self-check of the parts of layer 1: .* as attention of qwen3_next"):
        check.check_instrument(instrument, prompts(1, 20)[0])


def test_a_mixer_whose_parts_do_not_add_up_is_refused(monkeypatch):
    own = mamba2.StateSpace.weights

    def wrong(self, queries):
        return own(self, queries) * 1.5 - 0.5 * torch.eye(queries.stop)[queries]

    monkeypatch.setattr(mamba2.StateSpace, "weights", wrong)
    with pytest.raises(
        ValueError, match=r"^self-check of the parts of layer 0: .* mamba2 of granitemoehybrid .* of a off"
    ):
        posbias.open(make("granitemoehybrid")).measure(prompts=2, length=12, rule="random", quantities="mixing")


@pytest.mark.parametrize("name", EVERY)
def test_what_needs_attention_in_every_layer_says_so_in_a_line(name, tmp_path):
    asked = "kernels,content,logits,heads,branches,ladder,contributions,use"
    found = posbias.open(make(name)).measure(prompts=3, length=12, batch_size=2, rule="random", quantities=asked)
    kept = posbias.load(found.save(tmp_path / "m.nc"))
    attrs = kept.provenance
    why = attrs["no_attention"]
    assert why.startswith("layers without attention (") and why.endswith(" in 2 of 3)")
    wanted = {"kernels", "content", "logits", "heads", "branches", "ladder"}
    assert {name[3:] for name in attrs if name.startswith("no_")} == {*wanted, "attention"}
    assert kept.variants == ("contributions", "contributions-own")
    for predictor in PREDICTORS.values():
        if predictor.needs and predictor.name not in kept.variants:
            assert advice(kept.results, predictor.name) == f"none of a model with {why}"
    assert f"ladder: none, of a model with {why}" in repr(kept)
    assert "slopes" not in kept.results and kept.mixing.shape == (3,)
    np.testing.assert_allclose(kept.results["contributions"].values.sum(-1), 1, rtol=1e-5)
    assert kept.report(tmp_path / "r.html").stat().st_size > 10_000


def test_a_bias_for_layers_without_attention_is_refused():
    model = posbias.open(make("lfm2"))
    with pytest.raises(ValueError, match="^layer: expected attention in every layer, received short convolution"):
        model.measure(prompts=2, length=12, rule="random", condition='bias:{"kind": "log", "alpha": 1}')


def test_without_a_gate_heads_take_the_shorter_way():
    """The gated sum over channels, with a gate of ones, against the sum over heads."""
    kept = {}
    instrument = Instrument(make("llama"))

    def observe(seen):
        ones = replace(seen, gate=torch.ones(*seen.stream.shape[:2], 32))
        both = (next(iter(instrument.mixer(0).prompts(x))) for x in (seen, ones))
        kept.setdefault(seen.layer, [made.parts(slice(0, N)) for made in both if isinstance(made, Heads)])

    instrument.measure(prompts(1), observe)
    torch.testing.assert_close(*kept[0])
