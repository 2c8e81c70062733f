"""Checks of what places do to answers among documents, and what each check notices if something is broken."""

from __future__ import annotations

from typing import Any

import numpy as np

from posbias.lookup.scores import LEVEL, SMALL, judge, paired_difference
from studies.checks import Check
from studies.documents import tables
from studies.documents.evidence import (
    Evidence,
    Right,
    ends_less_middle,
    last_less_first,
    ranked,
    verdict_of,
    with_interval,
)
from studies.documents.questions import ENDS, judge_mixed, judge_places

LITTLE = 0.25
"""Of the questions, set after the run."""
PREDICTED = {
    "influence in other texts": "influence",
    "attention of the place": "attention",
    "contributions of the place": "contributions",
}
SAID = {
    "influence": "Influence in other texts and right answers correlate over the places, both ends among them.",
    "attention": "Attention at a place and right answers correlate over the places, both ends among them.",
    "contributions": "Contributions at a place and right answers correlate over the places, both ends among them.",
}


def is_lost(correct: Right) -> bool:
    """Say whether the middle is lost."""
    found = judge(correct)
    return found is not None and found.lost == "yes"


def three(correct: Right) -> str:
    """Return right answers at the first place, between, and at the last."""
    return (
        f"right {correct[:, 0].mean():.2f} at the first place, {correct[:, 1:-1].mean():.2f} in "
        f"the middle, {correct[:, -1].mean():.2f} at the last"
    )


def lost_check(row: str, part: str, said: str, correct: Right, figure: str, rng: Any) -> Check:
    """Return the check that the middle of competing documents is lost."""
    shuffled = [is_lost(rng.permuted(correct, axis=1)) for _ in range(20)]
    return Check(
        row, part, said, is_lost(correct), figure,
        "the 95% interval over contexts of one end minus the middle reaches 0",
        {"places of each context shuffled": shuffled}, "one end is not above the middle", {},
    )  # fmt: skip


def real_check(seen: Evidence, rng: np.random.Generator) -> Check:
    """Return the check that the middle of real questions is lost; its threshold is in ``studies.questions.measure``."""
    correct = seen.real
    found, differ = verdict_of(correct), judge_places(seen)
    shuffled = [is_lost(rng.permuted(correct, axis=1)) for _ in range(20)]
    ends = ", ".join(f"{k} {with_interval(differ[k], '+.2f')}" for k in ("first", "last"))
    return Check(
        "D-real", "", "Among passages of real questions in the order of a search the middle is lost, too.",
        found.lost != "no",
        f"{len(correct)} questions, {three(correct)}; above the middle: {ends}",
        f"one end is above the middle by at most {SMALL} with its whole 95% interval over questions (undecided unless "
        "both intervals are above 0 with p at most .05)",
        {"places of each question shuffled": shuffled}, "an end is not above the middle",
        {"undecided": found.lost == "open"},
    )  # fmt: skip


def mixed_checks(seen: Evidence) -> list[Check]:
    """Return the checks that an end is ahead where rivals stand in a drawn order (``studies.questions.measure``)."""
    correct = seen.questions["mixed"]["correct"].values.astype(float)
    found = []
    for name, (lead, p) in judge_mixed(seen).items():
        signs = np.random.default_rng(10).choice([-1, 1], (20, len(correct)))
        ahead = correct[:, ENDS[name]] - correct[:, 1:-1].mean(1)
        found.append(Check(
            "D-real", f"mixed, {name}", f"Real questions, rivals in a drawn order: the {name} place is ahead.",
            lead.high > 0,
            f"{len(correct)} questions: {with_interval(lead, '+.2f')} above the two places between, p {p:.4f}",
            "the interval over questions is below 0 (undecided unless it is above 0 with p at most .05)",
            {"signs of the lead at random": [paired_difference(ahead * x).low > 0 for x in signs]},
            "the place is behind", {"undecided": not (lead.low > 0 and p <= LEVEL)},
        ))  # fmt: skip
    return found


def lost_by_competition(one: Right, other: Right) -> bool:
    """Say whether the ends exceed the middle by more in one arm than in the other."""
    return bool(paired_difference(ends_less_middle(one) - ends_less_middle(other)).low > 0)


def little_is_lost(right: Right) -> bool:
    """Say whether the ends exceed the middle by less than :data:`LITTLE`, at 95 %."""
    return bool(paired_difference(ends_less_middle(right)).high < LITTLE)


def thinned(right: Right, rng: np.random.Generator) -> Right:
    """Return right answers without three in ten of the middle's."""
    taken = rng.random(right.shape) < 0.3
    taken[:, [0, -1]] = False
    return np.where(taken, 0, right)


def control_checks(seen: Evidence, rng: np.random.Generator) -> list[Check]:
    """Return the checks that competition is the reason."""
    competing, others, closed, C = seen.competing, seen.others, seen.closed, len(seen.competing)
    harm = paired_difference(ends_less_middle(competing) - ends_less_middle(others))
    small = paired_difference(ends_less_middle(others))
    exchanged = []
    for r in rng.spawn(20):
        swap = (r.random(C) < 0.5)[:, None]
        one, other = np.where(swap, others, competing), np.where(swap, competing, others)
        exchanged.append(lost_by_competition(one, other))
    thin = [little_is_lost(thinned(others, r)) for r in np.random.default_rng(2).spawn(20)]
    return [
        Check(
            "D-control", "competition", "More is lost with competing documents.",
            lost_by_competition(competing, others),
            f"ends minus middle: {ends_less_middle(competing).mean():+.2f} with competing documents, "
            f"{ends_less_middle(others).mean():+.2f} among others, apart by {harm.mean:.2f} ({harm.low:.2f} to "
            f"{harm.high:.2f})",
            "the 95% interval over contexts of the difference reaches 0",
            {"arms exchanged at random": exchanged}, "the middle is lost without competition too", {},
        ),
        Check(
            "D-control", "little", "Among other facts little is lost.", little_is_lost(others),
            f"ends minus middle among other facts: {ends_less_middle(others).mean():+.2f} ({small.low:+.2f} to "
            f"{small.high:+.2f})",
            "among other facts the 95% interval over contexts of ends minus middle reaches a quarter of the questions",
            {"three in ten of the middle's answers taken": thin,
             "with competing documents": [little_is_lost(competing)]},
            "much is lost without competition", {"post_hoc": True},
        ),
        Check(
            "D-control", "closed book", "Nothing is known without the documents.", bool(closed.mean() < 0.05),
            f"without documents {closed.mean():.1%} of the answers are right",
            "one answer in twenty is right without documents",
            {"with documents": [bool(x.mean() < 0.05) for x in (competing, others)]},
            "answers are known without documents", {},
        ),
    ]  # fmt: skip


def turns(template: Right, plain: Right) -> bool:
    """Say whether the last place wins with the template, and the first without it."""
    return bool(last_less_first(template).low > 0 and last_less_first(plain).high < 0)


def pairs_check(seen: Evidence, rng: np.random.Generator) -> Check:
    """Return the check that the form decides which end of a list of pairs is found."""
    kv, plain = seen.forms["kv"], seen.forms["kv-plain"]
    slopes, exchanged = [last_less_first(kv), last_less_first(plain)], []
    for r in rng.spawn(20):
        swap = (r.random(len(kv)) < 0.5)[:, None]
        exchanged.append(turns(np.where(swap, plain, kv), np.where(swap, kv, plain)))
    found, opposite = turns(kv, plain), bool(slopes[0].high < 0 or slopes[1].low > 0)
    ahead = [with_interval(x, "+.2f") for x in slopes]
    return Check(
        "D-form", "pairs", "Pairs: template and plain text favour opposite ends.", found or not opposite,
        f"last place minus first: {ahead[0]} with the template, {ahead[1]} in plain text",
        "with the template the first place is above the last, or in plain text the last above the first (95% "
        "intervals over contexts; undecided if neither form has the end that is claimed)",
        {"forms exchanged at random": exchanged}, "a form has the other end",
        {"undecided": not found and not opposite, "in_part": bool(slopes[0].low > 0 or slopes[1].high < 0)},
    )  # fmt: skip


def orders_places(ranks: Any, name: str) -> bool:
    """Say whether a predictor ranks the places as both scores do."""
    return bool(all(table.loc[name, "low"] > 0 for table in ranks.values()))


def predict_checks(seen: Evidence, rng: np.random.Generator) -> list[Check]:
    """Return the checks of what is known of places without the question."""
    P, scores = seen.competing.shape[1], {"accuracy": seen.competing, "log-probability": seen.told}
    orders, found = [rng.permutation(P) for _ in range(20)], []
    for name, part in PREDICTED.items():
        permuted = []
        for order in orders:
            own = {name: seen.predictors[name][:, order]}
            ranks = {k: tables.rank_table(own, x, resamples=300) for k, x in scores.items()}
            permuted.append(orders_places(ranks, name))
        passed = orders_places(seen.ranks, name)
        wrong = bool(any(x.loc[name, "high"] < 0 for x in seen.ranks.values()))
        said = ", ".join(f"{ranked(seen, name, score)} with {score}" for score in scores)
        found.append(Check(
            "D-predict", part, SAID[part], passed or not wrong, f"{name}: rank correlation over {P} places {said}",
            "the 95% interval of its rank correlation with accuracy or with log-probability, contexts resampled, is "
            "below 0 (undecided if one contains 0)", {"its places permuted": permuted},
            "it ranks the places the wrong way round", {"undecided": not passed and not wrong, "post_hoc": True},
        ))  # fmt: skip
    return found


def repeated_checks(seen: Evidence) -> list[Check]:
    """Return the checks of the question, and of everything, written twice: one question of each set.

    They stand on the page ``remedies``, beside the same changes on more questions.
    """
    entry, spread, found = seen.kept["remedies"], np.random.default_rng(1), []
    right = {}
    for name in entry["remedy"].values:
        right[name] = entry["correct"].sel(remedy=name).mean("question").values.astype(float)
    before = right.pop("as it is")
    said = {
        "question first and last": "Asking first and last helps.",
        "twice": "Giving documents and question twice helps.",
    }
    for name, after in right.items():
        gain, losses = paired_difference(after - before), []
        for r in spread.spawn(20):
            lost = -(r.random(len(before)) < 0.3).astype(float)
            losses.append(bool(paired_difference(lost).high >= 0))
        found.append(Check(
            "D-remedies", name, said[name], bool(gain.high >= 0),
            f"{len(after)} prompts: right answers {with_interval(gain, '+.2f')}",
            "the 95% interval of the paired gain in right answers is below 0 (undecided if it contains 0)",
            {"three answers of ten taken": losses}, "right answers become fewer",
            {"undecided": bool(gain.low <= 0 <= gain.high)},
        ))  # fmt: skip
    return found


def document_checks(seen: Evidence) -> list[Check]:
    """Return all checks of the page."""
    rng, competing, plain = np.random.default_rng(0), seen.competing, seen.forms["plain"]
    said = f"{len(competing)} contexts of 8 documents: {three(competing)}"
    found = [lost_check("D-U", "", "Among competing documents the middle is lost.", competing, said, rng)]
    found += control_checks(seen, rng)
    said = f"plain text, {len(plain)} contexts: {three(plain)}"
    found.append(lost_check("D-form", "documents", "The middle is lost in plain text too.", plain, said, rng))
    found += [pairs_check(seen, rng), *predict_checks(seen, rng)]
    return [real_check(seen, np.random.default_rng(9)), *mixed_checks(seen), *found]
