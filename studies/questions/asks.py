"""Liu et al.'s questions in the form that remedies change, and as the prompts that were published."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from posbias.prompts import Ask, Mark, Prompt, apply_template, tokenise
from studies.questions.rows import INSTRUCTION, Question

LABEL = "Document [{k}]"
"""What stands in front of a passage, as published."""


def as_ask(question: Question, place: int) -> Ask:
    """Return what is asked with the right passage at a place; a score is higher the earlier the search has it.

    >>> from studies.questions.rows import Passage
    >>> others = (Passage("B", "b"), Passage("C", "c"))
    >>> found = as_ask(Question("who?", ("me",), Passage("A", "me"), others, rank=1), place=2)
    >>> found.documents, found.scores
    (('(Title: B) b', '(Title: C) c', '(Title: A) me'), (0, -2, -1))
    """
    passages = question.at(place)
    ranked = question.at(question.rank)
    documents = tuple(f"(Title: {one.title}) {one.text}" for one in passages)
    scores = tuple(-ranked.index(one) for one in passages)
    first, accepted = question.answers[0], question.answers
    return Ask(documents, question.text, first, scores=scores, label=LABEL, answers=accepted)


def pieces(ask: Ask) -> Iterator[tuple[str, str]]:
    """Yield the parts of a message as published, in the order that a condition gives them."""
    n, gap = len(ask.documents), ""
    for number, block in enumerate(ask.layout, 1):
        if block == "question":
            end = "\nAnswer:" if number == len(ask.layout) else ""
            yield "question", f"{gap}Question: {ask.question}{end}"
        elif block == "instruction":
            yield "instruction", f"{gap}{INSTRUCTION}\n\n"
        else:
            for k, text in enumerate(ask.documents, 1):
                between = "" if k == n else "\n"
                yield "document", f"{ask.label.format(k=k, n=n)}{text}{between}"
        gap = "" if block == "instruction" else "\n\n"


def in_template(tokenizer: Any, message: str) -> tuple[str, bool]:
    """Return a message in the chat template, or as plain text of a tokenizer without one; and whether it is plain."""
    plain = getattr(tokenizer, "chat_template", None) is None
    return message if plain else apply_template(tokenizer, message), plain


def write_ask(tokenizer: Any, ask: Ask) -> Prompt:
    """Return a prompt that knows where its passages are, with its answer."""
    parts = list(pieces(ask))
    message = "".join(text for _, text in parts)
    text, plain = in_template(tokenizer, message)
    marks: list[Mark] = []
    at = text.index(message)
    for part, written in parts:
        marks.append((at if marks else 0, part))
        at += len(written)
    if ask.begin:
        text += "\n\n" if plain else ""
        marks.append((len(text), "begin"))
    answer = f" {ask.answer}" if ask.begin or plain else ask.answer
    return tokenise(tokenizer, text + ask.begin, marks, answer, start=True if plain else None)
