"""The law in the book's small networks, which were trained to look a value up among competing ones."""

from __future__ import annotations

import numpy as np

from studies.results import load

ENCODINGS = ("alibi", "early", "log", "none", "rope", "steep")
"""Position encodings but for flat heads, which cannot see some places."""
EVEN, ENDS = "{}-T4-n16-one-even", "{}-T4-n32-one-ends"
"""Networks of four layers: 16 pairs, each place asked alike; 32 pairs, the two ends alone."""


def trained_numbers() -> dict[str, float]:
    """Return how well places are found, and the γ that so many right answers in the middle would need."""
    kept = load("lookup")
    even = np.array([kept[EVEN.format(name)]["accuracy_1"].values.mean(0) for name in ENCODINGS])
    middle = even[:, 1:-1].mean(1, keepdims=True)
    inner = {}
    for name in ENCODINGS:
        inner[name] = float(kept[ENDS.format(name)]["accuracy_1"].values.mean(0)[1:-1].mean())
    return {
        "trained_worst": even.min(),
        "trained_gamma": 2 * np.arctanh(middle.min()),
        "trained_alibi": inner.pop("alibi"),
        "trained_rope": inner.pop("rope"),
        "trained_others": min(inner.values()),
    }
