"""From which passage wrong answers to Liu et al.'s questions are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from posbias.comparison.resampling import interval, resample_weights
from posbias.lookup.reading import FEWEST, count_sources, distances, fit_reading
from studies.reading.evidence import later_share, near_share
from studies.results import load

ENTRY = "smollm2.eight"
"""The entry of ``results/questions.nc`` that has eight passages, the right one at each place in turn."""


def texts(least: float) -> dict[str, str]:
    """Return what is said of real questions, whether the law shows there, and what that means for the law's scope.

    ``least`` is the lower end of the interval of γ where facts compete.
    """
    source = load("questions")[ENTRY]["source"].values.astype(int)
    counts = count_sources(source)
    total = counts.sum(0)
    wrong = int(total.sum() - total.trace())
    mistakes = int((load("questions")[ENTRY]["correct"].values == 0).sum())
    placed = {"questions_placed": f"{wrong} of {mistakes}"}
    return placed | texts_of(source, counts, wrong, least)


def texts_of(source: np.ndarray, counts: np.ndarray, wrong: int, least: float) -> dict[str, str]:
    """Return the texts of :func:`texts` from the passages that answers are from."""
    total, P = counts.sum(0), source.shape[1]
    said = f"We asked {len(source)} questions of Liu et al., with the right passage at each of {P} places."
    if wrong < FEWEST:
        return worded(f"{said} {wrong} mistakes are in one passage, too few to say from where.", "open", "")
    low, high = share_interval(counts, near_share)
    chance = float((distances(P) == 1).sum() / (P * (P - 1)))
    said += f" {wrong} of {source.size} answers are mistakes that one passage states:"
    near = f"{near_share(total):.0%} of {wrong} mistakes are from a neighbour ({low:.0%} to {high:.0%}; "
    near += f"by chance {chance:.0%})"
    try:
        law = fit_reading(source)
    except ValueError:
        return worded(f"{said} {near}. These are too few to fit the law.", "open", near)
    fitted_low, fitted_high = law.sharpness_interval
    behind, (less, more) = later_share(total), share_interval(counts, later_share)
    by_chance = float((total.sum(1) - total.diagonal()) @ np.arange(P - 1, -1, -1) / (P - 1) / wrong)
    after = f"{behind:.0%} are from a later passage ({less:.0%} to {more:.0%}; by chance {by_chance:.0%})"
    said += f" {near}, {after}, and γ is {law.sharpness:.2f} ({fitted_low:.2f} to {fitted_high:.2f})."
    said += " Passages need not compete."
    if fitted_high < least and low <= chance:
        return worded(said, "no", f"{near}, and {after}")
    return worded(said, "yes" if low > chance else "open", f"{near}, and {after}")


SCOPE = {
    "no": "In real questions distance does not show",
    "open": "In real questions we could not confirm it",
    "yes": "Wrong answers to real questions are from neighbours, too",
}
"""What each verdict on real questions means for the law's scope."""


def worded(said: str, verdict: str, near: str) -> dict[str, str]:
    """Return the texts of a verdict by the names under which the page has them."""
    number = f": {near}" if near else ""
    return {
        "questions_said": said,
        "questions_verdict": verdict,
        "questions_scope": f"{SCOPE[verdict]}{number}.",
    }


def share_interval(counts: np.ndarray, share: Callable[[np.ndarray], float]) -> tuple[float, float]:
    """Return the 95% interval over questions of a share of the wrong answers."""
    drawn = [share(np.tensordot(w, counts, 1)) for w in resample_weights(len(counts), 400)]
    low, high = interval(np.array(drawn))
    return float(low), float(high)
