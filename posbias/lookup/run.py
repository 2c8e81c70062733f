"""A lookup: prompts by place, their scores, and a measurement of some of them for the profile of places."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import nn

from posbias import errors
from posbias.lookup.file import ENDS, LAYOUT, MEASURED, SCHEMA, TEMPERATURE
from posbias.lookup.prompts import PlacedPrompts, copy_prompts, key_value_prompts, words_of
from posbias.lookup.scores import (
    difference_p_value,
    drawn_profile,
    group_means,
    grouped_profile,
    groups_of,
    rank_correlation,
    read_scores,
)
from posbias.lookup.tasks import SCORES, SHARES, Task
from posbias.measure.biases import Described
from posbias.measure.corpus import Prompts
from posbias.measure.progress import progress as told
from posbias.measure.run import measure
from posbias.measure.session import Session
from posbias.models.biases import added_biases, divided_logits
from posbias.models.description import position_kind
from posbias.models.families import family_of
from posbias.models.loading import check_fits, last_part
from posbias.predict import PREDICTORS, available, predict
from posbias.settings import Settings

QUANTITIES = ("mixing", "influence", "kernels", "content")
"""What is measured of the prompts of a profile."""
KEPT = (
    "model", "revision", "architecture", "batch_size", "dtype", "device", "seed", "tokenizer", "attention",
    "kernel_size", "special_tokens", "posbias", "torch", "transformers", "numpy", "python",
)  # fmt: skip
"""Provenance that a lookup has in common with a measurement."""


def look_up(
    settings: Settings,
    task: Task,
    profile_prompts: int = 32,
    bias: Described | None = None,
    temperature: float = 1.0,
    *,
    progress: bool = False,
) -> xr.Dataset:
    """Ask a model for what stands at each place of its prompts, with one change to it at most.

    Of the settings' prompts so many also give a profile. What can be seen without the weights is refused before they
    are loaded.
    """
    session = Session(settings)
    config = session.config
    check_fits(config, session.tokenizer, task.length or 0)
    if bias is not None:
        bias.check(settings.source.name(), config.num_hidden_layers, config.num_attention_heads)
    prompts, made_of = make_task_prompts(session, task)
    subset = prompts.subset(max(profile_prompts, 1))
    session = session.with_prompts(prompts=len(subset), length=prompts.asked.shape[1], quantities=QUANTITIES)
    session.check()
    check_fits(config, session.tokenizer, session.settings.length)
    session.prompts = Prompts(prompts.asked[subset], 0, prompts.units[subset])
    with told(1, "model", "loading", shown=progress) as bar:
        session.instrument, session.self_check  # noqa: B018 - loads, and raises
        bar.update()
    name, changed = make_change(bias, temperature)
    with changed(session.instrument.model):
        scores = score_prompts(session, prompts, progress)
    added, profiled = None if bias is None else bias.description, None
    if profile_prompts:
        with changed(session.instrument.model) if added is None else nullcontext():  # else it is measured with it
            profiled = measure(session, progress=progress, bias=added)
    provenance, corpus = session.provenance(), settings.corpus
    text = last_part(corpus.dataset)
    provenance = {kept: provenance[kept] for kept in KEPT} | {
        "position": position_kind(family_of(config).position_of(config), config),
        "task": task.name,
        "made_of": made_of,
        "dataset": text if task.name == "copy" else "pairs of its vocabulary's words",
        "prompts": len(prompts.ids),
        "pairs": task.pairs or 0,
        "length": prompts.ids.shape[1] + 1,
        "segment": task.segment or 0,
        "cue": task.cue or 0,
        "places": len(prompts.starts),
        "profile_prompts": profile_prompts,
        "prompts_sha256": prompts.sha256,
        "chance": 1 / task.pairs if task.pairs else 0,
        "change": name,
    }
    return assemble(prompts, scores, profiled, subset, provenance)


def make_task_prompts(session: Session, task: Task) -> tuple[PlacedPrompts, str]:
    """Return the prompts of a task, which the model's context holds, and what they are made of, in words."""
    settings, config = session.settings, session.config
    if task.pairs is None:
        options: dict[str, Any] = {"seed": settings.seed, "special_tokens": settings.special_tokens}
        return copy_prompts(task, settings.corpus, session.tokenizer, settings.prompts, **options), "text"
    longest, special = family_of(config).longest(config), settings.special_tokens
    if longest is not None and 2 * task.pairs > longest:  # before the vocabulary is searched for words
        expected = f"at most {longest // 2}, of 2 tokens or more each, in the model's context of {longest} tokens"
        raise errors.invalid("pairs", expected, task.pairs)
    words = words_of(session.tokenizer, task.pairs, int(config.vocab_size), special_tokens=special)
    words.check_fits(task.pairs, longest)
    return key_value_prompts(words, task.pairs, settings.prompts, seed=settings.seed), words.described


def make_change(
    bias: Described | None, temperature: float
) -> tuple[str, Callable[[nn.Module], AbstractContextManager[Any]]]:
    """Return the name of the one change to a model, and what gives the context in which it is changed."""
    if bias is not None:
        return json.dumps(bias.description), partial(added_biases, biases=bias.description)
    if temperature != 1:
        return f"{TEMPERATURE}{temperature:g}", partial(divided_logits, temperatures=temperature)
    return "none", lambda model: nullcontext()


def score_prompts(session: Session, prompts: PlacedPrompts, progress: bool) -> dict[str, np.ndarray]:
    """Return every prompt's scores by name, or raise ValueError for a NaN or Inf."""
    N, size = len(prompts.ids), session.settings.batch_size
    with told(N, "prompts", "asking", shown=progress) as bar:
        parts = []
        for start in range(0, N, size):
            parts.append(read_scores(session.instrument, prompts, slice(start, start + size)))
            bar.update(min(size, N - start))
    scores = {name: torch.cat([part[name] for part in parts]).numpy() for name in parts[0]}
    for name, values in scores.items():
        if (bad := np.flatnonzero(~np.isfinite(values))).size:
            received = f"{values[bad[0]]} in {session.precision}"
            raise errors.invalid(f"prompt {bad[0]}, {name}", "finite numbers", received)
    return scores


def assemble(
    prompts: PlacedPrompts,
    scores: dict[str, np.ndarray],
    profiled: xr.Dataset | None,
    subset: np.ndarray,
    provenance: dict[str, Any],
) -> xr.Dataset:
    """Return the result: scores by place with intervals, and the profiles of the prompts that were measured."""
    groups = groups_of(prompts.places, len(prompts.starts), prompts.units)
    means = {name: group_means(x, groups, is_share=name in SHARES) for name, x in scores.items()}
    found: dict[str, tuple[Any, np.ndarray, str]] = {
        "place": ("prompt", prompts.places, "index of the place where the prompt's answer stands"),
        "unit": ("prompt", prompts.units, "number of what it was drawn with: equal where not independent"),
        "place_start": ("place_index", prompts.starts, "first token of each place"),
        "group_first": ("group", groups.edges[:-1], "first place of a group of places"),
        "group_last": ("group", groups.edges[1:] - 1, "last place of the group"),
        "group_prompts": ("group", np.bincount(groups.member, minlength=groups.count), "prompts whose answer is there"),
        "overall": (("score", "end"), np.array([x.overall for x in means.values()]), "mean, with its 95% interval"),
        "difference_p_value": (
            "score", np.array([difference_p_value(x, groups) for x in scores.values()]),
            "of no difference between groups of places, by permutation of the prompts",
        ),
        "prompt_tokens": (("prompt", "position"), prompts.ids.astype(np.int32), "all but the answer's last"),
        "answer_tokens": (("prompt", "answer_position"), prompts.answers.astype(np.int32), "token ids of the answers"),
    }  # fmt: skip
    for name, x in means.items():
        found[name] = "prompt", scores[name], SCORES[name][1]
        for end in ENDS:
            found[f"{name}_{end}"] = "group", getattr(x, end), f"{end} of {name} over the group's prompts, 95% interval"
    names = {"score": list(means), "end": list(ENDS)}
    if profiled is not None:
        profiles = place_profiles(profiled, prompts, changed=provenance["change"] != "none")
        grouped = {name: grouped_profile(p, groups) for name, p in profiles.items()}
        influence = profiled["influence_prompts"].values
        by_place, weights = prompts.by_place(influence), groups.weights[:, subset]
        drawn = drawn_profile(grouped_profile(by_place, groups), influence.sum(1), weights)
        ranks = [
            [rank_correlation(x, p, drawn if name == MEASURED else None) for x in means.values()]
            for name, p in grouped.items()
        ]
        names["profile_name"] = list(profiles)
        found |= {
            "profile": (
                ("profile_name", "place_index"), np.array([*profiles.values()]),
                "share of a prompt's influence at a place, summed over its tokens",
            ),
            "profile_group": (("profile_name", "group"), np.array([*grouped.values()]), "mean over the group"),
            "influence_places": (("profile_prompt", "place_index"), by_place, "summed gradient norms of each prompt"),
            "profile_index": ("profile_prompt", subset, "which prompts gave the profile"),
            "rank_correlation": (
                ("profile_name", "score", "end"), np.array(ranks),
                "Spearman's correlation over groups of places, and its 95% interval",
            ),
            "lambda_frobenius": (
                "layer", profiled["lambda_frobenius"].values, "mean over the profile's prompts of ‖a‖/(‖x‖+‖a‖)"
            ),
        }  # fmt: skip
    variables = {name: (dims, values, {"long_name": what}) for name, (dims, values, what) in found.items()}
    plain = {name: x if type(x) in (int, float) else str(x) for name, x in provenance.items()}
    results = xr.Dataset(variables, attrs={LAYOUT: SCHEMA, **plain})
    return results.assign_coords({dim: names.get(str(dim), np.arange(size)) for dim, size in results.sizes.items()})


def place_profiles(measurement: xr.Dataset, prompts: PlacedPrompts, *, changed: bool) -> dict[str, np.ndarray]:
    """Return measured influence and its predictions at each place, by name: shares of the whole prompt.

    Where the model's positions were ``changed`` while it was measured, there are no rollouts by formula: these take the
    positions of the configuration.
    """
    known = [PREDICTORS[name] for name in available(measurement)]
    names = {one.name: one.kept_as for one in known if not changed or "kernels" in one.needs}
    whole = {MEASURED: measurement["influence"].values.astype(np.float64)}
    whole |= {kept_as: predict(measurement, name) for name, kept_as in names.items()}
    return {name: prompts.by_place(p / p.sum()) for name, p in whole.items()}
