"""Biases for a wanted profile."""

from typing import Any

DIGITS = 6
"""Digits of the numbers that are found."""

Description = dict[str, Any] | list[dict[str, Any]] | list[list[dict[str, Any]]]
"""Of biases, as :func:`~posbias.rollout.position_bias.layered_biases` reads it."""


def rounded(x: float) -> float:
    """Return a number with so many digits."""
    return float(f"{x:.{DIGITS}g}")
