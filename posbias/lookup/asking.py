"""How an engine is asked in a lookup: one way for what is as it is and for what a condition changes, here or served."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr

from posbias import errors
from posbias.conditions import AS_IS, ChangedRun, Write
from posbias.engines import Engine
from posbias.lookup.answers import MOST, UNTIL, contains, find_holder, first_line
from posbias.lookup.contexts import Context
from posbias.lookup.sources import ABOUT
from posbias.lookup.tasks import LAYOUT, MADE_UP, SCHEMA, SCORES, TASKS, Task, scores_of
from posbias.measure.progress import progress as told
from posbias.processes import share_out
from posbias.prompts import Ask, Prompt

Scores = dict[str, Any]
"""By name, each by arm, context and place; and numbers for all: requests and tokens per answer."""
COLUMNS = ("log_probability", "correct", "source")
"""What an answer is scored by, and the place of the document it is from, where an engine's own answer says it."""


@dataclass(frozen=True)
class Questions:
    """Hold all that a lookup asks: its task, which says how answers are scored, contexts, and what writes prompts."""

    task: Task
    contexts: Sequence[Context]
    made_up: bool
    write: Write
    given: str = "text"
    """Which field of a prompt the model is given."""

    @cached_property
    def arms(self) -> tuple[str, ...]:
        """The arms that are asked, ``competing`` first."""
        return tuple(arm for arm in self.task.wanted if arm in self.contexts[0].asks)

    def groups(self) -> Iterator[tuple[Ask, ...]]:
        """Yield what is asked at each place, by arm and context."""
        for arm in self.arms:
            for context in self.contexts:
                yield context.asks[arm]

    def over(self, give: Callable[[Ask], Any]) -> np.ndarray:
        """Return what a function gives of all that is asked, by arm, context and place."""
        found = np.array([give(ask) for asks in self.groups() for ask in asks])
        return found.reshape(len(self.arms), len(self.contexts), -1)


def ask_under(engine: Engine, asked: Questions, condition: ChangedRun, progress: bool = False) -> Scores:
    """Return the scores of all prompts under a condition; those that come out the same are asked once.

    What a question costs is what choosing its documents takes, and its answer, as if no other shared that. Processes
    share the contexts.
    """
    before = np.array([engine.requests, engine.tokens])
    number: dict[Ask, int] = {}
    groups = []
    for asks in asked.groups():
        groups.append([ask for ask in dict.fromkeys(asks) if ask not in number])
        number |= {ask: len(number) + k for k, ask in enumerate(groups[-1])}
    team = share_out(len(groups))
    mine = [ask for group in team.share(groups) for ask in group]
    with told(len(mine), "prompts", "writing", shown=progress) as bar:
        prompts = {}
        for ask in mine:
            prompts[ask] = asked.write(condition.choose(condition.rewrite(ask), engine, asked.write))
            bar.update()
    chosen = np.array([engine.requests, engine.tokens])
    score = str(asked.task.score)
    given = _answers(engine, list(dict.fromkeys(prompts.values())), score, progress)
    rows, said = np.zeros((len(number), len(COLUMNS))), [""] * len(number)
    for ask, prompt in prompts.items():
        rows[number[ask]], said[number[ask]] = score_answer(ask, given[prompt], score)
    answering = np.array([engine.requests, engine.tokens]) - chosen
    costs = np.array([chosen - before, answering], dtype=float)
    are_cut = [getattr(one, "is_cut", False) for one in given.values()]
    counts = np.array([len(mine), len(given), sum(are_cut)], dtype=float)
    if team.size > 1:
        import torch

        team.add_up({str(k): torch.from_numpy(sums) for k, sums in enumerate((rows, costs, counts))})  # in place
    at = asked.over(number.__getitem__)
    found: Scores = {name: rows[:, k][at] for k, name in enumerate(COLUMNS)}
    every, answers, cut = counts
    found["requests"], found["tokens_read"] = costs[0] / every + costs[1] / answers
    found["cut"] = f"{cut:.0f} of {answers:.0f}"
    if score == "contains" and team.size == 1:
        found["said"] = np.array(said)[at]
    return found


def _answers(engine: Engine, prompts: Sequence[Prompt], score: str, progress: bool) -> dict[Prompt, Any]:
    """Return what an engine says of each prompt."""
    asked: Iterator[Any] = engine.loglikelihood(prompts) if score == "exact" else engine.generate(prompts, MOST, UNTIL)
    found = {}
    with told(len(prompts), "prompts", "asking", shown=progress) as bar:
        for prompt, one in zip(prompts, asked, strict=True):
            if score == "exact" and not np.isfinite(one.log_probability):
                received = f"{one.log_probability}: {prompt.text[:60]}"
                raise errors.invalid("log_probability", "finite numbers", received)
            found[prompt] = one
            bar.update()
    return found


def score_answer(ask: Ask, given: Any, score: str) -> tuple[tuple[float, float, float], str]:
    """Return the numbers of an answer by ``COLUMNS``, and its text where it is the engine's own."""
    if score == "exact":
        return (given.log_probability, given.is_greedy, -1), ""
    line = first_line(given.text).replace("\0", "")  # which no file holds
    return (np.nan, contains(line, ask.accepted), find_holder(line, ask.documents)), line


def assemble(asked: Questions, found: Mapping[str, Scores], provenance: Mapping[str, Any]) -> xr.Dataset:
    """Return the result: scores, prompts and answers by arm, context and place, with conditions, if any, in front."""
    dims: tuple[str, ...] = ("arm", "context", "place")
    text = asked.over(lambda ask: getattr(asked.write(ask), asked.given))
    answer = asked.over(lambda ask: asked.write(ask).answer)
    about = {name: x if type(x) in (int, float) else str(x) for name, x in provenance.items()} | about_questions(asked)
    about["prompts_sha256"] = hashlib.sha256("".join([*text.flat, *answer.flat]).encode()).hexdigest()
    arrays: dict[str, Any] = {
        "prompt": (dims, text, {"long_name": "what the model was given, its template applied"}),
        "answer": (dims, answer, {"long_name": "what was scored behind it"}),
        "twice": (
            "context", np.array([context.twice for context in asked.contexts], dtype=np.int8),
            {"long_name": "1 where another document holds the answer too"},
        ),
    }  # fmt: skip
    first = found[AS_IS]
    if "said" in first:
        arrays["said"] = (dims, first["said"], {"long_name": "the first line of the model's own answer"})
    coords: dict[str, Any] = {"arm": [*asked.arms], "context": range(text.shape[1]), "place": range(text.shape[2])}
    if len(found) > 1:
        coords["condition"], dims = list(found), ("condition", *dims)
        for cost in ("requests", "tokens_read"):
            values = np.array([one[cost] for one in found.values()])
            arrays[cost] = ("condition", values, {"long_name": f"{cost.replace('_', ' ')}, for each question"})
    for name in scores_of(about):
        values = np.stack([one[name] for one in found.values()])
        arrays[name] = (dims, values if len(found) > 1 else values[0], {"long_name": SCORES[name]})
    if asked.task.score == "contains":
        about["cut"] = first["cut"]
        arrays["source"] = (("context", "place"), first["source"][0].astype(np.int16), ABOUT)
    return xr.Dataset(arrays, coords, {LAYOUT: SCHEMA, "what": TASKS[asked.task.name], **about})


def about_questions(asked: Questions) -> dict[str, Any]:
    """Return what a file says of the task and its rows."""
    about = {
        "task": asked.task.name,
        "score": asked.task.score,
        "dataset": MADE_UP[asked.task.name] if asked.made_up else "rows given",
        "rows": "made up" if asked.made_up else "given",
    }
    return about | told_of_rows(asked.contexts, about)


def told_of_rows(contexts: Sequence[Context], about: Mapping[str, Any]) -> dict[str, int]:
    """Return in how many rows the document that answers is first, and how many lack what an exact score needs."""
    asked, found = [context.asks["competing"][0] for context in contexts], {}
    bare = sum(not ask.begin for ask in asked)
    if bare and (about["score"], about["rows"]) == ("exact", "given"):
        found["without_begin"] = bare
    if all(ask.scores for ask in asked):
        right = [context.asks.get("oracle", context.asks["competing"])[0].scores[0] for context in contexts]
        found["right_first"] = sum(score == max(ask.scores) for score, ask in zip(right, asked, strict=True))
    return found
