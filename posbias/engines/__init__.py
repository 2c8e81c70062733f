"""Engines: what is asked of a model, whether it is in this process or behind a server.

An engine has two methods, as in lm-evaluation-harness: the log-probability of a given answer, and an answer of its own.
A request is a :class:`~posbias.prompts.Prompt`, which carries text as well as tokens, so that an engine that takes text
alone will do. What an engine cannot do its flags say.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from posbias import errors
from posbias.prompts import Prompt


class Likelihood(NamedTuple):
    """Hold the log-probability of a given answer in nats, and whether each of its tokens is the likeliest."""

    log_probability: float
    is_greedy: bool


class Generated(NamedTuple):
    """Hold an engine's own answer: its text, its tokens where they are known, and its log-probability, NaN if not.

    ``length`` is how many tokens it has, and ``is_cut`` whether it had not ended by itself.
    """

    text: str
    ids: tuple[int, ...]
    log_probability: float
    length: int
    is_cut: bool = False


class Engine(Protocol):
    """What answers requests, one after another in their order."""

    name: str
    has_gradients: bool
    """Whether the model is in this process, so that it can be changed and differentiated."""
    requests: int
    """How many requests it was given so far."""
    tokens: int
    """How many tokens these had, with those of their answers."""

    @property
    def has_loglikelihood(self) -> bool:
        """Whether it tells how likely a given answer is."""

    def loglikelihood(self, prompts: Sequence[Prompt]) -> Iterator[Likelihood]:
        """Yield how likely the answer of each prompt is."""

    def generate(self, prompts: Sequence[Prompt], most: int, until: str = "") -> Iterator[Generated]:
        """Yield an answer to each prompt, of at most so many tokens, up to one with a letter of ``until``."""


def has_ended(text: str, until: str) -> bool:
    r"""Tell whether an answer has a letter that ends it behind its first word.

    >>> has_ended("\n\nIt is 3", "\n"), has_ended("\nIt is 3.\n", "\n")
    (False, True)
    """
    return not {*until}.isdisjoint(text.lstrip())


def check_engine(engine: Engine, need: str) -> None:
    """Raise ValueError for what an engine cannot do, named as its flag is without ``has_``."""
    if not getattr(engine, f"has_{need}"):
        wanted = {"loglikelihood": "log-probabilities of a given answer", "gradients": "a model in this process"}[need]
        raise errors.invalid("engine", f"one with {wanted}", f"{engine.name}, which has none")
