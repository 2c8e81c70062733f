"""Checks of what Wu et al. (2025) say of small networks: the parts of each claim, and what each check notices."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from studies.checks import Check
from studies.icl import broken, claims
from studies.icl.evidence import PRINTED, Evidence, printed_sinks
from studies.icl.tables import Runs

NEEDS = {
    "depth, no residual": "deeper",
    "encodings, no residual": "decay-lowers|rope-lowers",
    "middle and last": "middle-last",
    "depth, residual": "not-monotonic|larger",
    "middle lost by deep RoPE alone": "middle-lost",
    "no encoding": "no-mask|causal",
    "encodings": "captured",
    "both ends": "ends-first|lost-only",
    "sinks": "sink",
}
"""Parts of the rows, and the names of the claims that each needs."""
DEPTH = tuple(NEEDS)[:5]
BIAS = tuple(NEEDS)[5:8]
SINK = ("sinks",)
FAILS = {
    "depth, no residual": "with one of three encodings, without a residual, the gap "
    "first − middle or first − last falls from two layers to four, or four to six",
    "encodings, no residual": "at one depth, without a residual, the gap first − last "
    "is larger with RoPE or the decay mask than with no encoding, or than with RoPE",
    "middle and last": "in a network without a residual the gap middle − last is "
    "larger in size than first − middle or first − last",
    "depth, residual": "first − last moves one way with depth, with every encoding",
    "middle lost by deep RoPE alone": "first − middle is negative or middle − last "
    "positive with RoPE at six layers, or both ends beat the middle with no encoding "
    "or the decay mask at some depth",
    "no encoding": "with a causal mask first − middle or first − last is negative on "
    "one of four kinds of data, a gap without a mask is beyond 0.01, or training on "
    "both ends brings the last forward",
    "encodings": "with sinusoidal encoding or RoPE a gap has the sign opposite to the "
    "bias of the data, with or without a mask",
    "both ends": "trained on both ends, first − last is negative or beyond 0.1 in one "
    "of four networks, or both ends beat the middle in one trained on other data",
    "sinks": "with the causal mask or the widest window a later token has a larger "
    "metric than the first, with the narrowest none has, or a token outside a prefix "
    "has a larger one than a token inside",
}
NOT_LARGER = (
    "with one of three encodings and a residual the mean size of the three "
    "gaps falls from two layers to four, or four to six"
)
SAID = {
    "depth, no residual": "Without a residual, the deeper a network is, the more it favours the "
    "first place, with every encoding.",
    "encodings, no residual": "Without a residual, RoPE lowers the gap between first and last "
    "place, and the decay mask lowers it more.",
    "middle and last": "Without a residual, the gap between middle and last place is smaller than "
    "the two gaps with the first.",
    "depth, residual": "With a residual, depth raises or lowers the gap between first and last "
    "place, depending on the encoding.",
    "middle lost by deep RoPE alone": "With a residual, deep networks with RoPE lose the middle, and no others do.",
    "no encoding": "Without an encoding, a causal network favours the first place whatever its "
    "data, and one without a mask favours none.",
    "encodings": "With the sinusoidal encoding or RoPE a network learns each bias of its data.",
    "both ends": "Only data that favour both ends make a network lose the middle, and the first "
    "place is then slightly ahead of the last.",
    "sinks": "The first token is a sink under the causal mask and under wide windows, and all "
    "tokens of a prefix are sinks under a prefix mask.",
}
LARGER = "With a residual, the gaps grow with depth, with every encoding."
SIGNS = "the vectors of the authors' program change signs at two layers"
UNTRIED = "the vectors of the authors' program were not tried here"


@dataclass(frozen=True)
class Family:
    """Hold the claims of one row on one task, the runs they are of, and what becomes of them if these are broken."""

    row: str
    figures: str
    table: pd.DataFrame
    runs: Runs
    broken: dict[str, pd.DataFrame]
    parts: Sequence[str]
    reason: str


def passing(chosen: pd.DataFrame, found: pd.DataFrame) -> list[bool]:
    """Return by run whether all claims hold or, if they do not here, none falls."""
    found = found[chosen.index]
    held = (found == 1) if chosen["holds"].all() else (found != -1)
    return [bool(x) for x in held.all(axis=1)]


def summary(chosen: pd.DataFrame, runs: Runs) -> str:
    """Return how many claims hold, are reversed and are unclear on what was trained."""
    steps = sorted({f"{x.attrs['iterations']:,}" for x in runs.values()})
    seeds = sorted({str(x.sizes["seed"]) for x in runs.values()})
    found = claims.outcomes(chosen)
    counts = [f"{(found == 1).sum()} of {len(chosen)} claims hold"]
    for word, x in (("reversed", -1), ("unclear", 0)):
        named = "; ".join(chosen.loc[found == x, "claim"])
        counts.append(f"{(found == x).sum()} {word} ({named})" if named else f"0 {word}")
    made = f"{' or '.join(seeds)} seeds x {' or '.join(steps)} iterations, {len(runs)} settings"
    return f"{', '.join(counts)}; {made}"


def fails_if(part: str, chosen: pd.DataFrame) -> str:
    """Return what a part's verdict rests on: its sentence and the rule."""
    rule = "on average or one seed"
    if not chosen["holds"].all():
        rule = "in every seed, at 5% after Holm's adjustment"
    larger = "larger-none" in chosen.index
    return f"{NOT_LARGER if larger else FAILS[part]}, {rule}"


def part_check(family: Family, part: str) -> Check:
    """Return the check of one part of a row, at the scale of its runs."""
    chosen = family.table[family.table.index.str.match(NEEDS[part])]
    figure, fails = summary(chosen, family.runs), fails_if(part, chosen)
    steps = min(x.attrs["iterations"] for x in family.runs.values())
    shorter = bool(steps < claims.PRINTED_ITERATIONS)
    if shorter and not chosen["holds"].all():  # what short training cannot refute
        figure, fails = f"{figure}; {family.reason}", f"after all iterations, {fails}"
    said = LARGER if "larger-none" in chosen.index else SAID[part]
    against = chosen["contradicted"]
    return Check(
        family.row, f"{part}, {claims.scale(family.runs)}", f"{said} ({family.figures})",
        shorter or not against.any(), figure, fails,
        {what: passing(chosen, runs) for what, runs in family.broken.items()}, family.reason,
        {"undecided": bool(not chosen["holds"].all()), "in_part": bool(not against.all())},
    )  # fmt: skip


def by_metric(found: dict[str, pd.DataFrame]) -> str:
    """Return why sinks are not found: what the last layer alone gives."""
    last = found["last layer"]["holds"]
    return (
        "the mean over layers is what is printed; in the last layer alone "
        f"{last.sum()} of {len(last)} hold; the vectors of the authors' program "
        "are untested"
    )


def family_of(
    row: str, figures: str, table: pd.DataFrame, runs: Runs, check: Callable[[Runs], pd.DataFrame], **rest: Any
) -> Family:
    """Return the claims of one row with what becomes of them on broken results."""
    breaks = broken.SINKS if check is printed_sinks else broken.GAPS
    return Family(row, figures, table, runs, claims.claims_on_broken(check, runs, breaks), **rest)


def families(seen: Evidence) -> list[Family]:
    """Return the claims of all rows: of the first task, and of the second."""
    depth, bias = claims.depth_claims, claims.bias_claims
    plain, biased = seen.joined("figure4", "figure5"), seen.joined("figure3", "figure6", "figure5")
    fixed, fixed_biased = seen.joined("figure9", "figure10"), seen.joined("figure11", "figure10")
    sinks, fixed_sinks = seen.sinks("figure8"), seen.sinks("figure13")
    first, second = {"reason": SIGNS, "parts": DEPTH}, {"reason": UNTRIED, "parts": BIAS}
    of_sinks, of_second = [{"reason": by_metric(x), "parts": SINK} for x in (sinks, fixed_sinks)]
    without = tuple(part for part in DEPTH if not part.startswith("middle lost"))
    fixed_depth = {"reason": UNTRIED, "parts": without}
    own, other = seen.figures["figure8"], seen.figures["figure13"]
    of_bias = family_of("WU-F3-F6", "Figures 3 and 6", seen.bias, biased, bias, **second)
    of_fixed = family_of("WU-L", "second task, Figure 11", seen.fixed_bias, fixed_biased, bias, **second)
    ninth, last = "second task, Figures 9 and 10", "second task, Figures 12 and 13"
    return [
        family_of("WU-F2-F4-F5", "Figures 2, 4 and 5", seen.depth, plain, depth, **first),
        replace(of_bias, runs=seen.joined("figure3", "figure6")),
        family_of("WU-F7-F8", "Figures 7 and 8", sinks[PRINTED], own, printed_sinks, **of_sinks),
        family_of("WU-L", ninth, seen.fixed_depth, fixed, depth, **fixed_depth),
        replace(of_fixed, runs=seen.figures["figure11"]),
        family_of("WU-L", last, fixed_sinks[PRINTED], other, printed_sinks, **of_second),
    ]


def icl_checks(seen: Evidence) -> list[Check]:
    """Return all checks of the paper's claims."""
    return [part_check(family, part) for family in families(seen) for part in family.parts]


def shorter(figure: str) -> str:
    """Return how many claims hold, without their names and how they were trained.

    >>> shorter("1 of 3 claims hold, 0 reversed, 2 unclear (this; that); 3 seeds")
    '1 of 3 claims hold, 0 reversed, 2 unclear'
    """
    return re.sub(r" \([^)]*\)", "", figure).split(";")[0]
