"""Conditions: what a run changes, each in a file of its own in the folder ``each``.

The name of a file is that of the condition, with hyphens on a command line; its first line says what it does. It has
a class ``Condition``, made of the arguments behind the name. One that changes a model has also a context manager by the
file's own name, for use without a run: ``with posbias.conditions.sharper(model, factor=1.5): ...``
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from posbias import errors

if TYPE_CHECKING:
    import numpy as np

    from posbias.engines import Engine
    from posbias.prompts import Ask, Prompt

NAMES = tuple(sorted(file.stem for file in (Path(__file__).parent / "each").glob("[a-z]*.py")))
"""What there is."""
FIELD = "condition"
AS_IS = "as is"
"""What everything is compared with."""

Write = Callable[["Ask"], "Prompt"]
"""Writes a prompt, as a lookup does."""


class ChangedRun:
    """Change nothing; a kind of it changes what it says, and says what it needs and costs."""

    changes: ClassVar[str] = "prompt"
    """``model``; ``reading`` (the model, for each prompt in its own way); ``prompt``; ``asking``; or ``tokens``."""
    needs: ClassVar[str]
    cost: ClassVar[str]
    profile = ""
    """What a profile that is measured so is, if it is another one than of text."""

    @property
    def is_of_model(self) -> bool:
        """Whether the model is changed while it reads."""
        return self.changes in ("model", "reading")

    def __init__(self, argument: str = "") -> None:
        """Read the arguments behind the name; there are none unless a kind says which."""
        if argument:
            name = type(self).__module__.rpartition(".")[-1].replace("_", "-")
            raise errors.invalid(f"{FIELD} {name}", "no arguments", argument[:40])

    def check(self, config: Any) -> None:
        """Raise ValueError for a model, with this configuration, that cannot be changed so."""

    def resolved(self, text: str, config: Any) -> str:
        """Return the condition as files name it: its text, with what a file that it names says."""
        return text

    def changed(self, model: Any, prompt: Prompt | None) -> AbstractContextManager[None]:
        """Change a model while it reads a prompt, or while it is measured on tokens without parts."""
        return nullcontext()

    def rewrite(self, ask: Ask) -> Ask:
        """Return what is asked in place of it."""
        return ask

    def reorder(self, ids: np.ndarray, seed: int, front: int) -> np.ndarray:
        """Return the tokens of prompts, (N, n), in place of them; so many start tokens stay in front."""
        return ids

    def choose(self, ask: Ask, engine: Engine, write: Write) -> Ask:
        """Return what is asked last, after an engine was asked otherwise."""
        return ask


def load(name: str) -> Any:
    """Return the module of a condition."""
    return import_module(f"{__name__}.each.{name}")


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(load(name), name)


def read_condition(text: Any) -> tuple[str, Any]:
    """Return the name and the condition of a text such as ``order:reversed``; ValueError is raised for another.

    >>> read_condition("order:reversed")[0]
    'order:reversed'
    """
    if not isinstance(text, str):
        raise errors.invalid(FIELD, "a name, with arguments behind a colon", repr(text)[:60])
    name, _, argument = text.partition(":")
    if (own := name.strip().replace("-", "_")) not in NAMES:
        known = ", ".join(one.replace("_", "-") for one in NAMES)
        raise errors.invalid(FIELD, f"one of {known}", name or "an empty name")
    return text, load(own).Condition(argument.strip())


def read_conditions(texts: Sequence[Any]) -> dict[str, Any]:
    """Return conditions by what they are called; ValueError is raised for one that is given twice."""
    found: dict[str, Any] = {}
    for text in texts:
        name, condition = read_condition(text)
        if name in found:
            raise errors.invalid(FIELD, "each one once", f"{name} twice")
        found[name] = condition
    return found


def describe() -> str:
    """Return what each condition does, needs and costs."""
    lines = []
    for name in NAMES:
        module = load(name)
        what = str(module.__doc__).splitlines()[0]
        kind = module.Condition
        lines.append(f"{name.replace('_', '-')}: {what}\n  needs {kind.needs}; costs {kind.cost}")
    return "\n".join(lines)


def arguments(text: str, **known: Callable[[str], Any]) -> dict[str, Any]:
    """Return arguments ``name=value`` with commas between, each read as it is to be; a bare value is the first's.

    >>> arguments("2,heads=1.0", factor=float, heads=str)
    {'factor': 2.0, 'heads': '1.0'}
    """
    found: dict[str, Any] = {}
    for part in text.split(",") if text else ():
        name, sign, value = part.partition("=")
        if not sign:
            name, value = next(iter(known)), part
        if name.strip() not in known:
            raise errors.invalid(FIELD, f"arguments among {', '.join(known)}", part[:40])
        try:
            found[name.strip()] = known[name.strip()](value.strip())
        except ValueError as error:
            raise errors.invalid(f"{FIELD}: {name.strip()}", "a value that can be read", errors.short(error)) from None
    return found
