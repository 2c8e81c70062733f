"""Commands on a model: ``posbias measure``, ``report`` (on a file, too), ``explain`` and ``lookup``."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from posbias import errors, processes
from posbias.cli.options import MODEL, Replace, group, kept_until_done, with_options
from posbias.cli.served import Serving, explain_at_server, lookup_served
from posbias.files import check_output, check_partial
from posbias.lookup.contexts import read_rows
from posbias.lookup.tasks import LOOK, Task
from posbias.measure.corpus import Corpus
from posbias.settings import REPORTED, UNLESS_GIVEN, Opening, Settings


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command("measure", short_help="Measure λ, attention and influence of a model.")(measure)
    app.command("report", short_help="Write one page about a measurement or a model.")(report)
    app.command("explain", short_help="Explain one prompt: what its parts do.")(explain)
    app.command("lookup", short_help="Ask a model for what stands at each place.")(lookup)


@with_options(opening=group(Opening), measuring=group(Corpus, Settings, **UNLESS_GIVEN))
def measure(
    model: MODEL,
    output: Annotated[Path, typer.Option("--output", "-o", help="netCDF file to write (.nc).")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what it would take in memory, disk and time, from one prompt.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the partial sums of a run that was ended, if there are some.")
    ] = False,
    overwrite: Replace = False,
    *,
    opening: dict[str, Any],
    measuring: dict[str, Any],
) -> None:
    """Measure λ, content logits, attention and input-token influence of a model on a corpus."""
    from posbias.measure.model import choose_settings, open
    from posbias.models.opening import check_model

    check_model(model)
    settings = choose_settings(None, measuring)
    check_output(output, overwrite=overwrite)
    partial = check_partial(output, resume=resume)
    settings = replace(settings, source=open(model, **opening).source)
    from posbias.measure import run
    from posbias.measure.measurement import Measurement
    from posbias.measure.results import write_results

    if dry_run:
        return _show_estimate(settings)
    with kept_until_done(partial):
        results = run.measure(settings, partial=partial, progress=True)
        if processes.rank() == 0:
            write_results(output, results)
            asked = str(results.attrs["quantities"]).split(",")
            left = run.note_matrices(asked, settings.length, settings.kernel_size)
            typer.echo("\n".join([f"{output}: {Measurement(results)!r}", *left]))
        processes.wait()  # so that partial sums stay until all is written


def _show_estimate(settings: Settings) -> None:
    """Print what a measurement would take, from one prompt, in the first process."""
    if processes.rank():
        return
    from posbias.measure.progress import progress
    from posbias.measure.run import estimate

    with progress(1, "prompt", "measuring"):
        said = estimate(settings)
    typer.echo(said)


SUBJECT = Annotated[
    str,
    typer.Argument(
        metavar="MODEL_OR_FILE",
        help="File of posbias measure (.nc); or a model to measure: directory, GGUF file, id on the hub, or "
        "reference/NAME. What is not said here, posbias measure takes.",
    ),
]


@with_options(opening=group(Opening), measuring=group(Corpus, Settings, door="report", **UNLESS_GIVEN))
def report(
    subject: SUBJECT,
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML file to write (.html).")],
    lookup: Annotated[
        Path | None, typer.Option(help="File of posbias lookup on the same model (.nc): where a passage is found best.")
    ] = None,
    keep: Annotated[Path | None, typer.Option(help="Of a model: also keep the measurement, as a file (.nc).")] = None,
    overwrite: Replace = False,
    *,
    opening: dict[str, Any],
    measuring: dict[str, Any],
) -> None:
    """Answer in one page: what its prompts' tenths receive, is the middle lost, what predicts it; with figures."""
    is_file = subject.endswith(".nc") and not Path(subject).is_dir()
    check_output(output, ".html", overwrite=overwrite)
    of_model = measuring | {"keep": keep}
    of_model |= {name: value for name, value in opening.items() if value != getattr(Opening(), name)}
    given = [name for name, value in of_model.items() if value is not None]
    if is_file and given:
        raise errors.invalid(given[0], "a model to measure", f"the file {subject}, measured already")
    if keep is not None:
        check_output(keep, field="keep", overwrite=overwrite)
    import posbias
    from posbias.measure.measurement import load

    tried = None if lookup is None else posbias.load_lookup(lookup)
    if measuring["prompts"] != 1:  # which climbs no ladder
        measuring |= REPORTED
    measured = load(subject) if is_file else posbias.open(subject, **opening).measure(**measuring)
    if processes.rank():
        return
    if keep is not None:
        typer.echo(f"{measured.save(keep)}: {measured.prompts} prompts of {measured.length} tokens")
    path = measured.report(output, lookup=tried)
    typer.echo(f"{path}: {path.stat().st_size / 1024:.0f} KiB, {measured.described}")


ASKED = Annotated[
    str | None,
    typer.Argument(metavar="[MODEL]", help="Directory, GGUF file, hub id, or reference/NAME; none with --server."),
]


def check_subject(subject: str | None, served: str | None) -> str:
    """Return the model that is asked in this process, or raise ValueError where none is named."""
    if subject is None or served is not None:
        raise errors.invalid("model", "a model, or --server with --model", subject or served or "none")
    return subject


@with_options(opening=group(Opening), serving=group(Serving), measuring=group(Settings, door="explain", attention=None))
def explain(
    subject: ASKED = None,
    *,
    prompt: Annotated[Path, typer.Option("--prompt", "-p", help="Text; or .json(l): messages, or one row of lookup.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML file to write.")] = Path("explained.html"),
    answer: Annotated[
        str | None, typer.Option(help="What follows the prompt; the likeliest next token unless given.")
    ] = None,
    heads: Annotated[str | None, typer.Option(help=f"Of documents with a question. {LOOK}")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --server: print what would be asked; nothing is sent.")
    ] = False,
    overwrite: Replace = False,
    opening: dict[str, Any],
    serving: dict[str, Any],
    measuring: dict[str, Any],
) -> None:
    """Explain one prompt: what deleting each part changes, beside its influence and contributions."""
    from posbias.explain.prompt import check_asked
    from posbias.models.opening import check_model

    if processes.rank():  # one prompt is not shared
        return
    at_server = serving["server"] is not None
    if dry_run and not at_server:
        raise errors.invalid("dry_run", "none without --server", "--dry-run")
    if not at_server:
        check_model(check_subject(subject, serving["model"]))
    if not dry_run:
        check_output(output, ".html", overwrite=overwrite)
    text = _read_prompt(prompt)
    check_asked(text, answer)
    if at_server:
        refused = {**measuring, "heads": heads}
        return explain_at_server(serving, subject, text, answer, refused, None if dry_run else output)
    asked = {name: value for name, value in measuring.items() if value is not None}
    found = _open(str(subject), opening).explain(text, answer=answer, heads=heads, **asked, progress=True)
    typer.echo(f"{found!r}\n{found.report(output)}: page")


def _open(model: str, opening: dict[str, Any]) -> Any:
    """Open a model, and show that it takes a while."""
    import posbias
    from posbias.measure.progress import progress

    with progress(1, "model", "opening"):
        return posbias.open(model, **opening)


def _read_prompt(prompt: Path) -> Any:
    """Return what is in a prompt's file: text, messages, or one row of lookup."""
    try:
        text = prompt.read_text(encoding="utf-8").removesuffix("\n")
        return json.loads(text) if prompt.suffix in (".json", ".jsonl") else text
    except ValueError as error:
        raise errors.invalid(f"prompt {prompt}", "UTF-8; .json(l): messages or one row", errors.short(error)) from None


def show_conditions(given: list[str] | None) -> list[str] | None:
    """Print what conditions there are and exit, if ``list`` is asked for."""
    if "list" in (given or ()):
        from posbias.conditions import describe

        typer.echo(describe())
        raise typer.Exit
    return given


ROWS = Annotated[
    str | None,
    typer.Argument(
        metavar="[ROWS]", help="Documents, question, answer, and its first words as begin: .jsonl, .csv or .parquet."
    ),
]
FIGURE = Annotated[Path | None, typer.Option(help="Also draw right answers by place, with intervals: .png or .svg.")]
ASKED_ROWS = Annotated[
    int | None,
    typer.Option("--prompts", "-N", help="Ask the first so many rows, all unless given; or make up 40 sets."),
]
REHEARSE = Annotated[
    bool, typer.Option("--dry-run", help="Print the first prompt and what would be asked, and ask nothing.")
]
CONDITION = Annotated[
    list[str] | None,
    typer.Option(
        callback=show_conditions,
        is_eager=True,
        help="Ask again under a condition and compare, as order:reversed; repeatable; list: what there is.",
    ),
]


@with_options(
    opening=group(Opening),
    serving=group(Serving),
    asked=group(Task),
    asking=group(Settings, door="lookup"),
)
def lookup(
    subject: ASKED = None,
    rows: ROWS = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="netCDF file to write.")] = Path("lookup.nc"),
    figure: FIGURE = None,
    task: Annotated[str, typer.Option("--task", "-t", help="documents; kv: a key's value.")] = "documents",
    condition: CONDITION = None,
    prompts: ASKED_ROWS = None,
    dry_run: REHEARSE = False,
    overwrite: Replace = False,
    *,
    opening: dict[str, Any],
    serving: dict[str, Any],
    asked: dict[str, Any],
    asking: dict[str, Any],
) -> None:
    """Ask a model for what stands at each place of its prompt: scores by place, and whether the middle is lost."""
    from posbias.models.opening import check_model

    if not dry_run:
        check_output(output, overwrite=overwrite)
        if figure is not None:
            check_output(figure, (".png", ".svg"), "figure", overwrite=overwrite)
    wanted, asking = Task(task, **asked), {**asking, "prompts": prompts}
    if serving["server"] is not None:
        given = [one for one in (subject, rows) if one is not None]
        found = lookup_served(serving, given, wanted, asking, condition or (), output, dry_run)
    else:
        wanted.check_given(rows, prompts)  # before anything heavy is loaded
        check_model(check_subject(subject, serving["model"]))
        named = {"task": task, "rows": rows and read_rows(rows), "conditions": condition or (), **asked, **asking}
        opened = _open(str(subject), opening)
        if dry_run:
            return typer.echo(opened.preview_lookup(**named))
        found = opened.lookup(**named, progress=True)
    if processes.rank() or dry_run:
        return
    typer.echo(f"{found.save(output)}: {found!r}")
    if figure is not None:
        typer.echo(f"{found.figure(figure)}: figure")
