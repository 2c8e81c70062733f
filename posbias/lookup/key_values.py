"""Prompts of key-value retrieval: pairs, then the key of one of them, whose value is the answer."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from posbias.lookup.prompts import PlacedPrompts, spread
from posbias.lookup.words import Words


def key_value_prompts(words: Words, pairs: int, prompts: int, *, seed: int = 0) -> PlacedPrompts:
    """Return prompts "key separator value end" for each pair, and then the key and separator of one.

    All keys of a prompt are distinct, and so are its values and both together, unless keys and values have tokens of
    their own: then values come again if there are fewer of them than pairs.

    Parameters
    ----------
    words
        What keys and values are made of.
    pairs, prompts
        How many pairs each prompt has, and how many prompts. The answers' places are spread evenly over the pairs.
    seed
        Of the pairs and the order of places.

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
