"""Asks each document alone and keeps the best: by likelihood of the question, or by the most confident answer.

Source: Sachan et al. 2022, arXiv:2204.07496 (likelihood of the question); map-rerank (confidence).
"""

from dataclasses import replace

import numpy as np

from posbias import errors
from posbias.conditions import FIELD, ChangedRun, Write, arguments
from posbias.engines import Engine, check_engine
from posbias.prompts import Ask

WAYS = ("likelihood", "confident")
MOST, UNTIL = 12, "\n"
"""Tokens of an answer whose confidence counts, and the letters before which it ends."""


def _asking(ask: Ask) -> Ask:
    """Return what asks for the question itself: the document stands before it, and it is what is scored."""
    return replace(ask, answer=ask.question, question="", begin="Question:", layout=("instruction", "documents"))


class Condition(ChangedRun):
    changes = "asking"
    needs = "an engine, for likelihood one with log-probabilities; by=likelihood or confident, keep=1"
    cost = "a request a document more, each with one document"

    def __init__(self, argument: str) -> None:
        found = arguments(argument, by=str, keep=int)
        self.by, self.keep = found.get("by", "likelihood"), found.get("keep", 1)
        if self.by not in WAYS:
            raise errors.invalid(f"{FIELD} one-by-one: by", f"one of {', '.join(WAYS)}", self.by)
        errors.positive_integer(f"{FIELD} one-by-one: keep", self.keep)

    def choose(self, ask: Ask, engine: Engine, write: Write) -> Ask:
        n = len(ask.documents)
        if n <= self.keep:
            return ask
        alone = [ask.with_documents([k]) for k in range(n)]
        if self.by == "likelihood":
            check_engine(engine, "loglikelihood")
            asking = [write(_asking(one)) for one in alone]
            scores = [found.log_probability for found in engine.loglikelihood(asking)]
        else:
            found = list(engine.generate([write(one) for one in alone], MOST, UNTIL))
            scores = [one.log_probability / one.length if one.length else -np.inf for one in found]
            if np.isnan(scores).any():
                expected = "one that tells how likely its answers are"
                raise errors.invalid("engine", expected, f"{engine.name}, which does not")
        best = np.argsort(-np.array(scores), kind="stable")[: self.keep]
        return ask.with_documents(sorted(best.tolist()))
