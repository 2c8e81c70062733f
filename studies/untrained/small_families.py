"""One small untrained network of every family, 12 layers of width 256: the law at birth is held to its figures here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from posbias import errors
from posbias.measure.untrained import BODIES, Birth, Size

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
"""Configurations by name: the family, and what is particular."""


@dataclass(frozen=True)
class SmallBirth(Birth):
    """Name a network of :data:`SMALL`, whose weights are drawn; its prompts are random tokens.

    >>> SmallBirth("gpt2").config().n_layer
    12
    """

    def config(self) -> Any:
        """Return the configuration, or raise ValueError for a name that is not in the table."""
        if self.model not in SMALL:
            raise errors.invalid("model", f"one of {'; '.join(SMALL)}", self.model)
        return SMALL[self.model].config()

    def name(self) -> str:
        """Return what the network is called in results."""
        return f"{self.model}, {LAYERS} layers of width {WIDTH} (untrained)"

    def _tokenizer(self) -> str | None:
        return None
