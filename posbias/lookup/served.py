"""A lookup on a model that is served: what needs no weights, asked side by side."""

import hashlib
import platform
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
import xarray as xr

from posbias import errors
from posbias.conditions import AS_IS, FIELD, ChangedRun, Write, read_conditions
from posbias.engines import Engine, Generated, Likelihood, check_engine
from posbias.engines.served import count_tokens, served_prompt
from posbias.lookup.asking import ask_under, assemble, over
from posbias.lookup.contexts import Context, choose_contexts
from posbias.lookup.sources import ABOUT
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
    texts = texts_of(write, contexts, arms)
    mean = round(float(found[AS_IS]["tokens_read"]))
    results = assemble(
        contexts, texts, arms, found, provenance_of(engine, task, rows, texts, mean, seed)
    )
    if task.score == "contains":
        results["source"] = (
            ("context", "place"),
            found[AS_IS]["source"][0].astype(np.int16),
            ABOUT,
        )
    return results


def prepare(
    task: Task, rows: Sequence[Ask] | None, conditions: Sequence[str], prompts: int, seed: int
) -> tuple[Task, list[Context], dict[str, ChangedRun]]:
    """Return what is asked and under which conditions, or raise ValueError for one that needs weights."""
    under = read_conditions(conditions)
    for name, condition in under.items():
        if condition.changes not in ("prompt", "asking"):
            raise errors.invalid(
                FIELD, "one that needs no weights, of a model that is served", name
            )
        if task.name != "documents":
            raise errors.invalid(FIELD, "none for the task kv, of a model that is served", name)
    task = Task(**{**task.__dict__, "score": task.score or "contains"}).scored(rows)
    return task, choose_contexts(task, rows, prompts, seed), {AS_IS: ChangedRun(), **under}


def writer(task: Task) -> Write:
    """Return what writes prompts for a server."""

    @cache
    def write(ask: Ask) -> Prompt:
        return served_prompt(
            "".join(text for _, text in pieces(task.name, ask)), ask.begin, ask.answer
        )

    return write


def texts_of(write: Write, contexts: Sequence[Context], arms: Sequence[str]) -> dict[str, np.ndarray]:
    """Return what the server was sent, and the answers, by arm, context and place."""
    return {
        "text": over(contexts, arms, lambda ask: write(ask).message),
        "answer": over(contexts, arms, lambda ask: write(ask).answer),
    }


def provenance_of(
    engine: Engine, task: Task, rows: Any, texts: Mapping[str, np.ndarray], tokens: int, seed: int
) -> dict[str, Any]:
    """Return where the numbers come from; the key is not among it."""
    every = "".join([*texts["text"].flat, *texts["answer"].flat])
    made = {"documents": "invented facts", "kv": "invented words"}[task.name]
    counted = "estimated" if getattr(engine, "estimated", 0) else "the server's"
    return {
        "model": engine.name,
        "revision": "unknown",
        "server": str(getattr(engine, "url", "unknown")),
        "task": task.name,
        "score": task.score,
        "dataset": made if rows is None else "rows given",
        "rows": "made up" if rows is None else "given",
        "form": "as the server writes it" if task.score == "contains" else "plain text",
        "tokens": tokens,
        "tokens_counted": counted,
        "seed": seed,
        "posbias": version("posbias"),
        "python": platform.python_version(),
        "prompts_sha256": hashlib.sha256(every.encode()).hexdigest(),
    }


class Rehearsal:
    """Stand in for a server and count what it would be asked; tokens are estimated."""

    name, has_loglikelihood, has_gradients = "a model that is served", True, False

    def __init__(self, of: Engine | None = None) -> None:
        self.requests = self.tokens = 0
        if of is not None:
            self.name, self.has_loglikelihood = of.name, of.has_loglikelihood

    def loglikelihood(self, prompts: Sequence[Prompt]) -> list[Likelihood]:
        """Count prompts with their answers."""
        self._count(prompts, 0)
        return [Likelihood(0.0, False)] * len(prompts)

    def generate(self, prompts: Sequence[Prompt], most: int, until: str = "") -> list[Generated]:
        """Count prompts with answers that are as long as they may be."""
        self._count(prompts, most)
        return [Generated("nothing", (), 0.0, most)] * len(prompts)

    def _count(self, prompts: Sequence[Prompt], more: int) -> None:
        self.requests += len(prompts)
        self.tokens += sum(
            count_tokens(prompt.message + prompt.answer) + more for prompt in prompts
        )


def preview_served(
    task: Task, rows: Sequence[Ask] | None, conditions: Sequence[str], prompts: int, seed: int = 0
) -> str:
    """Return the first prompt, and how many requests and tokens there would be; nothing is sent."""
    task, contexts, under = prepare(task, rows, conditions, prompts, seed)
    arms = [arm for arm in task.wanted if arm in contexts[0].asks]
    write, lines = writer(task), []
    for name, condition in under.items():
        engine: Any = Rehearsal()
        ask_under(engine, write, contexts, arms, condition, str(task.score))
        lines.append(
            f"{name}: {engine.requests} requests, at most {engine.tokens} tokens (estimated)"
        )
    first = write(contexts[0].asks["competing"][0])
    return "\n".join([f"{first.message}\n", *lines, "Nothing was sent"])
