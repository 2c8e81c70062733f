"""What can be refused of a measurement before anything heavy is loaded: numbers, names, files and folders.

Nothing here needs torch, transformers or xarray, so that a wrong word on a command line is said at once. What reads the
model says the rest; both call the functions of this module.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from posbias import errors
from posbias.files import check_writable
from posbias.measure.corpus import BUILTIN, Corpus
from posbias.measure.settings import check_prompts_fit
from posbias.measure.unfinished import check_unfinished, checkpoint_path
from posbias.netcdf import check_signature
from posbias.networks.description import check_described
from posbias.networks.names import check_family
from posbias.shipped import FOLDER, PREFIX, reference_names, shipped_names

SIZE_NAMES = (
    "gpt2", "gpt2-medium", "opt-125m", "pythia-160m", "pythia-410m", "bloom-560m", "qwen2-0.5b", "falcon-rw-1b",
    "tinyllama-1.1b", "llama-3.2-1b", "mpt-125m",
)  # fmt: skip
"""Published sizes: the names of :data:`~posbias.measure.untrained.SIZES`."""
BODY_NAMES = ("bloom-12x256", "llama-12x256")
"""Sizes of ours: the names of :data:`~posbias.measure.untrained.BODIES`."""
GIVEN = ", given biases"
"""Stands after the name of a network that is built with position biases which its configuration lacks."""
DTYPE_NAMES = ("float32", "bfloat16", "float16")
"""Number formats: the names of ``DTYPES`` of :mod:`posbias.measure.loading`."""
HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)
"""What an id on the hub looks like."""


def check_output(output: Path, suffix: str = ".nc", field: str = "output") -> Path:
    """Return the file to write, or raise unless it has the suffix and can be written.

    Raises
    ------
    ValueError
        For another suffix.
    OSError
        If the file cannot be written, or its folder is not there.

    >>> check_output(Path("m.csv"))
    Traceback (most recent call last):
    ValueError: output: expected a file name that ends in .nc, received m.csv
    """
    if output.suffix != suffix:
        raise errors.invalid(field, f"a file name that ends in {suffix}", output.name or repr(str(output)))
    return check_writable(output)


def check_measurement(path: Path) -> Path:
    """Return the file of a measurement, or raise unless it is there, ends in .nc, and begins as netCDF does.

    Raises
    ------
    ValueError
        For another suffix or format.
    OSError
        If it cannot be read.
    """
    if path.suffix != ".nc":
        raise errors.invalid("path", "a file name that ends in .nc", path.name or repr(str(path)))
    check_signature(path)
    return path


def check_numbers(prompts: int, length: int, batch_size: int, *, per_document: int = 1, seed: int = 0) -> None:
    """Raise for numbers out of range, and for more prompts than there is memory for.

    Parameters
    ----------
    prompts, length, batch_size
        How many prompts, of how many tokens, and how many at a time.
    per_document, seed
        Of the prompts.

    Raises
    ------
    ValueError
        With the field, what was expected, and what came.

    >>> check_numbers(0, 256, 8)
    Traceback (most recent call last):
    ValueError: prompts: expected an integer of at least 1, received 0
    """
    errors.positive_integer("prompts", prompts)
    errors.positive_integer("length", length, minimum=2)
    errors.positive_integer("batch_size", batch_size)
    errors.positive_integer("per_document", per_document)
    errors.positive_integer("seed", seed, minimum=0)
    check_prompts_fit(prompts, length)


def check_dtype(name: str) -> None:
    """Raise ValueError unless a number format has this name."""
    if name not in DTYPE_NAMES:
        raise errors.invalid("dtype", f"one of {', '.join(DTYPE_NAMES)}", name or "an empty name")


def check_model(model: str) -> None:
    """Raise for the name of a model that cannot be one, and for a directory without a configuration of a known family.

    Parameters
    ----------
    model
        Directory, id on the hub, or ``reference/NAME``.

    Raises
    ------
    ValueError
        With what was expected. Whether the hub has an id is not asked here.
    """
    if not model.strip():
        raise errors.invalid("model", "a directory, an id on the hub, or reference/NAME", "an empty name")
    path = Path(model)
    if path.is_dir():
        check_config(path / "config.json", f"model {model}")
        return
    if path.exists():
        raise errors.invalid("model", "the directory of a model", f"a file, {model}")
    if model.startswith(PREFIX):
        if model.removeprefix(PREFIX) not in reference_names():
            raise errors.invalid("model", f"reference/ and one of {', '.join(reference_names())}", model)
    elif model in reference_names():
        raise errors.invalid("model", f"{PREFIX}{model} for that reference model", model)
    elif not HUB_ID.fullmatch(model) or ".." in model:
        wanted = "a directory, or an id that the hub answers for"
        raise errors.invalid(f"model {model}", wanted, "no such directory")


def check_source(model: str | None, init: str | None) -> None:
    """Raise for a model, or a configuration of a network at birth, that cannot be one.

    Parameters
    ----------
    model, init
        One of both, as :func:`check_subject` wants it.

    Raises
    ------
    ValueError
        As :func:`check_model` and :func:`init_file` do.
    """
    if init is None:
        check_model(model or "")
        return
    file = init_file(init)
    if file is not None:
        check_config(file, f"init {file}")


def check_config(file: Path, what: str) -> dict[str, Any]:
    """Return the fields of a configuration, or raise if it is missing, no JSON object, or of an unknown family.

    Position biases that it describes must be those of its family, layers and heads.

    Parameters
    ----------
    file
        The ``config.json``, or a configuration of another name.
    what
        What it, or its directory, is called in messages.

    Raises
    ------
    ValueError
        With what was expected.
    """
    if not file.is_file():
        raise errors.invalid(what, "a directory with a config.json", "one without")
    fields = read_object(file)
    if "auto_map" not in fields:  # what comes with code of its own is refused, or let pass, where it is loaded
        try:
            check_family(fields.get("model_type"))
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None
    check_described(fields, str(file))
    return fields


def read_object(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file.

    Raises
    ------
    ValueError
        For a file that is no JSON, or holds no object; with the file and the reason.
    OSError
        If it cannot be read.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        reason = "objects nested too deep" if isinstance(error, RecursionError) else " ".join(str(error).split())[:120]
        raise errors.invalid(str(file), "JSON", reason) from None
    if not isinstance(found, dict):
        raise errors.invalid(str(file), "a JSON object", json.dumps(found)[:40])
    return found


def init_file(init: str) -> Path | None:
    """Return the file of the configuration of a network at birth, None for a published size; raise if it is neither.

    Parameters
    ----------
    init
        A ``config.json``, a directory with one, ``reference/NAME``, or a name of :data:`SIZE_NAMES` or
        :data:`BODY_NAMES`.

    Raises
    ------
    ValueError
        For anything else.
    """
    path = Path(init or "no path")
    if init.startswith(PREFIX) and not path.exists() and init.removeprefix(PREFIX) in shipped_names():
        path = FOLDER / init.removeprefix(PREFIX)
    if path.is_dir():
        path /= "config.json"
        if not path.is_file():
            raise errors.invalid(f"init {init}", "a directory with a config.json", "one without")
    if path.is_file():
        return path
    names = (*SIZE_NAMES, *BODY_NAMES)
    if init in names:
        return None
    wanted = f"a config.json, a directory with one, {PREFIX}NAME, or one of {', '.join(names)}"
    raise errors.invalid("init", wanted, init or "an empty name")


def check_subject(model: str | None, init: str | None, seed: int = 0, **of_weights: Any) -> None:
    """Raise unless a model or a network at birth is named, not both, and what is said of it fits.

    Parameters
    ----------
    model, init
        As :func:`~posbias.measure.model.open` has them.
    seed
        Of the weights of a network at birth.
    of_weights
        What only a model with weights has: a revision, pickles, code of its own, a ``device_map``.

    Raises
    ------
    ValueError
        With what was expected.

    >>> check_subject(None, None)
    Traceback (most recent call last):
    ValueError: model: expected --model, or --init for an untrained network, received neither
    """
    if init is None:
        if model is None:
            raise errors.invalid("model", "--model, or --init for an untrained network", "neither")
        return
    if model is not None:
        raise errors.invalid("init", "no --model beside it: weights are read or drawn, not both", f"model {model}")
    check_init_options(**of_weights)
    errors.seed("seed", seed)


def check_init_options(**of_weights: Any) -> None:
    """Raise ValueError for what belongs to weights and is asked of a network at birth, which reads none."""
    for field, value in of_weights.items():
        if value and field == "device_map":
            raise errors.invalid(field, "none with --init, which builds a model on one device", value)
        if value:
            raise errors.invalid(field, "none with --init, which reads no weights", value)


def chosen_corpus(dataset: str | None, rule: str, separator: str | None = None, field: str = "text") -> Corpus:
    """Return the documents that prompts are cut from, or raise if there can be none.

    Parameters
    ----------
    dataset
        A name or a path; None for random tokens.
    rule
        How prompts are cut.
    separator, field
        As :class:`~posbias.measure.corpus.Corpus` has them.

    Raises
    ------
    ValueError
        If there is no data set for a rule that cuts text, or one for the rule that reads none, or it cannot be read.
    """
    if dataset is None:
        if rule != "random":
            raise errors.invalid("dataset", "--dataset, for prompts that are cut from text", "none")
        return Corpus(BUILTIN, separator, field)
    if rule == "random":
        raise errors.invalid("dataset", "none with the rule random, which draws tokens and reads no text", dataset)
    corpus = Corpus(dataset, separator, field)
    corpus.check()
    return corpus


def check_run(output: Path, *, resume: bool, overwrite: bool = False, report: Path | None = None) -> None:
    """Raise unless a measurement can be written, and begun or resumed.

    Parameters
    ----------
    output
        The .nc file.
    resume
        Whether to go on from a checkpoint if there is one, and to return a result that is there.
    overwrite
        Whether to replace a result that is there.
    report
        An .html file to write too.

    Raises
    ------
    ValueError
        For a wrong suffix, one file for both, and a checkpoint that is in the way.
    OSError
        If a file cannot be written.
    """
    if report is not None:
        check_output(report, ".html", "report")
    check_output(output)
    if output.exists() and not (resume or overwrite):
        raise errors.invalid(str(output), "a file that is not there yet, or --overwrite", "one that is there")
    check_unfinished(own_checkpoint(output), resume=resume)


def own_checkpoint(output: Path) -> Path:
    """Return the checkpoint of this process, one of several if torchrun says so."""
    rank = os.environ.get("RANK", "0")
    return checkpoint_path(output, int(rank) if rank.isdigit() else 0)
