"""Position biases: what is added to a head's logits by the positions of query and key alone.

Positions are counted from 1, the query is i, the key j ≤ i. A bias that is a function of i / j is scale-free: in a
prompt twice as long it gives every fraction of the prompt the same share. A bias has a description, a mapping such as
``{"kind": "log", "alpha": 1.4}``, by which configurations of rollouts and of networks name it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.rollout.logits import position_logits

HIDDEN = -1e4
"""Logit of a key that a bias hides: no weight in any number format, and none of the infinities of a mask."""


@dataclass(frozen=True)
class PositionBias(ABC):
    """What is added to the logits of a head by the positions of query and key."""

    kind: ClassVar[str]
    hides_query: ClassVar[bool] = False  # Whether content on the diagonal makes no difference

    @property
    def fall(self) -> float:
        """Logits lost per token of distance, where the bias is that and ≥ 0; NaN for every other bias."""
        return np.nan

    @abstractmethod
    def logits(self, n: int) -> Float[np.ndarray, "n n"]:
        """Return what is added to the logits of all queries and keys."""


@dataclass(frozen=True)
class NoBias(PositionBias):
    """Add nothing: the kernel of a head without content is uniform over its past."""

    kind: ClassVar[str] = "none"

    @property
    def fall(self) -> float:
        """Return 0."""
        return 0.0

    def logits(self, n: int) -> Float[np.ndarray, "n n"]:
        """Return zeros."""
        return np.zeros((errors.positive_integer("n", n),) * 2)


@dataclass(frozen=True)
class AlibiBias(PositionBias):
    """Add -slope · (i - j), slope in logits per token: not scale-free. Below 0 it favours what is distant.

    >>> AlibiBias(-0.5).logits(3)[2].tolist()
    [1.0, 0.5, 0.0]
    """

    slope: float
    kind: ClassVar[str] = "alibi"

    def __post_init__(self) -> None:
        if not errors.finite_array("position_bias.slope", self.slope, ndim=(0,)):
            raise errors.invalid("position_bias.slope", "a number other than 0", self.slope)

    @property
    def fall(self) -> float:
        """Return the slope, NaN below 0."""
        return self.slope if self.slope > 0 else np.nan

    def logits(self, n: int) -> Float[np.ndarray, "n n"]:
        """Return the logits of all queries and keys."""
        z = position_logits(n, abs(self.slope))
        return z if self.slope > 0 else 0.0 - z


@dataclass(frozen=True)
class LogBias(PositionBias):
    """Add α log j: the kernel A[i, j] ∝ j^α, scale-free for α > -1.

    >>> np.exp(LogBias(2.0).logits(3)[2]).round(9).tolist()
    [1.0, 4.0, 9.0]
    """

    alpha: float
    kind: ClassVar[str] = "log"

    def __post_init__(self) -> None:
        errors.finite_array("position_bias.alpha", self.alpha, ndim=(0,))

    def logits(self, n: int) -> Float[np.ndarray, "n n"]:
        """Return the logits, the same for every query."""
        with np.errstate(over="ignore"):  # infinite logits are refused where they are used
            return np.tile(self.alpha * np.log(_positions(n)), (n, 1))


@dataclass(frozen=True)
class FlatBias(PositionBias):
    """Add -log log(i / j) for keys j < i e^-ε and hide the others, E₁(ε) = τ > 0.

    The rollout over layers of Σλ = τ is then uniform up to e^-τ. A query none of whose keys is far enough sees itself
    alone.

    >>> FlatBias(1.0).logits(2)[1].round(3).tolist()
    [0.367, -5000.0]
    """

    tau: float
    kind: ClassVar[str] = "flat"
    hides_query: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _above("tau", self.tau, 0.0)

    @property
    def cutoff(self) -> float:
        """Return ε, the nearest log-distance that is seen: E₁(ε) = τ."""
        return exponential_integral_inverse(self.tau)

    def visible(self, n: int) -> np.ndarray:
        """Return how many keys each query sees, from the first on: those with j < i e^-ε."""
        return (np.ceil(_positions(n) * np.exp(-self.cutoff)) - 1).astype(np.int64)

    def logits(self, n: int) -> Float[np.ndarray, "n n"]:
        """Return the logits; of what is hidden a query sees itself before all others."""
        z = np.full((errors.positive_integer("n", n),) * 2, HIDDEN)
        np.fill_diagonal(z, HIDDEN / 2)
        seen = np.arange(n) < self.visible(n)[:, None]
        z[seen] = -np.log(log_ratios(n)[seen])
        return z


KINDS: Mapping[str, Any] = {bias.kind: bias for bias in (NoBias, AlibiBias, LogBias, FlatBias)}
"""The kinds by name."""


def position_bias(description: Any, field: str = "position_bias") -> PositionBias:
    """Return the bias that a mapping describes: its ``kind``, and what the kind asks for; a bias as it is.

    >>> position_bias({"kind": "flat", "tau": 4.8})
    FlatBias(tau=4.8)
    """
    if isinstance(description, PositionBias):
        return description
    if not isinstance(description, Mapping):
        raise errors.invalid(field, "a mapping such as {kind: log, alpha: 1.4}", str(description)[:60])
    kind = description.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise errors.invalid(f"{field}.kind", f"one of {', '.join(KINDS)}", str(kind)[:60])
    wanted = [part.name for part in fields(KINDS[kind])]
    given = {str(name): value for name, value in description.items() if name != "kind"}
    if set(given) != set(wanted):
        expected = f"kind and {', '.join(wanted)}" if wanted else "kind alone"
        raise errors.invalid(field, f"{expected} for {kind}", ", ".join(map(str, description))[:60])
    parts = {name: float(errors.finite_array(f"{field}.{name}", value, ndim=(0,))) for name, value in given.items()}
    return KINDS[kind](**parts)  # type: ignore[no-any-return]


def describe(bias: PositionBias) -> dict[str, Any]:
    """Return the mapping that :func:`position_bias` reads back.

    >>> describe(LogBias(1.4))
    {'kind': 'log', 'alpha': 1.4}
    """
    return {"kind": bias.kind, **{part.name: getattr(bias, part.name) for part in fields(bias)}}


Biases = tuple[tuple[PositionBias, ...], ...]
"""The biases of heads, for one layer that stands for all, or for each layer."""


def layered_biases(description: Any, T: int, H: int | None = None, field: str = "position_bias") -> Biases:
    """Return biases by layer and head from one mapping for all, a list for heads, or a list of such lists for layers.

    Mappings are as :func:`position_bias` reads them, or biases. T and H are layers and heads, H read off unless given;
    ``field`` is what messages call the description.

    >>> layered_biases([{"kind": "none"}, {"kind": "log", "alpha": 1.0}], T=3)
    ((NoBias(), LogBias(alpha=1.0)),)
    """
    if isinstance(description, Mapping | PositionBias):
        return ((position_bias(description, field),) * (H or 1),)
    if not isinstance(description, Sequence) or isinstance(description, str) or not len(description):
        raise errors.invalid(field, "a mapping, a list for heads, or a list of lists for layers", str(description)[:60])
    nested = [isinstance(part, Sequence) and not isinstance(part, str) for part in description]
    if not any(nested):
        row = tuple(position_bias(part, f"{field}[{h}]") for h, part in enumerate(description))
        if H is not None and len(row) != H:
            raise errors.invalid(field, f"one bias, or one for each of {H} heads", f"{len(row)}")
        return (row,)
    if not all(nested) or len(description) not in (1, T):
        raise errors.invalid(field, f"lists for 1 or {T} layers", f"{len(description)} entries")
    rows = tuple(layered_biases(part, T, H, f"{field}[{t}]")[0] for t, part in enumerate(description))
    if len({len(row) for row in rows}) > 1:
        raise errors.invalid(field, "as many heads in every layer", ", ".join(str(len(row)) for row in rows)[:60])
    return rows


def log_ratios(n: int) -> Float[np.ndarray, "n n"]:
    """Return log(i / j), positions counted from 1; 0 where the key comes after the query."""
    u = np.log(_positions(n))
    return np.asarray((u[:, None] - u[None, :]).clip(0.0))


@lru_cache(maxsize=256)
def exponential_integral_inverse(tau: float) -> float:
    """Return the ε > 0 with E₁(ε) = τ, E₁(ε) = ∫_ε^∞ e^-s / s ds.

    >>> from scipy.special import exp1
    >>> bool(abs(exp1(exponential_integral_inverse(4.8)) - 4.8) < 1e-12)
    True
    """
    from scipy.optimize import brentq
    from scipy.special import exp1

    _above("tau", tau, 0.0)
    if tau > 50:  # E₁(ε) = -γ - log ε up to ε
        return float(np.exp(-np.euler_gamma - tau))
    y = brentq(lambda y: exp1(np.exp(y)) - tau, -tau - 1, 6.55, xtol=1e-15, rtol=1e-15)
    return float(np.exp(y))


def _positions(n: int) -> np.ndarray:
    return np.arange(1.0, errors.positive_integer("n", n) + 1)


def _above(name: str, value: Any, least: float) -> None:
    x = float(errors.finite_array(f"position_bias.{name}", value, ndim=(0,)))
    if x <= least:
        raise errors.invalid(f"position_bias.{name}", f"a number above {least:g}", x)
