"""Which documents an answer's words name: all of its new names and numbers, or a search for its words."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

WORD = re.compile(r"\w+")
PIECE, SENTENCE = re.compile(r"[,;:()\"“”]"), re.compile(r"(?<!\b[A-Z])[.!?](?=\s|$)")
"""Where a name ends even if another follows, and where a sentence does, after which any word has a capital."""
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3})")


def search_scores(line: str, passages: Sequence[str]) -> np.ndarray:
    """Return BM25's score of each passage for the words of an answer's line, among these passages alone.

    >>> search_scores("It was built by Eiffel.", ["A bridge in Rome", "Eiffel has built a tower"]).argmax()
    np.int64(1)
    """
    import bm25s

    search = bm25s.BM25()
    search.index(bm25s.tokenize(list(passages), stopwords="en", show_progress=False), show_progress=False)
    words = bm25s.tokenize([line], stopwords="en", show_progress=False, return_ids=False)[0]
    return np.asarray(search.get_scores(words) if words else np.zeros(len(passages)))


def new_names(line: str, question: str) -> list[str]:
    """Return names and numbers that an answer's line adds to its question: runs of words with a capital or a digit.

    The first word counts if it is part of such a run or has a digit: every line begins with a capital.

    >>> new_names("The tower was built by Gustave Eiffel in 1889.", "who built the tower in Paris?")
    ['Gustave Eiffel', '1889']
    """
    known = set(WORD.findall(question.lower()))
    words = WORD.findall(line)
    runs: list[list[str]] = [[]]
    for k, word in enumerate(words):
        capital = word[0].isupper() and (k > 0 or words[1:2] and words[1][0].isupper())
        if (capital or any(map(str.isdigit, word))) and word.lower() not in known:
            runs[-1].append(word)
        elif runs[-1]:
            runs.append([])
    return [" ".join(run) for run in runs if run]


def holds_all(names: Sequence[str], passage: str) -> bool:
    """Say whether a passage holds all names as whole words, whatever their capitals; no names are held by none."""
    text = f" {' '.join(WORD.findall(passage)).lower()} "
    return bool(names) and all(f" {name.lower()} " in text for name in names)


def names_apart(line: str, question: str) -> list[str]:
    """Return names and numbers as :func:`new_names`, but none across punctuation, and each sentence has a first word.

    >>> names_apart("John, Paul and Ringo. However, it was in 1,965.", "who?")
    ['Paul', 'Ringo', '1965']
    """
    found = []
    for sentence in SENTENCE.split(THOUSANDS.sub("", line)):
        first, *others = PIECE.split(sentence)
        found += new_names(first, question)
        found += [name for piece in others for name in new_names(f"so {piece}", question)]
    return found


def holds_apart(names: Sequence[str], passage: str) -> bool:
    """Say whether a passage holds all of these names, with numbers written either way."""
    return holds_all(names, THOUSANDS.sub("", passage))
