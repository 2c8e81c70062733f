"""What the norms before attention divide by, replacing it, and the recency that is left: on every family."""

import numpy as np
import pytest
import torch
from measuring import OF_THE_BOOK, N, make, prompts

from posbias.measure.instrument import Instrument
from posbias.models.families import output_projection
from posbias.models.norms import centres, denominators
from studies.norms.layernorm_simulation import recency_share
from studies.norms.measure import PARTS, later_preferred, read_recency, read_sizes, replaced_denominators

EVERY = sorted(set(OF_THE_BOOK) - {"opt-projected"})  # which normalises after attention


def ours_of(name, **changes):
    upcast = name == "gpt2-inverse-layer"  # computes its attention in 32 bits and takes no others
    return Instrument(make(name, dtype=torch.float32 if upcast else torch.float64, **changes))


def unnormed(norm, x):
    """Return gain · (x - mean) or gain · x, and the bias or 0."""
    gain = norm.weight + (1 if "Gemma" in type(norm).__name__ else 0)
    bias = getattr(norm, "bias", None)
    return gain * (x - x.mean(-1, keepdim=True) if centres(norm) else x), 0 if bias is None else bias


def attention(instrument, ids):
    """Return content logits, weights and a_t of a forward pass, each (T, B, ...)."""
    seen, branches = [], []

    def keep(module, args, out):
        branches.append((out[0] if isinstance(out, tuple) else out).clone())

    hooks = [instrument.family.output_of(layer).register_forward_hook(keep) for layer in instrument.layers]
    instrument.forward(ids, lambda r: seen.append((r.content().clone(), r.probabilities.clone())))
    for hook in hooks:
        hook.remove()
    return [torch.stack(x) for x in (*zip(*seen, strict=True), branches)]


def courses(instrument, ids):
    """Return what the norms divide by, typically: (T, n)."""
    found = []

    def keep(module, args):
        found.append(denominators(module, args[0])[..., 0].log().mean(0).exp())

    hooks = [instrument.family.norm_of(layer).register_forward_pre_hook(keep) for layer in instrument.layers]
    instrument.forward(ids, lambda reading: None)
    for hook in hooks:
        hook.remove()
    return torch.stack(found).numpy()


@pytest.mark.parametrize("name", EVERY)
def test_the_norm_divides_by_its_denominators_and_feeds_the_projections(name):
    ours, ids = ours_of(name), prompts()
    taken, given = {}, {}
    for t, (layer, module) in enumerate(zip(ours.layers, ours.attentions, strict=True)):
        norm = ours.family.norm_of(layer)
        norm.register_forward_hook(lambda m, args, out, t=t: given.update({t: (m, args[0], out)}))
        for projection in ours.family.projections_of(module):
            projection.register_forward_pre_hook(lambda m, args, t=t: taken.setdefault(t, []).append(args[0]))
    ours.forward(ids, lambda reading: None)
    for t, (norm, x, out) in given.items():
        product, bias = unnormed(norm, x)
        assert torch.allclose(out, product / denominators(norm, x) + bias, atol=1e-5)
        assert len(taken[t]) == len(ours.family.projections) and all(torch.equal(y, out) for y in taken[t])


@pytest.mark.parametrize("name", EVERY)
def test_columns_are_queries_keys_and_values(name):
    """Zeroing what the table calls keys, queries or values zeroes content logits, or what attention averages."""
    ours, ids = ours_of(name), prompts()
    content, A, _ = attention(ours, ids)
    allowed = content[0] > -1e9
    for letter in "qkv":
        hooks, averages = [], []
        module = ours.attentions[0]
        hooks.append(output_projection(module).register_forward_pre_hook(lambda m, args, a=averages: a.append(args[0])))
        for k, projection in enumerate(ours.family.projections_of(module)):

            def zero(m, args, out, k=k, letter=letter):
                letters = ours.family.columns(ours.attentions[0], k, out.shape[-1])
                return out * torch.from_numpy(letters != letter)

            hooks.append(projection.register_forward_hook(zero))
        without, B, _ = attention(ours, ids)
        for hook in hooks:
            hook.remove()
        if letter == "v":
            assert not averages[0].any() and torch.equal(B[0], A[0])
        else:
            assert averages[0].any() and without[0][allowed].abs().max() < 1e-5 < content[0][allowed].abs().max()


@pytest.mark.parametrize("name", ["llama", "qwen3", "gpt2"])
def test_only_the_parts_change_and_no_trace_is_left(name):
    ours, ids = ours_of(name), prompts()
    weights = {key: x.clone() for key, x in ours.model.state_dict().items()}
    rising = np.geomspace(1, 3, N) * np.ones((ours.T, 1))
    before = attention(ours, ids)
    normalised = name == "qwen3"  # normalises queries and keys once more: a factor is lost on the way
    for parts in ("k", "q", "v", "qk", "qkv"):
        for own, typical in ((False, courses(ours, ids)), (True, rising)):
            with pytest.raises(KeyError, match="inside"), replaced_denominators(ours, typical, parts, own=own):
                content, A, branches = attention(ours, ids)
                raise KeyError("inside")
            changed = not torch.allclose(content[0], before[0][0], atol=1e-4)
            assert changed == (bool(set(parts) & set("qk")) and not normalised)
            assert torch.allclose(A[0], before[1][0], atol=1e-6) == (not changed)
            assert not torch.allclose(branches[0], before[2][0], atol=1e-4) or (normalised and "v" not in parts)
            assert all(torch.allclose(x, y, atol=1e-6) for x, y in zip(attention(ours, ids), before, strict=True))
    assert all(torch.equal(x, weights[key]) for key, x in ours.model.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in ours.model.modules())


@pytest.mark.parametrize("name", ["bloom", "gemma"])
def test_what_the_projections_see_is_divided_by_one_number(name):
    ours, ids = ours_of(name), prompts()
    level = np.exp(np.log(courses(ours, ids)).mean(-1))
    seen, inputs = [], []
    first = ours.family.projections_of(ours.attentions[0])[0]
    norm = ours.family.norm_of(ours.layers[0])
    own = first.forward
    first.forward = lambda x: seen.append(x) or own(x)
    norm.register_forward_pre_hook(lambda m, args: inputs.append(args[0]))
    with replaced_denominators(ours, courses(ours, ids), "k"):
        seen.clear(), inputs.clear()
        attention(ours, ids)
    product, bias = unnormed(norm, inputs[0])
    assert len(seen) == 2  # the model's own input, then the replaced one
    assert torch.allclose(seen[1], product / level[0] + bias, atol=1e-4)


@pytest.mark.parametrize("name", ["llama", "gpt2", "falcon-alibi-parallel"])
def test_sizes_are_those_of_the_stream(name):
    ours, ids = ours_of(name), prompts()
    sizes = read_sizes(ours, ids.numpy(), batch_size=2)
    assert sizes.shape == (3, ours.T, len(PARTS), N)
    part = dict(zip(PARTS, sizes.transpose(2, 0, 1, 3), strict=True))
    courses_ = courses(ours, ids)
    assert np.allclose(np.log(part["input"]).mean(0), np.log(courses_), atol=1e-4)
    assert not part["branches"][:, 0].any() and not part["rest"][:, 0].any()
    assert np.allclose(part["branches"][:, 1], part["branch"][:, 0], rtol=1e-5)
    assert (part["input"] <= part["input"][:, :1] + part["branches"] + part["rest"] + 1e-5).all()
    _, A, a = attention(ours, ids)
    measure = a.std(-1, correction=0) if centres(ours.family.norm_of(ours.layers[0])) else a.square().mean(-1).sqrt()
    assert np.allclose(part["branch"], measure.transpose(0, 1), rtol=1e-4)
    if name == "llama":  # what the first layer adds beside its branch is its feed-forward block
        blocks = []
        ours.layers[0].mlp.register_forward_hook(lambda m, args, out: blocks.append(out))
        ours.forward(ids, lambda reading: None)
        assert np.allclose(part["rest"][:, 1], blocks[0].square().mean(-1).sqrt(), rtol=1e-4)


@pytest.mark.parametrize("name", ["bloom", "mistral"])
def test_recency_is_that_of_the_content_logits(name):
    ours, ids = ours_of(name), prompts()
    found = read_recency(ours, ids.numpy(), np.arange(2, N), batch_size=2)
    content, A, _ = attention(ours, ids)
    if name != "mistral":
        expected = recency_share(content.numpy())  # (T, B, H), every triple
        assert np.allclose(found.preference, expected.mean(-1).T)
        j = np.arange(1, N)
        mean = (A.double().numpy()[..., 1:, :] @ np.arange(N)) / j
        assert np.allclose(found.position, mean.mean((-1, -2)).T, atol=1e-5)
    else:  # the slow way, with what the window hides left out
        c = content[1, 2, 3].numpy()
        triples = [(i, j, k) for i in range(2, N) for j in range(i) for k in range(j) if k > i - 5]
        greater, count = sum(c[i, j] > c[i, k] for i, j, k in triples), len(triples)
        allowed = torch.ones(N, N, dtype=torch.bool).tril() & ~torch.ones(N, N, dtype=torch.bool).tril(-5)
        share, _ = later_preferred(content[1], allowed, np.arange(2, N))
        assert float(share[2, 3]) == pytest.approx(greater / count)
        assert np.allclose(found.preference[:, 1], share.mean(-1))
    assert np.isclose(found.loss.mean(), ours.model(ids, labels=ids, use_cache=False).loss, atol=1e-4)
    assert ((found.positive >= 0) & (found.positive <= 1)).all()


def test_three_tokens_by_hand():
    content = torch.tensor([[[[0.0, -9, -9, -9], [1, 0, -9, -9], [2, 1, 0, -9], [3, -1, 2, 0]]]])
    share, above = later_preferred(content, torch.ones(4, 4, dtype=torch.bool).tril(), np.array([2, 3]))
    assert share.item() == pytest.approx(1 / 4) and above.item() == pytest.approx(4 / 5)


def test_a_model_that_normalises_after_attention_is_refused():
    after = Instrument(make("opt-projected"))
    with pytest.raises(ValueError, match="model: expected a norm before attention"):
        replaced_denominators(after, np.ones((3, N))).__enter__()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in after.model.modules())
