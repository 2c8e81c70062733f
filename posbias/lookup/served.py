"""A lookup on a model that is served: what needs no weights, asked side by side."""

import platform
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
import xarray as xr

from posbias import errors
from posbias.conditions import AS_IS, FIELD, ChangedRun, Write, read_conditions
from posbias.engines import Engine, check_engine
from posbias.engines.served import served_prompt
from posbias.lookup.answers import MOST
from posbias.lookup.asking import ask_under, assemble, digest_of, texts_of
from posbias.lookup.contexts import Context, choose_contexts
from posbias.lookup.rehearsal import Rehearsal, rehearse
from posbias.lookup.sources import ABOUT
from posbias.lookup.tasks import MADE_UP, Task
from posbias.prompts import Ask, Prompt, pieces


def look_up_served(
    engine: Engine,
    task: Task,
    rows: Sequence[Ask] | None = None,
    *,
    prompts: int = 40,
    conditions: Sequence[str] = (),
    seed: int = 0,
    progress: bool = False,
) -> xr.Dataset:
    """Ask a served model for what stands at each place of its prompts, and again under each condition.

    Its own answers are scored unless the task says otherwise: a server need not tell how likely a given one is.
    """
    task, contexts, under = prepare(task, rows, conditions, prompts, seed)
    if task.score == "exact":
        check_engine(engine, "loglikelihood")
    arms = [arm for arm in task.wanted if arm in contexts[0].asks]
    write, found = writer(task), {}
    if len(under) > 1:  # what a condition cannot have is refused before anything is asked
        rehearsal: Any = Rehearsal(engine)
        for condition in under.values():
            condition.choose(condition.rewrite(contexts[0].asks["competing"][0]), rehearsal, write)
    for name, condition in under.items():
        found[name] = ask_under(engine, write, contexts, arms, condition, str(task.score), progress)
    texts = texts_of(write, contexts, arms, "message")
    mean = round(float(found[AS_IS]["tokens_read"]))
    results = assemble(contexts, texts, arms, found, provenance_of(engine, task, rows, texts, mean, seed))
    if task.score == "contains":
        results["source"] = (("context", "place"), found[AS_IS]["source"][0].astype(np.int16), ABOUT)
    return results


def prepare(
    task: Task, rows: Sequence[Ask] | None, conditions: Sequence[str], prompts: int, seed: int
) -> tuple[Task, list[Context], dict[str, ChangedRun]]:
    """Return what is asked and under which conditions, or raise ValueError for one that needs weights."""
    under = read_conditions(conditions)
    for name, condition in under.items():
        if condition.changes not in ("prompt", "asking"):
            raise errors.invalid(FIELD, "one that needs no weights, of a model that is served", name)
        if task.name != "documents":
            raise errors.invalid(FIELD, "none for the task kv, of a model that is served", name)
    task = Task(**{**task.__dict__, "score": task.score or "contains"}).scored(rows)
    return task, choose_contexts(task, rows, prompts, seed), {AS_IS: ChangedRun(), **under}


def writer(task: Task) -> Write:
    """Return what writes prompts for a server."""

    @cache
    def write(ask: Ask) -> Prompt:
        return served_prompt("".join(text for _, text in pieces(task.name, ask)), ask.begin, ask.answer)

    return write


def provenance_of(
    engine: Engine, task: Task, rows: Any, texts: Mapping[str, np.ndarray], tokens: int, seed: int
) -> dict[str, Any]:
    """Return where the numbers come from; the key is not among it."""
    counted = "estimated" if getattr(engine, "estimated", 0) else "the server's"
    return {
        "model": engine.name,
        "revision": "unknown",
        "server": str(getattr(engine, "url", "unknown")),
        "task": task.name,
        "score": task.score,
        "dataset": MADE_UP[task.name] if rows is None else "rows given",
        "rows": "made up" if rows is None else "given",
        "form": "as the server writes it" if task.score == "contains" else "plain text",
        "tokens": tokens,
        "tokens_counted": counted,
        "seed": seed,
        "posbias": version("posbias"),
        "python": platform.python_version(),
        "prompts_sha256": digest_of(texts),
    }


def preview_served(
    task: Task, rows: Sequence[Ask] | None, conditions: Sequence[str], prompts: int, seed: int = 0
) -> str:
    """Return the first prompt, and how many requests and tokens there would be; nothing is sent."""
    task, contexts, under = prepare(task, rows, conditions, prompts, seed)
    arms = [arm for arm in task.wanted if arm in contexts[0].asks]
    write, engine = writer(task), Rehearsal()
    lines = rehearse(engine, write, contexts, arms, under, str(task.score))
    lines.append(f"In all {engine.requests} requests, at most {engine.tokens} tokens (estimated)")
    if task.score == "contains":
        begun = rows is not None and any(row.begin for row in rows)
        unused = "; `begin` of the rows is not sent" if begun else ""
        lines.append(f"Right will be what contains the answer within {MOST} tokens{unused}")
    first = write(contexts[0].asks["competing"][0])
    return "\n".join([f"{first.message}\n", *lines, "Nothing was sent"])
