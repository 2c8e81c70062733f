"""Checks of which way names the source of an answer, and what each check notices if something is broken."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from studies.checks import Check
from studies.documents import sources, tables
from studies.documents.sources import DIVIDED, LAST, Sources

AHEAD = 0.05
"""By which share of the prompts deletion must be ahead."""


def leads(ways: dict[str, sources.Named], source: Int[np.ndarray, "C P"]) -> bool:
    """Say whether deletion names the source most, by a twentieth of the prompts."""
    hits = {way: (tables.named(x) == source)[source >= 0].mean() for way, x in ways.items()}
    best = hits.pop("deletion")
    return all(best - hit >= AHEAD for hit in hits.values())


def drawn_sources(source: Int[np.ndarray, "C P"]) -> list[Int[np.ndarray, "C P"]]:
    """Return sources drawn at random, 20 times."""
    found = []
    for rng in np.random.default_rng(0).spawn(20):
        found.append(np.where(source >= 0, rng.integers(8, size=source.shape), -1))
    return found


def deletion_check(seen: Sources) -> Check:
    """Return the check that deletion names the source more often than all else."""
    ways, behind = seen.named | seen.tools, seen.table.drop(["deletion", LAST])["all"]
    whole = seen.table.loc["deletion"]
    return Check(
        "D-source", "", "On these answers deletion names the source most often.", leads(ways, seen.source),
        f"deletion names the source in {whole['all']:.0%} of {int(whole['prompts'])} prompts, the best of those that "
        f"need no choice ({behind.idxmax()}) in {behind.max():.0%}",
        "one of the others names it in as many prompts less a twentieth",
        {"sources drawn at random": [leads(ways, x) for x in drawn_sources(seen.source)]},
        "another attribution names it as often", {"post_hoc": True},
    )  # fmt: skip


def fair_check(seen: Sources) -> Check:
    """Return the same check with place divided out for every rival, and heads among them, on half of the sets."""
    half, table = len(seen.source) // 2, seen.fair_table
    ways = {name: x[half:] for name, x in seen.fair.items()}
    source, behind = seen.source[half:], table.drop("deletion")["all"]
    drawn = [leads(ways, x) for x in drawn_sources(source)]
    return Check(
        "D-source", "fair",
        "It still names at least .05 more of the sources than every rival, place divided out, heads among them.",
        leads(ways, source),
        f"deletion {table.loc['deletion', 'all']:.0%} of {int(table['prompts'].iloc[0])} prompts of the second half of "
        f"the sets, the best of the others ({behind.idxmax()}) {behind.max():.0%}",
        "one of the others names it in as many prompts less a twentieth",
        {"sources drawn at random": drawn}, "a rival names it as often", {"post_hoc": True},
    )  # fmt: skip


def factor_check(seen: Sources) -> Check:
    """Return the check that influence names more sources once its place is divided out."""
    rng, shape = np.random.default_rng(0), seen.removed.shape
    gained, low, high = sources.gain_over(seen, seen.named[DIVIDED], seen.named["influence"])
    blind = [rng.random(shape) for _ in range(20)]
    losses = [sources.gain_over(seen, x, seen.named["influence"])[2] >= 0 for x in blind]
    return Check(
        "X-factor", "answers", "Divided by its place, influence names more sources.", bool(high >= 0),
        f"SmolLM2, {seen.known.sum()} answers of {len(seen.source)} contexts: influence divided by its place names "
        f"{round(gained, 2) + 0.0:+.2f} more of the sources ({low:+.2f} to {high:+.2f})",
        "the 95% interval of the gain over contexts is below 0 (undecided if it contains 0)",
        {"documents named at random": list(map(bool, losses))},
        "divided by its place, influence names the source less often", {"undecided": bool(low <= 0 <= high)},
    )  # fmt: skip


def source_checks(seen: Sources) -> list[Check]:
    """Return all checks of the page."""
    return [deletion_check(seen), fair_check(seen), factor_check(seen)]
