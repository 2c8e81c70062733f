"""Options of commands, made from the fields of dataclasses: one definition for commands, front door and files.

A field with a help text (:func:`~posbias.measure.settings.setting`) is an option ``--its-name``. A command takes each
group of them as a dict, and says which it leaves out and which have another default::

    @with_options(opening=[Opening], measuring=group(Corpus, Settings, without=["tokens"], prompts=64))
    def report(output: Annotated[Path, typer.Option(help="…")], ctx: typer.Context, *, opening, measuring): ...

``opening["model"]`` and ``measuring["prompts"]`` then hold what was given, or the default. ``given(ctx)`` is the set of
names that stand on the command line (give the command a parameter ``ctx: typer.Context`` for it).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from posbias.measure.settings import setting, settings_of


@dataclass(frozen=True)
class Running:
    """Say what is done with files that are there."""

    resume: bool = setting(False, "Resume from the checkpoint, if there is one.")
    overwrite: bool = setting(False, "Replace the output if it is there.")


UNTRAINED = Annotated[
    str | None,
    typer.Option(
        help="In place of a model, an untrained network: config.json, a directory with one, a published size such as "
        "gpt2, llama-12x256 or bloom-12x256. Weights are drawn with --seed; none are read."
    ),
]
"""The option ``--untrained``, which has None as its default."""

Group = Mapping[str, tuple[Any, Any]]
"""Name of an option → its type with its help, and its default."""


def group(*classes: type, without: Collection[str] = (), **defaults: Any) -> Group:
    """Return the options that the fields of dataclasses describe, some left out, some with other defaults."""
    found: dict[str, tuple[Any, Any]] = {}
    for cls in classes:
        for name, one in settings_of(cls).items():
            if name not in without:
                default = defaults.get(name, one.default)
                found[name] = _annotated(name, _type(cls, name), one.metadata, default), _shown(default)
    return found


def with_options(**groups: Group | Iterable[type]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of groups; it is called with a dict for each group in place of them."""
    made = {name: one if isinstance(one, Mapping) else group(*one) for name, one in groups.items()}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True)
        parameters = [one for name, one in own.parameters.items() if name not in made]
        for options in made.values():
            parameters += [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
                for name, (annotation, default) in options.items()
            ]

        @wraps(command)
        def called(**values: Any) -> None:
            for name, options in made.items():
                values[name] = {option: values.pop(option) for option in options}
            command(**values)

        del called.__wrapped__  # type: ignore[attr-defined] # or its signature would be read
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {one.name: one.annotation for one in parameters}
        return called

    return decorate


def given(context: typer.Context) -> set[str]:
    """Return the names of the options that stand on the command line."""
    return {name for name in context.params if context.get_parameter_source(name).name == "COMMANDLINE"}  # type: ignore[union-attr]


def _type(cls: type, name: str) -> Any:
    metadata = settings_of(cls)[name].metadata
    return (
        metadata["kind"]
        if "kind" in metadata
        else get_type_hints(cls, localns=dict.fromkeys(("Source", "Corpus"), Any))[name]
    )


def _annotated(name: str, kind: Any, metadata: Mapping[str, Any], default: Any) -> Any:
    """Return the type with typer's description; where None stands for a choice that is made later, None is allowed."""
    kind = kind | None if default is None else kind
    is_flag = kind is bool and default is False
    flags = ([f"--{name.replace('_', '-')}", *metadata["flags"]]) if metadata["flags"] or is_flag else []
    return Annotated[kind, typer.Option(*flags, help=metadata["help"])]


def _shown(default: Any) -> Any:
    return ",".join(default) if isinstance(default, tuple) else default
