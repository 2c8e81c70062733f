"""Influence profiles as distributions on positions: mean, shape, and files of them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.errors import Numbers
from posbias.files import write_whole

HEADER = "token_position,probability"


def mean_position(p: Numbers) -> float:
    """Return Σ_j j p[j] / (n - 1): 0 if all influence is on the first token, 1 if on the last.

    >>> mean_position([0.25, 0.0, 0.75])
    0.75
    """
    p = errors.distribution("profile", p)
    return float(p @ np.arange(p.size) / max(p.size - 1, 1))


TOLERANCE = 0.05
"""How far above its lowest point a trough's bottom reaches, relatively: its place is known no better than that."""


@dataclass(frozen=True)
class UShape:
    """Describe how a profile, its last position aside, falls from its ends to its lowest point."""

    # start, end: Influence of the first position and of the last but one (or the mean over ``ends`` of them)
    start: float
    end: float
    trough: float  # Smallest influence strictly between the two
    location: float  # Position of the trough as a share of the sequence, 0 at the first token, 1 at the last
    depth: float  # 1 - trough / min(start, end): 0 or less if there is no U, towards 1 the deeper the trough
    # low, high: First and last position between the ends, as shares, that are within the tolerance of the trough
    low: float
    high: float
    # Whether there is a U: both ends are above the trough by more than the tolerance, so that the interval from
    # ``low`` to ``high`` for the trough's place has neither of them in it
    present: bool


@dataclass(frozen=True)
class LimitTrough:
    """Lowest point of the density of positions inside (0, 1), in the limit of many tokens."""

    location: float
    depth: float  # 1 - f(location) / f(1): there is a U if it is above 0


def u_shape(p: Numbers, *, ends: int = 1, smooth: int = 1, tolerance: float = TOLERANCE) -> UShape:
    """Measure how much of a U a profile is: the depth of its trough against the lower of both ends.

    The last position is left out. Whatever attention does, it keeps the query's own residual, the atom ∏(1-λ_t), and
    this alone would make a U of every profile that falls from the first token on; uniform attention without
    positions is one.

    Parameters
    ----------
    p
        Influence profile, at least four positions.
    ends
        How many positions at each end to average.
    smooth
        Width of the running mean under the trough (odd); 1 for none. Measured profiles want more.
    tolerance
        How far above the trough, relatively, a position still counts to its bottom.

    Source: this project's definition (the paper speaks of U-shapes without a number).

    >>> shape = u_shape([0.4, 0.1, 0.1, 0.1, 0.2, 0.1])
    >>> round(shape.depth, 3), shape.low, shape.high, shape.present
    (0.5, 0.2, 0.6, True)
    >>> u_shape([0.4, 0.2, 0.1, 0.05, 0.25]).present
    False
    """
    p = errors.distribution("profile", p)
    ends = errors.positive_integer("ends", ends)
    if errors.positive_integer("smooth", smooth) % 2 == 0:
        raise errors.invalid("smooth", "an odd width", smooth)
    if not 0 <= tolerance < 1:
        raise errors.invalid("tolerance", "a share from 0 to below 1", tolerance)
    least = max(3, 2 * ends + 1, smooth) + 1
    if p.size < least:
        raise errors.invalid("profile", f"at least {least} positions", p.size)
    q = p[:-1]
    start, end = float(q[:ends].mean()), float(q[-ends:].mean())
    half = smooth // 2
    level = np.convolve(q, np.full(smooth, 1 / smooth), mode="valid")
    first, last = max(ends, half), min(q.size - ends, q.size - half)
    inner = level[first - half : last - half]
    trough, lower = float(inner.min()), min(start, end)
    bottom = np.flatnonzero(inner <= (1 + tolerance) * trough)
    where, low, high = (first + np.array([inner.argmin(), bottom[0], bottom[-1]])) / (p.size - 1)
    depth = 1 - trough / lower if lower > 0 else float("-inf")
    present = lower > (1 + tolerance) * trough
    return UShape(start, end, trough, float(where), depth, float(low), float(high), bool(present))


def write_profile(path: Path | str, p: Numbers) -> None:
    """Write ``token_position,probability`` lines at full precision; the file is written whole or not at all."""
    p = errors.distribution("profile", p)
    lines = [HEADER, *(f"{j},{x!r}" for j, x in enumerate(p.tolist()))]
    write_whole(Path(path), "\n".join(lines) + "\n")


def read_profile(path: Path | str) -> Float[np.ndarray, "n"]:
    """Read a profile written by :func:`write_profile` or by the authors' rollout program."""
    try:
        header, *lines = Path(path).read_text(encoding="utf-8").splitlines() or [""]
        table = np.array([line.split(",") for line in lines], dtype=float).reshape(-1, 2)
    except ValueError as error:  # other bytes than UTF-8 too
        raise errors.invalid(str(path), "a position and a probability in each line", errors.short(error)) from None
    if header.strip() != HEADER:
        raise errors.invalid(f"{path}: header", HEADER, header or "an empty file")
    if (table[:, 0] != np.arange(len(table))).any():
        raise errors.invalid(str(path), "positions from 0 on", table[:9, 0].tolist())
    return errors.distribution(f"{path}: probability", table[:, 1], tolerance=1e-6)
