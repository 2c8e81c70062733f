"""The network that is trained: transformers' Llama of a small size, with rotary positions or given biases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils import logging

from studies.biased import FIELD, attach_biases
from studies.lookup.prompts import vocabulary
from studies.lookup.settings import Setting
from studies.rotation import NO_ROTATION, THETA


def untrained(setting: Setting, seed: int, attention: str = "sdpa") -> PreTrainedModel:
    """Return the network before training: weights of standard deviation 1/√d, so that attention matters from the start.

    Where a pair is one token, embeddings are sums of the normal vectors of what the token names: of its key and its
    value, or of its key and of asking; all of them are trained. Attention is ``sdpa``, fused, or ``eager``.
    """
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(
            _config(setting), attn_implementation=attention, dtype=torch.float32
        )
        attach_biases(model)
        if setting.tokens == 1:
            K, V, d = setting.keys, setting.values, setting.width
            keys, values, asking = (torch.randn(size, d) * (2 * d) ** -0.5 for size in (K, V, 1))
            embed: Any = model.get_input_embeddings()
            with torch.no_grad():
                embed.weight[: K * V] = (keys[:, None] + values).flatten(0, 1)
                embed.weight[K * V : K * V + K] = keys + asking
    return model


def value_logits(model: PreTrainedModel, setting: Setting, ids: Int[Tensor, "B N"]) -> Float[Tensor, "B V"]:
    """Return the logits of the values after the last token."""
    out: Tensor = model(input_ids=ids, use_cache=False, logits_to_keep=1).logits[:, -1, -setting.values :]
    return out


def save(model: PreTrainedModel, setting: Setting, folder: Path) -> None:
    """Write a network and its tokenizer, a word a token, to a folder that transformers loads."""
    _quiet()
    model.save_pretrained(folder)
    names = {name: i for i, name in enumerate(vocabulary(setting))}
    tokenizer = Tokenizer(models.WordLevel(names, unk_token=next(iter(names))))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)


def _quiet() -> None:
    """Keep transformers from drawing bars of its own: networks this small are read and written at once."""
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def load(folder: Path, attention: str = "eager") -> PreTrainedModel:
    """Return a network that :func:`save` wrote."""
    _quiet()
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation=attention, dtype=torch.float32
    )
    attach_biases(model)
    return model


def _config(setting: Setting) -> Any:
    rotation = NO_ROTATION
    if setting.encoding == "rope":
        rotation = {"rope_parameters": {"rope_type": "default", "rope_theta": THETA}}
    given = {} if setting.position_bias is None else {FIELD: setting.position_bias}
    return AutoConfig.for_model(
        "llama",
        vocab_size=len(vocabulary(setting)),
        hidden_size=setting.width,
        intermediate_size=2 * setting.width,
        num_hidden_layers=setting.layers,
        num_attention_heads=setting.heads,
        num_key_value_heads=setting.heads,
        max_position_embeddings=setting.tokens * setting.keys + 1,
        initializer_range=setting.width**-0.5,
        tie_word_embeddings=False,
        use_cache=False,
        bos_token_id=None,
        eos_token_id=None,
        **rotation,
        **given,
    )
