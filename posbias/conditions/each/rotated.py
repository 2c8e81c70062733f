"""Asks with the documents turned, several times, and keeps the answer that most turns give, or the likeliest of all.

Source: Tang et al. 2023, arXiv:2310.07712 (permutation self-consistency), with rotations for permutations.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from posbias import errors
from posbias.conditions import FIELD, ChangedRun, Write, arguments
from posbias.engines import Engine, Generated, check_engine
from posbias.prompts import Ask

WAYS = ("vote", "mean")
MOST, UNTIL = 12, ".\n"
"""Tokens of an answer that are compared, and the letters before which it ends."""


def turned(ask: Ask, rotations: int) -> list[Ask]:
    """Return what is asked with the documents in turns that are as far apart as can be, the given one first.

    >>> [one.documents for one in turned(Ask(("a", "b", "c", "d"), "", ""), 2)]
    [('a', 'b', 'c', 'd'), ('c', 'd', 'a', 'b')]
    """
    n = len(ask.documents)
    starts = dict.fromkeys(k * n // rotations for k in range(rotations))
    return [ask.with_documents([*range(start, n), *range(start)]) for start in starts]


def votes(texts: Sequence[str], given: Sequence[Generated]) -> dict[str, float]:
    """Return how many turns give each answer, and less than one more for how likely it is in one of them."""
    found: dict[str, float] = {}
    for text in dict.fromkeys(texts):
        own = [one.log_probability for one, other in zip(given, texts, strict=True) if other == text]
        best = np.nan_to_num(np.exp(max(own)))
        found[text] = len(own) + min(float(best), 0.999)
    return found


def means(turns: Sequence[Ask], texts: Sequence[str], engine: Engine, write: Write) -> dict[str, float]:
    """Return the probability of each answer that a turn gives, a mean over all turns."""
    check_engine(engine, "loglikelihood")
    found = {}
    for text in dict.fromkeys(texts):
        if text:
            asking = [write(replace(turn, answer=text)) for turn in turns]
            found[text] = float(np.mean([np.exp(x.log_probability) for x in engine.loglikelihood(asking)]))
    return found or dict.fromkeys(texts, 0.0)


class Condition(ChangedRun):
    changes = "asking"
    needs = "an engine, for mean one with log-probabilities; 4 turns behind a colon, or 8,by=mean"
    cost = "an answer more for each turn; for mean, each answer's probability in each turn"

    def __init__(self, argument: str) -> None:
        found = arguments(argument, rotations=int, by=str)
        self.rotations, self.by = found.get("rotations", 4), found.get("by", "vote")
        if self.by not in WAYS:
            raise errors.invalid(f"{FIELD} rotated: by", f"one of {', '.join(WAYS)}", self.by)
        errors.positive_integer(f"{FIELD} rotated: rotations", self.rotations, minimum=2)

    def choose(self, ask: Ask, engine: Engine, write: Write) -> Ask:
        """Return what is asked in the turn whose answer is kept.

        ``vote`` keeps the answer that most turns give, among equals the likelier one; ``mean`` the one whose
        probability, a mean over all turns, is largest.
        """
        turns = turned(ask, self.rotations)
        if len(turns) < 2:
            return ask
        given = list(engine.generate([write(turn) for turn in turns], MOST, UNTIL))
        texts = [one.text.strip() for one in given]
        weights = votes(texts, given) if self.by == "vote" else means(turns, texts, engine, write)
        return turns[texts.index(max(weights, key=lambda text: weights[text]))]
