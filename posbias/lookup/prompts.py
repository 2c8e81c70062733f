"""Prompts whose answer stands at a known place: pairs of keys and values made of a vocabulary's words, and copies."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from posbias import errors
from posbias.lookup.tasks import Task
from posbias.measure.corpus import BUILTIN, Corpus, document_units, make_prompts, special_ids, start_tokens

NAMED = re.compile(r"([kv])\d+")
"""Tokens of a vocabulary that is made of keys and values, such as ``k12`` and ``v3``."""
PAIRED, ASKING = re.compile(r"(k\d+)=(v\d+)"), re.compile(r"(k\d+)\?")
"""Tokens of a vocabulary in which a pair is one token, such as ``k12=v3``, and a key that is asked, ``k12?``."""
SPACE = "Ġ▁ "
"""How vocabularies write a space in front of a word."""
LETTERS = (re.compile(f"[{SPACE}][A-Za-z]{{3,}}"), re.compile("[A-Za-z]{3,}"))
"""Tokens that are words: after a space, and without one."""
SEPARATORS, ENDS = (":", "=", "-", ">"), ("\n", ",", ";", ".")
"""What may stand between key and value, and after a pair; the first that is a token of its own is taken."""
MOST_WORDS = 4096
"""Words that are taken of a vocabulary at most: those with the smallest ids, which byte-pair encodings learn first."""
MOST_TOKENS = 8
"""Tokens of a key or a value at most."""
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
    values: Int[np.ndarray, "N P L"] | None = None
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

    ``keys`` and ``values`` are the same words unless the vocabulary has names for either. ``start`` stands in front of
    a prompt, ``separator`` between key and value, and ``end`` after a pair; ``marks`` are the last two as texts. Where
    a pair is one token, ``pair_of`` has that of each key with each value, and keys are those that ask.
    """

    keys: Int[np.ndarray, "K"]
    values: Int[np.ndarray, "V"]
    key_tokens: int
    value_tokens: int
    separator: tuple[int, ...]
    end: tuple[int, ...]
    start: tuple[int, ...]
    marks: tuple[str, ...]
    pair_of: Int[np.ndarray, "K V"] | None = None

    @property
    def are_named(self) -> bool:
        """Whether keys and values have tokens of their own."""
        return not np.array_equal(self.keys, self.values)

    @property
    def pair_tokens(self) -> int:
        """Tokens of a pair with its separators."""
        if self.pair_of is not None:
            return 1
        return self.key_tokens + len(self.separator) + self.value_tokens + len(self.end)

    def length(self, pairs: int) -> int:
        """Return the tokens of a prompt with its answer."""
        return len(self.start) + pairs * self.pair_tokens + self.key_tokens + len(self.separator) + self.value_tokens

    def check_fits(self, pairs: int, longest: int | None) -> None:
        """Raise ValueError for more pairs than a context of ``longest`` tokens holds, with key and answer."""
        if longest is None or self.length(pairs) <= longest:
            return
        most = (longest - self.length(0)) // self.pair_tokens
        wanted = f"at most {most}" if most > 0 else "none"
        wanted += f", of {self.pair_tokens} tokens each, in the model's context of {longest} tokens"
        raise errors.invalid("pairs", wanted, pairs)

    @property
    def described(self) -> str:
        """What keys, values and separators are, in words.

        >>> one = np.arange(3)
        >>> Words(one, one, 1, 2, (5,), (), (), (":",)).described
        'keys of 1 token, values of 2 tokens, ":" between'
        """
        if self.pair_of is not None:
            return "key and value in 1 token, no separators"
        tokens = {"keys": self.key_tokens, "values": self.value_tokens}
        sizes = [f"{what} of {k} token{'s' * (k > 1)}" for what, k in tokens.items()]
        marks = " and ".join(f'"{mark}"' for mark in self.marks).replace("\n", "\\n")
        return ", ".join([*sizes, f"{marks} between" if marks else "no separators"])


def words_of(tokenizer: Any, pairs: int, size: int, *, special_tokens: bool = True) -> Words:
    """Return what key-value prompts of so many pairs are made of.

    Keys and values are words: tokens of three letters or more which the tokenizer makes of their own text again,
    after a space where the vocabulary has such, else without; where there are too few, whatever has letters or digits
    alone. A vocabulary that is made of names such as ``k12`` and ``v3``, or ``k12=v3`` for both and ``k12?`` to ask,
    gives keys and values by these. If there are fewer words than keys and values, each is made of several.
    ``size`` is the model's vocabulary: ids below it are used.
    """
    special = set(special_ids(tokenizer))
    kept = {token: k for token, k in tokenizer.get_vocab().items() if k < size and k not in special}
    ordinary = dict(sorted(kept.items(), key=lambda item: item[1]))
    pair_of, named = None, _named(ordinary)
    if (paired := _paired(ordinary)) is not None:
        keys, values, pair_of = paired
        key_tokens = value_tokens = int(len(keys) >= pairs)
    elif named is not None:
        keys, values = named
        key_tokens, value_tokens = tokens_needed(len(keys), pairs), 1
    else:
        pools = []
        for pool in _pools(tokenizer, ordinary):
            pools.append(pool)
            if len(pool) >= 2 * pairs:
                break
        needs = [tokens_needed(len(pool), 2 * pairs) for pool in pools]
        best = min(range(len(pools)), key=lambda k: (needs[k] or MOST_TOKENS + 1, 0 if needs[k] else -len(pools[k])))
        keys = values = pools[best]
        key_tokens = value_tokens = needs[best]
    if not key_tokens:
        shared = named is None and pair_of is None
        wanted = f"one with words for {pairs} distinct keys{' and as many values' * shared}"
        wanted += "" if pair_of is not None else f" of at most {MOST_TOKENS} tokens"
        received = f"{len(keys)} token{'s' * (len(keys) != 1)} that can be used"
        raise errors.invalid("tokenizer", wanted, received)
    texts = {_decoded(tokenizer, int(k)): int(k) for k in keys[:3]}
    usable = {*ordinary.values()}
    separator, end = (_mark(tokenizer, texts, marks, usable) for marks in (SEPARATORS, ENDS))
    start = start_tokens(tokenizer, next(iter(texts))) if special_tokens else []
    tokens = {"separator": tuple(separator.values()), "end": tuple(end.values()), "start": tuple(start)}
    return Words(keys, values, key_tokens, value_tokens, **tokens, marks=(*separator, *end), pair_of=pair_of)


def tokens_needed(words: int, distinct: int) -> int:
    """Return of how many words each of ``distinct`` sequences is made at least, 0 if of more than 8.

    >>> tokens_needed(600, 128), tokens_needed(26, 128), tokens_needed(1, 2), tokens_needed(1, 1)
    (1, 2, 0, 1)
    """
    return next((t for t in range(1, MOST_TOKENS + 1) if words**t >= distinct), 0)


def _named(ordinary: dict[str, int]) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the keys and values of a vocabulary that is made of such names for the greater part, None of others."""
    named = [(token[0], k) for token, k in ordinary.items() if NAMED.fullmatch(token)]
    keys, values = (np.array([k for what, k in named if what == one], dtype=np.int64) for one in "kv")
    if min(keys.size, values.size) < 2 or keys.size + values.size <= len(ordinary) / 2:
        return None
    return keys, values


def _paired(ordinary: dict[str, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return the keys that ask, the values, and the token of each key with each value; None of other vocabularies."""
    asking = {name[1]: k for token, k in ordinary.items() if (name := ASKING.fullmatch(token))}
    values = {token: k for token, k in ordinary.items() if token[0] == "v" and NAMED.fullmatch(token)}
    pairs = {name.groups(): k for token, k in ordinary.items() if (name := PAIRED.fullmatch(token))}
    if len(values) < 2 or not asking or {(key, value) for key in asking for value in values} != set(pairs):
        return None
    table = np.array([[pairs[key, value] for value in values] for key in asking], dtype=np.int64)
    return np.array([*asking.values()], dtype=np.int64), np.array([*values.values()], dtype=np.int64), table


def _pools(tokenizer: Any, ordinary: dict[str, int]) -> Iterator[Int[np.ndarray, "_"]]:
    """Yield the words that keys may be made of, the best kind first."""
    for pattern in LETTERS:
        yield _stable(tokenizer, (k for token, k in ordinary.items() if pattern.fullmatch(token)))
    yield _stable(tokenizer, (k for token, k in ordinary.items() if token.strip(SPACE).isalnum()))


def _stable(tokenizer: Any, ids: Iterable[int]) -> Int[np.ndarray, "_"]:
    """Return the ids whose text has letters and digits alone and gives the id again."""
    kept: list[int] = []
    for k in ids:
        text = _decoded(tokenizer, k)
        if text.strip().isalnum() and text.isprintable() and _encoded(tokenizer, text) == [k]:
            kept.append(k)
            if len(kept) == MOST_WORDS:
                break
    return np.array(kept, dtype=np.int64)


def _decoded(tokenizer: Any, k: int) -> str:
    return str(tokenizer.decode([k]))


def _encoded(tokenizer: Any, text: str) -> list[int]:
    """Return the tokens of a text, none where the tokenizer has no token for it, not even an unknown one."""
    try:
        return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
    except Exception:  # tokenizers raise no narrower type
        return []


def _mark(tokenizer: Any, words: dict[str, int], marks: Sequence[str], usable: set[int]) -> dict[str, int]:
    """Return the first text that is a token of its own after each of some words, with its id; nothing without one."""
    for mark in marks:
        found = [_encoded(tokenizer, text + mark) for text in words]
        token = found[0][-1] if found[0] else -1
        if token in usable and found == [[word, token] for word in words.values()]:
            return {mark: token}
    return {}


def key_value_prompts(words: Words, pairs: int, prompts: int, *, seed: int = 0) -> PlacedPrompts:
    """Return prompts "key separator value end" for each pair, and then the key and separator of one.

    All keys of a prompt are distinct, and so are its values and both together, unless keys and values have tokens of
    their own: then values come again if there are fewer of them than pairs.

    Source: Liu et al. 2023, "Lost in the Middle", section 3 (synthetic key-value retrieval), with words of the model's
    own vocabulary for the UUIDs and without the instruction.
    """
    rng = np.random.default_rng(seed)
    places = spread(prompts, pairs, rng)
    rows, answers, all_values = [], [], []
    for place in places:
        keys, values, body = _drawn(words, pairs, rng)
        question = [*keys[place], *words.separator, *values[place][:-1]]
        rows.append(np.concatenate([words.start, body, question]))
        answers.append(values[place])
        all_values.append(values)
    return PlacedPrompts(
        ids=np.array(rows, dtype=np.int64),
        answers=np.array(answers),
        places=places,
        starts=len(words.start) + words.pair_tokens * np.arange(pairs),
        width=words.pair_tokens,
        units=np.arange(prompts),
        values=np.array(all_values),
    )


def chance(prompts: PlacedPrompts) -> Float[np.ndarray, "N"]:
    """Return the accuracy of a guess among the values of the prompt, token by token.

    A value of one token is guessed among the distinct values. Of several tokens, each is guessed among those with which
    a value goes on that begins as the answer does.
    """
    assert prompts.values is not None
    found = np.ones(len(prompts.ids))
    for k, (values, answer) in enumerate(zip(prompts.values, prompts.answers, strict=True)):
        for step, token in enumerate(answer):
            found[k] /= np.unique(values[:, step]).size
            values = values[values[:, step] == token]
    return found


def _drawn(
    words: Words, pairs: int, rng: np.random.Generator
) -> tuple[Int[np.ndarray, "pairs K"], Int[np.ndarray, "pairs L"], Int[np.ndarray, "body"]]:
    """Return the keys and values of a prompt, and the tokens of its pairs."""
    again = len(words.values) < pairs
    if words.pair_of is not None:
        key, value = rng.choice(len(words.keys), pairs, replace=False), rng.choice(len(words.values), pairs, again)
        return words.keys[key][:, None], words.values[value][:, None], words.pair_of[key, value]
    if words.are_named:
        keys = _sequences(words.keys, words.key_tokens, pairs, rng)
        values = rng.choice(words.values, pairs, replace=again)[:, None]
    else:
        both = _sequences(words.keys, words.key_tokens, 2 * pairs, rng)
        keys, values = both[:pairs], both[pairs:]
    marks = [np.tile(np.array(x, dtype=np.int64), (pairs, 1)) for x in (words.separator, words.end)]
    return keys, values, np.hstack([keys, marks[0], values, marks[1]]).ravel()


def _sequences(
    pool: Int[np.ndarray, "K"], tokens: int, count: int, rng: np.random.Generator
) -> Int[np.ndarray, "count tokens"]:
    """Return distinct sequences of tokens of a pool."""
    number = rng.choice(len(pool) ** tokens, count, replace=False)
    digits = [number // len(pool) ** k % len(pool) for k in range(tokens)]
    return np.asarray(pool[np.stack(digits, axis=1)])


def copy_prompts(
    task: Task, corpus: Corpus, tokenizer: Any, prompts: int, *, seed: int = 0, special_tokens: bool = True
) -> PlacedPrompts:
    """Return texts that are followed by a stretch of their own: a cue, and the segment that is the answer.

    A place is where the stretch begins in the text; all places where it fits are swept, evenly. In the control the
    stretch's first occurrence is replaced by what another document has at the same tokens.
    """
    n, width = task.text_tokens, task.stretch
    try:
        tokenizer("a", add_special_tokens=True)
    except Exception as error:  # of one with a few words and no unknown one; tokenizers raise no narrower type
        reason = " ".join(str(error).split())[:120]
        raise errors.invalid("tokenizer", "one that makes tokens of text", reason) from None
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
        units=document_units(texts.origins, BUILTIN if corpus.named and corpus.dataset == BUILTIN else ""),
        controls=np.hstack([others, stretch[:, :-1]]),
    )
