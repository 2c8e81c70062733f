"""A prompt as tokens and segments: where in the text each token is, and what belongs together."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Int

from posbias import errors
from posbias.measure.corpus import _without, start_tokens

WIDTH = 36
"""Characters of a segment that a line shows."""


@dataclass(frozen=True)
class Prompt:
    """Hold the tokens of a prompt, the text and the segment of each, and the tokens of an answer."""

    ids: Int[np.ndarray, "n"]
    tokens: tuple[str, ...]
    """What each token stands for in the text, white space included; start tokens by their names."""
    segment: Int[np.ndarray, "n"]
    """From 0 on; -1 for start tokens, which are no part of the text."""
    texts: tuple[str, ...]
    answer: tuple[int, ...] = ()

    def ordered(self, order: Sequence[int] | range | Int[np.ndarray, "S"]) -> Int[np.ndarray, "k"]:
        """Return the positions of the start tokens and of these segments, one segment after another.

        >>> Prompt(np.arange(4), ("",) * 4, np.array([-1, 0, 0, 1]), ("", "")).ordered([1, 0]).tolist()
        [0, 3, 1, 2]
        """
        return np.concatenate([np.flatnonzero(self.segment == k) for k in (-1, *order)])


def check_asked(text: Any, target: str, answer: Any) -> None:
    """Raise ValueError for a prompt or an answer that is no text, before anything is loaded."""
    if not isinstance(text, str) or not text.strip():
        raise errors.invalid("text", "a text", "an empty one" if isinstance(text, str) else type(text).__name__)
    errors.text("text", text)
    if answer is None and target == "next":
        raise errors.invalid("answer", "a text, whose first token is the target next", "none")
    if answer is not None:
        if not isinstance(answer, str) or not answer:
            raise errors.invalid("answer", "a text", repr(answer))
        errors.text("answer", answer)


def tokenise(
    tokenizer: Any, text: Any, segments: str | Sequence[str] | None, answer: str | None, *, special_tokens: bool = True
) -> Prompt:
    """Return the prompt of a text, or raise ValueError where it is one token, or without such segments.

    A token belongs to the segment in which it begins. An answer is cut into tokens after the prompt if that leaves the
    prompt's own tokens as they are, else by itself.
    """
    if not getattr(tokenizer, "is_fast", False):
        expected = "a fast tokenizer, which tells where in a text its tokens stand"
        raise errors.invalid("tokenizer", expected, type(tokenizer).__name__)
    starts = borders(text, segments)
    front = start_tokens(tokenizer) if special_tokens else []
    bare = partial(tokenizer, add_special_tokens=False, verbose=False)
    encoding = bare(text, return_offsets_mapping=True)
    ids = _without(front, encoding["input_ids"])
    if len(ids) < 2:
        raise errors.invalid("text", "2 tokens or more", len(ids))
    first = [start for start, _ in encoding["offset_mapping"][-len(ids) :]]
    segment = np.searchsorted(starts, first, side="right") - 1
    if empty := sorted({*range(len(starts))} - {*segment.tolist()}):
        raise errors.invalid(f"segments: {empty[0]}", "a token or more", repr(text[starts[empty[0]] :][:40]))
    return Prompt(
        np.array([*front, *ids], dtype=np.int64),
        (*(str(tokenizer.decode([token])) for token in front), *_cut(text, [starts[0], *first[1:]])),
        np.concatenate([np.full(len(front), -1), segment]),
        _cut(text, starts),
        () if answer is None else _answer_tokens(bare, text, encoding["input_ids"], answer),
    )


def _cut(text: str, starts: list[int]) -> tuple[str, ...]:
    """Return the parts of a text, up to the next one or the end."""
    return tuple(text[a:b] for a, b in itertools.pairwise([*starts, len(text)]))


def borders(text: str, segments: str | Sequence[str] | None) -> list[int]:
    """Return where segments begin: after each separator, or where texts that occur in order begin and end.

    White space between two segments belongs to the first of them; a text between two that are named is one more.

    >>> borders("a, b, c", ", "), borders("a - b. What?", ["a", "b"]), borders("a b", None)
    ([0, 3, 6], [0, 1, 4, 5], [0])
    """
    marks, at = {0, len(text)}, 0
    if isinstance(segments, str):
        marks |= {match.end() for match in re.finditer(re.escape(segments), text)} if segments else set()
    for k, piece in enumerate(() if segments is None or isinstance(segments, str) else segments):
        if not isinstance(piece, str) or not piece.strip():
            raise errors.invalid(f"segments: {k}", "a text", repr(piece)[:60])
        if (start := text.find(piece, at)) < 0:
            expected = "a text that occurs in the prompt, after the one before"
            raise errors.invalid(f"segments: {k}", expected, repr(piece)[:60])
        at = start + len(piece)
        marks |= {start, at}
    kept = [a for a, b in itertools.pairwise(sorted(marks)) if text[a:b].strip()]
    if segments is not None and len(kept) < 2:
        expected = "a separator, or texts, that leave two parts or more (none for one)"
        raise errors.invalid("segments", expected, repr(segments)[:60])
    return [0, *kept[1:]]


def _answer_tokens(bare: Callable[[str], Any], text: str, ids: list[int], answer: str) -> tuple[int, ...]:
    """Return the tokens of an answer that follows the text."""
    both = bare(text + answer)["input_ids"]
    after = both[len(ids) :] if both[: len(ids)] == ids else bare(answer)["input_ids"]
    if not after:
        raise errors.invalid("answer", "a token or more", repr(answer))
    return tuple(after)


def line(text: str, width: int = WIDTH) -> str:
    """Return the beginning of a text in one line.

    >>> line("What is the capital of the country where she was born?", 12)
    'What is the…'
    """
    words = " ".join(text.split())
    return words if len(words) <= width else words[: width - 1].rstrip() + "…"
