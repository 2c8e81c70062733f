"""A lookup: what is asked by place and arm, the answers' scores, and where they come from; and heads that fetch."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from posbias import errors
from posbias.conditions import AS_IS, ChangedRun, read_conditions
from posbias.engines.local import LocalEngine, Reader
from posbias.heads import choose_heads, find_heads, looked_at
from posbias.lookup.asking import Questions, ask_under, assemble
from posbias.lookup.contexts import choose_contexts
from posbias.lookup.rehearsal import Rehearsal, rehearse
from posbias.lookup.sources import ABOUT, find_sources
from posbias.lookup.tasks import Task
from posbias.measure.corpus import Prompts
from posbias.measure.progress import progress as told
from posbias.measure.session import Session
from posbias.models.families import family_of
from posbias.models.loading import check_fits
from posbias.processes import rank
from posbias.prompts import Ask, Prompt, use_template, write_prompt
from posbias.settings import Settings

KEPT = (
    "model", "revision", "architecture", "dtype", "device", "seed", "tokenizer", "attention", "special_tokens",
    "posbias", "torch", "transformers", "numpy", "python",
)  # fmt: skip
"""Provenance that a lookup has in common with a measurement."""


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
    with told(1, "step", "writing prompts", shown=progress) as bar:
        asked, under = prepare(settings, task, rows, conditions)
        bar.update()
    competing = asked.over(asked.write)[0]
    session = open_session(settings, competing[0, 0])
    provenance = provenance_of(session, asked, competing)
    with told(1, "model", "loading", shown=progress) as bar:
        model = session.instrument.model
        bar.update()
    plain = open_engine(model, settings, ChangedRun(), asked)
    found = {AS_IS: ask_under(plain, asked, ChangedRun(), progress)}
    for name, condition in under.items():
        found[name] = ask_under(open_engine(model, settings, condition, asked), asked, condition, progress)
    results = assemble(asked, found, provenance)
    if asked.task.score == "exact":
        asks = [context.asks["competing"] for context in asked.contexts]
        source = find_sources(plain, asks, competing, found[AS_IS]["correct"][0], progress)
        results["source"] = (("context", "place"), source.astype(np.int16), ABOUT)
    if task.heads:
        heads = choose_heads(task.heads, settings.source.config())
        seen = np.array([looked_at(plain.reader, prompt, heads) for prompt in competing.flat], dtype=np.int16)
        about = {"long_name": "place of the document that heads look at", "heads": task.heads}
        results["looked_at"] = (("context", "place"), seen.reshape(competing.shape), about)
    return results


def prepare(
    settings: Settings, task: Task, rows: Sequence[Ask] | None, conditions: Sequence[str] = ()
) -> tuple[Questions, dict[str, ChangedRun]]:
    """Return what is asked and under which conditions, or raise ValueError for what a model cannot have."""
    task, config, tokenizer = task.scored(rows), settings.source.config(), settings.source.load_tokenizer()
    under = read_conditions(conditions)
    for condition in under.values():
        condition.check(config)
    if task.heads:
        choose_heads(task.heads, config)  # raises
    template, special = use_template(tokenizer, task.form), settings.special_tokens
    write = cache(partial(write_prompt, tokenizer, task.name, template=template, special_tokens=special))
    contexts = choose_contexts(task, rows, settings.prompts, settings.seed)
    asked = Questions(task, contexts, rows is None, write)
    for arm in asked.arms:
        for k, context in enumerate(contexts, 1):
            _check_fit(settings, map(write, context.asks[arm]), f"{'set' if rows is None else 'row'} {k}")
    for name, condition in under.items():
        if task.name != "documents" and condition.changes != "model":
            raise errors.invalid("condition", "one that changes the model, for the task kv", name)
        if condition.changes == "tokens":
            raise errors.invalid("condition", "one for what is asked; this one is for measure", name)
        for k, context in enumerate(contexts, 1):
            prompt = write(condition.rewrite(context.asks["competing"][0]))
            _check_fit(settings, [prompt], f"condition {name}: prompt {k}")
    return asked, under


def _check_fit(settings: Settings, prompts: Iterable[Prompt], where: str) -> None:
    """Raise ValueError that begins with ``where`` if a prompt and its answer are longer than the model's context."""
    longest = max(len(prompt.ids + prompt.answer_ids) for prompt in prompts)
    try:
        check_fits(settings.source.config(), settings.source.load_tokenizer(), longest)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def open_session(settings: Settings, prompt: Prompt) -> Session:
    """Return the session in which a model reads prompts such as this one."""
    ids = np.array([prompt.ids])
    return Session(replace(settings, length=ids.shape[1]), Prompts(ids, np.zeros(1, dtype=np.int64)))


def open_engine(model: Any, settings: Settings, condition: ChangedRun, asked: Questions) -> LocalEngine:
    """Return the model as an engine, changed by a condition; what two prompts have in common is read once if it can."""
    tokenizer = settings.source.load_tokenizer()
    if condition.is_of_model:  # what is read may depend on what follows
        return LocalEngine(model, tokenizer, changed=condition.changed)
    trial = [asked.write(condition.rewrite(ask)) for ask in asked.contexts[0].asks["competing"][:2]]
    return LocalEngine(model, tokenizer, trial)


def provenance_of(session: Session, asked: Questions, competing: np.ndarray) -> dict[str, Any]:
    """Return where the numbers come from, beside the task and its rows."""
    provenance = session.provenance()
    return {kept: provenance[kept] for kept in KEPT} | {
        "form": "chat template" if use_template(session.tokenizer, asked.task.form) else "plain text",
        "tokens": int(np.mean([len(prompt.ids) for prompt in competing.flat])),
    }


def preview(settings: Settings, task: Task, rows: Sequence[Ask] | None, *, conditions: Sequence[str]) -> str:
    """Return the first prompt with its answer, how many prompts and tokens there are, also under each condition."""
    asked, under = prepare(settings, task, rows, conditions)
    every = [*dict.fromkeys(asked.over(asked.write).flat)]
    tokens = sum(len(prompt.ids) for prompt in every)
    last = f"{len(every)} prompts of {tokens} tokens in all, of which common beginnings are read once"
    lines = [f"{every[0].text}[{every[0].answer}]\n", last]
    for name, one in under.items():
        try:
            lines += rehearse(Rehearsal(), asked, {name: one})
        except ValueError:  # what it asks depends on the model, which is not read
            lines.append(f"{name}: asked again; costs {one.cost}")
    return "\n".join(lines)


def fetching_heads(settings: Settings, task: Task, rows: Sequence[Ask] | None, progress: bool = False) -> pd.DataFrame:
    """Return the table of :func:`posbias.heads.find_heads` on prompts whose documents compete."""
    family_of(settings.source.config())  # raises
    asked, _ = prepare(settings, task, rows)
    competing = asked.over(asked.write)[0]
    session = open_session(settings, competing[0, 0])
    with told(competing.size, "prompts", "reading", shown=progress) as bar:

        def reading() -> Iterator[Prompt]:
            for prompt in competing.flat:
                yield prompt
                bar.update()

        C, P = competing.shape
        return find_heads(Reader(session.instrument.model), reading(), [*range(P)] * C)
