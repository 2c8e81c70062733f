"""Checks of the law of reading by place: what the ledger's thresholds say, and what each check notices if broken."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.stats import spearmanr

from posbias.lookup.reading import fit_law, shares
from posbias.lookup.scores import paired_difference
from studies.checks import Check, ranged
from studies.reading import evidence as e
from studies.reading import tables
from studies.reading.evidence import Evidence
from studies.reading.tables import Counts

LIMIT = 65.2
"""The 95% point of a deviance with 48 degrees of freedom."""
SIMPLER = [
    "place alone",
    "place, bonus",
    "place, Gaussian fall",
    "place, power fall",
    "exponential fall alone",
    "first-come",
]
"""Rivals that the law has to lead."""


def exchanged(rng: np.random.Generator, counts: Counts) -> Counts:
    """Return the answers with the documents of each set in another order."""
    orders = [rng.permutation(counts.shape[1]) for _ in counts]
    return np.stack([x[np.ix_(k, k)] for x, k in zip(counts, orders, strict=True)])


def drawn_from(rng: np.random.Generator, p: Float[np.ndarray, "P P"], sets: int) -> Counts:
    """Return answers of so many sets, drawn from expected shares."""
    drawn = [rng.multinomial(1, row, size=sets) for row in p]
    return np.stack(drawn, axis=1).astype(float)


def law_holds(fitted: Counts, judged: Counts) -> bool:
    """Say whether the law expects new answers best, and misses nothing that would show."""
    table = tables.rival_table(fitted, judged).loc[SIMPLER]
    return bool((table["low"] > 0).all() and e.deviance(fitted, judged) < LIMIT)


def none_left(counts: Counts, resamples: int) -> bool:
    """Say whether the interval of the bonus holds 0 and ends below .5."""
    _, low, high = tables.of_resamples(counts, tables.bonus, resamples)
    return bool(low <= 0 <= high < 0.5)


def both_pull(counts: Counts, resamples: int) -> bool:
    """Say whether the intervals of both ends' pulls are above 0."""
    low = []
    for place in (0, -1):
        low.append(tables.of_resamples(counts, lambda n, k=place: tables.pull(n, k), resamples)[1])  # type: ignore[misc]
    return bool(min(low) > 0)


def distance_checks(seen: Evidence) -> list[Check]:
    """Return the checks of the law on new sets, and with one competitor."""
    rng, found = np.random.default_rng(0), []
    lead = tables.rival_table(seen.first, seen.new).loc["place, bonus", "behind"]
    mixed = [law_holds(exchanged(rng, seen.first), exchanged(rng, seen.new)) for _ in range(5)]
    found.append(Check(
        "L-distance", "new sets",
        "On 40 new sets, one planned half, the law leads its rivals, and is within chance there.",
        law_holds(seen.first, seen.new),
        f"{lead:.0f} nats ahead of place and bonus; deviance {e.deviance(seen.first, seen.new):.0f}, "
        f"and {e.deviance(seen.new, seen.first):.0f} the other way round; of drawn halves see the claim of that name",
        f"a rival's interval reaches the law, or the deviance is above {LIMIT}",
        {"documents of each set exchanged": mixed}, "a rival is as good, or something is left to explain", {},
    ))  # fmt: skip
    wrong, of = tables.dose(seen.kept["dose"])
    low, high = seen.law.sharpness_interval

    def falls(wrong: Any) -> bool:
        sloped = spearmanr(wrong.sum((0, 2)) / of.sum((0, 2)), range(7))[0] < -0.7
        return bool(sloped and low <= e.dose_sharpness(seen, wrong, of) <= high)

    swapped = [falls(rng.permuted(wrong, axis=1)) for _ in range(20)]
    numbers = e.dose_numbers(seen)
    fitted = tuple(numbers[f"reading_dose_{k}"] for k in ("sharpness", "low", "high"))
    found.append(Check(
        "L-distance", "one competitor", "One competitor is confused by the same law.", falls(wrong),
        f"γ {ranged(fitted)} with one competitor",  # type: ignore[arg-type]
        "shares do not fall, or γ is outside the interval of eight documents", {"distances permuted": swapped},
        "γ is below that of eight documents, though mistakes fall with distance", {"in_part": True},
    ))  # fmt: skip
    return found


def match_check(seen: Evidence) -> Check:
    """Return the check that no bonus for the right document is left."""
    rng, eight, left = np.random.default_rng(1), seen.sets["eight"], {}
    for m in (0.5, 1.0):
        p = np.exp(np.log(seen.law.expected) + m * np.eye(e.P))
        p /= p.sum(1, keepdims=True)
        left[f"a bonus of {m}"] = [none_left(drawn_from(rng, p, len(eight)), 60) for _ in range(10)]
    return Check(
        "L-match", "", "No bonus that all places share is left for the right document.", none_left(eight, 400),
        f"bonus {ranged(tables.of_resamples(eight, tables.bonus))}",
        "the interval leaves 0 out, or ends above .5", left, "a bonus is left", {},
    )  # fmt: skip


def other_checks(seen: Evidence) -> list[Check]:
    """Return the checks of facts of eight kinds: a bonus for the right document, and few mistakes by neighbours."""
    rng, counts = np.random.default_rng(7), seen.others

    def bonus(counts: Counts, resamples: int = 60) -> tuple[float, float, float]:
        return tables.of_resamples(counts, tables.bonus, resamples)

    alike = [drawn_from(rng, seen.law.expected, len(counts)) for _ in range(10)]
    near = e.near_share(counts.sum(0))
    return [
        Check(
            "L-match", "others", "Among eight unlike facts a bonus for the right document is left.",
            bonus(counts, 400)[1] > 1, f"bonus {ranged(bonus(counts, 400))}", "its interval reaches 1",
            {"answers drawn from the law of eight documents": [bonus(x)[1] > 1 for x in alike]},
            "no bonus above 1 is left", {},
        ),
        Check(
            "L-match", "others, neighbours", "Among eight unlike facts few wrong answers are from a neighbour.",
            near <= 1 / 3, f"{near:.0%} of {counts.sum() - counts.sum(0).trace():.0f} wrong answers",
            "more than a third are from a neighbour",
            {"answers drawn from the law of eight documents": [e.near_share(x.sum(0)) <= 1 / 3 for x in alike]},
            "mistakes are rare, and still from neighbours", {},
        ),
    ]  # fmt: skip


def end_checks(seen: Evidence) -> list[Check]:
    """Return the checks that ends pull, and that they pull less where neutral documents stand there."""
    rng, eight = np.random.default_rng(2), seen.sets["eight"]
    ends = zip(seen.law.ends, *seen.law.ends_interval, strict=True)
    mixed = [both_pull(exchanged(rng, eight), 60) for _ in range(10)]
    left = e.share_left(seen.sets["ends"], eight)
    same = [e.share_left(drawn_from(rng, seen.law.expected, 40), eight, 40)[1] <= 0.5 for _ in range(10)]
    return [
        Check(
            "L-ends", "pull", "In this mixture of kinds both ends pull answers, if no document has a bonus.",
            both_pull(eight, 200),
            "; ".join(map(ranged, ends)),
            "an interval reaches 0", {"documents of each set exchanged": mixed}, "an end does not pull", {},
        ),
        Check(
            "L-ends", "occupied", "Occupied ends pull half as much or less.", bool(left[1] <= 0.5),
            f"{ranged(left)} of the pull is left", "more than half of the pull is left, with the whole interval",
            {"pulls as without them": list(map(bool, same))}, "the pull stays", {"undecided": bool(left[2] > 0.5)},
        ),
    ]  # fmt: skip


def unit_check(seen: Evidence) -> Check:
    """Return the check that the share of the list is the unit nearest."""
    rng, numbers = np.random.default_rng(3), e.unit_numbers(seen)
    misses = {unit: numbers[f"reading_miss_{unit}"] for unit in tables.UNITS}
    ahead = min(numbers["reading_unit_places"], numbers["reading_unit_tokens"])
    broken = []
    for _ in range(10):
        other = {}
        for name, x in seen.totals.items():
            other[name] = drawn_from(rng, shares(fit_law(x)[1], seen.law.sharpness), len(seen.sets[name])).sum(0)
        drawn = tables.unit_misses(seen.entries, other)
        broken.append(drawn["share"] == min(drawn.values()))
    said = ", ".join(f"{unit} {x:.2f}" for unit, x in misses.items())
    resamples = "all resamples" if ahead == 1 else f"{ahead:.0%} of resamples"
    return Check(
        "L-unit", "", "Of three units of distance the share of the list is nearest.",
        misses["share"] == min(misses.values()),
        f"mean miss of log γ: {said}; ahead in {resamples}", "another unit is nearer",
        {"γ the same per place": broken}, "another unit is nearer", {"undecided": bool(ahead < 0.95)},
    )  # fmt: skip


def apart_check(seen: Evidence) -> Check:
    """Return the check that look-alikes kept apart are confused less."""
    rng, right = np.random.default_rng(4), e.apart_rights(seen)
    more = right[:, 0] - right[:, 1]
    signs = rng.choice([-1, 1], (20, len(more)))
    return Check(
        "L-apart", "", "Look-alikes kept apart are confused less.", bool(paired_difference(more).low > 0),
        f"right {right[:, 0].mean():.2f} apart, {right[:, 1].mean():.2f} together",
        "the interval of the difference reaches 0",
        {"orders exchanged at random": [bool(paired_difference(sign * more).low > 0) for sign in signs]}, "no gain", {},
    )  # fmt: skip


def carries_over(seen: Evidence, counts: Counts, resamples: int) -> bool:
    """Say whether the law leads as fitted to eight documents, with γ half to twice as much."""
    _, low, high = tables.of_resamples(counts, lambda n: fit_law(n)[0] / seen.law.sharpness, resamples)
    return bool(e.lead_on(seen, counts)[1] > 0 and low > 0.5 and high < 2)


def form_checks(seen: Evidence) -> list[Check]:
    """Return the checks of other kinds of facts and plain text."""
    rng, found = np.random.default_rng(5), []
    said = {"kinds": "The law carries over to facts about persons.", "plain": "The law carries over to plain text."}
    for name, claim in said.items():
        counts = seen.sets[name]
        mixed = [carries_over(seen, exchanged(rng, counts), 60) for _ in range(10)]
        fitted = tables.of_resamples(counts, lambda n: fit_law(n)[0])
        found.append(Check(
            "L-forms", name, claim, carries_over(seen, counts, 200),
            f"{ranged(e.lead_on(seen, counts), 0)} nats ahead; γ {ranged(fitted)}",
            "the lead's interval reaches 0, or the ratio of γ leaves 1/2 to 2",
            {"documents of each set exchanged": mixed}, "the law does not carry over", {},
        ))  # fmt: skip
    return found


def long_check(seen: Evidence) -> Check:
    """Return the check that γ of 32 documents is a quarter of that of eight, and not the same."""
    rng, (ratio, low, high) = np.random.default_rng(6), e.unit_of_32(seen)
    half = 0.5  # nearer to 1/4 than to 1, by their logarithms
    pulls, broken = fit_law(seen.totals["thirty-two"])[1], []
    for _ in range(10):
        by_places = drawn_from(rng, shares(pulls, seen.law.sharpness), len(seen.sets["thirty-two"]))
        broken.append(bool(fit_law(by_places.sum(0))[0] / seen.law.sharpness < half))
    return Check(
        "L-forms", "thirty-two", "In a list of 32 γ is nearer to that of the share than of places.",
        bool(high < half),
        f"γ per place {ranged((ratio, low, high))} of that of eight", "the interval of the ratio reaches 1/2",
        {"γ the same per place": broken}, "γ is not that of the share of the list", {},
    )  # fmt: skip


def law_checks(seen: Evidence) -> list[Check]:
    """Return all checks of the law."""
    found = [*distance_checks(seen), match_check(seen), *other_checks(seen), *end_checks(seen)]
    return [*found, unit_check(seen), apart_check(seen), *form_checks(seen), long_check(seen)]
