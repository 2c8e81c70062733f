"""Gradients along the residual stream, around and through each attention, against passes with a way cut."""

import pytest
import torch
from measuring import OF_THE_BOOK, make, prompts
from torch.overrides import TorchFunctionMode

from posbias.measure.instrument import Instrument
from posbias.models.watch import SOFTMAX
from studies.ladder.gradients import read_streams

EVERY = sorted(set(OF_THE_BOOK) - {"gpt2-inverse-layer"})  # which wants 32 bits; the way through it is gpt2's
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
def test_nothing_is_left_behind(name):
    ours, ids = instrument(name), prompts(B=1)
    before = ours.measure(ids).influence
    reading = read_streams(ours, ids)
    torch.testing.assert_close(ours.measure(ids).influence, before)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in ours.model.modules())
    assert not reading.entering[-1, :, :-1].any() and reading.entering[-1, :, -1].min() > 0
    assert (reading.entering[:-1] <= (reading.around + reading.branch) * (1 + 1e-9) + 1e-15).all()


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
