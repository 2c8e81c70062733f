"""Options of commands, made from the fields of dataclasses: one definition for commands, front door and files.

A field with a help text (:func:`~posbias.settings.setting`) is an option ``--its-name``. A command takes each
group of them as a dict, and says which it leaves out and which have another default::

    @with_options(opening=group(Opening), measuring=group(Corpus, Settings, prompts=64))
    def measure(output: Annotated[Path, typer.Option(help="…")], *, opening, measuring): ...

``opening["tokenizer"]`` and ``measuring["prompts"]`` then hold what was given, or the default.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from posbias.settings import settings_of


@contextmanager
def kept_until_done(partial: Path, said: str = "is left: the same command with --resume goes on") -> Iterator[None]:
    """Say where partial sums or answers are if the block is interrupted; remove them once it has written its output."""
    try:
        yield
    except KeyboardInterrupt:
        if partial.exists():
            typer.echo(f"{partial} {said}", err=True)
        raise
    partial.unlink(missing_ok=True)


MODEL = Annotated[str, typer.Argument(metavar="MODEL", help="Directory, GGUF file, hub id, or reference/NAME.")]
"""The argument that names a model."""
Replace = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]

Group = Mapping[str, tuple[Any, Any]]
"""Name of an option → its type with its help, and its default."""


def group(*classes: type, door: str = "", **defaults: Any) -> Group:
    """Return the options that the fields of dataclasses describe: a door's, some with other defaults."""
    found: dict[str, tuple[Any, Any]] = {}
    for cls in classes:
        for name, one in settings_of(cls, door=door).items():
            default = defaults.get(name, one.default)
            shown = ",".join(default) if isinstance(default, tuple) else default
            found[name] = _annotated(cls, name, default), shown
    return found


def with_options(**groups: Group) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of groups; it is called with a dict for each group in place of them."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True)
        parameters = [one for name, one in own.parameters.items() if name not in groups]
        for options in groups.values():
            parameters += [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
                for name, (annotation, default) in options.items()
            ]

        @wraps(command)
        def called(**values: Any) -> None:
            for name, options in groups.items():
                values[name] = {option: values.pop(option) for option in options}
            command(**values)

        del called.__wrapped__  # type: ignore[attr-defined] # or its signature would be read
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {one.name: one.annotation for one in parameters}
        return called

    return decorate


def _annotated(cls: type, name: str, default: Any) -> Any:
    """Return an option's type with typer's description; where None is a choice that is made later, None is allowed."""
    metadata = settings_of(cls)[name].metadata
    kind = metadata["kind"] if "kind" in metadata else get_type_hints(cls)[name]
    both_ways = kind is bool and default is not False
    flags = [] if both_ways else [f"--{name.replace('_', '-')}", *metadata["flags"]]
    return Annotated[kind | None if default is None else kind, typer.Option(*flags, help=metadata["help"])]
