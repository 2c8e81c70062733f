"""What is tried on a finished model by its results: biases at several strengths, and temperatures by layer.

A bias or a temperature acts inside a context and changes no weight. Each kind is searched with as many evaluations as
any other, whatever it is that is made small.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from math import comb
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from posbias.conditions.each.sharper import sharper
from posbias.design import KINDS, Attended, Choice, Description, choose_bias, in_one_number, rounded
from posbias.measure.instrument import Instrument
from posbias.models.biases import added_biases
from posbias.rollout.position_bias import AlibiBias, FlatBias, LogBias, NoBias, describe, position_bias
from studies.interventions import read_layers

EVALUATIONS = 32
"""Settings that are tried of everything that is searched."""
CUTOFFS = (0.25, 8.0)
"""Range of τ of flat logits."""
STRONGEST = 1.5
"""Largest strength of a bias that is proposed: 1 is what the engine expects to be best."""
TEMPERATURES = (1 / 16, 4.0)
"""Range of one temperature."""
GENERATIONS = 4
"""Of the genetic search."""
CURVE, CONTROL_POINTS = (-4.0, 2.0), 4
"""Range of the control points of the temperatures' curve over depth, logarithms to base 2, and how many there are."""
LENGTH = 256
"""Tokens of a prompt, at most, in which attention is read for proposals."""

Setting = tuple[float, ...]


@dataclass(frozen=True)
class Attempt:
    """Hold a setting that was tried: the number that is minimised, and what it costs, a loss in nats."""

    setting: Setting
    distance: float
    loss: float


class Additions:
    """Biases that the engine would choose, and temperatures, for one model: their contexts by setting, and searches.

    ``chosen`` is a proposal at a strength, ``temperatures`` a temperature for each layer, ``temperature`` one for all.
    Attention is read on the prompts ``ids``, of any length: proposals are of formulas, not of tokens.
    """

    def __init__(self, instrument: Instrument, ids: Int[Tensor, "N n"], batch_size: int = 8) -> None:
        self.instrument, self.ids, self.batch_size = instrument, ids, batch_size
        self.proposals: dict[Setting, Description] = {}

    @cached_property
    def attended(self) -> Attended:
        """What the model does on the prompts: mean attention of each head, and mean λ."""
        instrument, total, mixing = self.instrument, np.zeros(()), []
        for batch in self.ids[:, :LENGTH].split(self.batch_size):
            total = total + read_layers(instrument, batch, lambda x: x.probabilities.double().sum(0)).cpu().numpy()
            mixing.append(instrument.measure(batch).lambda_frobenius.double().numpy())
        return Attended(total / total.sum(-1, keepdims=True), np.concatenate(mixing).mean(0), instrument.H)

    def temperatures(self, name: str, setting: Setting) -> Float[np.ndarray, "T"]:
        """Return by what content logits are divided in each layer; 1 for what divides none."""
        T = self.instrument.T
        if name == "temperatures":
            return np.asarray(2 ** bezier_curve(setting, T))
        return np.full(T, setting[0] if name == "temperature" else 1.0)

    def bias(self, name: str, setting: Setting) -> Description:
        """Return the description of the bias that is added; that of none for what adds none."""
        return self.proposals[setting] if name == "chosen" else describe(NoBias())

    def context(self, name: str, setting: Setting) -> AbstractContextManager[None]:
        """Return the context in which a setting acts; another name than the three is the model as it is."""
        if name in ("temperatures", "temperature"):
            return sharper(self.instrument.model, 1 / self.temperatures(name, setting))
        return added_biases(self.instrument.model, self.bias(name, setting))

    def tried(self, name: str, evaluations: int, attempt: Callable[[Setting], Attempt]) -> list[Attempt]:
        """Return what a search tries, exactly so many settings: a genetic one for a curve over depth, else a grid."""
        if name == "temperatures":
            low, high = (np.full(CONTROL_POINTS, end) for end in CURVE)
            return genetic_search(attempt, low, high, evaluations)
        if name == "temperature":
            return [attempt((float(value),)) for value in np.geomspace(*TEMPERATURES, evaluations)]
        if not self.proposals:
            self.proposals = proposed(self.attended, evaluations)
        return [attempt(setting) for setting in self.proposals]


def proposed(model: Attended, evaluations: int) -> dict[Setting, Description]:
    """Return biases for a model to try, by the number of the proposal and its strength: as many as asked for."""
    H = model.heads
    shares = np.unique(np.linspace(H, 1, max(1, min(H, evaluations // 4))).astype(int))
    found: dict[Setting, Description] = {}
    for kind, few in zip(KINDS, np.array_split(np.arange(evaluations - shares.size), len(KINDS)), strict=True):
        best = choose_bias(model, kind).description
        for strength in np.linspace(0, STRONGEST, few.size + 1)[1:].tolist():
            found[float(KINDS.index(kind)), strength] = strengthened(best, strength)
    for share in shares.tolist():
        found[float(len(KINDS)), share / H] = flat_share(model, share).description
    return found


def flat_share(model: Attended, share: int) -> Choice:
    """Return flat logits in the last ``share`` heads, with the cut-off that makes the rollout as even as can be."""

    def heads(x: float) -> Description:
        flat = describe(FlatBias(rounded(float(np.exp(x)))))
        return [describe(NoBias())] * (model.heads - share) + [flat] * share

    low, high = np.log(CUTOFFS).tolist()
    return in_one_number(model, "flat", heads, (low, high))


def strengthened(description: Any, strength: float) -> Any:
    """Return a description of exponents and slopes with these multiplied by a strength.

    >>> strengthened([{"kind": "log", "alpha": 2.0}, {"kind": "none"}], 0.5)
    [{'kind': 'log', 'alpha': 1.0}, {'kind': 'none'}]
    """
    if isinstance(description, list):
        return [strengthened(part, strength) for part in description]
    bias = position_bias(description)
    if isinstance(bias, LogBias):
        return describe(LogBias(rounded(bias.alpha * strength)))
    return describe(AlibiBias(bias.slope * strength) if isinstance(bias, AlibiBias) else bias)


def bezier_curve(points: Setting, T: int) -> Float[np.ndarray, "T"]:
    """Return Σ_k C(m, k) u^k (1 - u)^(m - k) p_k at u = t / (T - 1), t = 0 … T - 1, for the m + 1 control points p.

    >>> bezier_curve((1.0, 2.0, 1.0), 3).tolist()
    [1.0, 1.5, 1.0]
    """
    m, u = len(points) - 1, np.linspace(0.0, 1.0, T)
    return np.asarray(sum(comb(m, k) * u**k * (1 - u) ** (m - k) * p for k, p in enumerate(points)))


def genetic_search(
    attempt: Callable[[Setting], Attempt],
    low: Float[np.ndarray, "d"],
    high: Float[np.ndarray, "d"],
    evaluations: int,
    seed: int = 0,
) -> list[Attempt]:
    """Return all that a small genetic search tries, in the order of trial: exactly as many settings as it is given."""
    rng = np.random.default_rng(seed)
    size = -(-evaluations // GENERATIONS)
    found = [attempt(tuple(low.tolist()))]
    while len(found) < size:
        found.append(attempt(tuple(rng.uniform(low, high).tolist())))
    while len(found) < evaluations:
        best = sorted(found, key=lambda x: x.distance)[: max(2, len(found) // 3)]
        for _ in range(min(size, evaluations - len(found))):
            mother, father = (np.array(best[k].setting) for k in rng.integers(len(best), size=2))
            step = rng.uniform(size=low.size) * (father - mother) + rng.normal(0, 0.1, low.size) * (high - low)
            found.append(attempt(tuple(np.clip(mother + step, low, high).tolist())))
    return found
