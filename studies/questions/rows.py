"""Rows of passages: the one that holds the answer among those that a search ranks highest for the question.

Questions, accepted answers and the passage that holds one are those of Liu et al. 2023 (arXiv 2307.03172; their file
``nq-open-oracle.jsonl.gz``, MIT licence), which come from Natural Questions. Their files with competitors are too large
to ship; competitors here are what BM25 ranks highest among the passages of all the other questions, without those that
hold an accepted answer.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from posbias import errors
from posbias.files import data_folder, digest
from posbias.lookup.answers import contains

FILE = "lost_in_the_middle/nq-open-oracle.jsonl.gz"
"""Below ``POSBIAS_DATA``."""
SHA256 = "6a7f72b846f663a133ef952244e5a4e43f06bcf190afe34e8fbe687ce0d1653e"
INSTRUCTION = (
    "Write a high-quality answer for the given question using only the provided search results "
    "(some of which might be irrelevant)."
)
"""What stands in front of the passages, as published."""


@dataclass(frozen=True)
class Passage:
    """Hold a passage's title and text."""

    title: str
    text: str

    def __str__(self) -> str:
        """Return title and text in one line, which is what the search reads."""
        return f"{self.title} {self.text}"


@dataclass(frozen=True)
class Question:
    """Hold a question, its accepted answers, the passage that holds one of them, and the passages beside it."""

    text: str
    answers: tuple[str, ...]
    passage: Passage
    competitors: tuple[Passage, ...] = ()
    rank: int = 0
    """How many competitors the search ranks above the passage that holds the answer."""

    def at(self, place: int) -> tuple[Passage, ...]:
        """Return the passages with the right one at a place, from 0 on; the others stay in the order of the search."""
        return (*self.competitors[:place], self.passage, *self.competitors[place:])


def read_questions(path: Path | None = None) -> list[Question]:
    """Return the questions of Liu et al.'s file, or raise ValueError where it is not there or another one."""
    file = data_folder() / FILE if path is None else path
    if not file.is_file():
        expected = f"{FILE} of github.com/nelson-liu/lost-in-the-middle below POSBIAS_DATA"
        raise errors.invalid("questions", expected, f"none at {file}")
    if path is None and digest(file) != SHA256:
        raise errors.invalid(str(file), f"the file with the SHA-256 {SHA256[:12]}…", "another one")
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return [_question(json.loads(line)) for line in lines]


def _question(row: dict[str, Any]) -> Question:
    right = next(one for one in row["ctxs"] if one["isgold"])
    return Question(row["question"], tuple(row["answers"]), Passage(right["title"], right["text"]))


def make_rows(questions: Sequence[Question], count: int, places: int, seed: int = 0) -> list[Question]:
    """Return questions that were drawn, each with the competitors that BM25 ranks highest.

    A question is left out if its own passage does not hold an accepted answer, as the metric sees it.
    """
    import bm25s

    passages = list(dict.fromkeys(question.passage for question in questions))
    search = bm25s.BM25()
    search.index(
        bm25s.tokenize([str(one) for one in passages], stopwords="en", show_progress=False),
        show_progress=False,
    )
    order = np.random.default_rng(seed).permutation(len(questions))
    drawn = (questions[k] for k in order)
    chosen = [one for one in drawn if contains(one.passage.text, one.answers)][:count]
    asked = bm25s.tokenize([one.text for one in chosen], stopwords="en", show_progress=False)
    ranked, _ = search.retrieve(asked, corpus=passages, k=len(passages), show_progress=False)
    return [_beside(one, row, places) for one, row in zip(chosen, ranked, strict=True)]


def _beside(question: Question, ranked: Sequence[Passage], places: int) -> Question:
    """Return a question with the best competitors, and how many of them are ranked above its own passage."""
    competitors: list[Passage] = []
    rank = None
    for passage in ranked:
        if passage == question.passage:
            rank = len(competitors)
        elif not contains(str(passage), question.answers):
            competitors.append(passage)
        if len(competitors) == places - 1:
            break
    return replace(question, competitors=tuple(competitors), rank=places - 1 if rank is None else rank)


def write_message(question: Question, passages: Sequence[Passage]) -> str:
    """Return what a user writes: instruction, passages and question as published; without passages the question.

    >>> print(write_message(Question("who?", ("me",), Passage("T", "x")), ()))
    Question: who?
    Answer:
    """
    ask = f"Question: {question.text}\nAnswer:"
    if not passages:
        return ask
    found = [f"Document [{k}](Title: {one.title}) {one.text}" for k, one in enumerate(passages, 1)]
    return "\n\n".join([INSTRUCTION, "\n".join(found), ask])
