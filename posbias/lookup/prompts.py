"""Prompts: what is asked as text, through the chat template or plain, and as tokens with those of the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from posbias import errors
from posbias.lookup.contexts import Ask
from posbias.measure.corpus import start_tokens

INSTRUCTIONS = {
    "documents": "Answer the question from these documents.",
    "kv": "Answer the question from this JSON object.",
}
"""Stands in front of what a prompt of each task holds."""


@dataclass(frozen=True)
class Prompt:
    """Hold a prompt and its answer as text and as tokens."""

    text: str
    answer: str
    ids: tuple[int, ...]
    answer_ids: tuple[int, ...]


def write_question(task: str, ask: Ask) -> str:
    """Return what a user would write.

    >>> print(write_question("documents", Ask(("It is 3.",), "What is it?", "3")))
    Answer the question from these documents.
    <BLANKLINE>
    Document 1: It is 3.
    <BLANKLINE>
    Question: What is it?
    """
    parts = list(ask.documents)
    if task == "kv" and parts:
        parts = ["{" + ",\n ".join(parts) + "}"]
    if task == "documents":
        parts = [f"Document {k}: {text}" for k, text in enumerate(parts, 1)]
    parts = [INSTRUCTIONS[task], *parts] if parts else []
    return "\n\n".join([*parts, f"Question: {ask.question}"])


def use_template(tokenizer: Any, form: str | None) -> bool:
    """Return whether prompts go through the chat template, or raise ValueError if it is asked for and not there."""
    there = bool(getattr(tokenizer, "chat_template", None))
    if form == "template" and not there:
        raise errors.invalid("form", "plain for a tokenizer without a chat template", form)
    return there and form != "plain"


def write_prompt(tokenizer: Any, written: str, begin: str, template: bool) -> str:
    """Return the whole text in front of an answer whose first words are given."""
    if not template:
        return f"{written}\nAnswer:" + (f" {begin}" if begin else "")
    message = [{"role": "user", "content": written}]
    try:
        text = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # templates are programs of the models' authors
        raise errors.invalid("template", "one that takes a user's message", errors.short(error)) from None
    return f"{text}{begin}"


def make_prompts(tokenizer: Any, task: str, asks: Sequence[Ask], template: bool, special_tokens: bool) -> list[Prompt]:
    """Return each prompt with its answer; start tokens stand in front of plain text, a template has its own."""
    front = start_tokens(tokenizer) if special_tokens and not template else []
    bare = partial(tokenizer, add_special_tokens=False, verbose=False)
    made: dict[tuple[str, str], Prompt] = {}
    found = []
    for ask in asks:
        text = write_prompt(tokenizer, write_question(task, ask), ask.begin, template)
        answer = ask.answer if template and not ask.begin else f" {ask.answer}"
        if (text, answer) not in made:
            ids = list(bare(text)["input_ids"])
            tokens = answer_tokens(bare, text, ids, answer)
            if tokenizer.unk_token_id in tokens:
                raise errors.invalid("answer", "tokens that the model has", repr(answer)[:60])
            made[text, answer] = Prompt(text, answer, (*front, *ids), tokens)
        found.append(made[text, answer])
    return found


def answer_tokens(bare: Callable[[str], Any], text: str, ids: list[int], answer: str) -> tuple[int, ...]:
    """Return the tokens of an answer that follows a text, by itself where both together are cut otherwise."""
    both = list(bare(text + answer)["input_ids"])
    after = both[len(ids) :] if both[: len(ids)] == ids else bare(answer)["input_ids"]
    if not after:
        raise errors.invalid("answer", "a token or more", repr(answer))
    return tuple(after)
