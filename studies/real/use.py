"""What SmolLM2's tokens count for by gradient and by replacement, in the forms of a prompt that were measured."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias.comparison.resampling import interval
from posbias.plotting import MODEL_COLOURS
from studies.real.checks import first_shares
from studies.real.tables import draw_profiles, gap_table, part_of, profile_of, within_prompts

FORMS = {
    "chat_about": ("chat template, asked what it is about", "smollm2.use-256-chat-about"),
    "chat": ("chat template, nothing asked", "smollm2.use-256-chat"),
    "about": ("plain, then *This text is about*", "smollm2.use-256-about"),
    "256": ("plain text", "smollm2.use-256"),
    "64": ("plain text, 64 tokens", "smollm2.use-64"),
    "1024": ("plain text, 1,024 tokens", "smollm2.use-1024"),
}
"""What the page calls the forms of a prompt, in its table and in results/real.nc; of 256 tokens if nothing is said."""
PLAIN = ("64", "256", "1024")
FRONTS = {"front": "smollm2.use-64-end-of-text", "break": "smollm2.use-64-line-break"}
"""A start token in front of 64 tokens of text."""
WAYS = ("gradient", "replaced")
PARTS = {"first": "first token", "rest": "rest of the first eighth", "end": "last eighth"}
SMALL = {name: f"{name}.use-64-builtin" for name in MODEL_COLOURS}
LONGER = {name: f"{name}.use-256-builtin" for name in MODEL_COLOURS}
"""The ten small models, at 64 tokens and at 256."""

Kept = Mapping[str, xr.Dataset]


def over_next(profiles: Float[np.ndarray, "B n"], part: str) -> Float[np.ndarray, "B"]:
    """Return what the mean token of a part has, over the mean token of the second to fourth eighths."""
    n = profiles.shape[1]
    means = [profiles[:, part_of(name, n)].mean(1) for name in (part, "next")]
    return np.asarray(means[0] / means[1])


def counted(entry: xr.Dataset, way: str, part: str) -> float:
    """Return how much a part counts by gradient or replacement, in the page's unit."""
    return float(over_next(profile_of(entry[way].values)[None], part).item())


def gap_of(entry: xr.Dataset, part: str) -> tuple[float, float, float]:
    """Return how many times as much a part counts by gradient as by replacement, with its 95% interval."""
    drawn = [over_next(draw_profiles(entry[way].values, 1000), part) for way in WAYS]
    low, high = interval(drawn[0] / drawn[1])
    whole = counted(entry, "gradient", part) / counted(entry, "replaced", part)
    return whole, float(low), float(high)


def forms_shown(kept: Kept) -> pd.DataFrame:
    """Return the page's table: each part by gradient and by replacement, and the gap of the beginning."""
    rows = {}
    for title, name in FORMS.values():
        row = {}
        for part, words in PARTS.items():
            row[words] = " / ".join(f"{counted(kept[name], way, part):.1f}" for way in WAYS)
        row["ratio at the rest of the first eighth (95%)"] = "{:.2f} ({:.2f} to {:.2f})".format(
            *gap_of(kept[name], "rest")
        )
        rows[title] = row
    return pd.DataFrame.from_dict(rows, "index").rename_axis("sensitivity / use")


def form_numbers(kept: Kept) -> dict[str, float]:
    """Return how much the first token (``tip``) and the rest of its eighth (``arm``) count in each form."""
    found: dict[str, float] = {}
    names = {short: name for short, (_, name) in FORMS.items()} | FRONTS
    for short, name in names.items():
        entry = kept[name]
        found |= {
            f"use_tip_{short}": counted(entry, "replaced", "first"),
            f"use_tip_gradient_{short}": counted(entry, "gradient", "first"),
            f"use_arm_replaced_{short}": counted(entry, "replaced", "rest"),
            f"use_arm_gradient_{short}": counted(entry, "gradient", "rest"),
            f"use_end_replaced_{short}": counted(entry, "replaced", "end"),
            f"use_end_gradient_{short}": counted(entry, "gradient", "end"),
        }
        for end, x in zip(("low", "high"), gap_of(entry, "rest")[1:], strict=True):
            found[f"use_gap_{short}_{end}"] = x
    asked = [found[f"use_arm_replaced_{x}"] for x in ("about", "chat", "chat_about")]
    found |= {"use_arm_asked_least": min(asked), "use_arm_asked_most": max(asked)}
    assert all(found[f"use_end_gradient_{x}"] < found[f"use_end_replaced_{x}"] for x in PLAIN)
    return found | _ranges(found)


def _ranges(found: Mapping[str, float]) -> dict[str, float]:
    """Return the least and the most of the numbers of plain text."""
    tips = [found[f"use_tip_gradient_{x}"] / found[f"use_tip_{x}"] for x in PLAIN]
    ranges: dict[str, float] = {"use_gap_least": min(tips), "use_gap_most": max(tips)}
    for way in WAYS:
        arms = [found[f"use_arm_{way}_{x}"] for x in PLAIN]
        ranges |= {f"use_arm_{way}_least": min(arms), f"use_arm_{way}_most": max(arms)}
    return ranges


def share_numbers(kept: Kept) -> dict[str, float]:
    """Return the first token's shares of the whole prompt, and how many times its use its gradient is in a chat."""
    entries = {short: kept[name] for short, (_, name) in FORMS.items()}
    gaps = gap_table(entries, resamples=1000).xs("first", level="part")
    found: dict[str, float] = {"use_prompts": entries["256"].sizes["prompt"]}
    found["use_gradient_256"], found["use_replaced_256"] = gaps.loc["256", [*WAYS]]
    found["use_gradient"], found["use_replaced"] = gaps.loc["64", [*WAYS]]
    for short in ("chat", "chat_about"):
        found |= {f"use_{short}_{end}": gaps.loc[short, end] for end in ("low", "high")}
    for short in PLAIN[1:]:
        low, high = interval(first_shares(entries[short])[1])
        found |= {f"use_first_low_{short}": float(low), f"use_first_high_{short}": float(high)}
    return found


def ways_entry(kept: Kept) -> xr.Dataset:
    """Return 64 tokens of the same prompts with every way of taking a token away."""
    again, others = kept["smollm2.use-64"], kept["smollm2.use-64-ways"]
    watched = kept["smollm2.use-64-likeliest"]
    for other in (others, watched):
        assert np.allclose(other["gradient"], again["gradient"], rtol=1e-2, atol=1e-4)
    return others.assign(replaced=again["replaced"], likeliest=watched["likeliest"])


def within_numbers(kept: Kept) -> dict[str, float]:
    """Return the rank correlation of gradient and use over the tokens of a single prompt, a median."""
    return {"use_within": float(np.median(within_prompts(kept["smollm2.use-64"])))}


def small_numbers(kept: Kept) -> dict[str, float]:
    """Return how much the rest of the first eighth counts in the ten small models, at 64 tokens, at most."""
    found: dict[str, float] = {}
    for way in WAYS:
        found[f"use_small_arm_{way}_most"] = max(counted(kept[x], way, "rest") for x in SMALL.values())
    return found


def numbers(kept: Kept) -> dict[str, float]:
    """Return all numbers of use that the book's prose quotes."""
    return form_numbers(kept) | share_numbers(kept) | within_numbers(kept) | small_numbers(kept)
