"""Prompts whose answer stands at a known place: pairs of keys and values made of a vocabulary's words, and copies."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from posbias import errors
from posbias.lookup.tasks import Task
from posbias.measure.corpus import Corpus, document_units, make_prompts, special_ids, start_tokens

SPACE = "Ġ▁ "
"""How vocabularies write a space in front of a word."""
KINDS = (
    re.compile(f"[{SPACE}][A-Za-z]{{3,}}"), re.compile("[A-Za-z]{3,}"), re.compile(f"[{SPACE}]*[^\\W_]+[{SPACE}]*"),
)  # fmt: skip
"""Tokens that are words: after a space, and without one; whatever has letters or digits alone."""
SEPARATORS, ENDS = (":", "=", "-", ">"), ("\n", ",", ";", ".")
"""What may stand between key and value, and after a pair; the first that is a token of its own is taken."""
MOST_WORDS = 4096
"""Words that are taken of a vocabulary at most: those with the smallest ids, which byte-pair encodings learn first."""
MOST_UNKNOWN = 0.1
"""Share of a text's tokens that may be unknown: unknown words are all alike, and nothing is copied of them."""


@dataclass(frozen=True)
class PlacedPrompts:
    """Hold N prompts of n tokens with answers of L tokens, of which all but the last end the prompt.

    Each answer stands at one of P places of ``width`` tokens; ``units`` are equal for prompts that were not drawn
    independently. Of key-value prompts there are the ``values`` of all pairs, of copying prompts the ``controls``: the
    same prompts with other text where the answer stands.
    """

    ids: Int[np.ndarray, "N n"]
    answers: Int[np.ndarray, "N L"]
    places: Int[np.ndarray, "N"]
    starts: Int[np.ndarray, "P"]
    width: int
    units: Int[np.ndarray, "N"]
    values: Int[np.ndarray, "N P"] | None = None
    controls: Int[np.ndarray, "N n"] | None = None

    @property
    def asked(self) -> Int[np.ndarray, "N m"]:
        """The prompts up to where the answer begins: what a profile is of."""
        return self.ids[:, : self.ids.shape[1] - self.answers.shape[1] + 1]

    @property
    def sha256(self) -> str:
        """Digest of prompts, answers and controls."""
        digest = hashlib.sha256()
        for x in (self.ids, self.answers, self.places, self.controls):
            digest.update(b"" if x is None else np.ascontiguousarray(x, dtype="<i8").tobytes())
        return digest.hexdigest()

    def subset(self, prompts: int) -> Int[np.ndarray, "M"]:
        """Return so many prompts, whose places are as evenly spread as those of all, in the order of the prompts."""
        order = np.argsort(self.places, kind="stable")
        return np.sort(order[evenly(prompts, len(order))])

    def by_place(self, profile: Float[np.ndarray, "... m"]) -> Float[np.ndarray, "... P"]:
        """Return what a profile over tokens has at each place: the sum over its tokens."""
        before = np.zeros((*profile.shape[:-1], 1))
        total = np.concatenate([before, np.cumsum(profile, axis=-1)], axis=-1)
        return np.asarray(total[..., self.starts + self.width] - total[..., self.starts])


def evenly(count: int, size: int) -> Int[np.ndarray, "count"]:
    """Return ``count`` numbers below ``size``, as evenly spaced as can be; repeated if there are more.

    >>> evenly(2, 4).tolist(), evenly(5, 2).tolist()
    ([1, 3], [0, 0, 1, 1, 1])
    """
    return ((np.arange(count) + 0.5) * size / max(count, 1)).astype(np.int64)


def spread(prompts: int, places: int, rng: np.random.Generator) -> Int[np.ndarray, "N"]:
    """Return a place for each prompt: each place as often as any other or once more, evenly, in random order.

    >>> np.bincount(spread(7, 3, np.random.default_rng(0))).tolist()
    [2, 3, 2]
    """
    rounds, rest = divmod(prompts, places)
    found = np.concatenate([np.tile(np.arange(places), rounds), evenly(rest, places)])
    return np.asarray(rng.permutation(found))


@dataclass(frozen=True)
class Words:
    """Hold what key-value prompts are made of: token ids and how they are put together.

    Keys and values are ``words``, a token each. ``start`` stands in front of a prompt, ``separator`` between key and
    value, and ``end`` after a pair; ``marks`` are the last two as texts.
    """

    words: Int[np.ndarray, "K"]
    separator: tuple[int, ...]
    end: tuple[int, ...]
    start: tuple[int, ...]
    marks: tuple[str, ...]

    @property
    def pair_tokens(self) -> int:
        """Tokens of a pair with its separators."""
        return 2 + len(self.separator) + len(self.end)

    def check_fits(self, pairs: int, longest: int | None) -> None:
        """Raise ValueError for more pairs than a context of ``longest`` tokens holds, with key and answer."""
        most = pairs if longest is None else (longest - len(self.start) - 2 - len(self.separator)) // self.pair_tokens
        if pairs > most:
            at_most = f"at most {most}" if most > 1 else "none"
            expected = f"{at_most}, of {self.pair_tokens} tokens each, in the model's context of {longest} tokens"
            raise errors.invalid("pairs", expected, pairs)

    @property
    def described(self) -> str:
        """What keys, values and separators are, in words.

        >>> Words(np.arange(3), (5,), (), (), (":",)).described
        'keys of 1 token, values of 1 token, ":" between'
        """
        marks = " and ".join(f'"{mark}"' for mark in self.marks).replace("\n", "\\n")
        return f"keys of 1 token, values of 1 token, {f'{marks} between' if marks else 'no separators'}"


def words_of(tokenizer: Any, pairs: int, size: int, *, special_tokens: bool = True) -> Words:
    """Return what key-value prompts of so many pairs are made of.

    Keys and values are words: tokens of three letters or more which the tokenizer makes of their own text again,
    after a space where the vocabulary has such, else without; where there are too few, whatever has letters or digits
    alone. ``size`` is the model's vocabulary: ids below it are used.
    """
    special = set(special_ids(tokenizer))
    kept = {token: k for token, k in tokenizer.get_vocab().items() if k < size and k not in special}
    ordinary = dict(sorted(kept.items(), key=lambda item: item[1]))
    best: list[int] = []
    for kind in KINDS:
        words = _stable(tokenizer, [k for token, k in ordinary.items() if kind.fullmatch(token)])
        best = max(best, words, key=len)
        if len(words) >= 2 * pairs:
            break
    if len(best) < 2 * pairs:
        expected = f"one with words of one token for {pairs} keys and as many values"
        raise errors.invalid("tokenizer", expected, f"{len(best)} that can be used")
    texts = {tokenizer.decode([k]): k for k in best[:3]}
    separator, end = (_mark(tokenizer, texts, marks, {*ordinary.values()}) for marks in (SEPARATORS, ENDS))
    start = start_tokens(tokenizer, next(iter(texts))) if special_tokens else []
    tokens = tuple(separator.values()), tuple(end.values()), tuple(start)
    return Words(np.array(best, dtype=np.int64), *tokens, marks=(*separator, *end))


def _stable(tokenizer: Any, ids: Iterable[int]) -> list[int]:
    """Return the ids whose text has letters and digits alone and gives the id again."""
    texts = ((k, tokenizer.decode([k])) for k in ids)
    plain = ((k, text) for k, text in texts if text.strip().isalnum() and text.isprintable())
    return [*islice((k for k, text in plain if _encode(tokenizer, text) == [k]), MOST_WORDS)]


def _encode(tokenizer: Any, text: str) -> list[int]:
    """Return the tokens of a text, none where the tokenizer has no token for it, not even an unknown one."""
    try:
        return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
    except Exception:  # tokenizers raise no narrower type
        return []


def _mark(tokenizer: Any, words: dict[str, int], marks: Sequence[str], usable: set[int]) -> dict[str, int]:
    """Return the first text that is a token of its own after each of some words, with its id; nothing without one."""
    for mark in marks:
        encoded = [_encode(tokenizer, text + mark) for text in words]
        token = encoded[0][-1] if encoded[0] else -1
        if token in usable and encoded == [[word, token] for word in words.values()]:
            return {mark: token}
    return {}


def key_value_prompts(words: Words, pairs: int, prompts: int, *, seed: int = 0) -> PlacedPrompts:
    """Return prompts "key separator value end" for each pair, and then the key and separator of one.

    All keys and values of a prompt are distinct.

    Source: Liu et al. 2023, "Lost in the Middle", section 3 (synthetic key-value retrieval), with words of the model's
    own vocabulary for the UUIDs and without the instruction.
    """
    rng = np.random.default_rng(seed)
    places = spread(prompts, pairs, rng)
    drawn = np.stack([rng.choice(len(words.words), 2 * pairs, replace=False) for _ in places])
    keys, values = np.split(words.words[drawn], 2, axis=1)

    def beside(tokens: tuple[int, ...], *shape: int) -> Int[np.ndarray, "..."]:
        return np.broadcast_to(np.array(tokens, dtype=np.int64), (prompts, *shape, len(tokens)))

    body = [keys[..., None], beside(words.separator, pairs), values[..., None], beside(words.end, pairs)]
    asked = keys[np.arange(prompts), places][:, None]
    row = [beside(words.start), np.concatenate(body, -1).reshape(prompts, -1), asked, beside(words.separator)]
    return PlacedPrompts(
        ids=np.hstack(row),
        answers=values[np.arange(prompts), places][:, None],
        places=places,
        starts=len(words.start) + words.pair_tokens * np.arange(pairs),
        width=words.pair_tokens,
        units=np.arange(prompts),
        values=values,
    )


def copy_prompts(
    task: Task, corpus: Corpus, tokenizer: Any, prompts: int, *, seed: int = 0, special_tokens: bool = True
) -> PlacedPrompts:
    """Return texts that are followed by a stretch of their own: a cue, and the segment that is the answer.

    A place is where the stretch begins in the text; all places where it fits are swept, evenly. In the control the
    stretch's first occurrence is replaced by what another document has at the same tokens.
    """
    n, width = task.text_tokens, task.stretch
    if not _encode(tokenizer, "a"):  # one with a few words and no unknown one
        raise errors.invalid("tokenizer", "one that makes tokens of text", "one that has none for a letter")
    front = len(start_tokens(tokenizer)) if special_tokens else 0
    if n < front + width:
        wanted = f"at least {2 * width + front}, for a text that has cue and segment, and these again"
        raise errors.invalid("length", wanted, task.length)
    texts = make_prompts(corpus, tokenizer, prompts, n, special_tokens=special_tokens)
    unknown = float((texts.ids == tokenizer.unk_token_id).mean())
    if unknown > MOST_UNKNOWN:
        raise errors.invalid("tokenizer", "one that knows the text's words", f"{unknown:.0%} of them unknown")
    starts = np.arange(front, n - width + 1)
    places = spread(prompts, len(starts), np.random.default_rng(seed))
    within = starts[places][:, None] + np.arange(width)
    row = np.arange(prompts)[:, None]
    stretch = texts.ids[row, within]
    others = texts.ids.copy()
    others[row, within] = texts.ids[(row + max(prompts // 2, 1)) % prompts, within]
    segment = task.segment or 0
    return PlacedPrompts(
        ids=np.hstack([texts.ids, stretch[:, :-1]]),
        answers=stretch[:, width - segment :],
        places=places,
        starts=starts,
        width=width,
        units=document_units(texts.origins, corpus.reader),
        controls=np.hstack([others, stretch[:, :-1]]),
    )
