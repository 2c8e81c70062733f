"""Shuffles the tokens of prompts that are measured: what a profile still shows is the network's own (bias proper).

Where each position has the same distribution of tokens and of neighbours (``shuffled``, and ``drawn`` from the tokens
of the first prompts), place tells nothing, and nothing of a profile is earned by the text. ``blocks`` puts blocks of
neighbours in random order, ``inside`` shuffles inside each of them.
"""

import numpy as np
from jaxtyping import Int

from posbias import errors
from posbias.conditions import FIELD, ChangedRun

BLOCK = 32
"""Tokens of a block; the last tokens of a prompt that fill no block are one, too."""
POOL = 32
"""Prompts whose tokens are drawn from: the first ones, so that a prompt does not depend on how many there are."""
ORDERS = ("written", "blocks", "inside", "shuffled", "drawn")
"""The same tokens in five orders, from the text as it is to none of it."""
EXCHANGEABLE = ORDERS[3:]
"""Orders in which every position has the same distribution of tokens and of neighbours."""


def order_shuffled(
    ids: Int[np.ndarray, "N n"], order: str = "shuffled", *, seed: int = 0, front: int = 0
) -> Int[np.ndarray, "N n"]:
    """Return prompts with their tokens in another order; the first ``front`` tokens of each, start tokens, stay.

    What a prompt becomes follows from the seed and from its number.

    >>> ids = np.arange(64).reshape(2, 32)
    >>> found = order_shuffled(ids, front=1)
    >>> found[:, 0].tolist(), sorted(found[1].tolist()) == ids[1].tolist(), bool((found != ids).any())
    ([0, 32], True, True)
    """
    if order not in ORDERS:
        raise errors.invalid("order", f"one of {', '.join(ORDERS)}", order)
    n = ids.shape[1] - front
    if order in ("blocks", "inside") and n < BLOCK:
        raise errors.invalid("order", f"prompts of at least {BLOCK} tokens, a block", n)
    found = ids.copy()
    for k, row in enumerate(ids[:, front:]):
        rng = np.random.default_rng([seed, k, ORDERS.index(order)])
        blocks = [row[start : start + BLOCK] for start in range(0, n, BLOCK)]
        if order == "blocks":
            found[k, front:] = np.concatenate([blocks[b] for b in rng.permutation(len(blocks))])
        elif order == "inside":
            found[k, front:] = np.concatenate([rng.permutation(block) for block in blocks])
        elif order == "shuffled":
            found[k, front:] = rng.permutation(row)
        elif order == "drawn":
            found[k, front:] = rng.choice(ids[:POOL, front:].ravel(), n)
    return found


class Condition(ChangedRun):
    changes = "tokens"
    needs = f"a measurement; shuffled (unless given), drawn, blocks or inside behind a colon, blocks of {BLOCK} tokens"
    cost = "nothing"

    def __init__(self, argument: str) -> None:
        self.order = argument or "shuffled"
        if self.order not in ORDERS[1:]:
            raise errors.invalid(f"{FIELD} order-shuffled", f"one of {', '.join(ORDERS[1:])}", self.order)
        self.profile = "bias proper and what the order that is left earns"
        if self.order in EXCHANGEABLE:
            self.profile = "bias proper: the network's own, nothing of it earned by the order of the text"

    def reorder(self, ids: Int[np.ndarray, "N n"], seed: int, front: int) -> Int[np.ndarray, "N n"]:
        return order_shuffled(ids, self.order, seed=seed, front=front)
