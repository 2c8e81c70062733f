"""The likelihood of the question as what orders passages: all of them, or the two best, the best last or first.

On the 100 questions of :func:`studies.remedies.questions.measure_searched`, so that what gains, the better
choice or the shorter prompt, can be told apart; and on 200 new ones, with the ways that gained most on those.
Thresholds stand in :mod:`studies.remedies.checks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import xarray as xr

from posbias import errors
from posbias.conditions.each.order import arranged
from posbias.lookup.answers import MOST, UNTIL
from posbias.prompts import Ask
from posbias.settings import Settings
from studies.making import go_on
from studies.questions.asks import write_ask
from studies.remedies.measure import BEST, Row, open_engine, provenance, unfinished
from studies.remedies.questions import MEANINGS, PLACES, SEEN, Ranked, is_right, load_rows
from studies.summaries import stacked

ORDERS = {
    "likely-last": ("likelihood", "best-last", PLACES),
    "likely-first": ("likelihood", "best-first", PLACES),
    "likely-two": ("likelihood", "best-last", 2),
    "search-two": ("search", "best-last", 2),
}
"""Ranking, order, and how many of the best passages are kept."""
AGAIN = {
    "as-is": ("search", "best-first", PLACES),
    "search-last": ("search", "best-last", PLACES),
    "search-alone": ("search", "best-first", 1),
    "heads-alone": ("heads", "best-first", 1),
    "likely-last": ("likelihood", "best-last", PLACES),
    "likely-two": ("likelihood", "best-last", 2),
    "one-by-one-likely": ("likelihood", "best-first", 1),
}
"""The same of what new questions are asked with."""
ASKED = 150
"""Questions that were asked before those."""


def put_in_orders(ranked: Ranked, ways: Mapping[str, tuple[str, str, int]]) -> list[Ask]:
    """Return what is asked in each of several ways of a question that is asked at one place."""
    [plain], asks = ranked.asks, []
    for ranking, kind, keep in ways.values():
        [scores] = ranked.scores[ranking]
        best = arranged(PLACES, scores, "best-first")[:keep]
        asks.append(plain.with_documents(best if kind == "best-first" else best[::-1]))
    return asks


def measure_likely_orders(settings: Settings, again: bool = False, heads: str = BEST) -> xr.Dataset:
    """Return right answers (question, remedy) to passages in orders by the likelihood, or to new questions *again*."""
    ways, first, name = (AGAIN, ASKED, "likely-again") if again else (ORDERS, SEEN, "likely-orders")
    rows = load_rows(settings)[first:]
    if not rows:
        raise errors.invalid("prompts", f"more than {first}, which were counted before", settings.prompts)
    engine = open_engine(settings)
    write = partial(write_ask, engine.tokenizer)

    def read(k: int) -> Row:
        engine.forget()
        ranked = Ranked(rows[k], engine, write, heads, at=(rows[k].rank,))
        [plain], asks = ranked.asks, put_in_orders(ranked, ways)
        prompts, row = [write(ask) for ask in asks], []
        for prompt, ask, (ranking, *_) in zip(prompts, asks, ways.values(), strict=True):
            [said] = engine.generate([prompt], MOST, UNTIL)
            requests, tokens = ranked.costs[ranking]
            row.append({
                "correct": np.array(is_right(rows[k], said.text)),
                "kept": np.array(plain.documents[rows[k].rank] in ask.documents),
                "requests": np.array(requests + 1),
                "tokens_read": np.array(tokens + len(prompt.ids) + len(said.ids)),
            })  # fmt: skip
        likeliest = np.argmax(ranked.scores["likelihood"][0]) == rows[k].rank
        return {**stacked(row), "rank": np.array(rows[k].rank), "likeliest": np.array(likeliest)}

    found = go_on(len(rows), read, unfinished(settings, f"questions-{name}"), "questions")
    meanings = MEANINGS | {"likeliest": "1 where the right passage makes the question likeliest"}
    dims = {"rank": ("question",), "likeliest": ("question",)}
    arrays = {
        name: (dims.get(name, ("question", "remedy")), x.astype(np.int32), {"long_name": meanings[name]})
        for name, x in found.items()
    }
    about = {"dataset": "nq-open-oracle, Liu et al. 2023", "first": first}
    return xr.Dataset(arrays, {"remedy": list(ways)}, provenance(settings) | about)
