"""Answers to Liu et al.'s questions by the place of the passage that holds the answer.

Claim D-real, set on 2026-11-29 before the first run: among eight passages the middle is lost if both
ends are right more often than the places between them, each with a 95 % interval over questions
above 0 and p at most .05 (:func:`posbias.lookup.scores.judge`); it is not lost if one of the two
differences is at most .1 with its whole interval.

Part ``mixed``, set on 2026-11-30 before its run: the same 100 questions with the seven competitors in an order drawn
at random, the same at each of four places of the right passage, so that no place goes with the strongest competitor.
Each end is ahead of the two places between if the interval over questions of the difference is above 0 and p, by
flipping its signs, at most .05. We expect the last to be ahead, and the first to stay undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import xarray as xr

from posbias.engines import Engine
from posbias.engines.local import LocalEngine
from posbias.files import data_folder
from posbias.lookup.answers import MOST, UNTIL, contains, find_holder, first_line
from posbias.prompts import tokenise
from posbias.settings import Settings
from studies.making import go_on
from studies.questions.asks import in_template
from studies.questions.rows import (
    SHA256,
    Passage,
    Question,
    make_rows,
    read_questions,
    write_message,
)
from studies.summaries import stacked

SAMPLE = 4
"""Questions that are also asked in 32 bits."""
DIMS = ("question", "place")
MEANINGS = {
    "correct": "1 where the answer's first line holds an accepted answer (SQuAD's normalisation), else 0",
    "source": "the passage, from 0 on in the order given, that alone holds the answer's first line, else -1",
    "holding": "how many passages hold the answer's first line",
    "tokens": "tokens of the prompt",
    "written": "tokens of the answer; the longest is cut",
    "rank": "how many competitors BM25 ranks above the passage that holds the answer",
    "same": "of the first questions, 1 where the first line of the answer is that in 32 bits, else 0",
    "correct_32": "of the first questions, 1 where the answer in 32 bits is right, else 0",
}


def measure_places(
    settings: Settings, places: int, at: Sequence[int] | None = None, *, mixed: bool = False
) -> xr.Dataset:
    """Return scores (question, place) with the right passage at each place among BM25's competitors.

    ``mixed``: these stand in an order drawn at random, the same at each place, in place of the search's.
    """
    stands = tuple(range(places)) if at is None else tuple(at)
    rows = make_rows(read_questions(), settings.prompts, places, settings.seed)
    if mixed:
        rows = [mix_competitors(row, k) for k, row in enumerate(rows)]

    def prompts(question: Question) -> list[tuple[Passage, ...]]:
        return [question.at(place) for place in stands]

    name = f"questions-held-{places}-{len(stands)}"
    data = _measure(settings, rows, prompts, f"{name}-mixed" if mixed else name)
    data["rank"] = (
        "question",
        np.array([row.rank for row in rows], dtype=np.int16),
        {"long_name": MEANINGS["rank"]},
    )
    return data.assign_coords(place=list(stands))


def mix_competitors(question: Question, seed: int) -> Question:
    """Return a question whose competitors stand in an order drawn at random."""
    order = np.random.default_rng(seed).permutation(len(question.competitors))
    return replace(question, competitors=tuple(question.competitors[k] for k in order))


def measure_floors(settings: Settings) -> xr.Dataset:
    """Return scores (question, place) of the same questions without a passage, and with the right one alone."""
    rows = make_rows(read_questions(), settings.prompts, 2, settings.seed)

    def prompts(question: Question) -> list[tuple[Passage, ...]]:
        return [(), (question.passage,)]

    return (
        _measure(settings, rows, prompts, "questions-floors")
        .rename(place="given")
        .assign_coords(given=["none", "right"])
    )


def _measure(
    settings: Settings,
    rows: Sequence[Question],
    prompts: Callable[[Question], Sequence[tuple[Passage, ...]]],
    name: str,
) -> xr.Dataset:
    """Return the scores of all prompts of all questions, asked in 16 bits, and some of them also in 32."""
    found = _ask(settings, rows, prompts, name, torch.bfloat16)
    sample = _ask(settings, rows[:SAMPLE], prompts, name, torch.float32)
    arrays = {}
    for key in ("correct", "source", "holding", "tokens", "written"):
        arrays[key] = (DIMS, found[key].astype(np.int16), {"long_name": MEANINGS[key]})
    same = found["line"][: len(sample["line"])] == sample["line"]
    for key, values in (("same", same), ("correct_32", sample["correct"])):
        arrays[key] = (("sample", "place"), values.astype(np.int16), {"long_name": MEANINGS[key]})
    about = {
        "model": settings.source.name(),
        "revision": settings.source.version(),
        "dataset": "nq-open-oracle, Liu et al. 2023",
        "sha256": SHA256,
        "prompts": len(rows),
        "length": settings.length,
        "seed": settings.seed,
        "dtype": "bfloat16",
    }
    return xr.Dataset(arrays, attrs=about)


def _ask(
    settings: Settings,
    rows: Sequence[Question],
    prompts: Callable[[Question], Sequence[tuple[Passage, ...]]],
    name: str,
    dtype: torch.dtype,
) -> dict[str, np.ndarray]:
    """Return scores and first lines of all prompts; what an earlier run left is not asked again."""
    source = settings.source
    tokenizer = source.load_tokenizer()
    engine = LocalEngine(source.load_model(dtype, "cpu", None, "sdpa"), tokenizer)

    def read(k: int) -> Mapping[str, np.ndarray]:
        return _answer(engine, tokenizer, rows[k], prompts(rows[k]))

    kind = f"{dtype}".removeprefix("torch.")
    path = data_folder() / "unfinished" / f"{name}-{kind}-{source.version()[-16:]}.npz"
    return go_on(len(rows), read, path, "questions")


def _answer(
    engine: Engine,
    tokenizer: Any,
    question: Question,
    prompts: Sequence[Sequence[Passage]],
) -> dict[str, np.ndarray]:
    """Return by name the scores of the answers to one question, and their first lines."""
    asked = []
    for passages in prompts:
        text, plain = in_template(tokenizer, write_message(question, passages))
        asked.append(tokenise(tokenizer, text, (), start=True if plain else None))
    rows = []
    for prompt, passages, found in zip(asked, prompts, engine.generate(asked, MOST, UNTIL), strict=True):
        line = first_line(found.text)
        rows.append({
            "correct": int(contains(line, question.answers)),
            "source": find_holder(line, [one.text for one in passages]),
            "holding": sum(find_holder(line, [one.text]) == 0 for one in passages),
            "tokens": len(prompt.ids), "written": len(found.ids), "line": line,
        })  # fmt: skip
    return stacked(rows)
