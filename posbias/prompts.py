"""One prompt for everything that asks a model: its text, its tokens, and the spans of its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Int

from posbias import errors
from posbias.measure.corpus import start_tokens, without_start

INSTRUCTIONS = {
    "documents": "Answer the question from these documents.",
    "kv": "Answer the question from this JSON object.",
}
"""What stands in front of the documents of each task."""
LAYOUT = ("instruction", "documents", "question")
"""The blocks of a message in their order, unless a condition writes them in another one."""
LABEL = "Document {k}: "
"""What stands in front of document ``k`` of ``n``."""

Mark = tuple[int, str]
"""Where in a text a part begins, and what part it is."""


@dataclass(frozen=True)
class Ask:
    """Hold the parts of a prompt: documents, a question, its answer, and the first words of that, which are given.

    ``scores`` are numbers by which documents can be put in order, as many as there are documents, or none. ``layout``
    says which blocks a message has in which order, and ``label`` what stands in front of a document.
    """

    documents: tuple[str, ...]
    question: str
    answer: str
    begin: str = ""
    scores: tuple[float, ...] = ()
    layout: tuple[str, ...] = LAYOUT
    label: str = LABEL
    answers: tuple[str, ...] = ()
    """All that are accepted, where there are several."""

    @property
    def accepted(self) -> tuple[str, ...]:
        """What counts as an answer."""
        return self.answers or (self.answer,)

    def with_documents(self, order: Sequence[int]) -> Ask:
        """Return the same question with some of the documents, in an order.

        >>> Ask(("a", "b", "c"), "which?", "a", scores=(1, 2, 3)).with_documents([2, 0]).scores
        (3, 1)
        """
        scores = tuple(self.scores[k] for k in order) if self.scores else ()
        return replace(self, documents=tuple(self.documents[k] for k in order), scores=scores)


@dataclass(frozen=True)
class Span:
    """Name the tokens of one part of a prompt, from ``start`` up to ``stop``."""

    part: str
    """``start`` (start tokens), ``instruction``, ``document``, ``question``, ``begin``, or ``segment`` of a text whose
    parts have no names."""
    start: int
    stop: int
    at: int = 0
    """Where in the text it begins."""


@dataclass(frozen=True)
class Prompt:
    """Hold a prompt and its answer as text and as tokens, and where its parts are.

    Parameters
    ----------
    text, answer
        What the model is given, without start tokens, and what is scored behind it.
    ids, answer_ids
        The tokens of both, start tokens included.
    spans
        Its parts in order: each token is in one of them, the one in which it begins. None are known of a tokenizer that
        does not say where in a text its tokens stand, or whose template rewrites the message.
    offsets
        Where in the text each token begins, -1 for start tokens; known where spans are.
    message
        What a user wrote, before the chat template was applied; empty where none was.
    """

    text: str
    answer: str
    ids: tuple[int, ...]
    answer_ids: tuple[int, ...] = ()
    spans: tuple[Span, ...] = ()
    offsets: tuple[int, ...] = ()
    message: str = ""

    def of(self, part: str) -> tuple[Span, ...]:
        """Return the spans of one kind of part."""
        return tuple(span for span in self.spans if span.part == part)

    @cached_property
    def segments(self) -> tuple[Span, ...]:
        """The parts without start tokens; the beginning of the answer belongs to what stands before it."""
        found: list[Span] = []
        for span in self.spans:
            if span.part == "begin" and found:
                found[-1] = replace(found[-1], stop=span.stop)
            elif span.part != "start":
                found.append(span)
        return tuple(found)

    @cached_property
    def segment(self) -> Int[np.ndarray, "n"]:
        """The number of the segment that each token belongs to, from 0 on; -1 for start tokens."""
        found = np.full(len(self.ids), -1)
        for k, span in enumerate(self.segments):
            found[span.start : span.stop] = k
        return found

    @property
    def texts(self) -> tuple[str, ...]:
        """The text of each segment."""
        return cut(self.text, [span.at for span in self.segments])

    def without(self, segment: int) -> Prompt:
        """Return the prompt without one of its segments, as text and as tokens, with the spans of what is left."""
        gone, letters = self.segments[segment], len(self.texts[segment])
        text = "".join(part for k, part in enumerate(self.texts) if k != segment)
        spans = [span for span in self.spans if span.stop <= gone.start]
        for span in self.spans:
            if span.start >= gone.stop:
                start, stop = (x - (gone.stop - gone.start) for x in (span.start, span.stop))
                spans.append(replace(span, start=start, stop=stop, at=span.at - letters))
        ids = self.ids[: gone.start] + self.ids[gone.stop :]
        return Prompt(text, self.answer, ids, self.answer_ids, tuple(spans))


def use_template(tokenizer: Any, form: str | None) -> bool:
    """Return whether prompts go through the chat template, or raise ValueError if it is asked for and not there."""
    there = bool(getattr(tokenizer, "chat_template", None))
    if form == "template" and not there:
        raise errors.invalid("form", "plain for a tokenizer without a chat template", form)
    return there and form != "plain"


def pieces(task: str, ask: Ask) -> Iterator[tuple[str, str]]:
    """Yield the parts of what a user would write, each with its text; one after another they are the message.

    White space in front of a document belongs to what stands before it, any other to what stands behind it.

    >>> print("|".join(text for _, text in pieces("documents", Ask(("It is 3.",), "What is it?", "3"))))
    Answer the question from these documents.
    <BLANKLINE>
    |Document 1: It is 3.|
    <BLANKLINE>
    Question: What is it?
    """
    n, gap = len(ask.documents), ""
    for block in ask.layout if n else ["question"]:
        if block == "question":
            yield "question", f"{gap}Question: {ask.question}"
        elif block == "instruction":
            yield "instruction", f"{gap}{INSTRUCTIONS[task]}\n\n" + ("{" if task == "kv" else "")
        else:
            for k, text in enumerate(ask.documents, 1):
                between = "" if k == n else ",\n " if task == "kv" else "\n\n"
                label = "" if task == "kv" else ask.label.format(k=k, n=n)
                yield "document", f"{label}{text}{between}" + ("}" if task == "kv" and k == n else "")
        gap = "" if block == "instruction" else "\n\n"


def apply_template(tokenizer: Any, message: str) -> str:
    """Return the text that the chat template makes of a user's message, up to where the answer begins."""
    messages = [{"role": "user", "content": message}]
    try:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
    except Exception as error:  # templates are programs of the models' authors
        raise errors.invalid("template", "one that takes a user's message", errors.short(error)) from None


def write_prompt(tokenizer: Any, task: str, ask: Ask, template: bool, special_tokens: bool) -> Prompt:
    """Return a prompt with its answer; start tokens stand in front of plain text, a template has its own."""
    if not template:  # which goes on with the answer's beginning; models of no instructions would copy the dots
        ask = replace(ask, question=ask.question.removesuffix(f" {ask.begin} …"))
    parts = list(pieces(task, ask))
    message = "".join(text for _, text in parts)
    end = ("\nAnswer:" if "question" in ask.layout else "\n") + (" " if ask.begin else "")
    text = apply_template(tokenizer, message) if template else message + end
    marks: list[Mark] = []
    at = text.find(message)
    for part, written in parts if at >= 0 else ():
        marks.append((at if marks else 0, part))
        at += len(written)
    if ask.begin:
        marks.append((len(text) if template else len(text) - 1, "begin"))
    answer = ask.answer if template and not ask.begin else f" {ask.answer}"
    start = special_tokens and (None if template else True)
    prompt = tokenise(tokenizer, text + ask.begin, marks if at >= 0 else (), answer, start=start)
    if tokenizer.unk_token_id in prompt.answer_ids:
        raise errors.invalid("answer", "tokens that the model has", repr(answer)[:60])
    return replace(prompt, message=message if template else "")


def write_prompts(tokenizer: Any, task: str, asks: Sequence[Ask], template: bool, special_tokens: bool) -> list[Prompt]:
    """Return each prompt with its answer; those that are the same are written once."""
    once = {ask: write_prompt(tokenizer, task, ask, template, special_tokens) for ask in dict.fromkeys(asks)}
    return [once[ask] for ask in asks]


def tokenise(
    tokenizer: Any, text: str, marks: Sequence[Mark], answer: str | None = None, *, start: bool | None = True
) -> Prompt:
    """Return the prompt of a text whose parts begin at marks, the first of them at 0.

    A token belongs to the part in which it begins. With ``start`` start tokens are put in front, with None they are
    those that the text has, without it none are looked for.
    """
    bare = partial(tokenizer, add_special_tokens=False, verbose=False)
    located = bool(marks) and bool(getattr(tokenizer, "is_fast", False))
    encoding = bare(text, return_offsets_mapping=True) if located else bare(text)
    every = list(encoding["input_ids"])
    front = [] if start is False else start_tokens(tokenizer)
    ids = without_start(front, every)
    front = front if start or len(ids) < len(every) else []
    answer_ids = () if answer is None else answer_tokens(bare, text, every, answer)
    prompt = Prompt(text, answer or "", (*front, *ids), answer_ids)
    if not located or not ids:
        return prompt
    first = [begins for begins, _ in encoding["offset_mapping"][len(every) - len(ids) :]]
    return replace(prompt, offsets=(*[-1] * len(front), *first), spans=_spans(len(front), first, marks))


def _spans(front: int, first: Sequence[int], marks: Sequence[Mark]) -> tuple[Span, ...]:
    """Return the spans of parts that begin at marks, from where each token behind the start tokens begins."""
    before = np.searchsorted(first[1:], [at for at, _ in marks[1:]]) + 1  # the first token is in the first part
    ends = front + np.array([0, *before.tolist(), len(first)])
    found = [Span("start", 0, front)] if front else []
    for (at, part), (a, b) in zip(marks, pairwise(ends.tolist()), strict=True):
        found.append(Span(part, a, b, at))
    return tuple(found)


def cut(text: str, starts: Sequence[int]) -> tuple[str, ...]:
    """Return the parts of a text, each up to where the next one starts or the end.

    >>> cut("abcd", [0, 1])
    ('a', 'bcd')
    """
    return tuple(text[a:b] for a, b in pairwise([*starts, len(text)]))


def answer_tokens(bare: Callable[[str], Any], text: str, ids: list[int], answer: str) -> tuple[int, ...]:
    """Return the tokens of an answer that follows a text, by itself where both together are cut otherwise."""
    both = list(bare(text + answer)["input_ids"])
    after = both[len(ids) :] if both[: len(ids)] == ids else bare(answer)["input_ids"]
    if not after:
        raise errors.invalid("answer", "a token or more", repr(answer))
    return tuple(after)
