"""Keys, values and separators made of a tokenizer's own vocabulary, in as few tokens as it allows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from posbias import errors
from posbias.measure.corpus import special_ids, start_tokens

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


@dataclass(frozen=True)
class Words:
    """Hold what key-value prompts are made of.

    Parameters
    ----------
    keys, values
        Token ids that keys and values are made of; the same ones unless the vocabulary has names for either.
    key_tokens, value_tokens
        Tokens of a key and of a value.
    separator, end
        Tokens between key and value, and after a pair; empty where the vocabulary has none.
    start
        Tokens that the tokenizer puts in front.
    marks
        Separator and end as texts.
    pair_of
        The token of each key with each value where a pair is one token, and keys are those that ask; else None.
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
        sizes = [f"{what} of {k} token{'s' * (k > 1)}" for what, k in self._sizes()]
        marks = " and ".join(f'"{mark}"' for mark in self.marks).replace("\n", "\\n")
        return ", ".join([*sizes, f"{marks} between" if marks else "no separators"])

    def _sizes(self) -> tuple[tuple[str, int], ...]:
        return ("keys", self.key_tokens), ("values", self.value_tokens)


def words_of(tokenizer: Any, pairs: int, size: int, *, special_tokens: bool = True) -> Words:
    """Return what key-value prompts of so many pairs are made of.

    Keys and values are words: tokens of three letters or more which the tokenizer makes of their own text again,
    after a space where the vocabulary has such, else without; where there are too few, whatever has letters or digits
    alone. A vocabulary that is made of names such as ``k12`` and ``v3``, or ``k12=v3`` for both and ``k12?`` to ask,
    gives keys and values by these. If there are fewer words than keys and values, each is made of several.

    Parameters
    ----------
    tokenizer
        Of transformers.
    pairs
        Pairs of a prompt, which has as many distinct keys.
    size
        The model's vocabulary: ids below it are used.
    special_tokens
        Whether the tokenizer's start tokens are put in front.

    Raises
    ------
    ValueError
        If no keys can be made that differ.
    """
    pair_of, named = None, _named(tokenizer, size)
    if (paired := _paired(tokenizer, size)) is not None:
        keys, values, pair_of = paired
        key_tokens = value_tokens = int(len(keys) >= pairs)
    elif named is not None:
        keys, values = named
        key_tokens, value_tokens = tokens_needed(len(keys), pairs), 1
    else:
        pools = []
        for pool in _pools(tokenizer, size):
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
    texts = [_decoded(tokenizer, int(k)) for k in keys[:3]]
    separator, end = (_mark(tokenizer, keys[:3], texts, marks, size) for marks in (SEPARATORS, ENDS))
    start = start_tokens(tokenizer, texts[0]) if special_tokens else []
    tokens = {"separator": tuple(separator.values()), "end": tuple(end.values()), "start": tuple(start)}
    return Words(keys, values, key_tokens, value_tokens, **tokens, marks=(*separator, *end), pair_of=pair_of)


def tokens_needed(words: int, distinct: int) -> int:
    """Return of how many words each of ``distinct`` sequences is made at least, 0 if of more than 8.

    >>> tokens_needed(600, 128), tokens_needed(26, 128), tokens_needed(1, 2), tokens_needed(1, 1)
    (1, 2, 0, 1)
    """
    return next((t for t in range(1, MOST_TOKENS + 1) if words**t >= distinct), 0)


def _ordinary(tokenizer: Any, size: int) -> dict[str, int]:
    """Return the tokens that are not special by their ids, smallest first."""
    special = set(special_ids(tokenizer))
    kept = {token: k for token, k in tokenizer.get_vocab().items() if k < size and k not in special}
    return dict(sorted(kept.items(), key=lambda item: item[1]))


def _named(tokenizer: Any, size: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the keys and values of a vocabulary that is made of such names for the greater part, None of others."""
    found: dict[str, list[int]] = {"k": [], "v": []}
    ordinary = _ordinary(tokenizer, size)
    for token, k in ordinary.items():
        if name := NAMED.fullmatch(token):
            found[name[1]].append(k)
    keys, values = np.array(found["k"], dtype=np.int64), np.array(found["v"], dtype=np.int64)
    if min(keys.size, values.size) < 2 or keys.size + values.size <= len(ordinary) / 2:
        return None
    return keys, values


def _paired(tokenizer: Any, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return the keys that ask, the values, and the token of each key with each value; None of other vocabularies."""
    ordinary = _ordinary(tokenizer, size)
    asking = {name[1]: k for token, k in ordinary.items() if (name := ASKING.fullmatch(token))}
    values = {token: k for token, k in ordinary.items() if token[0] == "v" and NAMED.fullmatch(token)}
    pairs = {name.groups(): k for token, k in ordinary.items() if (name := PAIRED.fullmatch(token))}
    if len(values) < 2 or not asking or {(key, value) for key in asking for value in values} != set(pairs):
        return None
    table = np.array([[pairs[key, value] for value in values] for key in asking], dtype=np.int64)
    return np.array([*asking.values()], dtype=np.int64), np.array([*values.values()], dtype=np.int64), table


def _pools(tokenizer: Any, size: int) -> Iterator[Int[np.ndarray, "_"]]:
    """Yield the words that keys may be made of, the best kind first."""
    ordinary = _ordinary(tokenizer, size)
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


def _mark(
    tokenizer: Any, words: Int[np.ndarray, "_"], texts: Sequence[str], marks: Sequence[str], size: int
) -> dict[str, int]:
    """Return the first text that is a token of its own after each of some words, with its id; nothing without one."""
    special = set(special_ids(tokenizer))
    for mark in marks:
        found = [_encoded(tokenizer, text + mark) for text in texts]
        if any(len(ids) != 2 or ids[0] != word for word, ids in zip(words, found, strict=True)):
            continue
        token = found[0][1]
        if all(ids[1] == token for ids in found) and token < size and token not in special:
            return {mark: token}
    return {}
