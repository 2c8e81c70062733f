"""Explain one prompt: influence of tokens and segments, beside other prompts, deletions and other orders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int

from posbias import errors
from posbias.comparison.resampling import interval
from posbias.explain.explanation import Explanation
from posbias.explain.prompt import Prompt, check_asked, tokenise
from posbias.explain.shares import by_segment, centred_logs, place_shares, read_profile, without_position
from posbias.explain.target import Target, target_of
from posbias.measure.corpus import Corpus
from posbias.measure.measurement import Measurement
from posbias.measure.progress import progress as told
from posbias.measure.run import measure
from posbias.measure.session import Session
from posbias.models.loading import check_fits
from posbias.models.weights import is_out_of_memory, out_of_memory
from posbias.settings import Settings


def explain(
    settings: Settings,
    text: Any,
    *,
    segments: str | Sequence[str] | None,
    answer: str | None,
    profile: Any,
    reorder: int,
    progress: bool,
    **target: Any,
) -> Explanation:
    """Return what a prompt's parts do; ``settings`` say which prompts the profile is measured on, unless it is given.

    ``target`` has the other arguments of :func:`~posbias.explain.target.target_of`. What is wrong with the prompt, the
    target or the profile, and what does not fit the context or the memory, is raised before the model is loaded.
    """
    check_asked(text, target["target"], answer)
    errors.positive_integer("reorder", reorder, minimum=0)
    opened = Session(settings)
    prompt = tokenise(opened.tokenizer, text, segments, answer, special_tokens=settings.special_tokens)
    vocabulary = int(opened.config.get_text_config().vocab_size)
    chosen = target_of(**target, answer=answer, ids=prompt.answer, model=(opened.tokenizer, vocabulary))
    if reorder and len(prompt.texts) < 3:
        expected = "none for a prompt of fewer than 3 segments, of which the last stays"
        raise errors.invalid("reorder", expected, reorder)
    n = len(prompt.ids)
    following = "next" if target["target"] == "next" else "top"
    session = opened.with_prompts(length=n, target=following, against=None, of=chosen.of)
    session.check()
    check_fits(session.config, session.tokenizer, n + max(len(chosen.tokens) - 1, 0))
    if profile is not None:
        profile = read_profile(profile, settings.source, n)
        session = session.with_prompts(corpus=Corpus("prompt", given=(text,)), prompts=1, rule="first", target="top")
    session.prompts  # noqa: B018 - raises
    try:
        with told(1, "model", "loading", shown=progress) as bar:
            session.instrument, session.self_check  # noqa: B018 - loads, and raises
            bar.update()
        if profile is None:
            profile = Measurement(measure(session, progress=progress))
        return Reader(prompt, chosen, session).explain(profile, reorder)
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        raise out_of_memory() if is_out_of_memory(error) else error from None


class Reader:
    """Read a prompt with a model: its influence and values, as it is, with segments moved, and without them."""

    def __init__(self, prompt: Prompt, target: Target, session: Session) -> None:
        self.prompt, self.target, self.session, self.instrument = prompt, target, session, session.instrument
        if not target.tokens:  # the likeliest of the prompt as it is, also where segments are gone or moved
            top = int(self.instrument.tail(torch.from_numpy(prompt.ids)[None], 1)[0, -1].argmax())
            words = f"{target.words}, {session.tokenizer.decode([top])!r}"
            self.target = replace(target, tokens=(top,), words=words)

    def influence(self, orders: Int[np.ndarray, "B n"]) -> tuple[Float[np.ndarray, "B n"], Float[np.ndarray, "B"]]:
        """Return each token's share of influence in prompts of the same tokens, and the target's value."""
        batches = self._followed(self.prompt.ids[orders]).split(self.session.settings.batch_size)
        keep = len(self.target.tokens)
        readings = [self.instrument.measure(ids, None, None, self.target.value, keep) for ids in batches]
        size = torch.cat([x.influence for x in readings]).numpy()[:, : len(self.prompt.ids)]
        if not size.sum(1).all():
            raise errors.invalid("influence", "gradients above 0", f"none in {self.session.precision}")
        return size / size.sum(1, keepdims=True), torch.cat([x.target_value for x in readings]).numpy()

    def log_value(self, positions: Int[np.ndarray, "k"]) -> float:
        """Return the target's log-probability with these tokens of the prompt alone."""
        ids = self._followed(self.prompt.ids[None, positions])
        return self.target.log_value(self.instrument.tail(ids, len(self.target.tokens)))

    def delete_segments(self) -> list[float]:
        """Return by how much the target's log-probability changes without each segment; NaN where one token is left."""
        left = [np.flatnonzero(self.prompt.segment != k) for k in range(len(self.prompt.texts))]
        whole = self.log_value(np.arange(len(self.prompt.ids)))
        return [self.log_value(rest) - whole if len(rest) > 1 else np.nan for rest in left]

    def move_segments(self, share: Float[np.ndarray, "n"], profile: Float[np.ndarray, "n"], count: int) -> pd.DataFrame:
        """Return what random orders of the segments changed, beside what the profile says they should.

        A row is an order and a segment; the last segment stays, and none of the orders is the one as given. Changes are
        those of log shares of the segments that move, among themselves, in nats. ``right`` says whether both have one
        sign; it is missing where no change is expected.
        """
        rng, given = np.random.default_rng(self.session.settings.seed), np.arange(len(self.prompt.texts))
        orders: list[np.ndarray] = []
        while len(orders) < count:
            order = np.append(rng.permutation(given[:-1]), given[-1])
            if (order != given).any():
                orders.append(order)
        shares, _ = self.influence(np.stack([self.prompt.ordered(order) for order in orders]))
        rows = [
            pd.DataFrame({
                "order": number, "segment": given[:-1] + 1, "place": np.argsort(order[:-1]) + 1,
                "measured": self._logs(moved, order) - self._logs(share, given),
                "expected": self._logs(profile, order) - self._logs(profile, given),
            })
            for number, (order, moved) in enumerate(zip(orders, shares, strict=True), 1)
        ]  # fmt: skip
        table = pd.concat(rows, ignore_index=True)
        right = (table["measured"] * table["expected"] > 0).astype("boolean")
        return table.assign(right=right.where(table["expected"].abs() > 1e-9))

    def foresee(self, profile: Float[np.ndarray, "n"]) -> Float[np.ndarray, "2 S"]:
        """Return what the profile says of each segment's log share if it came first, or last before the last one.

        Changes are as those of :meth:`move_segments`; NaN for the last segment, which stays.
        """
        S = len(self.prompt.texts)
        changes = np.full((2, S), np.nan)
        for k in range(S - 1) if S > 2 else ():
            others = [x for x in range(S - 1) if x != k]
            for row, order in enumerate(([k, *others, S - 1], [*others, k, S - 1])):
                changes[row, k] = (self._logs(profile, order) - self._logs(profile, range(S)))[k]
        return changes

    def explain(self, profile: Measurement, reorder: int) -> Explanation:
        """Return everything that is to be said of the prompt."""
        prompt, (places, again) = self.prompt, place_shares(profile)
        (share,), (value,) = self.influence(np.arange(len(prompt.ids))[None])
        tokens = pd.DataFrame({
            "token": prompt.tokens, "id": prompt.ids, "segment": prompt.segment + 1, "share": share, "profile": places,
        }).rename_axis("position")  # fmt: skip
        own, expected = by_segment(share, prompt.segment), by_segment(places, prompt.segment)
        if not (own > 0).all() or not (expected > 0).all():
            received = f"{min(own.min(), expected.min())} in the {'prompt' if own.min() == 0 else 'profile'}"
            raise errors.invalid("influence", "some in each segment", received)
        low = high = np.full(len(own), np.nan)
        if again is not None:
            low, high = interval(without_position(own, by_segment(again, prompt.segment)))
        first, last = self.foresee(places)
        segments = pd.DataFrame({
            "text": prompt.texts, "tokens": np.bincount(prompt.segment[prompt.segment >= 0]), "share": own,
            "profile": expected, "without_position": without_position(own, expected), "low": low, "high": high,
            "removed": self.delete_segments(), "if_first": first, "if_last": last,
        }, index=pd.RangeIndex(1, len(own) + 1, name="segment"))  # fmt: skip
        moves = self.move_segments(share, places, reorder) if reorder else None
        model = self.session.settings.source.name().removeprefix("reference/")
        return Explanation(model, self.target.words, float(value), tokens, segments, moves, profile)

    def _logs(
        self, values: Float[np.ndarray, "n"], order: Sequence[int] | range | Int[np.ndarray, "S"]
    ) -> Float[np.ndarray, "S-1"]:
        """Return centred logs of the segments' shares, but the last one's, of a prompt with them in this order."""
        segment = self.prompt.segment
        return centred_logs(by_segment(values, segment[self.prompt.ordered(order)])[:-1])

    def _followed(self, ids: Int[np.ndarray, "B n"]) -> Int[torch.Tensor, "B m"]:
        """Return prompts with the tokens of the answer that the model is given."""
        following = np.array(self.target.tokens[:-1], dtype=np.int64)
        return torch.from_numpy(np.hstack([ids, np.broadcast_to(following, (len(ids), following.size))]))
