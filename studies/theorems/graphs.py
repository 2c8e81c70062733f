"""Masks as directed graphs: who reaches whom in how many layers, and what that bounds.

An edge (j, i) is a key j that query i may attend to; one layer is one step along an edge. ``allowed`` is the
graph's boolean (query, key) matrix, as :meth:`posbias.rollout.masks.Mask.matrix` gives it, self-loops included.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Bool, Float


def hop_distances(allowed: Bool[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """Return the fewest layers in which key j gets into query i; 0 on the diagonal, inf if it never does.

    >>> from posbias.rollout import masks
    >>> hop_distances(masks.sliding_window(2).matrix(3))
    array([[ 0., inf, inf],
           [ 1.,  0., inf],
           [ 2.,  1.,  0.]])
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import shortest_path

    return shortest_path(csr_array(allowed.astype(np.int8)), unweighted=True)


def closed_groups(allowed: Bool[np.ndarray, "n n"]) -> list[list[int]]:
    """List the groups of tokens that reach one another and attend to nothing outside: where influence ends up.

    Closed communicating classes of the walk from query to key. There is a centre node exactly if there is one
    group, and the group is then the set of centre nodes.

    Source: ours; for one group it is definition 3.1 of Wu et al. 2025.

    >>> closed_groups(np.array([[1, 0, 0], [0, 1, 0], [1, 1, 1]], dtype=bool))
    [[0], [1]]
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    count, label = connected_components(csr_array(allowed.astype(np.int8)), directed=True, connection="strong")
    groups = [np.flatnonzero(label == g) for g in range(count)]
    return sorted(group.tolist() for group in groups if not allowed[group][:, label != label[group[0]]].any())


def packed_documents(lengths: list[int]) -> Bool[np.ndarray, "n n"]:
    """Return the causal graph of documents packed into one sequence: j ≤ i within the same document.

    >>> packed_documents([1, 2]).astype(int)
    array([[1, 0, 0],
           [0, 1, 0],
           [0, 1, 1]])
    """
    document = np.repeat(np.arange(len(lengths)), lengths)
    return np.tri(document.size, dtype=bool) & (document[:, None] == document)


def window_hops(n: int, w: int) -> int:
    """Return M = ⌈(n - 1) / (w - 1)⌉: the layers in which the first token reaches the last through a window w.

    Source: Wu et al. 2025, theorem 4.2.

    >>> window_hops(9, 3)
    4
    """
    return -(-(n - 1) // (w - 1))


def log_window_bound(T: int, n: int, w: int, epsilon: float, j: int) -> Float[np.ndarray, "T"]:
    """Return log of C (1 - (j-1) ε^M)^(t/2M), M = ⌈(n-1)/(w-1)⌉, after t + 1 = 1..T layers.

    The paper says that a C < 1 exists. One that the proof supports is (1 - ε^M)^(1/M) once a block of M layers is
    complete, and (1 - ε)/(1 - (n-1) ε^M)^((M-2)/2M) before that, if there is a before (M ≥ 2): the larger of the two.
    ε is the smallest attention on an allowed key, at most 1/w, and j the key, 2..n: counted from 1.

    Source: Wu et al. 2025, theorem 4.2 and appendix B.2, with block indices counted anew.

    >>> log_window_bound(3, 3, 3, 0.25, 2).round(3).tolist()
    [-0.288, -0.432, -0.575]
    """
    M = window_hops(n, w)
    c = epsilon**M
    log_C = np.log1p(-c) / M
    if M >= 2:
        log_C = max(log_C, np.log1p(-epsilon) - (M - 2) / (2 * M) * np.log1p(-(n - 1) * c))
    return log_C + np.arange(T) / (2 * M) * np.log1p(-(j - 1) * c)


def log_block_bound(T: int, n: int, w: int, epsilon: float, j: int) -> Float[np.ndarray, "T"]:
    """Return ⌊t / M⌋ log(1 - (j-1) ε^M) after t = 1..T layers: the theorem without the loss of a factor 2.

    Every block of M layers takes its factor; what is left over takes none.

    Source: ours, from the blocks of Wu et al. 2025, appendix B.2.

    >>> np.exp(log_block_bound(4, 5, 3, 0.25, 3)).round(3).tolist()
    [1.0, 0.875, 0.875, 0.766]
    """
    M = window_hops(n, w)
    return np.arange(1, T + 1) // M * np.log1p(-(j - 1) * epsilon**M)


def log_jump_bound(T: int, n: int, w: int, epsilon: float, j: int) -> Float[np.ndarray, "T"]:
    """Return log Pr(Bin(t, ε) ≤ ⌊(n-j)/(w-1)⌋) after t = 1..T layers: a bound on the mass from position j on.

    ε is in (0, 1]. In every layer the walk from the last query takes the
    longest step of the window with probability at least ε, and it never goes back up: that many of them carry it
    below j.

    Source: ours; equality for the kernel that takes the longest step with probability ε and stays otherwise.

    >>> np.exp(log_jump_bound(2, 3, 2, 0.5, 2)).round(2).tolist()
    [1.0, 0.75]
    """
    from scipy.stats import binom

    return binom.logcdf((n - j) // (w - 1), np.arange(1, T + 1), epsilon)


def uniform_attention(allowed: Bool[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """Return the kernel that attends evenly to all allowed keys.

    >>> uniform_attention(np.tri(2, dtype=bool))
    array([[1. , 0. ],
           [0.5, 0.5]])
    """
    count = allowed.sum(axis=1, keepdims=True)
    return np.asarray(allowed / count)


def extreme_influence(
    allowed: Bool[np.ndarray, "n n"], epsilon: float, T: int, which: Literal["largest", "smallest"] = "largest"
) -> Float[np.ndarray, "T n n"]:
    """Return max (or min) of P_t[i, j] over all kernels with at least ε on every edge, for every depth t = 1..T.

    Column j of P_t is A_t times column j of P_{t-1}: rows choose independently, and the best row puts ε on each of its
    edges and the rest on the key that has most (least) of j. So no bound that uses ε alone can be below the largest
    influence, and a formula that is nowhere below it is true.

    Source: ours (value iteration).

    >>> extreme_influence(np.tri(2, dtype=bool), 0.25, 2)[:, 1].tolist()
    [[0.75, 0.75], [0.9375, 0.5625]]
    """
    degree = allowed.sum(axis=1)
    free = np.maximum(1 - degree * epsilon, 0.0)[:, None]
    pick, outside = (np.max, -np.inf) if which == "largest" else (np.min, np.inf)
    P, history = np.eye(len(allowed)), np.empty((T, *allowed.shape))
    for t in range(T):
        chosen = pick(np.where(allowed[:, :, None], P[None], outside), axis=1)  # query, key j
        P = epsilon * (allowed @ P) + free * chosen
        history[t] = P
    return history
