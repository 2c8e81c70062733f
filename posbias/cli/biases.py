"""The option ``--bias``: a position bias to add to a finished model, in a word or in a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from posbias import errors
from posbias.rollout.position_bias import KINDS, NoBias, layered_biases, position_bias

FIELD = "bias"
"""What the option is called in messages."""
SUFFIXES = (".yaml", ".yml", ".json")
IN_WORDS = tuple(kind for kind, bias in KINDS.items() if kind != "none" and len(fields(bias)) == 1 and kind != "ratio")
"""Kinds that one number describes."""
HELP = (
    "A position bias to add to the model's logits while it works: log:ALPHA, alibi:SLOPE (below 0 favours what is "
    "distant), flat:TAU, or a file (.yaml, .json) with a position_bias, as posbias design --measured writes; none "
    "unless given."
)


@dataclass(frozen=True)
class AddedBias:
    """Hold what ``--bias`` asks for.

    Parameters
    ----------
    description
        As :func:`~posbias.rollout.position_bias.layered_biases` reads it.
    where
        What it is called in messages: the option, or the file and its field.
    file, layers, heads
        The file, and the layers and heads of the model that it was made for; None where it does not say.
    """

    description: Any
    where: str
    file: Path | None = None
    layers: int | None = None
    heads: int | None = None

    def check(self, name: str, layers: int, heads: int) -> None:
        """Raise ValueError unless the bias is one for a model with as many layers and heads."""
        for field, own, there in (("num_layers", self.layers, layers), ("num_heads", self.heads, heads)):
            if own not in (None, there):
                raise errors.invalid(f"{self.file}: {field}", f"{there}, as {name} has", own)
        layered_biases(self.description, layers, heads, self.where)


def read_bias(text: str) -> AddedBias | None:
    """Return the bias that ``--bias`` names, None for ``none``.

    >>> read_bias("log:1.4").description
    {'kind': 'log', 'alpha': 1.4}
    """
    if Path(text).suffix in SUFFIXES:
        return _from_file(Path(text))
    kind, colon, number = text.partition(":")
    if kind == NoBias.kind and not colon:
        return None
    if kind not in IN_WORDS or not colon:
        words = ", ".join(f"{name}:NUMBER" for name in IN_WORDS)
        expected = f"none, {words}, or a file that ends in {', '.join(SUFFIXES)}"
        raise errors.invalid(FIELD, expected, repr(text[:60]))
    (name,) = [part.name for part in fields(KINDS[kind])]
    try:
        value = float(number)
    except ValueError:
        raise errors.invalid(f"{FIELD} {kind}", f"a number after the colon ({name})", repr(number[:60])) from None
    description = {"kind": kind, name: value}
    position_bias(description, FIELD)
    return AddedBias(description, FIELD)


def _from_file(file: Path) -> AddedBias:
    """Return the bias in a file; a mapping with a ``kind``, or a list, is a description."""
    from posbias.published.configuration import read_content

    content = read_content(file)
    if not isinstance(content, Mapping) or "kind" in content:
        found = AddedBias(content, str(file), file)
    elif content.get("position_bias") is None:
        raise errors.invalid(f"{file}: position_bias", "a description of position biases", "none")
    else:
        attention, mask = content.get("attention_config"), content.get("mask_config")
        shape = mask.get("mask_type") if isinstance(mask, Mapping) else mask
        if mask is not None and shape != "causal":
            expected = "causal: a bias that is added shows no later key"
            raise errors.invalid(f"{file}: mask_config.mask_type", expected, str(shape)[:60])
        heads = attention.get("num_heads") if isinstance(attention, Mapping) else None
        description = content["position_bias"]
        if not isinstance(description, list) and heads == 1:
            heads = None  # one for all, as a rollout of one head has it
        found = AddedBias(description, f"{file}: position_bias", file, content.get("num_layers"), heads)
    nested = isinstance(found.description, list) and any(isinstance(part, list) for part in found.description)
    try:
        layered_biases(found.description, len(found.description) if nested else 1, None, found.where)
    except ValueError as error:
        raise ValueError(str(error) if str(error).startswith(str(file)) else f"{file}: {error}") from None
    return found
