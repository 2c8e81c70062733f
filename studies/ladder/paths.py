"""Single paths of the gradient: which layers it hops in and over which position, and how the paths' vectors add up.

A path of two hops leaves the last position in the attention of layer s, arrives at a position m, and leaves that in the
attention of an earlier layer t for j; in all other layers it stays in the stream. Each path has a gradient of its own,
u_{s,t,m} at j, exact. All of them come from one forward pass in which the attention's outputs are cut loose: what goes
around an attention is then linear position by position (a D × D matrix each), and a hop is one backward through it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from posbias.measure.instrument import Instrument
from posbias.measure.run import measured
from posbias.measure.session import Session
from posbias.measure.settings import Settings
from posbias.measure.summary import shaved
from studies.ladder.gradients import POWERS, kept_streams, sizes_of


class Pathways:
    """Hold a prompt's forward pass so that single paths can be followed back through it.

    Attributes are matrices for each position, from cotangents of what leaves layer t: ``around[t]`` to cotangents of
    what enters it, past the attention; ``onto[t]`` to cotangents of the attention's output; ``home[t]`` from cotangents
    of what enters layer t to those of the input embedding, with no hop on the way; ``start`` is ∂p/∂x_T.
    """

    def __init__(self, instrument: Instrument, ids: Int[Tensor, "n"]) -> None:
        self.T, self.n = instrument.T, len(ids)
        e = instrument.embeddings(ids[None]).requires_grad_(True)
        with torch.enable_grad(), kept_streams(instrument, loose=True) as self._cut:
            p = instrument.logits(e)[0].softmax(-1).amax(-1)
        streams, loose = self._cut.streams, self._cut.loose
        self.start = torch.autograd.grad(p, streams[-1])[0][0]
        pairs = [_matrices(streams[t + 1], [streams[t], loose[t]]) for t in range(self.T)]
        self.around, self.onto = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        self.home = _matrices(streams[0], [e])
        for matrix in self.around[:-1]:
            self.home.append(matrix @ self.home[-1])

    def hop(self, t: int, cotangents: Float[Tensor, "K n D"]) -> Float[Tensor, "K n D"]:
        """Return what cotangents of the attention's output in layer t become at what enters the layer."""
        x, a = self._cut.streams[t], self._cut.outputs[t]
        back = torch.autograd.grad(a, x, cotangents[:, None], retain_graph=True, is_grads_batched=True)
        return back[0][:, 0]

    def one_hop(self) -> Float[Tensor, "T n D"]:
        """Return the gradient of p by what enters layer s along the paths whose only hop is in layer s, for every s."""
        c, found = self.start, []
        for s in range(self.T - 1, -1, -1):
            found.append(self.hop(s, _applied(c, self.onto[s])[None])[0])
            c = _applied(c, self.around[s])
        return torch.stack(found[::-1])

    def two_hops(self, s: int, t: int, first: Float[Tensor, "n D"], together: int = 64) -> Float[Tensor, "n n E"]:
        """Return u_{s,t,m} at every j by input embedding, for every m (the first axis).

        s is the layer of the first hop on the way back, t < s that of the second, and ``first`` is :meth:`one_hop` of
        layer s; positions m go some together.
        """
        c = first
        for layer in range(s - 1, t, -1):
            c = _applied(c, self.around[layer])
        c = _applied(c, self.onto[t])
        parts = []
        for m in range(0, self.n, together):
            one = torch.zeros(min(together, self.n - m), *c.shape, dtype=c.dtype, device=c.device)
            at = torch.arange(len(one), device=c.device)
            one[at, m + at] = c[m : m + len(one)]
            parts.append(_applied(self.hop(t, one), self.home[t]))
        return torch.cat(parts)


def single_hops(instrument: Instrument, ids: Int[Tensor, "B n"]) -> Float[Tensor, "T B n E"]:
    """Return for every layer the gradient of p by input embedding along the path whose only hop is in that layer.

    One backward pass a layer, without the matrices of :class:`Pathways`.
    """
    e = instrument.embeddings(ids).requires_grad_(True)
    with torch.enable_grad(), kept_streams(instrument, loose=True) as cut:
        p = instrument.logits(e).softmax(-1).amax(-1).sum()
        onto = torch.autograd.grad(p, cut.loose, retain_graph=True)
        found = []
        for x, a, c in zip(cut.streams[:-1], cut.outputs, onto, strict=True):
            back = torch.autograd.grad(a, x, c, retain_graph=True)[0]
            found.append(back if x is e else torch.autograd.grad(x, e, back, retain_graph=True)[0])
    return torch.stack(found)


@dataclass(frozen=True)
class PathReading:
    """Hold how the vectors of the paths to each position add up, for one prompt; first one hop, then two."""

    sizes: Float[np.ndarray, "2 powers n"]  # (Σ ‖u‖^r)^{1/r} over the paths, for r in POWERS
    total: Float[np.ndarray, "2 n"]  # ‖Σ u‖ over the same paths
    middle: Float[np.ndarray, "n"]  # Σ_{s,t} ‖Σ_m u_{s,t,m}‖: layers as sizes, positions in between as vectors
    middle_random: Float[np.ndarray, "n"]  # Σ_{s,t} (Σ_m ‖u_{s,t,m}‖²)^{1/2}: that for unrelated directions


def read_pathways(instrument: Instrument, ids: Int[Tensor, "n"], *, together: int = 64) -> PathReading:
    """Follow every path of one hop and of two through a prompt, T of one for each j and T (T - 1) / 2 · n of two."""
    paths = Pathways(instrument, ids)
    first = paths.one_hop()
    one = torch.stack([_applied(first[s], paths.home[s]) for s in range(paths.T)])
    n = paths.n
    powers = torch.tensor(POWERS, dtype=torch.float64)[:, None, None]
    sums = torch.stack([sizes_of(one).pow(powers).sum(1), torch.zeros(len(POWERS), n, dtype=torch.float64)])
    total = torch.zeros_like(one[0])
    middle, middle_random = torch.zeros(n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
    for s in range(1, paths.T):
        for t in range(s):
            u = paths.two_hops(s, t, first[s], together)
            size, vector = sizes_of(u), u.sum(0)
            sums[1] += size.pow(powers).sum(1)
            total += vector
            middle += sizes_of(vector)
            middle_random += size.square().sum(0).sqrt()
    return PathReading(
        sizes=(sums ** (1 / powers[:, 0])).numpy(),
        total=torch.stack([sizes_of(one.sum(0)), sizes_of(total)]).numpy(),
        middle=middle.numpy(),
        middle_random=middle_random.numpy(),
    )


def measure_pathways(settings: Settings) -> xr.Dataset:
    """Follow the paths of one hop and of two through every prompt; means over prompts of :class:`PathReading`."""
    study = Session(settings)
    results = measured(study)
    found = [read_pathways(study.instrument, prompt) for prompt in study.ids]
    dims = {"sizes": ("hop", "power", "position"), "total": ("hop", "position")}
    dims |= {"middle": ("position",), "middle_random": ("position",)}
    arrays = {k: np.mean([getattr(x, k) for x in found], axis=0).astype(np.float32) for k in dims}
    return xr.Dataset(
        {k: (dims[k], shaved(x)) for k, x in arrays.items()},
        coords={"hop": [1, 2], "power": list(POWERS)},
        attrs=results.attrs,
    )


def _matrices(y: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    """Return ∂y_i/∂x_i at every position i for maps that work position by position, (n, D of y, D of x)."""
    if len(inputs) == 1 and inputs[0] is y:
        return [torch.eye(y.shape[-1], dtype=y.dtype, device=y.device).expand(y.shape[1], -1, -1)]
    rows = torch.eye(y.shape[-1], dtype=y.dtype, device=y.device)[:, None, None].expand(-1, *y.shape[:2], -1)
    found = torch.autograd.grad(y, inputs, rows, retain_graph=True, is_grads_batched=True)
    return [x[:, 0].transpose(0, 1) for x in found]


def _applied(c: Float[Tensor, "*K n D"], matrix: Float[Tensor, "n D E"]) -> Float[Tensor, "*K n E"]:
    """Return c_i M_i at every position i, for one set of cotangents or a stack of them."""
    return torch.einsum("...id,ide->...ie", c, matrix)
