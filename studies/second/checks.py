"""Checks of what carries over to a second model; what was expected, and when, is in :mod:`studies.second`."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from posbias.lookup.reading import count_sources
from posbias.lookup.scores import LEVEL, flip_p_value, judge, paired_difference
from studies.checks import Check
from studies.documents.evidence import LOST, Right, end_less_between, with_interval
from studies.reading.evidence import near_share
from studies.reading.questions import share_interval
from studies.reading.wrong import alike
from studies.remedies.checks import gain_check
from studies.second.evidence import LENGTHS, OTHER, SAID, SHORT, Evidence, rollout_table, shown


def lost(correct: Right) -> str:
    """Return *yes*, *no* or *open*: whether the middle is lost."""
    found = judge(correct)
    return "open" if found is None else found.lost


def place_checks(seen: Evidence, rng: np.random.Generator) -> list[Check]:
    """Return the checks that SmolLM2 loses the middle in this form, too, and that Gemma does with 32 documents only."""
    small = {P: seen.right("smollm2", P) for P in LENGTHS}
    found = {P: lost(x) for P, x in small.items()}
    shuffled = []
    for _ in range(10):
        shuffled.append(all(lost(rng.permuted(x, axis=1)) == "yes" for x in small.values()))
    first = Check(
        "M-place", "SmolLM2", "In this form, too, SmolLM2 loses the middle at every length.",
        "no" not in found.values(),
        "; ".join(f"{P} documents: {LOST[x]}" for P, x in found.items()),
        "with one number of documents it is not lost (undecided unless it is lost with each)",
        {"places of each set shuffled": shuffled}, "the middle is not lost with one of them",
        {"undecided": set(found.values()) != {"yes"}},
    )  # fmt: skip
    return [first, *(gemma_check(seen, P, expected, rng) for P, expected in ((8, "no"), (32, "yes"), (SHORT, "yes")))]


def gemma_check(seen: Evidence, places: int | str, expected: str, rng: np.random.Generator) -> Check:
    """Return the check that Gemma's middle is lost with so many documents, or that it is not."""
    many = "16 short" if places == SHORT else f"{places}"
    correct = seen.right(OTHER, places)
    found, ends = lost(correct), [with_interval(end_less_between(correct, end), "+.2f") for end in (0, -1)]
    said = "loses" if expected == "yes" else "does not lose"
    if expected == "yes":
        broken = {"places of each set shuffled": [lost(rng.permuted(correct, axis=1)) == "yes" for _ in range(20)]}
    else:
        taken = [lost(thinned(correct, rng)) == "no" for _ in range(20)]
        broken = {"three in ten right answers between the ends taken": taken}
    return Check(
        "M-place", f"Gemma, {many}", f"Among {many} documents Gemma {said} the middle.",
        found != ("no" if expected == "yes" else "yes"),
        f"{len(correct)} sets: right {correct[:, 0].mean():.2f} first, {correct[:, 1:-1].mean():.2f} between, "
        f"{correct[:, -1].mean():.2f} last; above those between: {ends[0]} and {ends[1]}",
        "the rule of the book says the opposite (undecided if it cannot tell)", broken,
        "the middle is lost" if expected == "no" else "the middle is not lost", {"undecided": found == "open"},
    )  # fmt: skip


def thinned(correct: Right, rng: np.random.Generator) -> Right:
    """Return right answers without three in ten of those between the ends."""
    taken = rng.random(correct.shape) < 0.3
    taken[:, [0, -1]] = False
    return np.where(taken, 0.0, correct)


def near_more(counts: Float[np.ndarray, "C P P"]) -> bool:
    """Say whether more wrong answers are from a neighbour than a draw among the others would give."""
    return bool(share_interval(counts, near_share)[0] > near_share(alike(counts.sum(0))))


def drawn_again(counts: Float[np.ndarray, "C P P"], rng: np.random.Generator) -> Float[np.ndarray, "C P P"]:
    """Return the same answers with each wrong one from a document drawn among the others."""
    found = counts.copy()
    for c, q, j in np.argwhere(counts > 0):
        if q != j:
            found[c, q, j] = 0
            found[c, q, rng.choice([k for k in range(counts.shape[1]) if k != q])] = 1
    return found


def near_checks(seen: Evidence, rng: np.random.Generator) -> list[Check]:
    """Return the checks that Gemma's wrong answers are from neighbours more often than by chance."""
    found = []
    for P in LENGTHS[1:]:
        counts = count_sources(seen.source(OTHER, P))
        total = counts.sum(0)
        said = shown(near_share(total), *share_interval(counts, near_share))
        found.append(Check(
            "M-neighbours", f"{P} documents", f"Among {P} documents Gemma's wrong answers are from neighbours, too.",
            near_more(counts),
            f"{said} of {total.sum() - total.trace():.0f} wrong answers, by chance {near_share(alike(total)):.0%}",
            "the interval over sets reaches the share by chance",
            {"wrong answers from a document drawn at random": [near_more(drawn_again(counts, rng)) for _ in range(10)]},
            "neighbours have no more of them than by chance", {},
        ))  # fmt: skip
    return found


def points(hit: Bool[np.ndarray, "C P"]) -> bool:
    """Say whether heads point right in nine of ten prompts, and in seven of ten at every place."""
    return bool(hit.mean() >= 0.9 and hit.mean(0).min() >= 0.7)


def head_check(seen: Evidence, rng: np.random.Generator) -> Check:
    """Return the check that three of Gemma's heads point at the right document."""
    best, hit = seen.pointed(OTHER)
    return Check(
        "M-heads", "", "Three heads of Gemma, chosen on other sets, point at the right document.", points(hit),
        f"heads {', '.join(best)}: {hit.mean():.3f} of {hit.size} questions, {hit.mean(0).min():.2f} at the worst",
        "they are right in less than .9, or in less than .7 at a place",
        {"one in five taken": [points(hit & (rng.random(hit.shape) < 0.8)) for _ in range(20)]},
        "no three heads point so well", {},
    )  # fmt: skip


def real_checks(seen: Evidence, rng: np.random.Generator) -> list[Check]:
    """Return the checks of real questions by place, and of each way of choosing passages."""
    correct, found = seen.real, []
    for name, end in (("last", -1), ("first", 0)):
        ahead = correct[:, end] - correct[:, 1:-1].mean(1)
        lead, p = paired_difference(ahead), flip_p_value(ahead)
        signs = rng.choice([-1, 1], (20, len(correct)))
        found.append(Check(
            "M-real", name, f"Real questions: in Gemma, too, the {name} place is ahead.", lead.high > 0,
            f"{len(correct)} questions at {correct.shape[1]} places: {with_interval(lead, '+.2f')} above the two "
            f"between, p {p:.3f}",
            "the interval over questions is below 0 (undecided unless it is above 0 with p at most .05)",
            {"signs of the lead at random": [paired_difference(ahead * x).low > 0 for x in signs]},
            "the place is behind", {"undecided": not (lead.low > 0 and p <= LEVEL)},
        ))  # fmt: skip
    ordered = seen.confirmed
    ways = [name for name in ordered.table.index if name != "as-is"]
    return [*found, *(gain_check(ordered, "M-helps", name, rng) for name in ways)]


def rollout_checks(seen: Evidence) -> list[Check]:
    """Return the checks that measured attention fails in Gemma, too, and that contributions are nearer."""
    table = rollout_table(seen)["distance"]
    far = {name: float(table[title]) for name, title in SAID.items()}
    figure = ", ".join(f"{name} {far[name]:.3f}" for name in ("measured-attention", "ends", "contributions", "even"))
    said = {
        "attention": "Attention multiplied through the layers is further from influence than a U without a model.",
        "contributions": "Contributions are nearer to influence than measured attention.",
    }
    nearer = {"attention": "ends", "contributions": "contributions"}
    found = []
    for part, name in nearer.items():
        exchanged = bool(far["measured-attention"] < far[name])
        found.append(Check(
            "M-rollout", part, said[part], bool(far[name] < far["measured-attention"]),
            f"W1, a mean over two texts of 32 prompts each: {figure}", "it is not",
            {"the two exchanged": [exchanged]}, "it is the other way round", {},
        ))  # fmt: skip
    return found


def second_checks(seen: Evidence) -> list[Check]:
    """Return all checks of the page."""
    rng = np.random.default_rng(0)
    found = [*place_checks(seen, rng), *near_checks(seen, rng), head_check(seen, rng)]
    return [*found, *real_checks(seen, rng), *rollout_checks(seen)]
