"""How an engine is asked in a lookup: one way for what is as it is and for what a condition changes, here or served."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from posbias import errors
from posbias.conditions import AS_IS, ChangedRun, Write
from posbias.engines import Engine
from posbias.lookup.answers import MOST, UNTIL, contains, find_holder, first_line
from posbias.lookup.contexts import Context
from posbias.lookup.tasks import LAYOUT, SCHEMA, SCORES, TASKS, scores_of
from posbias.measure.progress import progress as told
from posbias.processes import Team, share_out
from posbias.prompts import Ask, Prompt

Scores = dict[str, Any]
"""By name, each by arm, context and place; and numbers for all: requests and tokens per answer."""
COLUMNS = ("log_probability", "correct", "source")
"""What an answer is scored by, and the place of the document it is from, where an engine's own answer says it."""


def ask_under(
    engine: Engine,
    write: Write,
    contexts: Sequence[Context],
    arms: Sequence[str],
    condition: ChangedRun,
    score: str,
    progress: bool = False,
) -> Scores:
    """Return the scores of all prompts under a condition; those that come out the same are asked once.

    What a question costs is what choosing its documents takes, and its answer, as if no other shared that. Processes
    share the contexts.
    """
    before = np.array([engine.requests, engine.tokens])
    number: dict[Ask, int] = {}
    groups = []
    for arm in arms:
        for context in contexts:
            groups.append([ask for ask in dict.fromkeys(context.asks[arm]) if ask not in number])
            number |= {ask: len(number) + k for k, ask in enumerate(groups[-1])}
    team = share_out(len(groups))
    mine = [ask for group in team.share(groups) for ask in group]
    with told(len(mine), "prompts", "writing", shown=progress) as bar:
        prompts = {}
        for ask in mine:
            prompts[ask] = write(condition.choose(condition.rewrite(ask), engine, write))
            bar.update()
    chosen = np.array([engine.requests, engine.tokens])
    given = _answers(engine, list(dict.fromkeys(prompts.values())), score, progress)
    rows, said = np.zeros((len(number), len(COLUMNS))), [""] * len(number)
    for ask, prompt in prompts.items():
        rows[number[ask]], said[number[ask]] = score_answer(ask, given[prompt], score)
    answering = np.array([engine.requests, engine.tokens]) - chosen
    costs = np.array([chosen - before, answering], dtype=float)
    counts = np.array([len(mine), len(given), _count_cut(given.values())], dtype=float)
    _add_up(team, {"rows": rows, "costs": costs, "counts": counts})
    at = over(contexts, arms, number.__getitem__)
    found: Scores = {name: rows[:, k][at] for k, name in enumerate(COLUMNS)}
    asked, answers, cut = counts
    found["requests"], found["tokens_read"] = costs[0] / asked + costs[1] / answers
    found["cut"] = f"{cut:.0f} of {answers:.0f}"
    if score == "contains" and team.size == 1:
        found["said"] = np.array(said)[at]
    return found


def over(contexts: Sequence[Context], arms: Sequence[str], give: Callable[[Ask], Any]) -> np.ndarray:
    """Return what a function gives of all that is asked, by arm, context and place."""
    rows = []
    for arm in arms:
        for context in contexts:
            rows.append([give(ask) for ask in context.asks[arm]])
    return np.array(rows).reshape(len(arms), len(contexts), -1)


def texts_of(write: Write, contexts: Sequence[Context], arms: Sequence[str], field: str) -> dict[str, np.ndarray]:
    """Return what is given, a field of each prompt, and the answers, by arm, context and place."""
    return {
        "text": over(contexts, arms, lambda ask: getattr(write(ask), field)),
        "answer": over(contexts, arms, lambda ask: write(ask).answer),
    }


def digest_of(texts: Mapping[str, np.ndarray]) -> str:
    """Return a digest of all that is given, and of the answers."""
    return hashlib.sha256("".join([*texts["text"].flat, *texts["answer"].flat]).encode()).hexdigest()


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


def _count_cut(given: Any) -> int:
    return sum(getattr(one, "is_cut", False) for one in given)


def _add_up(team: Team, sums: Mapping[str, np.ndarray]) -> None:
    """Add what other processes have, in place."""
    if team.size > 1:
        import torch

        team.add_up({name: torch.from_numpy(values) for name, values in sums.items()})


def assemble(
    contexts: Sequence[Context],
    texts: Mapping[str, np.ndarray],
    arms: Sequence[str],
    found: Mapping[str, Scores],
    provenance: Mapping[str, Any],
) -> xr.Dataset:
    """Return the result: scores, prompts and answers by arm, context and place, with conditions, if any, in front."""
    dims: tuple[str, ...] = ("arm", "context", "place")
    plain = as_attributes(provenance)
    plain |= told_of_rows(contexts, plain)
    arrays: dict[str, Any] = {
        "prompt": (dims, texts["text"], {"long_name": "what the model was given, its template applied"}),
        "answer": (dims, texts["answer"], {"long_name": "what was scored behind it"}),
        "twice": (
            "context", np.array([context.twice for context in contexts], dtype=np.int8),
            {"long_name": "1 where another document holds the answer too"},
        ),
    }  # fmt: skip
    first = found[AS_IS]
    if plain["score"] == "contains":
        plain["cut"] = first["cut"]
    if "said" in first:
        about = {"long_name": "the first line of the model's own answer"}
        arrays["said"] = (dims, first["said"], about)
    _, C, P = texts["text"].shape
    coords: dict[str, Any] = {"arm": list(arms), "context": range(C), "place": range(P)}
    if len(found) > 1:
        coords["condition"], dims = list(found), ("condition", *dims)
        for cost in ("requests", "tokens_read"):
            values = np.array([one[cost] for one in found.values()])
            about = {"long_name": f"{cost.replace('_', ' ')}, for each question"}
            arrays[cost] = ("condition", values, about)
    for name in scores_of(plain):
        values = np.stack([one[name] for one in found.values()])
        arrays[name] = (dims, values if len(found) > 1 else values[0], {"long_name": SCORES[name]})
    return xr.Dataset(arrays, coords, {LAYOUT: SCHEMA, "what": TASKS[str(plain["task"])], **plain})


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


def as_attributes(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Return provenance as a file holds it: numbers, and anything else as text."""
    return {name: x if type(x) in (int, float) else str(x) for name, x in provenance.items()}
