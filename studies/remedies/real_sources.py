"""What deletion names where one passage alone holds the answer to a real question word for word.

Set on 2026-11-29, before the run, without a threshold: of the answers to the first questions, the
right passage at four of eight places, those whose first line stands in one passage alone.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import xarray as xr

from posbias.lookup.answers import MOST, UNTIL, find_holder, first_line
from posbias.settings import Settings
from studies.making import go_on
from studies.questions.asks import as_ask, write_ask
from studies.remedies.measure import Row, open_engine, provenance, unfinished
from studies.remedies.questions import AT, PLACES, load_rows
from studies.results import load

MEANINGS = {
    "question": "number of the question, from 0",
    "at": "place of the right passage",
    "source": "the passage, from 0 in the order given, that alone holds the answer",
    "removed": "change of the answer's log-probability without each passage, nats",
}


def measure_real_sources(settings: Settings) -> xr.Dataset:
    """Return by answer what the deletion of each passage changes."""
    engine, rows = open_engine(settings), load_rows(settings)
    write = partial(write_ask, engine.tokenizer)
    known = load("questions")["smollm2.eight"]["source"].sel(place=list(AT)).values[: len(rows)] >= 0
    asked = np.argwhere(known)

    def read(n: int) -> Row:
        k, at = int(asked[n, 0]), AT[asked[n, 1]]
        engine.forget()
        ask = as_ask(rows[k], at)
        [given] = engine.generate([write(ask)], MOST, UNTIL)
        passages = [one.text for one in rows[k].at(at)]
        asks = [ask]
        for gone in range(PLACES):
            asks.append(ask.with_documents([j for j in range(PLACES) if j != gone]))
        told = []
        for one in asks:
            [found] = engine.loglikelihood([replace(write(one), answer_ids=given.ids)])
            told.append(found.log_probability)
        return {
            "question": np.array(k),
            "at": np.array(at),
            "source": np.array(find_holder(first_line(given.text), passages)),
            "removed": np.array(told[1:]) - told[0],
        }

    found = go_on(len(asked), read, unfinished(settings, "real-sources"), "answers")
    arrays = {}
    for name, x in found.items():
        kind = np.float32 if x.dtype.kind == "f" else np.int16
        arrays[name] = (("answer", "document")[: x.ndim], x.astype(kind), {"long_name": MEANINGS[name]})
    return xr.Dataset(arrays, attrs=provenance(settings) | {"dataset": "nq-open-oracle, Liu et al. 2023"})
