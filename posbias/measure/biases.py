"""Position biases given in words or files: those of a network that is built, or one to add to a finished model."""

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
class Described:
    """Hold biases as :func:`~posbias.rollout.position_bias.layered_biases` reads them, and the file that has them.

    ``where`` is what they are called in messages: the option, or the file and its field. ``layers`` and ``heads`` are
    those of the model that the file was made for, None where it does not say.
    """

    description: Any
    where: str
    file: Path | None = None
    layers: int | None = None
    heads: int | None = None

    def check(self, name: str, layers: int, heads: int) -> None:
        """Raise ValueError unless the biases are some for a model with as many layers and heads."""
        for field, own, there in (("num_layers", self.layers, layers), ("num_heads", self.heads, heads)):
            if own not in (None, there):
                raise errors.invalid(f"{self.file}: {field}", f"{there}, as {name} has", own)
        layered_biases(self.description, layers, heads, self.where)


def read_bias(text: str) -> Described | None:
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
    return Described(description, FIELD)


def _from_file(file: Path) -> Described:
    """Return the bias in a file; a mapping with a ``kind``, or a list, is a description."""
    from posbias.configuration import read_content

    content = read_content(file)
    if not isinstance(content, Mapping) or "kind" in content:
        found = Described(content, str(file), file)
    elif content.get("position_bias") is None:
        raise errors.invalid(f"{file}: position_bias", "a description of position biases", "none")
    else:
        attention, mask = content.get("attention_config"), content.get("mask_config")
        shape = mask.get("mask_type") if isinstance(mask, Mapping) else mask
        if mask is not None and shape != "causal":
            expected = "causal: a bias that is added shows no later key"
            raise errors.invalid(f"{file}: mask_config.mask_type", expected, str(shape)[:60])
        heads = attention.get("num_heads") if isinstance(attention, Mapping) else None
        found = _of_heads(file, content["position_bias"], content.get("num_layers"), heads)
    nested = isinstance(found.description, list) and any(isinstance(part, list) for part in found.description)
    try:
        layered_biases(found.description, len(found.description) if nested else 1, None, found.where)
    except ValueError as error:
        raise ValueError(str(error) if str(error).startswith(str(file)) else f"{file}: {error}") from None
    return found


def read_design(file: Path) -> Described:
    """Read the position biases of a rollout configuration; what else it has, a network has of its own."""
    from posbias.configuration import read_config

    config = read_config(file)
    if config.position_bias is None:
        raise errors.invalid(f"{file}: position_bias", "a description of position biases", "none")
    attention = config.attention_config
    if any(weight != max(row) for row in attention.head_weights or [] for weight in row):
        received = "others; repeat a bias for each head that is to have it"
        raise errors.invalid(f"{file}: attention_config.head_weights", "equal weights, for a network", received)
    return _of_heads(file, config.position_bias, config.num_layers, attention.num_heads)


def _of_heads(file: Path, description: Any, layers: int | None, heads: int | None) -> Described:
    """Return the biases of a configuration; one for all, as a rollout of one head has it, is for any number."""
    one = not isinstance(description, list) and heads == 1
    return Described(description, f"{file}: position_bias", file, layers, None if one else heads)
