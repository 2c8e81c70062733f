"""Untrained networks of real architectures, and a small one of every family: measured, and what is predicted of them.

An entry holds one architecture on one kind of prompt, for several seeds of the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr

from posbias import errors
from posbias.measure.session import Session
from posbias.models.families import family_of
from posbias.settings import Settings
from studies.interventions import replaced_rope
from studies.sizes import BODIES, Size, Untrained
from studies.untrained_profiles import SEEDS, of_seeds, read_network

LAYERS, WIDTH, HEADS, TOKENS = 12, 256, 8, 2048
WINDOW = 64
"""Tokens of a sliding window, where the family has one."""

_COMMON = {"vocab_size": TOKENS, "hidden_size": WIDTH, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
_USUAL = {**_COMMON, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "max_position_embeddings": 2048}
_GATED = {**_USUAL, "num_key_value_heads": 2, "intermediate_size": 688}
_PLAIN = {**_USUAL, "intermediate_size": 4 * WIDTH}
_GPT = {"vocab_size": TOKENS, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "bos_token_id": 0, "eos_token_id": 0}
_HEAD = {"head_dim": WIDTH // HEADS}
_OWN = "ours: the family's defaults at this size"

SMALL: Mapping[str, Size] = {
    "bloom": BODIES["bloom-12x256"],
    "mpt": Size("mpt", {"vocab_size": TOKENS, "d_model": WIDTH, "n_layers": LAYERS, "n_heads": HEADS}, _OWN),
    "falcon": Size("falcon", {**_USUAL, "alibi": True, "multi_query": False, "parallel_attn": False}, _OWN),
    "falcon-parallel": Size("falcon", {**_USUAL, "new_decoder_architecture": True, "num_kv_heads": 2}, _OWN),
    "llama": BODIES["llama-12x256"],
    "mistral": Size("mistral", {**_GATED, "sliding_window": WINDOW}, _OWN),
    "qwen2": Size("qwen2", _GATED, _OWN),
    "qwen3": Size("qwen3", {**_GATED, **_HEAD}, _OWN),
    "gemma": Size("gemma", {**_GATED, **_HEAD}, _OWN),
    "gemma2": Size("gemma2", {**_GATED, **_HEAD, "sliding_window": WINDOW}, _OWN),
    "phi": Size("phi", _PLAIN, _OWN),
    "gpt_neox": Size("gpt_neox", _PLAIN, _OWN),
    "gptj": Size("gptj", {**_GPT, "rotary_dim": WIDTH // HEADS}, _OWN),
    "gpt2": Size("gpt2", _GPT, _OWN),
    "opt": Size("opt", {**_USUAL, "ffn_dim": 4 * WIDTH, "word_embed_proj_dim": WIDTH}, _OWN),
}
"""One small network of every family, 12 layers of width 256: the law is held to its figures here."""


@dataclass(frozen=True)
class Small(Untrained):
    """Name a network of :data:`SMALL`, whose weights are drawn; its prompts are random tokens.

    >>> Small("gpt2").config().n_layer
    12
    """

    def read_config(self) -> Any:
        """Return the configuration."""
        return SMALL[self.model].config()

    def name(self) -> str:
        """Return what the network is called in results."""
        return f"{self.model}, {LAYERS} layers of width {WIDTH} (untrained)"


def measure_untrained(
    settings: Settings, *, unrotated: bool = False, random_output: bool = False, seeds: int = SEEDS
) -> xr.Dataset:
    """Measure untrained networks of one architecture and compute what is predicted for them.

    ``unrotated`` leaves queries and keys without their rotation; ``random_output`` measures the gradient of a random
    combination of logits too: the most likely token depends on the weights where embeddings are tied. The seed of a
    network also draws its random prompts. Of influence the mean over prompts is kept.
    """
    if not isinstance(settings.source, Untrained):
        raise errors.invalid("source", "an untrained network", settings.source.model)
    config = settings.source.config()
    position = family_of(config).position_of(config)
    if unrotated and position != "rotary":
        raise errors.invalid("model", "one with rotary positions, to leave them out", f"{position} positions")
    found = []
    for seed in range(seeds):
        study = Session(replace(settings, source=replace(settings.source, seed=seed), seed=seed))
        with replaced_rope(study.instrument, "identity") if unrotated else nullcontext():
            found.append(read_network(study, random_output=random_output))
    data = of_seeds(xr.concat(found, "seed"), study, seeds).assign_attrs(unrotated=int(unrotated))
    for name in {"influence_prompts", "influence_random"} & set(data):
        data[name.removesuffix("_prompts")] = data[name].astype(np.float64).mean("prompt", keep_attrs=True)
    return data.drop_vars("influence_prompts")
