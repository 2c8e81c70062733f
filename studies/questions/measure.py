"""Answers to Liu et al.'s questions by the place of the passage that holds the answer.

Claim D-real, set on 2026-11-29 before the first run: among eight passages the middle is lost if both
ends are right more often than the places between them, each with a 95 % interval over questions
above 0 and p at most .05 (:func:`posbias.lookup.scores.judge`); it is not lost if one of the two
differences is at most .1 with its whole interval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr

from posbias.engines.local import Reader
from posbias.files import data_folder
from posbias.settings import Settings
from studies.making import go_on
from studies.questions.rows import (
    SHA256,
    Passage,
    Question,
    holds,
    make_rows,
    normalise,
    read_questions,
    write_message,
)

MOST = 100
"""Tokens of an answer, at most, as published."""
DIMS = ("question", "place")
MEANINGS = {
    "correct": "1 where the answer's first line holds an accepted answer (SQuAD's normalisation), else 0",
    "source": "the passage, from 0 on in the order given, that alone holds the answer's first line, else -1",
    "tokens": "tokens of the prompt",
    "written": "tokens of the answer; the longest is cut",
    "rank": "how many competitors BM25 ranks above the passage that holds the answer",
}


def measure_places(settings: Settings, places: int, at: Sequence[int] | None = None) -> xr.Dataset:
    """Return scores (question, place) with the right passage at each place among BM25's competitors."""
    stands = tuple(range(places)) if at is None else tuple(at)
    rows = make_rows(read_questions(), settings.prompts, places, settings.seed)

    def prompts(question: Question) -> list[tuple[Passage, ...]]:
        return [question.at(place) for place in stands]

    data = _measure(settings, rows, prompts, f"questions-{places}-{len(stands)}")
    data["rank"] = (
        "question",
        np.array([row.rank for row in rows], dtype=np.int16),
        {"long_name": MEANINGS["rank"]},
    )
    return data.assign_coords(place=list(stands))


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
    """Return the scores of all prompts of all questions; what an earlier run left is not asked again."""
    source = settings.source
    tokenizer = source.load_tokenizer()
    reader = Reader(source.load_model(torch.float32, "cpu", None, "sdpa"))
    ends = {tokenizer.eos_token_id, *tokenizer.all_special_ids}

    def read(k: int) -> Mapping[str, np.ndarray]:
        asked = []
        for passages in reversed(prompts(rows[k])):  # the first ones are common to two neighbours
            asked.append(_answer(reader, tokenizer, ends, rows[k], passages))
        return _columns(asked[::-1])

    path = data_folder() / "unfinished" / f"{name}-{source.version()[-16:]}.npz"
    found = go_on(len(rows), read, path, "questions")
    arrays = {
        key: (DIMS, found[key].astype(np.int16), {"long_name": MEANINGS[key]}) for key in found
    }
    about = {
        "model": source.name(),
        "revision": source.version(),
        "dataset": "nq-open-oracle, Liu et al. 2023",
        "sha256": SHA256,
        "prompts": len(rows),
        "length": settings.length,
        "seed": settings.seed,
        "dtype": "float32",
    }
    return xr.Dataset(arrays, attrs=about)


def _columns(rows: Sequence[Mapping[str, int]]) -> dict[str, np.ndarray]:
    """Return the numbers of rows by name."""
    found = {}
    for name in rows[0]:
        found[name] = np.array([row[name] for row in rows])
    return found


def _answer(
    reader: Reader, tokenizer: Any, ends: set[int], question: Question, passages: Sequence[Passage]
) -> dict[str, int]:
    """Return the scores of one prompt's answer, which is the model's likeliest token each time."""
    message = [{"role": "user", "content": write_message(question, passages)}]
    text = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    tokens = reader.greedy(
        ids, MOST, lambda some, token: token in ends or _has_line(tokenizer, some)
    )
    line = tokenizer.decode(tokens).strip().split("\n")[0].strip()
    where = [
        k
        for k, one in enumerate(passages)
        if normalise(line) and normalise(line) in normalise(one.text)
    ]
    return {
        "correct": int(holds(line, question.answers)),
        "source": where[0] if len(where) == 1 else -1,
        "tokens": len(ids),
        "written": len(tokens),
    }


def _has_line(tokenizer: Any, tokens: Sequence[int]) -> bool:
    """Tell whether a first line with words has ended: what follows is not scored."""
    return bool(tokens) and "\n" in tokenizer.decode(tokens).strip(" ").lstrip("\n")
