"""The law beside rivals that are fitted to the same sets, and a bonus of its own for the first document."""

from __future__ import annotations

import numpy as np
import pandas as pd
from jaxtyping import Float

from posbias.comparison.resampling import interval, resample_weights
from posbias.lookup.reading import fit_choices, fit_law, shares
from studies.checks import Check
from studies.reading import tables
from studies.reading.evidence import LAW, Evidence, deviance, named
from studies.reading.kinds import kind_rows
from studies.reading.tables import OWN, Counts

RIVALS = {
    LAW: "the law: place, exponential fall with distance",
    OWN: "the law, and a bonus for the first document alone",
    "place, exponential fall, own bonuses": "the law, and a bonus for the first and one for the last",
    "place, exponential fall, bonus": "the law, and one bonus for the right document",
    "place, power fall": "place, power of distance",
    "place, Gaussian fall": "place, Gaussian of distance (or trend)",
    "place, trend, bonus": "place, Gaussian of distance (or trend), one bonus for the right document",
    "place, trend, own bonus of the first": "place, Gaussian of distance (or trend), a bonus for the first",
    "both ends, exponential fall, own bonus of the first": "two ends, distance, a bonus for the first",
    "both ends, exponential fall": "two ends, distance (places between alike)",
    "place, own bonus of the first": "no distance: place, a bonus for the first",
    "both ends, own bonuses": "no distance: two ends, a bonus for each",
    "place, bonus": "no distance: place, one bonus for the right document",
    "exponential fall alone": "distance alone",
    "first-come": "first come: goes through the list, takes what fits",
    "place alone": "place alone",
}
"""What the law and its rivals are called in a table."""
TREND = "place, trend, bonus"
"""The rival that does without distance and comes as near: a reader of the page asked for it."""
WITHOUT_DISTANCE = ("place, own bonus of the first", "both ends, own bonuses", "place, bonus", "place alone")
"""Rivals in which nothing but a bonus ties the document read to the one asked for."""


PLANNED = (
    "place, power fall", "place, Gaussian fall", "both ends, exponential fall", "place, bonus",
    "exponential fall alone", "first-come", "place alone",
)  # fmt: skip
"""Rivals that were named before the run; the others came later."""


def both_ways(seen: Evidence) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the tables of rivals: fitted to the first half of the sets and judged on the second, and exchanged."""
    return tables.rival_table(seen.first, seen.new), tables.rival_table(seen.new, seen.first)


def rivals_shown(seen: Evidence) -> pd.DataFrame:
    """Return how far each rival is behind the law, judged on the sets that it was not fitted to."""
    titles = ("behind the law, in nats (95%)", "halves exchanged")
    shown = {}
    for title, table in zip(titles, both_ways(seen), strict=True):
        rows = table.loc[list(RIVALS)].rename(index=RIVALS)
        shown[title] = pd.Series({x.Index: f"{x.behind:.0f} ({x.low:.0f} to {x.high:.0f})" for x in rows.itertuples()})
    shown["planned"] = pd.Series({RIVALS[x]: "yes" if x in PLANNED else "later" for x in RIVALS if x != LAW})
    return pd.DataFrame(shown).loc[list(RIVALS.values())].fillna("–").rename_axis("what is fitted")


def own(end: int) -> tables.Statistic:
    """Return what gives the own bonus of the first (0) or of the last document (-1), with distance in the law."""

    def bonus(counts: tables.Tables) -> Float[np.ndarray, "*B"]:
        features = tables.rival_features(counts.shape[-1])[OWN]
        features[..., -1] = 0
        features[end, end, -1] = 1
        return fit_choices(features, counts)[0][..., -1]

    return bonus


def among_mistakes(counts: tables.Tables) -> Float[np.ndarray, "*B"]:
    """Return γ of wrong answers alone: with a bonus for each document the right answers are fitted by themselves."""
    places = counts.shape[-1]
    features = tables.rival_features(places)[LAW]
    fitted = np.zeros((places, places, places))
    fitted[np.arange(places), np.arange(places), np.arange(places)] = 1
    return fit_choices(np.concatenate([features, fitted], -1), counts)[0][..., places - 1]


def carried_trend(seen: Evidence, name: str) -> Float[np.ndarray, "C"]:
    """Return by set of another list how many nats the trend is behind the law, both fitted to the eight alone."""
    expected = tables.rival_shares(seen.totals["eight"])
    return np.asarray(((np.log(expected[LAW]) - np.log(expected[TREND])) * seen.sets[name]).sum((1, 2)))


def first_pull(counts: tables.Tables) -> Float[np.ndarray, "*B"]:
    """Return how much more the first place pulls than those between, if its own bonus is in the law."""
    places = counts.shape[-1]
    w, _ = fit_choices(tables.rival_features(places)[OWN], counts)
    return -w[..., : places - 2].mean(-1)


def ahead(fitted: Counts, judged: Counts) -> Float[np.ndarray, "C"]:
    """Return by judged set how many nats the law gains by a bonus for the first document."""
    expected = tables.rival_shares(fitted.sum(0))
    return np.asarray(((np.log(expected[OWN]) - np.log(expected[LAW])) * judged).sum((1, 2)))


def sum_over_sets(each: Float[np.ndarray, "C"]) -> tuple[float, float, float]:
    """Return a sum and its 95% interval over sets."""
    low, high = interval(resample_weights(len(each)) @ each)
    return float(each.sum()), float(low), float(high)


MOST_ABOVE = 0.1
"""Share of drawn halves that may be above what chance gives in one case of 40."""


def rival_numbers(seen: Evidence) -> dict[str, float]:
    """Return how the law stands beside its rivals, and what a bonus for the first document gains where."""
    eight, tried = seen.sets["eight"], both_ways(seen)
    behind = [table["low"].drop(LAW) > 0 for table in tried]
    without = pd.concat([table.loc[list(WITHOUT_DISTANCE)] for table in tried])
    least = without.iloc[int(without["behind"].argmin())]
    numbers = {
        "planned": len(PLANNED), "behind": int((behind[0] & behind[1])[list(PLANNED)].sum()),
        "behind_once": int((behind[0] ^ behind[1])[list(PLANNED)].sum()), "without_distance": least["behind"],
        "without_low": least["low"], "without_high": least["high"],
    }  # fmt: skip
    numbers["answers"] = answers_apart(seen)
    numbers |= named("mistakes", tables.of_resamples(eight, among_mistakes))
    numbers |= named("first", tables.of_resamples(eight, own(0))) | named("last", tables.of_resamples(eight, own(-1)))
    numbers |= named("first_pull", tables.of_resamples(eight, first_pull))
    with_bonus, _ = fit_choices(tables.rival_features(eight.shape[1])[OWN], eight.sum(0))
    pulls = np.append(0.0, with_bonus[: eight.shape[1] - 1])
    numbers |= {"own_sharpness": with_bonus[-2], "own_ends": pulls[0] + pulls[-1] - 2 * pulls[1:-1].mean()}
    halves = np.concatenate([ahead(seen.first, seen.new), ahead(seen.new, seen.first)])
    numbers |= named("ahead", sum_over_sets(halves))
    for name in ("kinds", "plain"):
        numbers |= named(f"trend_{name}", sum_over_sets(carried_trend(seen, name)))
        numbers |= named(f"ahead_{name}", sum_over_sets(ahead(eight, seen.sets[name])))
    for name, word in (("sixteen", "sixteen"), ("thirty-two", "long")):
        numbers |= named(f"lead_{word}", sum_over_sets(led_by(seen.sets[name])))
    numbers |= named("trend_sixteen", sum_over_sets(led_by(seen.sets["sixteen"], TREND)))
    trend = [table.loc[TREND, "behind"] for table in tried]
    numbers |= {"trend": max(trend), "trend_low": min(x.loc[TREND, "low"] for x in tried)}
    numbers |= {"trend_high": max(x.loc[TREND, "high"] for x in tried)}
    numbers |= deviance_by_chance(seen)
    numbers |= random_halves(eight, numbers["chance_high"]) | halves_of_kinds(seen)
    return {f"rival_{name}": float(x) for name, x in numbers.items()}


def led_by(sets: Counts, rival: str = "place, bonus") -> Float[np.ndarray, "C"]:
    """Return by set the law's lead over a rival, both fitted to the other half of the sets."""
    halves, found = np.array_split(sets, 2), []
    for fitted, judged in (halves, halves[::-1]):
        expected = tables.rival_shares(fitted.sum(0))
        gain = np.log(expected[LAW]) - np.log(expected[rival])
        found.append((gain * judged).sum((1, 2)))
    return np.concatenate(found[::-1])


def drawn_deviances(sets: Counts, draws: int) -> Float[np.ndarray, "B"]:
    """Return the deviances of the law on half of the sets, fitted to the others, where the halves are drawn."""
    found = []
    for rng in np.random.default_rng(0).spawn(draws):
        fitted, judged = np.array_split(sets[rng.permutation(len(sets))], 2)
        found.append(deviance(fitted, judged))
    return np.array(found)


def random_halves(sets: Counts, chance_high: float, draws: int = 200) -> dict[str, float]:
    """Return the median deviance of drawn halves, where nine of ten lie, and the share above what chance gives."""
    found = drawn_deviances(sets, draws)
    low, middle, high = np.quantile(found, [0.05, 0.5, 0.95])
    return {"halves": middle, "halves_low": low, "halves_high": high, "halves_above": np.mean(found > chance_high)}


def halves_of_kinds(seen: Evidence) -> dict[str, float]:
    """Return by kind of fact the share of drawn halves above what its own law, if true, gives in one case of 40."""
    found = {}
    kinds = {name: sets for name, sets in kind_rows(seen).items() if name != "all"}
    for name, sets in kinds.items():
        sharpness, pulls, _ = fit_law(sets.sum(0))
        asked, true = sets.sum(2).astype(int), []
        for rng in np.random.default_rng(3).spawn(60):
            drawn = rng.multinomial(asked, shares(pulls, sharpness)).astype(float)
            true.append(drawn_deviances(drawn, 5))
        found[f"kinds_{name}"] = float(np.mean(drawn_deviances(sets, 200) > np.quantile(true, 0.975)))
    return found


def answers_apart(seen: Evidence, draws: int = 200) -> float:
    """Return the mean deviance if single answers are drawn for the halves, and not whole sets."""
    total, rng, found = seen.totals["eight"].astype(int), np.random.default_rng(2), []
    for _ in range(draws):
        half = rng.binomial(total, 0.5)
        found.append(deviance(half[None].astype(float), (total - half)[None].astype(float)))
    return float(np.mean(found))


def halves_check(seen: Evidence) -> Check:
    """Return the check that the law fits within chance on halves that are drawn, which a referee asked for."""
    high, sets = deviance_by_chance(seen)["chance_high"], seen.sets["eight"]
    true, rng = [], np.random.default_rng(1)
    asked = sets.sum(2).astype(int)
    for _ in range(5):
        drawn = rng.multinomial(asked, seen.law.expected).astype(float)
        true.append(float(np.mean(drawn_deviances(drawn, 40) > high)))
    above = float(np.mean(drawn_deviances(sets, 200) > high))
    of_true = f"{min(true):.0%} to {max(true):.0%} in five tries" if max(true) else "none of 40 in each of five tries"
    return Check(
        "L-distance", "drawn halves", "On halves of the sets that are drawn at random the law fits within chance.",
        above <= MOST_ABOVE,
        f"{above:.0%} of 200 drawn halves have a deviance above {high:.0f}; had the law drawn the answers, {of_true}",
        f"more than {MOST_ABOVE:.0%} of the drawn halves are above what chance gives in 39 of 40 cases",
        {"places read mixed": [mixed_fits(sets, high, seed) for seed in range(5)]},
        "the law does not describe the pooled answers within chance", {"post_hoc": True},
    )  # fmt: skip


def mixed_fits(sets: Counts, high: float, seed: int) -> bool:
    """Say whether sets pass in which the places read are mixed, for each place asked in the same way in all sets."""
    rng = np.random.default_rng(seed)
    mixed = np.stack([sets[:, q, rng.permutation(sets.shape[2])] for q in range(sets.shape[1])], 1)
    return bool(np.mean(drawn_deviances(mixed, 40) > high) <= MOST_ABOVE)


def deviance_by_chance(seen: Evidence, draws: int = 400) -> dict[str, float]:
    """Return the deviance that the law has where it is true: half of the drawn answers fit it, the others judge it.

    ``chance_reached`` is the share of draws, halves exchanged, that are as far off as what was seen.
    """
    rng, there, back = np.random.default_rng(0), [], []
    p, asked = seen.law.expected, (seen.first.sum((0, 2)).astype(int), seen.new.sum((0, 2)).astype(int))
    for _ in range(draws):
        first, new = (rng.multinomial(many, p).astype(float)[None] for many in asked)
        there.append(deviance(first, new))
        back.append(deviance(new, first))
    low, high = interval(np.array(there))
    reached = np.mean(np.array(back) >= deviance(seen.new, seen.first))
    return {
        "chance": float(np.mean(there)),
        "chance_low": float(low),
        "chance_high": float(high),
        "chance_reached": float(reached),
    }
