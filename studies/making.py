"""How the files of results are made: ``python -m studies.STUDY PART``, an entry for each model, one after another.

Entries that are there are kept, so that what was stopped goes on where it was; each says the command that makes it.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from posbias import errors
from posbias.files import whole_file
from posbias.measure.corpus import Corpus
from posbias.measure.progress import progress
from posbias.models.loading import Source
from posbias.settings import KERNEL_SIZE, Settings
from posbias.shipped import PREFIX, reference_names
from studies import checkpoint, results
from studies.biased import Biased
from studies.sizes import Sized
from studies.summaries import stacked

REFERENCES = (
    "bloom-8", "bloom-12", "bloom-24", "mpt-12", "falcon-12", "gpt2-12", "llama-12", "llama-ntk-12", "mistral-12",
    "nope-12",
)  # fmt: skip
ROTARY = ("llama-12", "llama-ntk-12", "mistral-12")
ARTICLE = r"^(?= = [^=].* = $)"
"""Before the first line of an article in the text of WikiText-2."""
STEPS = "step-*"
"""The part of states that training kept; each is an entry of its own."""
LARGE = ("influence_signed_prompts", "position_bias", "stepped", "pulled", "rolled")
"""What is left out of models from other seeds."""

PUBLISHED_SIZES: dict[str, Any] = {
    "rule": "random", "models": ("gpt2", "pythia-160m"), "source": partial(Sized, tokenizer=f"{PREFIX}llama-12")
}  # fmt: skip
"""What a part of untrained networks of published sizes takes."""


@dataclass(frozen=True)
class Part:
    """What is measured, of which models and prompts, and which file of results has it under which names."""

    question: str
    measure: Callable[..., xr.Dataset]
    prompts: int
    length: int
    batch_size: int = 8
    rule: str = "first"
    per_document: int = 1
    models: Sequence[str] = REFERENCES
    others: Sequence[str] = ()  # measured if they are asked for
    entry: str = "{model}.{part}"  # without {model}, one entry holds all models
    source: Callable[[str], Any] | None = None  # of models that are no directory, id or reference
    text: bool = False  # of WikiText-2
    trained: bool = False  # of a folder of trained models only
    seeds: bool = True  # named by the seed, where they are

    def __str__(self) -> str:
        """Say what is measured, and what it needs."""
        needs = f"{', --wikitext' if self.text else ''}{', --trained' if self.trained else ''}"
        return f"{self.prompts} prompts of {self.length} tokens{needs}; in results/{self.question}.nc"

    def settings(self, source: Any, wikitext: Path | None) -> Settings:
        """Return the settings of a measurement."""
        text = "" if wikitext is None else wikitext.read_text(encoding="utf-8")
        articles = tuple(part for part in re.split(ARTICLE, text, flags=re.MULTILINE) if part.strip())
        corpus = Corpus(str(wikitext), given=articles) if self.text else Corpus("builtin")
        numbers = (self.prompts, self.length, self.batch_size)
        how = {"rule": self.rule, "per_document": self.per_document, "dtype": "float32"}  # on a GPU too
        return Settings(source, corpus, *numbers, **how, kernel_size=max(self.length, KERNEL_SIZE))  # type: ignore[arg-type]


def main(study: str, parts: Mapping[str, Part], words: Sequence[str] | None = None) -> None:
    """Run ``python -m studies.STUDY``; what the user can correct is one line and status 2."""
    command = f"python -m studies.{study}"
    parser = argparse.ArgumentParser(
        command,
        description="Make what the book keeps; entries that are there are kept.",
        epilog="\n".join(["parts:", *(f"  {name}: {part}" for name, part in parts.items())]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("part", nargs="+", choices=[*parts, "all"], help="what to measure")
    parser.add_argument("--only", action="append", metavar="MODEL", help="a model of the part, a directory or an id")
    parser.add_argument("--prompts", type=int, help="another number of prompts")
    parser.add_argument("--length", type=int, help="another number of tokens")
    parser.add_argument("--wikitext", type=Path, metavar="FILE", help="the test part of WikiText-2")
    parser.add_argument("--trained", type=Path, metavar="FOLDER", help="of models that studies.reference trained")
    parser.add_argument("--output", "-o", type=Path, metavar="FILE", help="in place of the book's own")
    parser.add_argument("--force", action="store_true", help="measure again what is there")
    asked = parser.parse_args(words)
    try:
        for name in parts if "all" in asked.part else asked.part:
            if "all" not in asked.part or _possible(parts[name], asked):
                for entry, path, seconds in run(command, name, parts[name], asked):
                    print(f"{path}: {entry}, {seconds:.0f} s" if seconds else f"{path}: {entry} is there", flush=True)
    except (ValueError, OSError) as error:
        raise _ended(f"{command}: {' '.join(str(error).split())}", 2) from None
    except KeyboardInterrupt:
        raise _ended(f"{command}: interrupted; the same words go on with what is missing", 130) from None


def _ended(line: str, status: int) -> SystemExit:
    sys.stderr.write(f"{line}\n")
    return SystemExit(status)


def run(command: str, name: str, part: Part, asked: argparse.Namespace) -> Iterator[tuple[str, Path, float]]:
    """Make the entries that are missing; yield each with its file and the seconds it took, none if it was there."""
    prompts, length = asked.prompts or part.prompts, asked.length or part.length
    errors.positive_integer("prompts", prompts)
    errors.positive_integer("length", length, minimum=2)
    part = Part(**(part.__dict__ | {"prompts": prompts, "length": length}))
    if part.text and asked.wikitext is None:
        raise errors.invalid(name, "--wikitext FILE, its text", "none")
    if part.trained and asked.trained is None:
        raise errors.invalid(name, "--trained FOLDER, made by python -m studies.reference", "none")
    path = asked.output or results.FOLDER / f"{part.question}.nc"
    kept = results.Results(path) if path.is_file() else {}
    for entry, sources, more, training in _entries(name, part, asked):
        if entry in kept and not asked.force:
            theirs = kept[entry].attrs
            for what, wanted in (("prompts", asked.prompts), ("length", asked.length)):
                if wanted not in (None, theirs.get(what)):
                    raise errors.invalid(f"{path}: {entry}: {what}", f"{wanted}", f"{theirs.get(what)}; see --force")
            yield entry, path, 0.0
            continue
        began = time.monotonic()
        options = ["--prompts", str(prompts), "--length", str(length)]
        data = part.measure(*(part.settings(source, asked.wikitext) for source in sources))
        data = data.assign_attrs(command=shlex.join([*command.split(), name, *more, *options]), **training)
        path.parent.mkdir(parents=True, exist_ok=True)  # not before: what is refused leaves no folder
        results.save(path, {entry: data.drop_vars(LARGE, errors="ignore") if training else data})
        yield entry, path, time.monotonic() - began


Entry = tuple[str, list[Any], list[str], dict[str, Any]]
"""Its name, the sources of its models, the words that ask for them, and how they were trained."""


def _entries(name: str, part: Part, asked: argparse.Namespace) -> Iterator[Entry]:
    """Yield what is asked for; of a folder of trained models those that are there, unless they are named."""
    models = list(dict.fromkeys(asked.only or part.models))
    if asked.trained is not None and not asked.only:
        models = [model for model in models if (asked.trained / model).is_dir()] or models
    known = {*part.models, *part.others, *reference_names()}
    for model in models:
        if model not in known and "/" not in model and not Path(model).is_dir():
            wanted = f"a directory, an id on the hub, or one of {', '.join(sorted(known))}"
            raise errors.invalid("--only", wanted, model)
    text = ["--wikitext", asked.wikitext.name] if part.text else []
    if asked.trained is not None:
        text += ["--trained", asked.trained.resolve().name]
    if "{model}" not in part.entry:
        words = [word for model in models for word in ("--only", model)]
        own = asked.trained is None
        sources = [_source(part, model) if own else Biased(str(asked.trained / model)) for model in models]
        yield part.entry.format(part=name), sources, [*words, *text], {}
        return
    for model in models:
        stem, words = Path(model).resolve().name, ["--only", model, *text]
        if asked.trained is None:
            yield part.entry.format(model=stem, part=name), [_source(part, model)], words, {}
            continue
        steps = sorted(path.name for path in (asked.trained / model).glob(STEPS)) if name == STEPS else [""]
        for step in steps:
            training = training_of(asked.trained / model, step)
            stem = f"{model}.seed-{training['training_seed']}" if part.seeds else model
            source = Biased(str((asked.trained / model / step).resolve()))
            yield part.entry.format(model=stem, part=step or name), [source], words, training if part.seeds else {}


def _source(part: Part, model: str) -> Any:
    """Return where a model comes from."""
    if part.source is not None and (model in part.models or model in part.others):
        return part.source(model)
    return Source(f"{PREFIX}{model}" if model in reference_names() else model)


def _possible(part: Part, asked: argparse.Namespace) -> bool:
    """Tell whether what a part needs is given."""
    return (not part.text or asked.wikitext is not None) and (part.trained == (asked.trained is not None))


def training_of(folder: Path, step: str = "") -> dict[str, int | float]:
    """Return a model's training seed, steps, seconds and held-out loss (nats per token); of a kept state two."""
    record = folder / "training.json"
    try:
        if step:
            done = json.loads(record.read_text(encoding="utf-8")) if record.is_file() else None
            found = done or checkpoint.settings_of(folder / "training.checkpoint")
            return {"training_seed": int(found["seed"]), "training_steps": int(step.removeprefix("step-"))}
        found = json.loads(record.read_text(encoding="utf-8"))
        loss = (folder / "training.csv").read_text(encoding="utf-8").splitlines()[-1].split(",")[2]
        return {
            "training_seed": found["seed"],
            "training_steps": found["steps"],
            "training_seconds": found["seconds"],
            "held_out_loss": float(loss),
        }
    except (OSError, ValueError, KeyError, IndexError) as error:
        wanted = "training.json and training.csv of a model that python -m studies.reference finished"
        raise errors.invalid(str(folder), wanted, error) from None


def go_on(
    prompts: int, read: Callable[[int], Mapping[str, np.ndarray]], path: Path, what: str = "prompts"
) -> dict[str, np.ndarray]:
    """Return what is read of each prompt, by name; those that an earlier run left in a file are not read again."""
    rows: list[dict[str, np.ndarray]] = []
    if path.is_file():
        with np.load(path) as file:
            kept = dict(file)
        for k in range(min(prompts, len(next(iter(kept.values()))))):
            rows.append({name: x[k] for name, x in kept.items()})
    with progress(prompts, what, "measuring", done=len(rows), shown=True) as bar:
        for k in range(len(rows), prompts):
            rows.append(dict(read(k)))
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(path) as part, part.open("wb") as file:
                np.savez(file, **stacked(rows))
            bar.update()
    return stacked(rows)
