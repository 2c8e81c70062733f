"""Liu et al.'s questions: where heads that were chosen on invented facts point, and what the passage alone gives.

Prompts and metric are those of :mod:`studies.questions`: eight passages, the right one among BM25's best others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from posbias.conditions.each.sharper import read_heads
from posbias.heads import attended, point
from posbias.lookup.answers import contains
from posbias.prompts import Prompt, apply_template, tokenise
from posbias.settings import Settings
from studies.making import go_on
from studies.questions.rows import (
    Passage,
    Question,
    make_rows,
    read_questions,
    write_message,
)
from studies.remedies.engine import SetEngine
from studies.remedies.measure import BEST, Row, open_engine, provenance, unfinished

PLACES, AT, MOST = 8, (0, 3, 5, 7), 40
"""Passages, places of the right one, and tokens of an answer, of which the first line counts."""
MEANINGS = {
    "as_is": "1 where the answer to all passages holds an accepted answer",
    "alone": "the same with the passage alone that the three best heads point at",
    "oracle": "the same with the right passage alone",
    "heads": "the passage, from 0, that the three best heads point at",
    "all_heads": "the passage that a mean over all heads points at",
    "rank": "how many competitors BM25 ranks above the right passage",
}


def write(engine: SetEngine, question: Question, passages: Sequence[Passage]) -> Prompt:
    """Return a prompt as published, in the chat template, that knows where its passages are."""
    message = write_message(question, passages)
    text = apply_template(engine.tokenizer, message)
    marks, at = [(0, "instruction")], 0
    for one in passages:
        at = text.index("Document [", text.index(one.text, at) - len(one.title) - 30)
        marks.append((at, "document"))
        at = text.index(one.text, at) + len(one.text)
    marks.append((text.index("\n\nQuestion: ", at) + 2, "question"))
    return tokenise(engine.tokenizer, text, marks, start=None)


def measure_questions(settings: Settings) -> xr.Dataset:
    """Return scores (question, place) as is and with one passage alone, and where heads point."""
    engine, heads = open_engine(settings), read_heads(BEST)
    rows = make_rows(read_questions(), settings.prompts, PLACES, settings.seed)

    def answer(question: Question, prompts: Sequence[Prompt]) -> list[int]:
        found = []
        for one in engine.generate(prompts, MOST, "\n"):
            line = one.text.strip().split("\n")[0]
            found.append(int(contains(line, question.answers)))
        return found

    def read(k: int) -> Row:
        engine.forget()
        question = rows[k]
        lists = [question.at(place) for place in AT]
        prompts = [write(engine, question, passages) for passages in lists]
        shares = [attended(engine.reader, prompt) for prompt in prompts]
        pointed = [int(point(x, heads).argmax()) for x in shares]
        fetched = [passages[j] for passages, j in zip(lists, pointed, strict=True)]
        alone = [write(engine, question, [one]) for one in (*fetched, question.passage)]
        told = answer(question, alone)
        found = {
            "as_is": answer(question, prompts),
            "alone": told[:-1],
            "oracle": told[-1:] * len(AT),
            "heads": pointed,
            "all_heads": [int(x.mean((0, 1)).argmax()) for x in shares],
            "rank": question.rank,
        }
        return {name: np.array(x, dtype=np.int16) for name, x in found.items()}

    found = go_on(len(rows), read, unfinished(settings, "questions"), "questions")
    arrays = {}
    for name, x in found.items():
        arrays[name] = (("question", "place")[: x.ndim], x, {"long_name": MEANINGS[name]})
    about = provenance(settings) | {"dataset": "nq-open-oracle, Liu et al. 2023", "best": BEST}
    return xr.Dataset(arrays, {"place": list(AT)}, about)
