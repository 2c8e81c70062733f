"""The check of P-rivals; thresholds are in ``studies/rivals/__init__.py``, from before the run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from studies.checks import Check
from studies.ladder.rivals import OTHERS, Rivals

PARTS = {
    "first token": (("attention-half-rest", "even"), ("attention-rest", "even")),
    "norms": (
        ("norms-residual", "attention"),
        ("norms-norm", "attention"),
        ("globenc", "attention"),
    ),
    "ALTI-Logit": (("alti-logit", "attention"),),
}
"""What is claimed to be nearer than what, by part of the row."""
SAID = {
    "first token": "Without the first token, attention rollouts are nearer to influence than equal shares.",
    "norms": "Norms with the residual stream, and GlobEnc, are nearer than measured attention.",
    "ALTI-Logit": "ALTI-Logit is nearer than measured attention.",
}
SHORT = {name: label.strip("*") for name, label in OTHERS.items()}
Gap = tuple[float, float, float]


def gaps(rivals: Rivals, part: str) -> dict[tuple[str, str], Gap]:
    """Return the difference of each pair of a part, with its interval."""
    return {pair: rivals.gap(*pair) for pair in PARTS[part]}


def refuted(found: dict[tuple[str, str], Gap]) -> bool:
    """Say whether one of the predictions is further away, with its whole interval."""
    return any(low > 0 for _, low, _ in found.values())


def on_first(rivals: Rivals, share: float) -> Rivals:
    """Return predictions that give the first token so much more: all of it in the end."""
    moved = {}
    for text, ways in rivals.said.items():
        moved[text] = dict(ways)
        for pair in (pair for pairs in PARTS.values() for pair in pairs):
            rows = ways[pair[0]]
            first = np.eye(rows.shape[1])[0] * rows.sum(1, keepdims=True)
            moved[text][pair[0]] = (1 - share) * rows + share * first
    return replace(rivals, said=moved, draws=200)


def rival_checks(rivals: Rivals) -> list[Check]:
    """Return the check of each part of P-rivals."""
    found = []
    for part, said in SAID.items():
        seen = gaps(rivals, part)
        far = [SHORT[a] for (a, _), (_, low, _) in seen.items() if low > 0]
        near = [SHORT[a] for (a, _), (_, _, high) in seen.items() if high < 0]
        figures = [f"{SHORT[a]} {x:+.3f} ({y:+.3f} to {z:+.3f})" for (a, _), (x, y, z) in seen.items()]
        broken = [not refuted(gaps(on_first(rivals, share), part)) for share in (0.8, 0.9, 1.0)]
        found.append(Check(
            "P-rivals", part, said, not far, f"W1 less that of the other: {'; '.join(figures)}",
            "the interval of one difference lies above 0; undecided if one is neither above nor below",
            {"most of each prediction moved to the first token": broken},
            f"further away: {', '.join(far)}",
            {"in_part": bool(near), "undecided": len(near) < len(seen)},
            "W1 less that of the other: " + ", ".join(f"{x:+.2f}" for x, _, _ in seen.values()),
        ))  # fmt: skip
    return found
