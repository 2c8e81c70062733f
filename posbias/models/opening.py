"""What can be refused of a model's name and its configuration before anything heavy is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posbias import errors
from posbias.models.gguf_file import find_gguf
from posbias.shipped import PREFIX, reference_folder, reference_names, shipped_names

GIVEN = ", given biases"
"""Stands after the name of a network that is built with position biases which its configuration lacks."""
ADAPTER = "adapter_config.json"
"""Configuration of an adapter of peft."""


def check_subject(model: str | None, untrained: str | None, seed: int = 0, **of_weights: Any) -> None:
    """Raise ValueError unless a model or an untrained network is named, not both, and there can be one of that name.

    ``of_weights`` is what only a model with weights has: a revision, pickles, code of its own. Whether the hub has an
    id is not asked here.

    >>> check_subject(None, None)
    Traceback (most recent call last):
    ValueError: model: expected a model, or --untrained for a network without one, received neither
    """
    if untrained is None:
        if not model:
            raise errors.invalid("model", "a model, or --untrained for a network without one", "neither")
        check_model(model)
        return
    if model:
        raise errors.invalid("untrained", "no model beside it: weights are read or drawn, not both", f"model {model}")
    check_no_weights(**of_weights)
    errors.seed("seed", seed)
    untrained_file(untrained)  # raises


def check_no_weights(**of_weights: Any) -> None:
    """Raise ValueError for what belongs to weights and is asked of an untrained network, which reads none."""
    for field, value in of_weights.items():
        if value and field == "device_map":
            raise errors.invalid(field, "none with --untrained, which builds a model on one device", value)
        if value:
            raise errors.invalid(field, "none with --untrained, which reads no weights", value)


def check_model(model: str) -> None:
    """Raise ValueError for a name that no model can have, and for an adapter."""
    if not model.strip():
        raise errors.invalid("model", "a directory, an id on the hub, or reference/NAME", "an empty name")
    if find_gguf(model) is not None:  # its configuration is in it, and is checked where it is opened
        return
    path = Path(model)
    if (path / ADAPTER).is_file():
        wanted = "a model; merge an adapter in memory: posbias.open(peft_model.merge_and_unload(), tokenizer=…)"
        raise errors.invalid(f"model {model}", wanted, f"a directory with an adapter ({ADAPTER})")
    if path.is_file():
        raise errors.invalid("model", "the directory of a model, or a .gguf file", f"a file, {model}")
    if path.exists():
        return
    if model.startswith(PREFIX):
        if model.removeprefix(PREFIX) not in reference_names():
            raise errors.invalid("model", f"reference/ and one of {', '.join(reference_names())}", model)
    elif model in reference_names():
        raise errors.invalid("model", f"{PREFIX}{model} for that reference model", model)
    elif len(path.parts) > 1 and path.parent.is_dir():  # lest a slip fetches a stranger's model
        received = f"no such directory in {path.parent}, which is there"
        raise errors.invalid(f"model {model}", "a directory, or an id that the hub answers for", received)


def untrained_file(name: str) -> Path:
    """Return the file of an untrained network's configuration, or raise ValueError if there is none."""
    path = Path(name or "no path")
    if name.startswith(PREFIX) and not path.exists() and name.removeprefix(PREFIX) in shipped_names():
        path = reference_folder(name.removeprefix(PREFIX))
    if path.is_dir():
        path /= "config.json"
        if not path.is_file():
            raise errors.invalid(f"untrained {name}", "a directory with a config.json", "one without")
    if not path.is_file():
        wanted = f"a config.json, a directory with one, or {PREFIX}NAME"
        raise errors.invalid("untrained", wanted, name or "an empty name")
    return path


@dataclass(frozen=True)
class Vocabulary:
    """Stand in for a tokenizer where prompts are random tokens: only the number of tokens is needed.

    >>> len(Vocabulary(97))
    97
    """

    size: int

    def __len__(self) -> int:
        return self.size
