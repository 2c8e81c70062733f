"""What may stand between a rollout and the measured influence, measured, and the rollouts that each of it makes.

A rollout takes from a network a kernel for each layer and a mixing λ_t. Each can be read in other ways, and the steps
between the attentions can be given a gain. All of it is measured here on the same prompts, nothing is fitted, and every
combination is rolled out; what it is compared with is left to the reader.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float

from posbias.measure.rollouts import measured_rollout
from posbias.measure.run import measured
from posbias.measure.session import Session
from posbias.measure.settings import Settings
from posbias.measure.summary import shaved
from posbias.rollout.influence import influence_profile
from posbias.rollout.paths import paths_by_hops, recombined
from studies.ladder.gradients import StreamReading, influence_past_final_norm, read_streams
from studies.ladder.heads import WEIGHTINGS, ValueReading, read_values
from studies.ladder.joining import JOINS, joined_history, joined_profile

KERNELS = ("content-free", *WEIGHTINGS)
"""The content-free kernel of rollout (b), and measured kernels with each head weighting."""

NORM_PROMPTS = 16
"""How many prompts, at least, the influence without the final norm is measured on."""


@dataclass(frozen=True)
class Mixing:
    """Hold readings of the mixing of every layer, of all prompts together."""

    norms: Float[np.ndarray, "T"]  # mean over prompts of ‖a‖ / (‖x‖ + ‖a‖), Frobenius norms
    positions: Float[np.ndarray, "T n"]  # mean over prompts of ‖a_i‖ / (‖x_i‖ + ‖a_i‖) at every position
    direction: Float[np.ndarray, "T"]  # Σ |g·a| / Σ (|g·x| + |g·a|): what of the change along g the branch added
    gradient: Float[np.ndarray, "T"]  # Σ ‖J_aᵀ g‖ / Σ (‖g‖ + ‖J_aᵀ g‖): what of the gradient takes the branch
    values: Float[np.ndarray, "T"]  # the same with attention weights held fixed: what takes it through values


MIXINGS = [field.name for field in fields(Mixing)]


def frobenius_mixing(reading: StreamReading) -> Float[np.ndarray, "B T"]:
    """Return ‖a‖ / (‖x‖ + ‖a‖) of each prompt and layer, with Frobenius norms over the sequence."""
    a, x = (size.square().sum(-1).sqrt() for size in (reading.branch_size, reading.stream_size))
    return (a / (a + x)).T.numpy()


def mixing(reading: StreamReading, fixed: StreamReading) -> Mixing:
    """Return every reading of λ, from readings of all prompts, the second with attention weights held fixed."""
    a, x = reading.branch_size, reading.stream_size
    pairs = [(reading.along_branch, reading.along_stream), (reading.branch, reading.added), (fixed.branch, fixed.added)]
    shares = [(part.sum((1, 2)) / (part + rest).sum((1, 2))).numpy() for part, rest in pairs]
    return Mixing(frobenius_mixing(reading).mean(0), (a / (a + x)).mean(1).numpy(), *shares)


def step_gain(reading: StreamReading) -> Float[np.ndarray, "T n"]:
    """Return how much larger the gradient that goes around attention t is than what leaves layer t, at each position.

    The ratio of means over prompts; where nothing arrives (above the last attention, beyond a window) it is 1. In a
    model in which the MLP follows the attention this is the gain of I + J_mlp.
    """
    arrives, leaves = reading.entering[1:].sum(1).numpy(), reading.around.sum(1).numpy()
    there = arrives > 0
    return np.where(there, leaves / np.where(there, arrives, 1.0), 1.0)


def join_cosine(reading: StreamReading) -> Float[np.ndarray, "T"]:
    """Return the cosine between the gradients that come around and through attention t, weighted by their sizes.

    Taken over the positions and prompts in which both are there, from ‖u + v‖² = ‖u‖² + ‖v‖² + 2 u·v.
    """
    around, branch = reading.around, reading.branch
    product = (reading.entering[:-1].square() - around.square() - branch.square()) / 2
    return (product.sum((1, 2)) / (around * branch).sum((1, 2))).numpy()


def _joined(readings: list[StreamReading]) -> StreamReading:
    """Return one reading of all prompts."""
    names = [field.name for field in fields(StreamReading)]
    parts = {k: [getattr(x, k) for x in readings] for k in names}
    return StreamReading(**{k: torch.cat(x, 0 if k == "influence" else 1) for k, x in parts.items()})


class _Kernels:
    """Sum kernels over prompts, and keep each prompt's plain ones until they are rolled out."""

    def __init__(self, T: int, n: int) -> None:
        self.sums = np.zeros((len(WEIGHTINGS), T, n, n))
        self.prompts: list[list[np.ndarray]] = [[] for _ in range(T)]

    def add(self, reading: ValueReading) -> None:
        kernels = reading.kernels().cpu().numpy()
        self.sums[:, reading.layer] += kernels.sum(1)
        self.prompts[reading.layer].append(kernels[0])

    def own(self, lambda_: Float[np.ndarray, "B T"]) -> Float[np.ndarray, "n"]:
        """Return the sum of the profiles of the prompts since the last call, with a kernel and λ each of its own."""
        A = np.stack([layer.pop() for layer in self.prompts], 1)
        return np.sum([influence_profile(k, x) for k, x in zip(A, lambda_, strict=True)], axis=0)


def measure_refinements(settings: Settings) -> xr.Dataset:
    """Measure what could explain the gap between rollout and influence, and roll out every combination.

    Means over prompts are ``influence``, ``influence_values`` and ``influence_past_norm`` (position), ``entering``
    (depth, position), ``added``, ``branch``, ``branch_values``, ``around`` (layer, position); the readings of λ,
    ``gain`` and ``join_cosine``. Rollouts are ``prediction`` (kernel, mixing, step, join, position); ``quadrature``
    (kernel, position) for paths that add in squares; ``own`` (position), the mean of rollouts prompt by prompt;
    ``rolled``, profiles of some at every layer; ``stepped`` (kernel, layer, position), what the kernel of a layer makes
    of the measured profile above it, and ``pulled`` of that of g.
    """
    study = Session(settings)
    instrument, N, n, T = study.instrument, settings.prompts, settings.length, study.instrument.T
    one = measured(study.with_prompts(prompts=1))  # for slopes and windows; the rest is measured below
    sums, own = _Kernels(T, n), np.zeros(n)
    readings: tuple[list[StreamReading], list[StreamReading]] = [], []
    past, beside, elsewhere = np.zeros(n), np.zeros(n), 0.0
    for rows, batch in study.batches():
        for kept, values_only in zip(readings, (False, True), strict=True):
            kept.append(read_streams(instrument, batch, values_only=values_only))
        if rows.start < NORM_PROMPTS:
            without, left = influence_past_final_norm(instrument, batch)
            past, elsewhere = past + without.sum(0).numpy(), max(elsewhere, float(left.max()))
            beside = beside + readings[0][-1].influence.sum(0).numpy()
        read_values(instrument, batch, sums.add)
        own += sums.own(frobenius_mixing(readings[0][-1])) / N
    reading, fixed = map(_joined, readings)
    lambdas, gain = mixing(reading, fixed), step_gain(reading)
    A = np.concatenate([measured_rollout(one, "b").dense()[None], sums.sums / N])
    A /= A.sum(-1, keepdims=True)
    entering, added = reading.entering.mean(1).numpy(), reading.added.mean(1).numpy()
    found: dict[str, tuple[tuple[str, ...], np.ndarray, str]] = {
        "influence": (("position",), reading.influence.mean(0).numpy(), "mean over prompts of ‖∂p/∂e‖"),
        "influence_values": (("position",), fixed.influence.mean(0).numpy(), "the same, attention weights held fixed"),
        "influence_past_norm": (("position",), past, "the same without the final norm's Jacobian, few prompts"),
        "influence_beside": (("position",), beside, "the same with it, these prompts"),
        "entering": (("depth", "position"), entering, "mean of ‖∂p/∂x_t‖; the last one leaves the last layer"),
        "added": (("layer", "position"), added, "mean of ‖g‖, g = ∂p/∂a_t"),
        "branch": (("layer", "position"), reading.branch.mean(1).numpy(), "mean of ‖J_aᵀ g‖"),
        "branch_values": (("layer", "position"), fixed.branch.mean(1).numpy(), "the same with attention weights fixed"),
        "around": (("layer", "position"), reading.around.mean(1).numpy(), "mean of ‖∂p/∂x_t - J_aᵀ g‖"),
        "lambda_norms": (("layer",), lambdas.norms, "mean of ‖a‖/(‖x‖+‖a‖), Frobenius norms"),
        "lambda_positions": (("layer", "position"), lambdas.positions, "mean of ‖a_i‖/(‖x_i‖+‖a_i‖)"),
        "lambda_direction": (("layer",), lambdas.direction, "sum |g·a| / sum (|g·x| + |g·a|)"),
        "lambda_gradient": (("layer",), lambdas.gradient, "sum ‖J_aᵀ g‖ / sum (‖g‖ + ‖J_aᵀ g‖)"),
        "lambda_values": (("layer",), lambdas.values, "the same with attention weights held fixed"),
        "join_cosine": (("layer",), join_cosine(reading), "cosine of what comes around and through the attention"),
        "gain": (("layer", "position"), gain, "sum ‖∂p/∂x_t - J_aᵀ g‖ / sum ‖∂p/∂x_(t+1)‖"),
        "own": (("position",), own, "mean of the profiles of each prompt's own kernels and λ"),
        "prediction": (
            ("kernel", "mixing", "step", "join", "position"),
            _predictions(A, lambdas, gain),
            "influence profiles of rollouts",
        ),
        "quadrature": (
            ("kernel", "position"),
            np.stack([_quadrature(k, lambdas.norms) for k in A]),
            "rollouts whose paths of one hop count add in squares",
        ),
        "rolled": (
            ("few_kernels", "few_mixings", "join", "depth", "position"),
            np.array(
                [
                    [[joined_history(k, x, power=r) for r in JOINS.values()] for x in (lambdas.norms, lambdas.values)]
                    for k in A[:2]
                ]
            ),
            "profiles that rollouts have at every layer",
        ),
        "stepped": (
            ("kernel", "layer", "position"),
            _moved(A, entering[1:]),
            "profile above a layer, through its kernel",
        ),
        "pulled": (("kernel", "layer", "position"), _moved(A, added), "profile of g, through the layer's kernel"),
    }
    return xr.Dataset(
        {name: (dims, shaved(x.astype(np.float32)), {"long_name": text}) for name, (dims, x, text) in found.items()},
        coords={
            "kernel": list(KERNELS),
            "mixing": MIXINGS,
            "step": ["kept", "gain"],
            "join": list(JOINS),
            "few_kernels": list(KERNELS[:2]),
            "few_mixings": ["norms", "values"],
        },
        attrs={**one.attrs, **study.provenance(), "elsewhere_past_layers": elsewhere},
    )


def _predictions(A: np.ndarray, lambdas: Mixing, gain: np.ndarray) -> Float[np.ndarray, "kernels mixings 2 joins n"]:
    mixings = [getattr(lambdas, name) for name in MIXINGS]
    ways = [(g, r) for g in (None, gain) for r in JOINS.values()]
    flat = [[[joined_profile(k, x, g, power=r) for g, r in ways] for x in mixings] for k in A]
    return np.array(flat).reshape(len(A), len(mixings), 2, len(JOINS), -1)


def _quadrature(A: np.ndarray, lambda_: np.ndarray) -> Float[np.ndarray, "n"]:
    return recombined(paths_by_hops(A, lambda_, 1.0).sum(1), paths_by_hops(A, lambda_, 2.0))


def _moved(A: np.ndarray, sizes: np.ndarray) -> Float[np.ndarray, "kernels T n"]:
    return np.einsum("tn,ktnm->ktm", sizes / sizes.sum(1, keepdims=True), A)
