"""What transformers makes of an architecture, by its own tables: a causal language model, another kind, or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Kind = Literal["causal", "encoder", "encoder-decoder", "other", "unknown"]
"""``other`` is no language model."""


def kind_of(fields: Mapping[str, Any]) -> Kind:
    """Return what the fields of a ``config.json`` describe.

    >>> [kind_of({"model_type": name}) for name in ("persimmon", "modernbert", "t5", "vit", "no such")]
    ['causal', 'encoder', 'encoder-decoder', 'other', 'unknown']
    """
    from transformers.models.auto import modeling_auto
    from transformers.models.auto.auto_mappings import CONFIG_MAPPING_NAMES

    name = str(fields.get("model_type"))
    if "AutoModelForCausalLM" in (fields.get("auto_map") or {}):
        return "causal"  # by code of its own
    if name not in {*CONFIG_MAPPING_NAMES, "gpt-sw3"}:
        return "unknown"
    if fields.get("is_encoder_decoder", name in modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES):
        return "encoder-decoder"
    if name in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES and not fields.get("is_decoder"):
        return "encoder"
    return "causal" if name in {*modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *left_out()} else "other"


def left_out() -> dict[str, str]:
    """Return the classes of causal models that transformers lists by architecture elsewhere, as Mistral 4's."""
    from transformers.models.auto import modeling_auto

    causal = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    found = modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    return {name: x for name, x in found.items() if str(x).endswith("ForCausalLM") and name not in causal}


def causal_class(config: Any) -> Any:
    """Return ``AutoModelForCausalLM``, which knows the architecture of this configuration from now on.

    >>> from transformers import GPT2Config
    >>> causal_class(GPT2Config()).__name__
    'AutoModelForCausalLM'
    """
    import transformers

    if (name := left_out().get(config.model_type)) is not None:
        transformers.AutoModelForCausalLM.register(type(config), getattr(transformers, name), exist_ok=True)
    return transformers.AutoModelForCausalLM
