"""What fine-tuning changed: right answers by place before and after, frames of ``results/tune.nc``."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias import errors
from posbias.lookup.scores import mean_with_interval, paired_difference

BEFORE = "before"
ENDS, MIDDLE = [0, -1], slice(1, -1)
"""Places of the right document: the first and the last, and those between."""
Answers = Mapping[str, xr.Dataset]
"""The answers of one seed by arm, with those of the model as it is."""


def answers_of(kept: Mapping[str, xr.Dataset], seed: int = 0) -> dict[str, xr.Dataset]:
    """Return the answers of the model as it is, and of each arm that is kept with this seed.

    Parameters
    ----------
    kept
        The entries of ``results/tune.nc`` by name, such as ``every.seed-0.answers``.
    seed
        Of the adapters.

    Raises
    ------
    ValueError
        Without an entry of the model as it is.
    """
    if f"{BEFORE}.answers" not in kept:
        raise errors.invalid("results", "an entry before.answers", ", ".join(kept) or "none")
    found = {BEFORE: kept[f"{BEFORE}.answers"]}
    for name, entry in kept.items():
        arm, _, rest = name.partition(".")
        if rest == f"seed-{seed}.answers":
            found[arm] = entry
    return found


def right_by_place(found: Answers, score: str = "correct") -> dict[str, Float[np.ndarray, "3 P"]]:
    """Return by arm the share of right answers at each place, with both ends of its 95 % interval."""
    return {arm: mean_with_interval(entry[score].values, True) for arm, entry in found.items()}


def middle_less_ends(correct: Float[np.ndarray, "C P"]) -> Float[np.ndarray, "C"]:
    """Return by set how many more answers are right in the middle than at the ends, as shares.

    >>> middle_less_ends(np.array([[1.0, 0, 0, 1], [0, 1, 0, 0]])).tolist()
    [-1.0, 0.5]
    """
    return np.asarray(correct[:, MIDDLE].mean(1) - correct[:, ENDS].mean(1), dtype=np.float64)


def gain_table(found: Answers, score: str = "correct") -> pd.DataFrame:
    """Return what each arm changes of the answers, sets resampled: index ``arm``.

    ``middle`` and ``ends`` are shares of right answers, ``lead`` is the first less the second,
    ``gain`` how much larger this is than before, each with ``low`` and ``high`` behind its name.
    """
    before = middle_less_ends(found[BEFORE][score].values.astype(np.float64))
    rows = {}
    for arm, entry in found.items():
        correct = entry[score].values.astype(np.float64)
        lead = paired_difference(middle_less_ends(correct))
        gain = paired_difference(middle_less_ends(correct) - before)
        rows[arm] = {
            "ends": correct[:, ENDS].mean(),
            "middle": correct[:, MIDDLE].mean(),
            "lead": lead.mean,
            "lead low": lead.low,
            "lead high": lead.high,
            "gain": gain.mean,
            "gain low": gain.low,
            "gain high": gain.high,
        }
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("arm")
    table.loc[BEFORE, ["gain", "gain low", "gain high"]] = np.nan
    return table


def last_of_middle(entry: xr.Dataset) -> float:
    """Return how often the answer to a question about a middle document is that of the last document."""
    return float((entry["source"].values[:, MIDDLE] == entry.sizes["place"] - 1).mean())
