"""A lookup: what is asked by place and arm, the answers' scores, and where they come from."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from posbias.conditions import AS_IS, ChangedRun, Write, read_conditions
from posbias.engines.local import LocalEngine
from posbias.heads import choose_heads, looked_at
from posbias.lookup.asking import ask_under, assemble, digest_of, texts_of
from posbias.lookup.conditioned import check_conditions, writer
from posbias.lookup.contexts import Context, choose_contexts
from posbias.lookup.rehearsal import Rehearsal, rehearse
from posbias.lookup.sources import ABOUT, find_sources
from posbias.lookup.tasks import MADE_UP, Task
from posbias.measure.corpus import Prompts
from posbias.measure.progress import progress as told
from posbias.measure.session import Session
from posbias.models.loading import check_fits
from posbias.processes import rank
from posbias.prompts import Ask, Prompt, use_template
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
    progress, task = progress and rank() == 0, task.scored(rows)
    with told(1, "step", "writing prompts", shown=progress) as bar:
        write, contexts, placed, under = place_prompts(settings, task, rows, conditions)
        bar.update()
    first, arms = next(iter(placed.values()))[0], list(placed)
    one = Prompts(np.array([first[0].ids]), np.zeros(1, dtype=np.int64))
    session = Session(replace(settings, length=one.ids.shape[1]), one)
    texts = texts_of(write, contexts, arms, "text")
    provenance = provenance_of(session, task, rows is None, placed, texts)
    with told(1, "model", "loading", shown=progress) as bar:
        model = session.instrument.model
        bar.update()
    plain = open_engine(model, settings, ChangedRun(), write, contexts)
    found = {AS_IS: ask_under(plain, write, contexts, arms, ChangedRun(), str(task.score), progress)}
    for name, condition in under.items():
        engine = open_engine(model, settings, condition, write, contexts)
        found[name] = ask_under(engine, write, contexts, arms, condition, str(task.score), progress)
    results = assemble(contexts, texts, arms, found, provenance)
    source = found[AS_IS]["source"][0]
    if task.score == "exact":
        asks = [context.asks["competing"] for context in contexts]
        source = find_sources(plain, asks, placed["competing"], found[AS_IS]["correct"][0], progress)
    results = results.assign(source=(("context", "place"), source.astype(np.int16), ABOUT))
    if task.heads:
        heads = choose_heads(task.heads, settings.source.config())
        seen = [[looked_at(plain.reader, prompt, heads) for prompt in context] for context in placed["competing"]]
        about = {"long_name": "place of the document that heads look at", "heads": task.heads}
        results["looked_at"] = (("context", "place"), np.array(seen, dtype=np.int16), about)
    return results


def open_engine(
    model: Any, settings: Settings, condition: ChangedRun, write: Write, contexts: Sequence[Context]
) -> LocalEngine:
    """Return the model as an engine, changed by a condition; what two prompts have in common is read once if it can."""
    tokenizer = settings.source.load_tokenizer()
    if condition.is_of_model:  # what is read may depend on what follows
        return LocalEngine(model, tokenizer, changed=condition.changed)
    trial = [write(condition.rewrite(ask)) for ask in contexts[0].asks["competing"][:2]]
    return LocalEngine(model, tokenizer, trial)


def provenance_of(
    session: Session, task: Task, made_up: bool, placed: Placed, texts: dict[str, np.ndarray]
) -> dict[str, Any]:
    """Return where the numbers come from."""
    provenance = session.provenance()
    return {kept: provenance[kept] for kept in KEPT} | {
        "task": task.name,
        "score": task.score,
        "dataset": MADE_UP[task.name] if made_up else "rows given",
        "rows": "made up" if made_up else "given",
        "form": "chat template" if use_template(session.tokenizer, task.form) else "plain text",
        "tokens": int(np.mean([len(prompt.ids) for context in placed["competing"] for prompt in context])),
        "prompts_sha256": digest_of(texts),
    }


def preview(settings: Settings, task: Task, rows: Sequence[Ask] | None, *, conditions: Sequence[str]) -> str:
    """Return the first prompt with its answer, how many prompts and tokens there are, also under each condition."""
    write, contexts, placed, under = place_prompts(settings, task, rows, conditions)
    every = [*dict.fromkeys(p for contexts in placed.values() for context in contexts for p in context)]
    tokens = sum(len(prompt.ids) for prompt in every)
    last = f"{len(every)} prompts of {tokens} tokens in all, of which common beginnings are read once"
    lines, score = [f"{every[0].text}[{every[0].answer}]\n", last], str(task.scored(rows).score)
    for name, one in under.items():
        try:
            lines += rehearse(Rehearsal(), write, contexts, [*placed], {name: one}, score)
        except ValueError:  # what it asks depends on the model, which is not read
            lines.append(f"{name}: asked again; costs {one.cost}")
    return "\n".join(lines)


def place_prompts(
    settings: Settings, task: Task, rows: Sequence[Ask] | None, conditions: Sequence[str] = ()
) -> tuple[Write, list[Context], Placed, dict[str, ChangedRun]]:
    """Return a writer, what is asked, its prompts and conditions, or raise ValueError for what a model cannot have."""
    config, tokenizer, under = settings.source.config(), settings.source.load_tokenizer(), read_conditions(conditions)
    for condition in under.values():
        condition.check(config)
    task = task.scored(rows)
    if task.heads:
        choose_heads(task.heads, config)  # raises
    write, contexts = writer(settings, task), choose_contexts(task, rows, settings.prompts, settings.seed)
    placed: Placed = {}
    for arm in (arm for arm in task.wanted if arm in contexts[0].asks):
        placed[arm] = [[write(ask) for ask in context.asks[arm]] for context in contexts]
        for k, context in enumerate(placed[arm], 1):
            try:
                check_fits(config, tokenizer, max(len(prompt.ids + prompt.answer_ids) for prompt in context))
            except ValueError as error:
                raise ValueError(f"{'set' if rows is None else 'row'} {k}: {error}") from None
    check_conditions(settings, task, write, contexts, under)
    return write, contexts, placed, under
