"""Claims about remedies, and what each check notices if something is broken.

Thresholds. Those of R-oracle, R-alone, R-heads, R-words, R-windows, R-inside and R-alarm were written down on
2026-11-29 before their first run, and stand in the ledger. These were added on the same day, before the runs at 40
sets, of rotations, of real questions, and of orders by heads other than *last* (16 sets of which had been seen):

R-order, for ``heads-first``, ``heads-ends``, ``heads-last`` and ``reversed``
    helps if the 95 % interval over sets of the gain in right answers is above 0 and p by Holm, over all remedies of
    the table, is at most .05; contradicted if the interval is below 0 with such a p; else undecided.
R-average, for votes over 4 and 8 rotations
    as R-order.
R-real, ``point``
    heads that were chosen on invented facts point at the right passage of at least .75 of the real questions' prompts,
    and more often than a mean over all heads, with the interval over questions above 0.
R-real, each remedy
    as R-order, over questions in place of sets, right answers a mean over four places, Holm over all remedies that are
    run on real questions; set before any but ``heads-alone`` was asked (of 25 questions).
R-alarm at 40 sets
    as before, on the second half of the sets: at least half of the wrong answers found, at most .1 of the right ones
    rung for, the interval of the difference above 0; and at least half of the questions that nothing answers. Only if
    the first holds does a command print it.
R-real, ``searched``, set on 2026-11-29 before it was counted
    all eight passages in the search's order, the right one where the search has it, are what is compared with: the
    search's best last, and one passage alone by search, likelihood or heads (of these a mean over four places). Each is
    judged as the remedies above, Holm over these four. The three that send one passage are compared with one another,
    in pairs over questions, Holm over the three pairs: two differ if p is at most .05, and nothing is said else.
R-real, ``searched``, 100 new questions, set on 2026-11-29 before their run
    the count above was of 50 questions, and left each way undecided. Each is judged once more, by the same limits, on
    the next 100 questions alone, each way asked with the right passage where the search has it. We expect all three
    that send one passage to help (gains of .14, .15 and .20 on the 50), and the search's best last to stay undecided.
R-real, ``likely orders``, set on 2026-11-30 before their run
    on the same 100 questions, whose answers in the search's order, with its best last and with the likeliest alone are
    known: all eight with the likeliest last, or first, and two passages, by the likelihood or by the search, the best
    last. Each helps by the limits above, over the search's order, Holm over these four. Two pairs are planned, Holm
    over the two: the likeliest last against the search's best last (the better choice, the same length), and the
    likeliest alone against the likeliest last (the same choice, the shorter prompt). We expect that the likeliest last
    helps and is ahead of the search's best last, and that alone is ahead of last by .05 to .15, too little to be seen.
R-real, ``likely again``, set on 2026-11-30 before its run
    the next 200 questions alone, which nobody has asked yet. Six ways, each over all eight in the search's order: the
    likeliest alone, the two likeliest, the likeliest last among all, the heads' passage alone, the search's first
    alone, the search's best last. Each helps by the limits above, Holm over these six. Three pairs, Holm over the
    three: the likeliest alone against the likeliest last (whether the seven others cost something), the likeliest last
    against the search's best last (whether the better choice gains in a prompt of the same length), the likeliest
    alone against the search's first alone. With 200 questions a difference of .11 is seen in four of five samples. We
    expect the gains of the 100 to be smaller: .2, .15, .1, .15, .1 and .1, of which the first two, at least, help; that
    alone is ahead of last (by about .1); and that the other two pairs stay undecided.
R-real, at four places, set on 2026-11-30 before their runs
    ten sharper heads and documents that do not see one another, on the first 50 questions, each judged as the remedies
    at four places above. We expect neither to help, as on invented facts, and the second to do harm.
R-alarm, ``real``, set on 2026-11-29 before it was counted
    on Liu et al.'s questions that have both (heads chosen on invented facts, four places): of the answers whose first
    line one passage alone holds, the heads point at another passage for at least half of the wrong ones and at most .1
    of the right ones, the interval over questions of the difference above 0.
R-alarm, ``real-deletion``, set on 2026-11-30 before wrong answers were explained
    on the same questions, with deletion as on invented facts (:mod:`studies.remedies.real_sources`): the alarm rings
    for at least half of 60 wrong answers, drawn at random, and for at most a tenth of the right ones.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float

from posbias.lookup.scores import FEWEST, flip_p_value, paired_difference
from studies.checks import Check
from studies.remedies import tables
from studies.remedies.evidence import Evidence
from studies.remedies.real import Real, count_alarms, read_alarms
from studies.remedies.searched import NEW, AskedInOrder, Confirmed, Ordered, Searched
from studies.remedies.tables import AS_IS, WORDS

REAL = ("R-real", "M-helps")
"""Rows of the ledger that are about real questions."""
ROWS = {
    "R-oracle": ("oracle",),
    "R-alone": ("one-by-one-likely", "one-by-one-confident"),
    "R-heads": ("heads-alone",),
    "R-order": ("heads-first", "heads-ends", "heads-last", "reversed"),
    "R-words": ("question-twice", "everything-twice", "numbered", "headed"),
    "R-average": ("rotated-4", "rotated-8"),
    "R-windows": ("parallel-windows",),
    "R-inside": ("heads-sharper-1.5", "heads-sharper-2", "all-sharper", "sink-off"),
}
"""Rows of the ledger, and the conditions that each is about; what was not run has no verdict."""


def helps(gain: Float[np.ndarray, "C"]) -> bool:
    """Say whether gains by set are help, without a correction."""
    return bool(paired_difference(gain).low > 0 and flip_p_value(gain) <= tables.LEVEL)


def sentence(text: str) -> str:
    """Return a text with a capital.

    >>> sentence("it helps.")
    'It helps.'
    """
    return f"{text[0].upper()}{text[1:]}"


def gain_checks(seen: Evidence, rng: np.random.Generator) -> list[Check]:
    """Return the check of each remedy that was run."""
    found = []
    for row, parts in ROWS.items():
        for part in parts:
            if part in seen.table.index:
                found.append(gain_check(seen, row, part, rng))
    return found


def gain_check(
    seen: Evidence | Real | Ordered, row: str, part: str, rng: np.random.Generator, *, looks: int = 1
) -> Check:
    """Return the check that a remedy helps; undecided, too, if p times as many looks as there were is above .05."""
    counted, where = ("questions", "Real questions: ") if row in REAL else ("sets", "")
    x, gain = seen.table.loc[part], tables.gain_of(seen.right, part)
    range_ = f"{x['low']:+.2f} to {x['high']:+.2f}"
    passed = bool(x["verdict"] != "does harm")
    if row == "R-oracle":
        passed = bool(passed and x["right"] >= 0.9 and seen.right["closed-book"].mean() <= 0.05)
    by_chance = [helps(gain * rng.choice([-1, 1], len(gain))) for _ in range(20)]
    return Check(
        row, part, where + sentence(f"{WORDS[part]} helps."), passed,
        f"{x['sets']:.0f} {counted}: right {x['right']:.2f}, gain {x['gain']:+.2f} ({range_})",
        "the interval of the gain is below 0 and p by Holm at most .05 (undecided if the remedy does not help either); "
        "with the right document alone also if less than .9 are right",
        {f"signs of the {counted}' gains at random": by_chance}, "fewer answers are right",
        {"undecided": bool(x["verdict"] == "undecided" or looks * x["p"] > tables.LEVEL)},
    )  # fmt: skip


def points(hit: Bool[np.ndarray, "C P"], all_heads: Bool[np.ndarray, "C P"]) -> bool:
    """Say whether a head points at the right document at every place, and the mean over all heads does not."""
    enough = hit.mean() >= 0.9 and hit.mean(0).min() >= 0.75
    return bool(enough and all_heads.mean() < 0.5)


def pointing_check(seen: Evidence, rng: np.random.Generator) -> Check:
    """Return the check that the best head points at the right document."""
    heads = [x for name, x in seen.pointing.items() if name.startswith("head ")]
    finger, every = max(heads, key=np.mean), seen.pointing["a mean over all heads"]
    fewer = [points(finger & (rng.random(finger.shape) < 0.8), every) for _ in range(20)]
    return Check(
        "R-heads", "point", "The best head points at the right document.", points(finger, every),
        f"{finger.mean():.3f} of {finger.size} questions, {finger.mean(0).min():.2f} at the worst place; a mean over "
        f"all heads {every.mean():.2f}",
        "it is right in less than .9, in less than .75 at a place, or a mean over all heads in half",
        {"one in five taken": fewer}, "no head points so well", {},
    )  # fmt: skip


def is_alarm(rings: Bool[np.ndarray, "C Q"], wrong: Bool[np.ndarray, "C Q"]) -> bool:
    """Say whether an alarm finds half of the errors, and rings for a tenth of the right answers at most."""
    found = tables.judge_alarm(rings, wrong)
    return bool(found.found >= 0.5 and found.false <= 0.1 and found.low > 0)


def alarm_checks(seen: Evidence, rng: np.random.Generator) -> list[Check]:
    """Return the checks of the alarm: on answers, and on questions that nothing answers."""
    judged, none = seen.signals.judged, seen.nothing
    rings, wrong, found = judged.rings, judged.wrong, judged.alarm
    mixed = []
    for _ in range(20):
        mixed.append(is_alarm(rng.permutation(rings.ravel()).reshape(rings.shape), wrong))
    return [
        Check(
            "R-alarm", "deletion", "Where heads and deletion differ, the answer is wrong.", is_alarm(rings, wrong),
            f"{len(wrong)} sets: rings for {found.found:.2f} of wrong answers, {found.false:.2f} of right ones; the "
            f"difference is {found.low:.2f} to {found.high:.2f}",
            "it finds less than half of the errors, rings for more than .1 of the right answers, or the interval of "
            "the difference reaches 0",
            {"rings exchanged": mixed}, "it finds too few errors, or rings for too many right answers",
            {"in_part": bool(found.low > 0), "undecided": len(wrong) < FEWEST},
        ),
        Check(
            "R-alarm", "none", "It rings where no document answers.", bool(none.mean() >= 0.5),
            f"rings for {none.mean():.2f} of {none.size} such questions",
            "it rings for less than half of the questions that nothing answers",
            {"rings of right answers": [bool(rings[~wrong].mean() >= 0.5)]},
            "for questions without an answer it rings too rarely", {"undecided": none.size < 2 * FEWEST},
        ),
    ]  # fmt: skip


def carries(heads: Float[np.ndarray, "Q"], lead: Float[np.ndarray, "Q"]) -> bool:
    """Say whether heads point at the right passage of real questions, and more often than a mean over all heads."""
    return bool(heads.mean() >= 0.75 and paired_difference(lead).low > 0)


LOOKS = 3
"""How often the answers with the right passage at four places in turn were looked at: after 22, 33 and 50 questions."""


def real_checks(seen: Evidence, rng: np.random.Generator) -> list[Check]:
    """Return the checks of real questions: of heads that point, and of each remedy that was asked there."""
    pointed = seen.real.pointed
    heads, every = pointed["heads"], pointed["all_heads"]
    lead = heads - every
    ahead, chance = paired_difference(lead), []
    for _ in range(20):
        chance.append(carries(rng.permutation(heads), lead * rng.choice([-1, 1], len(lead))))
    check = Check(
        "R-real", "point", "Heads chosen on invented facts point at the right passage of real questions.",
        carries(heads, lead),
        f"{len(lead)} questions: {heads.mean():.2f}, a mean over all heads {every.mean():.2f}, ahead by "
        f"{ahead.mean:+.2f} ({ahead.low:+.2f} to {ahead.high:+.2f})",
        "they point at it in less than .75 of the prompts, or the interval of the lead reaches 0",
        {"signs of the lead at random": chance}, "they do not carry over", {},
    )  # fmt: skip
    names = [name for name in seen.real.tried.index if name in WORDS]
    others: list[Check] = []
    orders: dict[str, Ordered] = {"searched": Searched(seen.real)}
    if NEW in seen.kept:
        orders["searched, new questions"] = AskedInOrder(seen.kept[NEW])
        orders["searched, the new questions again"] = seen.reordered
        orders["searched, 200 more questions"] = seen.confirmed
    for what, ordered in orders.items():
        draws = rng if what == "searched" else np.random.default_rng(1)  # so that other checks draw what they drew
        for name in ordered.table.index.drop(AS_IS):
            x = gain_check(ordered, "R-real", name, draws)
            where = f"In a search's order{what.removeprefix('searched')}"
            others.append(replace(x, part=f"{x.part}, {what}", said=f"{where}: {x.said}"))
    compared = COMPARED if NEW in seen.kept else {}
    others += [pair_check(seen.confirmed, one, other, why) for (one, other), why in compared.items()]
    return [check, *(gain_check(seen.real, "R-real", name, rng, looks=LOOKS) for name in names), *others]


COMPARED = {
    ("one-by-one-likely", "likely-last"): "the seven others beside it cost nothing that shows",
    ("likely-last", "search-last"): "the better choice gains nothing that shows if it is put last among all",
    ("one-by-one-likely", "search-alone"): "the better choice gains nothing that shows if it is sent alone",
}
"""Comparisons that were planned for the 200 new questions, and what it means if one does not come out."""


def pair_check(seen: Confirmed, one: str, other: str, reason: str) -> Check:
    """Return the check that one way has more right answers than another on the new questions."""
    x, right = seen.pairs.loc[[(one, other)]].iloc[0], seen.right
    more, rng = (right[one] - right[other])[:, 0], np.random.default_rng(0)
    chance = [helps(more * rng.choice([-1, 1], len(more))) for _ in range(20)]
    return Check(
        "R-real", f"{one} over {other}", f"200 more questions: {WORDS[one]}, gives more than {WORDS[other]}.",
        bool(x["high"] > 0 or x["p"] > tables.LEVEL),
        f"{len(more)} questions: {x['gain']:+.2f} ({x['low']:+.2f} to {x['high']:+.2f}), p {tables.p_said(x['p'])}",
        "the interval of the difference is below 0 and p by Holm over three pairs at most .05 (undecided if it is not "
        "above 0 with such a p)",
        {"signs of the differences at random": chance}, reason,
        {"undecided": bool(x["low"] <= 0 or x["p"] > tables.LEVEL) and bool(x["high"] >= 0)},
    )  # fmt: skip


def real_alarm_check(seen: Evidence, rng: np.random.Generator) -> Check:
    """Return the check of the alarm on real questions, undecided where few right answers stand in one passage."""
    x, few = count_alarms(seen.real), 2 * FEWEST

    def holds(wrong_rung: int, right_rung: int) -> bool:
        return 2 * wrong_rung >= x.wrong and 10 * right_rung <= x.right

    drawn = []
    for _ in range(20):
        wrong_rung = int(rng.hypergeometric(x.wrong_rung + x.right_rung, x.wrong + x.right, x.wrong))
        drawn.append(holds(wrong_rung, x.wrong_rung + x.right_rung - wrong_rung))
    return Check(
        "R-alarm", "real", "Real questions: where heads look elsewhere than an answer is from, it is wrong.",
        holds(x.wrong_rung, x.right_rung),
        f"{x.of} answers, of which {x.wrong + x.right} stand in one passage alone: rings for {x.wrong_rung} of "
        f"{x.wrong} wrong ones and {x.right_rung} of {x.right} right ones",
        f"it rings for less than half of the wrong ones or more than .1 of the right ones (undecided below {few} each)",
        {"rings exchanged": drawn}, "it rings for right answers", {"undecided": min(x.wrong, x.right) < few},
    )  # fmt: skip


def deletion_alarm_check(seen: Evidence, rng: np.random.Generator) -> Check:
    """Return the check of the alarm on real questions with deletion, as on invented facts."""
    rings, wrong = read_alarms(seen.real)
    shares = [rings[of].mean() for of in (wrong, ~wrong)]

    def holds(rung: Bool[np.ndarray, "N"]) -> bool:
        return bool(rung[wrong].mean() >= 0.5 and rung[~wrong].mean() <= 0.1)

    return Check(
        "R-alarm", "real-deletion", "Real questions: where heads and deletion differ, the answer is wrong.",
        holds(rings),
        f"rings for {rings[wrong].sum()} of {wrong.sum()} wrong answers ({shares[0]:.2f}) and {rings[~wrong].sum()} of "
        f"{(~wrong).sum()} right ones ({shares[1]:.2f})",
        "it rings for less than half of the wrong ones or more than .1 of the right ones",
        {"rings exchanged": [holds(rng.permutation(rings)) for _ in range(20)]},
        "it rings for too many right answers" if shares[1] > 0.1 else "it finds too few errors",
        {"in_part": bool(shares[0] >= 0.5)},
    )  # fmt: skip


def all_checks(seen: Evidence) -> list[Check]:
    """Return all checks; they draw at random one after another, so that none is made without those before it."""
    rng = np.random.default_rng(0)
    found = [*gain_checks(seen, rng), pointing_check(seen, rng), *alarm_checks(seen, rng)]
    found += [*real_checks(seen, rng), real_alarm_check(seen, rng)]
    return [*found, deletion_alarm_check(seen, rng)]


def is_of_heads(check: Check) -> bool:
    """Say whether a check is about heads that point, or about the alarm that they make."""
    return check.row == "R-alarm" or (check.row, check.part) == ("R-heads", "point")


def remedy_checks(seen: Evidence) -> list[Check]:
    """Return the checks of remedies."""
    return [check for check in all_checks(seen) if not is_of_heads(check)]


def fetching_checks(seen: Evidence) -> list[Check]:
    """Return the checks of heads that point, and of the alarm that they make."""
    return [check for check in all_checks(seen) if is_of_heads(check)]
