"""What the answers of ``results/questions.nc`` say of places, in the page's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from posbias.lookup.scores import LEVEL, Difference, exchange_p_value, flip_p_value, paired_difference
from studies.documents.evidence import (
    LOST,
    Evidence,
    Right,
    end_less_between,
    rows_to_see,
    shares_by_place,
    verdict_of,
    with_interval,
)

ENDS = {"first": 0, "last": -1}


def question_numbers(seen: Evidence) -> dict[str, Any]:
    """Return right answers to real questions by place, and the verdict on their middle."""
    correct = seen.real
    closed, oracle = seen.floors
    found, differ = verdict_of(correct), judge_places(seen)
    entry = seen.questions["eight"]
    return {
        "questions_asked": len(correct),
        "questions_closed": closed,
        "questions_oracle": oracle,
        "questions_first": correct[:, 0].mean(),
        "questions_middle": correct[:, 1:-1].mean(),
        "questions_last": correct[:, -1].mean(),
        "questions_best": correct.mean(0).max(),
        "questions_worst": correct.mean(0).min(),
        "questions_lost": LOST[found.lost],
        "questions_ends": ends_shown(correct),
        "questions_tokens": float(entry["tokens"].mean()),
        "questions_rank": float((entry["rank"] == 0).mean()),
        "questions_same": float(entry["same"].mean()),
        "questions_first_lead": differ["first"].mean,
        "questions_first_said": with_interval(differ["first"], "+.3f"),
        "questions_last_said": with_interval(differ["last"], "+.3f"),
    }


def ends_shown(correct: Right) -> str:
    """Say which ends lead the places between by both tests of :func:`posbias.lookup.scores.judge`.

    >>> ends_shown(np.array([[1.0, 0.0, 1.0]] * 9 + [[0.0, 0.0, 1.0]] * 31))
    'both'
    """
    p = {name: exchange_p_value(np.c_[correct[:, end], correct[:, 1:-1]]) for name, end in ENDS.items()}
    shown = [name for name, end in ENDS.items() if end_less_between(correct, end).low > 0 and p[name] <= LEVEL]
    return shown[0] if len(shown) == 1 else "both" if shown else "neither"


def twenty_numbers(seen: Evidence) -> dict[str, Any]:
    """Return right answers among twenty passages, by place, and the lead of either end over the three between."""
    entry = seen.questions["twenty"]
    correct = entry["correct"].values.astype(float)
    return {
        "twenty_asked": len(correct),
        "twenty_by_place": ", ".join(f"{share:.0%}" for share in correct.mean(0)),
        "twenty_eight_first_said": with_interval(end_less_between(seen.real[: len(correct)], 0), "+.3f"),
        "twenty_first_said": with_interval(end_less_between(correct, 0), "+.3f"),
        "twenty_last_said": with_interval(end_less_between(correct, -1), "+.3f"),
        "twenty_ends": ends_shown(correct),
    }


def judge_mixed(seen: Evidence) -> dict[str, tuple[Difference, float]]:
    """Return by how much each end is ahead where rivals stand in a drawn order, and p of flipping its signs."""
    correct = seen.questions["mixed"]["correct"].values.astype(float)
    found = {}
    for name, end in ENDS.items():
        found[name] = end_less_between(correct, end), flip_p_value(correct[:, end] - correct[:, 1:-1].mean(1))
    return found


def mixed_numbers(seen: Evidence) -> dict[str, Any]:
    """Return right answers where rivals stand in a drawn order, and how the lead of the first place changes."""
    entry = seen.questions["mixed"]
    mixed = entry["correct"].values.astype(float)
    ranked = seen.questions["eight"]["correct"].sel(place=entry["place"]).values.astype(float)
    first, same = (x[:, 0] - x[:, 1:-1].mean(1) for x in (mixed, ranked))
    found: dict[str, Any] = {f"{name}_said": with_interval(x, "+.3f") for name, (x, _) in judge_mixed(seen).items()}
    found["rows_last"] = f"{rows_to_see(judge_mixed(seen)['last'][0], len(mixed))}"
    found["rows_first"] = f"{rows_to_see(judge_mixed(seen)['first'][0], len(mixed))}"
    found["change_said"] = with_interval(paired_difference(first - same), "+.2f")
    found["same_said"] = with_interval(paired_difference(same), "+.3f")
    found["same_last_said"] = with_interval(end_less_between(ranked, -1), "+.3f")
    found["first_lead"] = end_less_between(mixed, 0).mean
    found |= {"ends": ends_shown(mixed), "same_ends": ends_shown(ranked)}
    return {f"mixed_{name}": x for name, x in found.items()} | shares_by_place("mixed", mixed)


def key_numbers(seen: Evidence) -> dict[str, Any]:
    """Return how often the value of a key is found in long objects, by place, and how often its first letters are."""
    entry = seen.questions["keys"]
    return {
        "keys_asked": len(entry["dictionary"]),
        "keys_tokens": f"{float(entry['tokens'].mean()):,.0f}",
        "keys_right": ", ".join(str(x) for x in entry["correct"].values.sum(0)),
        "keys_begun": ", ".join(str(x) for x in entry["begun"].values.sum(0)),
    }


def real_answer(seen: Evidence) -> str:
    """Return in a sentence right answers to real questions by place."""
    x = question_numbers(seen)
    return (
        f"Of {x['questions_asked']} real questions about passages of Wikipedia SmolLM2 answers "
        f"{x['questions_first']:.0%} correctly if the right passage is first, {x['questions_last']:.0%} if it is last, "
        f"and {x['questions_middle']:.1%} between."
    )


def judge_places(seen: Evidence) -> dict[str, Difference]:
    """Return by how much each end is above the middle of real questions."""
    return {name: end_less_between(seen.real, end) for name, end in ENDS.items()}


def numbers(seen: Evidence) -> dict[str, Any]:
    """Return all numbers of real questions and of keys and values."""
    found = question_numbers(seen) | twenty_numbers(seen) | mixed_numbers(seen) | key_numbers(seen)
    control = {name: end_less_between(seen.others, end) for name, end in ENDS.items()}
    found |= {f"control_{name}_said": with_interval(lead, "+.2f") for name, lead in control.items()}
    return found | {"documents_real_answer": real_answer(seen)}
