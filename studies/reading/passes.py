"""Documents are read once, and each question from there on: as the model is, or with what some heads do changed.

Questions about one set of documents have their beginning in common, so its keys and values are kept. Behind a question
stand all answers that the documents state, each seeing the question and itself alone, so that one pass says how likely
each of them is. A :class:`Change` acts from the first token of the question on: documents are read as they always are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import DynamicCache

from posbias import errors
from posbias.measure.instrument import Instrument
from posbias.models.attention import Reading, handed
from posbias.models.families import text_config
from posbias.models.hooks import given, hooked, regiven, returned
from posbias.prompts import Ask, write_prompt

Head = tuple[int, int]
"""A layer and a head in it, counted from 0."""


@dataclass(frozen=True)
class Question:
    """Hold a question's tokens, with those that all answers begin with, and what each answer goes on with."""

    tail: tuple[int, ...]
    rests: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class DocumentSet:
    """Hold the tokens that all questions about some documents begin with, which of them is in which, and questions.

    ``segment`` is 0 before the first document, which is 1.
    """

    ids: tuple[int, ...]
    segment: Int[np.ndarray, "n"]
    questions: tuple[Question, ...]


@dataclass
class Seen:
    """Hold what was seen in a pass from the question on: a row for each of its tokens, then those of the answers.

    ``weights`` (head, row, key), ``outputs`` (head, row, feature) by layer; ``streams`` (layer, feature) is what enters
    each layer at the question's last token, and what leaves the last one.
    """

    weights: list[Float[Tensor, "H r k"]] = field(default_factory=list)
    outputs: list[Float[Tensor, "H r D"]] = field(default_factory=list)
    streams: list[Float[Tensor, "d"]] = field(default_factory=list)


@dataclass(frozen=True)
class Change:
    """Say what some heads do otherwise from the question on, and what enters a layer at the question's last token.

    Logits of ``heads`` (all if None) are multiplied by ``factor``. ``outputs`` has by head what stands in place of its
    averages of values, for the first rows, as many as are given. ``stream`` is a layer, and what enters it.
    """

    factor: float = 1.0
    heads: Sequence[Head] | None = None
    outputs: Mapping[Head, Float[Tensor, "r D"]] = field(default_factory=dict)
    stream: tuple[int, Float[Tensor, "d"]] | None = None


AS_IT_IS = Change()


def lay_out(tokenizer: Any, asks: Sequence[Ask], numbers: Sequence[int] | None = None) -> DocumentSet:
    """Return a set of documents with its questions, as tokens in the chat template.

    ``numbers`` are what documents are called in place of 1, 2, …
    """
    count = len(asks)
    if numbers is not None:
        asks = [named(ask, numbers) for ask in asks]
    prompts = [write_prompt(tokenizer, "documents", ask, True, False) for ask in asks]
    answers = [prompt.answer_ids for prompt in prompts]
    n = int((prompts[0].segment <= count).sum())
    starts = {prompt.ids[:n] for prompt in prompts}
    if len(starts) > 1:
        raise errors.invalid("documents", "the same ones for each question", f"{len(starts)} beginnings")
    shared = shared_tokens(answers)
    tails = [(*prompt.ids[n:], *answers[0][:shared]) for prompt in prompts]
    rests = tuple(answer[shared:] for answer in answers)
    return DocumentSet(starts.pop(), prompts[0].segment[:n], tuple(Question(tail, rests) for tail in tails))


def named(ask: Ask, numbers: Sequence[int]) -> Ask:
    """Return what is asked with documents called by these numbers."""
    documents = tuple(f"Document {k}: {text}" for k, text in zip(numbers, ask.documents, strict=True))
    return replace(ask, documents=documents, label="")


def shared_tokens(answers: Sequence[Sequence[int]]) -> int:
    """Return how many tokens all answers begin with; each has at least one more.

    >>> shared_tokens([(7, 1, 2), (7, 1, 3), (7, 1)])
    1
    """
    shared = 0
    for together in zip(*(answer[:-1] for answer in answers), strict=False):
        if len(set(together)) > 1:
            break
        shared += 1
    return shared


class Passes:
    """Read sets of documents with one model, and tell how likely each answer is."""

    def __init__(self, instrument: Instrument) -> None:
        self.model: Any = instrument.model
        self.layers = instrument.layers
        self.modules = {module: t for t, module in enumerate(instrument.attentions)}
        self.cache: Any = None
        self.next = 0.0  # the rotary position of the question's first token
        self.step = 1.0  # and how far it is to the next one

    @torch.no_grad()
    def read_documents(
        self,
        ids: Sequence[int],
        positions: Float[np.ndarray, "n"] | None = None,
        visible: Bool[np.ndarray, "n n"] | None = None,
        after: tuple[float, float] | None = None,
    ) -> None:
        """Read documents into the cache, at other rotary positions or with some hidden if these are given.

        ``after`` is the position of the question's first token, and the step from one to the next.
        """
        n = len(ids)
        where = np.arange(n) if positions is None else positions
        self.next, self.step = after or (float(n), 1.0)
        self.cache = DynamicCache()
        mask = None if visible is None else added_mask(torch.from_numpy(visible))
        self.model(
            input_ids=torch.tensor([ids]),
            attention_mask=mask,
            position_ids=torch.tensor(where)[None],
            past_key_values=self.cache,
            logits_to_keep=1,
        )

    @torch.no_grad()
    def ask(self, question: Question, change: Change = AS_IT_IS, seen: Seen | None = None) -> Float[np.ndarray, "P"]:
        """Return the log-probability of each answer behind a question, in nats."""
        tail, rests = question.tail, question.rests
        before, n = self.cache.get_seq_length(), len(tail)
        owner = np.concatenate([np.full(n, -1), *(np.full(len(x) - 1, k) for k, x in enumerate(rests))]).astype(int)
        depth = np.concatenate([np.arange(n), *(n + np.arange(len(x) - 1) for x in rests)])
        mine = (owner[None, :] == -1) | (owner[None, :] == owner[:, None])
        visible = np.concatenate([np.ones((len(owner), before), bool), np.tri(len(owner), dtype=bool) & mine], axis=1)
        ids = [*tail, *(token for rest in rests for token in rest[:-1])]
        with self.changed(change, n, seen):
            out = self.model(
                input_ids=torch.tensor([ids]),
                attention_mask=added_mask(torch.from_numpy(visible)),
                position_ids=torch.tensor(self.next + self.step * depth)[None],
                past_key_values=self.cache,
                logits_to_keep=len(ids) - n + 1,
            )
        self.cache.crop(-len(ids))
        told = out.logits[0].double().log_softmax(-1)
        return np.array([self._sum(told, rest, owner[n:] == k) for k, rest in enumerate(rests)])

    @torch.no_grad()
    def lens(self, streams: Float[Tensor, "L d"], tokens: Sequence[int]) -> Float[Tensor, "L k"]:
        """Return logits of tokens, with the model's own last norm and unembedding on streams of any layer."""
        unembedding = self.model.get_output_embeddings().weight[list(tokens)]
        return self.model.base_model.norm(streams) @ unembedding.T

    @staticmethod
    def _sum(told: Float[Tensor, "r v"], rest: Sequence[int], own: Bool[np.ndarray, "_"]) -> float:
        rows = [0, *(np.flatnonzero(own) + 1).tolist()]
        return float(told[rows, list(rest)].sum())

    @contextmanager
    def changed(self, change: Change, n: int, seen: Seen | None) -> Iterator[None]:
        """Have attention computed with a change, and what it does written down, until the block ends."""
        before: list[tuple[nn.Module, Any]] = []
        after: list[tuple[nn.Module, Any]] = []
        if change.stream is not None:
            layer, stream = change.stream
            before.append((self.layers[layer], partial(enter, n - 1, stream)))
        if seen is not None:

            def keep(module: nn.Module, args: Any, kwargs: Any) -> None:
                seen.streams.append(given(args, kwargs)[0, n - 1].clone())

            before += [(layer, keep) for layer in self.layers]
            after.append((self.layers[-1], lambda m, a, out: seen.streams.append(returned(out)[0, n - 1].clone())))
        with ExitStack() as stack:
            stack.enter_context(hooked(before, after))
            if change.factor != 1 or change.outputs or seen is not None:
                attend = attend_with(change, seen)
                stack.enter_context(handed(text_config(self.model.config), self.modules, attend))
            yield


def enter(row: int, stream: Float[Tensor, "d"], module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return a layer's arguments with another stream at one row."""
    x = given(args, kwargs).clone()
    x[0, row] = stream
    return regiven(args, kwargs, x)


def attend_with(change: Change, seen: Seen | None) -> Callable[[Reading], Float[Tensor, "1 H r D"]]:
    """Return what computes a layer's attention with a change, and writes down what it does."""

    def attend(reading: Reading) -> Float[Tensor, "1 H r D"]:
        query, H = reading.query, reading.shape[1]
        assert reading.mask is not None  # a question's own, of :func:`added_mask`
        if change.factor != 1:
            chosen = range(H) if change.heads is None else [h for t, h in change.heads if t == reading.layer]
            factor = torch.ones(H, 1, 1)
            factor[list(chosen)] = change.factor
            query = query * factor
        weights = (query @ reading.keys * reading.scale + reading.mask).softmax(-1)
        out = weights @ reading.values
        for (layer, head), instead in change.outputs.items():
            if layer == reading.layer:
                rows = min(len(instead), out.shape[2])
                out[0, head, :rows] = instead[:rows]
        if seen is not None:
            seen.weights.append(weights[0])
            seen.outputs.append(out[0].clone())
        return out

    return attend


def added_mask(visible: Bool[Tensor, "r k"]) -> Float[Tensor, "1 1 r k"]:
    """Return what is added to logits so that only visible keys have weights."""
    hidden = torch.finfo(torch.float32).min
    return torch.zeros(visible.shape).masked_fill(~visible, hidden)[None, None]
