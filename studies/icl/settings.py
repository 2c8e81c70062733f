"""What is trained: the task, the network, and the pairs of both that the figures of Wu et al. (2025) show."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Literal

from posbias import errors
from posbias.rollout.masks import Mask, causal, full, prefix, sliding_window

Bias = Literal["none", "first", "middle", "last", "ends"]
Encoding = Literal["none", "decay", "sinusoidal", "rope"]
PAIRS = (("first", "middle"), ("first", "last"), ("middle", "last"))
"""Pairs (a, b) of places that tests compare."""
SINK = 0.2
"""τ: attention above it counts as a sink's (Wu et al. 2025, appendix K.4)."""
SLOPE = -math.log(0.8)
"""Slope of the decay mask, nats a token (Wu et al. 2025, appendix J)."""


@dataclass(frozen=True)
class Task:
    """A retrieval task: n item-label pairs, then a query whose label is to be predicted.

    Source: Wu et al. 2025, section 5 and appendices J and L, after Reddy 2024.
    """

    items: int = 8  # n, pairs in the context; the sequence has 2n + 1 tokens
    classes: int = 2048  # K, classes of items
    labels: int = 32  # L; class k has label k mod L
    burstiness: int = 4  # β, items of each class in a training sequence, which holds n / β classes
    dimension: int = 64  # d, size of a token
    within: float = 0.75  # ε, spread within a class: an item is (μ + ε η) / √(1 + ε²)
    vocabulary: Literal["mixture", "fixed"] = "mixture"
    """``mixture``: items scatter about their class's centre μ. ``fixed``: an item is its class's vector
    (μ + λ ω) / √(1 + λ²), with one ω for all."""
    anisotropy: float = 0.75  # λ of the fixed vocabulary
    spread: Literal["text", "code"] = "text"
    """Standard deviation of the components of μ, η, ω and the labels' vectors: 1/√d as printed in the ``text``
    (variance 1/d), or 1/d as the authors' ``code`` draws them."""
    bias: Bias = "none"
    """Where in training the item of the query's class is put: anywhere, ``first``, ``middle`` (n/2), ``last``, or
    ``ends`` (first or last, equally often)."""

    @property
    def tokens(self) -> int:
        """Tokens in a sequence, 2n + 1."""
        return 2 * self.items + 1

    @property
    def groups(self) -> int:
        """Number of classes in a training sequence, n / β."""
        return self.items // self.burstiness

    @property
    def deviation(self) -> float:
        """Standard deviation of the vectors' components."""
        return self.dimension**-0.5 if self.spread == "text" else 1 / self.dimension

    @property
    def places(self) -> dict[str, int]:
        """Index of the first, the middle (item n/2) and the last item.

        >>> Task().places
        {'first': 0, 'middle': 3, 'last': 7}
        """
        return {"first": 0, "middle": max(self.items // 2 - 1, 0), "last": self.items - 1}

    @property
    def targets(self) -> tuple[int, ...]:
        """Items whose class the query may have in training, all equally likely.

        >>> Task(bias="ends").targets
        (0, 7)
        """
        if self.bias == "none":
            return tuple(range(self.items))
        return tuple(self.places[name] for name in (("first", "last") if self.bias == "ends" else (self.bias,)))


@dataclass(frozen=True)
class Network:
    """Layers of single-head attention, then an MLP of three layers that reads the query's token.

    Source: Wu et al. 2025, equation 1, section 5 and appendix J; the width is Reddy's (2024), the text gives none.
    """

    layers: int = 2  # T
    mask: Mask = field(default_factory=causal)  # of every layer
    encoding: Encoding = "none"  # decay: -(i - j) m on the logits; sinusoidal: added to the tokens; or rope
    residual: bool = False  # whether a layer's output is added to its input or takes its place
    slope: float = SLOPE  # m of the decay mask, nats a token
    hidden: int = 128  # width of the MLP


@dataclass(frozen=True)
class Setting:
    """A network and the task that it is trained on."""

    task: Task = field(default_factory=Task)
    network: Network = field(default_factory=Network)

    @property
    def name(self) -> str:
        """The setting's name, usable as a file name.

        >>> Setting(Task(bias="ends"), Network(2, sliding_window(5), "rope", residual=True)).name
        'mixture-ends-window5-rope-2-residual'
        """
        t, k = self.task, self.network
        mask = f"{k.mask.kind}{k.mask.width or ''}"
        parts = (t.vocabulary, t.bias, mask, k.encoding, k.layers, "residual" if k.residual else "plain")
        return "-".join(map(str, parts)) + ("-code" if t.spread == "code" else "")


@dataclass(frozen=True)
class Training:
    """How networks are trained: AdamW on the query's label.

    Source: Wu et al. 2025, appendix J (100,000 iterations in 32 bits).
    """

    iterations: int = 100_000
    batch_size: int = 128
    rate: float = 1e-3
    decay: float = 1e-6  # of weights
    precision: Literal["float32", "bfloat16"] = "float32"  # of matrix products

    def __post_init__(self) -> None:
        """Check what can be asked for."""
        errors.positive_integer("iterations", self.iterations)
        errors.positive_integer("batch_size", self.batch_size)


def _depths(depths: Iterable[int], *, residual: bool) -> list[Setting]:
    encodings: tuple[Encoding, ...] = ("none", "decay", "rope")
    return [Setting(network=Network(T, causal(), e, residual)) for T, e in product(depths, encodings)]


def _biased(biases: Iterable[Bias]) -> list[Setting]:
    encodings: tuple[Encoding, ...] = ("none", "sinusoidal", "rope")
    return [
        Setting(Task(bias=bias), Network(2, mask, e, residual=True))
        for bias, mask, e in product(biases, (full(), causal()), encodings)
    ]


def _sinks() -> list[Setting]:
    masks = [causal(), *(sliding_window(w) for w in (5, 9, 13)), *(prefix(K) for K in (2, 4, 6))]
    return [Setting(network=Network(2, mask)) for mask in masks]


def _fixed(settings: Iterable[Setting]) -> list[Setting]:
    return [replace(s, task=replace(s.task, vocabulary="fixed")) for s in settings]


def _spread() -> list[Setting]:
    settings = _depths((2,), residual=False) + _depths((2,), residual=True)
    return settings + [replace(s, task=replace(s.task, spread="code")) for s in settings]


PRESETS: dict[str, Callable[[], list[Setting]]] = {
    "figure2": lambda: preset("figure4") + preset("figure5"),
    "figure3": lambda: _biased(("ends",)),
    "figure4": lambda: _depths((2, 4, 6), residual=False),
    "figure5": lambda: _depths((2, 4, 6), residual=True),
    "figure6": lambda: _biased(("first", "middle", "last")),
    "figure7": lambda: _sinks()[:1],
    "figure8": _sinks,
    "figure9": lambda: _fixed(preset("figure4")),
    "figure10": lambda: _fixed(preset("figure5")),
    "figure11": lambda: _fixed(preset("figure3") + preset("figure6")),
    "figure12": lambda: _fixed(preset("figure7")),
    "figure13": lambda: _fixed(preset("figure8")),
    "spread": _spread,
    "deep": lambda: _depths((10,), residual=True),
}
"""Name → the settings of a figure. ``spread``: class vectors as in the text and in the code; ``deep``: ten layers."""


def preset(name: str) -> list[Setting]:
    """Return the settings of a figure of Wu et al. (2025); ValueError for another name.

    >>> [s.name for s in preset("figure7")]
    ['mixture-none-causal-none-2-plain']
    """
    if name not in PRESETS:
        raise errors.invalid("preset", f"one of {', '.join(PRESETS)}", name or "an empty name")
    return PRESETS[name]()
