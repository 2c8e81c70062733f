"""Tiny models with position biases, for the tests of biases that are given and of those that are added."""

import torch
from measuring import N, make, prompts, settings

from posbias.models.biases import bias_hooks, fitting_biases
from posbias.models.families import family_of, text_config
from posbias.models.hooks import attach

FOUR = [
    {"kind": "flat", "tau": 1.5},
    {"kind": "log", "alpha": 1.0},
    {"kind": "alibi", "slope": 0.3},
    {"kind": "log", "alpha": -2.0},
]
LAYERS = [FOUR, FOUR[::-1], [{"kind": "none"}] * 4]


def heads(name):
    return settings(name).num_attention_heads


def described(name):
    """Return a bias of its own for each head."""
    return (FOUR + FOUR)[: heads(name)]


def by_layer(name):
    """Return biases of their own for each layer and head."""
    return [(row + row)[: heads(name)] for row in LAYERS]


def biased(name, description=None, **options):
    """Return a tiny model to which biases are added for good."""
    model = make(name, **options)
    biases = fitting_biases(text_config(model.config), described(name) if description is None else description)
    for attention, hook in bias_hooks(model, biases):
        attach(attention, hook)
    return model


def implementations(name):
    config = settings(name)
    return ("eager", "sdpa") if family_of(config).is_fused(config) else ("eager",)


def logits_of(model, **options):
    with torch.no_grad():
        return model(prompts(), use_cache=False, **options).logits


def first_layer(instrument):
    """Return content and weights of the first layer, (B, H, n, n)."""
    found = {}

    def observe(seen):
        if seen.layer == 0:
            found["content"], found["weights"] = seen.block(slice(None), slice(0, N))
            found["content"], found["weights"] = found["content"].clone(), found["weights"].clone()

    instrument.forward(prompts(), observe)
    return found["content"].double().numpy(), found["weights"].double().numpy()
