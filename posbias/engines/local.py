"""The model in this process as an engine; of prompts that begin alike what two have in common is read once.

Keys and values of a token depend on nothing behind it, so that the cache of one prompt, cut where the next one differs,
is where that goes on.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise, takewhile
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from posbias.engines import Generated, Likelihood, has_ended
from posbias.prompts import Prompt

TOLERANCE, HALF = 1e-3, 0.5
"""Nats that may be lost by rounding, in 32 bits and in 16."""
BATCH, TOKENS = 8, 2**14
"""Prompts that are answered side by side, and tokens that they have in all, at most."""
PIECE = 512
"""Most tokens read at a time into a cache: fused attention with a cache computes what the causal mask hides, too."""

Ends = Callable[[Sequence[int], int], bool]
"""Whether a token, behind those of an answer so far, ends it."""


class Reader:
    """Read prompts one after another, each from where it differs from the one before if ``shared``, else whole."""

    def __init__(self, model: Any, shared: bool = True) -> None:
        self.model, self.shared, self.device = model, shared, model.get_input_embeddings().weight.device
        self.forget()

    def forget(self) -> None:
        """Drop what is kept of the last prompt."""
        self.cache: Any = None
        self.seen: tuple[int, ...] = ()

    @torch.no_grad()
    def logits(self, ids: Sequence[int], keep: int) -> Float[Tensor, "keep v"]:
        """Return the next-token logits at the last ``keep`` tokens, in 64 bits."""
        ids, common = tuple(ids), 0
        if self.shared:
            same = takewhile(lambda two: two[0] == two[1], zip(ids, self.seen, strict=False))
            common = min(sum(1 for _ in same), len(ids) - keep)
        try:
            if common and len(self.seen) > common:
                self.cache.crop(common - len(self.seen))
        except RuntimeError:  # the cache of a window that is full cannot be cut
            common = 0
        if not common:
            self.forget()
        inputs = torch.tensor([ids], device=self.device)
        ends = range(common + PIECE, len(ids) - keep + 1, PIECE) if self.shared else ()
        for start, end in pairwise([common, *ends, len(ids)]):
            more: dict[str, Any] = {"past_key_values": self.cache} if start else {}
            out = self.model(input_ids=inputs[:, start:end], use_cache=self.shared, logits_to_keep=keep, **more)
            if self.shared:
                self.cache, self.seen = getattr(out, "past_key_values", None), ids[:end]
        return out.logits[0, -keep:].double().cpu()

    def answer(self, ids: Sequence[int], answer: Sequence[int]) -> tuple[float, bool]:
        """Return an answer's log-probability behind a prompt, and whether each of its tokens is the likeliest."""
        logits = self.logits((*ids, *answer[:-1]), len(answer))
        tokens = torch.tensor(answer)
        told = float(logits.log_softmax(-1).gather(-1, tokens[:, None]).sum())
        return told, bool((logits.argmax(-1) == tokens).all())

    def greedy(self, ids: Sequence[int], most: int, ends: Ends) -> list[int]:
        """Return the likeliest tokens behind a prompt, one after another, until the next one ``ends`` those so far."""
        tokens: list[int] = []
        while len(tokens) < most and not ends(tokens, token := int(self.logits((*ids, *tokens), 1)[0].argmax())):
            tokens.append(token)
        return tokens


def rounding(model: Any) -> float:
    """Return by how many nats an answer may differ where its prompt was not read whole."""
    return TOLERANCE if next(model.parameters()).dtype.itemsize >= 4 else HALF


def open_reader(model: Any, trial: Sequence[tuple[Sequence[int], Sequence[int]]], known: float | None = None) -> Reader:
    """Return a reader that reads beginnings once, if the last answer of a ``trial`` comes out as if read whole.

    ``known`` is that answer's log-probability where its prompt was read whole before.
    """
    whole, one = Reader(model, shared=False), Reader(model)
    try:
        found = [one.answer(*x)[0] for x in trial][-1]
        if abs(found - (whole.answer(*trial[-1])[0] if known is None else known)) <= rounding(model):
            return one
    except Exception:  # caches that cannot be cut say so in many ways
        pass
    return whole


def as_it_is(model: Any, prompt: Prompt) -> AbstractContextManager[None]:
    """Change nothing of a model."""
    return nullcontext()


def batched(prompts: Sequence[Prompt]) -> Iterator[Sequence[Prompt]]:
    """Yield as many prompts at a time as are answered side by side."""
    longest = max((len(prompt.ids) for prompt in prompts), default=1)
    size = max(1, min(BATCH, TOKENS // longest))
    for start in range(0, len(prompts), size):
        yield prompts[start : start + size]


@torch.no_grad()
def greedy_batch(model: Any, tokenizer: Any, prompts: Sequence[Prompt], most: int, until: str = "") -> list[Generated]:
    """Return the likeliest answers of prompts that are read side by side, padded on their left."""
    from transformers import GenerationConfig

    special = sorted({*tokenizer.all_special_ids})
    n, pad = max(len(prompt.ids) for prompt in prompts), special[0] if special else 0
    rows = [[pad] * (n - len(prompt.ids)) + [*prompt.ids] for prompt in prompts]
    ids = torch.tensor(rows, device=model.get_input_embeddings().weight.device)
    lengths = torch.tensor([len(prompt.ids) for prompt in prompts], device=ids.device)
    mask = (torch.arange(n, device=ids.device) >= n - lengths[:, None]).long()
    logs: list[Tensor] = []

    def watch(ids: Tensor, logits: Tensor) -> Tensor:
        logs.append(logits.double().log_softmax(-1).amax(-1).cpu())
        return logits

    def ended(ids: Tensor, scores: Any, **more: Any) -> Tensor:
        return torch.tensor([has_ended(tokenizer.decode(row), until) for row in ids[:, n:]], device=ids.device)

    own, model.generation_config = model.generation_config, GenerationConfig()  # or its author's penalties would count
    try:
        how: dict[str, Any] = {"do_sample": False, "eos_token_id": special or None, "pad_token_id": pad}
        how |= {"logits_processor": [watch], "stopping_criteria": [ended]}
        found = model.generate(ids, attention_mask=mask, max_new_tokens=most, **how)[:, n:].tolist()
    finally:
        model.generation_config = own
    told = torch.stack(logs, 1)
    return [_cut(tokenizer, row, log, until) for row, log in zip(found, told, strict=True)]


def _cut(tokenizer: Any, tokens: Sequence[int], logs: Tensor, until: str) -> Generated:
    """Return an answer up to where it ends."""
    special = {*tokenizer.all_special_ids}
    ids = list(takewhile(lambda token: token not in special, tokens))
    if ids and has_ended(tokenizer.decode(ids), until):
        del ids[-1]
    log = float(logs[: len(ids)].sum()) if ids else float("nan")
    return Generated(tokenizer.decode(ids), tuple(ids), log, len(ids), len(ids) == len(tokens))


class LocalEngine:
    """Ask a model in this process, which ``changed`` may change while it reads a prompt.

    ``trial`` are two prompts that begin alike: what prompts have in common is read once if the second comes out so as
    if it was read whole, or as ``known`` says. Without them every prompt is read whole.
    """

    has_loglikelihood = True
    has_gradients = True

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        trial: Sequence[Prompt] = (),
        *,
        known: float | None = None,
        changed: Callable[[Any, Prompt], AbstractContextManager[None]] = as_it_is,
    ) -> None:
        self.model, self.tokenizer, self.changed = model, tokenizer, changed
        self.name = str(getattr(model, "name_or_path", "")) or type(model).__name__
        self.requests = self.tokens = 0
        rows = [(prompt.ids, prompt.answer_ids) for prompt in trial]
        self.reader = open_reader(model, rows, known=known) if rows else Reader(model, shared=False)

    def loglikelihood(self, prompts: Sequence[Prompt]) -> Iterator[Likelihood]:
        """Yield how likely the answer of each prompt is."""
        for prompt in prompts:
            with self.changed(self.model, prompt):
                found = Likelihood(*self.reader.answer(prompt.ids, prompt.answer_ids))
            self._count(len(prompt.ids) + len(prompt.answer_ids) - 1)
            yield found

    def generate(self, prompts: Sequence[Prompt], most: int, until: str = "") -> Iterator[Generated]:
        """Yield an answer to each prompt, its likeliest token each time.

        An answer ends before a special token, or before a token with a letter of ``until`` that follows a word. Some
        prompts are answered at once, unless the model is changed for each or reads their common beginnings once.
        """
        if self.changed is as_it_is and not self.reader.shared:
            for some in batched(prompts):
                found = greedy_batch(self.model, self.tokenizer, some, most, until)
                for prompt, one in zip(some, found, strict=True):
                    self._count(len(prompt.ids) + len(one.ids))
                    yield one
            return
        special = {*self.tokenizer.all_special_ids}

        def ends(tokens: Sequence[int], token: int) -> bool:
            return token in special or has_ended(self.tokenizer.decode([*tokens, token]), until)

        for prompt in prompts:
            with self.changed(self.model, prompt):
                ids, log = self._own_answer(prompt.ids, most, ends)
            self._count(len(prompt.ids) + len(ids))
            yield Generated(self.tokenizer.decode(ids), tuple(ids), log, len(ids), len(ids) == most)

    def _own_answer(self, ids: Sequence[int], most: int, ends: Ends) -> tuple[list[int], float]:
        """Return the likeliest tokens behind a prompt, and their log-probability.

        Where prompts are read whole, because a change may depend on what follows, tokens are first found with a cache.
        All read once more whole have to say the same, but for rounding, or each is found with all before it read again.
        """
        reader = self.reader
        for finder in (reader,) if reader.shared else (Reader(self.model), reader):
            tokens = finder.greedy(ids, most, ends)
            logs = reader.logits((*ids, *tokens), len(tokens) + 1).log_softmax(-1)
            told = logs[:-1].gather(-1, torch.tensor(tokens, dtype=torch.long)[:, None])[:, 0]
            lost = float((logs[:-1].amax(-1) - told).sum())
            nearly = (logs[-1] >= logs[-1].max() - rounding(self.model)).nonzero()[:, 0].tolist()
            if lost <= rounding(self.model) and (len(tokens) == most or any(ends(tokens, token) for token in nearly)):
                break
        return tokens, float(told.sum()) if tokens else float("nan")

    def _count(self, tokens: int) -> None:
        """Add a request to what was asked."""
        self.requests += 1
        self.tokens += tokens
