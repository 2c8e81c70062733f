"""The studies by name: what each asks, which chapter reads it, and how its files are made, one after another.

A study is a row of :data:`STUDIES`. ``posbias study NAME`` turns it into jobs, one for each file, and runs those whose
file is not there yet. A file says which command makes it again.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import xarray as xr

from posbias import errors, netcdf
from posbias.files import check_folder
from posbias.measure import checkpoint
from posbias.measure.corpus import Corpus
from posbias.measure.loading import Source
from posbias.measure.progress import progress
from posbias.measure.settings import KERNEL_SIZE, Settings
from posbias.measure.sizes import BODIES, SIZES
from posbias.measure.untrained import Untrained
from posbias.shipped import PREFIX, reference_names
from studies.absolute.measure import (
    measure_architectures,
    measure_components,
    measure_control,
    measure_start,
)
from studies.asked import Request, check_request, check_study
from studies.design.measure import measure_designed, measure_designs, measure_gated
from studies.design.remedies import measure_added_biases, measure_remedies
from studies.ladder.alignment import measure_between
from studies.ladder.gap import measure_refinements
from studies.ladder.gradients import measure_hops
from studies.ladder.paths import measure_pathways
from studies.ladder.rotary import measure_rotary
from studies.norms.measure import measure_norms
from studies.reference.corpora import measure_corpus, measure_snapshot, measure_untrained
from studies.reference.models import DESIGNED, REFERENCES
from studies.reference.training_seeds import LARGE, measure_seed
from studies.untrained.measure import measure_at_birth
from studies.untrained.small_families import SMALL, SmallBirth

ARTICLE = r"^ = [^=].* = $"
"""First line of an article in the text of WikiText-2."""

ROTARY, STARTLESS = ("llama-12", "llama-ntk-12", "mistral-12"), ("gpt2-12", "nope-12")
"""Models with rotary positions and a start token, and models that were trained without a start token."""
STEP, STEPS, WIKITEXT, SEED = "step-", "step-*", "wikitext-2", "seed-"
"""Names of parts that need a folder of trained models, a file of text, and a folder of models from another seed."""
ROTATED, LONG = ("pythia-160m", "qwen2-0.5b"), ("gpt2", "opt-125m", "mpt-125m", "pythia-160m")
"""Untrained architectures that are measured without their rotations too, and on long prompts."""


UNROTATED, UNTURNED = "-unrotated", partial(measure_at_birth, unrotated=True)
TOO_LARGE = ("pythia-410m", "falcon-rw-1b", "llama-3.2-1b")
"""Published sizes that are measured only if they are named."""


@dataclass(frozen=True)
class Part:
    """Say what one of a study's files holds.

    Parameters
    ----------
    name
        As it stands in the file's name; one that ends in the length of its prompts follows it.
    measure
        Makes the file's contents of the settings of each of its models.
    prompts, length, batch_size
        How many prompts, of how many tokens, and how many at a time.
    rule, per_document
        As :class:`~posbias.measure.settings.Settings` has them.
    models
        Reference models that it is made for, if not for all of the study's.
    """

    name: str
    measure: Callable[..., xr.Dataset]
    prompts: int
    length: int
    batch_size: int = 8
    rule: str = "first"
    per_document: int = 1
    models: tuple[str, ...] | None = None

    def of_length(self, n: int) -> Part:
        """Return the part with prompts of ``n`` tokens; a length in its name changes too."""
        stem = self.name.removesuffix(f"-{self.length}")
        return replace(self, length=n, name=self.name if stem == self.name else f"{stem}-{n}")


@dataclass(frozen=True)
class Plan:
    """Say what a study asks and which files it makes.

    Parameters
    ----------
    question
        What a chapter wants to know.
    chapter
        The chapter that reads it, and the folder of ``results`` that has its files.
    file
        Name of a file, of ``{model}`` and ``{part}``; without ``{model}`` one file holds all models.
    minutes
        About how long all of it takes on one core, from processor seconds of some of its files.
    parts
        What files there are for each model.
    models
        Reference models, or published sizes.
    untrained
        Where models at birth come from by their names, and which there are; None for models with weights.
    """

    question: str
    chapter: str
    file: str
    minutes: int
    parts: tuple[Part, ...]
    models: tuple[str, ...] = tuple(REFERENCES)
    untrained: tuple[Callable[[str], Untrained], Sequence[str]] | None = None

    def known(self) -> Sequence[str]:
        """Return the names that a request may use."""
        return tuple(dict.fromkeys((*reference_names(), *self.models))) if self.untrained is None else self.untrained[1]

    def source(self, model: str) -> Source:
        """Return where a model comes from."""
        return Source(_source(model)) if self.untrained is None else self.untrained[0](model)


def _published(model: str) -> Untrained:
    """Return a published size at birth; text is cut by the tokenizer of a reference model."""
    return Untrained(model, tokenizer=f"{PREFIX}llama-12")


STUDIES: Mapping[str, Plan] = {
    "birth": Plan(
        "What do untrained networks of real architectures listen to?",
        "untrained_models",
        "{model}.{part}.nc",
        80,
        (
            Part("random", measure_at_birth, 8, 256, 1, rule="random"),
            Part(WIKITEXT, measure_at_birth, 8, 256, 1, rule="cut"),
            Part(f"random{UNROTATED}", UNTURNED, 8, 256, 1, rule="random", models=ROTATED),
            Part("random-1024", measure_at_birth, 8, 1024, 1, rule="random", models=LONG),
            Part(f"{WIKITEXT}-1024", measure_at_birth, 8, 1024, 1, rule="cut", models=LONG),
        ),
        tuple(name for name in SIZES if name not in TOO_LARGE),
        (_published, tuple(SIZES)),
    ),
    "families": Plan(
        "Does the law at birth hold in every family?",
        "untrained_models",
        "small-{model}.{part}.nc",
        20,
        (Part("random", partial(measure_at_birth, random_output=True), 64, 256, 8, rule="random"),),
        tuple(SMALL),
        (SmallBirth, tuple(SMALL)),
    ),
    "corpora": Plan(
        "What do models do on natural text, other text, random tokens and longer prompts?",
        "models",
        "{model}.{part}.nc",
        20,
        (
            Part("builtin", measure_corpus, 256, 256),
            Part("random", measure_corpus, 128, 256, rule="random"),
            Part(WIKITEXT, measure_corpus, 256, 256, rule="cut", per_document=8),
            Part("builtin-1024", measure_corpus, 24, 1024, 2, models=tuple(x for x in REFERENCES if x != "gpt2-12")),
        ),
    ),
    "untrained": Plan(
        "What do the same models do before training?",
        "models",
        "{model}-untrained-{part}.builtin.nc",
        3,
        (
            Part("default", partial(measure_untrained, init="default"), 32, 256),
            Part("unit", partial(measure_untrained, init="unit"), 32, 256),
        ),
    ),
    "seeds": Plan(
        "How much do models that were trained from other seeds differ?",
        "models",
        "{model}.{part}.nc",
        10,
        (Part("builtin", measure_seed, 64, 256),),
    ),
    "snapshots": Plan(
        "How does mixing change over training?",
        "mixing",
        "{model}.{part}.nc",
        3,
        (Part(STEPS, measure_snapshot, 16, 256),),
    ),
    "absolute": Plan(
        "Where does absolute position leak into the attention of rotary models?",
        "absolute",
        "{part}.nc",
        9,
        (
            Part("components", measure_components, 128, 256, rule="cut", models=ROTARY),
            Part("control", measure_control, 128, 256, rule="random", models=("llama-12",)),
            Part("start", measure_start, 64, 128, rule="cut"),
            *(Part(f"{SEED}{k}", measure_architectures, 128, 256, rule="cut", models=ROTARY) for k in (1, 2)),
        ),
        (*ROTARY, *STARTLESS),
    ),
    "norms": Plan(
        "What do norms before attention divide by, and how recent does that make attention?",
        "norms",
        "{model}.{part}.nc",
        25,
        (Part("norms", measure_norms, 48, 256, rule="cut"),),
    ),
    "hops": Plan(
        "How much influence comes over how many attention hops?",
        "comparison",
        "{model}.{part}.nc",
        5,
        (Part("hops", measure_hops, 16, 256),),
    ),
    "gap": Plan(
        "Which reading of kernels, mixing and gains brings a rollout closest to influence?",
        "comparison",
        "{model}.{part}.nc",
        5,
        (Part("gap", measure_refinements, 48, 256, 4),),
    ),
    "paths": Plan(
        "How do the gradients of single paths add up?",
        "comparison",
        "{model}.{part}.nc",
        10,
        (
            Part("paths-64", measure_pathways, 8, 64, 4),
            Part("paths-128", measure_pathways, 2, 128, 4, models=("bloom-8", "llama-12", "gpt2-12")),
        ),
    ),
    "between": Plan(
        "Where does a model lie between the law at birth and the aligned sum?",
        "paths",
        "{model}.{part}.nc",
        5,
        (Part("between", measure_between, 24, 256), Part(STEPS, measure_between, 24, 256)),
    ),
    "rotary": Plan(
        "What may stand in for the mean attention of a rotary model?",
        "rotary",
        "{model}.{part}.nc",
        5,
        (Part("rotary", measure_rotary, 256, 256), Part("rotary-1024", measure_rotary, 24, 1024, 2)),
        ROTARY,
    ),
    "designed": Plan(
        "What do trained decoders with designed position biases listen to, and what do they lose?",
        "design",
        "{model}.{part}.nc",
        30,
        (Part("designed", measure_designed, 64, 256), Part("designed-1024", measure_designed, 24, 1024, 2)),
        ("llama-12", "bloom-12", *DESIGNED),
    ),
    "design-birth": Plan(
        "Do untrained networks with designed position biases have the profiles of the two laws?",
        "design",
        "birth-{model}.{part}.nc",
        6,
        (
            Part("default", partial(measure_designs, init="default"), 8, 256, 1, rule="random"),
            Part("unit", partial(measure_designs, init="unit"), 8, 256, 1, rule="random"),
        ),
        tuple(BODIES),
        (Untrained, tuple(BODIES)),
    ),
    "design-gates": Plan(
        "Do untrained networks keep what a design for their gains and gates promises?",
        "design",
        "gates-{model}.{part}.nc",
        10,
        (
            Part("default", partial(measure_gated, init="default"), 16, 256, 1, rule="random"),
            Part("unit", partial(measure_gated, init="unit"), 16, 256, 1, rule="random"),
        ),
        tuple(BODIES),
        (Untrained, tuple(BODIES)),
    ),
    "remedies": Plan(
        "What do known remedies for position bias do to the rollout and the loss of a given model?",
        "design",
        "{model}.{part}.nc",
        8,
        (Part("remedies", measure_remedies, 24, 256), Part("remedies-1024", measure_remedies, 8, 1024, 2)),
        ("llama-12",),
    ),
    "added-biases": Plan(
        "What does a bias chosen for a given model do to the rollout, to influence, to the loss and to copying?",
        "lookup",
        "{model}.{part}.nc",
        8,
        (Part("added", measure_added_biases, 24, 256),),
        ("llama-12", "bloom-12"),
    ),
}
"""The studies by name, in the order of their chapters."""


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
    training
        Seed, steps and held-out loss of a model that was trained from another seed; empty for others.
    """

    path: Path
    measure: Callable[..., xr.Dataset]
    settings: tuple[Settings, ...]
    command: str
    training: Mapping[str, int | float] = field(default_factory=dict)

    def results(self) -> xr.Dataset:
        """Measure, and return what the file holds; files of seeds leave out what is large."""
        found = self.measure(*self.settings).assign_attrs(command=self.command, **self.training)
        return found.drop_vars(LARGE, errors="ignore") if self.training else found


def plan_of(name: str) -> Plan:
    """Return a study's row.

    Raises
    ------
    ValueError
        For an unknown name, with the known ones.

    >>> plan_of("gap").chapter
    'comparison'
    """
    check_study(name)
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
    check_request(name, request)
    models, parts = _models(plan, request), _parts(plan, request)
    done = models if request.trained is None else _complete(models, request.trained)
    if "{model}" in plan.file:
        rows = [([model], part) for model in models for part in _parts_of(model, parts, request, model in done)]
    else:
        rows = [([model for model in done if _of(part, model)], part) for part in parts]
    found = [_job(name, folder, few, part, request) for few, part in rows if few]
    if not found:
        raise errors.invalid(name, "models that have the parts asked for", "none; see posbias study --list")
    return found


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
    with progress(len(left), "files", "studies", shown=bool(left)) as bar:
        for job in left:
            bar.update(0, job.path.stem)
            check_folder(job.path.parent)
            began = time.monotonic()
            results = job.results()
            job.path.parent.mkdir(parents=True, exist_ok=True)  # not before: what is refused leaves no folder
            write(job.path, results)
            bar.update()
            yield job.path, time.monotonic() - began


def write(path: Path, data: xr.Dataset) -> None:
    """Write a study's data as netCDF, packed, whole or not at all."""
    packed = {"zlib": True, "complevel": 9, "shuffle": True}
    encoding = {str(k): packed for k, x in data.data_vars.items() if x.ndim > 0 and x.dtype.kind == "f"}
    netcdf.write(path, data, encoding)


def _models(plan: Plan, request: Request) -> list[str]:
    """Return the models asked for, each once; those that are no reference models must be there."""
    known = plan.known()
    for model in request.models or ():
        if model not in known and (not model.strip() or not Path(model).is_dir()) and "/" not in model:
            names = f"a directory, an id on the hub, or one of {', '.join(known)}"
            raise errors.invalid(
                "--only", names if plan.untrained is None else f"one of {'; '.join(known)}", model or "an empty name"
            )
    return list(dict.fromkeys(request.models or plan.models))


def _parts(plan: Plan, request: Request) -> list[Part]:
    """Return the parts asked for, with the numbers asked for."""
    parts = list(plan.parts)
    if parts[0].name != STEPS:
        parts = _named(parts, request) if request.parts else _given(parts, request)
    if request.length is not None:
        parts = [part.of_length(request.length) for part in parts]
    return [replace(part, prompts=request.prompts or part.prompts) for part in parts]


def _parts_of(model: str, parts: list[Part], request: Request, done: bool) -> list[Part]:
    """Return what is made of one model: states kept during training, and the rest if its training has ended."""
    found = []
    for part in parts:
        if part.name == STEPS:
            found += _snapshots(model, part, request)
        elif done and (request.parts or _of(part, model)):
            found.append(part)
    return found


def _named(parts: list[Part], request: Request) -> list[Part]:
    """Return the parts of the names asked for; one that says the length may say another."""
    n = request.length
    known = {part.name: part for part in parts}
    other = {} if n is None else {part.of_length(n).name: part for part in parts[::-1]}
    for table in (known, other):
        if STEPS in table:
            table |= {name: table[STEPS] for name in request.parts or () if name.startswith(STEP)}
    for name in request.parts or ():
        if name not in known and name not in other:
            raise errors.invalid("--part", f"one of {', '.join(known)}", name)
        if name.startswith(WIKITEXT) and request.wikitext is None:
            raise errors.invalid(f"--part {name}", "--wikitext FILE, its text", "none")
        if name.startswith(SEED) and request.trained is None:
            raise errors.invalid(f"--part {name}", "--trained FOLDER, made by posbias train-reference --seed", "none")
        if name.startswith(STEP) and request.trained is None:
            wanted = "--trained FOLDER, made by posbias train-reference --snapshots"
            raise errors.invalid(f"--part {name}", wanted, "none")
        if n is not None and name not in other:
            raise errors.invalid("--length", f"{known[name].length} for {name}, or no --part", n)
    return list(dict.fromkeys((other if name in other else known)[name] for name in request.parts or ()))


def _given(parts: list[Part], request: Request) -> list[Part]:
    """Return the parts when none is named: those of the length asked for, if there are any, and those that can be."""
    n = request.length
    parts = [part for part in parts if not part.name.startswith(WIKITEXT) or request.wikitext is not None]
    parts = [part for part in parts if not part.name.startswith(SEED)]
    parts = [part for part in parts if part.name != STEPS or request.trained is not None]
    if n is None:
        return parts
    free = [part for part in parts if part.of_length(n).name == part.name] or parts[:1]
    return [part for part in parts if part.length == n] or free


def _of(part: Part, model: str) -> bool:
    """Tell whether a part is made of a model unless it is asked for by name."""
    return part.models is None or model in part.models or model not in (*REFERENCES, *SIZES, *SMALL)


def _complete(models: list[str], trained: Path) -> list[str]:
    """Return those of the models whose training in a folder has ended."""
    return [model for model in models if (trained / model / "config.json").is_file()]


def _snapshots(model: str, part: Part, request: Request) -> list[Part]:
    """Return a part for each state of a model that was kept during training."""
    there = sorted(path.name for path in ((request.trained or Path()) / model).glob(STEPS))
    return [replace(part, name=step) for step in there if not request.parts or step in request.parts]


def _job(name: str, folder: Path, models: list[str], part: Part, request: Request) -> Job:
    plan = STUDIES[name]
    corpus, options, sources = Corpus("builtin"), [], [plan.source(model) for model in models]
    stem, training = _stem(models[0]), {}
    if part.name.startswith(WIKITEXT) and request.wikitext is not None:
        corpus = Corpus(str(request.wikitext), separator=ARTICLE)
        options = ["--wikitext", request.wikitext.name]
    if request.trained is not None and ("{model}" in plan.file or part.name.startswith(SEED)):
        inside = part.name if part.name.startswith(STEP) else ""
        sources = [Source(str((request.trained / model / inside).resolve())) for model in models]
        options += ["--trained", request.trained.resolve().name]
        if name != "snapshots" and "{model}" in plan.file:
            training = _training(request.trained / models[0], inside)
            stem = f"{stem}.seed-{training['training_seed']}"
    numbers = (part.prompts, part.length, part.batch_size)
    settings = tuple(
        Settings(
            source,
            corpus,
            *numbers,
            rule=part.rule,
            per_document=part.per_document,
            kernel_size=max(part.length, KERNEL_SIZE),
        )
        for source in sources
    )
    words = ["posbias", "study", name]
    words += [word for model in models for word in ("--only", _stem(model) if Path(model).is_dir() else model)]
    words += ["--part", part.name, *options, "--prompts", str(part.prompts), "--length", str(part.length)]
    path = folder / plan.file.format(model=stem, part=part.name)
    return Job(path, part.measure, settings, shlex.join(words), training)


def _training(folder: Path, step: str = "") -> dict[str, int | float]:
    """Return how a reference model was trained: its seed, its steps, and the held-out loss in nats a token at the end.

    Parameters
    ----------
    folder
        Of the model.
    step
        Name of a state that was kept during training: then its seed and the steps up to there.

    Raises
    ------
    ValueError
        If the folder does not say.
    """
    try:
        if step:
            return {"training_seed": _training_seed(folder), "training_steps": int(step.removeprefix(STEP))}
        record = json.loads((folder / "training.json").read_text(encoding="utf-8"))
        loss = (folder / "training.csv").read_text(encoding="utf-8").splitlines()[-1].split(",")[2]
        return {
            "training_seed": record["seed"],
            "training_steps": record["steps"],
            "training_seconds": record["seconds"],
            "held_out_loss": float(loss),
        }
    except (OSError, ValueError, KeyError, IndexError) as error:
        wanted = "training.json and training.csv of a model that posbias train-reference finished"
        raise errors.invalid(str(folder), wanted, error) from None


def _training_seed(folder: Path) -> int:
    """Return the seed of a training that has ended, or of one that has not, from its checkpoint."""
    record = folder / "training.json"
    if record.is_file():
        return int(json.loads(record.read_text(encoding="utf-8"))["seed"])
    settings = checkpoint.settings_of(folder / "training.checkpoint")
    return int(settings["seed"])


def _stem(model: str) -> str:
    """Return the last part of a path or an id."""
    return Path(model).resolve().name


def _source(model: str) -> str:
    return f"{PREFIX}{model}" if model in reference_names() else model


def _check_same(path: Path, asked: Request) -> None:
    """Raise if a file that is there has other numbers than those asked for."""
    with h5py.File(path) as file:
        found = {what: int(np.ravel(file.attrs[what])[0]) for what in ("prompts", "length") if what in file.attrs}
    for what, wanted in (("prompts", asked.prompts), ("length", asked.length)):
        if wanted is not None and found.get(what, wanted) != wanted:
            received = f"one with {found[what]}; --force measures again, -o keeps both"
            raise errors.invalid(f"{path}: {what}", str(wanted), received)
