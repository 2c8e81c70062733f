"""What can be refused of a model's name and its configuration before anything heavy is loaded."""

from dataclasses import dataclass
from pathlib import Path

from posbias import errors
from posbias.models.gguf_file import find_gguf
from posbias.shipped import PREFIX, reference_names

ADAPTER = "adapter_config.json"
"""Configuration of an adapter of peft."""


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


@dataclass(frozen=True)
class Vocabulary:
    """Stand in for a tokenizer where prompts are random tokens: only the number of tokens is needed.

    >>> len(Vocabulary(97))
    97
    """

    size: int

    def __len__(self) -> int:
        return self.size
