"""From which passage wrong answers to Liu et al.'s questions are, where that was measured."""

from __future__ import annotations

import numpy as np

from posbias.lookup.reading import distances, fit_reading
from studies.results import load

ENTRY = "smollm2.eight"
"""The entry of ``results/questions.nc`` that has eight passages, the right one at each place in turn."""


def said() -> str:
    """Return in a paragraph where wrong answers are from, nothing where that was not measured."""
    kept = load("questions")
    if ENTRY not in kept:
        return ""
    source = kept[ENTRY]["source"].values.astype(int)
    asked = np.broadcast_to(np.arange(source.shape[1]), source.shape)
    wrong = (source >= 0) & (source != asked)
    near = float((np.abs(source - asked)[wrong] == 1).mean())
    chance = float((distances(source.shape[1]) == 1).sum() / (source.shape[1] * (source.shape[1] - 1)))
    text = (
        f"Of the answers to {len(source)} questions of Liu et al., with the right passage at "
        f"each of eight places, {wrong.sum()} are in one other passage alone. {near:.0%} of these passages are "
        f"neighbours of the right one, where chance has {chance:.0%}."
    )
    try:
        law = fit_reading(source)
    except ValueError:
        return f"{text} They are too few for a law."
    low, high = law.blur_interval
    return f"{text} The blur is {law.blur:.2f} ({low:.2f} to {high:.2f})."
