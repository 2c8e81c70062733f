"""Masks as directed graphs: who reaches whom in how many layers, and what that bounds.

An edge (j, i) is a key j that query i may attend to; one layer is one step along an edge. ``allowed`` is the
graph's boolean (query, key) matrix, as :meth:`posbias.rollout.masks.Mask.matrix` gives it, self-loops included.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

from posbias import errors
from posbias.rollout.masks import Mask


def mask_graph(mask: Mask, n: int) -> Bool[np.ndarray, "n n"]:
    """Return the graph of ``mask`` on n tokens, refusing a window or prefix that is longer than the sequence.

    Source: Wu et al. 2025, section 3 and figure 1.

    >>> from posbias.rollout import masks
    >>> mask_graph(masks.causal(), 2).astype(int)
    array([[1, 0],
           [1, 1]])
    """
    allowed = mask.matrix(n)
    if mask.kind in ("window", "prefix") and mask.width > n:
        raise errors.invalid(mask.kind, f"a width from 1 to n = {n}", mask.width)
    return allowed


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

    return shortest_path(csr_array(_graph(allowed).astype(np.int8)), unweighted=True)


def centre_nodes(allowed: Bool[np.ndarray, "n n"]) -> Int[np.ndarray, "_"]:
    """Return the tokens from which every token is reachable, in order; empty if there is none.

    Source: Wu et al. 2025, definition 3.1.

    >>> from posbias.rollout import masks
    >>> centre_nodes(masks.prefix(2).matrix(4)).tolist()
    [0, 1]
    """
    return np.flatnonzero(np.isfinite(hop_distances(allowed)).all(axis=0))


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

    graph = _graph(allowed)
    count, label = connected_components(csr_array(graph.astype(np.int8)), directed=True, connection="strong")
    groups = [np.flatnonzero(label == g) for g in range(count)]
    return sorted(group.tolist() for group in groups if not graph[group][:, label != label[group[0]]].any())


def packed_documents(lengths: list[int]) -> Bool[np.ndarray, "n n"]:
    """Return the causal graph of documents packed into one sequence: j ≤ i within the same document.

    >>> packed_documents([1, 2]).astype(int)
    array([[1, 0, 0],
           [0, 1, 0],
           [0, 1, 1]])
    """
    sizes = [errors.positive_integer("lengths", length) for length in lengths]
    document = np.repeat(np.arange(len(sizes)), sizes)
    return np.tri(document.size, dtype=bool) & (document[:, None] == document)


def window_hops(n: int, w: int) -> int:
    """Return M = ⌈(n - 1) / (w - 1)⌉: the layers in which the first token reaches the last through a window w.

    Raises
    ------
    ValueError
        If w is not in 2..n (a window of 1 connects nothing), or n < 2.

    Source: Wu et al. 2025, theorem 4.2.

    >>> window_hops(9, 3)
    4
    """
    n = errors.positive_integer("n", n, minimum=2)
    if errors.positive_integer("window", w, minimum=2) > n:
        raise errors.invalid("window", f"a width from 2 to n = {n}", w)
    return -(-(n - 1) // (w - 1))


def log_window_bound(T: int, n: int, w: int, epsilon: float, j: int) -> Float[np.ndarray, "T"]:
    """Return log of C (1 - (j-1) ε^M)^(t/2M), M = ⌈(n-1)/(w-1)⌉, after t + 1 = 1..T layers.

    The paper says that a C < 1 exists. One that the proof supports is (1 - ε^M)^(1/M) once a block of M layers is
    complete, and (1 - ε)/(1 - (n-1) ε^M)^((M-2)/2M) before that, if there is a before (M ≥ 2): the larger of the two.

    Parameters
    ----------
    T
        Number of layers.
    n, w
        Tokens, and the width of the window, 2..n.
    epsilon
        Smallest attention on an allowed key, in (0, 1/w].
    j
        Position of the key in 1..n, here counted from 1; from 2 on, since all mass goes to the first.

    Source: Wu et al. 2025, theorem 4.2 and appendix B.2, with block indices counted anew.

    >>> log_window_bound(3, 3, 3, 0.25, 2).round(3).tolist()
    [-0.288, -0.432, -0.575]
    """
    M, c = _window_rate(n, w, epsilon, j)
    log_C = np.log1p(-c) / M
    if M >= 2:
        log_C = max(log_C, np.log1p(-epsilon) - (M - 2) / (2 * M) * np.log1p(-(n - 1) * c))
    return log_C + np.arange(T) / (2 * M) * np.log1p(-(j - 1) * c)


def log_block_bound(T: int, n: int, w: int, epsilon: float, j: int) -> Float[np.ndarray, "T"]:
    """Return ⌊t / M⌋ log(1 - (j-1) ε^M) after t = 1..T layers: the theorem without the loss of a factor 2.

    Arguments as in :func:`log_window_bound`. Every block of M layers takes its factor; what is left over takes none.

    Source: ours, from the blocks of Wu et al. 2025, appendix B.2.

    >>> np.exp(log_block_bound(4, 5, 3, 0.25, 3)).round(3).tolist()
    [1.0, 0.875, 0.875, 0.766]
    """
    M, c = _window_rate(n, w, epsilon, j)
    return np.arange(1, T + 1) // M * np.log1p(-(j - 1) * c)


def log_jump_bound(T: int, n: int, w: int, epsilon: float, j: int) -> Float[np.ndarray, "T"]:
    """Return log Pr(Bin(t, ε) ≤ ⌊(n-j)/(w-1)⌋) after t = 1..T layers: a bound on the mass from position j on.

    Arguments as in :func:`log_window_bound`, with ε in (0, 1]. In every layer the walk from the last query takes the
    longest step of the window with probability at least ε, and it never goes back up: that many of them carry it
    below j.

    Source: ours; equality for the kernel that takes the longest step with probability ε and stays otherwise.

    >>> np.exp(log_jump_bound(2, 3, 2, 0.5, 2)).round(2).tolist()
    [1.0, 0.75]
    """
    from scipy.stats import binom

    _window_rate(n, w, min(epsilon, 1 / w), j)
    if not 0 < epsilon <= 1:
        raise errors.invalid("epsilon", "a number in (0, 1]", epsilon)
    return binom.logcdf((n - j) // (w - 1), np.arange(1, T + 1), epsilon)


def _window_rate(n: int, w: int, epsilon: float, j: int) -> tuple[int, float]:
    """Return M and ε^M after checking the arguments of the three bounds."""
    M = window_hops(n, w)
    if not 0 < epsilon <= 1 / w:
        raise errors.invalid("epsilon", f"a number in (0, 1/w = {1 / w:.3g}]", epsilon)
    if errors.positive_integer("j", j, minimum=2) > n:
        raise errors.invalid("j", f"a position from 2 to n = {n}", j)
    return M, float(epsilon) ** M


def _graph(allowed: np.ndarray) -> np.ndarray:
    if allowed.shape[0] != allowed.shape[1]:
        raise errors.invalid("allowed", "a square (query, key) matrix", f"shape {allowed.shape}")
    if not allowed.diagonal().all():
        raise errors.invalid("allowed", "every token to see itself", f"none for {int(allowed.diagonal().argmin())}")
    return allowed
