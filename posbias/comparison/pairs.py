"""Two profiles compared: their distance beside baselines, their rank correlation and their means, in words."""

from dataclasses import dataclass

import numpy as np

from posbias import errors
from posbias.comparison.distances import normalised_wasserstein, spearman, total_variation
from posbias.comparison.scores import score
from posbias.errors import Numbers
from posbias.rollout.labelled import Profile


@dataclass(frozen=True, repr=False)
class Comparison:
    """Say how far two profiles are apart."""

    names: tuple[str, str]
    n: int  # Number of positions
    wasserstein: float  # Normalised W₁: the share of the length by which influence has to move, on average
    # Its 95% interval over resampled prompts, if exactly one of the two was measured on two or more; their number
    interval: tuple[float, float] | None
    prompts: int | None
    total_variation: float  # The share of influence that has to move at all
    spearman: float  # Rank correlation; NaN if one of the two is constant
    means: tuple[float, float]  # Mean positions, 0 at the first token and 1 at the last
    ordered: bool  # Whether one dominates the other; W₁, a sum of |F_p - F_q|, is then the difference of the means
    even: float  # A baseline: W₁ to the second profile from equal shares
    last: float  # Another: from everything on the last token

    def __repr__(self) -> str:
        distance = f"{self.wasserstein:.3f}"
        if self.interval is not None:
            distance += f" (95% interval {self.interval[0]:.3f} to {self.interval[1]:.3f}, {self.prompts} prompts)"
        rank = "undefined for a constant profile" if np.isnan(self.spearman) else f"{self.spearman:.3f}"
        order = "their distribution functions cross"
        if self.wasserstein == 0:
            order = "the profiles are equal"
        elif self.ordered:
            early = "first" if self.means[0] < self.means[1] else "second"
            order = f"the {early} is nearer the start throughout: W1 is the difference of means"
        return (
            f"{self.names[0]}\nagainst {self.names[1]}, {self.n} positions\nW1 {distance}\n"
            f"baselines: equal shares {self.even:.3f}, all on the last token {self.last:.3f}\n"
            f"total variation {self.total_variation:.3f}\nrank correlation {rank}\n"
            f"means {self.means[0]:.3f} and {self.means[1]:.3f}; {order}"
        )


def compare(p: Numbers | Profile, q: Numbers | Profile) -> Comparison:
    """Compare two influence profiles of equal length, lists, arrays or Profile, each of sum 1; one may be measured.

    >>> compare([0.5, 0.5], [0.25, 0.75])
    first profile
    against second profile, 2 positions
    W1 0.250
    baselines: equal shares 0.250, all on the last token 0.250
    total variation 0.250
    rank correlation undefined for a constant profile
    means 0.500 and 0.750; the first is nearer the start throughout: W1 is the difference of means
    """
    first, second = _profile("first profile", p), _profile("second profile", q)
    if len(first) != len(second):
        received = f"{len(first)} ({first.name}) and {len(second)} ({second.name})"
        raise errors.invalid("profiles", "the same number of positions", received)
    a, b = first.values / first.values.sum(), second.values / second.values.sum()
    gap, n, interval, prompts = np.cumsum(a - b), len(a), None, None
    measured = [(x.prompts, other) for x, other in ((first, b), (second, a)) if usable(x.prompts)]
    if len(measured) == 1:
        influence, prediction = measured[0]
        assert influence is not None
        scored = score(influence, prediction)
        interval, prompts = (scored.low, scored.high), len(influence)
    return Comparison(
        names=(first.name, second.name),
        n=n,
        wasserstein=normalised_wasserstein(a, b),
        interval=interval,
        prompts=prompts,
        total_variation=total_variation(a, b),
        spearman=spearman(a, b),
        means=(first.mean_position, second.mean_position),
        ordered=bool((gap >= -1e-12).all() or (gap <= 1e-12).all()),
        even=normalised_wasserstein(np.full(n, 1 / n), b),
        last=normalised_wasserstein(np.eye(n)[-1], b),
    )


def usable(influence: np.ndarray | None) -> bool:
    """Return whether intervals can be had from prompts: two or more, each with influence, and all of it finite."""
    return (
        influence is not None
        and len(influence) > 1
        and bool(np.isfinite(influence).all() and (influence >= 0).all() and influence.any(axis=1).all())
    )


def _profile(field: str, values: Numbers | Profile) -> Profile:
    """Return a profile with a name; the field's own where none was given."""
    return values if isinstance(values, Profile) else Profile(errors.distribution(field, values, tolerance=1e-6), field)
