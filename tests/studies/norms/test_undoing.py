"""Undoing the norm takes the recency from a network whose recency is the norm's work."""

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from posbias.measure.instrument import Instrument
from studies.norms.measure import PARTS, read_recency, read_sizes, replaced_denominators
from studies.norms.simulated import N, random_tokens


def identity_network(embeddings, layers, length):
    """Return x ← x + A u, u = LayerNorm(x), A = softmax(u uᵀ/√D) on j ≤ i: GPT-2 with identities for projections."""
    v, D = embeddings.shape
    config = GPT2Config(
        vocab_size=v, n_embd=D, n_layer=layers, n_head=1, n_inner=1, n_positions=length, layer_norm_epsilon=1e-12,
        bos_token_id=None, eos_token_id=None, attn_implementation="eager",
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        for parameter in model.transformer.h.parameters():
            parameter.zero_()
        model.transformer.wte.weight.copy_(torch.from_numpy(embeddings))
        model.transformer.wpe.weight.zero_()
        for layer in model.transformer.h:
            layer.ln_1.weight.fill_(1.0)
            layer.attn.c_attn.weight.copy_(torch.eye(D).repeat(1, 3))
            layer.attn.c_proj.weight.copy_(torch.eye(D))
    return model.eval()


def test_keys_of_one_size_are_not_recent():
    sequences, width = 400, 16
    X = random_tokens(np.random.default_rng(0), width, 0.5, sequences)
    instrument = Instrument(identity_network(X.reshape(-1, width), 4, N))
    ids, queries = np.arange(sequences * N).reshape(sequences, N), np.arange(2, N)
    sizes = read_sizes(instrument, ids, sequences)[:, :, PARTS.index("input")].astype(float)
    course = np.exp(np.log(sizes).mean(0))
    intact = read_recency(instrument, ids, queries, sequences).preference[:, 1]
    with replaced_denominators(instrument, course, "k"):
        undone = read_recency(instrument, ids, queries, sequences).preference[:, 1]
    error = intact.std() / np.sqrt(sequences), undone.std() / np.sqrt(sequences)
    assert intact.mean() > 0.5 + 8 * error[0] and abs(intact.mean() - 0.59) < 0.005  # the page's
    assert abs(undone.mean() - 0.5) < 4 * error[1]
