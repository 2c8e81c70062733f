"""The command that makes what chapters read of models: ``posbias study``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posbias import errors
from posbias.files import check_folder
from posbias.measure.unfinished import resumable


def register(app: typer.Typer) -> None:
    """Add the command that runs studies to ``app``."""
    app.command("study")(study)


def study(
    name: Annotated[str | None, typer.Argument(help="A study of --list.")] = None,
    show: Annotated[bool, typer.Option("--list", help="Show the studies, what they ask, write and take.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Reference model, directory or id; may be repeated."),
    ] = None,
    part: Annotated[list[str] | None, typer.Option("--part", help="Part of --list; may be repeated.")] = None,
    prompts: Annotated[int | None, typer.Option("--prompts", "-N", help="Number of prompts.")] = None,
    length: Annotated[int | None, typer.Option("--length", "-n", help="Tokens in each.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder for the files; results/NN_name unless given."),
    ] = None,
    wikitext: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Text of WikiText-2, test part, for that part.")
    ] = None,
    trained: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="Folder that train-reference filled: measure its models, and name files by model and seed.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Measure again what is there.")] = False,
) -> None:
    """Measure what a chapter asks of models; files that are there are kept."""
    from studies.asked import STUDY_NAMES, Request, check_request

    if show:
        typer.echo(listing())
        return
    if name is None:
        raise errors.invalid("study", f"--list, or one of {', '.join(STUDY_NAMES)}", "nothing")
    request = Request(only, part, prompts, length, wikitext, trained)
    check_request(name, request)
    if output is not None:
        check_folder(output)

    from studies import driver

    plan = driver.plan_of(name)
    todo = driver.jobs(name, _folder(output, plan.chapter), request)
    made: list[Path] = []
    with resumable(
        lambda: made, "the same command goes on with the first file that is missing", "no file was made yet"
    ):
        for path, seconds in driver.run(todo, force=force, asked=request):
            made.append(path)
            typer.echo(f"{path}: {path.stat().st_size / 1024:.0f} KiB, {seconds:.0f} s")
    typer.echo(f"{name}: {len(made)} files made, {len(todo) - len(made)} kept")


def listing() -> str:
    """Return the studies as text: a paragraph for each."""
    from studies.driver import STUDIES

    rows = []
    for name, plan in STUDIES.items():
        sizes = ", ".join(f"{part.name} ({part.prompts} x {part.length})" for part in plan.parts)
        rows += [
            f"{name}: {plan.question}",
            f"    chapter {plan.chapter}, results/{plan.chapter}/{plan.file}",
            f"    parts (prompts x tokens): {sizes}",
            f"    about {plan.minutes} minutes of a core for {len(plan.models)} models",
        ]
    return "\n".join(rows)


def _folder(output: Path | None, chapter: str) -> Path:
    """Return where files go: as asked, or to the chapter's folder of results."""
    from bookkit.project import find_root

    return output if output is not None else find_root() / "results" / chapter
