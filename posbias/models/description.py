"""What a configuration says of the position biases that a network is given, read and checked without torch.

A ``config.json`` may hold ``position_bias``: a description for all heads, one for each head, or a list of these for
each layer (:mod:`posbias.rollout.position_bias`). Biases take the place of a family's own ALiBi; rotary and learned
positions stay beside them. Rotary positions can be switched off, so that nothing else tells positions apart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from posbias import errors
from posbias.models.families import FAMILIES
from posbias.rollout.position_bias import Biases, describe, layered_biases

FIELD = "position_bias"
"""The field of a configuration that describes given biases."""

THETA = 10_000.0
NO_ROTATION = {"rope_parameters": {"rope_type": "linear", "rope_theta": THETA, "factor": 1e30}}
"""Rotary angles of nothing: cosines of 1, sines below 1e-26, which change no number."""
NOTHING = 1e20
"""Rotary positions that are stretched by more than this turn nothing."""


def biases_of(family: str, description: Any, T: int, H: int | None, where: str = "", field: str = FIELD) -> Biases:
    """Return the biases of a network of T layers and H heads, or raise ValueError for what no network takes.

    >>> biases_of("bloom", [{"kind": "none"}] * 3, 2, 2, "config.json")
    Traceback (most recent call last):
    ValueError: config.json: position_bias: expected one bias, or one for each of 2 heads, received 3
    """
    try:
        if family not in FAMILIES:
            raise errors.invalid(field, "none, or a model whose family has a row", family[:60])
        return layered_biases(description, T, H, field)
    except ValueError as error:
        raise ValueError(f"{where}: {error}" if where else str(error)) from None


def description_text(biases: Biases) -> str:
    """Return a description as one line of JSON, as short as it can be: one bias, those of heads, or of layers.

    >>> from posbias.rollout.position_bias import LogBias
    >>> description_text(((LogBias(1.0), LogBias(1.0)),))
    '{"kind": "log", "alpha": 1.0}'
    """
    rows = biases[:1] if len(set(biases)) == 1 else biases
    if len(rows) > 1:
        return json.dumps([[describe(bias) for bias in row] for row in rows])
    row = rows[0]
    return json.dumps(describe(row[0]) if len(set(row)) == 1 else [describe(bias) for bias in row])


def position_kind(own: str, config: Any) -> str:
    """Return how positions enter: ``given`` where biases replace a network's own, ``rotary and given`` beside them.

    ``none`` where rotation is switched off and nothing is given; ``own`` is the family's kind.
    """
    rotary = getattr(config, "rope_parameters", None)
    still = isinstance(rotary, Mapping) and float(rotary.get("factor") or 1.0) > NOTHING
    off = own == "rotary" and still
    if getattr(config, FIELD, None) is None:
        return "none" if off else own
    return "given" if own == "alibi" or off else f"{own} and given"
