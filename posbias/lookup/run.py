"""A lookup: what is asked by place and arm, the answers' scores, and where they come from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import nn

from posbias import errors
from posbias.conditions import AS_IS, ChangedRun, read_conditions
from posbias.engines.local import LocalEngine, open_reader
from posbias.lookup.conditioned import ask_under, check_conditions
from posbias.lookup.contexts import Context, make_contexts, row_contexts
from posbias.lookup.sources import ABOUT, find_sources
from posbias.lookup.tasks import LAYOUT, SCHEMA, SCORES, TASKS, Task
from posbias.measure.corpus import Prompts
from posbias.measure.progress import progress as told
from posbias.measure.session import Session
from posbias.models.loading import check_fits
from posbias.processes import rank, share_out
from posbias.prompts import Ask, Prompt, use_template, write_prompts
from posbias.settings import Settings

KEPT = (
    "model", "revision", "architecture", "dtype", "device", "seed", "tokenizer", "attention", "special_tokens",
    "posbias", "torch", "transformers", "numpy", "python",
)  # fmt: skip
"""Provenance that a lookup has in common with a measurement."""

Placed = dict[str, list[list[Prompt]]]
"""By arm, for each context, the prompt of each place."""


def look_up(
    settings: Settings,
    task: Task,
    rows: Sequence[Ask] | None = None,
    *,
    conditions: Sequence[str] = (),
    progress: bool = False,
) -> xr.Dataset:
    """Ask a model for what stands at each place of its prompts.

    Under each condition the same is asked again. What can be seen without the weights is refused before they are
    loaded.
    """
    progress = progress and rank() == 0
    under = read_conditions(conditions)
    for condition in under.values():
        condition.check(settings.source.config())
    with told(1, "step", "writing prompts", shown=progress) as bar:
        contexts, placed = place_prompts(settings, task, rows)
        check_conditions(settings, task, contexts, under)
        bar.update()
    first = next(iter(placed.values()))[0]
    one = Prompts(np.array([first[0].ids]), np.zeros(1, dtype=np.int64))
    session = Session(replace(settings, length=one.ids.shape[1]), one)
    texts = {
        name: np.array([[[getattr(p, name) for p in x] for x in arm] for arm in placed.values()])
        for name in ("text", "answer")
    }
    provenance = provenance_of(session, task, rows is None, placed, texts)
    with told(1, "model", "loading", shown=progress) as bar:
        model = session.instrument.model
        bar.update()
    scores = score_prompts(model, placed, first[:2], progress=progress)
    engine = LocalEngine(model, settings.source.load_tokenizer(), first[:2])
    asks = [context.asks["competing"] for context in contexts]
    source = find_sources(engine, asks, placed["competing"], scores["correct"][list(placed).index("competing")])
    results = assemble(contexts, texts | scores, list(placed), provenance)
    results["source"] = (("context", "place"), source.astype(np.int16), ABOUT)
    if not under:
        return results
    found = {}
    for name, condition in {AS_IS: ChangedRun(), **under}.items():
        found[name] = ask_under(model, settings, task, contexts, list(placed), condition, progress)
    return with_conditions(results, found)


def provenance_of(
    session: Session, task: Task, made_up: bool, placed: Placed, texts: dict[str, np.ndarray]
) -> dict[str, Any]:
    """Return where the numbers come from."""
    every = "".join([*texts["text"].flat, *texts["answer"].flat])
    provenance = session.provenance()
    return {kept: provenance[kept] for kept in KEPT} | {
        "task": task.name,
        "dataset": {"documents": "invented facts", "kv": "invented words"}[task.name] if made_up else "rows given",
        "rows": "made up" if made_up else "given",
        "form": "chat template" if use_template(session.tokenizer, task.form) else "plain text",
        "tokens": int(np.mean([len(prompt.ids) for context in placed["competing"] for prompt in context])),
        "prompts_sha256": hashlib.sha256(every.encode()).hexdigest(),
    }


def preview(settings: Settings, task: Task, rows: Sequence[Ask] | None = None) -> str:
    """Return the first prompt with its answer, and how many prompts and tokens there are; no weights are read."""
    _, placed = place_prompts(settings, task, rows)
    every = [*dict.fromkeys(p for contexts in placed.values() for context in contexts for p in context)]
    tokens = sum(len(prompt.ids) for prompt in every)
    last = f"{len(every)} prompts of {tokens} tokens in all, of which common beginnings are read once"
    return f"{every[0].text}[{every[0].answer}]\n\n{last}"


def place_prompts(settings: Settings, task: Task, rows: Sequence[Ask] | None) -> tuple[list[Context], Placed]:
    """Return what is asked and its prompts, or raise ValueError for what the tokenizer or the context cannot hold."""
    config, tokenizer = settings.source.config(), settings.source.load_tokenizer()
    template = use_template(tokenizer, task.form)
    if rows is None:
        contexts = make_contexts(task, settings.prompts, settings.seed)
    else:
        contexts = row_contexts(rows)
    placed: Placed = {}
    for arm in (arm for arm in task.wanted if arm in contexts[0].asks):
        how = template, settings.special_tokens
        placed[arm] = [write_prompts(tokenizer, task.name, context.asks[arm], *how) for context in contexts]
        for k, context in enumerate(placed[arm], 1):
            try:
                check_fits(config, tokenizer, max(len(prompt.ids + prompt.answer_ids) for prompt in context))
            except ValueError as error:
                raise ValueError(f"{'context' if rows is None else 'row'} {k}: {error}") from None
    return contexts, placed


def score_prompts(
    model: nn.Module, placed: Placed, trial: Sequence[Prompt], *, progress: bool
) -> dict[str, np.ndarray]:
    """Return scores by name, each by arm, context and place; raise ValueError for a NaN or Inf.

    What two prompts of a context have in common is read once. Processes share the contexts.
    """
    rows: dict[Prompt, int] = {}
    own: list[list[Prompt]] = []  # of each context the prompts that are in none before it
    for context in (context for contexts in placed.values() for context in contexts):
        own.append([prompt for prompt in dict.fromkeys(context) if prompt not in rows])
        for prompt in own[-1]:
            rows[prompt] = len(rows)
    scores = torch.zeros(len(rows), 2, dtype=torch.float64)
    team = share_out(len(own))
    with told(1, "reader", "trying", shown=progress) as bar:
        reader = open_reader(model, [(prompt.ids, prompt.answer_ids) for prompt in trial])
        bar.update()
    with told(sum(map(len, team.share(own))), "prompts", "asking", shown=progress) as bar:
        for prompts in team.share(own):
            reader.forget()
            for prompt in prompts:
                log_probability, correct = reader.answer(prompt.ids, prompt.answer_ids)
                if not np.isfinite(log_probability):
                    raise errors.invalid("log_probability", "finite numbers", f"{log_probability}: {prompt.text[:60]}")
                scores[rows[prompt]] = torch.tensor([log_probability, correct], dtype=torch.float64)
                bar.update()
    team.add_up({"scores": scores})
    placed_rows = [[[rows[prompt] for prompt in context] for context in contexts] for contexts in placed.values()]
    found = scores.numpy()[np.array(placed_rows)]
    return {"log_probability": found[..., 0], "correct": found[..., 1]}


def with_conditions(results: xr.Dataset, found: dict[str, dict[str, np.ndarray]]) -> xr.Dataset:
    """Return a result whose scores have the dimension condition, and what an answer costs under each."""
    stacked: dict[str, Any] = {}
    for score, what in SCORES.items():
        dims = ("condition", *results[score].dims)
        stacked[score] = (dims, np.stack([one[score] for one in found.values()]), {"long_name": what})
    for cost in ("requests", "tokens_read"):
        values = np.array([float(one[cost]) for one in found.values()])
        stacked[cost] = ("condition", values, {"long_name": f"{cost.replace('_', ' ')}, for each answer"})
    return results.drop_vars(list(SCORES)).assign(stacked).assign_coords(condition=list(found))


def assemble(
    contexts: Sequence[Context], arrays: dict[str, np.ndarray], arms: Sequence[str], provenance: dict[str, Any]
) -> xr.Dataset:
    """Return the result: scores, prompts and answers by arm, context and place."""
    dims = ("arm", "context", "place")
    found = {name: (dims, arrays[name], {"long_name": what}) for name, what in SCORES.items()} | {
        "prompt": (dims, arrays["text"], {"long_name": "what the model was given, its template applied"}),
        "answer": (dims, arrays["answer"], {"long_name": "what was scored behind it"}),
        "twice": (
            "context", np.array([context.twice for context in contexts], dtype=np.int8),
            {"long_name": "1 where another document holds the answer too"},
        ),
    }  # fmt: skip
    plain = {name: x if type(x) in (int, float) else str(x) for name, x in provenance.items()}
    attrs = {LAYOUT: SCHEMA, "what": TASKS[plain["task"]], **plain}
    _, C, P = arrays["text"].shape
    return xr.Dataset(found, {"arm": arms, "context": np.arange(C), "place": np.arange(P)}, attrs)
