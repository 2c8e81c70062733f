"""An engine that reads together what is asked together: prompts that begin alike are read from where they differ.

It gives what :class:`posbias.engines.local.LocalEngine` gives, but for rounding (a test holds the two together), in a
fraction of the time: a token of eight answers costs little more than a token of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import takewhile
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from posbias.engines import Generated, Likelihood
from posbias.engines.local import Reader
from posbias.prompts import Prompt

TOGETHER = 8
"""Prompts that are read at once, at most."""
WORTH = 16
"""Tokens in common below which prompts are read whole."""


class SetEngine:
    """Ask a model of transformers whose answers to the same prompt are known from the first time on."""

    has_loglikelihood = has_gradients = True

    def __init__(self, model: Any, tokenizer: Any, together: int = TOGETHER) -> None:
        self.model, self.tokenizer, self.together = model, tokenizer, together
        self.name = "the model of a study"
        self.reader = Reader(model)
        self.unembedding = model.get_output_embeddings().weight.detach().float()
        self.requests = self.tokens = 0
        self.known: dict[tuple[str, Any], Any] = {}
        self.cache: Any = None
        self.seen: tuple[int, ...] = ()

    def forget(self) -> None:
        """Drop answers that are known, and what is kept of the last prompts."""
        self.known, self.cache, self.seen = {}, None, ()
        self.reader.forget()

    def loglikelihood(self, prompts: Sequence[Prompt]) -> Iterator[Likelihood]:
        """Yield how likely the answer of each prompt is."""
        self._count(prompts, [len(prompt.answer_ids) - 1 for prompt in prompts])
        self._learn("likely", prompts, self._likely)
        yield from (self.known["likely", (prompt.ids, prompt.answer_ids)] for prompt in prompts)

    def generate(self, prompts: Sequence[Prompt], most: int, until: str = "") -> Iterator[Generated]:
        """Yield an answer to each prompt, of at most so many tokens, up to one with a letter of ``until``."""

        def give(some: Sequence[Prompt]) -> list[Generated]:
            return self._give(some, most, until)

        kind = f"given {most} {until}"
        self._learn(kind, prompts, give)
        found = [self.known[kind, (prompt.ids, prompt.answer_ids)] for prompt in prompts]
        self._count(prompts, [len(one.ids) for one in found])
        yield from found

    def _count(self, prompts: Sequence[Prompt], more: Sequence[int]) -> None:
        self.requests += len(prompts)
        self.tokens += sum(len(prompt.ids) for prompt in prompts) + sum(more)

    def _learn(self, kind: str, prompts: Sequence[Prompt], ask: Any) -> None:
        """Ask what is not known yet, some prompts at a time."""
        keys = {(prompt.ids, prompt.answer_ids): prompt for prompt in prompts}
        missing = [prompt for key, prompt in keys.items() if (kind, key) not in self.known]
        for start in range(0, len(missing), self.together):
            some = missing[start : start + self.together]
            for prompt, found in zip(some, ask(some), strict=True):
                self.known[kind, (prompt.ids, prompt.answer_ids)] = found

    def _likely(self, prompts: Sequence[Prompt]) -> list[Likelihood]:
        found = []
        for prompt, told in zip(prompts, self.read_answers(prompts), strict=True):
            tokens = torch.tensor(prompt.answer_ids)
            log = float(told.gather(-1, tokens[:, None]).sum())
            found.append(Likelihood(log, bool((told.argmax(-1) == tokens).all())))
        return found

    def read_answers(self, prompts: Sequence[Prompt]) -> list[Float[Tensor, "r v"]]:
        """Return the log-probabilities of all tokens at each token of the answers."""
        rows = [(*prompt.ids, *prompt.answer_ids[:-1]) for prompt in prompts]
        ends = [len(prompt.ids) for prompt in prompts]
        states, common, _ = self._read(rows, min(ends) - 1)
        found = []
        for k, prompt in enumerate(prompts):
            first = ends[k] - 1 - common
            own = states[k, first : first + len(prompt.answer_ids)]
            found.append(self._logits(own).log_softmax(-1))
        return found

    @torch.no_grad()
    def _give(self, prompts: Sequence[Prompt], most: int, until: str) -> list[Generated]:
        rows, special = [prompt.ids for prompt in prompts], {*self.tokenizer.all_special_ids}
        length = torch.tensor([len(row) for row in rows])
        states, common, past = self._read(rows, min(map(len, rows)) - 1)
        B, width = len(rows), states.shape[1]
        mask = (torch.arange(common + width) < length[:, None]).long()
        said: list[list[int]] = [[] for _ in rows]
        logs, done = [0.0] * B, [False] * B
        last = states[torch.arange(B), length - 1 - common]
        for _ in range(most):
            told = self._logits(last).log_softmax(-1)
            tokens = told.argmax(-1)
            for k, token in enumerate(tokens.tolist()):
                ended = bool(said[k]) and not {*until}.isdisjoint(self.tokenizer.decode([token]))
                done[k] |= token in special or ended
                if not done[k]:
                    said[k].append(token)
                    logs[k] += float(told[k, token])
            if all(done):
                break
            mask = torch.cat([mask, torch.ones(B, 1, dtype=mask.dtype)], 1)
            out = self.model.base_model(
                input_ids=tokens[:, None],
                attention_mask=mask,
                position_ids=length[:, None],
                past_key_values=past,
                use_cache=True,
            )
            last, length = out.last_hidden_state[:, 0], length + 1
        given = []
        for x, log in zip(said, logs, strict=True):
            text = self.tokenizer.decode(x)
            given.append(Generated(text, tuple(x), log if x else float("nan"), len(x)))
        return given

    @torch.no_grad()
    def _read(self, rows: Sequence[Sequence[int]], most: int) -> tuple[Float[Tensor, "B w d"], int, Any]:
        """Return the last states of rows from where they differ on, where that is, and the cache behind them."""
        common = self._begin(rows, most)
        past = None
        if common:
            past = deepcopy(self.cache)
            past.batch_repeat_interleave(len(rows))
        rest = [row[common:] for row in rows]
        width = max(map(len, rest))
        ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rest])
        length = torch.tensor([len(row) for row in rows])
        out = self.model.base_model(
            input_ids=ids,
            attention_mask=(torch.arange(common + width) < length[:, None]).long(),
            position_ids=common + torch.arange(width).expand(len(rows), -1),
            past_key_values=past,
            use_cache=True,
        )
        return out.last_hidden_state, common, out.past_key_values

    def _begin(self, rows: Sequence[Sequence[int]], most: int) -> int:
        """Have in the cache what rows begin with, at most so many tokens; return how many there are."""
        columns = takewhile(lambda column: len({*column}) == 1, zip(*rows, strict=False))
        common = min(sum(1 for _ in columns), most) if len(rows) > 1 else 0
        if common < WORTH:
            return 0
        start = tuple(rows[0][:common])
        if self.seen[:common] == start:
            if len(self.seen) > common:
                self.cache.crop(common - len(self.seen))
        else:
            out = self.model.base_model(input_ids=torch.tensor([start]), use_cache=True)
            self.cache = out.past_key_values
        self.seen = start
        return common

    def _logits(self, states: Float[Tensor, "r d"]) -> Float[Tensor, "r v"]:
        """Return logits in 64 bits of products in 32, so that a model in 16 bits has no ties."""
        return torch.nn.functional.linear(states.float(), self.unembedding).double()
