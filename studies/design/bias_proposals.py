"""Biases for a given model to try: what the engine would choose of each kind, at several strengths."""

from __future__ import annotations

from typing import Any

import numpy as np

from posbias import errors
from posbias.design.choice import (
    KINDS,
    SMOOTH,
    Attended,
    Description,
    chosen_bias,
    exponent,
    flat_share,
    power,
)
from posbias.rollout.position_bias import AlibiBias, described, position_bias

STRONGEST = 1.5
"""Largest strength of a bias that is proposed: 1 is what the engine expects to be best."""

Setting = tuple[float, ...]


def proposed(model: Attended, evaluations: int) -> dict[Setting, Description]:
    """Return biases for a model to try, by the number of the proposal and its strength: exactly as many as asked for.

    Proposals are the kinds of :data:`~posbias.design.choice.KINDS` in their order, numbered from 0. Exponents and
    slopes are multiplied by a strength; that of flat logits is the share of heads that have them, each share with a
    cut-off of its own; there are at most a quarter as many shares as proposals.

    Parameters
    ----------
    model
        What was measured.
    evaluations
        How many.

    Raises
    ------
    ValueError
        For fewer than one of each kind.
    """
    numbers = {kind: k for k, kind in enumerate(KINDS)}
    evaluations = errors.positive_integer("evaluations", evaluations, minimum=len(KINDS))
    H = model.heads
    shares = np.unique(np.linspace(H, 1, max(1, min(H, evaluations // 4))).astype(int))
    found: dict[Setting, Description] = {}
    for kind, few in zip(SMOOTH, np.array_split(np.arange(evaluations - shares.size), len(SMOOTH)), strict=True):
        best = chosen_bias(model, kind).description
        for strength in np.linspace(0, STRONGEST, few.size + 1)[1:].tolist():
            found[float(numbers[kind]), strength] = strengthened(best, strength)
    for share in shares.tolist():
        found[float(numbers["flat"]), share / H] = flat_share(model, share).description
    return found


def strengthened(description: Any, strength: float) -> Any:
    """Return a description of exponents and slopes with these multiplied by a strength.

    >>> strengthened([{"kind": "log", "alpha": 2.0}, {"kind": "none"}], 0.5)
    [{'kind': 'log', 'alpha': 1.0}, {'kind': 'none'}]
    """
    if isinstance(description, list):
        return [strengthened(part, strength) for part in description]
    bias = position_bias(description)
    alpha = exponent(bias)
    if alpha is not None:
        return described(power(alpha * strength))
    return described(AlibiBias(bias.slope * strength) if isinstance(bias, AlibiBias) else bias)
