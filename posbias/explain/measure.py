"""Explain one prompt: influence of tokens and segments, beside other prompts, deletions and other orders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int

from posbias import errors
from posbias.comparison.resampling import interval
from posbias.explain.explanation import Explanation
from posbias.explain.profile import by_place, drawn_again, given_profile
from posbias.explain.prompt import Prompt, tokenised
from posbias.explain.shares import by_segment, centred_logs, moves, without_position
from posbias.explain.target import Wanted, wanted
from posbias.measure.corpus import Given
from posbias.measure.instrument import Instrument
from posbias.measure.measurement import Measurement
from posbias.measure.memory import out_of_memory
from posbias.measure.progress import progress as told
from posbias.measure.run import measured
from posbias.measure.session import Session
from posbias.measure.settings import Settings

LEAST = 2
"""Tokens that must be left of a prompt for a segment to be deleted."""


def explain(
    settings: Settings,
    text: Any,
    *,
    target: str = "top",
    against: str | None = None,
    of: str | None = None,
    answer: str | None = None,
    segments: str | Sequence[str] | None = None,
    profile: Any = None,
    reorder: int = 0,
    progress: bool = False,
) -> Explanation:
    """Return what a prompt's parts do; ``settings`` say which prompts the profile is measured on, unless it is given.

    What is wrong with the prompt, the target or the profile, and what does not fit the context or the memory, is raised
    before the model is loaded.
    """
    opened = Session(settings)
    errors.positive_integer("reorder", reorder, minimum=0)
    prompt = tokenised(opened.tokenizer, text, segments, answer, special_tokens=settings.special_tokens)
    vocabulary = int(opened.config.get_text_config().vocab_size)
    asked = wanted(target, against, of, answer, prompt.answer, (opened.tokenizer, vocabulary))
    if reorder and len(prompt.texts) < 3:
        expected = "none for a prompt of fewer than 3 segments, of which the last stays"
        raise errors.invalid("reorder", expected, reorder)
    n = len(prompt.ids)
    session = opened.with_prompts(length=n, target="next" if target == "next" else "top", against=None, of=asked.of)
    session.check()
    session.check_room(n + max(len(asked.tokens) - 1, 0))
    if profile is not None:
        profile = given_profile(profile, settings.source, n)
        session = session.with_prompts(corpus=Given("prompt", given=(text,)), prompts=1, rule="first", target="top")
    session.prompts  # noqa: B018 - raises
    try:
        with told(1, "model", "loading", shown=progress) as bar:
            session.instrument, session.self_check  # noqa: B018 - loads, and raises
            bar.update()
        if profile is None:
            profile = Measurement(measured(session, progress=progress))
        return Subject(prompt, asked, session).explanation(profile, reorder)
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        raise out_of_memory(error, session.settings) or error from None


class Subject:
    """Hold a prompt, its target and the model, and measure; each number once, when it is first asked for."""

    def __init__(self, prompt: Prompt, asked: Wanted, session: Session) -> None:
        self.prompt, self.asked, self.session = prompt, asked, session
        self.instrument: Instrument = session.instrument

    @cached_property
    def wanted(self) -> Wanted:
        """The target; the likeliest token is that of the prompt as it is, also where segments are gone or moved."""
        if self.asked.tokens:
            return self.asked
        ids = torch.from_numpy(self.prompt.ids)[None]
        return replace(self.asked, tokens=(int(self.instrument.tail(ids, 1)[0, -1].argmax()),))

    def influence(self, orders: Int[np.ndarray, "B n"]) -> tuple[Float[np.ndarray, "B n"], Float[np.ndarray, "B"]]:
        """Return each token's share of influence in prompts of the same tokens, and the target's value."""
        ids = torch.from_numpy(self._followed(self.prompt.ids[orders]))
        batches = ids.split(self.session.settings.batch_size)
        keep = len(self.wanted.tokens)
        readings = [self.instrument.measure(x, None, None, self.wanted.value, keep) for x in batches]
        found = torch.cat([reading.influence for reading in readings]).numpy()[:, : len(self.prompt.ids)]
        if not found.sum(1).all():
            raise errors.invalid("influence", "gradients above 0", f"none in {self.session.settings.precision()}")
        return found / found.sum(1, keepdims=True), torch.cat([x.target_value for x in readings]).numpy()

    def log_value(self, positions: Int[np.ndarray, "k"]) -> float:
        """Return the target's log-probability with these tokens of the prompt alone."""
        ids = torch.from_numpy(self._followed(self.prompt.ids[None, positions]))
        return self.wanted.log_value(self.instrument.tail(ids, len(self.wanted.tokens)))

    def removed(self) -> list[float]:
        """Return by how much the target's log-probability changes without each segment; NaN where nothing is left."""
        n = len(self.prompt.ids)
        left = [np.flatnonzero(self.prompt.segment != k) for k in range(len(self.prompt.texts))]
        whole = self.log_value(np.arange(n))
        return [self.log_value(rest) - whole if len(rest) >= LEAST else np.nan for rest in left]

    def orders(self, count: int) -> Int[np.ndarray, "K S"]:
        """Return random orders of the segments, none of them the one as given; the last segment stays."""
        rng, given = np.random.default_rng(self.session.settings.seed), np.arange(len(self.prompt.texts))
        found: list[np.ndarray] = []
        while len(found) < count:
            order = np.append(rng.permutation(given[:-1]), given[-1])
            if (order != given).any():
                found.append(order)
        return np.array(found)

    def moved(self, share: Float[np.ndarray, "n"], profile: Float[np.ndarray, "n"], count: int) -> pd.DataFrame:
        """Return what other orders changed, beside what the profile says they should."""
        segment, orders = self.prompt.segment, self.orders(count)
        places = np.stack([self.prompt.ordered(order) for order in orders])
        shares, _ = self.influence(places)
        seen = np.stack([by_segment(share, segment), *map(by_segment, shares, segment[places])])
        said = np.stack([by_segment(profile, segment), *(by_segment(profile, x) for x in segment[places])])
        return moves(orders[:, :-1], seen[:, :-1], said[:, :-1])

    def foreseen(self, profile: Float[np.ndarray, "n"]) -> Float[np.ndarray, "2 S"]:
        """Return what the profile says of each segment's log share if it came first, or last before the last one.

        Changes are in nats, of the segments that can move among themselves; NaN for the last one, which stays.
        """
        segment, S = self.prompt.segment, len(self.prompt.texts)
        found = np.full((2, S), np.nan)
        if S < 3:
            return found
        given = centred_logs(by_segment(profile, segment)[:-1])
        for k in range(S - 1):
            others = [x for x in range(S - 1) if x != k]
            for row, order in enumerate(([k, *others, S - 1], [*others, k, S - 1])):
                moved = by_segment(profile, segment[self.prompt.ordered(order)])
                found[row, k] = centred_logs(moved[:-1])[k] - given[k]
        return found

    def explanation(self, profile: Measurement, reorder: int) -> Explanation:
        """Return everything that is to be said of the prompt."""
        prompt, places = self.prompt, by_place(profile)
        (share,), (value,) = self.influence(np.arange(len(prompt.ids))[None])
        tokens = pd.DataFrame({
            "token": prompt.tokens, "id": prompt.ids, "segment": prompt.segment + 1, "share": share, "profile": places,
        }).rename_axis("position")  # fmt: skip
        seen, said = by_segment(share, prompt.segment), by_segment(places, prompt.segment)
        if not (seen > 0).all() or not (said > 0).all():
            received = f"{min(seen.min(), said.min())} in the {'prompt' if seen.min() == 0 else 'profile'}"
            raise errors.invalid("influence", "some in each segment", received)
        again = drawn_again(profile)
        low = high = np.full(len(seen), np.nan)
        if again is not None:
            low, high = interval(without_position(seen, by_segment(again, prompt.segment)))
        rows = pd.DataFrame({
            "text": prompt.texts, "tokens": np.bincount(prompt.segment[prompt.own]), "share": seen, "profile": said,
            "without_position": without_position(seen, said), "low": low, "high": high, "removed": self.removed(),
            "if_first": self.foreseen(places)[0], "if_last": self.foreseen(places)[1],
        }, index=pd.RangeIndex(1, len(seen) + 1, name="segment"))  # fmt: skip
        words = self.asked.words
        if not self.asked.tokens:
            words += f", {self.session.tokenizer.decode([*self.wanted.tokens])!r}"
        moved = self.moved(share, places, reorder) if reorder else None
        model = self.session.settings.source.name().removeprefix("reference/")
        return Explanation(model, words, float(value), tokens, rows, moved, profile)

    def _followed(self, ids: Int[np.ndarray, "B n"]) -> Int[np.ndarray, "B m"]:
        """Return prompts with the tokens of the answer that the model is given."""
        following = np.array(self.asked.tokens[:-1], dtype=np.int64)
        return np.hstack([ids, np.broadcast_to(following, (len(ids), following.size))])
