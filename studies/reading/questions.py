"""From which passage wrong answers to Liu et al.'s questions are."""

from __future__ import annotations

import numpy as np

from posbias.comparison.resampling import interval, resample_weights
from posbias.lookup.reading import FEWEST, count_sources, distances, fit_reading
from studies.reading.evidence import near_share
from studies.results import load

ENTRY = "smollm2.eight"
"""The entry of ``results/questions.nc`` that has eight passages, the right one at each place in turn."""


def said() -> str:
    """Return in a few sentences whether wrong answers are from neighbours, and the blur if there are enough of them."""
    source = load("questions")[ENTRY]["source"].values.astype(int)
    counts = count_sources(source)
    total, P = counts.sum(0), source.shape[1]
    wrong = int(total.sum() - total.trace())
    chance = float((distances(P) == 1).sum() / (P * (P - 1)))
    text = (
        f"To {len(source)} questions of Liu et al., with the right passage at each of {P} places, "
        f"{wrong} wrong answers are in exactly one passage."
    )
    if wrong < FEWEST:
        return f"{text} They are too few to say from where."
    low, high = near_interval(counts)
    text += f" Of these, {near_share(total):.0%} are from a neighbour (95% interval {low:.0%} to {high:.0%}; by chance "
    text += f"{chance:.0%}), so {compared(low, high, chance)}."
    try:
        law = fit_reading(source)
    except ValueError:
        return f"{text} They are too few to fit the law."
    low, high = law.blur_interval
    return f"{text} The blur is {law.blur:.2f} ({low:.2f} to {high:.2f})."


def near_interval(counts: np.ndarray) -> tuple[float, float]:
    """Return the 95% interval over questions of the share of wrong answers that is from a neighbour."""
    drawn = [near_share(np.tensordot(w, counts, 1)) for w in resample_weights(len(counts), 400)]
    low, high = interval(np.array(drawn))
    return float(low), float(high)


def compared(low: float, high: float, chance: float) -> str:
    """Return in words how an interval lies to what chance gives.

    >>> compared(0.3, 0.4, 0.25), compared(0.1, 0.4, 0.25)
    ('neighbours are named more often than by chance', 'neighbours may be named no more often than by chance')
    """
    if low > chance:
        return "neighbours are named more often than by chance"
    if high < chance:
        return "neighbours are named less often than by chance"
    return "neighbours may be named no more often than by chance"
