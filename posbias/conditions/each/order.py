"""Puts documents in another order: reversed, ends (the best at both ends), or best-first and best-last by scores."""

from collections.abc import Sequence

import numpy as np

from posbias import errors
from posbias.conditions import FIELD, ChangedRun, arguments
from posbias.prompts import Ask

KINDS = ("reversed", "ends", "best-first", "best-last")


def arranged(n: int, scores: Sequence[float] | None, kind: str) -> list[int]:
    """Return the numbers of n documents in an order; without scores the first one counts as the best.

    >>> arranged(4, [4, 3, 2, 1], "ends"), arranged(2, None, "reversed")
    ([0, 2, 3, 1], [1, 0])
    """
    if kind not in KINDS:
        raise errors.invalid(f"{FIELD} order", f"one of {', '.join(KINDS)}", kind or "none")
    if scores and len(scores) != n:
        raise errors.invalid("scores", f"{n}, one for each document", len(scores))
    if kind == "reversed":
        return list(range(n))[::-1]
    best = np.argsort(-np.asarray(scores, dtype=float), kind="stable").tolist() if scores else list(range(n))
    if kind == "best-first":
        return best
    if kind == "best-last":
        return best[::-1]
    return [*best[::2], *best[1::2][::-1]]


class Condition(ChangedRun):
    needs = "documents; their order in a row, as of a search, counts as best first; keep=1 for the best alone"
    cost = "nothing"

    def __init__(self, argument: str) -> None:
        found = arguments(argument, kind=str, keep=int)
        self.kind, self.keep = found.get("kind", ""), found.get("keep")
        arranged(0, None, self.kind)
        if self.keep is not None:
            errors.positive_integer(f"{FIELD} order: keep", self.keep)

    def rewrite(self, ask: Ask) -> Ask:
        best = arranged(len(ask.documents), ask.scores or None, "best-first")[: self.keep]
        kept = ask.with_documents(sorted(best))
        return kept.with_documents(arranged(len(best), kept.scores or None, self.kind))
