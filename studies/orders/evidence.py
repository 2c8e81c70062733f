"""What the chapter ``proper`` says: numbers, a table, a figure, and the checks of its claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias.comparison.resampling import interval
from studies import results
from studies.checks import Check, ranged
from studies.orders import tables

COLOURS = {"written": "#000000", "shuffled": "#0072B2", "drawn": "#D55E00"}
NAMES = {"written": "as written", "shuffled": "shuffled", "drawn": "drawn at random"}
LEAST, RANK, APART, MOVED = 0.10, 0.80, 0.05, 0.01
"""Thresholds: a proper part of an end, rank correlation and distance with which a profile survives, and a distance that
makes no difference."""
REFERENCES = 10
"""Small models there are."""
ENDS = {"first": "beginning", "last": "end"}
EIGHTH, WINDOWS = tables.BINS // 8, (1, 2, 3, 4)
"""How many sixteenths the last eighth has, and how many an end may have."""


@dataclass(frozen=True)
class Evidence:
    """Hold SmolLM2's profiles in five orders, their proper and earned parts."""

    order: xr.Dataset
    split: pd.DataFrame
    """Parts with one draw for each text, as planned."""
    rounded: dict[str, pd.DataFrame]
    """What rounding to 4 bits moves, of small models that it was measured of."""
    often: xr.Dataset
    """The same orders with many draws for each text."""

    @cached_property
    def added(self) -> pd.DataFrame:
        """The parts with many draws, the influence of all texts added."""
        return tables.split_table(self.often, "gradient")

    @cached_property
    def alike(self) -> pd.DataFrame:
        """The same if each text is divided by its own mean first, so that all weigh alike."""
        return tables.split_table(self.often, "gradient", alike=True)

    def part(self, name: str) -> pd.Series:
        """Return value, low and high of one row, such as ``first eighth: proper``."""
        return self.split.loc[name]


def load_evidence() -> Evidence:
    """Return what ``results/orders.nc`` keeps of gradients."""
    kept = results.load("orders")
    order = kept["smollm2.gradient"]
    rounded = {name.partition(".")[0]: tables.rounding_table(kept[name]) for name in kept if name.endswith(".rounded")}
    often = order.assign(draws=kept["smollm2.draws"]["gradient"])
    return Evidence(order, tables.split_table(order, "gradient"), rounded, often)


def bits_said(seen: Evidence) -> str:
    """Return a sentence on weights rounded to 4 bits."""
    if not seen.rounded:
        return ""
    many, within = len(seen.rounded), sum(is_same(table) for table in seen.rounded.values())
    which = f"{'the' if many == REFERENCES else f'{many} of the'} ten small reference models"
    apart = max(table.loc["apart", "value"] for table in seen.rounded.values())
    moved = max(abs(table.loc[f"{end} eighth", "value"]) for table in seen.rounded.values() for end in ENDS)
    return (
        f"Rounding {which} moves no profile by more than {apart:.3f} of the prompt, and no end by more than "
        f"{moved:.2f} of an equal share, no difference by our thresholds in "
        f"{'any' if within == many else within} of them."
    )


def is_same(table: pd.DataFrame) -> bool:
    """Say whether rounding makes no difference to a profile: by its distance with its interval, and by its ends."""
    ends = max(abs(table.loc[f"{end} eighth", "value"]) for end in ENDS)
    return bool(table.loc["apart", "high"] <= MOVED and ends <= LEAST)


def differs(table: pd.DataFrame) -> bool:
    """Say whether rounding makes a difference with a whole interval."""
    ends = [table.loc[f"{end} eighth"] for end in ENDS]
    return bool(table.loc["apart", "low"] > MOVED or max(max(x["low"], -x["high"]) for x in ends) > LEAST)


def bits_checks(seen: Evidence) -> list[Check]:
    """Return the check of Y-bits, none if nothing was rounded."""
    if not seen.rounded:
        return []
    same = [model for model, table in seen.rounded.items() if is_same(table)]
    other = [model for model, table in seen.rounded.items() if differs(table)]
    apart = max(table.loc["apart", "value"] for table in seen.rounded.values())
    doubled = [table * 100 for table in seen.rounded.values()]
    return [Check(
        "Y-bits", "gradient", "Rounding to 4 bits makes no difference to a profile by gradient.",
        not other,
        f"{len(same)} of {len(seen.rounded)} models, at most {apart:.3f} of the prompt apart",
        "a whole interval lies beyond 0.01 of the prompt, or 0.10 of an equal share at an end",
        {"a hundred times as far": [not any(differs(table) for table in doubled)]}, f"it does in {', '.join(other)}",
        {"undecided": len(same) < len(seen.rounded)},
    )]  # fmt: skip


def numbers(seen: Evidence) -> dict[str, Any]:
    """Return what the prose says: both ends in both ways of averaging, parts of the end, and what one draw gave."""
    earned = parts_earned(seen.often) | one_draw_numbers(seen.order)
    found: dict[str, Any] = {"why_orders_prompts": seen.order.sizes["prompt"]}
    found["why_orders_draws"] = seen.often.sizes["draw"]
    for suffix, alike in (("", False), ("_alike", True)):
        by_order = tables.order_table(seen.often, "gradient", alike=alike)
        for end in ENDS:
            for short, order in (("text", "written"), ("drawn", "drawn")):
                found[f"why_{end}_{short}{suffix}"] = by_order.loc[order, f"{end} eighth"]
    for part in ("proper", "earned"):
        found[f"why_last_{part}"] = seen.alike.loc[f"last eighth: {part}", "value"]
    more = "last eighth: earned less proper"
    found |= {f"why_more{x}_said": signed(t.loc[more]) for x, t in (("", seen.added), ("_alike", seen.alike))}
    estimates = [earned[x] for x in ("why_part", "why_part_alike", "why_part_shuffled", "why_part_shuffled_alike")]
    found |= {"why_part_least": min(estimates), "why_part_most": max(estimates)} | earned
    found["why_more_one_said"] = signed(seen.part(more))
    verdict = "true" if survives(seen.split) else "undecided" if may_survive(seen.split) else "false"
    found |= {"why_survives": verdict, "why_bits": bits_said(seen)}
    return found | beginning_numbers(seen.often)


def signed(row: pd.Series) -> str:
    """Return a difference with its interval, each with its sign."""
    return "{value:+.2f} ({low:+.2f} to {high:+.2f})".format(**row)


def parts_earned(order: xr.Dataset) -> dict[str, Any]:
    """Return which part of the end's lead over an equal share the text earns, in both ways of averaging.

    Of the last eighth with its interval, and of ends of one to four sixteenths at least and at most, both ways.
    """
    found: dict[str, Any] = {}
    by_window: list[float] = []
    for suffix, alike in (("", False), ("_alike", True)):
        curves = tables.profiles(order, "gradient", alike=alike)
        part, resampled = earned_part(curves, EIGHTH)
        low, high = interval(resampled)
        found |= {f"why_part{suffix}{end}": float(x) for end, x in (("", part), ("_low", low), ("_high", high))}
        by_window += [float(earned_part(curves, k)[0]) for k in WINDOWS]
    return found | {"why_windows_least": min(by_window), "why_windows_most": max(by_window)}


def over_middle(curve: Float[np.ndarray, "... k"]) -> Float[np.ndarray, "..."]:
    """Return how many times the influence of the mean eighth between the ends the first eighth has.

    >>> float(over_middle(np.array([3.0, 1.0, *[1.0] * 12, 5.0, 5.0])))
    2.0
    """
    return np.asarray(curve[..., :EIGHTH].mean(-1) / curve[..., EIGHTH:-EIGHTH].mean(-1))


def beginning_numbers(order: xr.Dataset) -> dict[str, Any]:
    """Return each end over the eighths between them, with and without the text, and by how much more the first with it.

    With texts alike.
    """
    alike = tables.profiles(order, "gradient", alike=True)
    (text, texts), (drawn, draws) = (map(over_middle, alike[name]) for name in (tables.WRITTEN, tables.PROPER))
    low, high = interval(texts - draws)
    heavy, parts = np.sort(order["draws"].values.sum(2, dtype=float).ravel()), alike[tables.PROPER][0]
    return {
        "why_two_often": float(heavy[-2:].sum() / heavy.sum()),
        "why_draws_all": heavy.size,
        "why_second_drawn": float(parts[1]),
        "why_middle_drawn": float(parts[EIGHTH:-EIGHTH].mean()),
        **first_numbers(order),
        **amount_numbers(order),
        "why_over_text": float(text),
        "why_over_drawn": float(drawn),
        "why_over_more": ranged((float(text - drawn), float(low), float(high))),
    }


def amount_numbers(order: xr.Dataset) -> dict[str, float]:
    """Return how much larger influence is in texts than with drawn tokens, and what a text earns in amounts."""
    rows, half = order["gradient"].sel(order=tables.WRITTEN).values[:, :-1], EIGHTH
    text = np.array([part.mean(dtype=float) for part in np.array_split(rows, 8 * half, 1)])
    drawn = order["draws"].values.mean((0, 1), dtype=float)
    (first, *between, last), (first_0, *between_0, last_0) = (x.reshape(8, half).mean(1) for x in (text, drawn))
    lead, proper = first - np.mean(between), first_0 - np.mean(between_0)
    return {
        "why_size": float(text.mean() / drawn.mean()),
        "why_size_last": float(last / last_0),
        "why_amount_last": float(1 - (last_0 - drawn.mean()) / (last - text.mean())),
        "why_amount_first": float(1 - proper / lead),
    }


def first_numbers(order: xr.Dataset) -> dict[str, float]:
    """Return which part of the beginning's lead over the middle appears only in a text, least, most and its bound.

    By both averages, and with drawn and with shuffled tokens; the bound is the largest upper end of the intervals.
    """
    part, bound = [], []
    for alike in (False, True):
        curves = tables.profiles(order, "gradient", alike=alike)
        text, texts = map(over_middle, curves[tables.WRITTEN])
        for without in (tables.PROPER, "shuffled"):
            other, others = map(over_middle, curves[without])
            part.append(float((text - other) / (text - 1)))
            bound.append(float(interval((texts - others) / (texts - 1))[1]))
    return {"why_first_least": min(part), "why_first_part": max(part), "why_first_most": max(bound)}


def one_draw_numbers(order: xr.Dataset) -> dict[str, float]:
    """Return which part of the last eighth's lead the text earns by one draw for each text, and by its own shuffled.

    Both ways of averaging, beside what the two drawn prompts with the largest gradients weigh.
    """
    rows = tables.binned(order["gradient"].sel(order=tables.PROPER).values)
    found = {"why_two_weight": np.sort(rows.sum(1))[-2:].sum() / rows.sum()}
    for suffix, alike in (("", False), ("_alike", True)):
        curves = tables.profiles(order, "gradient", alike=alike)
        found[f"why_part_one{suffix}"] = float(earned_part(curves, EIGHTH)[0])
        found[f"why_part_shuffled{suffix}"] = float(earned_part(curves, EIGHTH, "shuffled")[0])
    return found


def earned_part(
    curves: Mapping[str, Any], sixteenths: int, without: str = tables.PROPER
) -> tuple[Any, Float[np.ndarray, "B"]]:
    """Return which part of the lead of so many last sixteenths the text earns, and that of each resample."""
    pairs = zip(curves[tables.WRITTEN], curves[without], strict=True)
    part, resampled = [part_of_lead(text[..., -sixteenths:], drawn[..., -sixteenths:]) for text, drawn in pairs]
    return part, resampled


def part_of_lead(text: Float[np.ndarray, "... k"], drawn: Float[np.ndarray, "... k"]) -> Float[np.ndarray, "..."]:
    """Return which part of what a text has above an equal share is not there with drawn tokens.

    >>> float(part_of_lead(np.array([3.0, 2.0]), np.array([2.0, 1.0])))
    0.6666666666666666
    """
    lead = text.mean(-1) - 1
    return np.asarray((text.mean(-1) - drawn.mean(-1)) / lead)


def shown(seen: Evidence) -> pd.DataFrame:
    """Return both ends in three orders, and what the text earns there, in equal shares with intervals, both ways."""
    rows = {}
    for end in ENDS:
        for how, split in (("all", seen.added), ("alike", seen.alike)):
            table, row = tables.order_table(seen.often, "gradient", alike=how == "alike"), {}
            for order, name in NAMES.items():
                x = table.loc[order]
                row[name] = ranged((x[f"{end} eighth"], x[f"{end} eighth low"], x[f"{end} eighth high"]))
            earned = split.loc[f"{end} eighth: earned"]
            row["earned"] = ranged((earned["value"], earned["low"], earned["high"]))
            rows[f"{end} eighth, {how}"] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("influence, equal shares")


def draw_orders(seen: Evidence) -> None:
    """Draw influence by sixteenths of the prompt in three orders, with intervals over texts: two ways of averaging."""
    _, axes = plt.subplots(1, 2, figsize=(6.4, 2.9), sharey=True)
    part = np.arange(1, tables.BINS + 1)
    for ax, alike in zip(axes, (False, True), strict=True):
        curves = tables.profiles(seen.often, "gradient", alike=alike)
        for name, colour in COLOURS.items():
            mean, drawn = curves[name]
            low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
            ax.plot(part, mean, color=colour, marker="o", ms=3, label=NAMES[name])
            ax.fill_between(part, low, high, color=colour, alpha=0.15, lw=0)
        ax.axhline(1, color="0.6", lw=0.8)
        title = "alike (each by its own mean)" if alike else "all (texts added)"
        ax.set(xlabel="sixteenth of the prompt", title=title, yscale="log", xticks=[1, 4, 8, 12, 16])
    axes[0].set_ylabel("influence, equal share = 1")
    axes[0].set_yticks([0.6, 1, 2, 3, 4], ["0.6", "1", "2", "3", "4"])
    axes[0].minorticks_off()
    axes[0].legend(fontsize=8)


def is_proper(split: pd.DataFrame, end: str) -> bool:
    """Say whether an end is off an equal share where place tells nothing."""
    row = split.loc[f"{end} eighth: proper"]
    return bool(abs(row["value"]) >= LEAST and row["low"] * row["high"] > 0)


def is_larger(split: pd.DataFrame, end: str) -> bool:
    """Say whether what the text earns at an end is more than what is there without it."""
    return bool(split.loc[f"{end} eighth: earned less proper", "low"] > 0)


def is_smaller(split: pd.DataFrame, end: str) -> bool:
    """Say whether what the text earns at an end is less than what is there without it."""
    return bool(split.loc[f"{end} eighth: earned less proper", "high"] < 0)


def survives(split: pd.DataFrame) -> bool:
    """Say whether the whole intervals say that scrambled words leave the profile."""
    return bool(split.loc["survives: rank", "low"] >= RANK and split.loc["survives: apart", "high"] <= APART)


def may_survive(split: pd.DataFrame) -> bool:
    """Say whether no interval lies wholly beyond its threshold."""
    return bool(split.loc["survives: rank", "high"] >= RANK and split.loc["survives: apart", "low"] <= APART)


def mixed_order(order: xr.Dataset, name: str, *, alike: bool = False) -> pd.DataFrame:
    """Return the parts of profiles in which the places of one order's prompts are mixed, the last token aside."""
    rng, one = np.random.default_rng(1), order.drop_vars("draws", errors="ignore").copy(deep=True)
    rows = one["gradient"].sel(order=name).values
    inner = rng.permuted(rows[:, :-1], axis=1)
    one["gradient"].loc[{"order": name}] = np.c_[inner, rows[:, -1]]
    return tables.split_table(one, "gradient", alike=alike)


def order_checks(seen: Evidence) -> list[Check]:
    """Return the checks of what is proper, what the text earns, and whether profiles survive scrambled words."""
    flat, found = mixed_order(seen.order, tables.PROPER), []
    mixed = "places of drawn prompts mixed"
    for end, place in ENDS.items():
        x, less = (seen.part(f"{end} eighth: {part}") for part in ("proper", "earned less proper"))
        found.append(Check(
            "Y-proper", f"{end} eighth, gradient", f"SmolLM2 has a bias proper at the {place}.",
            is_proper(seen.split, end), signed(x), "the interval holds 0, or the part is below .10",
            {mixed: [is_proper(flat, end)]}, "the interval holds 0", {},
        ))  # fmt: skip
        found.append(Check(
            "Y-earned", f"{end} eighth", f"The text earns the smaller part of the {place}.",
            is_smaller(seen.split, end), f"size of earned minus size of proper, one draw: {signed(less)}",
            "the interval of the difference reaches 0",
            {mixed: [is_smaller(flat, end)]}, "the text earns the larger part", {},
        ))  # fmt: skip
    rank, apart = (seen.part(f"survives: {x}")["value"] for x in ("rank", "apart"))
    shuffled = [may_survive(mixed_order(seen.order, "shuffled"))]
    found.append(Check(
        "Y-scrambled", "", "Profiles survive scrambled words.", may_survive(seen.split),
        f"rank correlation {rank:.2f}, {apart:.2f} of the prompt apart", "an interval lies wholly beyond its threshold",
        {"places of shuffled prompts mixed": shuffled}, "the profiles differ", {"undecided": not survives(seen.split)},
    ))  # fmt: skip
    return found + alike_checks(seen) + bits_checks(seen)


def alike_checks(seen: Evidence) -> list[Check]:
    """Return the checks of what the text earns with many draws for each text, in both ways, which readers asked for."""
    found, draws = [], seen.often.sizes["draw"]
    ways = {f"{draws} draws": (seen.added, False), f"{draws} draws, each text alike": (seen.alike, True)}
    for how, (split, alike) in ways.items():
        mixed = mixed_order(seen.order, tables.PROPER, alike=alike)
        less = split.loc["last eighth: earned less proper"]
        found.append(Check(
            "Y-earned", f"last eighth, {how}", f"The text earns the smaller part of the end, {how}.",
            not is_larger(split, "last"), f"size of earned minus size of proper: {signed(less)}",
            "the interval of the difference lies above 0",
            {"places of drawn prompts mixed": [not is_larger(mixed, "last")]}, "the text earns the larger part",
            {"undecided": not is_smaller(split, "last"), "post_hoc": True},
        ))  # fmt: skip
    return found
