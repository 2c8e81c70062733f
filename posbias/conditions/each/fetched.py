"""Keeps or orders documents by the attention of heads that fetch: the best alone, first, last, or at both ends.

``model.fetching_heads()`` names such heads. All documents best last, by all heads, is attention sorting.

Source: Wu et al. 2024, arXiv:2404.15574 (heads); Peysakhovich and Lerer 2023, arXiv:2310.01427 (sorting).
"""

from typing import Any

from posbias import errors
from posbias.conditions import FIELD, ChangedRun, Write, arguments
from posbias.conditions.each.order import arranged
from posbias.conditions.each.sharper import check_heads_of, read_heads
from posbias.engines import Engine, check_engine
from posbias.heads import attended, point
from posbias.prompts import Ask

WAYS = {"alone": "best-first", "first": "best-first", "last": "best-last", "ends": "ends"}
"""What is done with the documents, and the order that it takes."""


class Condition(ChangedRun):
    changes = "asking"
    needs = "a model in this process, of a family with a row; alone, first, last or ends, heads=17.3+18.6, keep=1"
    cost = "a request more, of the prompt alone"

    def __init__(self, argument: str) -> None:
        found = arguments(argument, how=str, heads=read_heads, keep=int)
        self.how, self.keep = found.get("how", "alone"), found.get("keep", 1)
        if self.how not in WAYS:
            raise errors.invalid(f"{FIELD} fetched", f"one of {', '.join(WAYS)}", self.how)
        errors.positive_integer(f"{FIELD} fetched: keep", self.keep)
        if "heads" not in found:
            expected = "layers and heads such as 17.3+18.6, which model.fetching_heads() names"
            raise errors.invalid(f"{FIELD} fetched: heads", expected, "none")
        self.heads = found["heads"]

    def check(self, config: Any) -> None:
        check_heads_of(config, self.heads)

    def choose(self, ask: Ask, engine: Engine, write: Write) -> Ask:
        """Return what is asked with the best documents alone, in their order, or with all of them in another."""
        n = len(ask.documents)
        if n < 2:
            return ask
        check_engine(engine, "gradients")
        reader: Any = engine.reader  # type: ignore[attr-defined]  # of a model in this process
        prompt = write(ask)
        engine.requests += 1
        engine.tokens += len(prompt.ids)
        scores = point(attended(reader, prompt), self.heads).tolist()
        order = arranged(n, scores, WAYS[self.how])
        return ask.with_documents(sorted(order[: self.keep]) if self.how == "alone" else order)
