"""What transformers makes of an architecture, by its own tables: a causal language model, another kind, or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Kind = Literal["causal", "hybrid", "encoder", "encoder-decoder", "other", "unknown"]
"""``hybrid`` has layers without attention, or no attention at all; ``other`` is no language model."""

NO_ATTENTION = {"linear_attention", "conv", "mamba", "recurrent", "hybrid", "hybrid_sliding", "moe"}
"""What transformers calls layers that have no attention, or something beside it, in ``layer_types``."""
HEADS = {"num_attention_heads", "n_head", "n_heads"}
"""Names of the number of attention heads: a configuration with none of them has no attention."""


def kind_of(fields: Mapping[str, Any]) -> Kind:
    """Return what the fields of a ``config.json`` describe.

    >>> [kind_of({"model_type": name}) for name in ("persimmon", "mamba", "modernbert", "t5", "vit", "no such")]
    ['causal', 'hybrid', 'encoder', 'encoder-decoder', 'other', 'unknown']
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
    if name not in {*modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *left_out()}:
        return "other"
    if kinds := fields.get("layer_types"):
        return "hybrid" if NO_ATTENTION & {*kinds} else "causal"
    words = _words(name)
    return "hybrid" if words and ((NO_ATTENTION - {"moe"}) & words or not HEADS & words) else "causal"


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


def _words(name: str) -> set[str]:
    """Return the names of a configuration's fields, up to their first underscore too, and the texts in it."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.for_model(name).get_text_config(decoder=True)
    except Exception:  # code of others: one without defaults, of which nothing is known
        return set()
    fields = config.to_dict()
    kinds = getattr(config, "layers_block_type", None) or getattr(config, "layer_types", None) or ()
    return {*fields, *config.attribute_map, *(key.split("_")[0] for key in fields), *kinds}
