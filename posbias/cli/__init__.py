"""The command line ``posbias``: one app, its groups of commands, and how errors are reported."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any

import typer

GROUPS = ("posbias.cli.model_commands", "posbias.cli.profile_commands")
"""Modules with a ``register(app)`` that adds their commands; what is heavy they import inside the commands."""
USAGE: type[Exception] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""What is raised for a command line that cannot be understood; newer versions of typer carry a click of their own."""


def make_app(groups: Sequence[str] = GROUPS, name: str = "posbias") -> typer.Typer:
    """Return an app with the commands of the modules in ``groups``."""
    app = typer.Typer(
        name=name,
        help="Where position bias in transformers comes from." if name == "posbias" else None,
        no_args_is_help=True,
        add_completion=name == "posbias",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(about)
    for group in groups:
        import_module(group).register(app)
    return app


def show_version(wanted: bool) -> bool:
    """Print the version and exit, if requested."""
    if wanted:
        typer.echo(f"posbias {version('posbias')}")
        raise typer.Exit
    return wanted


def about(
    show: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Where position bias in transformers comes from."""


def main(arguments: Sequence[str] | None = None, groups: Sequence[str] = GROUPS, name: str = "posbias") -> None:
    """Run the command line ``name``; an error that the user can correct is one line on stderr and exit status 2."""
    try:
        status = make_app(groups, name)(args=arguments, prog_name=name, standalone_mode=False)
    except USAGE as error:
        raise SystemExit(_misused(name, error)) from None
    except (typer.Abort, KeyboardInterrupt):
        raise _ended(name, "interrupted", 130) from None
    except (ValueError, OSError, ModuleNotFoundError, MemoryError, RecursionError) as error:
        raise _ended(name, one_line(error), 2) from None
    if status == 130:  # typer has caught Ctrl-C
        raise _ended(name, "interrupted", 130)
    raise SystemExit(status or 0)


def _ended(name: str, line: str, status: int) -> SystemExit:
    """Write the one line on stderr and return what ends the process."""
    sys.stderr.write(f"{name}: {line}\n")
    return SystemExit(status)


def _misused(name: str, error: Any) -> int:
    """Say in one line what is wrong with the words of a command line; show the help where there are none."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return int(error.exit_code)
    path = getattr(error.ctx, "command_path", name) if error.ctx is not None else name
    message = " ".join(error.format_message().split()).replace("Value error, ", "").rstrip(".")
    sys.stderr.write(f"{name}: {message}; see '{path} --help'\n")
    return int(error.exit_code)


def one_line(error: Exception) -> str:
    """Return the message of ``error`` in one line, which starts with the file if there is one."""
    if isinstance(error, ModuleNotFoundError):
        return f"{error}; it comes with posbias's extra measure: in a checkout, pip install '.[measure]'"
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__
