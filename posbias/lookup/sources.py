"""Which document each answer of a lookup is from, and what the law of reading by place says of that.

A right answer is from the document asked for. Behind every other prompt the engine gives an answer
of its own, its likeliest tokens, which is what ``correct`` compares with: nothing is forced on the
model, and an answer that is in no document is from none. What is made up says what each document
states; of a user's rows it is looked up in the documents' texts.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float, Int

from posbias import errors
from posbias.engines import Engine
from posbias.lookup.answers import FACT_END, FACT_MOST, find_holder
from posbias.lookup.reading import Reading, fit_reading
from posbias.measure.progress import progress as told
from posbias.prompts import Ask, Prompt

UNKNOWN = -1
"""Stands for a document where none states an answer, or several do."""
ABOUT = {"long_name": f"place of the document that the answer is from, {UNKNOWN} for none or several"}


def find_sources(
    engine: Engine,
    asks: Sequence[Sequence[Ask]],
    prompts: Sequence[Sequence[Prompt]],
    correct: Float[np.ndarray, "C P"],
    progress: bool = False,
) -> Int[np.ndarray, "C P"]:
    """Return the place of the document that each answer is from, by context and place asked."""
    source = np.tile(np.arange(correct.shape[1]), (len(asks), 1))
    wrong = np.argwhere(correct == 0)
    longest = max(len(prompt.answer_ids) for each in prompts for prompt in each)
    most = longest if all(map(own_answers, asks)) else FACT_MOST
    given = engine.generate([prompts[k][place] for k, place in wrong], most, FACT_END)
    with told(len(wrong), "wrong answers", "reading", shown=progress) as bar:
        for (k, place), answer in zip(wrong, given, strict=True):
            source[k, place] = stated_by(answer.text, asks[k], place)
            bar.update()
    return source


def stated_by(given: str, asks: Sequence[Ask], place: int) -> int:
    """Return the place of the one document that states an answer, asked for at a place.

    >>> asks = [Ask(("It is 3.", "It is 4."), "What?", answer) for answer in ("3", "4")]
    >>> stated_by(" 4", asks, 0), stated_by(" 43", asks, 0), stated_by("", asks, 0)
    (1, -1, -1)
    """
    text, answers = given.strip(), own_answers(asks)
    if not answers:
        return find_holder(text, asks[place].documents)
    holding = [k for k, answer in enumerate(answers) if begins_with(text, answer)]
    return holding[0] if len(holding) == 1 else UNKNOWN


def own_answers(asks: Sequence[Ask]) -> list[str]:
    """Return what each document states, nothing if all questions are the same one."""
    answers = [ask.answer for ask in asks]
    return answers if len({*answers}) == len(asks) else []


def begins_with(text: str, words: str) -> bool:
    """Tell whether a text begins with these words, whatever the case of letters; no part of a word counts.

    >>> begins_with("4821.", "4821"), begins_with("4821.", "482")
    (True, False)
    """
    return re.match(rf"{re.escape(words)}(?!\w)", text, re.IGNORECASE) is not None


def read_law(results: xr.Dataset) -> Reading:
    """Return the law that fits a lookup, or raise ValueError for what is missing."""
    if "source" not in results:
        expected = "a lookup that kept which document each answer is from"
        raise errors.invalid("reading", expected, "an older one")
    source, P = results["source"].values, results.sizes["place"]
    if P == 1:
        raise errors.invalid("reading", "rows asked with the right document at each place", "each row asked once")
    if source.ndim != 2 or not ((source >= UNKNOWN) & (source < P)).all():
        raise errors.invalid("source", f"places {UNKNOWN} to {P - 1}", "others")
    return fit_reading(source.astype(int))


def law_if_any(results: xr.Dataset) -> Reading | None:
    """Return the law that fits a lookup, None where something is missing."""
    try:
        return read_law(results)
    except ValueError:
        return None


def law_text(results: xr.Dataset) -> str:
    """Return what the law says of a lookup, or in one line why it says nothing."""
    try:
        return repr(read_law(results))
    except ValueError as error:
        return f"Where wrong answers are from: cannot tell ({error})"


def law_sentence(results: xr.Dataset) -> str:
    """Return in one sentence from where wrong answers are, nothing if that cannot be told."""
    law = law_if_any(results)
    if law is None:
        return ""
    low, high = law.sharpness_interval
    return (
        f"Of {law.wrong} wrong answers that a document states, {law.later:.0%} are from one behind "
        f"the right one and {law.near:.0%} from a neighbour (sharpness {law.sharpness:.2f} per "
        f"place, {low:.2f} to {high:.2f})."
    )


def draw_sources(ax: Any, law: Reading) -> None:
    """Draw the share of answers from each place (columns), by place asked (rows)."""
    share = law.counts / np.maximum(law.counts.sum(1, keepdims=True), 1)
    ax.imshow(share, cmap="Greys", vmin=0, vmax=1)
    ax.grid(False)
    P = len(share)
    ticks = np.arange(0, P, max(1, P // 8))
    ax.set(xticks=ticks, xticklabels=ticks + 1, yticks=ticks, yticklabels=ticks + 1)
    ax.set(xlabel="place that the answer is from (darker: more)", ylabel="place asked for")
