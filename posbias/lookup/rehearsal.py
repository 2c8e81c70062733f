"""What a lookup would ask of an engine, counted before anything is asked."""

from collections.abc import Iterator, Mapping, Sequence

from posbias.conditions import ChangedRun
from posbias.engines import Engine, Generated, Likelihood
from posbias.engines.served import count_tokens
from posbias.lookup.asking import Questions, ask_under
from posbias.prompts import Prompt


class Rehearsal:
    """Stand in for an engine and count what it would be asked, equal requests once; a server's tokens are estimated."""

    name, has_loglikelihood, has_gradients = "a model that is served", True, False

    def __init__(self, of: Engine | None = None) -> None:
        self.requests = self.tokens = 0
        self._asked: set[tuple[Prompt, int]] = set()
        if of is not None:
            self.name, self.has_loglikelihood = of.name, of.has_loglikelihood

    def loglikelihood(self, prompts: Sequence[Prompt]) -> Iterator[Likelihood]:
        """Count prompts with their answers."""
        self._count(prompts, 0)
        yield from [Likelihood(0.0, False)] * len(prompts)

    def generate(self, prompts: Sequence[Prompt], most: int, until: str = "") -> Iterator[Generated]:
        """Count prompts with answers that are as long as they may be."""
        self._count(prompts, most)
        yield from [Generated("nothing", (), 0.0, most)] * len(prompts)

    def _count(self, prompts: Sequence[Prompt], more: int) -> None:
        for prompt in {*prompts}:
            if (prompt, more) not in self._asked:
                self._asked.add((prompt, more))
                self.requests += 1
                told = len(prompt.ids) or count_tokens(prompt.message + prompt.answer)
                self.tokens += told + len(prompt.answer_ids) + more


def rehearse(engine: Rehearsal, asked: Questions, under: Mapping[str, ChangedRun]) -> list[str]:
    """Return what each condition would ask, in a line; what was asked under one before is not asked again."""
    lines = []
    for name, condition in under.items():
        requests, tokens = engine.requests, engine.tokens
        ask_under(engine, asked, condition)
        more = " more" if requests else ""
        requests, tokens = engine.requests - requests, engine.tokens - tokens
        lines.append(f"{name}: {requests}{more} requests, at most {tokens} tokens")
    return lines
