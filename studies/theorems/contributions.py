"""Contributions in random layers: what a part's share is, and that the shares of a layer make a causal kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.comparison.distances import unit
from studies.checks import Check
from studies.theorems.depth import stage_bound, stay_weights

RUNS = 20
LENGTHS = (16, 64, 128)
"""Tokens of one layer at random weights."""

Parts = Float[np.ndarray, "n d"]
Holds = Callable[[int, str], bool]
"""Whether a claim holds for a seed, with something broken, or with nothing if it has no name."""


def contributions(parts: Float[np.ndarray, "... n d"], norm: int = 1) -> Float[np.ndarray, "... n"]:
    """Return by how much each part makes the sum longer, as shares; parts that shorten it count nothing.

    >>> contributions(np.array([[1.0, 0.0], [0.0, -1.0], [3.0, 2.0]])).tolist()
    [0.25, 0.0, 0.75]
    """
    y = parts.sum(-2, keepdims=True)
    without = np.linalg.norm(y - parts, norm, axis=-1)
    longer = np.maximum(np.linalg.norm(y, norm, axis=-1) - without, 0)
    return np.asarray(longer / longer.sum(-1, keepdims=True))


def random_parts(rng: np.random.Generator, kind: str = "mixed", tokens: int = 6, width: int = 64) -> Parts:
    """Return parts of one token: of any kind, parallel, or orthogonal, of random sizes."""
    sizes = rng.exponential(size=(tokens, 1)) + 0.1
    if kind == "parallel":
        return sizes * rng.standard_normal(width)
    if kind == "orthogonal":
        return np.asarray(sizes * np.linalg.qr(rng.standard_normal((width, tokens)))[0].T)
    return sizes * rng.standard_normal((tokens, width))


def sums_to_one(seed: int, broken: str = "") -> bool:
    """Say whether projection shares sum to 1."""
    parts = random_parts(np.random.default_rng(seed))
    y = parts.sum(0) + (0.1 if broken == "bias" else 0)
    found = parts @ y / (y @ y)
    if broken == "1-norm":
        found = (np.abs(y).sum() - np.abs(y - parts).sum(-1)) / np.abs(y).sum()
    return bool(abs(found.sum() - 1) < 1e-12)


def is_share_of_sizes(seed: int, broken: str = "") -> bool:
    """Say whether parallel parts count by their sizes, by projection and by both norms."""
    rng = np.random.default_rng(seed)
    parts = random_parts(rng, "parallel")
    if broken == "turned":
        parts += 0.1 * np.abs(parts).mean() * rng.standard_normal(parts.shape)
    sizes, y = unit(np.linalg.norm(parts, axis=-1)), parts.sum(0)
    if broken == "around":
        parts[0] *= -1
    found = [parts @ y / (y @ y), contributions(parts), contributions(parts, 2)]
    return bool(np.abs(np.array(found) - sizes).max() < 1e-9)


def is_share_of_squares(seed: int, broken: str = "") -> bool:
    """Say whether orthogonal parts count by their squares s, by projection, and by 1 - √(1 - s)."""
    parts = random_parts(np.random.default_rng(seed), "orthogonal")
    sizes = np.linalg.norm(parts, axis=-1)
    squares = unit(sizes if broken == "sizes" else sizes**2)
    if broken == "common":
        parts = parts + 0.1 * parts.sum(0)
    y, expected = parts.sum(0), unit(1 - np.sqrt(1 - squares))
    near = np.abs(parts @ y / (y @ y) - squares).max() < 1e-9
    return bool(near and np.abs(contributions(parts, 2) - expected).max() < 1e-9)


def one_norm_is_euclidean(seed: int, broken: str = "", width: int = 4096) -> bool:
    """Say whether Gaussian entries give the Euclidean fraction by the 1-norm, within its bound."""
    parts = random_parts(np.random.default_rng(seed), width=width)
    if broken == "few":
        parts[:, :3] *= 300
    if broken == "own":
        parts *= np.arange(width) % 6 == np.arange(6)[:, None]
    y, t = parts.sum(0), parts * np.sign(parts.sum(0))
    shorter = np.abs(y).sum() - np.abs(y - parts).sum(-1)
    exact = np.abs(np.minimum(t, 2 * np.abs(y) - t).sum(-1) - shorter).max() < 1e-6
    s = unit((parts**2).sum(-1))
    expected = s if broken == "s" else unit(1 - np.sqrt(1 - s))
    near = np.abs(contributions(parts) - expected).max() < 0.03
    return bool(exact and near and (shorter <= t.sum(-1) + 1e-6).all())


def layer(rng: np.random.Generator, x: Float[np.ndarray, "n d"], normed: bool = True) -> Float[np.ndarray, "n n d"]:
    """Return the parts of a random layer on states, by query and key."""
    n, width = x.shape
    h = x / np.sqrt((x**2).mean(-1, keepdims=True)) if normed else x
    W_Q, W_K, M = rng.standard_normal((3, width, width)) / np.sqrt(width)
    logits = (h @ W_Q) @ (h @ W_K).T / np.sqrt(width)
    logits = np.where(np.tri(n) > 0, logits, -np.inf)
    A = np.exp(logits - logits.max(-1, keepdims=True))
    parts = (A / A.sum(-1, keepdims=True))[:, :, None] * (h @ M)
    parts[np.arange(n), np.arange(n)] += x
    return np.asarray(parts)


def sink_drops_out(seed: int, broken: str = "") -> bool:
    """Say whether a first state 175 times as long leaves a layer's kernel as it is."""
    x = np.random.default_rng(seed).standard_normal((6, 16))
    states = x, x * np.where(np.arange(6) == 0, 175, 1)[:, None]
    made = [layer(np.random.default_rng(seed), s, broken != "norm") for s in states]
    one, other = map(contributions, made)
    if broken == "share":  # one λ of the whole prompt
        one, other = (_mixing(parts, s) for parts, s in zip(made, states, strict=True))
    return bool(np.abs(one - other).max() < 1e-9)


def _mixing(parts: Float[np.ndarray, "n n d"], states: Float[np.ndarray, "n d"]) -> Any:
    added, kept = np.linalg.norm(parts.sum(1) - states), np.linalg.norm(states)
    return added / (added + kept)


def one_layer(n: int, width: int, rng: np.random.Generator, common: float = 0.0) -> list[float]:
    """Return earlier tokens' part by contribution, by root of projection, by the law, and none.

    Attention is uniform; ``common`` is how long what all values have in common is.
    """
    values = rng.standard_normal((n, width))
    values += common * rng.standard_normal(width)
    made = values / n
    made[-1] += rng.standard_normal(width)
    root = np.sqrt(np.maximum(made @ made.sum(0), 0))
    law = np.append(np.full(n - 1, 1 / n), np.hypot(1, 1 / n))
    return [float(1 - unit(share)[-1]) for share in (contributions(made), root, law)] + [0.0]


def gives_the_law(seed: int, rule: int) -> bool:
    """Say whether earlier tokens' part is within 0.1 of the law's at every length."""
    rng = np.random.default_rng(seed)
    found = [one_layer(n, 4096, rng) for n in LENGTHS]
    return all(abs(x[rule] - x[2]) < 0.1 for x in found)


def kernels_of(seed: int, depth: int, broken: str = "") -> Float[np.ndarray, "T n n"]:
    """Return contributions in random layers on states of their own."""
    rng, made = np.random.default_rng(seed), []
    for _ in range(depth):
        parts = layer(rng, rng.standard_normal((6, 32)))
        if broken == "mask":
            parts = parts + parts[::-1, ::-1]
        with np.errstate(invalid="ignore"):
            C = contributions(parts)
        C = np.where(np.isnan(C), np.eye(6), C)  # who has no contribution keeps itself
        if broken == "cut":
            y = parts.sum(1, keepdims=True)
            C = np.abs(y).sum(-1) - np.abs(y - parts).sum(-1)
            C = C / C.sum(-1, keepdims=True)
        made.append(C * 0.98 if broken == "rows" else C)
    return np.stack(made)


def product(C: Float[np.ndarray, "T n n"]) -> Float[np.ndarray, "n n"]:
    """Return the product of layers, the last one first."""
    return np.asarray(reduce(lambda P, one: one @ P, C))


def is_causal_kernel(C: Float[np.ndarray, "... n n"]) -> bool:
    """Say whether rows are distributions over the tokens up to their own."""
    sums = np.abs(C.sum(-1) - 1).max() < 1e-12
    return bool(sums and (C >= 0).all() and not np.triu(C, 1).any())


def makes_kernels(seed: int, broken: str = "") -> bool:
    """Say whether 12 layers and their product are causal kernels."""
    C = kernels_of(seed, 12, broken)
    return is_causal_kernel(C) and is_causal_kernel(product(C))


def collapses(seed: int, broken: str = "", depth: int = 100) -> bool:
    """Say whether the mass off the first token is under its bound, and nearly gone."""
    C = kernels_of(seed, 3 if broken == "few" else depth, broken)
    bound = stage_bound(stay_weights(C, np.ones(len(C))))[-1]
    left = 1 - product(C)[1:, 0]
    return bool((left <= bound + 1e-9).all() and left.max() < 0.05)


def proved(
    row: str, part: str, said: str, holds: Holds, figure: str, fails_if: str, kinds: Mapping[str, str], **how: Any
) -> Check:
    """Return a check of a proved claim: random cases, and the same with something broken."""
    seeds = range(RUNS)
    broken = {}
    for kind, text in kinds.items():
        broken[text] = [holds(s, kind) for s in seeds]
    passed, about = all(holds(s, "") for s in seeds), {"kind": "proved", **how}
    return Check(row, part, said, passed, figure, fails_if, broken, "a case fails", about, f"{RUNS} random cases")


def share_checks() -> list[Check]:
    """Return the checks of what a part's share is."""
    row = "C-sizes-squares"
    return [
        proved(
            row, "sum", "Projection shares sum to 1 if no bias is counted.", sums_to_one,
            f"1 within 1e-12 in {RUNS} random sums", "projection shares do not sum to 1",
            {"bias": "a bias that belongs to no token", "1-norm": "1-norms that are not cut"},
        ),
        proved(
            row, "parallel", "Parallel parts count by size, by both norms.", is_share_of_sizes,
            f"shares of sizes within 1e-9 by both norms in {RUNS} sums",
            "contributions of parallel parts are not their shares of sizes",
            {"turned": "parts turned a little", "around": "one part turned around"},
        ),
        proved(
            row, "orthogonal", "Orthogonal parts count by their squares.", is_share_of_squares,
            f"s and 1 - √(1 - s) of squares within 1e-9 in {RUNS} sums",
            "shares of orthogonal parts are not those of their squares",
            {"common": "a tenth of the sum in every part", "sizes": "sizes, not squares"},
        ),
        proved(
            row, "1-norm", "Both norms agree in wide random states, if no few entries are huge.",
            one_norm_is_euclidean, f"width 4,096: within 0.03 of 1 - √(1 - s) in {RUNS} sums; bound exact",
            "Gaussian entries give other shares than 1 - √(1 - s), or exceed the bound",
            {"few": "three entries 300 times as large", "own": "parts without common entries",
             "s": "s in place of 1 - √(1 - s)"}, post_hoc=True,
        ),
        proved(
            row, "sink", "The length of the first state drops out, in every layer.", sink_drops_out,
            f"kernels of {RUNS} random layers unchanged within 1e-9",
            "contributions change if the first token's state becomes 175 times as long",
            {"norm": "no norm before attention", "share": "one λ of the whole prompt"},
        ),
    ]  # fmt: skip


def untrained_check() -> Check:
    """Return the check of contributions in one layer at random weights."""
    few, many = (one_layer(n, 4096, np.random.default_rng(0)) for n in (LENGTHS[0], LENGTHS[-1]))
    return Check(
        "C-sizes-squares", "random weights", "At random weights contributions are the law of untrained networks.",
        all(gives_the_law(s, 0) for s in range(3)),
        f"earlier tokens have {few[0]:.3f} of {LENGTHS[0]} tokens, {many[0]:.3f} of {LENGTHS[-1]}",
        "in one random layer the earlier part is not within 0.1 of the law's",
        {"none of it": [gives_the_law(s, 3) for s in range(3)]},
        f"squares, where a gradient has sizes; the law gives {many[2]:.2f}", {},
    )  # fmt: skip


def contribution_checks() -> list[Check]:
    """Return the checks of what shares are, and of the kernel that they make."""
    return [
        *share_checks(),
        untrained_check(),
        proved(
            "C-kernel", "kernel", "Contributions make a causal kernel, by definition.", makes_kernels,
            f"12 random layers and their product in {RUNS} draws",
            "a weight is negative, a row does not sum to 1, or a later token contributes",
            {"mask": "no mask", "cut": "not cut at 0", "rows": "rows that sum to 0.98"},
        ),
        proved(
            "C-kernel", "collapse", "All ends on the first token if tokens keep giving.", collapses,
            f"100 random layers, {RUNS} draws: under the bound for every token, and below 0.05",
            "more mass is left off the first token than the proof's bound, or over 0.05",
            {"mask": "no mask", "few": "three layers only"}, post_hoc=True,
        ),
    ]  # fmt: skip
