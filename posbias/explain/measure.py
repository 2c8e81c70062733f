"""Explain one prompt: deletions of its segments, their influence and contributions."""

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from posbias import errors
from posbias.conditions import ChangedRun, read_condition
from posbias.engines import Engine
from posbias.engines.local import LocalEngine, Reader
from posbias.explain.explanation import Explanation, segment_table
from posbias.explain.prompt import by_segment, check_asked, token_texts, write
from posbias.heads import Head, choose_heads, looked_at
from posbias.lookup.answers import FACT_END, find_holder
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


def explain(settings: Settings, text: Any, *, answer: str | None, heads: str | None, progress: bool) -> Explanation:
    """Return what a prompt's parts do.

    Refused before the model is loaded is what is wrong with the prompt or its answer, and what does not fit the context
    or the memory.
    """
    with told(1, "prompt", "writing", shown=progress) as bar:
        prompt, session, condition = prepare(settings, text, answer)
        fetching = choose_heads(heads, settings.source.config()) if heads else []
        if heads and not prompt.of("document"):
            raise errors.invalid("heads", "none without documents and a question, as a row of lookup has them", heads)
        bar.update()
    try:
        with told(1, "model", "loading", shown=progress) as bar:
            reader = PromptReader(prompt, session, condition, progress)
            bar.update()
        name = settings.source.name().removeprefix("reference/")
        name += f", under {settings.condition}" if settings.condition else ""
        contributed = reader.contributions()  # a measurement, which checks the instrument
        if contributed is None:
            session.check_instrument()
        found = reader.explain(name, contributed)
        return replace(found, looked=(reader.look(fetching, found),)) if fetching else found
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        raise out_of_memory() if is_out_of_memory(error) else error from None


def prepare(settings: Settings, text: Any, answer: str | None) -> tuple[Prompt, Session, ChangedRun]:
    """Return the prompt, the session that reads it, and what is changed meanwhile."""
    check_asked(text, answer)
    config, tokenizer = settings.source.config(), settings.source.load_tokenizer()
    condition = ChangedRun() if settings.condition is None else read_condition(settings.condition)[1]
    if condition.changes not in ("model", "reading", "prompt"):
        raise errors.invalid("condition", "one that changes the model or the prompt", settings.condition)
    condition.check(config)
    own = None if settings.condition is None else condition
    prompt = write(tokenizer, text, answer, settings.special_tokens, own)
    vocabulary, unknown = int(config.get_text_config().vocab_size), tokenizer.unk_token_id
    if bad := [token for token in prompt.answer_ids if token >= vocabulary or token == unknown]:
        raise errors.invalid("answer", "tokens that the model has", f"{bad[0]} in {prompt.answer[:40]!r}")
    n = len(prompt.ids)
    check_fits(config, tokenizer, n + max(len(prompt.answer_ids) - 1, 0))
    alone = Corpus("prompt", given=(prompt.text,))
    asked = replace(settings, length=n, corpus=alone, prompts=1, rule="first", condition=None)
    return prompt, Session(asked), condition


class PromptReader:
    """Read a prompt under a condition: its influence, contributions and values, as it is and without segments.

    The target is the log-probability of the prompt's answer, or without one the probability of the likeliest token.
    What can be asked of any engine (the model's own answer, deletions) is asked of :attr:`engine`.
    """

    def __init__(self, prompt: Prompt, session: Session, condition: ChangedRun, progress: bool = False) -> None:
        self.session, self.instrument, self.progress = session, session.instrument, progress
        self.condition, self.prompt, self.given = condition, prompt, prompt.answer_ids
        self.target = f"the log-probability of the answer {prompt.answer!r}"
        if not self.given:  # the likeliest of the prompt as it is, also where segments are gone
            with self.changed():
                top = int(self.instrument.tail(torch.tensor([prompt.ids]), 1)[0, -1].argmax())
            self.target = f"the probability of the likeliest next token, {session.tokenizer.decode([top])!r}"
            self.prompt = replace(prompt, answer_ids=(top,))

    def changed(self) -> AbstractContextManager[None]:
        """Change the model while it reads the prompt."""
        return self.condition.changed(self.instrument.model, self.prompt)

    def influence(self) -> tuple[Float[np.ndarray, "n"], float]:
        """Return each token's share of influence, and the target's value."""
        prompt = self.prompt
        ids = torch.tensor([[*prompt.ids, *prompt.answer_ids[:-1]]])

        def value(logits: Float[Tensor, "..."]) -> Float[Tensor, "1"]:
            """Return the target, from the logits (1, v) of one token or (1, m, v) of an answer's m."""
            z = logits.reshape(1, len(prompt.answer_ids), -1).log_softmax(-1)
            log = z.gather(-1, torch.tensor(prompt.answer_ids, device=z.device)[None, :, None]).sum((1, 2))
            self.known = float(log.detach())
            return log if self.given else log.exp()

        with self.changed(), told(1, "gradient", "influence", shown=self.progress) as bar:
            found = self.instrument.measure(ids, None, None, value, len(prompt.answer_ids))
            bar.update()
        size = found.influence[0].numpy()[: len(prompt.ids)]
        if not size.any():
            raise errors.invalid("influence", "gradients above 0", f"none in {self.session.precision}")
        return size / size.sum(), float(found.target_value[0])

    def contributions(self) -> Float[np.ndarray, "n"] | None:
        """Return each token's share in the state of the prompt's last token, None where there are none.

        There are some of a family with a row, of matrices that are kept whole, and where the model is changed alike for
        all prompts: the first tokens of this one, too, which check the instrument.
        """
        is_whole = len(self.prompt.ids) <= KERNEL_SIZE
        if self.session.family is None or self.condition.changes == "reading" or not is_whole:
            return None
        asked = replace(self.session.settings, quantities=("mixing", "influence", "contributions"))
        with self.changed():
            measured = measure(asked, self.session.prompts, progress=self.progress)
        found = predict(measured, "contributions")
        return np.asarray(found / found.sum())

    @cached_property
    def shorter(self) -> list[Prompt]:
        """The prompt as it is, and without each segment, from the last one to the first."""
        return [self.prompt, *(self.prompt.without(k) for k in reversed(range(len(self.prompt.segments))))]

    @cached_property
    def engine(self) -> Engine:
        """What answers the prompt, whole and without segments; beginnings are read once if the model is as it is."""
        trial = [] if self.condition.is_of_model else [one for one in self.shorter[1::-1] if len(one.ids) > 1]
        model, tokenizer = self.instrument.model, self.session.tokenizer
        return LocalEngine(model, tokenizer, trial, known=self.known, changed=self.condition.changed)

    def answer(self) -> tuple[str | None, bool | None, bool]:
        """Return what the model itself answers, whether that begins with the answer given, or but for white space."""
        given, tokenizer = self.given, self.session.tokenizer
        if not given:
            return None, None, False
        with told(1, "answer", "answering", shown=self.progress) as bar:
            own = next(iter(self.engine.generate([self.prompt], max(LEAST, len(given)))))
            bar.update()
        said, is_own = own.text.strip(), own.ids[: len(given)] == given
        return said, is_own, not is_own and said.startswith(tokenizer.decode(given).strip())

    def delete_segments(self) -> list[float]:
        """Return by how much the target's log-probability changes without each segment; NaN where one token is left.

        What stands before the segment that is gone was read with the whole prompt.
        """
        values = [np.nan] * len(self.shorter)
        readable = [k for k, one in enumerate(self.shorter) if len(one.ids) > 1]
        answers = self.engine.loglikelihood([self.shorter[k] for k in readable])
        with told(len(readable), "deletions", "deleting", shown=self.progress) as bar:
            for k, found in zip(readable, answers, strict=True):
                values[k] = found.log_probability
                bar.update()
        return [value - values[0] for value in values[:0:-1]]

    def look(self, heads: Sequence[Head], found: Explanation) -> str:
        """Return in a sentence which document heads look at, and which one the model's own answer is from."""
        documents = found.segments[[span.part == "document" for span in self.prompt.segments]]
        with self.changed():
            looked = looked_at(Reader(self.instrument.model, shared=False), self.prompt, heads)
        source = int(documents["removed"].to_numpy().argmin())
        if not found.is_own:  # deletions are about the answer that was given
            source = find_holder(re.split(f"[{FACT_END}]", str(found.own_answer))[0], documents["text"].tolist())
        labels = [*documents["label"], "no document alone"]
        said = f"The model looked at {labels[looked]} and answered from {labels[source]}"
        return f"{said}." if source in (-1, looked) else f"{said}, which is a sign of a wrong answer."

    def explain(self, name: str, contributed: Float[np.ndarray, "n"] | None) -> Explanation:
        """Return everything that is to be said of the prompt, read by a model of this name."""
        prompt = self.prompt
        share, value = self.influence()
        answered = self.answer()
        tokens = pd.DataFrame({
            "token": token_texts(self.session.tokenizer, prompt), "id": prompt.ids,
            "segment": prompt.segment + 1, "share": share,
        }).rename_axis("position")  # fmt: skip
        segments = segment_table(
            prompt.texts,
            tokens=[span.stop - span.start for span in prompt.segments],
            removed=self.delete_segments(),
            share=by_segment(share, prompt.segment),
            contributed=np.nan if contributed is None else by_segment(contributed, prompt.segment),
        )
        return Explanation(name, self.target, value, tokens, segments, *answered)
