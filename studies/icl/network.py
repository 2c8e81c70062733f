"""An attention-only network of the retrieval task, as its paper writes it down."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from studies.icl.settings import Network, Setting

BASE = 10000.0
"""Base of the wavelengths of the sinusoidal and of the rotary encoding (Wu et al. 2025, appendix J)."""


class AttentionOnly(nn.Module):
    """Attention layers without feed-forward blocks, and an MLP that reads the last token.

    A layer computes logits = X W_Q (X W_K)ᵀ / √d plus mask and encoding, A = softmax(logits), and returns A X W_V, with
    a residual X + A X W_V. Products are computed in ``dtype``; weights, softmax and the label's logits have 32 bits.

    Source: Wu et al. 2025, equation 1 and appendix J.
    """

    limits: Tensor
    addition: Tensor
    turns: Tensor

    def __init__(self, setting: Setting, seed: int, *, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        task, network = setting.task, setting.network
        self.layers, self.residual, self.encoding = network.layers, network.residual, network.encoding
        self.dtype = dtype
        N, d, h = task.tokens, task.dimension, network.hidden
        sizes = {f"{name}.{t}": (d, d) for t in range(network.layers) for name in ("query", "key", "value")}
        sizes |= {"hidden.0": (d, h), "hidden.1": (h, h), "hidden.2": (h, task.labels)}
        drawn = _initial(sizes, seed)
        self.weights = nn.ParameterDict({name.replace(".", "_"): nn.Parameter(x) for name, x in drawn.items()})
        self.register_buffer("limits", torch.from_numpy(_limits(network, N)).float())
        self.register_buffer("addition", torch.from_numpy(_sinusoids(N, d)).float())
        angles = np.arange(N)[:, None] * BASE ** (-2 * (np.arange(d) % (d // 2)) / d)
        signs = np.where(np.arange(d) < d // 2, -1, 1)  # of the other half of a pair
        self.register_buffer("turns", torch.from_numpy(np.stack([np.cos(angles), signs * np.sin(angles)])).float())

    def forward(self, tokens: Float[Tensor, "B N d"]) -> Float[Tensor, "B L"]:
        """Return the logits of the query's label, in 32 bits."""
        x = self._embedded(tokens)
        for t in range(self.layers):
            x = self._layer(x, t, only_query=t == self.layers - 1)[0]
        x = x[:, -1]
        for k in range(3):
            x = torch.addmm(self._weight(f"bias_{k}"), x, self._weight(f"hidden_{k}"))
            x = torch.relu(x) if k < 2 else x
        return x.float()

    @torch.no_grad()
    def inside(
        self, tokens: Float[Tensor, "B N d"]
    ) -> tuple[Float[Tensor, "T B N N"], Float[Tensor, "T B"], Float[Tensor, "T B"]]:
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
        return (tokens + self.addition if self.encoding == "sinusoidal" else tokens).to(self.dtype)

    def _layer(self, x: Tensor, t: int, *, only_query: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Return a layer's output, its attention and its branch; of the last token alone if only that is read."""
        W_q, W_k, W_v = (self._weight(f"{name}_{t}") for name in ("query", "key", "value"))
        W_q = W_q * x.shape[-1] ** -0.5  # the smallest tensor that the temperature can be applied to
        first = x.shape[1] - 1 if only_query else 0
        asking = x[:, first:]
        if self.encoding == "rope":
            q, k = self._turned(asking @ W_q, first), self._turned(x @ W_k, 0)
        else:  # X W_Q (X W_K)ᵀ = X (W_Q W_Kᵀ) Xᵀ: one product with all the tokens less
            q, k = asking @ (W_q @ W_k.mT), x
        room = self.limits[first:].to(x.dtype).expand(len(x), -1, -1)
        mixed, A = _Attention.apply(q, k, x, room)  # type: ignore[no-untyped-call]
        a = mixed @ W_v
        return (asking + a if self.residual else a), A, a

    def _turned(self, x: Tensor, first: int) -> Tensor:
        """Rotate pairs of components by the position's angles, positions from ``first``."""
        cos, sin = self.turns[:, first:].to(x.dtype)
        return x * cos + torch.cat(x.chunk(2, -1)[::-1], -1) * sin


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


def _initial(sizes: dict[str, tuple[int, int]], seed: int) -> dict[str, Tensor]:
    """Return the initial weights: normal with variance 1 / fan-in (2 / fan-in before a ReLU), biases 0."""
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
