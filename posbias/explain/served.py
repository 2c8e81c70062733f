"""Explain one prompt of a model that is served: its segments are deleted, which needs log-probabilities alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from posbias import errors
from posbias.engines import Engine, check_engine
from posbias.engines.served import Refused, count_tokens, served_prompt
from posbias.explain.explanation import Explanation, segment_table
from posbias.explain.prompt import borders, check_asked, read_ask
from posbias.lookup.answers import MOST, UNTIL, first_line
from posbias.lookup.rehearsal import Rehearsal
from posbias.measure.progress import progress as told
from posbias.prompts import Prompt, cut, pieces


@dataclass(frozen=True)
class Parts:
    """Hold the segments of a prompt, the answer that is explained, and what writes some segments as a prompt."""

    texts: tuple[str, ...]
    answer: str | None
    write: Callable[[Sequence[str], str], Prompt]


def explain_served(engine: Engine, text: Any, *, answer: str | None = None, progress: bool = False) -> Explanation:
    """Return by how much the log-probability of an answer changes without each segment of a prompt.

    Without an answer the first line of the model's own is explained. Documents are written as plain text.
    """
    parts = read_parts(text, answer)
    check_engine(engine, "loglikelihood")
    explained, own = parts.answer, own_answer(engine, parts)
    if explained is None:
        if not own:
            raise errors.invalid("answer", "the answer to explain, or a model that gives one", "none")
        explained = f" {own}"
    values, prompts = [], without_each(parts, explained)
    with told(len(prompts), "prompts", "asking", shown=progress) as bar:
        for found in engine.loglikelihood(prompts):
            bar.update()
            values.append(found.log_probability)
    if not np.isfinite(values).all():
        expected = "one that begins where a token does, as with a space in front"
        raise errors.invalid("answer", expected, repr(explained)[:60])
    removed = np.array(values[1:]) - values[0] if values[1:] else np.nan
    tokens = [count_tokens(part) for part in parts.texts]  # estimated
    table = segment_table(parts.texts, tokens=tokens, removed=removed, share=np.nan, contributed=np.nan)
    said = f"the log-probability of the answer {explained!r}"
    is_own = None if own is None else own.startswith(explained.strip())
    return Explanation(engine.name, said, values[0], pd.DataFrame(), table, own, is_own)


def read_parts(text: Any, answer: str | None) -> Parts:
    """Return the segments of a text, or of documents with a question, or raise ValueError for what is neither."""
    check_asked(text, answer)
    if isinstance(text, Mapping):
        ask = read_ask(text, answer)

        def write_row(texts: Sequence[str], said: str) -> Prompt:
            return served_prompt("".join(texts), ask.begin, said.strip())

        return Parts(tuple(part for _, part in pieces("documents", ask)), ask.answer, write_row)
    if not isinstance(text, str):
        raise errors.invalid("prompt", "a text, or documents with a question, with --server", "messages")

    def write_text(texts: Sequence[str], said: str) -> Prompt:
        return Prompt("".join(texts), said, (), message="".join(texts))

    return Parts(cut(text, borders(text)), answer, write_text)


def own_answer(engine: Engine, parts: Parts) -> str | None:
    """Return the first line of the model's own answer; None where the server has no chat and needs none."""
    asked = parts.write(parts.texts, parts.answer or "")
    try:
        return first_line(next(iter(engine.generate([asked], MOST, UNTIL))).text)
    except Refused:
        if parts.answer is None:
            raise
        return None


def without_each(parts: Parts, answer: str) -> list[Prompt]:
    """Return the prompt, and where it has several segments the prompt without each of them."""
    texts, S = parts.texts, len(parts.texts)
    left = [texts[:k] + texts[k + 1 :] for k in range(S)] if S > 1 else []
    return [parts.write(some, answer) for some in (texts, *left)]


def preview_explain_served(text: Any, answer: str | None) -> str:
    """Return the segments, and how many requests and tokens there would be; nothing is sent."""
    engine: Any = Rehearsal()
    table = explain_served(engine, text, answer=answer).segments
    rows = [f"{x.label}: about {x.tokens} tokens" for x in table.itertuples()]
    rows.append(f"{engine.requests} requests, at most {engine.tokens} tokens (estimated)")
    return "\n".join([*rows, "Nothing was sent"])
