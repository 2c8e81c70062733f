"""Whether what a model has of a text follows what training asked for: the check of Y-follow, documents resampled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias.comparison.resampling import interval, resample_weights
from posbias.lookup.scores import paired_difference
from studies.checks import Check, ranged
from studies.tune.tables import BEFORE

QUANTITIES = ("influence", "use", "contributions")
LEAST = 0.02
"""By how much the share of the middle half moves if a quantity follows."""
PARTS = 16
ARMS = ("every", "middle", "ends")
NEEDED = (BEFORE, "every", "middle")
"""The models on which Y-follow is decided."""


def texts_of(kept: Mapping[str, xr.Dataset], seed: int = 0) -> dict[str, xr.Dataset]:
    """Return what was measured on text of the model as it is, and of the arms of a seed; nothing if one is missing."""
    names = {BEFORE: f"{BEFORE}.text"} | {arm: f"{arm}.seed-{seed}.text" for arm in ARMS}
    found = {arm: kept[name] for arm, name in names.items() if name in kept}
    return found if {*NEEDED} <= {*found} else {}


def halves(values: Float[np.ndarray, "N n"]) -> Float[np.ndarray, "N 2"]:
    """Return what the middle half of each prompt has, and what all of it has.

    Between the first token and the last, which count once, are sixteen parts, each with the mean of what is measured
    in it: of use few tokens are.

    >>> halves(np.ones((1, 66))).tolist()
    [[32.0, 66.0]]
    """
    parts = np.array_split(values[:, 1:-1].astype(np.float64), PARTS, axis=1)
    sums = np.stack([np.nanmean(part, axis=1) * part.shape[1] for part in parts], axis=1)
    middle = sums[:, PARTS // 4 : -PARTS // 4].sum(1)
    return np.stack([middle, sums.sum(1) + values[:, 0] + values[:, -1]], axis=1)


def middle_shares(found: Mapping[str, xr.Dataset], quantity: str) -> dict[str, Float[np.ndarray, "B+1"]]:
    """Return by arm the share of the middle half in the mean profile, and behind it those of resampled documents."""
    shares = {}
    for arm, entry in found.items():
        rows = halves(entry[quantity].values)
        weights = np.concatenate([np.ones((1, len(rows))), resample_weights(len(rows))])
        sums = weights @ rows
        shares[arm] = sums[:, 0] / sums[:, 1]
    return shares


def change_table(found: Mapping[str, xr.Dataset]) -> pd.DataFrame:
    """Return by quantity the middle's share before, and by how much trainings move it, with low and high behind each.

    ``every`` and ``middle`` are less the share before; ``further`` is ``middle`` less ``every``.
    """
    rows = {}
    for quantity in QUANTITIES:
        shares = middle_shares(found, quantity)
        moved = {arm: share - shares[BEFORE] for arm, share in shares.items() if arm != BEFORE}
        row = {"before": float(shares[BEFORE][0])}
        for name, one in (moved | {"further": moved["middle"] - moved["every"]}).items():
            low, high = interval(one[1:])
            row |= {name: float(one[0]), f"{name} low": float(low), f"{name} high": float(high)}
        rows[quantity] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("quantity")


def verdict_of(row: pd.Series) -> str:
    """Return whether a quantity ``follows`` the answers, ``stays``, or neither can be said: ``open``."""
    if row["every"] >= LEAST and row["every low"] > 0 and row["further low"] > 0:
        return "follows"
    ends = [abs(row[f"{name} {end}"]) for name in ("every", "middle") for end in ("low", "high")]
    return "stays" if max(ends) < LEAST else "open"


def contradicts(row: pd.Series) -> bool:
    """Say whether a whole interval excludes that the quantity follows."""
    return bool(row["every high"] < LEAST or row["further high"] <= 0)


_SAID = {"follows": "follows the answers", "stays": "stays where it was", "open": "undecided"}
_NAMES = {"every": "every place", "middle": "places 4 and 5"}


def follow_shown(found: Mapping[str, xr.Dataset]) -> pd.DataFrame:
    """Return the page's table: the middle half's share before, and by how much each training moves it."""
    rows = {}
    for quantity, row in change_table(found).iterrows():
        moved = {}
        for arm, name in _NAMES.items():
            moved[f"change, {name}"] = ranged((row[arm], row[f"{arm} low"], row[f"{arm} high"]), 3)
        rows[quantity] = {"before": f"{row['before']:.3f}", **moved, "by our thresholds": _SAID[verdict_of(row)]}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("share of the middle half")


def numbers(found: Mapping[str, xr.Dataset]) -> dict[str, Any]:
    """Return what the prose says of what training moves on running text."""
    said: dict[str, Any] = {"why_follow": follow_said(found)}
    said["why_follow_prompts"] = found[BEFORE].sizes["prompt"] if found else 0
    if "every" in found:
        said["why_cost"] = float((found["every"]["loss"] - found[BEFORE]["loss"]).mean())
    return said


def follow_said(found: Mapping[str, xr.Dataset]) -> str:
    """Return what the page says: by how much training moves the middle of running text, and what it costs there."""
    if not found:
        return "Whether influence, use and contributions follow the answers was not measured."
    row, prompts = change_table(found).loc["influence"], found[BEFORE].sizes["prompt"]
    moves = [f"{ranged((row[arm], row[f'{arm} low'], row[f'{arm} high']), 3)} ({_NAMES[arm]})" for arm in _NAMES]
    verdict = {"follows": "it follows the answers", "stays": "it stays", "open": "that is undecided"}[verdict_of(row)]
    return (
        f"On {prompts} running texts the middle half of the prompt gained {' and '.join(moves)} of the influence; "
        f"by our thresholds {verdict}. {loss_said(found)}"
    )


def loss_said(found: Mapping[str, xr.Dataset]) -> str:
    """Return what training costs on running text, in nats a token."""
    costs = []
    for arm in [arm for arm in _NAMES if arm in found]:
        lost = paired_difference((found[arm]["loss"] - found[BEFORE]["loss"]).values.astype(np.float64))
        costs.append(f"{ranged((lost.mean, lost.low, lost.high))} ({_NAMES[arm]})")
    return f"The loss on these texts grew by {' and '.join(costs)} nats per token."


def follow_checks(found: Mapping[str, xr.Dataset]) -> list[Check]:
    """Return the check of Y-follow for each quantity, none if it was not measured."""
    checks = []
    for quantity, row in (change_table(found) if found else pd.DataFrame()).iterrows():
        same = pd.Series({f"{name} {end}": 0.0 for name in ("every", "further") for end in ("low", "high")})
        verdict = verdict_of(row)
        moves = [f"{arm} {ranged((row[arm], row[f'{arm} low'], row[f'{arm} high']), 3)}" for arm in ("every", "middle")]
        checks.append(Check(
            "Y-follow", str(quantity), f"On running text {quantity} moves as the answers do.", not contradicts(row),
            ", ".join(moves), "an interval excludes that the middle's share grows by 0.02, or further",
            {"nothing moves": [not contradicts(same)]},
            "it stays" if verdict == "stays" else "it does not move as the answers do",
            {"undecided": verdict == "open"},
        ))  # fmt: skip
    return checks
