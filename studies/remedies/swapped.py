"""What an answer was taken from: the value that a document states is exchanged, and the answer follows or does not.

Claim D-swap, set on 2026-12-01 before the first run, on the 24 sets of ``studies.documents`` part ``used``: where one
document alone states the answer that SmolLM2 gives, the answer becomes the new value, if the value in that document is
exchanged for another one of its kind, in at least .9 of the cases; it is contradicted if the whole 95 % interval over
sets is below .9, and undecided if the share is and the interval is not. Expected are .95 or more, and that an exchange
in one of the other seven documents leaves the answer as it is in about .9 of the cases, without a threshold; of answers
that no document states, that they change with the document that deletion names more often than with the others.

The first run (2026-12-01) had the answer change in all 172 cases, and become the new value in 92. So the part was run
once more, with the document that the answer is from afterwards, ``became``, without a threshold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import xarray as xr

from posbias.lookup.answers import FACT_END, FACT_MOST
from posbias.lookup.contexts import KINDS, NAMES, make_contexts
from posbias.lookup.tasks import Task
from posbias.prompts import Ask
from posbias.settings import Settings
from studies.making import go_on
from studies.remedies.measure import PLACES, open_engine, provenance, unfinished, writer

SEED = 64
STAYS, FOLLOWS, OTHER = range(3)
MEANINGS = {
    "source": "the document, from 0, that alone states the answer given; -1 where none does",
    "became": "the document, from 0, that states the answer after the exchange; -1 where none does",
    "outcome": "the answer if a document's value is exchanged: 0 stays, 1 is the new value, 2 is another one",
}


def other_value(rng: np.random.Generator, asks: Sequence[Ask]) -> str:
    """Return a value of the kind that these questions ask for, which no document states."""
    parts = {tuple(begin.split("{}")): ends for begin, ends in KINDS}
    [ends] = [x for (a, b), x in parts.items() if asks[0].begin.startswith(a) and asks[0].begin.endswith(b)]
    every = {"number": range(1000, 10000), "year": range(1400, 2000), "name": [name.title() for name in NAMES]}[ends]
    stated = " ".join(asks[0].documents)
    free = [str(x) for x in every if str(x) not in stated]
    return free[rng.integers(len(free))]


def exchanged(asks: Sequence[Ask], document: int, value: str) -> list[Ask]:
    """Return the same questions with another value in one document."""
    own = asks[document]
    documents = list(own.documents)
    documents[document] = documents[document].replace(f"{own.begin} {own.answer}.", f"{own.begin} {value}.")
    return [replace(ask, documents=tuple(documents)) for ask in asks]


def measure_swapped(settings: Settings) -> xr.Dataset:
    """Return what becomes of each answer if the value of each document is exchanged (set, question, document)."""
    engine = open_engine(settings, dtype="float32")
    write = writer(engine)
    contexts = make_contexts(Task("documents", PLACES), settings.prompts, settings.seed)

    def answer(asks: Sequence[Ask]) -> list[str]:
        engine.forget()
        prompts = [write(ask) for ask in asks]
        return [one.text.strip() for one in engine.generate(prompts, FACT_MOST, FACT_END)]

    def read(n: int) -> Mapping[str, np.ndarray]:
        rng, asks = np.random.default_rng([SEED, n]), contexts[n].asks["competing"]
        given, stated = answer(asks), [ask.answer for ask in asks]
        outcome, became = np.full((PLACES, PLACES), OTHER), np.full((PLACES, PLACES), -1)
        for document in range(PLACES):
            value = other_value(rng, asks)
            now = np.array(answer(exchanged(asks, document, value)))
            outcome[now == np.array(given), document] = STAYS
            outcome[now == value, document] = FOLLOWS
            for k, text in enumerate([*stated[:document], value, *stated[document + 1 :]]):
                became[now == text, document] = k
        source = [stated.index(text) if text in stated else -1 for text in given]
        return {"source": np.array(source), "outcome": outcome, "became": became}

    found = go_on(settings.prompts, read, unfinished(settings, "swapped"), "sets")
    dims = ("set", "question", "document")
    arrays = {name: (dims[: x.ndim], x.astype(np.int16), {"long_name": MEANINGS[name]}) for name, x in found.items()}
    return xr.Dataset(arrays, attrs=provenance(settings, "float32") | {"drawn": SEED})
