"""Fused attention: in which families it computes what eager attention does, and that it is refused in the others."""

import pytest
import torch
from measuring import CONFIGS, make, prompts, settings

from posbias.measure.instrument import Instrument
from posbias.models.families import family_of

FUSED = sorted(name for name in CONFIGS if family_of(settings(name)).is_fused(settings(name)))


def logits_and_gradient(model, ids, forward):
    x = model.get_input_embeddings()(ids).detach().requires_grad_(True)
    logits = forward(x)
    (gradient,) = torch.autograd.grad(logits.softmax(-1).amax(-1).sum(), x)
    return logits.detach(), gradient


@pytest.mark.parametrize("name", FUSED)
def test_fused_attention_computes_the_instruments_function(name, n=40):
    eager, fused = make(name, attention="eager").requires_grad_(False), make(name, attention="sdpa")
    ids = prompts(2, n, 3)
    expected = logits_and_gradient(eager, ids, Instrument(eager).logits)
    received = logits_and_gradient(fused, ids, lambda x: fused(inputs_embeds=x, use_cache=False).logits[:, -1])
    for e, r in zip(expected, received, strict=True):
        assert torch.allclose(e, r, rtol=1e-5, atol=2e-5 * max(1.0, e.abs().max().item()))
