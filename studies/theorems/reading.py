"""When a blurred pointer loses the middle of a list: accuracy by place under the law of reading.

Documents stand at places 1 … P, and the one at q is asked for. A pointer lands at j with a probability in proportion to
r^|q - j|, r = e^-γ: it is γ per place sharp. What it lands on is taken in proportion to e^b_j, else it is thrown again:

    P(answer from j | asked for q) = e^(b_j - γ|q - j| + m [j = q]) / Σ_k e^(b_k - γ|q - k| + m [k = q]).

The same law is the largest of scores m [j = q] + b_j - γ|q - j| with independent Gumbel noise (McFadden 1974). m is a
bonus for what matches. Ends pull: b_1 = log a, b_P = log c, and b = 0 between them. Here a list is 1 … P, arrays are
from 0 on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations

import numpy as np
from jaxtyping import Bool, Float, Int


def end_pulls(P: int, left: float, right: float | None = None) -> Float[np.ndarray, "P"]:
    """Return b: ``left`` at the first place, ``right`` at the last (the same unless given), 0 between them.

    >>> end_pulls(4, 2.0, 1.0).tolist()
    [2.0, 0.0, 0.0, 1.0]
    """
    b = np.zeros(P)
    b[0], b[-1] = left, left if right is None else right
    return b


def reading_matrix(gamma: float, b: Float[np.ndarray, "P"], match: float = 0.0) -> Float[np.ndarray, "P P"]:
    """Return P(answer from j | asked for q), q by rows.

    >>> reading_matrix(np.log(2), np.zeros(3)).round(3).tolist()
    [[0.571, 0.286, 0.143], [0.25, 0.5, 0.25], [0.143, 0.286, 0.571]]
    """
    place = np.arange(b.size)
    weights = np.exp(b - gamma * np.abs(place[:, None] - place) + match * np.eye(b.size))
    return np.asarray(weights / weights.sum(1, keepdims=True))


def draw_answers(
    gamma: float, b: Float[np.ndarray, "P"], asked: int, count: int, rng: np.random.Generator
) -> Int[np.ndarray, "count"]:
    """Return answers drawn as the law says: throw the pointer, take what it lands on with e^b_j / e^max(b), or repeat.

    Places count from 0. The pointer's distance is a difference of two geometric numbers; off the list it is thrown
    again.
    """
    found: list[int] = []
    most = b.max()
    while len(found) < count:
        steps = rng.geometric(1 - np.exp(-gamma), size=(2, 4 * count))
        landed = asked + steps[0] - steps[1]
        landed = landed[(landed >= 0) & (landed < b.size)]
        taken = rng.random(landed.size) < np.exp(b[landed] - most)
        found += landed[taken].tolist()
    return np.array(found[:count])


def odds_against(gamma: float, P: int, left: float, right: float, match: float = 0.0) -> Float[np.ndarray, "P"]:
    """Return the odds against the right answer at each place, in closed form.

    Between the ends (with a = e^left, c = e^right) they are
    e^-m [2 / (e^γ - 1) + (a - 1 / (1 - r)) r^(q-1) + (c - 1 / (1 - r)) r^(P-q)], at the first place
    e^-m [r (1 - r^(P-1)) / (1 - r) + (c - 1) r^(P-1)] / a.

    >>> odds_against(np.log(2), 3, 0.0, 0.0).round(3).tolist()  # 1 / .571 - 1, 1 / .5 - 1
    [0.75, 1.0, 0.75]
    """
    r, a, c = np.exp(-gamma), np.exp(left), np.exp(right)
    q = np.arange(1, P + 1)
    odds = 2 * r / (1 - r) + (a - 1 / (1 - r)) * r ** (q - 1) + (c - 1 / (1 - r)) * r ** (P - q)
    whole = r * (1 - r ** (P - 1)) / (1 - r)
    odds[0] = (whole + (c - 1) * r ** (P - 1)) / a
    odds[-1] = (whole + (a - 1) * r ** (P - 1)) / c
    return np.asarray(np.exp(-match) * odds)


def is_middle_lost(accuracy: Float[np.ndarray, "... P"]) -> Bool[np.ndarray, "..."]:
    """Return whether every place between the ends has a lower accuracy than both ends.

    >>> bool(is_middle_lost(np.array([0.9, 0.1, 0.5]))), bool(is_middle_lost(np.array([0.9, 0.6, 0.5])))
    (True, False)
    """
    ends = np.minimum(accuracy[..., 0], accuracy[..., -1])
    return np.asarray(accuracy[..., 1:-1].max(-1) < ends)


def least_pull(gamma: float, P: int) -> float:
    """Return the pull of both ends above which the middle is lost: log of the positive root a of

        a² (r + r^(P-2)) + a (S(P-3) - r^(P-1)) - S(P-2) = 0,  S(k) = r + … + r^k.

    It is below 0; for long lists a² (1 - r) + a = 1, so that it lies between log((√5 - 1) / 2) and 0.

    >>> round(least_pull(40.0, 50), 4), round(float(np.log((5**0.5 - 1) / 2)), 4)
    (-0.4812, -0.4812)
    """  # noqa: D400, D205
    r = np.exp(-gamma)
    powers = r ** np.arange(1, P)
    sums = np.concatenate([[0.0], powers.cumsum()])
    square, linear = r + r ** (P - 2), sums[P - 3] - r ** (P - 1)
    root = (-linear + np.sqrt(linear**2 + 4 * square * sums[P - 2])) / (2 * square)
    return float(np.log(root))


def turning_pull(gamma: float) -> float:
    """Return -log(1 - e^-γ): with less pull the worst place is the middle, with more it is next to an end.

    >>> round(turning_pull(np.log(2)), 4)
    0.6931
    """
    return float(-np.log1p(-np.exp(-gamma)))


def middle_limit(gamma: float, match: float = 0.0) -> float:
    """Return the accuracy far from both ends of a long list, 1 / (1 + 2 e^-m / (e^γ - 1)): tanh(γ/2) if m = 0.

    >>> bool(np.isclose(middle_limit(0.8), np.tanh(0.4)))
    True
    """
    return float(1 / (1 + 2 * np.exp(-match) / np.expm1(gamma)))


def share_limit(
    gamma: float, P: int, left: float, right: float
) -> tuple[Float[np.ndarray, "P-2"], Float[np.ndarray, "P-2"]]:
    """Return γ / w between the ends, w = 2 - r^(q-1) - r^(P-q), and the most by which an accuracy differs, over itself.

    1/A = w/γ + (a - 1/2) r^(q-1) + (c - 1/2) r^(P-q) + θ w γ/12 with 0 ≤ θ ≤ 1, as 1/(e^γ - 1) = 1/γ - 1/2 + θ γ/12.
    So |A - γ/w| ≤ A γ/w (|a - 1/2| r^(q-1) + |c - 1/2| r^(P-q) + w γ/12). With γ P fixed, P A has a limit.
    """
    q = np.arange(2, P)
    near, far = np.exp(-gamma * (q - 1)), np.exp(-gamma * (P - q))
    w = 2 - near - far
    rest = abs(np.exp(left) - 0.5) * near + abs(np.exp(right) - 0.5) * far + w * gamma / 12
    return gamma / w, gamma / w * rest


def best_order(accuracy: Float[np.ndarray, "P"]) -> Int[np.ndarray, "P"]:
    """Return the place of each rank: the likeliest document goes to the place of highest accuracy, and so on.

    >>> best_order(np.array([0.5, 0.1, 0.9])).tolist()
    [2, 0, 1]
    """
    return np.argsort(-accuracy, kind="stable")


def right_answers(places: Sequence[int], rates: Float[np.ndarray, "P"], accuracy: Float[np.ndarray, "P"]) -> float:
    """Return the share of right answers if rank k is at ``places[k]`` and is right with probability ``rates[k]``.

    >>> right_answers([1, 0], np.array([0.8, 0.2]), np.array([0.5, 1.0]))
    0.9
    """
    return float(rates @ accuracy[list(places)])


def right_among(places: Sequence[int], rates: Float[np.ndarray, "k"], gamma: float, b: Float[np.ndarray, "P"]) -> float:
    """Return the same where only these documents state such a fact: no answer comes from any other place.

    >>> right_among([0, 2], np.array([1.0, 0.0]), np.log(2), np.zeros(3))  # 1 against 1/4
    0.8
    """
    own = list(places)
    weights = np.exp(b[own] - gamma * np.abs(np.subtract.outer(own, own)))
    return float(rates @ (weights.diagonal() / weights.sum(1)))


def best_places(
    P: int, count: int, score: Callable[[Sequence[int]], float], tolerance: float = 1e-12
) -> tuple[float, list[tuple[int, ...]]]:
    """Return the highest score of all ways to place ``count`` documents, and the ways that reach it.

    >>> best_places(3, 1, lambda places: -places[0])
    (0, [(0,)])
    """
    scores = {places: score(places) for places in permutations(range(P), count)}
    most = max(scores.values())
    return most, [places for places, value in scores.items() if value >= most - tolerance]
