"""A prompt as tokens and segments: where in the text each token is, and what belongs together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from posbias import errors
from posbias.measure.corpus import Vocabulary, _without, start_tokens

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

    @property
    def own(self) -> Int[np.ndarray, "m"]:
        """Positions of the text's own tokens."""
        return np.flatnonzero(self.segment >= 0)

    def ordered(self, order: Sequence[int] | Int[np.ndarray, "S"]) -> Int[np.ndarray, "k"]:
        """Return the positions of the start tokens and of these segments, one segment after another.

        >>> Prompt(np.arange(4), ("",) * 4, np.array([-1, 0, 0, 1]), ("", "")).ordered([1, 0]).tolist()
        [0, 3, 1, 2]
        """
        return np.concatenate([np.flatnonzero(self.segment == k) for k in (-1, *order)])


def tokenised(
    tokenizer: Any, text: Any, segments: str | Sequence[str] | None, answer: str | None, *, special_tokens: bool = True
) -> Prompt:
    """Return the prompt of a text, or raise ValueError where it is empty, one token, or without such segments.

    A token belongs to the segment in which it begins. An answer is cut into tokens after the prompt if that leaves the
    prompt's own tokens as they are, else by itself.
    """
    if not isinstance(text, str) or not text.strip():
        raise errors.invalid("text", "a text", "an empty one" if isinstance(text, str) else type(text).__name__)
    errors.text("text", text)
    if isinstance(tokenizer, Vocabulary):
        raise errors.invalid("tokenizer", "one, for a prompt that is a text", "none")
    if not getattr(tokenizer, "is_fast", False):
        wanted = "a fast tokenizer, which tells where in a text its tokens stand"
        raise errors.invalid("tokenizer", wanted, type(tokenizer).__name__)
    starts = borders(text, segments)
    front = start_tokens(tokenizer) if special_tokens else []
    options = {"add_special_tokens": False, "verbose": False}
    found = tokenizer(text, return_offsets_mapping=True, **options)
    ids = _without(front, found["input_ids"])
    if len(ids) < 2:
        raise errors.invalid("text", "2 tokens or more", len(ids))
    first = np.array([start for start, _ in found["offset_mapping"][-len(ids) :]])
    segment = np.searchsorted(starts, first, side="right") - 1
    if empty := sorted({*range(len(starts))} - {*segment.tolist()}):
        raise errors.invalid(f"segments: {empty[0]}", "a token or more", repr(text[starts[empty[0]] :][:40]))
    stops = [*first[1:].tolist(), len(text)]
    words = [text[a:b] for a, b in zip([starts[0], *first[1:].tolist()], stops, strict=True)]
    return Prompt(
        np.array([*front, *ids], dtype=np.int64),
        (*(str(tokenizer.decode([token])) for token in front), *words),
        np.concatenate([np.full(len(front), -1), segment]),
        tuple(text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=True)),
        () if answer is None else _answer_tokens(tokenizer, text, found["input_ids"], answer, options),
    )


def borders(text: str, segments: str | Sequence[str] | None) -> list[int]:
    """Return where segments begin: after each separator, or where texts that occur in order begin and end.

    White space between two segments belongs to the first of them; a text between two that are named is one more.

    >>> borders("a, b, c", ", "), borders("a - b. What?", ["a", "b"]), borders("a b", None)
    ([0, 3, 6], [0, 1, 4, 5], [0])
    """
    found = {0}
    if isinstance(segments, str):
        at = 0
        while segments and (at := text.find(segments, at)) >= 0:
            at += len(segments)
            found.add(at)
    elif segments is not None:
        at = 0
        for k, piece in enumerate(segments):
            if not isinstance(piece, str) or not piece.strip():
                raise errors.invalid(f"segments: {k}", "a text", repr(piece)[:60])
            if (start := text.find(piece, at)) < 0:
                wanted = "a text that occurs in the prompt, after the one before"
                raise errors.invalid(f"segments: {k}", wanted, repr(piece)[:60])
            at = start + len(piece)
            found |= {start, at}
    ends = sorted(found | {len(text)})
    kept = [a for a, b in zip(ends, ends[1:], strict=False) if text[a:b].strip()]
    if segments is not None and len(kept) < 2:
        wanted = "a separator, or texts, that leave two parts or more (none for one)"
        raise errors.invalid("segments", wanted, repr(segments)[:60])
    return [0, *kept[1:]]


def _answer_tokens(tokenizer: Any, text: str, ids: list[int], answer: str, options: dict[str, Any]) -> tuple[int, ...]:
    """Return the tokens of an answer that follows the text."""
    if not isinstance(answer, str) or not answer:
        raise errors.invalid("answer", "a text", repr(answer))
    errors.text("answer", answer)
    both = tokenizer(text + answer, **options)["input_ids"]
    found = both[len(ids) :] if both[: len(ids)] == ids else tokenizer(answer, **options)["input_ids"]
    if not found:
        raise errors.invalid("answer", "a token or more", repr(answer))
    return tuple(found)


def line(text: str, width: int = WIDTH) -> str:
    """Return the beginning of a text in one line.

    >>> line("What is the capital of the country where she was born?", 12)
    'What is the…'
    """
    words = " ".join(text.split())
    return words if len(words) <= width else words[: width - 1].rstrip() + "…"
