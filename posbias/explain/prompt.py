"""A prompt as tokens and segments: where in the text each token is, and what belongs together."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from posbias import errors
from posbias.lookup.contexts import Ask, read_row
from posbias.lookup.prompts import answer_tokens, use_template, write_prompt, write_question
from posbias.measure.corpus import is_conversation, start_tokens, text_of, without_start

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


HEADING = re.compile(r"\W*((?:document|passage|source|section|chunk|chapter|part)\W{0,2}\d+)\b|#+ *([^\n]+)", re.I)
"""How a segment names itself: a noun with a number, or a line of markdown."""


def check_asked(text: Any, answer: Any) -> None:
    """Raise ValueError for a prompt or an answer that is none, before anything is loaded."""
    if isinstance(text, Mapping):
        read_row("prompt", {"answer": answer, "gold": 0, **text})
    elif is_conversation(text):
        if text[-1]["role"] == "assistant":
            raise errors.invalid("messages", "a last one that is to be answered", "one of the assistant")
    elif not isinstance(text, str) or not text.strip():
        expected = "a text, messages with a role and a content, or documents with a question and an answer"
        received = "an empty one" if isinstance(text, str) else type(text).__name__
        raise errors.invalid("text", expected, received)
    else:
        errors.text("text", text)
    if answer is not None:
        if not isinstance(answer, str) or not answer:
            raise errors.invalid("answer", "a text", repr(answer))
        errors.text("answer", answer)


def written(
    tokenizer: Any, text: Any, segments: str | Sequence[str] | None, answer: str | None
) -> tuple[str, str | Sequence[str] | None, str | None]:
    """Return text, segments and answer of a prompt: of messages what the chat template makes of them.

    Documents with a question are written as :meth:`~posbias.measure.model.Model.lookup` writes them, each a segment.
    """
    if isinstance(text, Mapping):
        begin = str(text.get("begin") or "")
        ask = Ask(tuple(x.strip() for x in text["documents"]), text["question"], "", begin)
        whole = write_prompt(tokenizer, write_question("documents", ask), begin, use_template(tokenizer, None))
        parts = [f"Document {k}: {x}" for k, x in enumerate(ask.documents, 1)]
        answer = str(text.get("answer") or answer)
        if "gold" not in text and sum(answer.strip() in x for x in ask.documents) > 1:
            expected = "one that stands in one document, for deleting one of two changes little; or gold beside it"
            raise errors.invalid("prompt: answer", expected, f"{answer.strip()!r} in several")
        return whole, parts, answer if use_template(tokenizer, None) and not begin else f" {answer}"
    return (text if isinstance(text, str) else text_of(tokenizer, text, "messages")), segments, answer


def label(text: str, number: int) -> str:
    r"""Return what a segment calls itself, else its number.

    >>> label("Document 3: It is a bridge.", 5), label("## Costs\nHigh.", 2), label("It is.", 4)
    ('Document 3', 'Costs', 'segment 4')
    """
    found = HEADING.match(text.lstrip())
    return line(found[1] or found[2]) if found else f"segment {number}"


def without_label(text: str, own: str) -> str:
    """Return a segment's text behind the label that it begins with."""
    return text.lstrip("# ").removeprefix(own).lstrip(":. ") if own in text else text


def tokenise(
    tokenizer: Any, text: Any, segments: str | Sequence[str] | None, answer: str | None, *, start: bool | None = True
) -> Prompt:
    """Return the prompt of a text, or raise ValueError where it is one token, or without such segments.

    A token belongs to the segment in which it begins. An answer is cut into tokens after the prompt if that leaves the
    prompt's own tokens as they are, else by itself. With ``start`` None start tokens are those that the text has.
    """
    if not getattr(tokenizer, "is_fast", False):
        expected = "a fast tokenizer, which tells where in a text its tokens stand"
        raise errors.invalid("tokenizer", expected, type(tokenizer).__name__)
    starts = borders(text, segments)
    front = [] if start is False else start_tokens(tokenizer)
    bare = partial(tokenizer, add_special_tokens=False, verbose=False)
    encoding = bare(text, return_offsets_mapping=True)
    ids = without_start(front, encoding["input_ids"])
    front = front if start or len(ids) < len(encoding["input_ids"]) else []
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
        () if answer is None else answer_tokens(bare, text, encoding["input_ids"], answer),
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


def by_segment(values: Float[np.ndarray, "*B n"], segment: Int[np.ndarray, "n"]) -> Float[np.ndarray, "*B S"]:
    """Return the sum over each segment's tokens; start tokens, of segment -1, are in none.

    >>> by_segment(np.array([0.5, 0.25, 0.125, 0.125]), np.array([-1, 0, 1, 0])).tolist()
    [0.375, 0.125]
    """
    return np.asarray(values @ (segment[:, None] == np.arange(segment.max() + 1)))


def line(text: str, width: int = WIDTH) -> str:
    """Return the beginning of a text in one line.

    >>> line("What is the capital of the country where she was born?", 12)
    'What is the…'
    """
    words = " ".join(text.split())
    return words if len(words) <= width else words[: width - 1].rstrip() + "…"
