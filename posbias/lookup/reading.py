"""A law of reading by place: from which document an answer comes, where several compete.

If document q is asked for, the answer comes from document j with a probability proportional to
exp(b_j − γ|q − j|). The sharpness γ says how fast confusion falls with distance, and b_j how
strongly place j pulls answers, whatever is asked. A slope of b along the list cannot be told from
a finger that slips to one side, so b is for one that does not. Intervals are over sets.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.special import softmax

from posbias import errors
from posbias.comparison.resampling import interval, resample_weights

FEWEST = 10
"""Sets below which no law is fitted."""
RESAMPLES = 400
RIDGE = 1e-3
"""Weight of the squared coefficients: without it a place that is never answered from has none."""
STEPS = 60


@dataclass(frozen=True, repr=False)
class Reading:
    """Hold the law of reading by place that fits some answers; printed, what it says.

    ``counts`` has by place asked (rows) and place read (columns) how many answers there are.
    ``pulls`` has a mean of zero; the rows of ``pull_interval`` are its 95% ends. ``ends`` is how
    much more the first and the last place pull than the mean of those between, in nats, and the
    rows of ``ends_interval`` are its 95% ends.
    """

    counts: Float[np.ndarray, "P P"]
    sets: int
    unknown: int
    sharpness: float
    sharpness_interval: tuple[float, float]
    pulls: Float[np.ndarray, "P"]
    pull_interval: Float[np.ndarray, "2 P"]
    ends_interval: Float[np.ndarray, "2 2"]
    log_likelihood: float
    deviance: float

    @property
    def answers(self) -> int:
        """How many answers one document states."""
        return int(self.counts.sum())

    @property
    def ends(self) -> tuple[float, float]:
        """How much more the first and the last place pull than those between, in nats."""
        first, last = end_pulls(self.pulls)
        return float(first), float(last)

    @property
    def expected(self) -> Float[np.ndarray, "P P"]:
        """The share of answers from each place, by place asked, that the law expects."""
        return shares(self.pulls, self.sharpness)

    @property
    def wrong(self) -> int:
        """How many answers another document than the right one states."""
        return int(self.counts.sum() - self.counts.trace())

    @property
    def near(self) -> float:
        """The share of wrong answers that come from a neighbour of the right document."""
        return float(self.counts[distances(len(self.counts)) == 1].sum() / self.wrong)

    @property
    def later(self) -> float:
        """The share of wrong answers that come from a document behind the right one."""
        return float(np.triu(self.counts, 1).sum() / self.wrong)

    @property
    def apart(self) -> float:
        """The share of right answers that the law expects if every second document competes."""
        kept = [np.arange(start, len(self.pulls), 2) for start in (0, 1)]
        right = [shares(self.pulls[k], 2 * self.sharpness).diagonal().mean() for k in kept]
        return float(np.mean(right))

    def __repr__(self) -> str:
        low, high = self.sharpness_interval
        expected, P = self.expected.diagonal(), len(self.pulls)
        named = zip(("first", "last"), self.ends, self.ends_interval.T, strict=True)
        pulls = [f"{end} {x:+.1f} ({less:+.1f} to {more:+.1f})" for end, x, (less, more) in named]
        best, worst = int(expected.argmax()), int(expected.argmin())
        lines = [
            f"Where answers are from: {self.answers} are in one document, "
            f"{self.counts.trace():.0f} of them in the right one; {self.unknown} in none or several",
            f"Of {self.wrong} wrong ones {self.later:.0%} are from a document behind the right one "
            f"(by chance about 50%), {self.near:.0%} from a neighbour ({2 / P:.0%})",
            f"Sharpness γ {self.sharpness:.2f} ({low:.2f} to {high:.2f}): one place further from the "
            f"right document a mistake is exp(γ) = {np.exp(self.sharpness):.1f} times less likely",
            f"Pull of the ends in nats, more than between, for a symmetric finger: {', '.join(pulls)}",
            f"By this law {expected.mean():.2f} are right, most at place {best + 1} "
            f"({expected[best]:.2f}), fewest at {worst + 1} ({expected[worst]:.2f}); "
            f"{self.apart:.2f} if only every second document competed",
        ]
        return "\n".join(lines)


def end_pulls(pulls: Float[np.ndarray, "*C P"]) -> Float[np.ndarray, "2 *C"]:
    """Return how much more the first and the last place pull than the mean of those between.

    >>> end_pulls(np.array([2.0, 0.5, -0.5, 1.0])).tolist()
    [2.0, 1.0]
    """
    return pulls[..., [0, -1]].swapaxes(0, -1) - pulls[..., 1:-1].mean(-1)


def distances(places: int) -> Float[np.ndarray, "P P"]:
    """Return how many places two documents are apart."""
    return np.abs(np.subtract.outer(np.arange(places), np.arange(places))).astype(float)


def shares(
    pulls: Float[np.ndarray, "P"], sharpness: float, apart: Float[np.ndarray, "P P"] | None = None
) -> Float[np.ndarray, "P P"]:
    """Return from which place the law expects answers, by place asked.

    >>> shares(np.zeros(2), np.log(3)).round(2).tolist()
    [[0.75, 0.25], [0.25, 0.75]]
    """
    z = np.asarray(pulls) - sharpness * (distances(len(pulls)) if apart is None else apart)
    return np.asarray(softmax(z, axis=-1))


def law_features(apart: Float[np.ndarray, "P P"]) -> Float[np.ndarray, "P P K"]:
    """Return what the law weighs: the place that is read, one column each but the first, and nearness."""
    P = len(apart)
    place = np.broadcast_to(np.eye(P)[:, 1:], (P, P, P - 1))
    return np.concatenate([place, -apart[..., None]], axis=-1)


def fit_choices(
    features: Float[np.ndarray, "Q D K"], counts: Float[np.ndarray, "*B Q D"]
) -> tuple[Float[np.ndarray, "*B K"], Any]:
    """Return the coefficients of a multinomial logit, and its log-likelihood, by Newton's method.

    Of several tables of counts each is fitted by itself, all at once.
    """
    Q, D, K = features.shape
    each = counts.reshape(-1, Q, D)
    w, ridge = np.zeros((len(each), K)), 2 * RIDGE * np.eye(K)
    total = each.sum(-1, keepdims=True)
    for _ in range(STEPS):
        p = shares_of(features, w)
        slope = (each - total * p).reshape(-1, Q * D) @ features.reshape(-1, K) - w @ ridge
        curve = ridge + sum(_curvature(features[q], p[:, q], total[:, q]) for q in range(Q))
        step = np.linalg.solve(curve, slope[..., None])[..., 0]
        longest = np.abs(step).max(-1, keepdims=True)
        w += step * np.minimum(1.0, 3.0 / np.maximum(longest, 1e-12))
        if longest.max() < 1e-8:
            break
    of_tables = counts.shape[:-2]
    return w.reshape(*of_tables, K), log_likelihood(shares_of(features, w), each).reshape(of_tables)[()]


def shares_of(features: Float[np.ndarray, "Q D K"], w: Float[np.ndarray, "B K"]) -> Float[np.ndarray, "B Q D"]:
    """Return the shares that coefficients give."""
    return np.asarray(softmax(np.moveaxis(features @ w.T, -1, 0), axis=-1))


def _curvature(
    features: Float[np.ndarray, "D K"], p: Float[np.ndarray, "B D"], total: Float[np.ndarray, "B 1"]
) -> Float[np.ndarray, "B K K"]:
    """Return what the answers to one question add to the curvature: how many, times the covariance of features."""
    means = p @ features
    return total[..., None] * ((features.T * p[:, None]) @ features - means[:, :, None] * means[:, None])


def log_likelihood(p: Float[np.ndarray, "*B Q D"], counts: Float[np.ndarray, "*B Q D"]) -> Any:
    """Return the log-likelihood of counts; what was not seen adds nothing."""
    return (counts * np.log(np.where(counts > 0, p, 1.0))).sum((-2, -1))


def fit_law(
    counts: Float[np.ndarray, "*B P P"], apart: Float[np.ndarray, "P P"] | None = None
) -> tuple[Any, Float[np.ndarray, "*B P"], Any]:
    """Return sharpness, pulls and log-likelihood of each table; ``apart`` has distances in another unit."""
    w, found = fit_choices(law_features(distances(counts.shape[-1]) if apart is None else apart), counts)
    pulls = np.concatenate([np.zeros((*w.shape[:-1], 1)), w[..., :-1]], axis=-1)
    return w[..., -1], pulls - pulls.mean(-1, keepdims=True), found


def count_sources(source: Int[np.ndarray, "C P"]) -> Float[np.ndarray, "C P P"]:
    """Return counts by set, place asked and place read, of the place that each answer is from.

    >>> count_sources(np.array([[0, -1]])).tolist()
    [[[1.0, 0.0], [0.0, 0.0]]]
    """
    return (np.asarray(source)[..., None] == np.arange(source.shape[1])).astype(float)


def fit_reading(source: Int[np.ndarray, "C P"], resamples: int = RESAMPLES) -> Reading:
    """Return the law that fits from which place each answer is, by set and place asked.

    Places count from 0; -1 stands for an answer that no document states, or that several do.
    ValueError says what is missing.
    """
    C, P = source.shape
    if C < FEWEST:
        raise errors.invalid("reading", f"{FEWEST} sets of competing documents or more", f"{C}")
    if P < 3:
        raise errors.invalid("reading", "three documents in a set or more", f"{P}")
    counts = count_sources(source)
    total = counts.sum(0)
    if total.sum() < P * FEWEST / 2 or total.sum() - total.trace() < FEWEST:
        received = f"{total.sum():.0f}, of which {total.sum() - total.trace():.0f} wrong"
        expected = f"{P * FEWEST // 2} answers or more in one document, {FEWEST} of them wrong"
        raise errors.invalid("reading", expected, received)
    sharpness, pulls, found = fit_law(total)
    drawn, each, _ = fit_law(np.tensordot(resample_weights(C, resamples), counts, 1))
    low, high = interval(drawn)
    table = log_likelihood(total / np.maximum(total.sum(1, keepdims=True), 1), total)
    return Reading(
        total,
        C,
        int((source < 0).sum()),
        float(sharpness),
        (float(low), float(high)),
        pulls,
        np.stack(interval(each)),
        np.stack(interval(end_pulls(each).T)),
        float(found),
        float(2 * (table - found)),
    )
