"""The first token hidden from all later queries, against a plain computation."""

import numpy as np
import pytest
import torch
from measuring import make, prompts

from studies.sink.measure import hidden_first


def logits(model, ids, **more):
    with torch.no_grad():
        return model(input_ids=ids, use_cache=False, **more).logits


def test_a_hidden_token_is_as_good_as_absent():
    """Rotary positions are relative: without its first token a prompt says the same, one place earlier."""
    model, ids = make("llama").eval(), prompts(2)
    with hidden_first(model):
        found = logits(model, ids)
    assert np.allclose(found[:, 1:], logits(model, ids[:, 1:]), atol=1e-5)
    assert np.allclose(found[:, 0], logits(model, ids)[:, 0], atol=1e-6)
    assert not np.allclose(logits(model, ids)[:, 1:], logits(model, ids[:, 1:]), atol=1e-3)


def test_a_cache_does_not_bring_it_back():
    model, ids = make("llama").eval(), prompts(1)
    with hidden_first(model), torch.no_grad():
        whole = logits(model, ids)
        start = model(input_ids=ids[:, :5], use_cache=True)
        rest = model(input_ids=ids[:, 5:], past_key_values=start.past_key_values, use_cache=True)
    assert np.allclose(rest.logits, whole[:, 5:], atol=1e-5)


def test_attention_without_a_mask_is_refused():
    model = make("llama", attention="sdpa").eval()
    with hidden_first(model), pytest.raises(ValueError, match="eager"):
        logits(model, prompts(1))
