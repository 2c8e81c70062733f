"""Parts of what layers add: they add up for every family, and a row that forgets something is refused."""

import json

import pytest
import torch
from measuring import CONFIGS, make, prompts, save
from torch import nn

import posbias
from posbias.measure import check
from posbias.measure.instrument import Instrument
from posbias.models.families import family_of
from posbias.models.hooks import hooked


def compared(model, n=20):
    """Return what the self-check says."""
    return json.loads(check.check_instrument(Instrument(model), prompts(1, n)[0]))


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_parts_and_biases_are_what_each_layer_adds(name):
    """On the check's last tokens, in every layer, a hundredth of what is refused."""
    model, ids = make(name), prompts(1, 20)
    instrument = Instrument(model)
    watch = check.PartsWatch(instrument)
    with hooked([], watch.hooks()):
        instrument.measure(ids, watch.observe)
    assert sorted(watch.off) == list(range(instrument.T))
    assert max(watch.off.values()) < check.SUMS / 100


@pytest.mark.parametrize("name", ["olmo2", "gemma2", "exaone4"])
def test_a_norm_divides_by_the_size_of_heads_and_bias(name):
    """Where a norm follows attention, the output projection's bias is in its denominator and has a part of its own."""
    model = make(name, attention_bias=True)
    projection = model.model.layers[1].self_attn.o_proj
    if projection.bias is None:  # which exaone4's configuration does not give
        projection.bias = nn.Parameter(torch.zeros(len(projection.weight)), requires_grad=False)
    with torch.no_grad():
        projection.bias.add_(torch.randn(len(projection.bias), generator=torch.Generator().manual_seed(2)))
    assert compared(model)["parts"] < check.SUMS / 100
    off = check.PartsWatch(instrument := Instrument(model))
    with hooked([], off.hooks()):
        instrument.measure(prompts(1, 20), off.observe)
    assert off.off[1] < check.SUMS / 100


def test_a_layer_norm_on_the_output_is_seen_and_said(tmp_path):
    """It takes a mean away, which is no token's: contributions are left out, and the rest is measured."""
    model = make("olmo2")
    layer = model.model.layers[1]
    norm = nn.LayerNorm(32, bias=False)
    norm.weight.data.copy_(layer.post_attention_layernorm.weight.data)
    layer.post_attention_layernorm = norm
    instrument = Instrument(model)
    why = "a LayerNorm on attention's output"
    assert [instrument.mixer(t).lacking() for t in range(3)] == [None, why, None]
    _, every = check.compare_model(instrument, prompts(1, 20), 32)
    said = [str(one) for one in every if one.what.startswith("parts")]
    assert [why in one for one in said] == [False, True, False] and all(one.endswith("ok") for one in said)
    found = posbias.open(model).measure(prompts=2, length=12, rule="random", quantities="contributions")
    assert found.provenance["no_contributions"] == why and "contributions" not in found.results
    assert 0 < found.mixing[1] < 1


class Gated(nn.Linear):
    """Multiply what the output projection is given by a gate, as Qwen3-Next's attention does."""

    def forward(self, x):
        return super().forward(x * torch.sigmoid(x))


class Scaled(nn.Linear):
    """Multiply what the output projection gives by a number."""

    def forward(self, x):
        return 0.9 * super().forward(x)


def changed(name, kind, layer):
    """Return a tiny model one of whose output projections works otherwise, which no row says."""
    model = make(name)
    attention = family_of(model.config).attention_of(family_of(model.config).layers(model)[layer])
    attention.o_proj.__class__ = kind
    return model


@pytest.mark.parametrize(
    ("name", "kind"),
    [("llama", Gated), ("phi3", Gated), ("olmo2", Gated), ("deepseek_v3", Gated), ("llama", Scaled)],
)
def test_a_row_that_forgets_a_gate_or_a_factor_is_refused(name, kind):
    model = changed(name, kind, 1)
    wanted = rf"^self-check of the parts of layer 1: expected .* {name} makes them, received \S+ of a off$"
    with pytest.raises(ValueError, match=wanted) as refused:
        compared(model)
    off = float(str(refused.value).split()[-4])
    assert off == pytest.approx(1 / 0.9 - 1, abs=5e-3) if kind is Scaled else 0.1 < off < 2


def test_a_measurement_of_such_a_model_is_refused_and_nothing_is_written(tmp_path):
    model = posbias.open(changed("llama", Gated, 0))
    with pytest.raises(ValueError, match="^self-check of the parts of layer 0"):
        model.measure(prompts=2, length=12, rule="random", quantities="mixing")
    assert not list(tmp_path.iterdir())


def test_weights_that_are_codes_cannot_be_compared_and_it_is_said():
    model = make("llama")
    projection = model.model.layers[1].self_attn.o_proj
    projection.weight = nn.Parameter(projection.weight.detach().to(torch.float8_e4m3fn), requires_grad=False)
    projection.forward = lambda x: nn.functional.linear(x, projection.weight.float())
    _, every = check.compare_model(Instrument(model), prompts(1, 20), 32)
    said = [str(one) for one in every if one.what.startswith("parts")]
    assert [one.endswith("ok") for one in said] == [True, True, True]
    assert "not comparable: attention weights that are codes" in said[1] and "not comparable" not in said[0]


def test_the_file_has_how_far_off_parts_are(tmp_path):
    found = posbias.open(save(tmp_path / "m")).measure(prompts=2, length=12, rule="random", quantities="mixing")
    assert 0 < json.loads(found.provenance["self_check"])["parts"] < check.SUMS / 100


@pytest.mark.parametrize("name", ["llama", "gpt2", "bloom", "deepseek_v3", "granite", "olmo2"])
def test_attention_parts_are_those_of_a_plain_loop(name):
    """T_ij by a loop over heads, queries and keys, of weights that the model itself returns, and of W_O."""
    model, ids, kept = make(name), prompts(1, 6), {}
    instrument = Instrument(model)
    family, t = instrument.family, 1
    layer = instrument.layers[t]

    def observe(seen):
        if seen.layer == t:
            kept["values"] = seen.values[0].double()
            kept["parts"] = next(iter(instrument.mixer(t).prompts(seen))).parts(slice(2, 6)).double()

    instrument.measure(ids, observe)
    weights = model(ids, output_attentions=True, use_cache=False).attentions[t][0].double()
    attention = family.attention_of(layer)
    projection = next(m for m in (getattr(attention, x, None) for x in ("o_proj", "c_proj", "dense")) if m is not None)
    W = projection.weight.detach().double()
    W = W.T if type(projection).__name__ == "Conv1D" else W
    H, n, V = kept["values"].shape
    loop = torch.zeros(n, n, len(W), dtype=torch.float64)
    for i in range(n):
        for j in range(n):
            for h in range(H):
                loop[i, j] += weights[h, i, j] * W[:, h * V : (h + 1) * V] @ kept["values"][h, j]
    if name == "granite":
        loop *= 0.3
    if name == "olmo2":
        norm, total = layer.post_attention_layernorm, loop.sum(1)
        size = (total.square().mean(-1, keepdim=True) + norm.variance_epsilon).sqrt()
        loop = loop * norm.weight.double() / size[:, None]
    torch.testing.assert_close(kept["parts"], loop[2:6].transpose(0, 1).detach(), rtol=1e-5, atol=1e-5)
