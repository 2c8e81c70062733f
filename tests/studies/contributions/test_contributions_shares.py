"""Shares of parts by every rule, against all parts made one by one; kernels by distance; an entry of a small model."""

import numpy as np
import pytest
import torch
from measuring import N, make, prompts

from posbias.measure.instrument import Instrument
from posbias.models.weights import output_weight
from studies.contributions.measure import RULES, by_distance, kernels_of, without_mlp


def parts_of(reading, instrument):
    """All parts of the first prompt, (query, key, d), and what they and the bias make."""
    attention = instrument.attentions[reading.layer]
    heads = output_weight(attention).unflatten(1, (instrument.H, -1))
    x, v, p = reading.stream[0], reading.values[0], reading.probabilities[0]
    parts = torch.stack([torch.einsum("h,hv,dhv->d", p[:, i, j], v[:, j], heads) for i in range(N) for j in range(N)])
    parts = parts.unflatten(0, (N, N))
    parts[range(N), range(N)] += x
    bias = getattr(instrument.attentions[reading.layer], "c_proj", attention)
    bias = getattr(bias, "bias", None)
    return parts, parts.sum(1) + (0 if bias is None else bias)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_shares_are_those_of_parts_made_one_by_one(name):
    instrument, seen = Instrument(make(name)), []

    def look(reading):
        parts, y = parts_of(reading, instrument)
        (found,) = kernels_of(reading, instrument)
        seen.append(reading.layer)
        norm = torch.linalg.vector_norm
        shorter = (norm(y, dim=-1)[:, None] - norm(y[:, None] - parts, dim=-1)).clamp_min(0)
        expected = {"norms": norm(parts, dim=-1), "2-norm": shorter}
        for rule, share in expected.items():
            share = share / share.sum(-1, keepdim=True)
            torch.testing.assert_close(found[rule], share, rtol=1e-3, atol=2e-4, msg=rule)
        for rule in RULES:
            torch.testing.assert_close(found[rule].sum(-1), torch.ones(N))
        a = y - reading.stream[0]
        torch.testing.assert_close(found["cosine"], torch.cosine_similarity(a, reading.stream[0], dim=-1))

    instrument.measure(prompts(1), look)
    assert sorted(seen) == list(range(instrument.T))


def test_kernels_by_distance():
    C = np.array([[[1.0, 0, 0], [0.2, 0.8, 0], [0.6, 0.1, 0.3]]])
    assert by_distance(C)[0, 2].tolist() == pytest.approx([0.6 / 1.45, 0.15 / 1.45, 0.7 / 1.45])


def test_without_mlps_only_the_residual_and_attention_carry_gradients():
    """With attention's output switched off too nothing reaches earlier tokens."""
    instrument, ids = Instrument(make("gpt2")), prompts(2)
    free, fixed = without_mlp(instrument, ids)
    whole = instrument.measure(ids).influence.sum(0)
    assert (free - whole).abs().max() > 1e-3 * whole.max() and (free - fixed).abs().max() > 0
    with torch.no_grad():
        for attention in instrument.attentions:
            attention.c_proj.weight.zero_()
    free, fixed = without_mlp(instrument, ids)
    assert (free[:-1] == 0).all() and (fixed[:-1] == 0).all() and free[-1] > 0
