"""What was foretold of other lists before they were run, beside what was seen; and how small an effect would show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from studies.checks import Check

EXPECTED = {
    ("L-forms", "kinds"): ("facts about persons", "γ .7", "the law leads", 0.7, "reading_kinds_sharpness"),
    ("L-forms", "plain"): ("plain text, no chat template", "γ .7", "the law leads", 0.7, "reading_plain_sharpness"),
    ("L-forms", "thirty-two"): ("32 documents", "γ 1/4 of that of eight", "below 1/2", 0.25, "reading_long_ratio"),
    ("L-apart", ""): ("four look-alikes, apart or together", ".16 more right apart", "more", 0.16, "reading_gain"),
    ("L-distance", "one competitor"): ("one competitor", "γ .81", "mistakes fall; γ .71 to .98", 0.81, "reading_dose"),
    ("L-match", "others"): ("eight unlike facts: bonus", "4", "above 1", 4.0, "reading_others_bonus"),
    ("L-match", "others, neighbours"): ("eight unlike facts: mistakes from neighbours", "few", "at most 1/3", 0.0, ""),
    ("L-ends", "occupied"): ("a neutral document at each end", "half of the pull", "at most half", 0.5, "reading_left"),
}
"""By ledger row and part: what was changed, what was expected before the run, the threshold; the size that was expected
as a number, and the name of the interval in which it should lie."""
Sought = Sequence[tuple[str, str, str]]
SOUGHT: Sought = (
    ("L-distance, new sets", "nats ahead of place and a bonus", "reading_lead"),
    ("L-distance, one competitor", "γ", "reading_dose"),
    ("L-match", "bonus in nats", "reading_bonus"),
    ("L-ends, pull", "pull of the first place in nats", "reading_first"),
    ("L-ends, occupied", "share of the pull that is left", "reading_left"),
    ("L-unit", "miss of log γ, places less share", "reading_unit_gap"),
    ("L-apart", "share of right answers", "reading_gain"),
    ("L-forms", "γ of facts about persons", "reading_kinds_sharpness"),
)
"""Claim, what is measured, and the name of its interval's ends."""
SOUGHT_OF_HEADS: Sought = (
    ("L-heads, ablation", "share of right answers", "heads_loss"),
    ("L-heads, sharpening", "share of right answers, middle places", "heads_sharper"),
    ("L-blur, rescaled", "ratio of γ, positions doubled", "blur_double"),
    ("L-blur, slots", "γ by slot less γ by order", "blur_slot"),
)
"""The same of heads that point, and of what makes the finger blunt."""
WIDE = "too wide"
POWER = 2.8 / 3.92
"""What is seen in four of five tests, over the width of a 95% interval: (1.96 + .84) / (2 · 1.96)."""


def foretold_table(made: Sequence[Check], numbers: Mapping[str, Any]) -> pd.DataFrame:
    """Return each prediction with what was seen, whether its threshold was met, and whether its size was."""
    by_name = {(check.row, check.part): check for check in made}
    rows = {}
    for name, (changed, expected, threshold, size, stem) in EXPECTED.items():
        check = by_name[name]
        row = {"expected": expected, "seen": check.figure, "threshold": threshold, "met?": verdict(check)}
        rows[changed] = row | {"size met?": size_met(size, stem, numbers) if stem else "—"}
    return pd.DataFrame(rows).T.rename_axis("what was changed")


def foretold_text(table: pd.DataFrame) -> str:
    """Return in a sentence how many thresholds and sizes of :func:`foretold_table` were met."""
    met, sizes = table["met?"].value_counts(), table["size met?"].value_counts().drop("—")
    kinds = [f"{met.get('yes', 0)} were met, {met.get('in part', 0)} in part", f"{met.get('no', 0)} not"]
    said = f"Of {len(table)} expectations {', '.join(kinds)}, and {met.get('open', 0)} is open"
    right, wrong, unclear = (sizes.get(x, 0) for x in ("yes", "no", WIDE))
    sized = f"{right} were right, {wrong} wrong, and {unclear} too uncertain to tell"
    return f"{said}. Of {sizes.sum()} sizes that we expected {sized}."


def size_met(size: float, stem: str, numbers: Mapping[str, Any]) -> str:
    """Return whether a size lies in the 95% interval of what was seen; one that has half and twice of it is no test."""
    low, high = numbers[f"{stem}_low"], numbers[f"{stem}_high"]
    if low <= size / 2 and high >= 2 * size:
        return WIDE
    return "yes" if low <= size <= high else "no"


def verdict(check: Check) -> str:
    """Return in a word whether a threshold was met."""
    if check.passed:
        return "open" if check.how.get("undecided") else "yes"
    return "in part" if check.how.get("in_part") else "no"


def smallest_table(numbers: Mapping[str, Any], sought: Sought = SOUGHT) -> pd.DataFrame:
    """Return by claim the smallest effect that four of five such tests would see, from an interval over sets."""
    rows = []
    for claim, what, stem in sought:
        width = numbers[f"{stem}_high"] - numbers[f"{stem}_low"]
        rows.append({"claim": claim, "what is measured": what, "smallest effect": POWER * width})
    return pd.DataFrame(rows).set_index("claim")
