"""The commands of the book: ``python -m bookkit book``, ``run``, ``chapters`` and what belongs to them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from bookkit.project import find_root

Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, help="Number of chapters to run at a time.")]
JOBS = min(4, os.cpu_count() or 1)


def register(app: typer.Typer) -> None:
    """Add the commands of the book to ``app``."""
    app.command("book")(book)
    app.command("run")(run)
    app.command("chapters")(chapters)
    app.command("portable")(portable)
    app.command("format")(format_chapters)
    app.command("explorer-data")(explorer_data)
    app.command("pdf")(pdf)


def failed(message: str) -> typer.Exit:
    """Say in one line on stderr what failed, and return what ends the command with status 1."""
    typer.echo(f"python -m bookkit: {message}", err=True)
    return typer.Exit(1)


def book(
    execute: Annotated[
        bool,
        typer.Option("--execute/--no-execute", help="Run the chapters first, or build from the committed notebooks."),
    ] = True,
    jobs: Jobs = JOBS,
) -> None:
    """Run every chapter, then build the pages in _build/html."""
    from bookkit import runner, site

    root = find_root()
    outcomes = runner.run_book(root, jobs=jobs, echo=lambda line: print(line, flush=True)) if execute else []
    for chapter in site.FIGURES.keys() & {outcome.stem for outcome in outcomes}:
        site.refresh_figure(root, chapter)
    try:
        page = site.build(root)
    except site.BuildFailed as error:
        raise failed(str(error)) from None
    site.sample_report(root)
    typer.echo(f"built {page}")
    stems = [outcome.stem for outcome in outcomes if outcome.status == "failed"]
    if stems:
        raise failed(f"these chapters failed, and their committed notebooks were kept: {', '.join(stems)}")


def pdf() -> None:
    """Print the afternoon's route and the preprint, _build/afternoon.pdf and preprint.pdf; pages are built before."""
    from bookkit.pdf import print_preprint, print_route

    typer.echo(f"wrote {print_route(find_root())}")
    typer.echo(f"wrote {print_preprint(find_root())}")


def run(
    chapter: Annotated[str, typer.Argument(help="Name of a chapter, as listed by `python -m bookkit chapters`.")],
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--parameter",
            "-p",
            metavar="NAME=VALUE",
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

    root = find_root()
    if not parameters and output is None:
        outcome = runner.run_chapter(root, chapter)
    else:
        values = runner.parse_parameters(find_chapter(root, chapter), split_pairs(parameters or []))
        values = {name: absolute(value) for name, value in values.items()}
        output = output or Path(f"{chapter}.out.ipynb")
        if values.get("measurement"):  # a file that is none is refused before the chapter runs
            from posbias.measure.results import read_results

            read_results(str(values["measurement"]))
        outcome = runner.run_chapter_to(root, chapter, values, output)
    if outcome.status == "failed":
        raise failed(runner.describe(outcome))
    typer.echo(runner.describe(outcome))
    if output:
        typer.echo(f"wrote {output}")


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

    for chapter in list_chapters(find_root()):
        needs = f"  (needs {', '.join(chapter.needs)})" if chapter.needs else ""
        typer.echo(f"{chapter.stem}: {chapter.title}{needs}")
        for name, default in chapter.parameters.items():
            typer.echo(f"    {name} = {default!r}")


def portable(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME...", help="Chapters, or with --units files of tests, to run; by default all."),
    ] = None,
    world: Annotated[
        list[str] | None,
        typer.Option(help="Environment to run in, such as haswell or threads-3 (may be repeated); all by default."),
    ] = None,
    units: Annotated[bool, typer.Option("--units", help="Run the unit tests instead of chapters.")] = False,
    jobs: Jobs = JOBS,
) -> None:
    """Run chapters, or unit tests, as other processors would: their numbers must be the committed ones."""
    from bookkit import worlds

    found = (worlds.run_units if units else worlds.run_worlds)(find_root(), world or [], names or [], jobs=jobs)
    reports = []
    for report in found:
        reports.append(report)
        print(worlds.describe(report), flush=True)
    agreeing = sum(not report.disagreements for report in reports)
    typer.echo(f"{agreeing} of {len(reports)} runs agree with what is committed")
    if agreeing < len(reports):
        raise typer.Exit(1)


def format_chapters(
    stems: Annotated[list[str] | None, typer.Argument(help="Chapters to format; all of them by default.")] = None,
) -> None:
    """Format the code cells of chapters in book/ with ruff; list the problems that remain, and words that are out."""
    from bookkit.chapters import find_chapter, list_chapters
    from bookkit.formatting import formatted, problems
    from bookkit.wording import words_out
    from posbias.files import write_whole

    root = find_root()
    sources = [find_chapter(root, stem).source for stem in stems] if stems else [x.source for x in list_chapters(root)]
    for source in sources:
        text = formatted(source)
        if text != source.read_text(encoding="utf-8"):
            write_whole(source, text)
            typer.echo(f"{source.name}: formatted")
    found = problems(sources) + words_out(root, stems or ())
    typer.echo("\n".join(found) if found else "nothing to mend")
    if found:
        raise typer.Exit(1)


def explorer_data(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Script to write; the page's own.")] = None,
) -> None:
    """Write the presets of the explorer: the published models and the measured reference models."""
    from bookkit.explorer import DATA, explorer_script
    from posbias.files import write_whole

    root = find_root()
    path = output or root / DATA
    text = explorer_script(root)
    write_whole(path, text)
    typer.echo(f"{path}: {len(text.encode()) / 1000:.0f} kB")
