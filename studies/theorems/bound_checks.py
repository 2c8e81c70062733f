"""Checks of Lemma 5.4: states stay bounded and attention stays positive, with and without rotary encodings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from studies.checks import Check
from studies.rotation import rotate
from studies.theorems.depth import attention_floor, masses_off_first, sharp_attention_floor, state_bound
from studies.theorems.depth_draws import DEPTH, TRIALS, Depths, N, Runs, broken
from studies.theorems.networks import Network, opposed_network, random_network

PROVED = {"kind": "proved"}
YARN = 1 + 0.1 * np.log(16)
"""What YaRN multiplies queries and keys by at 16 times the context."""
Vectors = list[tuple[np.ndarray, np.ndarray, np.ndarray]]


def lemma_holds(
    networks: Runs, state: Callable[..., float] = state_bound, floor: Callable[..., float] = attention_floor
) -> bool:
    """Say whether all states are below C_t and all weights above ε_t, in every layer."""
    for net, run in networks:
        C, floors = net.bounds(state, floor)
        high, low = run.norms > C[1:] * (1 + 1e-9), run.floors < floors * (1 - 1e-9)
        if high.any() or low.any():
            return False
    return True


def less_growth(x0: float, norms: np.ndarray, mix: np.ndarray) -> float:
    """Return the bound on states with 5% less growth in each layer."""
    return state_bound(x0, 1 + 0.95 * (norms - 1), mix)


def lemma_checks(depths: Depths) -> list[Check]:
    """Return the checks of Lemma 5.4, and of the bounds that are attained."""
    hard, every = depths.hard, depths.both + sum(depths.hard, [])
    floors = {name: net.bounds()[1] for name, net in depths.nets.items()}
    loose = [np.log10(depths.runs[name].floors.min() / floors[name].min()) for name in depths.runs]
    of_state: dict[str, dict[str, Callable[..., float]]] = {
        "C with 5% less growth per layer": {"state": less_growth},
        "2L 10% smaller": {"floor": lambda k, L, b: attention_floor(k, 0.9 * L, b)},
        "b left out": {"floor": lambda k, L, b: attention_floor(k, L)},
    }
    of_sharp: dict[str, dict[str, Callable[..., float]]] = {
        "2L 1% smaller": {"floor": lambda k, L, b: sharp_attention_floor(k, 0.99 * L, b)},
        "n - 2 for n - 1": {"floor": lambda k, L, b: sharp_attention_floor(k - 1, L, b)},
    }
    at_bound = []
    for networks in hard:
        for net, run in networks[:2]:
            at_bound.append(abs(run.floors[0] / net.bounds(floor=sharp_attention_floor)[1][0] - 1))
    largest = depths.nets["with ALiBi"].bounds()[0][-1]
    return [
        Check(
            "RA-L5.4", "statement", "Lemma 5.4: states and weights stay bounded.", lemma_holds(every),
            f"in all {DEPTH} layers of a random network of {N} tokens and of {len(every) - 2} small "
            f"ones states are shorter than C = {largest:.2f} and weights above ε; in the large network the smallest "
            f"weight is 10^{loose[0]:.1f} times ε (10^{loose[1]:.1f} with ALiBi)",
            "a state or a weight of any layer leaves its bound by more than 1e-9",
            broken(lemma_holds, hard, of_state),
            "a state or a weight leaves its bound", PROVED,
        ),
        Check(
            "RA-L5.4", "our constants", "Ours: bounds that are attained.",
            lemma_holds(every, floor=sharp_attention_floor) and bool(max(at_bound) < 1e-9),
            f"no weight is below 1/(1 + (n-1)e^(2L+b)); {len(at_bound)} networks built for it attain this bound, "
            "and their first token attains C",
            "a weight is below the sharp bound, or the opposed networks miss it",
            broken(lemma_holds, hard, of_sharp),
            "the sharp bound fails or is not attained", PROVED,
        ),
    ]  # fmt: skip


def rope_holds(
    networks: list[Network], vectors: Vectors, stretch: tuple[float, float] = (1.0, 1.0), allowed: float = 1.0
) -> bool:
    """Say whether rotated logits, weights and masses keep the unrotated bounds; ``stretch``: gain of a pair."""
    for q, k, theta in vectors:  # at every offset
        gain = np.tile(stretch, q.size // 2)
        turned = (gain * rotate(q, theta, 64)) @ (gain * k)
        most = allowed * np.linalg.norm(q) * np.linalg.norm(k)
        if (abs(turned) > most * (1 + 1e-9)).any():
            return False
    for net in networks:
        run = net.run(stretch[0] * stretch[1])
        unrotated = Network(net.X, allowed * net.W_qk, net.W_v, net.lambda_)
        low = unrotated.bounds(floor=sharp_attention_floor)[1]
        off = masses_off_first(run.kernels, net.lambda_).max(axis=1)
        held = off <= np.cumprod(1 - low * net.lambda_) + 1e-12
        if (run.floors < low * (1 - 1e-9)).any() or not held.all():
            return False
    return True


def draw_rope(rng: np.random.Generator, layers: int = 40) -> tuple[list[Network], Vectors]:
    """Draw two rotated networks, and two pairs of vectors, of which one meets again at some offset."""
    one, mix, theta = np.ones(layers), np.full(layers, 0.3), rng.uniform(0.05, 1, 4)
    q, k = rng.normal(size=(2, 8))
    back = rotate(q, theta, 64)[rng.integers(1, 64)]  # meets q again at one offset
    plain = random_network(6, 8, one, mix, rng, logit_norm=4)
    turned = Network(plain.X, plain.W_qk, plain.W_v, mix, theta=theta)
    same = opposed_network(6, one, mix, logit=1, theta=theta[0])
    return [turned, same], [(q, k, theta), (q, back, theta)]


def rope_check(depths: Depths) -> Check:
    """Return the check that rotary encodings keep the bounds."""
    roped = [draw_rope(depths.rng) for _ in range(TRIALS)]
    left = [masses_off_first(nets[0].run().kernels, nets[0].lambda_)[-1] for nets, _ in roped]
    wrong: dict[str, dict[str, Any]] = {
        "an mscale of 1.01": {"stretch": (1.01, 1.01)},
        "one feature of each pair stretched by 2%": {"stretch": (1.02, 1.0)},
        "a logit bound 1% smaller": {"allowed": 0.99},
        "YaRN at 16 times, μ for μ²": {"stretch": (YARN, YARN), "allowed": YARN},
    }
    scaled = all(rope_holds(*x, stretch=(YARN, YARN), allowed=YARN**2) for x in roped)
    return Check(
        "RA-S5-rope", "", "RoPE changes nothing in this.", all(rope_holds(*x) for x in roped) and scaled,
        f"{2 * TRIALS} networks of 40 layers with rotated queries and keys, and {2 * TRIALS} pairs of vectors at "
        "64 offsets, keep the bounds of the unrotated ones, and some attain them; at most a share of "
        f"{np.max(left):.0e} of the influence stays off token 1; queries and keys multiplied by {YARN:.2f} need "
        f"{YARN**2:.2f} L in place of L",
        "a rotated logit exceeds ‖q‖‖k‖, a weight falls below its floor or a "
        "mass exceeds its bound, by more than 1e-9",
        broken(lambda x, **how: rope_holds(*x, **how), roped, wrong),
        "a rotated logit, weight or mass leaves its bound", PROVED,
    )  # fmt: skip
