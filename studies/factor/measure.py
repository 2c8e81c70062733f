"""Prompts of passages in balanced orders before a fixed question, and the influence of each passage."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
import xarray as xr
from jaxtyping import Int

from posbias import errors
from posbias.measure.corpus import Prompts, document_units, make_prompts, start_tokens
from posbias.measure.session import Session
from posbias.models.loading import check_fits
from posbias.settings import Settings

QUESTION = (
    "Above are some passages, each of them from a text of its own. Read them again from the first to the last one."
    "\n\nQuestion: what do they all say?\nAnswer:"
)
ASKED = 15
"""Fewest tokens of the question: it is cut on the left to what passages leave of the prompt."""


SKIPPED = 256
"""Documents of which no passage is: the prompts of which models.nc has the profile are from these."""


class PassagesSession(Session):
    """Hold the prompts of sets of passages: a set's come one after another, all of its orders."""

    def __init__(self, settings: Settings, passages: int) -> None:
        """Take settings whose ``prompts`` are sets of passages; ``length`` is that of a whole prompt."""
        tokenizer, self.sets = settings.source.load_tokenizer(), settings.prompts
        check_fits(settings.source.config(), tokenizer, settings.length)
        self.front = start_tokens(tokenizer) if settings.special_tokens else []
        self.tokens = (settings.length - len(self.front) - ASKED) // errors.positive_integer("passages", passages)
        if passages < 3 or self.tokens < 2:
            wanted = "at least three passages of two tokens, and room for them"
            raise errors.invalid("passages", wanted, f"{passages} in {settings.length} tokens")
        rng = np.random.default_rng(settings.seed)
        self.orders = np.stack([balanced_orders(passages, rng) for _ in range(self.sets)])
        found = _passages(settings, self.sets * passages, self.tokens)
        self.documents = found.origins.reshape(self.sets, -1)
        placed = self._place(found, settings.length, tokenizer(QUESTION, add_special_tokens=False)["input_ids"])
        super().__init__(replace(settings, prompts=self.orders[..., 0].size), placed)

    def _place(self, found: Prompts, length: int, asked: list[int]) -> Prompts:
        """Return every set in all of its orders, before the end of the question."""
        sets, _, K = self.orders.shape
        passages = found.ids.reshape(sets, -1, self.tokens)
        room = length - len(self.front) - K * self.tokens
        if len(asked) < room:
            raise errors.invalid("length", f"less: at most {len(asked)} tokens are left to the question", room)
        placed = np.stack([passages[s][self.orders[s]].reshape(2 * K, -1) for s in range(sets)])
        rows = [np.concatenate([self.front, x, asked[-room:]]) for x in placed.reshape(sets * 2 * K, -1)]
        return Prompts(np.stack(rows).astype(np.int64), np.repeat(np.arange(sets), 2 * K))


def _passages(settings: Settings, wanted: int, tokens: int) -> Prompts:
    """Return a passage of each unit, from inside its first document that is not left out."""
    corpus, tokenizer, units = settings.corpus, settings.source.load_tokenizer(), 0
    there = sum(1 for _ in corpus.documents())
    for count in range(SKIPPED + wanted, there + 1, wanted):  # as many as it takes
        found = make_prompts(corpus, tokenizer, count, tokens, rule="cut", special_tokens=False)
        later = np.flatnonzero(found.origins >= SKIPPED)
        _, first = np.unique(document_units(found.origins, corpus.dataset)[later], return_index=True)
        units = first.size
        if units >= wanted:
            rows = later[np.sort(first)[:wanted]]
            return Prompts(found.ids[rows], found.origins[rows])
    expected = f"passages of {wanted} units (modules of the built-in documents, documents of others)"
    raise errors.invalid(f"dataset {corpus.dataset}", expected, f"{units} of {there} documents")


def balanced_orders(K: int, rng: np.random.Generator) -> Int[np.ndarray, "O K"]:
    """Return 2K orders of K passages: row o has at each place the passage that stands there.

    Each passage is at each place once in the first K orders, and once in the others. For even K each half is a square
    of Williams with passages drawn anew: every passage stands directly behind every other once. For odd K the second
    half is the first one backwards, and behind every other a passage stands twice in both together.

    Source: Williams 1949, designs balanced for the effects of what comes before.
    """
    first = np.array([(j + 1) // 2 if j % 2 else -(j // 2) for j in range(K)])
    square = (first + np.arange(K)[:, None]) % K
    if K % 2 == 0:
        return np.concatenate([rng.permutation(K)[square], rng.permutation(K)[square]])
    return rng.permutation(K)[np.concatenate([square, square[:, ::-1]])]


def measure_factor(settings: Settings, passages: int) -> xr.Dataset:
    """Measure the influence of passages in all of their orders; ``prompts`` of the settings are sets of passages.

    ``influence`` (set, order, place) is Σ ‖∂p/∂embedding‖ over the tokens of the passage at a place, p the probability
    of the likeliest next token; ``question`` and ``start`` (set, order) have the sums of the others. ``passage``
    (set, order, place) says which passage stands there.
    """
    session = PassagesSession(settings, passages)
    front = len(session.front)
    readings = [session.instrument.measure(ids) for _, ids in session.batches()]
    g, probability = (torch.cat([getattr(x, name) for x in readings]) for name in ("influence", "probability"))
    ends = front + passages * session.tokens
    shape = session.orders.shape[:2]
    found = {
        "influence": (("set", "order", "place"), g[:, front:ends].reshape(*shape, passages, -1).sum(-1)),
        "question": (("set", "order"), g[:, ends:].sum(1).reshape(shape)),
        "start": (("set", "order"), g[:, :front].sum(1).reshape(shape)),
        "probability": (("set", "order"), probability.reshape(shape)),
    }
    data = xr.Dataset({name: (dims, x.numpy().astype(np.float32)) for name, (dims, x) in found.items()})
    data["passage"] = ("set", "order", "place"), session.orders.astype(np.int8)
    data["document"] = ("set", "source"), session.documents.astype(np.int32)
    more = {"prompts": session.sets, "rule": "passages from inside documents", "passages": passages}
    more |= {"tokens": session.tokens, "front": front, "skipped": SKIPPED}
    return data.assign_attrs(session.provenance() | more)
