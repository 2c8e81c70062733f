"""The studies by name: what each asks, which chapter reads it, and how its files are made, one after another.

A study is a row of :data:`STUDIES`. ``posbias study NAME`` turns it into jobs, one for each file, and runs those whose
file is not there yet. A file says which command makes it again.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import xarray as xr
from tqdm import tqdm  # type: ignore[import-untyped]

from posbias import checks
from posbias.files import whole_file
from posbias.measure.corpus import Corpus
from posbias.measure.loading import Source
from posbias.measure.studies.absolute import measure_components, measure_control
from posbias.measure.studies.corpora import measure_corpus, measure_snapshot, measure_untrained
from posbias.measure.studies.gap import measure_refinements
from posbias.measure.studies.gradients import measure_hops
from posbias.measure.studies.norms import measure_norms
from posbias.measure.studies.path_gradients import measure_pathways
from posbias.measure.studies.rotary_kernels import measure_rotary
from posbias.measure.study import Settings
from posbias.shipped import PREFIX, reference_names
from posbias.training.reference.models import REFERENCES

ARTICLE = r"^ = [^=].* = $"
"""First line of an article in the text of WikiText-2."""

ROTARY = ("llama-12", "llama-ntk-12", "mistral-12")
STEPS = "step-*"


@dataclass(frozen=True)
class Part:
    """Say what one of a study's files holds.

    Parameters
    ----------
    name
        As it stands in the file's name; one that ends in the length of its prompts follows it.
    prompts, length, batch_size
        How many prompts, of how many tokens, and how many at a time.
    measure
        Makes the contents of the settings of a model; in place of the study's.
    rule, per_document
        As :class:`~posbias.measure.study.Settings` has them.
    models
        Reference models that it is made for, if not for all of the study's.
    """

    name: str
    prompts: int
    length: int
    batch_size: int = 8
    measure: Callable[..., xr.Dataset] | None = None
    rule: str = "first"
    per_document: int = 1
    models: tuple[str, ...] | None = None

    def of_length(self, n: int) -> Part:
        """Return the part with prompts of ``n`` tokens; a length in its name changes too."""
        stem = self.name.removesuffix(f"-{self.length}")
        return replace(self, length=n, name=self.name if stem == self.name else f"{stem}-{n}")


@dataclass(frozen=True)
class Plan:
    """Say what a study asks and how its files are made.

    Parameters
    ----------
    question
        What a chapter wants to know.
    chapter
        The chapter that reads it, and the folder of ``results`` that has its files.
    file
        Name of a file, of ``{model}`` and ``{part}``; without ``{model}`` one file holds all models.
    measure
        Makes the contents of a file of the settings of each of its models.
    parts
        What files there are for each model.
    minutes
        About how long all of it takes on two cores.
    models
        Reference models; all of them unless given.
    """

    question: str
    chapter: str
    file: str
    measure: Callable[..., xr.Dataset]
    parts: tuple[Part, ...]
    minutes: int
    models: tuple[str, ...] = field(default_factory=lambda: tuple(REFERENCES))


STUDIES: Mapping[str, Plan] = {
    "corpora": Plan(
        "What do models do on natural text, other text, random tokens and longer prompts?",
        "11_models",
        "{model}.{part}.nc",
        measure_corpus,
        (
            Part("builtin", 256, 256),
            Part("random", 128, 256, rule="random"),
            Part("wikitext-2", 256, 256, rule="cut", per_document=8),
            Part("builtin-1024", 24, 1024, batch_size=2, models=tuple(set(REFERENCES) - {"gpt2-12"})),
        ),
        90,
    ),
    "untrained": Plan(
        "What do the same models do before training?",
        "11_models",
        "{model}-untrained-{part}.builtin.nc",
        measure_corpus,
        (
            Part("default", 32, 256, measure=partial(measure_untrained, init="default")),
            Part("unit", 32, 256, measure=partial(measure_untrained, init="unit")),
        ),
        10,
    ),
    "snapshots": Plan(
        "How does mixing change over training?", "12_mixing", "{model}.{part}.nc", measure_snapshot,
        (Part(STEPS, 16, 256),), 15,
    ),
    "absolute": Plan(
        "Where does absolute position leak into the attention of rotary models?",
        "15_absolute",
        "{part}.nc",
        measure_components,
        (
            Part("components", 128, 256, rule="cut", per_document=16),
            Part("control", 128, 256, measure=measure_control, rule="random", models=("llama-12",)),
        ),
        40,
        ROTARY,
    ),
    "norms": Plan(
        "What do norms before attention divide by, and how recent does that make attention?",
        "16_norms",
        "{model}.{part}.nc",
        measure_norms,
        (Part("norms", 48, 256, rule="cut"),),
        15,
    ),
    "hops": Plan(
        "How much influence comes over how many attention hops?",
        "31_comparison",
        "{model}.{part}.nc",
        measure_hops,
        (Part("hops", 16, 256),),
        15,
    ),
    "gap": Plan(
        "Which reading of kernels, mixing and gains brings a rollout closest to influence?",
        "31_comparison",
        "{model}.{part}.nc",
        measure_refinements,
        (Part("gap", 48, 256, batch_size=4),),
        30,
    ),
    "paths": Plan(
        "How do the gradients of single paths add up?",
        "31_comparison",
        "{model}.{part}.nc",
        measure_pathways,
        (
            Part("paths-64", 8, 64, batch_size=4),
            Part("paths-128", 2, 128, batch_size=4, models=("bloom-8", "llama-12", "gpt2-12")),
        ),
        60,
    ),
    "rotary": Plan(
        "What may stand in for the mean attention of a rotary model?",
        "35_rotary",
        "{model}.{part}.nc",
        measure_rotary,
        (Part("rotary", 256, 256), Part("rotary-1024", 24, 1024, batch_size=2)),
        30,
        ROTARY,
    ),
}  # fmt: skip
"""The studies by name, in the order of their chapters."""


@dataclass(frozen=True)
class Request:
    """Hold what is asked of a study beside its name; None leaves what its row says.

    Parameters
    ----------
    models
        Names of reference models, or directories or ids on the hub.
    parts
        Names of parts.
    prompts, length
        How many prompts, of how many tokens.
    wikitext
        Text of WikiText-2, its test part, for the part of that name.
    trained
        Folder that ``posbias train-reference -o`` filled with ``--snapshots``, for the study of that name.
    """

    models: Sequence[str] | None = None
    parts: Sequence[str] | None = None
    prompts: int | None = None
    length: int | None = None
    wikitext: Path | None = None
    trained: Path | None = None


@dataclass(frozen=True)
class Job:
    """Hold one file that is to be made.

    Parameters
    ----------
    path
        The file.
    measure
        Makes its contents of ``settings``.
    settings
        One for each model in the file.
    command
        What makes the file again.
    """

    path: Path
    measure: Callable[..., xr.Dataset]
    settings: tuple[Settings, ...]
    command: str


def plan_of(name: str) -> Plan:
    """Return a study's row.

    Raises
    ------
    ValueError
        For an unknown name, with the known ones.

    >>> plan_of("gap").chapter
    '31_comparison'
    """
    if name not in STUDIES:
        raise checks.refuse("study", f"one of {', '.join(STUDIES)}", name)
    return STUDIES[name]


def jobs(name: str, folder: Path, request: Request) -> list[Job]:
    """Return the files of a study that are asked for, in the order in which they are made.

    Parameters
    ----------
    name
        One of :data:`STUDIES`.
    folder
        Where the files go.
    request
        What is asked for.

    Raises
    ------
    ValueError
        For a name, a number or a file that cannot be.
    """
    plan = plan_of(name)
    for what, number, least in (("prompts", request.prompts, 1), ("length", request.length, 2)):
        if number is not None:
            checks.positive_integer(what, number, minimum=least)
    models = _models(plan, request)
    parts = _parts(plan, request)
    if name == "snapshots":
        rows = [([model], part) for model in models for part in _snapshots(model, parts, request)]
    elif "{model}" in plan.file:
        rows = [([model], part) for model in models for part in parts if _has(part, model, request)]
    else:
        rows = [([m for m in models if _has(part, m, request)], part) for part in parts]
    return [_job(name, folder, few, part, request) for few, part in rows if few]


def run(todo: Sequence[Job], *, force: bool = False, asked: Request | None = None) -> Iterator[tuple[Path, float]]:
    """Make files that are not there, one after another, and yield each with the seconds that it took.

    A file is written whole or not at all; a run that was stopped goes on with the first file that is missing.

    Parameters
    ----------
    todo
        Of :func:`jobs`.
    force
        Whether to make files again that are there.
    asked
        What was asked for: a file that is there and has other numbers of prompts or tokens is refused.

    Raises
    ------
    ValueError, OSError
        As the study does, and if a file is there that was measured otherwise.
    """
    left = [job for job in todo if force or not job.path.exists()]
    for job in todo:
        if job not in left and asked is not None:
            _check_same(job.path, asked)
    with tqdm(total=len(left), unit=" files", disable=not sys.stderr.isatty(), dynamic_ncols=True) as bar:
        for job in left:
            bar.set_description(job.path.stem)
            job.path.parent.mkdir(parents=True, exist_ok=True)
            began = time.monotonic()
            write(job.path, job.measure(*job.settings).assign_attrs(command=job.command))
            bar.update()
            yield job.path, time.monotonic() - began


def write(path: Path, data: xr.Dataset) -> None:
    """Write a study's data as netCDF, packed, whole or not at all."""
    packed = {"zlib": True, "complevel": 9, "shuffle": True}
    with whole_file(path) as temporary:
        encoding: dict[Any, Any] = {k: packed for k, x in data.data_vars.items() if x.ndim > 0 and x.dtype.kind == "f"}
        data.to_netcdf(temporary, engine="h5netcdf", encoding=encoding)


def _models(plan: Plan, request: Request) -> list[str]:
    """Return the models asked for; those that are no reference models must be there."""
    known = reference_names()
    for model in request.models or ():
        if model not in known and not Path(model).is_dir() and "/" not in model:
            raise checks.refuse("--only", f"a directory, an id on the hub, or one of {', '.join(known)}", model)
    return list(request.models or plan.models)


def _parts(plan: Plan, request: Request) -> list[Part]:
    """Return the parts asked for, with the numbers asked for: without a name, those that have the length, if any do."""
    n = request.length
    known = {part.name: part for part in plan.parts}
    if n is not None:  # a name that says the length is known with that length too
        known = {part.of_length(n).name: part.of_length(n) for part in plan.parts[::-1]} | known
    for name in request.parts or ():
        if name not in known and STEPS not in known:
            raise checks.refuse("--part", f"one of {', '.join(part.name for part in plan.parts)}", name)
    parts = [known.get(name, plan.parts[0]) for name in request.parts or [part.name for part in plan.parts]]
    if n is not None and not request.parts:
        free = [part for part in parts if part.of_length(n).name == part.name] or parts[:1]
        parts = [part for part in parts if part.length == n] or [part.of_length(n) for part in free]
    elif n is not None:
        for part in parts:
            if part.length != n and part.of_length(n).name != part.name:
                raise checks.refuse("--length", f"{part.length} for {part.name}, or no --part", n)
        parts = [part.of_length(n) for part in parts]
    return [replace(part, prompts=request.prompts or part.prompts) for part in parts]


def _has(part: Part, model: str, request: Request) -> bool:
    """Tell whether a part is made of a model: WikiText-2 only where its text is given."""
    if part.name == "wikitext-2" and request.wikitext is None:
        if request.parts:
            raise checks.refuse("--part wikitext-2", "--wikitext FILE, its text", "none")
        return False
    return part.models is None or model in part.models or model not in REFERENCES


def _snapshots(model: str, parts: list[Part], request: Request) -> list[Part]:
    """Return a part for each state of a model that was kept during training."""
    if request.trained is None:
        raise checks.refuse("snapshots", "--trained FOLDER, made by posbias train-reference --snapshots", "none")
    there = sorted(path.name for path in (request.trained / model).glob(STEPS))
    wanted = request.parts or there
    if not set(wanted) <= set(there):
        raise checks.refuse("--part", f"one of {', '.join(there) or 'the steps that are kept'}", ", ".join(wanted))
    return [replace(parts[0], name=step) for step in wanted]


def _job(name: str, folder: Path, models: list[str], part: Part, request: Request) -> Job:
    plan = STUDIES[name]
    corpus, options = Corpus("builtin"), []
    if part.name == "wikitext-2" and request.wikitext is not None:
        corpus = Corpus(str(request.wikitext), separator=ARTICLE)
        options = ["--wikitext", request.wikitext.name]
    if name == "snapshots" and request.trained is not None:
        options = ["--trained", request.trained.resolve().name]
    settings = []
    for model in models:
        where = str(request.trained / model / part.name) if name == "snapshots" else _source(model)  # type: ignore[operator]
        settings.append(
            Settings(
                Source(where),
                corpus,
                part.prompts,
                part.length,
                part.batch_size,
                rule=part.rule,
                per_document=part.per_document,
            )
        )
    only = [word for model in models for word in ("--only", Path(model).name)]
    numbers = ["--prompts", str(part.prompts), "--length", str(part.length)]
    words = ["posbias", "study", name, *only, "--part", part.name, *options, *numbers]
    path = folder / plan.file.format(model=Path(models[0]).name, part=part.name)
    return Job(path, part.measure or plan.measure, tuple(settings), shlex.join(words))


def _source(model: str) -> str:
    return f"{PREFIX}{model}" if model in reference_names() else model


def _check_same(path: Path, asked: Request) -> None:
    """Raise if a file that is there has other numbers than those asked for."""
    with h5py.File(path) as file:
        for what, wanted in (("prompts", asked.prompts), ("length", asked.length)):
            found = file.attrs.get(what)
            if wanted is not None and found is not None and int(found[()] if found.shape == () else found[0]) != wanted:
                received = f"one with {int(found[0] if found.shape else found)}; --force measures again, -o keeps both"
                raise checks.refuse(f"{path}: {what}", str(wanted), received)
