"""What is trained: decoders with one kind of positions, on prompts of pairs of a key and a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from posbias.rollout.logits import alibi_slopes

ENCODINGS = ("none", "alibi", "steep", "rope", "log", "early", "flat")
LONGEST = 4
"""Pairs of the longest prompts that networks are tested on, as a multiple of those they are trained on."""
RATES = {1: 3e-3, 2: 1e-3}
"""Tokens of a pair → learning rate. With 3e-3 three layers stay at guessing where a value has to read its key first."""
STEEP = 0.125
"""Slope of all heads of ``steep``, in logits a token."""
ALPHA = 0.5
"""Exponent of ``log``; with the opposite sign, of ``early``."""
TAU = 1.5
"""τ of ``flat``."""
LOCAL = (2.0, 1.0)
"""Slopes of the local heads, in logits a token."""


@dataclass(frozen=True)
class Setting:
    """A network of T ``layers``, and the prompts of n ``pairs`` and a key of one of them that it is trained on.

    Positions are ``none``; ``alibi``, with the usual slopes, or ``steep``, with one; ``rope``; the scale-free logits
    ``log`` (α above 0) and ``early`` (below); ``flat``. With pairs of 1 token, whose embedding starts as the sum of its
    key's and its value's, one hop finds the value. With 2, a key's token and then a value's, it takes two; half of the
    heads are then local, whatever the others' positions are, so that a value's token can read the key before it.
    Answers stand at any place in training, ``even``, or at the first and the last, ``ends``. The value of a pair is any
    of V ``values``.

    >>> Setting("alibi", pairs=16).name
    'alibi-T4-n16-one-even'
    """

    encoding: str = "none"
    layers: int = 4
    pairs: int = 32
    tokens: int = 1
    places: str = "even"
    width: int = 64
    heads: int = 4
    values: int = 16

    @property
    def name(self) -> str:
        """What entries of this setting are called."""
        few = {"d": (self.width, Setting.width), "h": (self.heads, Setting.heads), "v": (self.values, Setting.values)}
        others = [f"{letter}{own}" for letter, (own, usual) in few.items() if own != usual]
        tokens = "one" if self.tokens == 1 else "two"
        return "-".join([self.encoding, f"T{self.layers}", f"n{self.pairs}", tokens, self.places, *others])

    @property
    def keys(self) -> int:
        """Different keys: as many as the longest prompts have pairs."""
        return LONGEST * self.pairs

    @property
    def length(self) -> int:
        """Tokens of a prompt."""
        return self.tokens * self.pairs + 1

    @property
    def position_bias(self) -> Any:
        """Describe the position biases of all heads as a ``config.json`` has them; None without one."""
        others: list[dict[str, Any]] = {
            "alibi": [{"kind": "alibi", "slope": float(m)} for m in alibi_slopes(self.heads)],
            "steep": [{"kind": "alibi", "slope": STEEP}] * self.heads,
            "log": [{"kind": "log", "alpha": ALPHA}] * self.heads,
            "early": [{"kind": "log", "alpha": -ALPHA}] * self.heads,
            "flat": [{"kind": "flat", "tau": TAU}] * self.heads,
        }.get(self.encoding, [{"kind": "none"}] * self.heads)
        if self.tokens == 1:
            return None if self.encoding in ("none", "rope") else others
        local = [{"kind": "alibi", "slope": m} for m in LOCAL] * self.heads
        return [*local[: self.heads // 2], *others[self.heads // 2 :]]


@dataclass(frozen=True)
class Training:
    """How a network is trained: AdamW, warm-up over 50 steps, then a constant learning rate."""

    iterations: int = 800
    batch_size: int = 64
    rate: float = 3e-3


def grid() -> dict[Setting, Training]:
    """Return the settings of the chapter `networks`, with how each is trained."""
    found: dict[Setting, Training] = {}
    for encoding in ENCODINGS:
        one = Setting(encoding)
        found |= {replace(one, pairs=16, layers=T): Training(300) for T in (4, 8)}
        found |= {replace(one, layers=T): Training() for T in (2, 4)}
        found[replace(one, places="ends")] = Training()
        found[replace(one, layers=2, pairs=8, tokens=2)] = Training(2000)
        found[replace(one, layers=3, pairs=8, tokens=2)] = Training(1200, rate=RATES[2])
    for encoding in ("none", "steep"):
        found[Setting(encoding, layers=2, pairs=64)] = Training(1600)
    return found


def described(setting: Setting, training: Training) -> Mapping[str, Any]:
    """Return all that a network's results follow from, besides its seed."""
    return {**asdict(setting), **asdict(training)}
