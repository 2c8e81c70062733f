"""What SmolLM2's tokens count for by gradient and by replacement, in the forms of a prompt that were measured."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias.comparison.distances import spearman
from posbias.comparison.resampling import interval, resample_weights
from studies.palette import MODEL_COLOURS
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
FRONTS = {"front": "smollm2.use-64-end-of-text"}
"""A start token in front of 64 tokens of text."""
QUOTED = {"first": ("chat_about", "about", "64", "front"), "rest": ("chat_about", "about")}
RANGES = (("first", "times"), ("rest", "gradient"), ("rest", "replaced"))
"""Parts and forms that the prose quotes, and of plain text what it quotes at least and at most."""
WAYS = ("gradient", "replaced")
PARTS = {"first": "first token", "rest": "rest of the first eighth", "end": "last eighth"}
SMALL = {name: f"{name}.use-64-builtin" for name in MODEL_COLOURS}
LONGER = {name: f"{name}.use-256-builtin" for name in MODEL_COLOURS}
"""The ten small models, at 64 tokens and at 256."""

Kept = Mapping[str, xr.Dataset]


def part_table(kept: Kept) -> pd.DataFrame:
    """Return what parts of each form count by gradient and by replacement, in average tokens, and the ratio of both."""
    names = {short: name for short, (_, name) in FORMS.items()} | FRONTS
    return gap_table({short: kept[name] for short, name in names.items()}, resamples=1000)


def forms_shown(parts: pd.DataFrame) -> pd.DataFrame:
    """Return the page's table: each part by gradient and by replacement, and their ratio with its interval."""
    rows = {}
    for short, (title, _) in FORMS.items():
        rows[title] = {words: _both(parts.loc[short, part]) for part, words in PARTS.items()}
    return pd.DataFrame.from_dict(rows, "index").rename_axis("sensitivity / use: ratio (95%)")


def _both(row: pd.Series) -> str:
    both = " / ".join(f"{row[way]:.2f}" for way in WAYS)
    return "{}: {:.2f} ({:.2f} to {:.2f})".format(both, *row[["times", "low", "high"]])


def form_numbers(parts: pd.DataFrame) -> dict[str, float]:
    """Return what a part counts in a form, in average tokens, and in plain text at least and at most."""
    found: dict[str, float] = {}
    for part, forms in QUOTED.items():
        for short in forms:
            found |= {f"use_{part}_{way}_{short}": parts.loc[(short, part), way] for way in WAYS}
    found |= {f"use_first_times_{short}": parts.loc[(short, "first"), "times"] for short in (*FORMS, "front")}
    found["use_first_low_chat"] = parts.loc[("chat", "first"), "low"]
    plain = parts.loc[[*PLAIN]]
    for part, name in RANGES:
        of_part = plain.xs(part, level="part")[name]
        found |= {f"use_{part}_{name}_least": of_part.min(), f"use_{part}_{name}_most": of_part.max()}
    end = plain.xs("end", level="part")
    assert (end["high"] < 1).all()  # the end is used more, as the page says
    found |= {"use_end_times_least": end["times"].min(), "use_end_times_most": end["times"].max()}
    return found | {"use_end_times_high": end["high"].max()}


def over_next(profiles: Float[np.ndarray, "B n"], part: str) -> Float[np.ndarray, "B"]:
    """Return what the mean token of a part has, over the mean token of the second to fourth eighths."""
    n = profiles.shape[1]
    means = [profiles[:, part_of(name, n)].mean(1) for name in (part, "next")]
    return np.asarray(means[0] / means[1])


def counted(entry: xr.Dataset, way: str, part: str) -> float:
    """Return how many times as much as the second to fourth eighths a part counts by gradient or replacement."""
    return float(over_next(profile_of(entry[way].values)[None], part).item())


def gap_of(entry: xr.Dataset, part: str) -> tuple[float, float, float]:
    """Return how many times as much that is by gradient as by replacement, with its 95% interval."""
    drawn = [over_next(draw_profiles(entry[way].values, 1000), part) for way in WAYS]
    low, high = interval(drawn[0] / drawn[1])
    whole = counted(entry, "gradient", part) / counted(entry, "replaced", part)
    return whole, float(low), float(high)


def control_numbers(kept: Kept) -> dict[str, float | str]:
    """Return how the beginning differs by both ways if the end, which is used more, has no part in the unit."""
    gaps = {short: gap_of(kept[FORMS[short][1]], "rest") for short in (*PLAIN, "chat_about")}
    plain = [gaps[short] for short in PLAIN]
    return {
        "use_control_least": min(gap for gap, _, _ in plain),
        "use_control_most": max(gap for gap, _, _ in plain),
        "use_control_low": min(low for _, low, _ in plain),
        **{f"use_middle_{way}": counted(kept[FORMS["256"][1]], way, "first") for way in WAYS},
        "use_middle_said": "{:.1f} ({:.1f} to {:.1f})".format(*gap_of(kept[FORMS["256"][1]], "first")),
        "use_control_chat": gaps["chat_about"][0],
        "use_control_chat_low": gaps["chat_about"][1],
        "use_control_chat_high": gaps["chat_about"][2],
    }


def share_numbers(kept: Kept, parts: pd.DataFrame) -> dict[str, float]:
    """Return what the twelve claims say of the first token, and how many prompts there are."""
    entries = {short: kept[FORMS[short][1]] for short in PLAIN}
    first = parts.xs("first", level="part").loc["256"]
    found: dict[str, float] = {f"use_{way}_256": first[way] for way in WAYS}
    found["use_prompts"] = entries["256"].sizes["prompt"]
    for short, entry in entries.items():
        low, high = interval(first_shares(entry)[1])
        found[f"use_replaced_{short}"] = parts.loc[(short, "first"), "replaced"]
        found |= {f"use_first_low_{short}": float(low), f"use_first_high_{short}": float(high)}
    return found


def ways_entry(kept: Kept) -> xr.Dataset:
    """Return 64 tokens of the same prompts with every way of taking a token away."""
    again, others = kept["smollm2.use-64"], kept["smollm2.use-64-ways"]
    watched = kept["smollm2.use-64-likeliest"]
    for other in (others, watched):
        assert np.allclose(other["gradient"], again["gradient"], rtol=1e-2, atol=1e-4)
    return others.assign(replaced=again["replaced"], likeliest=watched["likeliest"])


def within_numbers(kept: Kept) -> dict[str, float | str]:
    """Return how gradient and use rank tokens, in one prompt (medians) and in mean profiles, over all forms."""
    entries = [kept[name] for _, name in FORMS.values()]
    within = [float(np.median(within_prompts(entry))) for entry in entries]
    means = [spearman(*map(profile_of, (entry["gradient"].values, entry["replaced"].values))) for entry in entries]
    found: dict[str, float | str] = {"use_within_least": min(within), "use_within_most": max(within)}
    found["use_within_chat_about"] = within[list(FORMS).index("chat_about")]
    ways = ways_entry(kept)
    for way in ("gradient", "replaced", "deleted", "hidden"):
        p = profile_of(ways[way].values)
        low, high = interval(draw_profiles(ways[way].values)[:, 0] * p.size)
        found[f"use_ways_{way}_said"] = f"{p[0] * p.size:.2f} ({low:.2f} to {high:.2f})"
        if way != "gradient":
            found[f"use_over_{way}"] = float(profile_of(ways["gradient"].values)[0] / p[0])
        if way != "replaced":
            found[f"use_ranked_{way}"] = spearman(p, profile_of(ways["replaced"].values))
    found["use_within_gradient"] = float(np.median(within_prompts(ways)))
    for short in ("256", "chat_about"):
        found[f"use_moved_{short}"] = float(np.nanmean(kept[FORMS[short][1]]["replaced"].values, axis=0).mean())
    found["use_within_gradient_deleted"] = float(np.median(within_prompts(ways, "gradient", "deleted")))
    found["use_within_deleted"] = float(np.median(within_prompts(ways, "deleted", "replaced")))
    return found | {"use_means_least": min(means), "use_means_most": max(means)}


def step_numbers(kept: Kept) -> dict[str, str]:
    """Return what the first token counts by what the gradient expects of its replacement, and by what comes."""
    expected, came, long = (kept[f"smollm2.use-{name}"] for name in ("64-step", "64-likeliest", "256-step"))
    assert np.allclose(expected["gradient"], came["gradient"], rtol=1e-2, atol=1e-4)
    found = {}
    for name, entry in (("step", expected), ("reach", expected), ("likeliest", came)):
        for short, one in (("", entry), ("_256", long)):
            p, drawn = profile_of(one[name].values), draw_profiles(one[name].values)
            low, high = interval(drawn[:, 0] * p.size)
            found[f"use_{name}{short}_said"] = f"{p[0] * p.size:.2f} ({low:.2f} to {high:.2f})"
            low, high = interval(over_next(drawn, "first"))
            middle = over_next(p[None], "first").item()
            found[f"use_{name}{short}_middle"] = f"{middle:.1f} ({low:.1f} to {high:.1f})"
    return found


def came_numbers(kept: Kept) -> dict[str, str]:
    """Return how much the likeliest token's probability changes per replacement, as its gradient expects and really.

    At the first token, and at the mean one; the ratio of both has its 95% interval over prompts.
    """
    expected, came, long = (kept[f"smollm2.use-{name}"] for name in ("64-step", "64-likeliest", "256-step"))
    found = {}
    for short, step, change in (("64", expected["step"], came["likeliest"]), ("256", long["step"], long["likeliest"])):
        sizes = np.stack([step.values, change.values]).astype(float)  # not every prompt has every place
        weights = np.vstack([np.ones(sizes.shape[1]), resample_weights(sizes.shape[1])])
        at = (weights @ np.nan_to_num(sizes)) / np.maximum(weights @ np.isfinite(sizes), 1e-9)
        for place, (step_sizes, changes) in (("first", at[..., 0]), ("mean", at.mean(-1))):
            times = changes / step_sizes
            low, high = interval(times[1:])
            found[f"use_came_{place}_{short}"] = f"{step_sizes[0]:.3f} and {changes[0]:.3f}"
            found[f"use_came_{place}_{short}_times"] = f"{times[0]:.2f} ({low:.2f} to {high:.2f})"
    return found


def small_numbers(kept: Kept) -> dict[str, float]:
    """Return what the ten models' beginning counts at most, over its middle, and who differs at 256 tokens."""
    gaps = gap_table({name: kept[entry] for name, entry in LONGER.items()}, resamples=1000)
    rest, end = (gaps.xs(part, level="part") for part in ("rest", "end"))
    turned = set(gaps.index.unique("entry")[((rest["high"] < 1) | (end["low"] > 1)).values])
    undecided = set(rest.index[((rest["low"] <= 1) | (end["high"] >= 1)).values]) - turned
    assert (turned, undecided) == ({"mistral-12"}, {"bloom-24", "mpt-12", "gpt2-12"})  # as the page says
    control: dict[str, float] = {}
    for size, names in ((64, SMALL), (256, LONGER)):
        times, low, _ = np.transpose([gap_of(kept[entry], "rest") for entry in names.values()])
        parts = gap_table({name: kept[entry] for name, entry in names.items()}, resamples=1000)
        for part in ("first", "end"):
            control[f"use_small_{part}_{size}"] = float(parts.xs(part, level="part")["times"].median())
        control[f"use_small_control_{size}"] = int((low > 1).sum())
        control[f"use_small_control_{size}_median"] = float(np.median(times))
    return {
        **control,
        "use_small_arm_gradient_most": max(counted(kept[x], "gradient", "rest") for x in SMALL.values()),
        "use_small_turned": end.loc["mistral-12", "times"],
        "use_small_turned_low": end.loc["mistral-12", "low"],
        "use_small_turned_high": end.loc["mistral-12", "high"],
    }


def numbers(kept: Kept, parts: pd.DataFrame) -> dict[str, float | str]:
    """Return all numbers of use that the book's prose quotes."""
    of_parts = form_numbers(parts) | control_numbers(kept) | share_numbers(kept, parts)
    return of_parts | within_numbers(kept) | step_numbers(kept) | came_numbers(kept) | small_numbers(kept)
