"""Equation 4 of Wu et al.: the output of a network as a sum over inputs, or over paths, in random networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from posbias.rollout import masks
from studies.checks import Check
from studies.theorems.mask_checks import of_each
from studies.theorems.masks import CONDITION, NORM, TRIALS, WIDTH
from studies.theorems.networks import bounded_weights, path_sum, product_of_averages, random_states, run_heads

Drawn = tuple[Any, ...]
"""Input, query-key maps, value maps, mixing of each layer, and graph of a network of four layers and eight tokens."""
Total = Callable[..., Any]


def draw_heads(rng: np.random.Generator, H: int, mixing: float, graph: Bool[np.ndarray, "n n"]) -> Drawn:
    """Draw a network of eight tokens and four layers with H heads."""
    heads = [bounded_weights(4, WIDTH, NORM, CONDITION, rng) for _ in range(H)]
    W_qk, W_v = np.stack([w.W_qk for w in heads], 1), np.stack([w.W_v for w in heads], 1)
    return random_states(8, WIDTH, 1.0, rng), W_qk, W_v, np.full(4, mixing), graph


def draw_networks(rng: np.random.Generator) -> tuple[list[list[Drawn]], list[list[Drawn]], list[list[Drawn]]]:
    """Draw networks of one head under four masks, networks with several paths, and four kinds to measure errors on."""
    causal = masks.causal().matrix(8)
    graphs = [x.matrix(8) for x in (masks.causal(), masks.sliding_window(3), masks.prefix(3), masks.full())]
    single: list[list[Drawn]] = []
    many: list[list[Drawn]] = []
    kinds: list[list[Drawn]] = []
    for _ in range(TRIALS):
        single.append([draw_heads(rng, 1, 1.0, graph) for graph in graphs])
    for _ in range(TRIALS):
        many.append([draw_heads(rng, H, mixing, causal) for H, mixing in ((3, 1.0), (1, 0.4), (2, 0.4))])
    for H, mixing in ((1, 1.0), (4, 1.0), (1, 0.2), (4, 0.2)):
        kinds.append([draw_heads(rng, H, mixing, causal) for _ in range(TRIALS)])
    return single, many, kinds


def adds_up(networks: Sequence[Drawn], total: Total) -> bool:
    """Say whether a sum that knows kernels, maps and input gives every network's output."""
    for X, W_qk, W_v, mixing, graph in networks:
        out, A = run_heads(X, W_qk, W_v, mixing, graph)
        if abs(total(A, W_v, mixing, X) - out).max() > 1e-9 * abs(out).max():
            return False
    return True


def product_errors(networks: Sequence[Drawn]) -> Float[np.ndarray, "2"]:
    """Return the mean relative error of the product of averages, and its mean length beside the output's."""
    found = []
    for X, W_qk, W_v, mixing, graph in networks:
        out, A = run_heads(X, W_qk, W_v, mixing, graph)
        product, size = product_of_averages(A, W_v, mixing, X), np.linalg.norm(out)
        found.append((np.linalg.norm(product - out) / size, np.linalg.norm(product) / size))
    return np.mean(found, axis=0)


def path_checks(single: list[list[Drawn]], many: list[list[Drawn]]) -> list[Check]:
    """Return the checks of equation 4, for one head and for several paths."""
    order: dict[str, Total] = {
        "kernels in the opposite order": lambda A, *x: product_of_averages(A[::-1], *x),
        "value maps in the opposite order": lambda A, W_v, *x: product_of_averages(A, W_v[::-1], *x),
        "layer 1's kernel in every layer": lambda A, *x: product_of_averages(np.stack([A[0]] * len(A)), *x),
    }
    paths: dict[str, Total] = {
        "mean kernels, summed value maps": product_of_averages,
        "λ 1% smaller": lambda A, W_v, mixing, X: path_sum(A, W_v, 0.99 * mixing, X),
    }
    one, several = sum(single, []), sum(many, [])
    return [
        Check(
            "WU-eq4", "statement", "Equation 4: attention selects, value maps aggregate (one head, no residual).",
            adds_up(one, product_of_averages),
            f"P X W equals the output of {len(one)} networks with one head, 4 layers and one of four masks, to 1e-9",
            "P X W differs from a forward pass by more than 1e-9 of its largest entry",
            of_each(single, order, adds_up),
            "the sum is not the output", {"kind": "proved"},
        ),
        Check(
            "WU-eq4", "heads and residual connections", "Its form with heads and residual connections: a sum of paths.",
            adds_up(several, path_sum),
            f"the sum over paths equals the output of {len(several)} networks with several heads, residual connections "
            "or both; the product of mean kernels does not",
            "the sum over paths differs from a forward pass by more than 1e-9",
            of_each(many, paths, adds_up),
            "the sum is not the output", {"kind": "proved"},
        ),
    ]  # fmt: skip
