"""The commands of the book: ``posbias book``, ``posbias run`` and ``posbias chapters``."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand


class PairedOptions(TyperCommand):
    """A command whose ``-p`` takes a name and a value, as papermill's does; typer's own options take one word."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Join ``-p NAME VALUE`` into ``-p NAME=VALUE`` and parse as usual."""
        return super().parse_args(ctx, joined_pairs(args))


def joined_pairs(args: list[str]) -> list[str]:
    """Join each ``-p NAME VALUE`` of a command line into ``-p NAME=VALUE``.

    >>> joined_pairs(["rollout", "-p", "n", "64", "-p", "slope=-1", "-o", "out.ipynb"])
    ['rollout', '-p', 'n=64', '-p', 'slope=-1', '-o', 'out.ipynb']
    """
    joined: list[str] = []
    rest = list(args)
    while rest:
        word = rest.pop(0)
        joined.append(word)
        if word in ("-p", "--parameter") and rest:
            name = rest.pop(0)
            joined.append(f"{name}={rest.pop(0)}" if re.fullmatch(r"\w+", name) and rest else name)
    return joined


SAMPLE = Path("results") / "models" / "bloom-8.builtin.nc"
"""Summary whose report the page on measuring one's own model shows."""
SAMPLE_PAGE = Path("_build") / "html" / "book" / "report.html"
"""Where the report goes: beside that page."""


def register(app: typer.Typer) -> None:
    """Add the commands of the book to ``app``."""
    app.command("book")(book)
    app.command("run", cls=PairedOptions)(run)
    app.command("chapters")(chapters)
    app.command("portable")(portable)
    app.command("format")(format_chapters)


def book(
    execute: Annotated[
        bool,
        typer.Option("--execute/--no-execute", help="Run the chapters first, or build from the committed notebooks."),
    ] = True,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Number of chapters to run at a time.")] = min(
        4, os.cpu_count() or 1
    ),
) -> None:
    """Run every chapter, then build the pages in _build/html."""
    from bookkit import cover, runner, site
    from bookkit.project import find_root

    root = find_root()
    outcomes = runner.run_book(root, jobs=jobs, echo=lambda line: print(line, flush=True)) if execute else []
    if any(outcome.stem == cover.CHAPTER for outcome in outcomes):
        cover.refresh(root)
    try:
        page = site.build(root)
    except site.BuildFailed as error:
        typer.echo(f"posbias: {error}", err=True)
        raise typer.Exit(1) from None
    sample_report(root)
    typer.echo(f"built {page}")
    failed = [outcome.stem for outcome in outcomes if outcome.status == "failed"]
    if failed:
        typer.echo(
            f"posbias: these chapters failed, and their committed notebooks were kept: {', '.join(failed)}", err=True
        )
        raise typer.Exit(1)


def sample_report(root: Path) -> Path | None:
    """Write the report on a reference model into the built pages, and return its path; None without its summary.

    Parameters
    ----------
    root
        The project, with its pages built.

    Raises
    ------
    ModuleNotFoundError
        If the extra ``measure`` is not installed.
    """
    if not (root / SAMPLE).is_file():
        return None
    from posbias.measure.measurement import load

    return load(root / SAMPLE).report(root / SAMPLE_PAGE)


def run(
    chapter: Annotated[str, typer.Argument(help="Name of a chapter, as listed by `posbias chapters`.")],
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--parameter",
            "-p",
            metavar="NAME VALUE",
            help="Set a parameter (may be repeated); paths are relative to the current folder.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="OUT.ipynb", help="Write the notebook to this file, and leave the book unchanged."
        ),
    ] = None,
) -> None:
    """Run one chapter: with its defaults into the book, with your own parameters into a file of yours."""
    from bookkit import runner
    from bookkit.chapters import find_chapter
    from bookkit.project import find_root

    root = find_root()
    if not parameters and output is None:
        outcome = runner.run_chapter(root, chapter)
    else:
        values = runner.parse_parameters(find_chapter(root, chapter), split_pairs(parameters or []))
        values = {name: absolute(value) for name, value in values.items()}
        output = output or Path(f"{chapter}.out.ipynb")
        require_measurement(values.get("measurement"))
        outcome = runner.run_chapter_to(root, chapter, values, output)
    if outcome.status == "failed":
        typer.echo(f"posbias: {runner.describe(outcome)}", err=True)
        raise typer.Exit(1)
    typer.echo(runner.describe(outcome))
    if output:
        typer.echo(f"wrote {output}")


def require_measurement(path: object) -> None:
    """Check, before a chapter runs, that a parameter ``measurement`` names a measurement to compare with.

    Raises
    ------
    ValueError, OSError
        As :func:`~posbias.measure.results.read_comparable` does. Nothing is done where no path is given.
    """
    if isinstance(path, str) and path:
        from posbias.measure.results import read_comparable

        read_comparable(path)


def absolute(value: object) -> object:
    """Return a text that names a file or folder here as its absolute path, for a chapter runs in a folder of its own.

    >>> absolute("no such file"), absolute(3)
    ('no such file', 3)
    """
    if isinstance(value, str) and value and Path(value).exists():
        return str(Path(value).resolve())
    return value


def split_pairs(pairs: list[str]) -> dict[str, str]:
    """Split ``NAME=VALUE`` words; the last value of a name given twice counts.

    >>> split_pairs(["n=64", "label=a=b"])
    {'n': '64', 'label': 'a=b'}
    """
    for pair in pairs:
        if "=" not in pair:
            raise ValueError(f"-p: expected a name and a value, received {pair}")
    return dict(pair.split("=", 1) for pair in pairs)


def chapters() -> None:
    """List the chapters with their parameters."""
    from bookkit.chapters import list_chapters
    from bookkit.project import find_root

    for chapter in list_chapters(find_root()):
        needs = f"  (needs {', '.join(chapter.needs)})" if chapter.needs else ""
        typer.echo(f"{chapter.stem}: {chapter.title}{needs}")
        for name, default in chapter.parameters.items():
            typer.echo(f"    {name} = {default!r}")


def portable(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="CHAPTER...", help="Chapters to run; all of them by default.")
    ] = None,
    world: Annotated[
        list[str] | None,
        typer.Option(help="Environment to run in, such as haswell or threads-2 (may be repeated); all by default."),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Number of chapters to run at a time.")] = min(
        4, os.cpu_count() or 1
    ),
) -> None:
    """Run chapters as other processors would, and compare their numbers with the committed notebooks."""
    from bookkit import worlds
    from bookkit.project import find_root

    reports = worlds.run_worlds(
        find_root(), world or [], names or [], jobs=jobs, echo=lambda line: print(line, flush=True)
    )
    differing = [report for report in reports if report.disagreements]
    typer.echo(f"{len(reports) - len(differing)} of {len(reports)} runs agree with the committed notebooks")
    if differing:
        raise typer.Exit(1)


def format_chapters(
    stems: Annotated[list[str] | None, typer.Argument(help="Chapters to format; all of them by default.")] = None,
) -> None:
    """Format the code cells of chapters in book/ with ruff, and list the problems that remain."""
    from bookkit.chapters import find_chapter, list_chapters
    from bookkit.formatting import formatted, problems
    from bookkit.project import find_root
    from posbias.files import write_whole

    root = find_root()
    sources = [find_chapter(root, stem).source for stem in stems] if stems else [x.source for x in list_chapters(root)]
    for source in sources:
        text = formatted(source)
        if text != source.read_text(encoding="utf-8"):
            write_whole(source, text)
            typer.echo(f"{source.name}: formatted")
    found = problems(sources)
    typer.echo("\n".join(found) if found else "nothing to mend")
    if found:
        raise typer.Exit(1)
