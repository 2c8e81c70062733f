"""A lookup from start to end: prompts by place, scores and profile batch by batch, and the file.

What can be seen without the model is refused before it is loaded. The same batches in the same order go through the
same loop as a measurement's, so that a run that was killed goes on from its checkpoint and ends with the same bits, and
several processes share them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import nn

from posbias import errors
from posbias.lookup.file import MEASURED, TEMPERATURE, make_lookup, read_lookup, write_lookup
from posbias.lookup.prompts import PlacedPrompts, Words, chance, copy_prompts, key_value_prompts, words_of
from posbias.lookup.scores import (
    difference_p_value,
    drawn_profile,
    group_means,
    grouped_profile,
    groups_of,
    rank_correlation,
    read_scores,
)
from posbias.lookup.tasks import OF_TASK, SHARES, Task
from posbias.measure.accumulators import bin_centres
from posbias.measure.biases import Described
from posbias.measure.checkpoint import Batch, differing, fingerprint_of, go_through
from posbias.measure.corpus import Prompts
from posbias.measure.instrument import Instrument
from posbias.measure.loading import Source, check_fits, last_part
from posbias.measure.memory import out_of_memory
from posbias.measure.positions import read_positions
from posbias.measure.processes import Processes, processes
from posbias.measure.progress import progress as told
from posbias.measure.results import make_results
from posbias.measure.rollouts import measured_profile, variants_of
from posbias.measure.session import Session
from posbias.measure.settings import Settings
from posbias.measure.traces import Traces
from posbias.measure.unfinished import check_run, checkpoint_path
from posbias.networks.added_biases import added_biases, divided_logits
from posbias.networks.description import position_kind
from posbias.networks.families import family_of

QUANTITIES = ("mixing", "influence", "kernels", "content")
"""What is measured of the prompts of a profile."""
OF_ATTENTION = ("kernels", "own")
"""Rollouts that take the measured attention, whatever the model does with positions."""
KEPT = (
    "model", "revision", "architecture", "batch_size", "dtype", "device", "seed", "tokenizer", "attention",
    "kernel_size", "special_tokens", "posbias", "torch", "transformers", "numpy", "python",
)  # fmt: skip
"""Provenance that a lookup has in common with a measurement."""


@dataclass(frozen=True)
class Change:
    """Say what is changed in a model while it is asked: a name, and what gives the context in which it is changed."""

    name: str
    applied: Callable[[nn.Module], AbstractContextManager[Any]]


def added_bias(description: Any) -> Change:
    """Return the change that adds a position bias to a model's logits."""
    return Change(json.dumps(description), partial(added_biases, biases=description))


def divided(temperature: float) -> Change:
    """Return the change that divides a model's content logits by a temperature."""
    return Change(f"{TEMPERATURE}{temperature:g}", partial(divided_logits, temperatures=temperature))


def changed(source: Source, bias: Described | None, temperature: float) -> Change | None:
    """Return the one change that is asked for, None for none, or raise ValueError where a bias is not for the model."""
    if bias is None:
        return None if temperature == 1 else divided(temperature)
    config = source.config()
    bias.check(source.name(), config.num_hidden_layers, config.num_attention_heads)
    return added_bias(bias.description)


@dataclass(frozen=True)
class Lookup:
    """Hold everything that decides what a lookup finds; of the settings' prompts, some give a profile as well."""

    settings: Settings
    task: Task
    profile_prompts: int = 32
    change: Change | None = None


class LookupSession(Session):
    """Hold the model and the prompts of a lookup; as a session its prompts are those that give the profile."""

    def __init__(self, asked: Lookup) -> None:
        self.lookup = asked
        self.settings = asked.settings  # the prompts' length is known when they are made
        check_fits(self.config, self.tokenizer, 0)
        prompts, length = max(asked.profile_prompts, 1), self.placed.asked.shape[1]
        self.settings = replace(asked.settings, prompts=prompts, length=length, quantities=QUANTITIES)
        self.check()

    @cached_property
    def words(self) -> Words | None:
        """What keys and values are made of; None for copying."""
        task, longest = self.lookup.task, family_of(self.config).longest(self.config)
        if task.pairs is None:
            check_fits(self.config, self.tokenizer, task.length or 0)
            return None
        size, special = int(self.config.vocab_size), self.settings.special_tokens
        words = words_of(self.tokenizer, task.pairs, size, special_tokens=special)
        words.check_fits(task.pairs, longest)
        return words

    @cached_property
    def placed(self) -> PlacedPrompts:
        """All prompts, with their places and answers."""
        task, asked = self.lookup.task, self.lookup.settings
        if self.words is not None:
            return key_value_prompts(self.words, task.pairs or 0, asked.prompts, seed=asked.seed)
        options: dict[str, Any] = {"seed": asked.seed, "special_tokens": asked.special_tokens}
        return copy_prompts(task, asked.corpus, self.tokenizer, asked.prompts, **options)

    @cached_property
    def subset(self) -> np.ndarray:
        """Which prompts give the profile."""
        return self.placed.subset(self.settings.prompts)

    def cut(self) -> Prompts:
        """Return the prompts that give the profile, up to where their answers begin."""
        return Prompts(self.placed.asked[self.subset], 0, self.placed.units[self.subset])

    def described(self, group: Processes) -> dict[str, Any]:
        """Return where the numbers come from."""
        asked, task, placed, found = self.lookup, self.lookup.task, self.placed, self.provenance()
        corpus = self.settings.corpus
        dataset = corpus.dataset if corpus.named else last_part(corpus.dataset)
        return {name: found[name] for name in KEPT} | {
            "position": position_kind(family_of(self.config).position_of(self.config), self.config),
            "task": task.name,
            "made_of": "text" if self.words is None else self.words.described,
            "dataset": dataset if self.words is None else "pairs of its vocabulary's words",
            "prompts": len(placed.ids),
            "pairs": task.pairs or 0,
            "length": placed.ids.shape[1] + 1,
            "segment": task.segment or 0,
            "cue": task.cue or 0,
            "places": len(placed.starts),
            "profile_prompts": asked.profile_prompts,
            "prompts_sha256": placed.sha256,
            "chance": 0 if placed.values is None else float(np.mean(chance(placed))),
            "processes": group.world,
            "change": "none" if asked.change is None else asked.change.name,
        }


def look_up(
    subject: Lookup,
    output: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    checkpoint_every: float = 60.0,
    progress: bool = False,
) -> xr.Dataset | None:
    """Ask a model by place, write the result, and return it (None in processes other than the first).

    Files and checkpoints are as those of :func:`~posbias.measure.run.measure`.
    """
    check_run(output, resume=resume, overwrite=overwrite)
    session = LookupSession(subject)
    with processes() as group:
        shown = progress and group.rank == 0
        provenance, path = session.described(group), checkpoint_path(output, group.rank)
        if output.exists() and not overwrite:
            try:
                there = read_lookup(output)
                if found := differing(there.attrs, provenance):
                    expected = "a result of the same settings, or --overwrite"
                    raise errors.invalid(str(output), expected, "; ".join(found[:3]))
            except ValueError:
                if group.rank == 0:
                    raise
                return None  # the first process says why
            path.unlink(missing_ok=True)
            return there if group.rank == 0 else None
        try:
            with told(1, "model", "loading", shown=shown) as bar:
                instrument = session.instrument
                bar.update()
            positions = read_positions(instrument, session.settings.length)
            scores = Scores(session, instrument, group, path)
            traces = Traces(session, instrument, group, path) if subject.profile_prompts else None
            batches = [*scores.batches, *(traces.batches if traces else [])]
            with nullcontext() if subject.change is None else subject.change.applied(instrument.model):
                go_through(
                    batches,
                    lambda: scores.rows | (traces.state() if traces else {}),
                    path,
                    fingerprint_of(provenance, group.rank),
                    checkpoint_every=checkpoint_every,
                    shown=shown,
                )
            scored = scores.arrays()
            sums = None if traces is None else traces.arrays(positions, shown)
            results = None
            if group.rank == 0:
                also = {"position": positions.kind, "position_details": positions.details}
                also |= session.provenance() | {"processes": group.world}
                measured = None if sums is None else make_results(sums, also, bin_centres())
                results = assembled(session, scored, measured, provenance)
                write_lookup(output, results)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            raise out_of_memory(error, session.settings) or error from None
        group.add_up(torch.zeros(1))  # nobody's checkpoint goes before the result is there
        path.unlink(missing_ok=True)
        return results


class Scores:
    """Hold one process's share of the scores."""

    def __init__(self, session: LookupSession, instrument: Instrument, group: Processes, path: Path) -> None:
        self.session, self.instrument, self.group, self.path = session, instrument, group, path
        names = OF_TASK[session.lookup.task.name]
        self.rows = {name: torch.zeros(len(session.placed.ids), dtype=torch.float64) for name in names}

    @property
    def batches(self) -> list[Batch]:
        """Batches of this process, in order."""
        N, size = len(self.session.placed.ids), self.session.settings.batch_size
        shared = self.group.share([slice(k, min(k + size, N)) for k in range(0, N, size)])
        return [Batch(rows.stop - rows.start, partial(self.read, rows)) for rows in shared]

    def read(self, rows: slice) -> None:
        """Score a batch; raise ValueError for a NaN or Inf, and leave no checkpoint of it."""
        for name, values in read_scores(self.instrument, self.session.placed, rows).items():
            bad = (~torch.isfinite(values)).nonzero()
            if len(bad):
                self.path.unlink(missing_ok=True)
                received = f"{float(values[bad[0]])} in {self.session.settings.precision()}"
                raise errors.invalid(f"prompt {rows.start + int(bad[0])}, {name}", "finite numbers", received)
            self.rows[name][rows] = values.double()

    def arrays(self) -> dict[str, np.ndarray]:
        """Return every prompt's scores, from all processes."""
        return {name: self.group.add_up(x).numpy() for name, x in self.rows.items()}


def assembled(
    session: LookupSession, scores: dict[str, np.ndarray], measured: xr.Dataset | None, provenance: dict[str, Any]
) -> xr.Dataset:
    """Return the result: scores by place with intervals, and the profiles of what was measured, if it was."""
    placed = session.placed
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
        profiles = place_profiles(measured, placed, changed=session.lookup.change is not None)
        grouped = {name: grouped_profile(p, groups) for name, p in profiles.items()}
        prompts = measured["influence_prompts"].values
        influence, weights = placed.by_place(prompts), groups.weights[:, session.subset]
        drawn = drawn_profile(grouped_profile(influence, groups), prompts.sum(1), weights)
        correlations = [
            [rank_correlation(x, p, drawn if name == MEASURED else None) for x in means.values()]
            for name, p in grouped.items()
        ]
        names["profile_name"] = list(profiles)
        arrays |= {
            "profile": np.array(list(profiles.values())),
            "profile_group": np.array(list(grouped.values())),
            "influence_places": influence,
            "profile_index": session.subset,
            "rank_correlation": np.array(correlations),
            "lambda_frobenius": measured["lambda_frobenius"].values,
        }
    return make_lookup(arrays, provenance, names)


def place_profiles(measurement: xr.Dataset, prompts: PlacedPrompts, *, changed: bool) -> dict[str, np.ndarray]:
    """Return measured influence and its predictions at each place, by name: shares of the whole prompt.

    Where the model's positions were ``changed`` while it was measured, there are no rollouts by formula: these take the
    positions of the configuration.
    """
    names = [name for name in variants_of(measurement) if not changed or name in OF_ATTENTION]
    whole = {MEASURED: measurement["influence"].values.astype(np.float64)}
    whole |= {name: measured_profile(measurement, name) for name in names}
    return {name: prompts.by_place(p / p.sum()) for name, p in whole.items()}
