"""Gradients along the residual stream, around and through each attention, against passes with a way cut; by hops."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from measuring import CONFIGS, make, prompts, save, write_documents
from torch.overrides import TorchFunctionMode

from posbias.measure.corpus import Corpus
from posbias.measure.instrument import SOFTMAX, Instrument
from posbias.measure.loading import Source
from posbias.measure.run import measured
from posbias.measure.settings import Settings
from studies.ladder.gradients import gradient_by_hops, influence_past_final_norm, measure_hops, read_streams

EVERY = sorted(set(CONFIGS) - {"gpt2-inverse-layer"})  # which wants 32 bits; the way through it is gpt2's
SOME = ["bloom", "falcon-rotary", "llama", "gpt2", "gpt_neox", "gemma2"]


def instrument(name):
    return Instrument(make(name, dtype=torch.float64))


def probability(ours, ids):
    return ours.logits(ours.embeddings(ids)).softmax(-1).amax(-1).sum()


def stream_gradient(ours, ids, t, *, through=True):
    """Return ∂p/∂x_t from a pass in which x_t is a leaf, with or without the way through the attention of layer t."""
    leaf = []

    def enter(module, args, kwargs):
        x = (args[0] if args else kwargs["hidden_states"]).detach().requires_grad_(True)
        leaf.append(x)
        return ((x, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": x})

    def cut(module, args, output):
        return (output[0].detach(), *output[1:]) if isinstance(output, tuple) else output.detach()

    handles = [ours.layers[t].register_forward_pre_hook(enter, with_kwargs=True)]
    if not through:
        handles.append(ours.family.output_of(ours.layers[t]).register_forward_hook(cut))
    (gradient,) = torch.autograd.grad(probability(ours, ids), leaf)
    for handle in handles:
        handle.remove()
    return gradient


@pytest.mark.parametrize("name", EVERY)
def test_what_goes_around_and_through_each_attention(name):
    ours, ids = instrument(name), prompts(B=2)
    reading = read_streams(ours, ids)
    assert torch.allclose(reading.influence, ours.measure(ids).influence, rtol=1e-5, atol=1e-12)
    for t in range(ours.T):
        whole, around = stream_gradient(ours, ids, t), stream_gradient(ours, ids, t, through=False)
        scale = whole.norm(dim=-1).max()
        for ours_, oracle in ((reading.entering, whole), (reading.around, around), (reading.branch, whole - around)):
            assert (ours_[t] - oracle.norm(dim=-1)).abs().max() < 1e-5 * scale


@pytest.mark.parametrize("name", SOME)
def test_what_the_branch_adds_along_the_gradient(name):
    """∂p by a factor on a token's attention output is g·a of that token."""
    ours, ids = instrument(name), prompts(B=2)
    reading = read_streams(ours, ids)
    for t in range(ours.T):
        factor = torch.ones(*ids.shape, 1, dtype=torch.float64, requires_grad=True)

        def scale(module, args, output, factor=factor):
            return (output[0] * factor, *output[1:]) if isinstance(output, tuple) else output * factor

        handle = ours.family.output_of(ours.layers[t]).register_forward_hook(scale)
        (along,) = torch.autograd.grad(probability(ours, ids), factor)
        handle.remove()
        assert torch.allclose(along[..., 0].abs(), reading.along_branch[t], rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("name", SOME)
def test_nothing_is_left_behind(name):
    ours, ids = instrument(name), prompts(B=1)
    before = ours.measure(ids).influence
    reading = read_streams(ours, ids)
    assert torch.equal(ours.measure(ids).influence, before)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in ours.model.modules())
    assert not reading.entering[-1, :, :-1].any() and reading.entering[-1, :, -1].min() > 0
    assert (reading.entering[:-1] <= (reading.around + reading.branch) * (1 + 1e-9) + 1e-15).all()


def test_in_a_serial_model_the_rest_is_the_gradient_at_the_branch():
    reading = read_streams(instrument("llama"), prompts(B=2))
    assert torch.allclose(reading.around, reading.added, rtol=1e-9, atol=1e-15)
    parallel = read_streams(instrument("gpt_neox"), prompts(B=2))
    assert torch.allclose(parallel.entering[1:], parallel.added, rtol=1e-9, atol=1e-15)
    assert not torch.allclose(parallel.around, parallel.added, rtol=1e-2)


class Replayed(TorchFunctionMode):
    """Record what softmax gives, then give it again whatever the logits are."""

    def __init__(self):
        super().__init__()
        self.kept, self.turn = [], None

    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func not in SOFTMAX:
            return out
        if self.turn is None:
            self.kept.append(out.detach())
            return out
        self.turn += 1
        return self.kept[self.turn - 1]


@pytest.mark.parametrize("name", ["bloom", "gemma2"])
def test_values_alone_against_differences(name):
    """The gradient with fixed weights, from differences of p in a model whose attention weights are replayed."""
    ours, ids, position, step = instrument(name), prompts(B=1), 5, 1e-3  # norms and softmax have 32 bits
    e = ours.embeddings(ids)
    replay, changes = Replayed(), []
    with torch.no_grad():
        with replay:
            ours.logits(e)
        for d in range(e.shape[-1]):
            there = []
            for sign in (1, -1):
                moved = e.clone()
                moved[0, position, d] += sign * step
                replay.turn = 0
                with replay:
                    logits = ours.logits(moved)
                there.append(logits.softmax(-1).amax(-1)[0])
            changes.append((there[0] - there[1]) / (2 * step))
    size = read_streams(ours, ids, values_only=True).influence[0, position]
    assert torch.stack(changes).norm().item() == pytest.approx(size.item(), rel=3e-3)
    assert abs(size / read_streams(ours, ids).influence[0, position] - 1) > 2e-2


@pytest.mark.parametrize("name", SOME)
def test_behind_the_last_layer_only_the_last_token_counts(name):
    ours, ids = instrument(name), prompts(B=2)
    past, elsewhere = influence_past_final_norm(ours, ids)
    assert not elsewhere.any()
    assert past.min() > 0 and not torch.allclose(past, ours.measure(ids).influence, rtol=1e-3)


def test_without_a_final_norm_nothing_is_left_out():
    ours, ids = instrument("llama"), prompts(B=2)
    ours.model.model.norm = torch.nn.Identity()
    assert torch.allclose(influence_past_final_norm(ours, ids)[0], read_streams(ours, ids).influence, rtol=1e-9)


def test_refuses_a_head_of_another_width():
    with pytest.raises(ValueError, match="output embedding of width 32"):
        influence_past_final_norm(instrument("opt-projected"), prompts(B=1))


@pytest.mark.parametrize("name", SOME)
def test_hops_add_up_to_the_gradient_and_none_reaches_the_last_token_only(name):
    ours, ids = instrument(name), prompts(B=2)
    parts = gradient_by_hops(ours, ids)
    reading = ours.measure(ids)
    assert parts.shape[:3] == (4, 2, ids.shape[1])
    assert torch.allclose(parts.sum(0).norm(dim=-1), reading.influence, rtol=1e-5, atol=1e-9)
    assert not any(m._forward_hooks for m in ours.model.modules())
    size = parts.norm(dim=-1)
    assert not size[0, :, :-1].any() and size[0, :, -1].min() > 1e-6 * size.max()
    assert size[1:, :, :-1].amax(dim=(1, 2)).min() > 0


def test_one_branch_alone_is_the_part_of_one_hop():
    """With the branches of all layers but one cut off, what is left beside no hop is that layer's share of one hop."""
    ours, ids = instrument("bloom"), prompts(B=1)
    parts = gradient_by_hops(ours, ids)
    total = torch.zeros_like(parts[1])
    for t in range(ours.T):
        cut = [o for k, o in enumerate(ours.family.output_of(layer) for layer in ours.layers) if k != t]
        handles = [o.register_forward_hook(lambda module, arguments, output: output.detach()) for o in cut]
        x = ours.embeddings(ids).requires_grad_(True)
        p = ours.model(inputs_embeds=x).logits[:, -1].softmax(-1).amax(-1).sum()
        (gradient,) = torch.autograd.grad(p, x)
        total += gradient - parts[0]
        for handle in handles:
            handle.remove()
    assert torch.allclose(total, parts[1], rtol=1e-4, atol=1e-8)


def test_a_measurement_by_hops_adds_up(tmp_path):
    source, corpus = (
        Source(str(save(tmp_path / "model", "bloom"))),
        Corpus(str(write_documents(tmp_path / "d.jsonl", [40] * 3))),
    )
    settings = Settings(source, corpus, prompts=3, length=10, batch_size=2)
    hops, whole = measure_hops(settings), measured(settings)
    assert np.allclose(hops["influence"] / hops["influence"].sum(), whole["influence"], atol=1e-6)
    assert (hops["gradient_hops"].sum("hop").values >= hops["influence"].values * (1 - 1e-6)).all()
    assert np.allclose(hops["rollout_hops"].sum(("hop", "position")), 1)
    assert hops.attrs["model"] == "model" and hops.attrs["prompts"] == 3
