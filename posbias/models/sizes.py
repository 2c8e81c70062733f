"""Shapes of networks by name, read without torch: published sizes with the source of each, and two of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Size:
    """Say what a published model's shape is.

    ``family`` is the ``model_type`` of transformers, ``fields`` what differs from the family's defaults there, and
    ``source`` says whose configuration it is, and where its fields were read.
    """

    family: str
    fields: Mapping[str, Any]
    source: str

    def config(self) -> Any:
        """Return the configuration."""
        from transformers import AutoConfig

        return AutoConfig.for_model(self.family, **self.fields)


SIZES: Mapping[str, Size] = {
    "gpt2": Size("gpt2", {}, "openai-community/gpt2, as in nanoGPT's model.py; transformers' defaults"),
    "gpt2-medium": Size("gpt2", {
        "n_embd": 1024, "n_layer": 24, "n_head": 16,
    }, "openai-community/gpt2-medium, as in nanoGPT's model.py"),
    "opt-125m": Size("opt", {}, "facebook/opt-125m, a published copy of its config.json; transformers' defaults"),
    "pythia-160m": Size("gpt_neox", {
        "vocab_size": 50304, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
        "intermediate_size": 3072, "eos_token_id": 0,
    }, "EleutherAI/pythia-160m, as in the repository's models/160M/pythia-160m.yml and LitGPT's config.py"),
    "pythia-410m": Size("gpt_neox", {
        "vocab_size": 50304, "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
        "intermediate_size": 4096, "eos_token_id": 0,
    }, "EleutherAI/pythia-410m, as in the model card's table of sizes and LitGPT's config.py"),
    "bloom-560m": Size("bloom", {
        "hidden_size": 1024, "n_layer": 24, "n_head": 16, "pad_token_id": 3,
    }, "bigscience/bloom-560m, a published copy of its config.json"),
    "qwen2-0.5b": Size("qwen2", {
        "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
        "num_key_value_heads": 2, "max_position_embeddings": 131072, "max_window_layers": 24,
        "rope_theta": 1_000_000.0, "tie_word_embeddings": True, "bos_token_id": 151643, "eos_token_id": 151643,
    }, "Qwen/Qwen2-0.5B, a published copy of its config.json"),
    "falcon-rw-1b": Size("falcon", {
        "vocab_size": 50304, "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 32, "alibi": True,
        "multi_query": False, "parallel_attn": False, "bias": True,
    }, "tiiuae/falcon-rw-1b, a published extract of its config.json; biases follow from KerasHub's number of "
       "parameters, and the ids of start and end tokens are transformers' defaults"),
    "tinyllama-1.1b": Size("llama", {
        "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32,
        "num_key_value_heads": 4, "rms_norm_eps": 1e-5,
    }, "TinyLlama/TinyLlama-1.1B-Chat-v1.0, a published copy of its configuration"),
    "llama-3.2-1b": Size("llama", {
        "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5, "rope_theta": 500_000.0,
        "rope_scaling": {
            "rope_type": "llama3", "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
        },
        "tie_word_embeddings": True, "bos_token_id": 128000, "eos_token_id": 128001,
    }, "meta-llama/Llama-3.2-1B, a published copy of its config.json and LitGPT's config.py"),
    "mpt-125m": Size("mpt", {
        "d_model": 768, "n_heads": 12, "n_layers": 12, "expansion_ratio": 4, "vocab_size": 50368,
    }, "mosaicml/llm-foundry, scripts/train/yamls/pretrain/mpt-125m.yaml; that model learns its positions, "
       "transformers gives every MPT ALiBi instead"),
}  # fmt: skip
"""Published sizes by name, with the source of each."""

_SMALL = {"vocab_size": 2048, "hidden_size": 256, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}

BODIES: Mapping[str, Size] = {
    "bloom-12x256": Size("bloom", {
        **_SMALL, "n_layer": 12, "n_head": 8,
    }, "ours: the family's defaults at this size"),
    "llama-12x256": Size("llama", {
        **_SMALL, "num_hidden_layers": 12, "num_attention_heads": 8, "num_key_value_heads": 2,
        "intermediate_size": 688, "max_position_embeddings": 2048,
    }, "ours: the family's defaults at this size"),
}  # fmt: skip
"""Sizes of ours by name, 12 layers of width 256: bodies for position biases."""
