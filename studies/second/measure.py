"""Answers about competing documents in plain text, by place and by the document they are from; heads that fetch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import xarray as xr

from posbias.conditions import Write
from posbias.heads import attended
from posbias.lookup.answers import FACT_END, FACT_MOST
from posbias.lookup.contexts import Context, make_contexts
from posbias.lookup.tasks import Task
from posbias.measure.run import measure
from posbias.prompts import Ask, write_prompt
from posbias.settings import Settings
from studies.making import go_on
from studies.remedies.engine import SetEngine
from studies.remedies.measure import CHOOSE, CHOOSING, JUDGE, MEANINGS, Row, open_engine, provenance, unfinished
from studies.summaries import summarise

QUANTITIES = ("mixing", "influence", "kernels", "contributions")
"""What is measured of running text: less than of SmolLM2, whose ladder takes as long as all the rest."""


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
        asks = contexts[k].asks["competing"]
        if short:
            asks = shortened(asks)
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
    """Return where each head points in each question, on the sets that chose and on those that judge."""
    engine = open_engine(settings)
    write = writer(engine)
    arrays = {}
    for name, seed, count in (("chosen_on", CHOOSE, CHOOSING), ("judged_on", JUDGE, settings.prompts)):
        contexts = make_contexts(Task("documents", 8), count, seed)

        def read(k: int, contexts: Sequence[Context] = contexts) -> Row:
            shares = [attended(engine.reader, write(ask)) for ask in contexts[k].asks["competing"]]
            return {"attention": np.stack(shares).astype(np.float16)}

        rows = go_on(count, read, unfinished(settings, f"plain-heads-{name}"), "sets")
        dims = (f"set_{name}", "question", "layer", "head", "document")
        arrays[name] = (dims, rows["attention"], {"long_name": MEANINGS["attention"]})
    return xr.Dataset(arrays, attrs=provenance(settings) | {"form": "plain"})


def measure_profiles(settings: Settings) -> xr.Dataset:
    """Return influence by prompt, and what rollouts of attention and contributions predict of it."""
    found = measure(replace(settings, quantities=QUANTITIES), progress=True)
    return summarise(found, order=False)
