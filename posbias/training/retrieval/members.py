"""Many attention-only networks as one: every weight has a leading axis of members, every product is batched over it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from posbias import checks
from posbias.training.retrieval.settings import Network, Setting

BASE = 10000.0
"""Base of the wavelengths of the sinusoidal and of the rotary encoding (Wu et al. 2025, appendix J)."""


class Members(nn.Module):
    """Networks of one shape, each with its own weights, mask and encoding.

    A layer computes logits = X W_Q (X W_K)ᵀ / √d plus mask and encoding, A = softmax(logits), and gives A X W_V, with
    a residual X + A X W_V. The MLP reads the last token. A member's numbers do not depend on who else is there.

    Parameters
    ----------
    settings
        One for each member; of one shape (:func:`shape_of`).
    seeds
        Of the members' weights.
    dtype
        What products are computed in; weights, softmax and the label's logits have 32 bits.

    Raises
    ------
    ValueError
        If there are no members, or their shapes differ.

    Source: Wu et al. 2025, equation 1 and appendix J.
    """

    limits: Tensor
    addition: Tensor
    turns: Tensor

    def __init__(
        self, settings: Sequence[Setting], seeds: Sequence[int], *, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        if not settings or len(settings) != len(seeds):
            raise checks.refuse("seeds", f"one for each of the {len(settings)} settings", len(seeds))
        shapes = {shape_of(s) for s in settings}
        if len(shapes) > 1:
            raise checks.refuse("settings", "networks of one shape", f"{len(shapes)} shapes")
        task, network = settings[0].task, settings[0].network
        self.residual, self.rotary, T = network.residual, network.encoding == "rope", network.layers
        d, h, L = task.dimension, network.hidden, task.labels
        self.sizes = {f"{name}.{t}": (d, d) for t in range(T) for name in ("query", "key", "value")}
        self.sizes |= {"hidden.0": (d, h), "hidden.1": (h, h), "hidden.2": (h, L)}
        drawn = [_initial(self.sizes, seed) for seed in seeds]
        self.weights = nn.ParameterDict(
            {name.replace(".", "_"): nn.Parameter(torch.stack([w[name] for w in drawn])) for name in drawn[0]}
        )
        limits = [torch.from_numpy(_limits(s.network, task.tokens)) for s in settings]
        self.register_buffer("limits", torch.stack(limits)[:, None].float())
        tables = [_sinusoids(task.tokens, d) * (s.network.encoding == "sinusoidal") for s in settings]
        self.register_buffer("addition", torch.from_numpy(np.stack(tables))[:, None].float())
        angles = np.arange(task.tokens)[:, None] * BASE ** (-2 * (np.arange(d) % (d // 2)) / d)
        signs = np.where(np.arange(d) < d // 2, -1, 1)  # of the other half of a pair
        self.register_buffer("turns", torch.from_numpy(np.stack([np.cos(angles), signs * np.sin(angles)])).float())
        self.layers, self.dtype = T, dtype
        self.added = any(s.network.encoding == "sinusoidal" for s in settings)

    def forward(self, tokens: Float[Tensor, "M B N d"]) -> Float[Tensor, "M B L"]:
        """Return the logits of the query's label, in 32 bits."""
        x = self._embedded(tokens)
        for t in range(self.layers):
            x = self._layer(x, t, only_query=t == self.layers - 1)[0]
        x = x[:, :, -1]
        for k in range(3):
            x = torch.baddbmm(self._weight(f"bias_{k}")[:, None], x, self._weight(f"hidden_{k}"))
            x = torch.relu(x) if k < 2 else x
        return x.float()

    @torch.no_grad()
    def inside(
        self, tokens: Float[Tensor, "M B N d"]
    ) -> tuple[Float[Tensor, "T M B N N"], Float[Tensor, "T M B"], Float[Tensor, "T M B"]]:
        """Return attention A, and λ of every layer by the Frobenius norm and by the token (1 without a residual)."""
        x, kernels, frobenius, token = self._embedded(tokens), [], [], []
        for t in range(self.layers):
            out, A, a = self._layer(x, t)
            kernels.append(A)
            frobenius.append(self._mixing(a.float().norm(dim=(-2, -1)), x.float().norm(dim=(-2, -1))))
            token.append(self._mixing(a.float().norm(dim=-1), x.float().norm(dim=-1)).mean(-1))
            x = out
        return torch.stack(kernels), torch.stack(frobenius), torch.stack(token)

    def _mixing(self, branch: Tensor, stream: Tensor) -> Tensor:
        return branch / (branch + stream) if self.residual else torch.ones_like(branch)

    def _weight(self, name: str) -> Tensor:
        return self.weights[name].to(self.dtype)

    def _embedded(self, tokens: Tensor) -> Tensor:
        return (tokens + self.addition if self.added else tokens).to(self.dtype)

    def _layer(self, x: Tensor, t: int, *, only_query: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Return a layer's output, its attention and its branch; of the last token alone if only that is read."""
        M, B, N, d = x.shape
        W_q, W_k, W_v = (self._weight(f"{name}_{t}") for name in ("query", "key", "value"))
        W_q = W_q * d**-0.5  # the smallest thing that the temperature can be put on
        asking = x[:, :, -1:] if only_query else x
        limits = self.limits[:, :, -1:] if only_query else self.limits
        if self.rotary:
            q, k = _applied(asking, W_q), self._turned(_applied(x, W_k), 0)
            q = self._turned(q, N - asking.shape[2])
        else:  # X W_Q (X W_K)ᵀ = X (W_Q W_Kᵀ) Xᵀ: one product with all the tokens less
            q, k = _applied(asking, W_q @ W_k.mT), x
        room = limits.to(x.dtype).expand(M, B, -1, -1).flatten(0, 1)
        parts = (part.flatten(0, 1) for part in (q, k, x))
        mixed, A = _Attention.apply(*parts, room)  # type: ignore[no-untyped-call]
        a = _applied(mixed.view(asking.shape), W_v)
        return (asking + a if self.residual else a), A.view(M, B, -1, N), a

    def _turned(self, x: Tensor, start: int) -> Tensor:
        """Rotate pairs of components by the position's angles: (M, B, N, d), positions from ``start``."""
        turns = self.turns[:, start : start + x.shape[2]].to(x.dtype)
        cos, sin = turns[:, None].expand(-1, *x.shape[1:]).contiguous()
        return _Rotation.apply(x, cos, sin)  # type: ignore[no-untyped-call, no-any-return]


class _Attention(torch.autograd.Function):
    """softmax(q kᵀ + room) values, and the softmax itself, which no gradient goes through.

    The derivative is written out because autograd's of k has its axes exchanged in memory, and what is added to such a
    tensor takes seven times as long.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        q: Float[Tensor, "S Q d"],
        k: Float[Tensor, "S N d"],
        values: Float[Tensor, "S N d"],
        room: Float[Tensor, "S Q N"],
    ) -> tuple[Float[Tensor, "S Q d"], Float[Tensor, "S Q N"]]:
        A = torch.softmax(torch.baddbmm(room, q, k.mT), -1, dtype=torch.float32)
        ctx.save_for_backward(q, k, values, A)
        ctx.mark_non_differentiable(A)
        return A.to(q.dtype) @ values, A

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:  # type: ignore[override]
        q, k, values, A = ctx.saved_tensors
        of_A = (g @ values.mT).float()
        logits = torch.ops.aten._softmax_backward_data(of_A, A, -1, torch.float32).to(g.dtype)
        return logits @ k, logits.mT @ q, A.to(g.dtype).mT @ g, None


class _Rotation(torch.autograd.Function):
    """x cos + (x with its halves exchanged) sin; tables as large as x, for to stretch a small one takes longer."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, x: Float[Tensor, "M B N d"], cos: Float[Tensor, "B N d"], sin: Float[Tensor, "B N d"]
    ) -> Float[Tensor, "M B N d"]:
        ctx.save_for_backward(cos, sin)
        return x * cos + _exchanged(x) * sin

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        cos, sin = ctx.saved_tensors
        return g * cos - _exchanged(g) * sin, None, None


def _exchanged(x: Tensor) -> Tensor:
    """Return the last axis with its halves exchanged."""
    return torch.cat(x.chunk(2, -1)[::-1], -1)


def _applied(x: Tensor, W: Tensor) -> Tensor:
    """Multiply all tokens of a member with its matrix: (M, B, N, d) and (M, d, e)."""
    return (x.reshape(len(x), -1, x.shape[-1]) @ W).view(*x.shape[:-1], W.shape[-1])


def shape_of(setting: Setting) -> tuple[object, ...]:
    """Return what settings must share for their networks to be computed as one.

    >>> from posbias.training.retrieval.settings import preset
    >>> len({shape_of(s) for s in preset("figure4")})
    6
    """
    t, k = setting.task, setting.network
    return (t.items, t.labels, t.dimension, k.hidden, k.layers, k.residual, k.encoding == "rope")


def _initial(sizes: dict[str, tuple[int, int]], seed: int) -> dict[str, Tensor]:
    """Return a member's first weights: normal with variance 1 / fan-in (2 / fan-in before a ReLU), biases 0."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, size in sizes.items():
        variance = (2 if name in ("hidden.0", "hidden.1") else 1) / size[0]
        weights[name] = torch.randn(*size, generator=generator) * variance**0.5
        if name.startswith("hidden"):
            weights[name.replace("hidden", "bias")] = torch.zeros(size[1])
    return weights


def _limits(network: Network, N: int) -> np.ndarray:
    """Return what is added to the logits: -inf where the mask forbids, the decay elsewhere."""
    i, j = np.arange(N)[:, None], np.arange(N)[None, :]
    decay = -network.slope * np.maximum(i - j, 0) if network.encoding == "decay" else np.zeros((N, N))
    return np.where(network.mask.matrix(N), decay, -np.inf)


def _sinusoids(N: int, d: int) -> np.ndarray:
    """Return the table sin(p / 10000^(2k/d)), cos(…) of Vaswani et al. (2017)."""
    angles = np.arange(N)[:, None] * BASE ** (-2 * np.arange(d // 2) / d)
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(N, -1)[:, :d] if d > 1 else np.zeros((N, d))
