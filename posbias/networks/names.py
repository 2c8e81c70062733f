"""Names of the supported model families, for what is refused before anything heavy is loaded."""

from __future__ import annotations

from typing import Any

from posbias import errors

FAMILY_NAMES = (
    "bloom", "mpt", "falcon", "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "phi", "gpt_neox", "gptj",
    "gpt2", "opt",
)  # fmt: skip
"""Supported architectures: the names of :data:`~posbias.networks.families.FAMILIES`."""


def check_family(model_type: Any) -> None:
    """Raise ValueError unless an architecture is supported, with those that are."""
    if model_type not in FAMILY_NAMES:
        received = str(model_type)[:60] if model_type else "no model_type"
        raise errors.invalid("architecture", f"one of {', '.join(FAMILY_NAMES)}", received)
