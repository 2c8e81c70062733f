"""transformers' class for the causal language model of a configuration, also of those that its table has left out."""

from __future__ import annotations

from typing import Any

import transformers
from transformers import AutoModelForCausalLM

from posbias.models.kinds import left_out


def causal_class(config: Any) -> Any:
    """Return ``AutoModelForCausalLM``, which knows the architecture of this configuration from now on.

    >>> from transformers import GPT2Config
    >>> causal_class(GPT2Config()).__name__
    'AutoModelForCausalLM'
    """
    if (name := left_out().get(config.model_type)) is not None:
        AutoModelForCausalLM.register(type(config), getattr(transformers, name), exist_ok=True)
    return AutoModelForCausalLM
