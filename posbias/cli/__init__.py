"""The command line ``posbias``: one app, its groups of commands, and how errors are reported."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Annotated

import typer

GROUPS = (
    "posbias.cli.book_commands",
    "posbias.cli.profile_commands",
    "posbias.cli.measure_commands",
    "posbias.cli.report_commands",
    "posbias.cli.study_commands",
    "posbias.cli.reference_commands",
    "posbias.cli.retrieval_commands",
    "posbias.cli.explorer_commands",
)
"""Modules with a ``register(app)`` that adds their commands; what is heavy they import inside the commands."""
MEASURING = {
    "torch", "transformers", "tokenizers", "safetensors", "datasets", "accelerate", "xarray", "h5netcdf", "h5py",
    "tqdm", "pandas", "matplotlib"
}  # fmt: skip
"""What the extra ``measure`` installs."""
ORIGINALS = {"pooch", "pypdf", "requests"}
"""What the extra ``originals`` installs: it fetches and reads the source papers' own files."""


def make_app() -> typer.Typer:
    """Return the app with the commands of every module in :data:`GROUPS`."""
    app = typer.Typer(
        name="posbias",
        help="Where position bias in transformers comes from: a book that runs.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(options)
    for group in GROUPS:
        import_module(group).register(app)
    return app


def show_version(wanted: bool) -> bool:
    """Print the version and exit, if requested."""
    if wanted:
        typer.echo(f"posbias {version('posbias')}")
        raise typer.Exit
    return wanted


def options(
    show: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Where position bias in transformers comes from: a book that runs."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; an error that the user can correct is one line on stderr and exit status 2.

    A command raises ``ValueError`` or ``OSError`` with a message that says what was expected and what was received; it
    never prints and exits by itself. ``posbias: …`` is written here and nowhere else.
    """
    try:
        make_app()(args=arguments)
    except (ValueError, OSError, ModuleNotFoundError, MemoryError) as error:
        sys.stderr.write(f"posbias: {one_line(error)}\n")
        raise SystemExit(2) from None


def one_line(error: Exception) -> str:
    """Return the message of ``error`` in one line, which starts with the file if there is one."""
    if isinstance(error, ModuleNotFoundError) and "pip install" not in str(error):
        missing = (error.name or "").split(".")[0]
        extra = "measure" if missing in MEASURING else "originals" if missing in ORIGINALS else "book"
        return f"{error}; install posbias with its extra: pip install 'posbias[{extra}]'"
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__
