"""A retrieval from start to end: prompts by place, scores and profile batch by batch, and the file.

What can be seen without the model is refused before it is loaded. The same batches in the same order go through the
same loop as a measurement's, so that a run that was killed goes on from its checkpoint and ends with the same bits, and
several processes share them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import nn

from posbias import errors
from posbias.lookup.answers import OF_TASK, SHARES, chances, read_scores
from posbias.lookup.copies import copy_prompts
from posbias.lookup.file import TEMPERATURE, make_retrieval, read_retrieval, write_retrieval
from posbias.lookup.key_values import key_value_prompts
from posbias.lookup.places import (
    difference_p_value,
    drawn_profile,
    group_means,
    grouped_profile,
    groups_of,
    rank_correlation,
)
from posbias.lookup.prompt_profiles import MEASURED, QUANTITIES, place_profiles
from posbias.lookup.prompts import PlacedPrompts
from posbias.lookup.tasks import Task, check_counts
from posbias.lookup.words import Words, words_of
from posbias.measure.accumulators import bin_centres
from posbias.measure.batches import Batch, differing, fingerprint_of, go_through, out_of_memory
from posbias.measure.corpus import BUILTIN, Corpus, Prompts
from posbias.measure.instrument import Instrument
from posbias.measure.loading import Source, check_fits, last_part
from posbias.measure.positions import read_positions
from posbias.measure.processes import Processes, processes
from posbias.measure.progress import progress as told
from posbias.measure.results import make_results
from posbias.measure.session import Session
from posbias.measure.settings import Settings
from posbias.measure.traces import Traces
from posbias.measure.unfinished import check_run, checkpoint_path
from posbias.networks.added_biases import added_biases, divided_logits
from posbias.networks.description import position_kind
from posbias.networks.families import family_of

KEPT = (
    "model", "revision", "architecture", "batch_size", "dtype", "device", "seed", "tokenizer", "attention",
    "kernel_size", "special_tokens", "posbias", "torch", "transformers", "numpy", "python",
)  # fmt: skip
"""Provenance that a retrieval has in common with a measurement."""


@dataclass(frozen=True)
class Change:
    """Say what is changed in a model while it is measured, such as biases that are added to its logits.

    Parameters
    ----------
    name
        What it is called in the file; runs go on only with the same.
    applied
        Gives the context in which a model is changed; when it ends the model is as it was.
    """

    name: str
    applied: Callable[[nn.Module], AbstractContextManager[Any]]


def added_bias(description: Any) -> Change:
    """Return the change that adds a position bias to a model's logits.

    Parameters
    ----------
    description
        As :func:`~posbias.networks.added_biases.added_biases` takes it.
    """
    return Change(json.dumps(description), partial(added_biases, biases=description))


def divided(temperature: float) -> Change:
    """Return the change that divides a model's content logits by a temperature.

    Parameters
    ----------
    temperature
        As :func:`~posbias.networks.added_biases.divided_logits` takes it.
    """
    return Change(f"{TEMPERATURE}{temperature:g}", partial(divided_logits, temperatures=temperature))


@dataclass(frozen=True)
class Retrieval:
    """Hold everything that decides what a retrieval finds.

    Parameters
    ----------
    source, task
        The model, and what is asked of it.
    prompts, profile_prompts, batch_size
        How many prompts, how many of them give a profile as well, and how many go through the model at a time.
    corpus
        Documents that copying takes its texts from.
    dtype, device, device_map, special_tokens, attention
        As :class:`~posbias.measure.settings.Settings` has them.
    seed
        Of keys, values and the order of places.
    change
        What is changed in the model; None leaves it as it is.
    """

    source: Source
    task: Task
    prompts: int = 200
    profile_prompts: int = 32
    batch_size: int = 8
    corpus: Corpus = Corpus(BUILTIN)
    dtype: str | None = None
    device: str | None = None
    device_map: str | None = None
    special_tokens: bool = True
    attention: str | None = None
    seed: int = 0
    change: Change | None = None


class RetrievalStudy(Session):
    """Hold the model and the prompts of a retrieval; as a study its prompts are those that give the profile.

    Parameters
    ----------
    asked
        What is asked.

    Raises
    ------
    ValueError, OSError
        For what can be refused without the model's weights.
    """

    def __init__(self, asked: Retrieval) -> None:
        self.retrieval = asked
        check_counts(asked.prompts, asked.batch_size, asked.profile_prompts, asked.seed, asked.task)
        self.config = asked.source.config()
        self.tokenizer = asked.source.load_tokenizer()
        check_fits(self.config, self.tokenizer, 0)
        super().__init__(
            Settings(
                source=asked.source,
                corpus=asked.corpus,
                prompts=max(asked.profile_prompts, 1),
                length=self.placed.asked.shape[1],
                batch_size=asked.batch_size,
                dtype=asked.dtype,
                device=asked.device,
                device_map=asked.device_map,
                seed=asked.seed,
                special_tokens=asked.special_tokens,
                quantities=QUANTITIES,
                attention=asked.attention,
            )
        )
        self.check()

    @cached_property
    def words(self) -> Words | None:
        """What keys and values are made of; None for copying."""
        task, longest = self.retrieval.task, family_of(self.config).longest(self.config)
        if task.pairs is None:
            check_fits(self.config, self.tokenizer, task.length or 0)
            return None
        size, special = int(self.config.vocab_size), self.retrieval.special_tokens
        words = words_of(self.tokenizer, task.pairs, size, special_tokens=special)
        words.check_fits(task.pairs, longest)
        return words

    @cached_property
    def placed(self) -> PlacedPrompts:
        """All prompts, with their places and answers."""
        asked = self.retrieval
        if self.words is not None:
            return key_value_prompts(self.words, asked.task.pairs or 0, asked.prompts, seed=asked.seed)
        options: dict[str, Any] = {"seed": asked.seed, "special_tokens": asked.special_tokens}
        return copy_prompts(asked.task, asked.corpus, self.tokenizer, asked.prompts, **options)

    @cached_property
    def subset(self) -> np.ndarray:
        """Which prompts give the profile."""
        return self.placed.subset(self.settings.prompts)

    def cut(self) -> Prompts:
        """Return the prompts that give the profile, up to where their answers begin."""
        return Prompts(self.placed.asked[self.subset], 0, self.placed.units[self.subset])

    def described(self, group: Processes) -> dict[str, Any]:
        """Return where the numbers come from."""
        asked, task, found = self.retrieval, self.retrieval.task, self.provenance()
        corpus = asked.corpus.dataset if asked.corpus.named else last_part(asked.corpus.dataset)
        return {name: found[name] for name in KEPT} | {
            "position": position_kind(family_of(self.config).position_of(self.config), self.config),
            "task": task.name,
            "made_of": "text" if self.words is None else self.words.described,
            "dataset": corpus if self.words is None else "pairs of its vocabulary's words",
            "prompts": asked.prompts,
            "pairs": task.pairs or 0,
            "length": self.placed.ids.shape[1] + 1,
            "segment": task.segment or 0,
            "cue": task.cue or 0,
            "places": len(self.placed.starts),
            "profile_prompts": asked.profile_prompts,
            "prompts_sha256": self.placed.sha256,
            "chance": chances(self.placed).get("accuracy_among", 0),
            "processes": group.world,
            "change": "none" if asked.change is None else asked.change.name,
        }


def retrieve(
    subject: Retrieval,
    output: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    checkpoint_every: float = 60.0,
    progress: bool = False,
) -> xr.Dataset | None:
    """Ask a model by place, write the result, and return it (None in processes other than the first).

    Parameters
    ----------
    subject
        What is asked of which model.
    output, resume, overwrite, checkpoint_every, progress
        As :func:`~posbias.measure.run.measure` has them.

    Raises
    ------
    ValueError
        For whatever is not as it should be, with what was expected and what came; no result is then written.
    OSError
        If a file or the hub cannot be read or written.
    """
    check_run(output, resume=resume, overwrite=overwrite)
    errors.seconds("checkpoint_every", checkpoint_every)
    study = RetrievalStudy(subject)
    with processes() as group:
        shown = progress and group.rank == 0
        provenance, path = study.described(group), checkpoint_path(output, group.rank)
        if output.exists() and not overwrite:
            try:
                there = _finished(output, provenance)
            except ValueError:
                if group.rank == 0:
                    raise
                return None  # the first process says why
            path.unlink(missing_ok=True)
            return there if group.rank == 0 else None
        try:
            with told(1, "model", "loading", shown=shown) as bar:
                instrument = study.instrument
                bar.update()
            positions = read_positions(instrument, study.settings.length)
            scores = Scores(study, instrument, group, path)
            readings = Traces(study, instrument, group, path) if subject.profile_prompts else None
            batches = [*scores.batches, *(readings.batches if readings else [])]
            with nullcontext() if subject.change is None else subject.change.applied(instrument.model):
                go_through(
                    batches,
                    lambda: scores.rows | (readings.state() if readings else {}),
                    path,
                    fingerprint_of(provenance, group.rank),
                    checkpoint_every=checkpoint_every,
                    shown=shown,
                )
            scored = scores.arrays()
            sums = None if readings is None else readings.arrays(positions, shown)
            results = None
            if group.rank == 0:
                also = {"position": positions.kind, "position_details": positions.details}
                also |= study.provenance() | {"processes": group.world}
                measured = None if sums is None else make_results(sums, also, bin_centres())
                results = assembled(study, scored, measured, provenance)
                write_retrieval(output, results)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            raise out_of_memory(error, study.settings) or error from None
        group.add_up(torch.zeros(1))  # nobody's checkpoint goes before the result is there
        path.unlink(missing_ok=True)
        return results


class Scores:
    """Hold one process's share of the scores.

    Parameters
    ----------
    study, instrument
        The prompts, and what they go through.
    group
        The processes that share the batches.
    path
        The checkpoint, which is removed where nothing can go on from it.
    """

    def __init__(self, study: RetrievalStudy, instrument: Instrument, group: Processes, path: Path) -> None:
        self.study, self.instrument, self.group, self.path = study, instrument, group, path
        names = OF_TASK[study.retrieval.task.name]
        self.rows = {name: torch.zeros(len(study.placed.ids), dtype=torch.float64) for name in names}

    @property
    def batches(self) -> list[Batch]:
        """Batches of this process, in order."""
        N, size = len(self.study.placed.ids), self.study.settings.batch_size
        shared = self.group.share([slice(k, min(k + size, N)) for k in range(0, N, size)])
        sizes = [rows.stop - rows.start for rows in shared]
        return [Batch(k, partial(self.read, rows)) for k, rows in zip(sizes, shared, strict=True)]

    def read(self, rows: slice) -> None:
        """Score a batch; raise ValueError for a NaN or Inf."""
        for name, values in read_scores(self.instrument, self.study.placed, rows).items():
            bad = (~torch.isfinite(values)).nonzero()
            if len(bad):
                self.path.unlink(missing_ok=True)
                received = f"{float(values[bad[0]])} in {self.study.settings.precision()}"
                raise errors.invalid(f"prompt {rows.start + int(bad[0])}, {name}", "finite numbers", received)
            self.rows[name][rows] = values.double()

    def arrays(self) -> dict[str, np.ndarray]:
        """Return every prompt's scores, from all processes."""
        return {name: self.group.add_up(x).numpy() for name, x in self.rows.items()}


def assembled(
    study: RetrievalStudy, scores: dict[str, np.ndarray], measured: xr.Dataset | None, provenance: dict[str, Any]
) -> xr.Dataset:
    """Return the result: scores by place with intervals, and profiles with rank correlations.

    Parameters
    ----------
    study
        With the prompts.
    scores
        Of every prompt, by name.
    measured
        The measurement of the prompts that give the profile; None without one.
    provenance
        Of the file.
    """
    placed, subset = study.placed, study.subset
    groups = groups_of(placed.places, len(placed.starts), placed.units)
    means = {name: group_means(x, groups, is_share=name in SHARES) for name, x in scores.items()}
    arrays: dict[str, np.ndarray] = {
        "place": placed.places,
        "unit": placed.units,
        "place_start": placed.starts,
        "group_first": groups.first,
        "group_last": groups.last,
        "group_prompts": np.bincount(groups.member, minlength=groups.count),
        "overall": np.array([x.overall for x in means.values()]),
        "difference_p_value": np.array([difference_p_value(values, groups) for values in scores.values()]),
        "prompt_tokens": placed.ids.astype(np.int32),
        "answer_tokens": placed.answers.astype(np.int32),
        **scores,
    }
    for name, x in means.items():
        arrays |= {f"{name}_mean": x.mean, f"{name}_low": x.low, f"{name}_high": x.high}
    names = {"score": list(means)}
    if measured is not None:
        profiles = place_profiles(measured, placed, changed=study.retrieval.change is not None)
        grouped = {name: grouped_profile(p, groups) for name, p in profiles.items()}
        influence = placed.by_place(measured["influence_prompts"].values)
        prompts = measured["influence_prompts"].values
        drawn = drawn_profile(grouped_profile(influence, groups), prompts.sum(1), groups.weights[:, subset])
        correlations = [
            [rank_correlation(x, p, drawn if name == MEASURED else None) for x in means.values()]
            for name, p in grouped.items()
        ]
        names["profile_name"] = list(profiles)
        arrays |= {
            "profile": np.array(list(profiles.values())),
            "profile_group": np.array(list(grouped.values())),
            "influence_places": influence,
            "profile_index": subset,
            "rank_correlation": np.array(correlations),
            "lambda_frobenius": measured["lambda_frobenius"].values,
        }
    return make_retrieval(arrays, provenance, names)


def _finished(output: Path, provenance: dict[str, Any]) -> xr.Dataset:
    """Return the result that is there if it is what was asked for, or raise ValueError."""
    there = read_retrieval(output)
    found = differing(there.attrs, provenance)
    if found:
        raise errors.invalid(str(output), "a result of the same settings, or --overwrite", "; ".join(found[:3]))
    return there
