"""Right answers of SmolLM2 to the same questions under each remedy, by the place of the right document."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
import xarray as xr

from posbias.conditions import ChangedRun, Write, load, read_condition
from posbias.conditions.each.sharper import read_heads
from posbias.engines.local import LocalEngine
from posbias.files import data_folder
from posbias.heads import attended, point
from posbias.lookup.answers import FACT_END, FACT_MOST
from posbias.lookup.contexts import Context, make_contexts
from posbias.lookup.tasks import Task
from posbias.prompts import Ask, Prompt, write_prompt
from posbias.settings import Settings
from studies.making import go_on
from studies.remedies.engine import SetEngine

CHOOSE, JUDGE = 60, 61
"""Seeds of the eight sets on which heads are chosen, and of those on which everything is measured."""
CHOOSING, PLACES = 8, 8
DTYPE = "bfloat16"
"""Of weights and activations; logits are products in 32 bits. Part ``as-is-32`` is in 32 bits throughout."""
BEST = "17.3+17.4+18.6"
"""The three heads that point at the right document most often on the sets of ``CHOOSE``."""
TEN = "17.3+17.4+18.6+14.3+18.8+18.7+8.0+23.2+17.5+20.3"
"""The ten that do."""
DIMS = ("set", "question", "document")
MEANINGS = {
    "correct": "1 where each token of the answer is the likeliest, else 0",
    "log_probability": "of the answer, nats",
    "kept": "1 where the right document is among those asked with at last",
    "requests": "of an answer",
    "tokens_read": "of an answer, nats aside",
    "source": "the document, from 0, that states the answer given; -1 where none does",
    "attention": "share of each document in the attention of each head from the question on",
    "removed": "change of the given answer's log-probability without each document, nats",
}
MEANINGS["tokens_read"] = "tokens that were given to the model for an answer"

Row = Mapping[str, np.ndarray]


def open_engine(settings: Settings, together: int = 8, dtype: str = DTYPE) -> SetEngine:
    """Return an engine of a model, in 16 bits unless told otherwise."""
    source: Any = settings.source
    model = source.load_model(getattr(torch, dtype), "cpu", None, "sdpa")
    return SetEngine(model, source.load_tokenizer(), together)


def writer(engine: SetEngine) -> Write:
    """Return what writes prompts in the chat template."""
    return partial(write_prompt, engine.tokenizer, "documents", template=True, special_tokens=False)


def unfinished(settings: Settings, name: str) -> Any:
    """Return the file of what is unfinished, of the same model."""
    return data_folder() / "unfinished" / f"remedies-{name}-{settings.source.version()[-16:]}.npz"


def short_name(text: str) -> str:
    """Return a condition as the name of a file has it.

    >>> short_name("rotated:8,by=mean")
    'rotated-8-by-mean'
    """
    return re.sub("[ :=,]", "-", text)[:60]


def provenance(settings: Settings, dtype: str = DTYPE) -> dict[str, Any]:
    """Return where the numbers come from."""
    return {
        "model": settings.source.name(),
        "revision": settings.source.version(),
        "dataset": "invented facts",
        "prompts": settings.prompts,
        "length": settings.length,
        "choose": CHOOSE,
        "judge": JUDGE,
        "dtype": dtype,
    }


def save_rows(rows: Mapping[str, np.ndarray], dims: Sequence[str], about: dict[str, Any]) -> xr.Dataset:
    """Return what was measured as a labelled file."""
    arrays = {}
    for name, x in rows.items():
        kind = np.float32 if x.dtype.kind == "f" else np.int16
        meaning = MEANINGS[name.removeprefix("none_")]
        own = ("set", "none", "document") if name.startswith("none_") else dims
        arrays[name] = (own[: x.ndim], x.astype(kind), {"long_name": meaning})
    return xr.Dataset(arrays, attrs=about)


class Remedy:
    """Ask under a condition; the two floors are conditions of a study alone."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.condition: Any = ChangedRun() if text in FLOORS else read_condition(text)[1]

    @property
    def is_apart(self) -> bool:
        """Whether the model is changed prompt by prompt, so that prompts are read one by one."""
        return self.text.startswith("parallel")

    def asks(self, context: Context, engine: SetEngine, write: Write) -> list[Ask]:
        """Return what is asked at last of each document of a set."""
        asks = context.asks["competing"]
        if self.text in FLOORS:
            return [FLOORS[self.text](ask, k) for k, ask in enumerate(asks)]
        asks = tuple(self.condition.rewrite(ask) for ask in asks)
        self.read_ahead(asks, engine, write)
        return [self.condition.choose(ask, engine, write) for ask in asks]

    def read_ahead(self, asks: Sequence[Ask], engine: SetEngine, write: Write) -> None:
        """Ask together what all questions ask of the same documents, which are read once; this is not counted."""
        counted = engine.requests, engine.tokens
        if self.text.startswith("rotated"):
            module = load("rotated")
            turns = [module.turned(ask, self.condition.rotations) for ask in asks]
            for together in zip(*turns, strict=True):
                list(engine.generate([write(x) for x in together], module.MOST, module.UNTIL))
        if self.text.startswith("one-by-one"):
            module = load("one_by_one")
            for k in range(PLACES):
                one = [ask.with_documents([k]) for ask in asks]
                if self.condition.by == "likelihood":
                    list(engine.loglikelihood([write(module._asking(x)) for x in one]))
                else:
                    list(engine.generate([write(x) for x in one], module.MOST, module.UNTIL))
        engine.requests, engine.tokens = counted


def alone(ask: Ask, k: int) -> Ask:
    """Return what is asked with the right document alone."""
    return ask.with_documents([k])


def without(ask: Ask, k: int) -> Ask:
    """Return what is asked without documents."""
    return replace(ask, documents=())


FLOORS: Mapping[str, Callable[[Ask, int], Ask]] = {
    "as is": lambda ask, k: ask,
    "oracle": alone,
    "closed book": without,
}


def measure_remedy(settings: Settings, text: str, dtype: str = DTYPE) -> xr.Dataset:
    """Return scores (set, question) under a condition; question k is about document k."""
    remedy = Remedy(text)
    engine = open_engine(settings, 1 if remedy.is_apart else 8, dtype)
    write = writer(engine)
    contexts = make_contexts(Task("documents", PLACES), settings.prompts, JUDGE)

    def read(k: int) -> Row:
        engine.forget()
        before = engine.requests, engine.tokens
        given = contexts[k].asks["competing"]
        asks = remedy.asks(contexts[k], engine, write)
        prompts = [write(ask) for ask in asks]
        found = answers_under(remedy.condition, engine, prompts)
        kept = [one.documents[j] in ask.documents for j, (one, ask) in enumerate(zip(given, asks, strict=True))]
        return {
            "correct": np.array([one.is_greedy for one in found], dtype=np.int16),
            "log_probability": np.array([one.log_probability for one in found]),
            "kept": np.array(kept, dtype=np.int16),
            "requests": np.array((engine.requests - before[0]) / PLACES),
            "tokens_read": np.array((engine.tokens - before[1]) / PLACES),
        }

    path = unfinished(settings, f"{short_name(text)}-{dtype}")
    rows = go_on(settings.prompts, read, path, "sets")
    return save_rows(rows, DIMS, provenance(settings, dtype) | {"condition": text})


def answers_under(condition: Any, engine: SetEngine, prompts: Sequence[Prompt]) -> list[Any]:
    """Return how likely each answer is; the model is changed while its prompts are read."""
    if condition.changes not in ("model", "reading"):
        return list(engine.loglikelihood(prompts))
    if engine.together > 1:  # the same change for all of them
        with condition.changed(engine.model, prompts[0]):
            return list(engine.loglikelihood(prompts))
    # documents' windows are set where the whole model is called, which a SetEngine goes past
    engine.requests += len(prompts)
    engine.tokens += sum(len(one.ids) + len(one.answer_ids) - 1 for one in prompts)
    alone = LocalEngine(engine.model, engine.tokenizer, changed=condition.changed)
    return list(alone.loglikelihood(prompts))


def measure_heads(settings: Settings) -> xr.Dataset:
    """Return where each head points in each question, on the sets that chose and on those that judge."""
    engine = open_engine(settings)
    write = writer(engine)
    arrays = {}
    for name, seed, count in (("chosen_on", CHOOSE, CHOOSING), ("judged_on", JUDGE, settings.prompts)):
        contexts = make_contexts(Task("documents", PLACES), count, seed)

        def read(k: int, contexts: Sequence[Context] = contexts) -> Row:
            asks = contexts[k].asks["competing"]
            shares = [attended(engine.reader, write(ask)) for ask in asks]
            return {"attention": np.stack(shares).astype(np.float16)}

        rows = go_on(count, read, unfinished(settings, f"heads-{name}"), "sets")
        dims = (f"set_{name}", "question", "layer", "head", "document")
        arrays[name] = (dims, rows["attention"], {"long_name": MEANINGS["attention"]})
    return xr.Dataset(arrays, attrs=provenance(settings) | {"best": BEST, "ten": TEN})


def measure_alarm(settings: Settings) -> xr.Dataset:
    """Return what tells a wrong answer: where heads point, what deletion says, and where the answer stands.

    Of each set all questions, and, with ``none`` in front, one about a ninth document that is not there.
    """
    engine = open_engine(settings)
    write = writer(engine)
    contexts = make_contexts(Task("documents", PLACES), settings.prompts, JUDGE)
    others = make_contexts(Task("documents", PLACES + 1), settings.prompts, JUDGE + 1)

    def read(k: int) -> Row:
        engine.forget()
        asks = list(contexts[k].asks["competing"])
        row = {**signals(engine, write, asks)}
        found = list(engine.loglikelihood([write(ask) for ask in asks]))
        row["correct"] = np.array([one.is_greedy for one in found], dtype=np.int16)
        nine = others[k].asks["competing"]
        asked = k % len(nine)
        missing = [nine[asked].with_documents([j for j in range(len(nine)) if j != asked])]
        return row | {f"none_{name}": x for name, x in signals(engine, write, missing).items()}

    rows = go_on(settings.prompts, read, unfinished(settings, "alarm"), "sets")
    return save_rows(rows, DIMS, provenance(settings))


def signals(engine: SetEngine, write: Write, asks: Sequence[Ask]) -> dict[str, np.ndarray]:
    """Return by question the document that states the answer given, attention, and what deletion costs."""
    heads = read_heads(BEST)
    prompts = [write(ask) for ask in asks]
    given = list(engine.generate(prompts, FACT_MOST, FACT_END))
    attention = [point(attended(engine.reader, prompt), heads) for prompt in prompts]
    scored = [replace(prompt, answer_ids=one.ids) for prompt, one in zip(prompts, given, strict=True)]
    whole = [one.log_probability for one in engine.loglikelihood(scored)]
    removed = []
    for j in range(PLACES):
        left = [k for k in range(PLACES) if k != j]
        less = [write(ask.with_documents(left)) for ask in asks]
        again = [replace(x, answer_ids=one.ids) for x, one in zip(less, given, strict=True)]
        removed.append([x.log_probability for x in engine.loglikelihood(again)])
    source = []
    for ask, one in zip(asks, given, strict=True):
        stating = [j for j, text in enumerate(ask.documents) if f" {one.text.strip()}." in text]
        source.append(stating[0] if len(stating) == 1 and one.text.strip() else -1)
    return {
        "source": np.array(source, dtype=np.int16),
        "attention": np.array(attention),
        "removed": np.array(removed).T - np.array(whole)[:, None],
    }
