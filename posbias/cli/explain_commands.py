"""The command that explains one prompt: ``posbias explain``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from posbias import errors
from posbias.cli.options import MODEL, group, with_options
from posbias.files import check_output
from posbias.settings import Opening, Settings


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("explain", short_help="Explain one prompt: what its parts do.")(explain)


@with_options(opening=[Opening], measuring=group(Settings, door="explain", attention=None))
def explain(
    model: MODEL,
    prompt: Annotated[Path, typer.Option("--prompt", "-p", help="Text; or .json: messages, or a row as of lookup.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML file to write.")] = Path("explained.html"),
    answer: Annotated[
        str | None, typer.Option(help="What follows the prompt; the likeliest next token unless given.")
    ] = None,
    segments: Annotated[
        str, typer.Option(help=r"Separator of the prompt's segments, \n for a line break; empty for one segment.")
    ] = r"\n\n",
    no_deletions: Annotated[bool, typer.Option("--no-deletions", help="Delete no segment.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the segments; no weights are read.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output if it is there.")] = False,
    *,
    opening: dict[str, Any],
    measuring: dict[str, Any],
) -> None:
    """Explain one prompt: what deleting each part changes, beside its influence and contributions."""
    from posbias.explain.prompt import check_asked
    from posbias.models.opening import check_model

    check_model(model)
    if not dry_run:
        check_output(output, ".html", overwrite=overwrite)
    try:
        text: Any = prompt.read_text(encoding="utf-8").removesuffix("\n")
        text = json.loads(text) if prompt.suffix == ".json" else text
    except ValueError as error:
        raise errors.invalid(f"prompt {prompt}", "text in UTF-8, JSON of .json", errors.short(error)) from None
    check_asked(text, answer)
    import posbias
    from posbias.measure.progress import progress

    asked = {name: value for name, value in measuring.items() if value is not None}
    with progress(1, "model", "opening"):
        opened = posbias.open(model, **opening)
    separator = segments.replace(r"\n", "\n").replace(r"\t", "\t") or None
    asked |= {"answer": answer, "segments": separator, "deletions": not no_deletions}
    if dry_run:
        with progress(1, "prompt", "writing"):
            preview = opened.preview_explain(text, **asked)
        typer.echo(preview)
    else:
        found = opened.explain(text, **asked, progress=True)
        typer.echo(f"{found!r}\n{found.report(output)}: page")
