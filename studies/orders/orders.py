"""Orders of a prompt's tokens: each is a function of token ids, of a generator, and of a pool of other tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from jaxtyping import Int

from posbias import errors

BLOCK = 32
"""Tokens of a block."""
POOL = 32
"""Prompts whose tokens are the pool: the first ones, so that a prompt does not depend on how many there are."""

Ids = Int[np.ndarray, "n"]
Order = Callable[[Ids, np.random.Generator, Ids], Ids]
"""Takes the tokens of a prompt and a pool, and returns as many tokens."""


def keep(ids: Ids, rng: np.random.Generator, pool: Ids) -> Ids:
    """Return the tokens as they are written."""
    return ids.copy()


def shuffle_blocks(ids: Ids, rng: np.random.Generator, pool: Ids, block: int = BLOCK) -> Ids:
    """Return blocks of neighbouring tokens in random order; the last tokens that fill no block are one, too."""
    check_block(ids, block)
    starts = np.arange(0, len(ids), block)
    return np.concatenate([ids[start : start + block] for start in rng.permutation(starts)])


def shuffle_inside(ids: Ids, rng: np.random.Generator, pool: Ids, block: int = BLOCK) -> Ids:
    """Return blocks of neighbouring tokens where they are, the tokens of each in random order."""
    check_block(ids, block)
    return np.concatenate([rng.permutation(ids[k : k + block]) for k in range(0, len(ids), block)])


def shuffle(ids: Ids, rng: np.random.Generator, pool: Ids) -> Ids:
    """Return the prompt's tokens in random order: an exchangeable prompt."""
    return rng.permutation(ids)


def draw(ids: Ids, rng: np.random.Generator, pool: Ids) -> Ids:
    """Return as many tokens drawn from the pool: independent of one another, so exchangeable."""
    return rng.choice(pool, len(ids))


ORDERS: Mapping[str, Order] = {
    "written": keep, "blocks": shuffle_blocks, "inside": shuffle_inside, "shuffled": shuffle, "drawn": draw,
}  # fmt: skip
"""The same tokens in five orders, from the text as it is to none of it."""
EXCHANGEABLE = ("shuffled", "drawn")
"""Orders in which every position has the same distribution of tokens and of neighbours."""


def check_block(ids: Ids, block: int) -> None:
    """Raise ValueError for a prompt of fewer tokens than a block."""
    if len(ids) < block:
        raise errors.invalid("order", f"prompts of at least {block} tokens, a block", len(ids))


def reorder(ids: Int[np.ndarray, "N n"], order: str, *, seed: int = 0, front: int = 0) -> Int[np.ndarray, "N n"]:
    """Return prompts with their tokens in another order; the first ``front`` tokens of each, start tokens, stay.

    What a prompt becomes follows from the seed and from its number; the pool is the tokens of the first :data:`POOL`.

    >>> ids = np.arange(64).reshape(2, 32)
    >>> found = reorder(ids, "shuffled", front=1)
    >>> found[:, 0].tolist(), sorted(found[1].tolist()) == ids[1].tolist(), bool((found != ids).any())
    ([0, 32], True, True)
    """
    if order not in ORDERS:
        raise errors.invalid("order", f"one of {', '.join(ORDERS)}", order)
    pool = ids[:POOL, front:].ravel()
    rows = []
    for k, row in enumerate(ids):
        rng = np.random.default_rng([seed, k, list(ORDERS).index(order)])
        rows.append(np.concatenate([row[:front], ORDERS[order](row[front:], rng, pool)]))
    return np.stack(rows)
