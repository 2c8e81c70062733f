"""What a user gives to be explained, as one prompt with segments; how segments and their texts are called."""

import itertools
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from posbias import errors
from posbias.conditions import ChangedRun
from posbias.lookup.contexts import read_row, retrieved
from posbias.measure.corpus import is_conversation, text_of
from posbias.prompts import Ask, Prompt, cut, tokenise, use_template, write_prompt

WIDTH = 36
"""Characters of a segment that a line shows."""
HEADING = re.compile(r"\W*((?:document|passage|source|section|chunk|chapter|part)\W{0,2}\d+)\b|#+ *([^\n]+)", re.I)
"""How a segment names itself: a noun with a number, or a line of markdown."""


def check_asked(text: Any, answer: Any) -> None:
    """Raise ValueError for a prompt or an answer that is none, before anything is loaded."""
    if isinstance(text, Mapping):
        read_ask(text, answer)
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


def write(
    tokenizer: Any,
    text: Any,
    answer: str | None,
    special_tokens: bool = True,
    condition: ChangedRun | None = None,
) -> Prompt:
    """Return the prompt of a text, of messages or of documents with a question, which are written as lookup does.

    A condition changes what is asked of documents.

    ValueError is raised where it is one token; an answer is cut into tokens after the prompt
    if that leaves the prompt's own tokens as they are, else by itself.
    """
    if not getattr(tokenizer, "is_fast", False):
        expected = "a fast tokenizer, which tells where in a text its tokens stand"
        raise errors.invalid("tokenizer", expected, type(tokenizer).__name__)
    if isinstance(text, Mapping):
        ask = (condition or ChangedRun()).rewrite(read_ask(text, answer))
        prompt = write_prompt(tokenizer, "documents", ask, use_template(tokenizer, None), special_tokens)
        if not prompt.spans:
            raise errors.invalid("segments", "documents that the chat template leaves as they are", "others")
    elif condition is not None and condition.changes != "model":
        raise errors.invalid("condition", "one that changes the model, for a prompt without documents", "another")
    else:
        text = text if isinstance(text, str) else text_of(tokenizer, text, "messages")
        marks = [(at, "segment") for at in borders(text)]
        prompt = tokenise(tokenizer, text, marks, answer, start=special_tokens)
    if (count := int((prompt.segment >= 0).sum())) < 2:
        raise errors.invalid("text", "2 tokens or more", count)
    for k, (span, part) in enumerate(zip(prompt.segments, prompt.texts, strict=True)):
        if span.start == span.stop:
            raise errors.invalid(f"segments: {k}", "a token or more", repr(part)[:40])
    return prompt


def read_ask(row: Mapping[str, Any], answer: str | None) -> Ask:
    """Return what a row with documents and a question asks, the documents in their own order."""
    row = {**row, "answer": row.get("answer") or answer}
    row |= retrieved("prompt: ctxs", row.pop("ctxs")) if row.get("ctxs") is not None else {}
    found = read_row("prompt", {"gold": 0, **row})
    if "gold" not in row and sum(found.answer in text for text in found.documents) > 1:
        expected = "one that stands in one document, for deleting one of two changes little; or gold beside it"
        raise errors.invalid("prompt: answer", expected, f"{found.answer!r} in several")
    documents = tuple(found.documents[k] for k in np.argsort(found.scores)[::-1])  # scores say where each was
    return Ask(documents, found.question, found.answer, found.begin)


def token_texts(tokenizer: Any, prompt: Prompt) -> tuple[str, ...]:
    """Return what each token stands for in the text, white space included; start tokens by their names."""
    front = [k for k, at in enumerate(prompt.offsets) if at < 0]
    names = (str(tokenizer.decode([prompt.ids[k]])) for k in front)
    return (*names, *cut(prompt.text, [0, *prompt.offsets[len(front) + 1 :]]))


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


def borders(text: str) -> list[int]:
    r"""Return where the segments of a text begin: behind blank lines; one without words belongs to the one before.

    >>> borders("a\n\nb\n\n\n\nc"), borders("a b")
    ([0, 3, 8], [0])
    """
    marks = [0, *(match.end() for match in re.finditer("\n\n", text)), len(text)]
    kept = [a for a, b in itertools.pairwise(marks) if text[a:b].strip()]
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
