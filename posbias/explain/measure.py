"""Explain one prompt: deletions of its segments, their influence and contributions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from posbias import errors
from posbias.engines.local import Reader as CacheReader
from posbias.engines.local import open_reader
from posbias.explain.explanation import Explanation
from posbias.explain.prompt import by_segment, check_asked, label, token_texts, write
from posbias.measure.corpus import Corpus
from posbias.measure.progress import progress as told
from posbias.measure.run import measure
from posbias.measure.session import Session
from posbias.models.loading import check_fits
from posbias.models.weights import is_out_of_memory, out_of_memory
from posbias.predict import predict
from posbias.prompts import Prompt
from posbias.settings import KERNEL_SIZE, Settings

LEAST = 12
"""Tokens that the model answers itself, unless the answer given has more."""


@dataclass(frozen=True)
class Target:
    """Name the tokens that follow the prompt, and which number of theirs influence is a derivative of."""

    tokens: tuple[int, ...]  # None, for the likeliest token, until the model was asked
    of: str
    words: str

    def value(self, logits: Float[Tensor, "..."]) -> Float[Tensor, "B"]:
        """Return that number for each prompt, from the logits (B, v) of one token or (B, m, v) of an answer's m."""
        log = self._log_probability(logits)
        return log if self.of == "log-probability" else log.exp()

    def log_value(self, logits: Float[Tensor, "..."]) -> float:
        """Return the log-probability of the tokens, for one prompt."""
        return float(self._log_probability(logits)[0])

    def _log_probability(self, logits: Float[Tensor, "..."]) -> Float[Tensor, "B"]:
        """Return the sum over the tokens."""
        z = logits if logits.ndim == 3 else logits[:, None]
        ids = torch.tensor(self.tokens, device=z.device).expand(len(z), -1)
        return z.log_softmax(-1).gather(-1, ids[..., None])[..., 0].sum(-1)


def explain(settings: Settings, text: Any, *, deletions: bool, progress: bool, **asked: Any) -> Explanation:
    """Return what a prompt's parts do.

    ``asked`` is that of :func:`prepare`, which refuses before the model is loaded what is wrong with the prompt or its
    answer, and what does not fit the context or the memory.
    """
    with told(1, "prompt", "writing", shown=progress) as bar:
        prompt, chosen, session = prepare(settings, text, **asked)
        bar.update()
    try:
        with told(1, "model", "loading", shown=progress) as bar:
            reader = Reader(prompt, chosen, session, progress)
            bar.update()
        contributed = reader.contributions()  # a measurement, which checks the instrument
        if contributed is None:
            session.check_instrument()
        return reader.explain(contributed, deletions)
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        raise out_of_memory() if is_out_of_memory(error) else error from None


def preview(settings: Settings, text: Any, *, deletions: bool, **asked: Any) -> str:
    """Return the segments of a prompt with their tokens, and what would be read; no weights are."""
    prompt, chosen, session = prepare(settings, text, **asked)
    n, names = len(prompt.ids), (label(text, k) for k, text in enumerate(prompt.texts, 1))
    parts = [f"{x}: {span.stop - span.start} tokens" for x, span in zip(names, prompt.segments, strict=True)]
    read = [f"a gradient of {n} tokens"]
    read += ["contributions"] * (session.family is not None and n <= KERNEL_SIZE)
    read += [f"{len(parts)} deletions, each from where its segment begins"] * deletions
    return "\n".join([f"{chosen.words}, behind {len(parts)} segments", *parts, f"To be read: {', '.join(read)}"])


def prepare(
    settings: Settings, text: Any, *, segments: str | Sequence[str] | None, answer: str | None
) -> tuple[Prompt, Target, Session]:
    """Return the prompt, its target, and the session that reads it."""
    check_asked(text, answer)
    config, tokenizer = settings.source.config(), settings.source.load_tokenizer()
    prompt = write(tokenizer, text, segments, answer, settings.special_tokens)
    vocabulary, unknown = int(config.get_text_config().vocab_size), tokenizer.unk_token_id
    if bad := [token for token in prompt.answer_ids if token >= vocabulary or token == unknown]:
        raise errors.invalid("answer", "tokens that the model has", f"{bad[0]} in {prompt.answer[:40]!r}")
    chosen, n = Target((), "probability", "the probability of the likeliest next token"), len(prompt.ids)
    if prompt.answer_ids:
        words = f"the log-probability of the answer {prompt.answer!r}"
        chosen = Target(prompt.answer_ids, "log-probability", words)
    alone = Corpus("prompt", given=(prompt.text,))
    check_fits(config, tokenizer, n + max(len(chosen.tokens) - 1, 0))
    return prompt, chosen, Session(replace(settings, length=n, corpus=alone, prompts=1, rule="first"))


class Reader:
    """Read a prompt with a model: its influence, contributions and values, as it is and without segments."""

    def __init__(self, prompt: Prompt, target: Target, session: Session, progress: bool = False) -> None:
        self.prompt, self.target, self.session, self.instrument = prompt, target, session, session.instrument
        self.progress = progress
        if not target.tokens:  # the likeliest of the prompt as it is, also where segments are gone
            top = int(self.instrument.tail(torch.tensor([prompt.ids]), 1)[0, -1].argmax())
            words = f"{target.words}, {session.tokenizer.decode([top])!r}"
            self.target = replace(target, tokens=(top,), words=words)

    def influence(self) -> tuple[Float[np.ndarray, "n"], float]:
        """Return each token's share of influence, and the target's value."""
        ids = torch.tensor([[*self.prompt.ids, *self.target.tokens[:-1]]])

        def value(logits: torch.Tensor) -> torch.Tensor:
            self.known = self.target.log_value(logits.detach())
            return self.target.value(logits)

        with told(1, "gradient", "influence", shown=self.progress) as bar:
            found = self.instrument.measure(ids, None, None, value, len(self.target.tokens))
            bar.update()
        size = found.influence[0].numpy()[: len(self.prompt.ids)]
        if not size.any():
            raise errors.invalid("influence", "gradients above 0", f"none in {self.session.precision}")
        return size / size.sum(), float(found.target_value[0])

    def contributions(self) -> Float[np.ndarray, "n"] | None:
        """Return each token's share in the state of the prompt's last token.

        None of a family without a row, and of a prompt whose matrices are not kept whole.
        """
        if self.session.family is None or len(self.prompt.ids) > KERNEL_SIZE:
            return None
        asked = replace(self.session.settings, quantities=("mixing", "influence", "contributions"))
        found = predict(measure(asked, self.session.prompts, progress=self.progress), "contributions")
        return np.asarray(found / found.sum())

    @cached_property
    def shorter(self) -> list[Prompt]:
        """The prompt as it is, and without each segment, from the last one to the first."""
        return [self.prompt, *(self.prompt.without(k) for k in reversed(range(len(self.prompt.segments))))]

    @cached_property
    def reader(self) -> CacheReader:
        """What reads the prompt again, from where it differs from what was read last, as the gradient's pass did."""
        trial = [(one.ids, self.target.tokens) for one in self.shorter[1::-1] if len(one.ids) > 1]
        return open_reader(self.instrument.model, trial, known=self.known)

    def answer(self) -> tuple[str | None, bool | None, bool]:
        """Return what the model itself answers, whether that begins with the answer given, or but for white space."""
        given, tokenizer = list(self.prompt.answer_ids), self.session.tokenizer
        if not given:
            return None, None, False
        ends, most = {*tokenizer.all_special_ids}, max(LEAST, len(given))
        with told(1, "answer", "answering", shown=self.progress) as bar:
            own = self.reader.greedy(self.prompt.ids, most, lambda _, token: token in ends)
            bar.update()
        said, is_own = tokenizer.decode(own).strip(), own[: len(given)] == given
        return said, is_own, not is_own and said.startswith(tokenizer.decode(given).strip())

    def delete_segments(self) -> list[float]:
        """Return by how much the target's log-probability changes without each segment; NaN where one token is left.

        What stands before the segment that is gone was read with the whole prompt.
        """
        with told(len(self.shorter), "deletions", "deleting", shown=self.progress) as bar:
            values = []
            for one in self.shorter:
                known = len(one.ids) > 1
                values.append(self.reader.answer(one.ids, self.target.tokens)[0] if known else np.nan)
                bar.update()
        return [value - values[0] for value in values[:0:-1]]

    def explain(self, contributed: Float[np.ndarray, "n"] | None, deletions: bool) -> Explanation:
        """Return everything that is to be said of the prompt."""
        prompt = self.prompt
        share, value = self.influence()
        answered = self.answer()
        tokens = pd.DataFrame({
            "token": token_texts(self.session.tokenizer, prompt), "id": prompt.ids,
            "segment": prompt.segment + 1, "share": share,
        }).rename_axis("position")  # fmt: skip
        segments = pd.DataFrame({
            "label": [label(text, k) for k, text in enumerate(prompt.texts, 1)],
            "text": prompt.texts, "tokens": [span.stop - span.start for span in prompt.segments],
            "removed": self.delete_segments() if deletions else np.nan, "share": by_segment(share, prompt.segment),
            "contributed": np.nan if contributed is None else by_segment(contributed, prompt.segment),
        }, index=pd.RangeIndex(1, len(prompt.texts) + 1, name="segment"))  # fmt: skip
        model = self.session.settings.source.name().removeprefix("reference/")
        return Explanation(model, self.target.words, value, tokens, segments, *answered)
