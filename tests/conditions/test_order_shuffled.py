"""What orders of tokens keep, and what they change: start tokens, blocks, neighbours."""

import numpy as np
import pytest

from posbias.conditions.each.order_shuffled import BLOCK, ORDERS, order_shuffled

FRONT, N = 2, 3 * BLOCK + 8
"""Start tokens, and tokens behind them: three blocks, and a shorter one at the end."""
IDS = np.tile(np.arange(FRONT + N), (6, 1))


def blocks_of(row):
    return [row[start : start + BLOCK].tolist() for start in range(FRONT, len(row), BLOCK)]


@pytest.mark.parametrize("order", ORDERS[1:])
def test_equal_prompts_become_different_ones_that_follow_from_the_seed(order):
    found = order_shuffled(IDS, order, seed=1, front=FRONT)
    assert (found[:, :FRONT] == IDS[:, :FRONT]).all() and len({*map(tuple, found)}) > 3
    assert (found == order_shuffled(IDS, order, seed=1, front=FRONT)).all()
    fewer = order_shuffled(IDS[:2], order, seed=1, front=FRONT)
    assert order == "drawn" or (found[:2] == fewer).all(), "however many there are"
    assert (found != order_shuffled(IDS, order, seed=2, front=FRONT)).any()
    assert order == "drawn" or (np.sort(found) == IDS).all()
    assert (order_shuffled(IDS, "written", front=FRONT) == IDS).all()


def test_inside_blocks_nothing_leaves_its_block_and_the_last_one_is_shuffled_too():
    for row in order_shuffled(IDS, "inside", front=FRONT):
        for found, own in zip(blocks_of(row), blocks_of(IDS[0]), strict=True):
            assert sorted(found) == own != found


def test_blocks_move_whole():
    starts = [own[0] for own in blocks_of(IDS[0])]
    for row in order_shuffled(IDS, "blocks", front=FRONT)[:, FRONT:]:
        assert {*(row[1:][np.diff(row) != 1])} | {row[0]} <= {*starts}


def test_tokens_are_drawn_from_the_first_prompts_without_their_start_tokens():
    ids = np.arange(40 * 9).reshape(40, 9)
    found = order_shuffled(ids, "drawn", front=3)
    assert (found[:, :3] == ids[:, :3]).all() and {*found[:, 3:].flat} <= {*ids[:32, 3:].flat}
    assert (found[:30] == order_shuffled(ids[:32], "drawn", front=3)[:30]).all()
