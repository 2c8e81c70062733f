"""Lists of documents in which invented facts compete, and the questions that are asked of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from posbias.lookup.contexts import NAMES, NEUTRAL, make_contexts
from posbias.lookup.tasks import Task
from posbias.prompts import Ask

OTHER_KINDS = (
    ("The dog of {} is called", "name"), ("The grandmother of {} was born in", "year"),
    ("The locker of {} has the number", "number"), ("The boat of {} is called", "name"),
    ("The school of {} was founded in", "year"), ("The membership number of {} is", "number"),
)  # fmt: skip
"""Beginnings of facts about persons, none of which is of a kind that the package makes up."""
OTHER_NEUTRAL = (
    "Letters are answered within a week.", "The meeting lasted longer than planned.", "Nobody remembers who began it.",
    "There was rain for most of the day.", "Lunch is served on the second floor.", "The lift has been slow since May.",
    "Parcels are kept behind the desk.", "The report has not been printed yet.",
)  # fmt: skip
"""Sentences beside these facts, which say nothing of them."""

AT_FIRST = (0, 2, 4, 6), (0, 1, 2, 3)
AT_LAST = (1, 3, 5, 7), (4, 5, 6, 7)
"""Places of four competing documents among eight: kept apart, and together."""


@dataclass(frozen=True)
class Listing:
    """Hold a list of documents and questions about some of them.

    ``answers`` has what each document states, an empty text where it states nothing; ``competing`` whether that is of
    the kind that is asked for; ``asked`` the place, from 0, of the document that each question is about.
    """

    documents: tuple[str, ...]
    answers: tuple[str, ...]
    competing: tuple[bool, ...]
    asks: tuple[Ask, ...]
    asked: tuple[int, ...]


Sets = Callable[[int], list[list[Listing]]]
"""From how many sets are wanted to the lists of each."""


def place(own: Sequence[Ask | str], competing: Sequence[bool], asked: Sequence[int]) -> Listing:
    """Return a list of documents: those of questions, which state one fact each, and bare texts, which state none.

    The document that a question of :func:`posbias.lookup.contexts.make_contexts` is about is the one with its answer.
    """
    texts = tuple(x if isinstance(x, str) else _text(x) for x in own)
    answers = tuple("" if isinstance(x, str) else x.answer for x in own)
    chosen = [own[k] for k in asked]
    asks = tuple(replace(x, documents=texts) for x in chosen if isinstance(x, Ask))
    return Listing(texts, answers, tuple(competing), asks, tuple(asked))


def _text(ask: Ask) -> str:
    """Return the document of a question: the one that has the beginning and the answer."""
    return next(text for text in ask.documents if f"{ask.begin} {ask.answer}." in text)


def neutral(rng: np.random.Generator, sentences: int = 3) -> str:
    """Return a document that states no fact."""
    return " ".join(rng.choice(NEUTRAL, sentences, replace=False))


def competing(places: int = 8, seed: int = 0) -> Sets:
    """Return what makes sets of documents that all compete, each asked for in turn."""

    def make(count: int) -> list[list[Listing]]:
        contexts = make_contexts(Task("documents", places), count, seed)
        every = list(range(places))
        return [[place(c.asks["competing"], [True] * places, every)] for c in contexts]

    return make


def among_others(seed: int = 2) -> Sets:
    """Return what makes sets of eight documents of eight kinds, each asked for in turn."""

    def make(count: int) -> list[list[Listing]]:
        contexts = make_contexts(Task("documents", 8), count, seed)
        return [[place(c.asks["not_competing"], [True] * 8, list(range(8)))] for c in contexts]

    return make


def with_neutral(where: str, seed: int) -> Sets:
    """Return what makes sets of eight competing documents with neutral documents, or neutral sentences inside.

    ``between``: one behind each; ``around``: four in front of all and four behind; ``ends``: one in front and one
    behind; ``inside``: four more neutral sentences in each document, no document more.
    """

    def make(count: int) -> list[list[Listing]]:
        rng = np.random.default_rng(seed + 1000)
        contexts = make_contexts(Task("documents", 8), count, seed)
        return [[_add_neutral(rng, c.asks["competing"], where)] for c in contexts]

    return make


def _add_neutral(rng: np.random.Generator, asks: Sequence[Ask], where: str) -> Listing:
    """Return a list of competing documents with neutral text in it."""
    own: list[Ask | str] = list(asks)
    if where == "between":
        own = [x for ask in asks for x in (ask, neutral(rng))]
    elif where in ("around", "ends"):
        many = 4 if where == "around" else 1
        own = [neutral(rng) for _ in range(many)] + own + [neutral(rng) for _ in range(many)]
    else:
        longer = [f"{neutral(rng, 2)} {_text(ask)} {neutral(rng, 2)}" for ask in asks]
        own = [replace(ask, documents=(text,)) for ask, text in zip(asks, longer, strict=True)]
    states = [isinstance(x, Ask) for x in own]
    return place(own, states, list(np.flatnonzero(states)))


def one_competitor(seed: int = 7) -> Sets:
    """Return what makes sets of seven lists: in each two of eight documents compete, at each distance in turn."""

    def make(count: int) -> list[list[Listing]]:
        rng, found = np.random.default_rng(seed + 1000), []
        for context in make_contexts(Task("documents", 8), count, seed):
            lists = []
            for distance in range(1, 8):
                other, first = int(rng.integers(1, 8)), int(rng.integers(0, 8 - distance))
                two = [context.asks["competing"][k] for k in (0, other)]
                rest = [context.asks["not_competing"][k] for k in rng.permutation(8) if k not in (0, other)]
                pair = (first, first + distance)
                lists.append(_merge(two, rest, pair))
            found.append(lists)
        return found

    return make


def apart(seed: int = 8) -> Sets:
    """Return what makes sets of two lists of the same eight documents, of which four compete.

    In the first list they have every second place, in the second they stand next to each other. In turn the four begin
    at the first place, or end at the last, in both lists.
    """

    def make(count: int) -> list[list[Listing]]:
        found = []
        for k, context in enumerate(make_contexts(Task("documents", 8), count, seed)):
            own = context.asks["competing"][:4]
            rest = context.asks["not_competing"][4:]
            orders = AT_FIRST if k % 2 == 0 else AT_LAST
            found.append([_merge(own, rest, where) for where in orders])
        return found

    return make


def _merge(own: Sequence[Ask], rest: Sequence[Ask], where: Sequence[int]) -> Listing:
    """Return a list with competing documents at some places and others at the rest; the former are asked for."""
    left, others = dict(zip(where, own, strict=True)), iter(rest)
    every = [left[k] if k in left else next(others) for k in range(len(own) + len(rest))]
    return place(every, [k in left for k in range(len(every))], list(where))


def other_kinds(seed: int = 9) -> Sets:
    """Return what makes sets of eight competing documents about persons, with other neutral sentences."""

    def make(count: int) -> list[list[Listing]]:
        rng, found = np.random.default_rng(seed), []
        for _ in range(count):
            begin, what = OTHER_KINDS[int(rng.integers(len(OTHER_KINDS)))]
            names = [str(name).title() for name in rng.permutation(NAMES)[:16]]
            values = {
                "name": names[8:],
                "year": [str(x) for x in rng.choice(np.arange(1400, 2000), 8, replace=False)],
                "number": [str(x) for x in rng.choice(np.arange(1000, 10000), 8, replace=False)],
            }[what]  # fmt: skip
            asks = [_person(rng, begin.format(name), value) for name, value in zip(names, values, strict=False)]
            found.append([place(asks, [True] * 8, list(range(8)))])
        return found

    return make


def _person(rng: np.random.Generator, begin: str, answer: str) -> Ask:
    before, after = rng.choice(OTHER_NEUTRAL, 2, replace=False)
    return Ask((f"{before} {begin} {answer}. {after}",), f"How does this sentence go on? {begin} …", answer, begin)
