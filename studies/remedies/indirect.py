"""Answers that no search for their words explains: sources in other words, and answers that need two documents.

Set on 2026-11-29, before the run, without a threshold (24 sets of each kind). *In other words*: all
eight documents state a number digit by digit in words, and the answer is asked for in figures, so
that no document has it in it; what is explained is the right answer, whether the model gives it or
not. *Two steps*: of eight documents four say who directs a museum, and four give a person's
telephone number; asked for is the number of a museum's director. One document states it, and
another one says which that is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from posbias.conditions import Write
from posbias.conditions.each.sharper import read_heads
from posbias.engines import Likelihood
from posbias.heads import attended, point
from posbias.lookup.answers import FACT_END, FACT_MOST
from posbias.lookup.contexts import KINDS, NAMES, NEUTRAL
from posbias.prompts import Ask, Prompt, Span
from posbias.settings import Settings
from studies.making import go_on
from studies.remedies.engine import SetEngine
from studies.remedies.measure import BEST, open_engine, provenance, unfinished, writer

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
NUMBERED = [begin for begin, ends in KINDS if ends == "number"]
"""Facts whose values can be written in words."""
PLACES, CHAINS, SEED = 8, 4, 62
HEAD = (18, 6)
"""The head that reads best, as the page ``source`` has it."""
MEANINGS = {
    "correct": "1 where the model's own answer begins with the right one",
    "removed": "change of an answer's log-probability without each document, nats",
    "reader": "the document, from 0, that head 6 of layer 18 points at from the answer's tokens",
    "fetched": "the document that three heads point at from the question",
    "source": "the document that the explained answer is from; -1 for none",
    "bridge": "the document that says whose number is asked for",
}


def in_words(number: str) -> str:
    """Return the digits of a number as words.

    >>> in_words("407")
    'four zero seven'
    """
    return " ".join(DIGITS[int(digit)] for digit in number)


def surrounded(rng: np.random.Generator, fact: str) -> str:
    """Return a document of three sentences, the fact in the middle."""
    before, after = rng.choice(NEUTRAL, 2, replace=False)
    return f"{before} {fact} {after}"


def make_reworded(rng: np.random.Generator) -> list[Ask]:
    """Return questions about each of eight documents that state numbers in words."""
    kind = NUMBERED[rng.integers(len(NUMBERED))]
    names = [name.title() for name in rng.permutation(NAMES)[:PLACES].tolist()]
    values = [str(x) for x in rng.choice(np.arange(1000, 10000), PLACES, replace=False)]
    begins = [kind.format(name) for name in names]
    documents = tuple(
        surrounded(rng, f"{begin} {in_words(value)}.") for begin, value in zip(begins, values, strict=True)
    )
    asks = []
    for begin, value in zip(begins, values, strict=True):
        asked = f"In figures, {begin[0].lower()}{begin[1:]}"
        asks.append(Ask(documents, f"How does this sentence go on? {asked} …", value, asked))
    return asks


def make_chained(rng: np.random.Generator) -> tuple[list[Ask], list[tuple[int, int]]]:
    """Return questions that take two of eight documents, and by question the first and the second of them."""
    drawn = [name.title() for name in rng.permutation(NAMES)[: 2 * CHAINS].tolist()]
    museums = drawn[:CHAINS]
    people = drawn[CHAINS:]
    values = [str(x) for x in rng.choice(np.arange(1000, 10000), CHAINS, replace=False)]
    facts = []
    for museum, person in zip(museums, people, strict=True):
        facts.append(f"The director of the {museum} museum is called {person}.")
    for person, value in zip(people, values, strict=True):
        facts.append(f"The telephone number of {person} is {value}.")
    order = rng.permutation(PLACES).tolist()
    documents = tuple(surrounded(rng, facts[k]) for k in order)
    asks, pairs = [], []
    for k, (museum, value) in enumerate(zip(museums, values, strict=True)):
        begin = f"The telephone number of the director of the {museum} museum is"
        asks.append(Ask(documents, f"How does this sentence go on? {begin} …", value, begin))
        pairs.append((order.index(k), order.index(CHAINS + k)))
    return asks, pairs


def removed_by(engine: SetEngine, write: Write, asks: Sequence[Ask], answers: Sequence[tuple[int, ...]]) -> np.ndarray:
    """Return by how much the log-probability of each answer changes without each document."""

    def told(some: Sequence[Ask]) -> np.ndarray:
        prompts = []
        for ask, answer in zip(some, answers, strict=True):
            prompts.append(replace(write(ask), answer_ids=answer))
        found: list[Likelihood] = list(engine.loglikelihood(prompts))
        return np.array([one.log_probability for one in found])

    whole = told(asks)
    changes = []
    for gone in range(PLACES):
        left = [k for k in range(PLACES) if k != gone]
        changes.append(told([ask.with_documents(left) for ask in asks]) - whole)
    return np.array(changes).T


def with_answer(prompt: Prompt, answer: tuple[int, ...]) -> Prompt:
    """Return a prompt with an answer behind it; what is watched are the tokens that the answer is read from."""
    ids = (*prompt.ids, *answer[:-1])
    asked = Span("question", len(prompt.ids) - 1, len(ids))
    return replace(prompt, ids=ids, spans=(*prompt.of("document"), asked))


def explain(
    engine: SetEngine, write: Write, asks: Sequence[Ask], answers: Sequence[tuple[int, ...]]
) -> dict[str, np.ndarray]:
    """Return what deletion and heads say of each answer."""
    reader, fetched = [], []
    for ask, answer in zip(asks, answers, strict=True):
        prompt: Prompt = write(ask)
        fetched.append(int(point(attended(engine.reader, prompt), read_heads(BEST)).argmax()))
        seen = attended(engine.reader, with_answer(prompt, answer)) if answer else None
        reader.append(-1 if seen is None else int(seen[HEAD].argmax()))
    return {
        "removed": removed_by(engine, write, asks, answers),
        "reader": np.array(reader),
        "fetched": np.array(fetched),
    }


def measure_indirect(settings: Settings) -> xr.Dataset:
    """Return what deletion and heads name, by set, question and document, for both kinds of prompts."""
    engine = open_engine(settings)
    write = writer(engine)

    def read(k: int) -> Mapping[str, np.ndarray]:
        rng = np.random.default_rng([SEED, k])
        engine.forget()
        asks = make_reworded(rng)
        prompts = [write(ask) for ask in asks]
        said = [one.text.strip() for one in engine.generate(prompts, FACT_MOST, FACT_END)]
        row = {"correct": np.array([x.startswith(a.answer) for x, a in zip(said, asks, strict=True)])}
        row |= explain(engine, write, asks, [prompt.answer_ids for prompt in prompts])
        engine.forget()
        asks, pairs = make_chained(rng)
        given = list(engine.generate([write(ask) for ask in asks], FACT_MOST, FACT_END))
        texts = [one.text.strip() for one in given]
        source = []
        for text in texts:
            holding = [j for j, x in enumerate(asks[0].documents) if text and f" {text}." in x]
            source.append(holding[0] if len(holding) == 1 else -1)
        two = {
            "correct": np.array([x == a.answer for x, a in zip(texts, asks, strict=True)]),
            "source": np.array(source),
            "bridge": np.array([first for first, _ in pairs]),
        } | explain(engine, write, asks, [one.ids for one in given])
        return row | {f"two_{name}": x for name, x in two.items()}

    found = go_on(settings.prompts, read, unfinished(settings, "indirect"), "sets")
    arrays: dict[str, Any] = {}
    for name, x in found.items():
        chained = name.startswith("two_")
        dims = ("set", "chain" if chained else "question", "document")[: x.ndim]
        kind = np.float32 if x.dtype.kind == "f" else np.int16
        about = {"long_name": MEANINGS[name.removeprefix("two_")]}
        arrays[name] = (dims, x.astype(kind), about)
    return xr.Dataset(arrays, attrs=provenance(settings) | {"drawn": SEED})
