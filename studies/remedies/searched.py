"""Liu et al.'s questions as a search hands them over: all eight passages in its order, and what changes that.

Here the right passage stands where BM25 puts it, first for three questions in four, and not at each
place in turn as elsewhere in this study.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr

from posbias.conditions.each.order import arranged
from posbias.lookup.answers import MOST, UNTIL
from posbias.settings import Settings
from studies.making import go_on
from studies.questions.asks import write_ask
from studies.remedies.measure import BEST, Row, open_engine, provenance, unfinished
from studies.remedies.questions import MEANINGS, PLACES, Ranked, is_right, load_rows
from studies.summaries import stacked

WAYS = {
    "as-is": ("search", "best-first", PLACES),
    "search-last": ("search", "best-last", PLACES),
    "search-ends": ("search", "ends", PLACES),
    "heads-last": ("heads", "best-last", PLACES),
    "search-alone": ("search", "best-first", 1),
    "one-by-one-likely": ("likelihood", "best-first", 1),
    "heads-alone": ("heads", "best-first", 1),
}
"""What puts passages in order, in which order they are sent, and how many of them."""


def measure_searched(settings: Settings) -> xr.Dataset:
    """Return right answers (question, remedy), and what each cost as if no other was asked."""
    engine, rows = open_engine(settings), load_rows(settings)
    write = partial(write_ask, engine.tokenizer)

    def read(k: int) -> Row:
        engine.forget()
        ranked = Ranked(rows[k], engine, write, BEST, (rows[k].rank,))
        given, right, row = ranked.asks[0], rows[k].passage.text, []
        asks = {}
        for way in WAYS.values():
            ranking, kind, keep = way
            asks[way] = given.with_documents(arranged(PLACES, ranked.scores[ranking][0], kind)[:keep])
        for alone in (False, True):  # prompts of one length together; from here on answers are known
            together = [write(ask) for way, ask in asks.items() if (way[2] == 1) == alone]
            list(engine.generate(together, MOST, UNTIL))
        for (ranking, _, _), ask in asks.items():
            before = engine.tokens
            said = next(iter(engine.generate([write(ask)], MOST, UNTIL)))
            requests, tokens = ranked.costs[ranking]
            row.append({
                "correct": np.array(is_right(rows[k], said.text)),
                "kept": np.array(any(one.endswith(right) for one in ask.documents)),
                "requests": np.array(requests + 1),
                "tokens_read": np.array(tokens + engine.tokens - before),
            })  # fmt: skip
        return stacked(row)

    found = go_on(len(rows), read, unfinished(settings, "searched"), "questions")
    arrays = {}
    for name, x in found.items():
        kind = np.float32 if x.dtype.kind == "f" else np.int32
        arrays[name] = (("question", "remedy"), x.astype(kind), {"long_name": MEANINGS[name]})
    about = provenance(settings) | {"dataset": "nq-open-oracle, Liu et al. 2023", "best": BEST}
    return xr.Dataset(arrays, {"remedy": list(WAYS)}, about)
