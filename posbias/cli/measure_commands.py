"""The command that measures: ``posbias measure``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from posbias.cli.options import MODEL, Running, group, kept_until_done, with_options
from posbias.files import check_output, check_partial
from posbias.measure.biases import HELP, read_bias
from posbias.measure.corpus import Corpus
from posbias.settings import UNLESS_GIVEN, Opening, Settings


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("measure", short_help="Measure λ, attention and influence of a model.")(measure)


@with_options(opening=[Opening], measuring=group(Corpus, Settings, **UNLESS_GIVEN), running=[Running])
def measure(
    model: MODEL,
    output: Annotated[Path, typer.Option("--output", "-o", help="netCDF file to write (.nc).")],
    bias: Annotated[str, typer.Option(help=HELP)] = "none",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what it would take in memory, disk and time, from one prompt.")
    ] = False,
    *,
    opening: dict[str, Any],
    measuring: dict[str, Any],
    running: dict[str, bool],
) -> None:
    """Measure λ, content logits, attention and input-token influence of a model on a corpus."""
    from posbias.measure.model import choose_settings, open
    from posbias.models.opening import check_model

    check_model(model)
    settings = choose_settings(None, measuring)
    added = read_bias(bias)
    check_output(output, overwrite=running["overwrite"])
    partial = check_partial(output, resume=running["resume"])
    source = open(model, **opening).source
    from posbias.measure import run
    from posbias.measure.measurement import Measurement
    from posbias.measure.progress import progress
    from posbias.measure.results import write_results

    settings = replace(settings, source=source)
    if dry_run:
        with progress(1, "prompt", "measuring"):
            said = run.estimate(settings)
        typer.echo(said)
        return
    with kept_until_done(partial):
        results = run.measure(settings, partial=partial, progress=True, bias=added)
        write_results(output, results)
        asked = str(results.attrs["quantities"]).split(",")
        left = run.note_matrices(asked, settings.length, settings.kernel_size)
        typer.echo("\n".join([f"{output}: {Measurement(results)!r}", *left]))
