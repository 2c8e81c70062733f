"""The second moment of a gradient that walks back through layers drawn independently, and when less is enough.

A layer has one Jacobian J for each prompt, an nd × nd matrix whose rows and columns count positions first and features
second. Going back, a gradient g becomes Jᵀg; if every layer draws its prompt anew, E[g gᵀ] follows a linear recursion.
It closes on the n × n inner products of the positions' gradients where maps treat all directions alike (the law of an
untrained network), and on n sizes where all maps keep one direction (the aligned sum).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from jaxtyping import Float

from posbias.rollout.kernels import attention_kernel
from posbias.rollout.masks import causal


def layer_jacobians(
    A: Float[np.ndarray, "T H n n"], maps: Float[np.ndarray, "T S H d d"]
) -> Float[np.ndarray, "T S nd nd"]:
    """Return I + Σ_h A_h ⊗ M_h for each layer and prompt: attention with a skip, its weights held fixed.

    >>> layer_jacobians(np.array([[[[1.0, 0.0], [0.5, 0.5]]]]), np.array([[[[[2.0]]]]]))[0, 0].tolist()
    [[3.0, 0.0], [1.0, 2.0]]
    """
    T, S, nd = *maps.shape[:2], A.shape[-1] * maps.shape[-1]
    branches = np.einsum("thij,tshab->tsiajb", A, maps)
    return np.eye(nd) + branches.reshape(T, S, nd, nd)


def second_moments(
    jacobians: Float[np.ndarray, "T S nd nd"], top: Float[np.ndarray, "nd nd"]
) -> Float[np.ndarray, "depths nd nd"]:
    """Return E[g gᵀ] below each layer and above the last: 𝔾_{t-1} = mean over prompts s of J_t(s)ᵀ 𝔾_t J_t(s).

    T + 1 matrices, that of the input first; ``top`` is the last. First layer first in ``jacobians``, its S prompts
    alike in weight. Exact if layers draw their prompts independently of each other and of the gradient at the top.

    Source: this project, theorem on second moments in the chapter on the ladder.

    >>> second_moments(np.array([[[[1.0]], [[3.0]]]] * 2), np.eye(1)).ravel().tolist()
    [25.0, 5.0, 1.0]
    """
    moments = [top]
    for J in jacobians[::-1]:
        moments.append(np.mean(J.mT @ moments[-1] @ J, axis=0))
    return np.stack(moments[::-1])


def block_traces(moment: Float[np.ndarray, "nd nd"], n: int) -> Float[np.ndarray, "n n"]:
    """Return the traces of the d × d blocks of E[g gᵀ]: inner products E⟨g_i, g_j⟩, mean squares on the diagonal.

    >>> block_traces(np.diag([1.0, 2.0, 3.0, 4.0]), 2).tolist()
    [[3.0, 0.0], [0.0, 7.0]]
    """
    return np.einsum("iaja->ij", moment.reshape(n, len(moment) // n, n, -1))


def gradients_of_draws(
    jacobians: Float[np.ndarray, "T S nd nd"], top: Float[np.ndarray, "nd"], *, same_prompt: bool = False
) -> Float[np.ndarray, "draws nd"]:
    """Return the gradient at the input for every choice of prompts: S^T of them, or S with one prompt for all layers.

    >>> gradients_of_draws(np.array([[[[1.0]], [[3.0]]]] * 2), np.ones(1)).ravel().tolist()
    [1.0, 3.0, 3.0, 9.0]
    >>> gradients_of_draws(np.array([[[[1.0]], [[3.0]]]] * 2), np.ones(1), same_prompt=True).ravel().tolist()
    [1.0, 9.0]
    """
    if same_prompt:
        g = np.broadcast_to(top, (jacobians.shape[1], top.size))
        for J in jacobians[::-1]:
            g = np.einsum("sx,sxy->sy", g, J)
        return g
    g = top[None]
    for J in jacobians[::-1]:
        g = (g @ J).reshape(-1, top.size)
    return g


def law_moments(
    A: Float[np.ndarray, "T H n n"], gains: Float[np.ndarray, "T H"], top: Float[np.ndarray, "n n"]
) -> Float[np.ndarray, "depths n n"]:
    """Return G_{t-1} = G_t + Σ_h c_h² A_hᵀ G_t A_h from the top down, the input's first: second moments' block traces.

    Exact where maps have mean zero, E M_h M_hᵀ = c_h² I, and E M_h M_h'ᵀ = 0 for two heads of one layer.

    Source: this project, the law of an untrained network.

    >>> law_moments(np.array([[[[1.0, 0.0], [0.5, 0.5]]]]), np.array([[2.0]]), np.diag([0.0, 1.0]))[0].tolist()
    [[1.0, 1.0], [1.0, 2.0]]
    """
    moments = [top]
    for A_t, c in zip(A[::-1], gains[::-1], strict=True):
        G = moments[-1]
        moments.append(G + np.einsum("h,hij->ij", c**2, A_t.mT @ G @ A_t))
    return np.stack(moments[::-1])


def aligned_sizes(
    A: Float[np.ndarray, "T H n n"], gains: Float[np.ndarray, "T H"], top: Float[np.ndarray, "n"]
) -> Float[np.ndarray, "depths n"]:
    """Return v_{t-1} = v_t (I + Σ_h c_h A_h) from the top down, the input's first: the aligned sum, not normalised.

    The sizes of the positions' gradients where M_hᵀu = c_h u for one direction u, that of the gradient at the top; an
    upper bound on them where c_h is the operator norm of M_h.

    Source: this project; the bound is theorem 5.1 of Barbero et al. 2024 (arXiv 2406.04267) with value maps.

    >>> aligned_sizes(np.array([[[[1.0, 0.0], [0.5, 0.5]]]]), np.array([[2.0]]), np.array([0.0, 1.0]))[0].tolist()
    [1.0, 2.0]
    """
    sizes = [top]
    for A_t, c in zip(A[::-1], gains[::-1], strict=True):
        sizes.append(sizes[-1] + np.einsum("h,i,hij->j", c, sizes[-1], A_t))
    return np.stack(sizes[::-1])


@dataclass(frozen=True)
class Example:
    """Hold a small network with its maps on S prompts; :func:`example` makes one."""

    A: Float[np.ndarray, "T H n n"]
    maps: Float[np.ndarray, "T S H d d"]
    b: Float[np.ndarray, "d"]  # The gradient at the last token's output, of length 1

    @property
    def top(self) -> Float[np.ndarray, "nd"]:
        """The gradient above the last layer, all of it at the last token."""
        return np.kron(np.eye(self.A.shape[-1])[-1], self.b)

    @property
    def random_gains(self) -> Float[np.ndarray, "T H"]:
        """What maps make of a random direction, in root mean square: ‖M‖_F/√d."""
        return np.sqrt((self.maps**2).sum((-2, -1)).mean(1) / self.b.size)

    @property
    def direction_gains(self) -> Float[np.ndarray, "T H"]:
        """What maps make of b, in root mean square: ‖Mᵀb‖."""
        return np.sqrt(((self.b @ self.maps) ** 2).sum(-1).mean(1))

    @property
    def operator_norms(self) -> Float[np.ndarray, "T H"]:
        """What maps make of a direction at most: the largest ‖M‖ over prompts."""
        return np.linalg.norm(self.maps, 2, axis=(-2, -1)).max(1)


EXAMPLES = {
    "random signs": "law",
    "random signs of one map": "law",
    "rank one, any direction": "law",
    "one direction kept": "aligned sum",
    "half turn": "neither",
    "one subspace": "neither",
    "nonzero mean": "neither",
}
"""Kinds of maps, and the closed form whose conditions they meet."""


def example(kind: str, seed: int, *, n: int = 8, d: int = 4, T: int = 4, H: int = 2) -> Example:
    """Return a causal network with random attention and maps of a kind of :data:`EXAMPLES`, gains from 0.5 to 1.5.

    Its prompts are the 2^H choices of a sign for each head; of these "one direction kept" and "half turn" have the
    first, and "rank one, any direction" has each d times.
    """
    rng = np.random.default_rng(seed)
    A = attention_kernel(2 * rng.standard_normal((T, H, n, n)), causal())
    c, b = rng.uniform(0.5, 1.5, (T, 1, H, 1, 1)), rng.standard_normal(d)
    b /= np.linalg.norm(b)
    U, along = np.linalg.qr(rng.standard_normal((T, 1, H, d, d)))[0], np.outer(b, b)
    signs = np.array(list(product((1.0, -1.0), repeat=H)))[None, :, :, None, None]
    if kind == "random signs":
        maps = signs * U
    elif kind == "random signs of one map":
        maps = signs * np.eye(d)
    elif kind == "rank one, any direction":  # √d u_a vᵀ for a = 1..d: the mean of M Mᵀ is I if v has length 1
        rank_one = np.sqrt(d) * np.einsum("tshxa,tshy->atshxy", U, U[..., 0])
        maps = np.concatenate([signs * M for M in rank_one], axis=1)
    elif kind == "one direction kept":  # Mᵀb = b, and anything else
        maps = along + (np.eye(d) - along) @ rng.standard_normal((T, 1, H, d, d))
    elif kind == "half turn":  # a multiple of one rotation, but not of that which leaves b alone
        maps = np.broadcast_to(-np.eye(d), (T, 1, H, d, d))
    elif kind == "one subspace":  # ‖M‖_F/√d = 1, all of it along b
        maps = signs * np.sqrt(d) * along
    elif kind == "nonzero mean":  # the first choice of signs, all +, counts for half of all prompts
        maps = np.concatenate([signs, *[signs[:, :1]] * (signs.shape[1] - 2)], axis=1) * np.eye(d)
    else:
        raise ValueError(f"kind: expected one of {', '.join(EXAMPLES)}, received {kind}")
    return Example(A, c * maps, b)
