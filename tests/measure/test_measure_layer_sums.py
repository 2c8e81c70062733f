"""Sums over prompts against sums done the long way, whatever the batches."""

import numpy as np
import pytest
import torch
from measuring import N, make, prompts

from posbias.measure.instrument import Instrument
from posbias.measure.positions import read_positions
from posbias.measure.traces import LayerSums
from posbias.models import attention

CPU = torch.device("cpu")


ALL = ("kernels", "content", "logits", "heads")


def collected(name, sizes, B=6, n=N, dtype=torch.float32, keep=ALL, implementation="eager"):
    """Return each layer's means after the prompts came in batches of these sizes."""
    instrument = Instrument(make(name, dtype=dtype, attention=implementation))
    layers = [LayerSums(instrument.H, n, CPU, keep) for _ in range(instrument.T)]
    for batch in prompts(B, n).split(sizes):
        instrument.measure(batch, lambda seen: layers[seen.layer].add(seen))
    positions = read_positions(instrument, n)
    return [layer.means(B, int(positions.reach[t])) for t, layer in enumerate(layers)]


@pytest.mark.parametrize("name", ["bloom", "mpt", "falcon-alibi", "mistral", "gemma2"])
@pytest.mark.parametrize(("entries", "heads"), [(1, True), (10**6, False)])
def test_means_are_those_of_the_prompts_one_by_one(name, entries, heads, monkeypatch):
    monkeypatch.setitem(attention.MOST_ENTRIES, "cpu", entries)  # eight queries in a block, or all
    instrument = Instrument(make(name))
    content, weights = [], []

    def observe(seen):
        content.append(torch.where(seen.allowed, seen.content().double(), torch.nan).numpy())
        weights.append(seen.probabilities.double().numpy())

    instrument.measure(prompts(6), observe)
    content, weights = content[::-1], weights[::-1]
    eye = np.eye(N, dtype=bool)
    for t, means in enumerate(collected(name, [4, 2], keep=ALL if heads else ALL[:3])):
        assert np.allclose(means["content_logits"], content[t].mean(0), atol=2e-6, equal_nan=True)
        assert ("attention_heads" in means) == heads
        if heads:
            assert np.allclose(means["attention_heads"], weights[t].mean(0), atol=1e-7)
        assert np.allclose(means["attention"], weights[t].mean((0, 1)), atol=1e-7)
        off = content[t][..., ~eye]
        assert np.allclose(means["content_diagonal"], content[t][..., eye].mean((0, 2)), atol=2e-6)
        assert np.allclose(means["content_offdiagonal"], np.nanmean(off, axis=(0, 2)), atol=2e-6)


def same(one, two, keys=None, off=1e-6):
    """Assert that layers' means agree."""
    for first, second in zip(one, two, strict=True):
        assert first.keys() == second.keys() if keys is None else keys <= first.keys() & second.keys()
        for key in first if keys is None else keys:
            assert np.allclose(first[key], second[key], atol=off, rtol=1e-5, equal_nan=True), key


@pytest.mark.parametrize("name", ["bloom", "mistral", "falcon-alibi"])
def test_the_batch_size_and_what_else_is_kept_make_no_difference(name):
    one = collected(name, 1)
    for sizes in (6, [5, 1]):
        same(one, collected(name, sizes))
    for keep in (("kernels", "content"), ("kernels",), ("content",)):
        lean = collected(name, 3, keep=keep)
        found = [name in lean[0] for name in ("attention", "content_diagonal", "content_logits")]
        assert found == ["kernels" in keep, "content" in keep, False]
        same(lean, one, lean[0].keys())


@pytest.mark.parametrize("limit", [1, 2 * 4 * N * N, 10**6])
def test_entries_are_taken_in_pieces_without_a_difference(monkeypatch, limit):
    monkeypatch.setitem(attention.ENTRIES, "cpu", limit)
    pieces = collected("bloom", 5)
    monkeypatch.undo()
    same(pieces, collected("bloom", 5))


@pytest.mark.parametrize("name", ["llama", "mistral", "falcon-alibi", "gpt2", "qwen2"])
@pytest.mark.parametrize("entries", [1, 10**6])
def test_a_fused_kernels_weights_and_logits_are_the_eager_ones(name, entries, monkeypatch):
    monkeypatch.setitem(attention.MOST_ENTRIES, "cpu", entries)
    fused = collected(name, 4, n=40, implementation="sdpa")
    same(fused, collected(name, 4, n=40), off=2e-5)


@pytest.mark.parametrize(("name", "implementation"), [("bloom", "eager"), ("mistral", "sdpa"), ("gpt2", "sdpa")])
def test_prompts_own_rollouts_are_products_of_their_own_kernels(name, implementation, monkeypatch):
    monkeypatch.setitem(attention.MOST_ENTRIES, "cpu", 1)
    instrument, n = Instrument(make(name, attention=implementation)), 20
    layers = [LayerSums(instrument.H, n, CPU, ("kernels",), matrices=False) for _ in range(instrument.T)]
    ids = prompts(3, n)
    carried, kernels = torch.zeros(3, n), {}
    carried[:, -1] = 1.0

    def observe(seen):
        nonlocal carried
        carried = layers[seen.layer].add(seen, carried)
        kernels[seen.layer] = seen.block(slice(0, 3), slice(0, n), content=False)[1].mean(1).double().numpy()

    found = instrument.measure(ids, observe)
    for b in range(3):
        P = np.eye(n)
        for t in range(instrument.T):
            mixing = float(found.lambda_frobenius[b, t])
            P = (1 - mixing) * P + mixing * kernels[t][b] @ P
        assert np.allclose(carried[b], P[-1], atol=1e-6)
