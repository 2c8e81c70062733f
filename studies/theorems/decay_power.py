"""The power of a decay mask in closed form: its kernel times a homogeneous polynomial of its own diagonal.

It holds for every causal kernel whose logits are a sum of one number for the query and one for the key, as with a decay
mask, no mask beside the causal one, and content of the key alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.errors import Numbers

Rational = Fraction | int
"""What exact arithmetic is done with."""
Matrix = Sequence[Sequence[Rational]]
"""Rows of rationals."""


def complete_homogeneous(values: Sequence[Rational], degree: int) -> list[Fraction]:
    """Return h_0, …, h_degree of the values: h_k is the sum of all products of k of them, with repetition.

    Parameters
    ----------
    values
        Numbers of any kind that adds and multiplies; rationals stay exact.
    degree
        The last k, at least 0.

    Source: Macdonald 1995, Symmetric Functions and Hall Polynomials, I.2; h_k(x_1..x_r) = h_k(x_1..x_{r-1}) + x_r
    h_{k-1}(x_1..x_r).

    >>> [str(h) for h in complete_homogeneous([2, 3], 2)]  # 1, 2 + 3, 2·2 + 2·3 + 3·3
    ['1', '5', '19']
    """
    h = [Fraction(1)] + [Fraction(0)] * errors.positive_integer("degree", degree, minimum=0)
    for value in values:
        for k in range(1, degree + 1):
            h[k] += value * h[k - 1]
    return h


def exact_decay_kernel(n: int, q: Rational, keys: Sequence[Rational] | None = None) -> list[list[Fraction]]:
    """Return A[i, j] = b_j q^(i-j) / Z_i for j ≤ i, in rationals.

    Parameters
    ----------
    n
        Tokens.
    q
        e^-m of the decay mask, in (0, 1]; 1 is uniform attention.
    keys
        b_j > 0, exponentials of logits that depend on the key alone; all 1 unless given.

    Raises
    ------
    ValueError
        For q outside (0, 1], or keys that are not n positive numbers.

    >>> exact_decay_kernel(2, Fraction(1, 2))
    [[Fraction(1, 1), Fraction(0, 1)], [Fraction(1, 3), Fraction(2, 3)]]
    """
    if not 0 < q <= 1:
        raise errors.invalid("q", "a number in (0, 1]", q)
    b: list[Rational] = [1] * errors.positive_integer("n", n) if keys is None else list(keys)
    if len(b) != n or min(b) <= 0:
        raise errors.invalid("keys", f"{n} numbers above 0", b)
    rows = [[b[j] * q ** (i - j) for j in range(i + 1)] for i in range(n)]
    return [[Fraction(x) / sum(row) for x in row] + [Fraction(0)] * (n - len(row)) for row in rows]


def exact_product(A: Matrix, B: Matrix) -> list[list[Rational]]:
    """Return the product of two square matrices of rationals.

    >>> exact_product([[1, 0], [2, 3]], [[1, 0], [4, 5]])
    [[1, 0], [14, 15]]
    """
    columns = list(zip(*B, strict=True))
    return [[sum(a * b for a, b in zip(row, column, strict=True)) for column in columns] for row in A]


def exact_powers(A: Matrix, T: int) -> list[list[list[Rational]]]:
    """Return A, A², …, A^T as products of matrices of rationals: what the closed form is checked against.

    >>> exact_powers([[1, 0], [2, 3]], 2)[1]
    [[1, 0], [8, 9]]
    """
    powers = [[list(row) for row in A]]
    for _ in range(errors.positive_integer("T", T) - 1):
        powers.append(exact_product(A, powers[-1]))
    return powers


def power_row(row: Float[np.ndarray, "m"], own: Float[np.ndarray, "m"], T: int) -> Float[np.ndarray, "T m"]:
    """Return P_T[i, j] = A[i, j] h_{T-1}(A[j, j], …, A[i, i]) for one query i, every key j ≤ i and T = 1, 2, ….

    The sums have positive terms alone, so that nothing cancels: the relative error is at most about
    2 (T + m) roundings. The work is O(T m).

    Parameters
    ----------
    row
        A[i, j] for j ≤ i.
    own
        A[j, j] for j ≤ i: for a decay mask without content 1/Z_j.
    T
        Layers.

    Raises
    ------
    ValueError
        If a weight is not in [0, 1].

    Source: ours.

    >>> power_row(np.array([1 / 3, 2 / 3]), np.array([1, 2 / 3]), 2).round(4).tolist()
    [[0.3333, 0.6667], [0.5556, 0.4444]]
    """
    weights, diagonal = (errors.finite_array(name, x, ndim=(1,)) for name, x in (("row", row), ("own", own)))
    T = errors.positive_integer("T", T)
    if min(weights.min(), diagonal.min()) < 0 or max(weights.max(), diagonal.max()) > 1 + 1e-12:
        raise errors.invalid("row, own", "weights in [0, 1]", "others")
    h = np.ones((T, weights.size))
    for k in range(1, T):
        h[k] = np.cumsum((diagonal * h[k - 1])[::-1])[::-1]
    return weights * h


def mixed_power_row(
    row: Float[np.ndarray, "m"], own: Float[np.ndarray, "m"], hops: Float[np.ndarray, "hops"]
) -> Float[np.ndarray, "m"]:
    """Return the same row of a rollout with residuals: Σ_k ω_k A^k[i, ·], with :func:`power_row` for A^k.

    Parameters
    ----------
    row, own
        As for :func:`power_row`.
    hops
        ω_0, ω_1, …: the distribution of the number of layers that are not skipped
        (:func:`posbias.rollout.clock.hop_distribution`).

    >>> mixed_power_row(np.array([1 / 3, 2 / 3]), np.array([1, 2 / 3]), np.array([0.5, 0.5])).round(4).tolist()
    [0.1667, 0.8333]
    """
    powers = power_row(row, own, max(1, len(hops) - 1))
    mixed = np.asarray(hops[1:]) @ powers[: len(hops) - 1]
    mixed[-1] += hops[0]
    return mixed


def decay_diagonal(n: int, slope: Numbers) -> Float[np.ndarray, "n"]:
    """Return 1/Z_j, Z_j = 1 + q + … + q^(j-1), q = e^-m: the weights of a decay mask on the query itself.

    Parameters
    ----------
    n
        Tokens.
    slope
        m ≥ 0; 0 is uniform attention, 1/j.

    >>> decay_diagonal(3, np.log(2)).round(4).tolist(), decay_diagonal(3, 0.0).round(4).tolist()
    ([1.0, 0.6667, 0.5714], [1.0, 0.5, 0.3333])
    """
    m = float(errors.finite_array("slope", slope, ndim=(0,)))
    if m < 0:
        raise errors.invalid("slope", "a number ≥ 0", m)
    return 1 / np.cumsum(np.exp(-m * np.arange(errors.positive_integer("n", n))))
