"""Prompts of copying: a text, then a cue that stands somewhere in it; the answer is what follows the cue there."""

from __future__ import annotations

from typing import Any

import numpy as np

from posbias import errors
from posbias.lookup.prompts import PlacedPrompts, spread
from posbias.lookup.tasks import Task
from posbias.measure.corpus import BUILTIN, Corpus, document_units, make_prompts, start_tokens

MOST_UNKNOWN = 0.1
"""Share of a text's tokens that may be unknown: unknown words are all alike, and nothing is copied of them."""


def copy_prompts(
    task: Task, corpus: Corpus, tokenizer: Any, prompts: int, *, seed: int = 0, special_tokens: bool = True
) -> PlacedPrompts:
    """Return texts that are followed by a stretch of their own: a cue, and the segment that is the answer.

    A place is where the stretch begins in the text; all places where it fits are swept, evenly. In the control the
    stretch's first occurrence is replaced by what another document has at the same tokens.

    Parameters
    ----------
    task
        With length, segment and cue.
    corpus, tokenizer
        Documents, of each of which the first tokens are taken, and what makes tokens of them.
    prompts
        How many, at least 2.
    seed
        Of the order of places.
    special_tokens
        Whether the tokenizer's start tokens stand in front; no stretch has them.

    Raises
    ------
    ValueError
        If there are not as many documents of as many tokens, or the tokenizer does not know their words.
    """
    n, width = task.text_tokens, task.stretch
    check_knows(tokenizer, "a")
    front = len(start_tokens(tokenizer)) if special_tokens else 0
    if n < front + width:
        wanted = f"at least {2 * width + front}, for a text that has cue and segment, and these again"
        raise errors.invalid("length", wanted, task.length)
    texts = make_prompts(corpus, tokenizer, prompts, n, special_tokens=special_tokens)
    unknown = float((texts.ids == tokenizer.unk_token_id).mean())
    if unknown > MOST_UNKNOWN:
        raise errors.invalid("tokenizer", "one that knows the text's words", f"{unknown:.0%} of them unknown")
    starts = np.arange(front, n - width + 1)
    places = spread(prompts, len(starts), np.random.default_rng(seed))
    within = starts[places][:, None] + np.arange(width)
    row = np.arange(prompts)[:, None]
    stretch = texts.ids[row, within]
    others = texts.ids.copy()
    others[row, within] = texts.ids[(row + max(prompts // 2, 1)) % prompts, within]
    segment = task.segment or 0
    return PlacedPrompts(
        ids=np.hstack([texts.ids, stretch[:, :-1]]),
        answers=stretch[:, width - segment :],
        places=places,
        starts=starts,
        width=width,
        units=document_units(texts.origins, BUILTIN if corpus.named and corpus.dataset == BUILTIN else ""),
        controls=np.hstack([others, stretch[:, :-1]]),
    )


def check_knows(tokenizer: Any, text: str) -> None:
    """Raise ValueError if a tokenizer makes nothing of a text, such as one of a few words and no unknown one."""
    try:
        tokenizer(text, add_special_tokens=True)
    except Exception as error:  # tokenizers raise no narrower type
        reason = " ".join(str(error).split())[:120]
        raise errors.invalid("tokenizer", "one that makes tokens of text", reason) from None
