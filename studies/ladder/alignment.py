"""Between law of untrained networks and aligned sum: one number for how far what meets at a sum points one way.

Going back through a layer, gradients meet twice: what comes around the step after the attention (an MLP) with what
comes through it, and what comes around the attention with what comes through it. If two such vectors u and w meet at a
cosine ρ, whatever their positions, their Gram matrices add up to

    G_u + G_w + ρ (a bᵀ + b aᵀ),     a_j = ‖u_j‖, b_j = ‖w_j‖.

ρ = 0 is the law of untrained networks. At ρ = 1 the Gram matrix has rank one and squares of sums of sizes:
the aligned sum. What is mixed inside a branch goes the same way, from the heads' own kernels and the step's own Gram
factor (ρ = 0) to one kernel and to sizes (ρ = 1), in proportion: :func:`coherent_profile`.

Of a model's gradients the same is measured where two meet (:func:`read_coherence`). For vectors u_k that are added at a
position, coherence is the share of their cross terms that there is,

    Σ_{k<l} u_k · u_l  /  Σ_{k<l} ‖u_k‖ ‖u_l‖,

a mean cosine weighted by sizes: 0 in the mean for independent maps, 1 for aligned ones. Both sums run over positions;
each prompt counts by its sums over Σ_k ‖u_k‖². :func:`measure_between` puts both together; nothing is fitted.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor, nn

from posbias.comparison.distances import unit
from posbias.errors import Numbers
from posbias.measure.instrument import Instrument
from posbias.measure.run import measure
from posbias.measure.session import Session
from posbias.measured_kernels import law
from posbias.models.families import output_projection
from posbias.models.hooks import given, hooked
from posbias.predict import predict
from posbias.rollout.influence import Kernels
from posbias.rollout.untrained import Network, checked_network, two_sided
from posbias.settings import DEFAULT, Settings
from studies.ladder.gradients import kept_streams, read_streams
from studies.summaries import shave

JOINS = ("attention", "step")
"""What meets in a layer: what comes around the attention and through it, around the step after it and through it."""
KERNELS = ("content-free", "measured")
"""Kernels of the law and of the aligned sum: mask and positions alone, or each head's mean attention as measured."""
COHERENCES = (-0.2, -0.1, 0.0, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0)
"""Values of ρ at which profiles are kept; 0 is the law of untrained networks, 1 the aligned sum."""
READINGS = ("cosines", "shares", "both")
"""What of the gradient is put into the law: coherence of each sum, what comes through each branch, both."""
COHERENCE_PROMPTS = 8
"""Prompts on which coherence is read."""
KEPT = ("influence", "influence_prompts", "lambda_frobenius", "branch_gain", "window", "document")
"""What of the measurement is kept beside what is made of it."""


def coherent_profile(
    kernels: Kernels,
    gains: Numbers,
    coherence: Numbers,
    n: int | None = None,
    *,
    shares: Numbers | None = None,
    **network: Any,
) -> Float[np.ndarray, "n"]:
    """Return the profile if what meets at a sum has cosine ρ: the law of untrained networks at 0, the aligned sum at 1.

    Kernels, gains and the rest are as for :func:`~posbias.rollout.untrained.untrained_profile`. ρ in [-1, 1] is one
    number for every sum, or (T, 2) of them, attention first, step second; what is below 0 leaves the branches' insides
    as they are at 0. Shares say what comes through each branch, Σ_j ‖w_j‖² / Σ_j (‖u_j‖² + ‖w_j‖²), (T, 2) in [0, 1),
    in place of what the gains say of it; where in a prompt it comes out is left to kernels, denominators and steps.

    Source: ours.

    >>> A = np.array([[1.0, 0.0], [0.5, 0.5]])
    >>> coherent_profile(A, [1.0], 1.0)
    array([0.25, 0.75])
    >>> p = coherent_profile(A, [1.0], 0.0)
    >>> p / p[0] - np.array([1.0, np.sqrt(1.25) / 0.5])
    array([0., 0.])
    """
    net = checked_network(kernels, gains, n, **network)
    rho = np.broadcast_to(np.asarray(coherence, dtype=float), (net.T, 2))
    return _back(net, rho, None if shares is None else np.broadcast_to(shares, (net.T, 2)))[0]


def branch_shares(kernels: Kernels, gains: Numbers, n: int | None = None, **network: Any) -> Float[np.ndarray, "T 2"]:
    """Return what the law of untrained networks expects to come through each branch, attention first, step second.

    >>> branch_shares(np.array([[1.0, 0.0], [0.5, 0.5]]), [1.0]).round(3).tolist()
    [[0.333, 0.0]]
    """
    net = checked_network(kernels, gains, n, **network)
    return _back(net, np.zeros((net.T, 2)), None)[1]


def _back(net: Network, rho: np.ndarray, shares: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the profile and the shares that came through the branches."""
    found = np.zeros((net.T, 2))
    G = net.start()
    for t in reversed(range(net.T)):
        attention, step = rho[t]
        above = G
        if net.steps is not None:
            back = _sized(G * _factor(net.steps[t], max(step, 0.0)), G, None if shares is None else shares[t, 1])
            found[t, 1] = np.trace(back) / np.trace(G + back)
            G = _met(G, back, step)
        sent = (above if net.parallel[t] else G) * np.outer(net.outputs[t], net.outputs[t])
        back = _sent_back(net, t, sent, max(attention, 0.0)) * np.outer(net.scales[t], net.scales[t])
        back = _sized(back, G, None if shares is None else shares[t, 0])
        found[t, 0] = np.trace(back) / np.trace(G + back)
        G = _met(G, back, attention)
        G /= np.trace(G)
    return unit(_lengths(G)), found


def _sized(W: np.ndarray, U: np.ndarray, share: float | None) -> np.ndarray:
    """Return W, or W such that it has a share of both traces."""
    size = np.trace(W)
    if share is None or size <= 0:
        return W
    return np.asarray(W * (share / (1 - share) * np.trace(U) / size))


def _met(U: np.ndarray, W: np.ndarray, rho: float) -> np.ndarray:
    """Return the Gram matrix of sums of two vectors of cosine ρ at every position."""
    cross = rho * np.outer(_lengths(U), _lengths(W))
    return np.asarray(U + W + cross + cross.T)


def _lengths(G: np.ndarray) -> np.ndarray:
    """Return the vectors' lengths; below ρ = 0 no vectors need have such cosines, and what would be negative is 0."""
    return np.asarray(np.sqrt(np.maximum(np.diag(G), 0)))


def _factor(K: np.ndarray, rho: float) -> np.ndarray:
    """Return a step's Gram factor between its own and that of its sizes."""
    size = _lengths(K)
    return np.asarray((1 - rho) * K + rho * np.outer(size, size))


def _sent_back(net: Network, t: int, X: np.ndarray, rho: float) -> np.ndarray:
    """Return what heads of independent maps make of X, and what one map of their mean kernel does, in proportion."""
    own = two_sided(net.kernels, t, X, net.gains[t] ** 2)
    if rho == 0:
        return own
    A = net.kernels.kernel(t, net.n, net.as_one_branch(t))
    return np.asarray((1 - rho) * own + rho * A.rmatmat(A.rmatmat(X).T).T)


def cross_terms(vectors: Float[Tensor, "K B n D"]) -> Float[Tensor, "2 B"]:
    """Return Σ u_k·u_l and Σ ‖u_k‖ ‖u_l‖ over pairs k < l and positions, each over Σ ‖u_k‖², for every prompt.

    The first over the second is the coherence. Where all is 0, both are.

    >>> u = torch.tensor([[[[3.0, 0.0]]], [[[0.0, 4.0]]]])
    >>> cross_terms(u)[:, 0].tolist(), cross_terms(u.abs().sum(-1, keepdim=True))[:, 0].tolist()
    ([0.0, 0.48], [0.48, 0.48])
    """
    u = vectors.detach().double()
    sizes = u.norm(dim=-1)
    squares = sizes.square().sum(0)
    terms = torch.stack([u.sum(0).square().sum(-1) - squares, sizes.sum(0).square() - squares]).sum(-1) / 2
    return (terms / squares.sum(-1).clamp_min(torch.finfo(torch.float64).tiny)).cpu()


@dataclass(frozen=True)
class CoherenceReading:
    """Hold cross terms of every prompt, first those that there are and then those of aligned vectors."""

    layers: Float[Tensor, "2 joins T B"]  # of each layer's JOINS
    sizes: Float[Tensor, "sums 2 T n B"]  # ‖u‖ and ‖w‖ of what comes around each layer's attention and through it, with
    # attention weights held fixed, as a rollout has them as numbers; then around its step and through it


def read_coherence(instrument: Instrument, ids: Int[Tensor, "B n"]) -> CoherenceReading:
    """Return the cross terms of the gradient of p(most likely next token) on its way back."""
    layers, step = _meetings(instrument, ids)
    fixed = read_streams(instrument, ids, values_only=True)
    attention = torch.stack([fixed.around, fixed.branch]).mT
    return CoherenceReading(layers, torch.stack([attention, step]))


def _meetings(instrument: Instrument, ids: Int[Tensor, "B n"]) -> tuple[Tensor, Tensor]:
    """Return the cross terms of each layer's joins, and the sizes of what comes around and through its step."""
    T, taken = instrument.T, []

    def projected(module: nn.Module, args: Any, kwargs: Any) -> None:
        taken.append(given(args, kwargs))

    heads = hooked(before=[(output_projection(x), projected) for x in instrument.attentions])
    e = instrument.embeddings(ids).requires_grad_(True)
    found = torch.zeros(2, len(JOINS), T, len(ids), dtype=torch.float64)
    sizes = torch.zeros(2, T, *ids.T.shape, dtype=torch.float64)
    with torch.enable_grad(), kept_streams(instrument) as kept, heads:
        p = instrument.logits(e).softmax(-1).amax(-1).sum()
        gradients = torch.autograd.grad(p, [*kept.streams, *taken], retain_graph=True)
        by_stream, by_heads = gradients[: T + 1], gradients[T + 1 :]
        for t in range(T):
            parts = []
            for share in _by_head(by_heads[t], instrument.H):
                parts.append(torch.autograd.grad(taken[t], kept.streams[t], share, retain_graph=True)[0])
            through, leaving = torch.stack(parts).sum(0), by_stream[t + 1]
            around = by_stream[t] - through
            met = [torch.stack([around, through]), torch.stack([leaving, around - leaving])]
            found[:, :, t] = torch.stack([cross_terms(u) for u in met], dim=1)
            sizes[:, t] = met[1].detach().double().norm(dim=-1).mT.cpu()
    return found, sizes


def _by_head(gradient: Float[Tensor, "B n E"], H: int) -> Float[Tensor, "H B n E"]:
    """Return what of a gradient by the heads' outputs belongs to each head, 0 elsewhere."""
    split = gradient.unflatten(-1, (H, -1))
    alone = torch.eye(H, dtype=split.dtype, device=split.device)[:, None, None, :, None]
    return (split * alone).flatten(-2)


def measure_between(settings: Settings) -> xr.Dataset:
    """Measure a model, and roll it out between the law of untrained networks and the aligned sum."""
    study = Session(replace(settings, quantities=(*DEFAULT, "heads"), kernel_size=settings.length))
    results = measure(study.settings, study.prompts)
    few = Session(replace(study.settings, prompts=min(COHERENCE_PROMPTS, settings.prompts)))
    reading = _all_prompts([read_coherence(study.instrument, ids) for _, ids in few.batches()])
    networks = [network_of(results, kernel) for kernel in KERNELS]
    own, shares = joined_coherence(reading.layers.numpy()), through_shares(reading.sizes.mean(-1).numpy())
    ways: list[tuple[Any, Any]] = [(own, None), (0.0, shares), (own, shares)]
    family = [[coherent_profile(coherence=rho, **one) for rho in COHERENCES] for one in networks]
    predicted = [[coherent_profile(coherence=rho, shares=share, **one) for rho, share in ways] for one in networks]
    rollouts = [predict(results, name) for name in ("layer-shares", "measured-attention")]
    made: dict[str, tuple[tuple[str, ...], np.ndarray, str]] = {
        "profile": (
            ("kernel", "coherence", "position"),
            np.array(family),
            "profile if what meets at a sum has this cosine",
        ),
        "predicted": (
            ("kernel", "reading", "position"),
            np.array(predicted),
            "profile with what was read of the gradient",
        ),
        "share": (("sum", "layer"), shares.T, "what comes through a branch, in squares of mean sizes"),
        "expected_share": (
            ("sum", "layer"),
            branch_shares(**networks[-1]).T,
            "the same by the law of untrained networks",
        ),
        "rollout": (("variant", "position"), np.array(rollouts), "influence profile by rollout"),
        "cross": (("join", "layer", "few"), reading.layers[0].numpy(), "sum of u·w over that of sizes squared"),
        "possible": (("join", "layer", "few"), reading.layers[1].numpy(), "the same if all were aligned"),
    }
    variables = {k: (dims, shave(x.astype(np.float32)), {"long_name": text}) for k, (dims, x, text) in made.items()}
    coords = {"kernel": list(KERNELS), "coherence": list(COHERENCES), "reading": list(READINGS), "join": list(JOINS)}
    coords |= {"variant": ["b", "kernels"], "sum": list(JOINS)}
    found = xr.Dataset(variables, coords=coords, attrs=results.attrs)
    return found.assign({name: _few_bits(results[name]) for name in KEPT})


def network_of(results: xr.Dataset, kernel: str) -> dict[str, Any]:
    """Return what the law takes of a measurement with ``attention_heads``, with one of :data:`KERNELS`."""
    network = law(results)
    if kernel == "measured":
        A = results["attention_heads"].values.astype(np.float64)
        network["kernels"] = A / A.sum(-1, keepdims=True)
        network["gains"] = results["branch_gain"].values.astype(np.float64)
    return network


def joined_coherence(terms: Float[np.ndarray, "2 2 T B"]) -> Float[np.ndarray, "T 2"]:
    """Return each layer's coherence at attention and step over all prompts; 0 where there is nothing to meet."""
    cross, possible = terms.sum(-1)
    return np.clip(np.divide(cross, possible, out=np.zeros_like(cross), where=possible > 0), -1, 1).T


def through_shares(sizes: Float[np.ndarray, "sums 2 T n"]) -> Float[np.ndarray, "T 2"]:
    """Return Σ_j b_j² / Σ_j (a_j² + b_j²), a and b mean sizes of what comes around a branch and through it.

    >>> through_shares(np.array([[[[3.0, 0.0]], [[0.0, 1.0]]]] * 2)).tolist()
    [[0.1, 0.1]]
    """
    around, through = np.square(sizes).sum(-1).transpose(1, 2, 0)
    return np.asarray(through / (around + through))


def _all_prompts(readings: list[CoherenceReading]) -> CoherenceReading:
    names = [field.name for field in fields(CoherenceReading)]
    return CoherenceReading(**{name: torch.cat([getattr(x, name) for x in readings], -1) for name in names})


def _few_bits(x: xr.DataArray) -> xr.DataArray:
    return x if x.dtype.kind != "f" else x.copy(data=shave(x.values.astype(np.float32)))
