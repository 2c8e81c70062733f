"""A lookup on a model that is served: what needs no weights, asked side by side."""

import platform
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from typing import Any

import xarray as xr

from posbias import errors
from posbias.conditions import AS_IS, FIELD, ChangedRun, read_conditions
from posbias.engines import Engine, check_engine
from posbias.engines.served import served_prompt
from posbias.lookup.answers import MOST
from posbias.lookup.asking import Questions, ask_under, assemble
from posbias.lookup.contexts import choose_contexts
from posbias.lookup.rehearsal import Rehearsal, rehearse
from posbias.lookup.tasks import Task
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
    asked, under = prepare(task, rows, conditions, prompts, seed)
    if asked.task.score == "exact":
        check_engine(engine, "loglikelihood")
    rehearsal: Any = Rehearsal(engine)
    for condition in under.values():  # what a condition cannot have is refused before anything is asked
        condition.choose(condition.rewrite(asked.contexts[0].asks["competing"][0]), rehearsal, asked.write)
    found = {name: ask_under(engine, asked, condition, progress) for name, condition in under.items()}
    provenance = {
        "model": engine.name,
        "revision": "unknown",
        "server": getattr(engine, "url", "unknown"),
        "form": "as the server writes it" if asked.task.score == "contains" else "plain text",
        "tokens": round(float(found[AS_IS]["tokens_read"])),
        "tokens_counted": "estimated" if getattr(engine, "estimated", 0) else "the server's",
        "seed": seed,
        "posbias": version("posbias"),
        "python": platform.python_version(),
    }
    return assemble(asked, found, provenance)


def prepare(
    task: Task, rows: Sequence[Ask] | None, conditions: Sequence[str], prompts: int, seed: int
) -> tuple[Questions, dict[str, ChangedRun]]:
    """Return what is asked and under which conditions, or raise ValueError for one that needs weights."""
    under = read_conditions(conditions)
    for name, condition in under.items():
        if condition.changes not in ("prompt", "asking"):
            raise errors.invalid(FIELD, "one that needs no weights, of a model that is served", name)
        if task.name != "documents":
            raise errors.invalid(FIELD, "none for the task kv, of a model that is served", name)
    task = replace(task, score=task.score or "contains").scored(rows)

    @cache
    def write(ask: Ask) -> Prompt:
        return served_prompt("".join(text for _, text in pieces(task.name, ask)), ask.begin, ask.answer)

    contexts = choose_contexts(task, rows, prompts, seed)
    return Questions(task, contexts, rows is None, write, "message"), {AS_IS: ChangedRun(), **under}


def preview_served(
    task: Task, rows: Sequence[Ask] | None, conditions: Sequence[str], prompts: int, seed: int = 0
) -> str:
    """Return the first prompt, and how many requests and tokens there would be; nothing is sent."""
    asked, under = prepare(task, rows, conditions, prompts, seed)
    engine = Rehearsal()
    lines = rehearse(engine, asked, under)
    lines.append(f"In all {engine.requests} requests, at most {engine.tokens} tokens (estimated)")
    if asked.task.score == "contains":
        unused = "; `begin` of the rows is not sent" if any(row.begin for row in rows or ()) else ""
        lines.append(f"Right will be what contains the answer within {MOST} tokens{unused}")
    first = asked.write(asked.contexts[0].asks["competing"][0])
    return "\n".join([f"{first.message}\n", *lines, "Nothing was sent"])
