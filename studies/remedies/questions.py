"""Remedies on Liu et al.'s questions: eight passages, the right one among BM25's best others.

Prompts and metric are those of :mod:`studies.questions`. Heads were chosen on invented facts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from posbias import errors
from posbias.conditions import Write
from posbias.conditions.each.one_by_one import _asking as asking_for
from posbias.conditions.each.order import arranged
from posbias.conditions.each.sharper import read_heads
from posbias.engines.local import LocalEngine
from posbias.heads import attended, point
from posbias.lookup.answers import MOST, UNTIL, contains, first_line
from posbias.prompts import Ask, Prompt
from posbias.settings import Settings
from studies.making import go_on
from studies.questions.asks import as_ask, write_ask
from studies.questions.rows import Question, make_rows, read_questions
from studies.remedies.engine import SetEngine
from studies.remedies.measure import (
    BEST,
    Remedy,
    Row,
    open_engine,
    provenance,
    short_name,
    unfinished,
)
from studies.summaries import stacked

PLACES, AT = 8, (0, 3, 5, 7)
"""Passages, and places of the right one."""
RANKINGS = ("search", "likelihood", "heads")
"""What puts passages in order: BM25, the likelihood of the question given each alone, and heads."""
CHOSEN = {
    "search-alone": ("search", 1),
    "one-by-one-likely": ("likelihood", 1),
    "heads-alone": ("heads", 1),
    "search-alone-2": ("search", 2),
    "one-by-one-likely-2": ("likelihood", 2),
    "heads-alone-2": ("heads", 2),
}
"""Ranking, and how many passages are kept, in the given order.

The last two rankings do what the conditions ``one-by-one`` and ``fetched`` do; a test holds them to it.
"""
SEEN = 50
"""Questions that were counted in a search's order before :func:`measure_searched` was written; it leaves them out."""
MEANINGS = {
    "correct": "1 where the answer holds an accepted answer",
    "kept": "1 where the right passage is among those asked with at last",
    "heads": "share of attention of each passage in the given order, a mean over the three best heads",
    "all_heads": "the passage, from 0, that a mean over all heads points at",
    "likelihood": "log-probability of the question given each passage alone, the right one first, nats",
    "rank": "how many competitors BM25 ranks above the right passage",
    "requests": "of an answer",
    "tokens_read": "tokens that were given to the model for an answer",
}
DIMS = {
    "correct": ("question", "remedy", "place"),
    "kept": ("question", "remedy", "place"),
    "heads": ("question", "place", "document"),
    "all_heads": ("question", "place"),
    "likelihood": ("question", "document"),
    "rank": ("question",),
    "requests": ("question", "remedy"),
    "tokens_read": ("question", "remedy"),
}


def load_rows(settings: Settings) -> list[Question]:
    """Return the questions, each with its competitors."""
    return make_rows(read_questions(), settings.prompts, PLACES, settings.seed)


def is_right(question: Question, said: str) -> int:
    """Return 1 where the first line of an answer holds an accepted answer."""
    return int(contains(first_line(said), question.answers))


def save(settings: Settings, found: dict[str, np.ndarray], **about: str) -> xr.Dataset:
    """Return what was measured, labelled; what is measured of one remedy has no dimension for it."""
    arrays = {}
    for name, x in found.items():
        dims = tuple(one for one in DIMS[name] if one != "remedy" or x.ndim == len(DIMS[name]))
        kind = np.float32 if x.dtype.kind == "f" else np.int16
        arrays[name] = (dims, x.astype(kind), {"long_name": MEANINGS[name]})
    coords: dict[str, Any] = {"place": list(AT)}
    if found["correct"].ndim == 3:
        coords["remedy"] = list(CHOSEN)
    data = provenance(settings) | {"dataset": "nq-open-oracle, Liu et al. 2023", **about}
    return xr.Dataset(arrays, coords, data)


class Ranked:
    """Hold one question at each place, and by ranking the scores of its passages there, higher is better."""

    def __init__(self, question: Question, engine: SetEngine, write: Write, heads: str, at: Sequence[int] = AT) -> None:
        self.asks = [as_ask(question, place) for place in at]
        prompts = [write(ask) for ask in self.asks]
        shares = [attended(engine.reader, prompt) for prompt in prompts]
        self.all_heads = [int(x.mean((0, 1)).argmax()) for x in shares]
        alone = [self.asks[0].with_documents([k]) for k in range(PLACES)]
        asking = [write(asking_for(one)) for one in alone]
        self.likelihood = [one.log_probability for one in engine.loglikelihood(asking)]
        told = dict(zip(self.asks[0].documents, self.likelihood, strict=True))
        self.scores = {
            "search": [list(ask.scores) for ask in self.asks],
            "likelihood": [list(map(told.__getitem__, ask.documents)) for ask in self.asks],
            "heads": [point(x, read_heads(heads)).tolist() for x in shares],
        }
        own = sum(len(one.ids) + len(one.answer_ids) - 1 for one in asking)
        whole = sum(len(one.ids) for one in prompts) / len(prompts)
        self.costs = {"search": (0, 0), "likelihood": (PLACES, own), "heads": (1, whole)}

    def chosen(self, name: str) -> list[Ask]:
        """Return what is asked at last at each place."""
        ranking, keep = CHOSEN[name]
        found = []
        for ask, scores in zip(self.asks, self.scores[ranking], strict=True):
            best = arranged(PLACES, scores, "best-first")[:keep]
            found.append(ask.with_documents(sorted(best)))
        return found


def measure_questions(settings: Settings) -> xr.Dataset:
    """Return right answers with one passage alone, or two, that a search, the model or its heads choose.

    What a remedy costs is counted as if no other was asked; the same prompt is answered once.
    """
    engine, rows = open_engine(settings), load_rows(settings)
    write = partial(write_ask, engine.tokenizer)

    def read(k: int) -> Row:
        engine.forget()
        ranked = Ranked(rows[k], engine, write, BEST)
        asked = {name: ranked.chosen(name) for name in CHOSEN}
        prompts = {ask: write(ask) for asks in asked.values() for ask in asks}
        each = sorted(prompts.values(), key=lambda prompt: len(prompt.ids))
        list(engine.generate(each, MOST, UNTIL))  # from here on they are known
        right, row = ranked.asks[0].documents[0], []
        for name, asks in asked.items():
            before = engine.tokens
            given = list(engine.generate([prompts[ask] for ask in asks], MOST, UNTIL))
            requests, tokens = ranked.costs[CHOSEN[name][0]]
            row.append({
                "correct": np.array([is_right(rows[k], one.text) for one in given]),
                "kept": np.array([right in ask.documents for ask in asks]),
                "requests": np.array(requests + 1),
                "tokens_read": np.array(tokens + (engine.tokens - before) / len(AT)),
            })  # fmt: skip
        return {
            **stacked(row),
            "heads": np.array(ranked.scores["heads"]),
            "all_heads": np.array(ranked.all_heads),
            "likelihood": np.array(ranked.likelihood),
            "rank": np.array(rows[k].rank),
        }

    found = go_on(len(rows), read, unfinished(settings, "questions-ranked"), "questions")
    return save(settings, found, best=BEST)


def measure_question_remedy(settings: Settings, text: str) -> xr.Dataset:
    """Return right answers (question, place) under a condition, and what they cost."""
    remedy = Remedy(text)
    engine, rows = open_engine(settings), load_rows(settings)
    write = partial(write_ask, engine.tokenizer)

    def read(k: int) -> Row:
        engine.forget()
        before = engine.requests, engine.tokens
        question = rows[k]
        right = as_ask(question, 0).documents[0]
        asks = [as_ask(question, place) for place in AT]
        asks = [remedy.condition.rewrite(ask) for ask in asks]
        asks = [remedy.condition.choose(ask, engine, write) for ask in asks]
        said = answers_under(remedy.condition, engine, [write(ask) for ask in asks])
        return {
            "correct": np.array([is_right(question, one) for one in said], dtype=np.int16),
            "kept": np.array([right in ask.documents for ask in asks], dtype=np.int16),
            "requests": np.array((engine.requests - before[0]) / len(AT)),
            "tokens_read": np.array((engine.tokens - before[1]) / len(AT)),
        }

    path = unfinished(settings, f"questions-{short_name(text)}")
    return save(settings, go_on(len(rows), read, path, "questions"), condition=text)


def measure_searched(settings: Settings) -> xr.Dataset:
    """Return right answers (question, remedy) to passages in a search's order, and to one passage or this order turned.

    The right passage is where the search has it. Of all questions asked the first :data:`SEEN` are left out.
    """
    rows = load_rows(settings)[SEEN:]
    if not rows:
        raise errors.invalid("prompts", f"more than {SEEN}, which were counted before", settings.prompts)
    engine = open_engine(settings)
    write = partial(write_ask, engine.tokenizer)
    alone = [name for name, (_, keep) in CHOSEN.items() if keep == 1]
    last = Remedy("order:best-last").condition

    def read(k: int) -> Row:
        engine.forget()
        ranked = Ranked(rows[k], engine, write, BEST, at=(rows[k].rank,))
        [plain] = ranked.asks
        right = f"(Title: {rows[k].passage.title}) {rows[k].passage.text}"
        ways: dict[str, tuple[Ask, tuple[int, float]]] = {
            "as-is": (plain, (0, 0)),
            "search-last": (last.choose(last.rewrite(plain), engine, write), (0, 0)),
        }
        ways |= {name: (ranked.chosen(name)[0], ranked.costs[CHOSEN[name][0]]) for name in alone}
        prompts = [write(ask) for ask, _ in ways.values()]
        list(engine.generate(sorted(prompts, key=lambda prompt: len(prompt.ids)), MOST, UNTIL))
        row = []
        for prompt, (ask, (requests, tokens)) in zip(prompts, ways.values(), strict=True):
            [said] = engine.generate([prompt], MOST, UNTIL)  # known by now
            row.append({
                "correct": np.array(is_right(rows[k], said.text)),
                "kept": np.array(right in ask.documents),
                "requests": np.array(requests + 1),
                "tokens_read": np.array(tokens + len(prompt.ids) + len(said.ids)),
            })  # fmt: skip
        return {**stacked(row), "rank": np.array(rows[k].rank)}

    found = go_on(len(rows), read, unfinished(settings, "questions-searched"), "questions")
    dims = {"rank": ("question",)}
    arrays = {
        name: (dims.get(name, ("question", "remedy")), x.astype(np.int32), {"long_name": MEANINGS[name]})
        for name, x in found.items()
    }
    about = {"dataset": "nq-open-oracle, Liu et al. 2023", "best": BEST, "first": SEEN}
    return xr.Dataset(arrays, {"remedy": ["as-is", "search-last", *alone]}, provenance(settings) | about)


def answers_under(condition: Any, engine: SetEngine, prompts: Sequence[Prompt]) -> list[str]:
    """Return what the model says to each prompt; it is changed while these are read."""
    if not condition.is_of_model:
        return [one.text for one in engine.generate(prompts, MOST, UNTIL)]
    if condition.changes == "model":
        with condition.changed(engine.model, prompts[0]):
            return [one.text for one in engine.generate(prompts, MOST, UNTIL)]
    alone = LocalEngine(engine.model, engine.tokenizer, changed=condition.changed)
    said = [one.text for one in alone.generate(prompts, MOST, UNTIL)]
    engine.requests += alone.requests
    engine.tokens += alone.tokens
    return said
