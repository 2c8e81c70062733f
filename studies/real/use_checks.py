"""Checks of what is sensitive and what is used, as the ledger has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import xarray as xr

from posbias.comparison.resampling import interval
from studies.checks import Check
from studies.real import checks as c
from studies.real import use
from studies.real.tables import BY, distance_table, gap_table

Kept = Mapping[str, xr.Dataset]
SWAPPED = "gradients in place of use"
REACHES_ONE = (
    "the 95% interval of the ratio reaches 1 from above at the beginning, its first token aside, or "
    "from below in the last eighth"
)


def use_checks(kept: Kept, has_u: bool) -> list[Check]:
    """Return the checks of sensitivity and use; ``has_u`` says whether the mean profile of 256 tokens is a U."""
    return [
        sensitivity_check(kept, has_u),
        first_token_check(kept),
        beginning_check(kept),
        likeliest_check(kept),
        *[small_check(kept, size) for size in (64, 256)],
        ways_check(kept),
    ]


def _both(kept: Kept) -> dict[int, xr.Dataset]:
    return {size: kept[f"smollm2.use-{size}"] for size in (64, 256)}


def _rejected(kept: Kept, check: Callable[[xr.Dataset], bool], what: str) -> list[bool]:
    """Return whether a check passes entries that are broken at both lengths alike."""
    pairs = zip(*(c.break_entries(entry)[what] for entry in _both(kept).values()), strict=True)
    return [all(map(check, pair)) for pair in pairs]


def _first(kept: Kept, way: str) -> str:
    """Say how many equal shares the first token has."""
    gaps = gap_table({str(k): x for k, x in _both(kept).items()}, 1000).xs("first", level="part")
    if way == "gradient":
        return f"{gaps.loc['64', way]:.1f} equal shares of 64 tokens and {gaps.loc['256', way]:.1f} of 256"
    return f"{gaps.loc['64', way]:.2f} equal shares of 64 tokens and {gaps.loc['256', way]:.2f} of 256"


def _longer(entry: xr.Dataset) -> str:
    """Say what the first token of 1,024 has by use, which is beyond the check."""
    share = gap_table({"": entry}, 1000).loc[("", "first"), "replaced"]
    return "of 1,024, beyond the check, {:.1f} ({:.1f} to {:.1f})".format(share, *interval(c.first_shares(entry)[1]))


def sensitivity_check(kept: Kept, has_u: bool) -> Check:
    """Return the check that the first token has more than an equal share of the gradient."""
    what = "places of each prompt shuffled"
    return Check(
        "Y-sensitivity", "", "The prediction is sensitive to the first token, and the profile is a U.",
        all(map(c.is_sensitive, _both(kept).values())) and has_u,
        f"by sensitivity the first token has {_first(kept, 'gradient')}, and the mean of 256 tokens is a U",
        "the 95% interval of the first token's share reaches an equal share at 64 or 256 tokens, or there "
        "is no U by the criterion of the page tokens",
        {what: _rejected(kept, c.is_sensitive, what)},
        "the first token has no more than an equal share of the gradient", {},
    )  # fmt: skip


def first_token_check(kept: Kept) -> Check:
    """Return the check that the first token is not used more than an average one."""
    where = [f"{size} tokens" for size, x in _both(kept).items() if c.is_unused(x)]
    broken = (SWAPPED, "use of the first token eight times as large")
    return Check(
        "Y-use", "first token", "In plain text the first token is used no more than an average one.",
        len(where) == 2,
        f"by use the first token has {_first(kept, 'replaced')}; {_longer(kept[use.FORMS['1024'][1]])}",
        "at 64 or 256 tokens the first token has more than an equal share by replacement, or not less than "
        "by gradient (95% intervals, paired over prompts)",
        {what: _rejected(kept, c.is_unused, what) for what in broken},
        f"true at {' and '.join(where)} alone", {"in_part": len(where) == 1},
    )  # fmt: skip


def beginning_check(kept: Kept) -> Check:
    """Return the check that the gradient of the beginning is more than its use, and that of the end less."""
    every = {short: kept[use.FORMS[short][1]] for short in use.PLAIN}
    gaps = gap_table(every, 1000)["times"].unstack("part").loc[[*every]]
    tried = {
        SWAPPED: ("replaced", "gradient"),
        "use in place of gradients": ("gradient", "replaced"),
    }
    broken = {}
    for what, (way, other) in tried.items():
        broken[what] = [c.overstates_start(c.changed(x, way, x[other].values)) for x in every.values()]
    turned = [x.isel(position=slice(None, None, -1)) for x in every.values()]
    broken["prompts read from the end"] = [*map(c.overstates_start, turned)]
    rest = ", ".join(f"{x:.2f}" for x in gaps["rest"])
    end = ", ".join(f"{x:.2f}" for x in gaps["end"])
    return Check(
        "Y-use", "beginning", "In plain text sensitivity is above use at the start, below it at the end.",
        all(map(c.overstates_start, every.values())),
        f"sensitivity over use is, in the first eighth without its first token, {rest}; in the last eighth {end}",
        f"at 64, 256 or 1,024 tokens {REACHES_ONE}", broken,
        "the gradient of the beginning is no more than its use", {"post_hoc": True},
    )  # fmt: skip


def likeliest_check(kept: Kept) -> Check:
    """Return the check that the gap stays if only the likeliest next token is watched."""
    again, watched = kept["smollm2.use-64"], kept["smollm2.use-64-likeliest"]
    alone = again.assign(replaced=watched["likeliest"])
    first_two = gap_table({"": alone}, 1000).loc[""].loc[["rest", "end"], "times"]
    broken = c.changed(again, "replaced", again["gradient"].values)
    return Check(
        "Y-use", "likeliest token", "So it is if only the likeliest next token is watched.",
        c.overstates_start(alone),
        "sensitivity over the change of the likeliest token's probability is, in these two parts of 64 tokens, "
        + " and ".join(f"{x:.2f}" for x in first_two),
        f"at 64 tokens {REACHES_ONE}", {SWAPPED: [c.overstates_start(broken)]},
        "the gap is one of whose probability is watched", {},
    )  # fmt: skip


def small_check(kept: Kept, size: int) -> Check:
    """Return the check that the gap is there in all ten small models."""
    ten = [kept[name] for name in (use.SMALL if size == 64 else use.LONGER).values()]
    broken = [c.changed(x, "replaced", x["gradient"].values) for x in ten]
    holds = sum(map(c.overstates_start, ten))
    said = f"In all ten small models sensitivity is above use at the start, below it at the end ({size} tokens)."
    return Check(
        "Y-use", "small models" if size == 64 else "small models at 256", said, holds == len(ten),
        f"so it is in {holds} of {len(ten)} small models, at {size} tokens", f"in one of the ten {REACHES_ONE}",
        {SWAPPED: [*map(c.overstates_start, broken)]}, f"true of {holds} of the {len(ten)}",
        {"post_hoc": True, "in_part": 0 < holds < len(ten)},
    )  # fmt: skip


def ways_check(kept: Kept) -> Check:
    """Return the check that deletion and hidden keys rank places more like replacement than the gradient does."""
    entry = use.ways_entry(kept)
    ranks = distance_table(entry)["spearman"]
    assert ranks["likeliest"] > 0.9  # nearly the same, as the page says
    shown = ", ".join(f"{BY[x]} {ranks[x]:+.2f}" for x in ("deleted", "hidden"))
    broken = {}
    for what, entries in c.break_ways(entry).items():
        broken[what] = list(map(c.ways_agree, entries))
    return Check(
        "Y-use", "other ways", "Deletion and hidden keys rank places as replacement does.",
        c.ways_agree(entry),
        f"the rank correlation with replacement is: {shown}; gradient {ranks['gradient']:+.2f}",
        "by deletion or by hidden keys the order of places is not nearer to that by replacement than the "
        "gradient's is (95% intervals, paired over prompts)",
        broken,
        "deletion or hidden keys rank places as the gradient does", {"post_hoc": True},
    )  # fmt: skip
