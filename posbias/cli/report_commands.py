"""The command that answers in one page: ``posbias report``, on a measurement, or on a model that it measures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posbias import errors
from posbias.files import refuse_same

if TYPE_CHECKING:
    from posbias.measure.measurement import Measurement

PROMPTS, LENGTH = 64, 256
"""What is measured unless given: a reference model takes less than a minute on two cores."""


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("report")(report)


def report(
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML file to write (.html); a report is replaced.")],
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL_OR_FILE",
            help="Measurement, summary or retrieval (.nc); or a model to measure: directory, id on the hub, or "
            "reference/NAME.",
        ),
    ] = None,
    compare: Annotated[
        Path | None, typer.Option(help="Measurement or summary (.nc) of another model, to set beside this one.")
    ] = None,
    keep: Annotated[Path | None, typer.Option(help="Also keep the measurement: a new netCDF file (.nc).")] = None,
    init: Annotated[
        str | None, typer.Option("--untrained", help="In place of a model, an untrained network, as for posbias measure.")
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset", "-d", help="As for posbias measure; builtin unless given, random tokens with --init."
        ),
    ] = None,
    prompts: Annotated[int | None, typer.Option("--prompts", "-N", help=f"Number of prompts; {PROMPTS}.")] = None,
    length: Annotated[int | None, typer.Option("--length", "-n", help=f"Tokens in each; {LENGTH}.")] = None,
    batch_size: Annotated[int | None, typer.Option("--batch-size", "-B", help="Prompts at a time; 8.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16 or float16.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, …; a GPU if there is one.")] = None,
    device_map: Annotated[str | None, typer.Option(help="Spread the model by accelerate: auto, balanced, …")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of prompts that are drawn, and of the weights of --init; 0.")
    ] = None,
    rule: Annotated[str | None, typer.Option(help="first, cut or random, as for posbias measure.")] = None,
    separator: Annotated[str | None, typer.Option(help="Lines that begin a new document in a text file.")] = None,
    field: Annotated[str | None, typer.Option(help="Column of the text in .jsonl and .parquet; text.")] = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of the model on the hub.")] = None,
    tokenizer: Annotated[str | None, typer.Option(help="Directory or id, if it is not the model's own.")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")
    ] = False,
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Load weights that are not in safetensors; they can run code.")
    ] = False,
) -> None:
    """Answer in one page: is there a trough, what predicts it, and where does the model stand; figures, tests, data."""
    measuring = {
        "prompts": prompts, "length": length, "batch_size": batch_size, "dtype": dtype, "device": device,
        "device_map": device_map, "rule": rule, "separator": separator, "field": field, "dataset": dataset, "seed": seed,
    }  # fmt: skip
    opening = {"revision": revision, "tokenizer": tokenizer, "untrained": init}
    chosen = {name: value for name, value in (measuring | opening).items() if value is not None}
    allowed = {"trust_remote_code": trust_remote_code, "allow_pickle": allow_pickle}
    is_file = subject is not None and subject.endswith(".nc") and not Path(subject).is_dir()
    check_before(output, subject if is_file else None, compare, keep)
    if is_file:
        only_for_models = [*chosen, *(name for name, value in allowed.items() if value), *(["keep"] if keep else [])]
        if only_for_models:
            received = f"the file {subject}, which is measured already"
            raise errors.invalid(only_for_models[0], "a model to measure", received)
    else:
        check_wanted(subject, opening | allowed, measuring)
    if is_file and is_retrieval(Path(str(subject))):
        report_retrieval(output, Path(str(subject)), compare)
        return
    from posbias.measure.measurement import load

    other = None if compare is None else load(compare)
    if is_file:
        assert subject is not None
        measured = load(subject)
    else:
        measured = measure(subject, opening | allowed, measuring)
        if keep is not None:
            typer.echo(f"{measured.save(keep)}: {measured.prompts} prompts of {measured.length} tokens")
    path = measured.report(output, beside=other)
    typer.echo(f"{path}: {path.stat().st_size / 1024:.0f} KiB, {measured.described}")


def is_retrieval(path: Path) -> bool:
    """Tell whether a file is one of ``posbias retrieval``; errors are those of a file that cannot be read."""
    from posbias.measure.measurement import extra

    with extra("measure"):
        from posbias import netcdf
        from posbias.lookup.file import LAYOUT

        return LAYOUT in netcdf.load(path).attrs


def report_retrieval(output: Path, path: Path, compare: Path | None) -> None:
    """Write the report on a file of ``posbias retrieval``.

    Raises
    ------
    ValueError
        If it is incomplete, and for a file to set beside it.
    OSError
        If a file cannot be read or written.
    """
    if compare is not None:
        raise errors.invalid("compare", "none with a retrieval, whose report stands alone", compare)
    from posbias.lookup.file import read_retrieval
    from posbias.lookup.text import described, title
    from posbias.measure.measurement import extra

    results = read_retrieval(path)
    with extra("book"):
        from posbias.report.lookup_page import write_retrieval_report
    written = write_retrieval_report(output, results)
    typer.echo(f"{written}: {written.stat().st_size / 1024:.0f} KiB, {title(results)}: {described(results)}")


def check_before(output: Path, source: str | None, compare: Path | None, keep: Path | None) -> None:
    """Refuse, before anything is measured, outputs that cannot be written or that are inputs.

    Raises
    ------
    ValueError
        For another suffix, an output that is an input, and a measurement that is there already.
    OSError
        If a folder is not there or cannot be written.
    """
    from posbias.files import check_output
    from posbias.netcdf import check_measurement

    check_output(output, ".html")
    for file in (source, compare):
        if file is not None:
            check_measurement(Path(file))
    for there in (source, compare):
        if there is not None:
            refuse_same(output, Path(there))
    if keep is not None:
        if check_output(keep, field="keep").exists():
            raise errors.invalid("keep", "a new file", f"{keep}, which is there")


def check_wanted(subject: str | None, opening: dict[str, Any], measuring: dict[str, Any]) -> None:
    """Refuse what can be refused of a model and its prompts before anything heavy is loaded.

    Raises
    ------
    ValueError
        With the field, what was expected, and what came.
    """
    from posbias.measure.corpus import chosen_corpus
    from posbias.measure.opening import check_subject
    from posbias.measure.settings import check_settings

    init, seed, dataset = opening["untrained"], measuring["seed"] or 0, measuring["dataset"]
    if subject is None and init is None:
        raise errors.invalid("model", "a measurement (.nc), a model to measure, or --untrained", "neither")
    check_subject(
        subject, init, seed, revision=opening["revision"], trust_remote_code=opening["trust_remote_code"],
        allow_pickle=opening["allow_pickle"], device_map=measuring["device_map"],
    )  # fmt: skip
    numbers = {name: measuring[name] for name in ("prompts", "length", "batch_size") if measuring[name] is not None}
    given = {"dtype": measuring["dtype"], "device": measuring["device"], "seed": seed}
    check_settings({"prompts": PROMPTS, "length": LENGTH, "batch_size": 8, **numbers, **given})
    wanted = {"dataset": dataset, "rule": measuring["rule"], "separator": measuring["separator"]}
    chosen_corpus(wanted | {"field": measuring["field"] or "text"}, untrained=init is not None)


def measure(subject: str | None, opening: dict[str, Any], measuring: dict[str, Any]) -> Measurement:
    """Measure a model, or a network at birth, with what is not given as the command has it.

    Raises
    ------
    ValueError, OSError
        As :func:`~posbias.measure.model.open` and :meth:`~posbias.measure.model.Model.measure` do.
    """
    from posbias.measure import model as handle

    given = {name: value for name, value in measuring.items() if value is not None}
    opened = handle.open(subject, seed=given.get("seed", 0), **{k: x for k, x in opening.items() if x is not None})
    return opened.measure(**{"prompts": PROMPTS, "length": LENGTH, **given})
