"""Answers about competing documents in plain text, by place and by the document they are from; heads that fetch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from posbias import errors
from posbias.conditions import Write
from posbias.conditions.each.sharper import read_heads
from posbias.heads import attended, point
from posbias.lookup.answers import FACT_END, FACT_MOST, MOST, UNTIL
from posbias.lookup.contexts import Context, make_contexts
from posbias.lookup.tasks import Task
from posbias.measure.run import measure
from posbias.prompts import Ask, write_prompt
from posbias.settings import Settings
from studies.making import go_on
from studies.questions.asks import as_ask, write_ask
from studies.remedies.engine import SetEngine
from studies.remedies.likely_orders import ASKED
from studies.remedies.measure import CHOOSE, CHOOSING, JUDGE, MEANINGS, Row, open_engine, provenance, unfinished
from studies.remedies.questions import is_right, load_rows
from studies.results import load
from studies.second.evidence import best_heads
from studies.summaries import summarise

QUANTITIES = ("mixing", "influence", "kernels", "contributions")
"""What is measured of running text: less than of SmolLM2, whose ladder takes as long as all the rest."""
POINTING = "gemma3.pointing"
"""The entry that says where heads point in real questions."""


def writer(engine: SetEngine) -> Write:
    """Return what writes prompts in plain text, behind a start token where there is one."""
    return partial(write_prompt, engine.tokenizer, "documents", template=False, special_tokens=True)


def stated_by(text: str, asks: Sequence[Ask]) -> int:
    """Return the document whose fact an answer is, from 0, or -1 for none.

    >>> stated_by(" 1845", [Ask(("a", "b"), "?", "1417"), Ask(("a", "b"), "?", "1845")])
    1
    """
    return next((k for k, ask in enumerate(asks) if ask.answer == text.strip()), -1)


def shortened(asks: Sequence[Ask]) -> list[Ask]:
    """Return the same questions about documents of one sentence each, the fact alone."""
    texts = tuple(f"{ask.begin} {ask.answer}." for ask in asks)
    return [replace(ask, documents=texts) for ask in asks]


def measure_facts(settings: Settings, places: int, short: bool = False) -> xr.Dataset:
    """Return right answers (set, document asked for), and the document that each answer comes from.

    ``short``: documents have the fact alone, a sentence in place of three.
    """
    engine = open_engine(settings)
    write = writer(engine)
    contexts = make_contexts(Task("documents", places), settings.prompts, JUDGE)

    def read(k: int) -> Row:
        engine.forget()
        whole = contexts[k].asks["competing"]
        asks = shortened(whole) if short else list(whole)
        prompts = [write(ask) for ask in asks]
        given = list(engine.generate(prompts, FACT_MOST, FACT_END))
        likely = list(engine.loglikelihood(prompts))
        return {
            "correct": np.array([one.is_greedy for one in likely], dtype=np.int16),
            "source": np.array([stated_by(one.text, asks) for one in given], dtype=np.int16),
            "tokens": np.array([len(one.ids) for one in prompts], dtype=np.int16),
        }

    rows = go_on(
        settings.prompts, read, unfinished(settings, f"plain-facts-{places}{'-short' if short else ''}"), "sets"
    )
    meanings = MEANINGS | {"tokens": "of the prompt"}
    arrays = {name: (("set", "document"), x, {"long_name": meanings[name]}) for name, x in rows.items()}
    return xr.Dataset(arrays, attrs=provenance(settings) | {"places": places, "form": "plain", "short": int(short)})


def measure_plain_heads(settings: Settings) -> xr.Dataset:
    """Return where each head points in the sets that chose, and attention of the best ones in those that judge."""
    engine = open_engine(settings)
    write = writer(engine)
    arrays: dict[str, Any] = {}
    for name, seed, count in (("chosen_on", CHOOSE, CHOOSING), ("judged_on", JUDGE, settings.prompts)):
        contexts = make_contexts(Task("documents", 8), count, seed)

        def read(k: int, contexts: Sequence[Context] = contexts) -> Row:
            shares = [attended(engine.reader, write(ask)) for ask in contexts[k].asks["competing"]]
            return {"attention": np.stack(shares).astype(np.float16)}

        rows = go_on(count, read, unfinished(settings, f"plain-heads-{name}"), "sets")
        dims = (f"set_{name}", "question", "layer", "head", "document")
        arrays[name] = (dims, rows["attention"], {"long_name": MEANINGS["attention"]})
    dims, attention, _ = arrays["chosen_on"]
    points = attention.argmax(-1).astype(np.int8)
    arrays["chosen_on"] = (
        dims[:-1],
        points,
        {"long_name": "the document, from 0, that has most of the head's attention"},
    )
    dims, attention, about = arrays["judged_on"]
    layers, heads = np.transpose(best_heads(points))
    arrays["judged_on"] = ((*dims[:2], "best", dims[-1]), attention[:, :, layers, heads], about)
    return xr.Dataset(arrays, attrs=provenance(settings) | {"form": "plain"})


def measure_pointing(settings: Settings) -> xr.Dataset:
    """Return where each head points in the questions of ``likely-again``, whose passages are in a search's order."""
    rows, engine = load_rows(settings)[ASKED:], open_engine(settings)

    def read(k: int) -> Row:
        shares = attended(engine.reader, write_ask(engine.tokenizer, as_ask(rows[k], rows[k].rank)))
        return {"attention": shares.astype(np.float16), "rank": np.array(rows[k].rank, dtype=np.int16)}

    found = go_on(len(rows), read, unfinished(settings, "questions-pointing"), "questions")
    arrays = {
        "attention": (("question", "layer", "head", "document"), found["attention"]),
        "rank": (("question",), found["rank"]),
    }
    return xr.Dataset(arrays, attrs=provenance(settings) | {"dataset": "nq-open-oracle, Liu et al. 2023"})


def measure_pointed(settings: Settings, heads: str) -> xr.Dataset:
    """Return right answers to the same questions with the passage alone at which some heads point, as kept before."""
    rows, engine = load_rows(settings)[ASKED:], open_engine(settings)
    kept = load("second")
    if POINTING not in kept:
        raise errors.invalid("pointed", "where heads point, by python -m studies.second pointing", "none")
    shares = kept[POINTING]["attention"].values.astype(np.float64)
    if len(shares) < len(rows):
        kept_of = f"at most {ASKED + len(shares)}, of which part pointing is kept"
        raise errors.invalid("prompts", kept_of, settings.prompts)

    def read(k: int) -> Row:
        best = int(point(shares[k], read_heads(heads)).argmax())
        prompt = write_ask(engine.tokenizer, as_ask(rows[k], rows[k].rank).with_documents([best]))
        [said] = engine.generate([prompt], MOST, UNTIL)
        return {"correct": np.array(is_right(rows[k], said.text)), "kept": np.array(int(best == rows[k].rank))}

    found = go_on(len(rows), read, unfinished(settings, "questions-pointed"), "questions")
    arrays = {name: ("question", x.astype(np.int16), {"long_name": MEANINGS[name]}) for name, x in found.items()}
    return xr.Dataset(
        arrays, attrs=provenance(settings) | {"dataset": "nq-open-oracle, Liu et al. 2023", "best": heads}
    )


def measure_profiles(settings: Settings) -> xr.Dataset:
    """Return influence by prompt, and what rollouts of attention and contributions predict of it."""
    found = measure(replace(settings, quantities=QUANTITIES), progress=True)
    return summarise(found, order=False)
