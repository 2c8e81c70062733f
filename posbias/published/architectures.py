"""What the architectures do with slopes and scales, and configurations corrected accordingly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from posbias import errors
from posbias.published.configuration import AttentionConfig, ContentConfig, RolloutConfig
from posbias.rollout.logits import alibi_slopes


@dataclass(frozen=True)
class LogitConvention:
    """Say how a family forms its attention logits."""

    content_scaled: bool  # Whether q·k is divided by √(head size)
    position_scaled: bool  # Whether the ALiBi term is divided by √(head size) too


CONVENTIONS: dict[str, LogitConvention] = {
    "bloom": LogitConvention(content_scaled=True, position_scaled=False),
    "mpt": LogitConvention(content_scaled=True, position_scaled=False),
    "falcon": LogitConvention(content_scaled=True, position_scaled=True),
}
"""One row a family; read in the transformers implementations of BLOOM, MPT and Falcon (ALiBi)."""


def architecture_faithful(
    config: RolloutConfig, architecture: str, head_dim: int, *, slopes: bool = True, content: bool = True
) -> RolloutConfig:
    """Return ``config`` with what the architecture does in place of what the file assumes."""
    if architecture not in CONVENTIONS:
        raise errors.invalid("architecture", f"one of {', '.join(CONVENTIONS)}", architecture)
    scale = 1 / np.sqrt(errors.positive_integer("head_dim", head_dim))
    convention = CONVENTIONS[architecture]
    update: dict[str, AttentionConfig | ContentConfig] = {}
    if slopes:
        m = alibi_slopes(config.attention_config.num_heads) * (scale if convention.position_scaled else 1.0)
        update["attention_config"] = config.attention_config.model_copy(update={"alibi_slopes": [m.tolist()]})
    if content and convention.content_scaled:
        update["content_config"] = ContentConfig(
            diagonal_scores=_scaled(config.content_config.diagonal_scores, scale),
            base_scores=_scaled(config.content_config.base_scores, scale),
        )
    return config.model_copy(update=update)


def _scaled(rows: list[list[float]], factor: float) -> list[list[float]]:
    return [[factor * x for x in row] for row in rows]
