"""Single paths of the gradient: which layers it hops in and over which position, and how the paths' vectors add up.

A path of two hops leaves the last position in the attention of layer s, arrives at a position m, and leaves that in the
attention of an earlier layer t for j; in all other layers it stays in the stream. Each path has a gradient of its own,
u_{s,t,m} at j, exact. All of them come from one forward pass in which the attention's outputs are cut loose: what goes
around an attention is then linear position by position (a D × D matrix each), and a hop is one backward through it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor, nn

from posbias import errors
from posbias.measure.instrument import Instrument
from posbias.measure.run import measured
from posbias.measure.study import Settings, Study
from posbias.measure.summary import shaved
from posbias.networks.hooks import given, hooked, rereturned, returned
from studies.ladder.gradients import POWERS


class Pathways:
    """Hold a prompt's forward pass so that single paths can be followed back through it.

    Attributes are matrices for each position, from cotangents of what leaves layer t: ``around[t]`` to cotangents of
    what enters it, past the attention; ``onto[t]`` to cotangents of the attention's output; ``home[t]`` from cotangents
    of what enters layer t to those of the input embedding, with no hop on the way; ``start`` is ∂p/∂x_T.

    Parameters
    ----------
    instrument
        Of the model.
    ids
        Token ids of one prompt, without padding.
    """

    def __init__(self, instrument: Instrument, ids: Int[Tensor, "n"]) -> None:
        self.T, self.n = instrument.T, len(ids)
        e = instrument.embeddings(ids[None]).requires_grad_(True)
        with torch.enable_grad(), _cut_loose(instrument) as self._cut:
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

        Parameters
        ----------
        s, t
            Layers of the first hop on the way back and of the second, t < s.
        first
            :meth:`one_hop` of layer s.
        together
            Positions m at a time.
        """
        if not 0 <= t < s < self.T:
            raise errors.invalid("s and t", f"0 ≤ t < s < {self.T}", f"{s} and {t}")
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

    Parameters
    ----------
    instrument
        Of the model.
    ids
        Token ids, without padding.
    """
    e = instrument.embeddings(ids).requires_grad_(True)
    with torch.enable_grad(), _cut_loose(instrument) as cut:
        p = instrument.logits(e).softmax(-1).amax(-1).sum()
        onto = torch.autograd.grad(p, cut.loose, retain_graph=True)
        found = []
        for x, a, c in zip(cut.streams[:-1], cut.outputs, onto, strict=True):
            back = torch.autograd.grad(a, x, c, retain_graph=True)[0]
            found.append(back if x is e else torch.autograd.grad(x, e, back, retain_graph=True)[0])
    return torch.stack(found)


@dataclass(frozen=True)
class PathReading:
    """Hold how the vectors of the paths to each position add up, for one prompt; first one hop, then two.

    Parameters
    ----------
    sizes
        (Σ ‖u‖^r)^{1/r} over the paths, for r in :data:`POWERS`.
    total
        ‖Σ u‖ over the same paths.
    middle
        Σ_{s,t} ‖Σ_m u_{s,t,m}‖: layers as sizes, positions in between as vectors.
    middle_random
        Σ_{s,t} (Σ_m ‖u_{s,t,m}‖²)^{1/2}: what that would be for unrelated directions.
    """

    sizes: Float[np.ndarray, "2 powers n"]
    total: Float[np.ndarray, "2 n"]
    middle: Float[np.ndarray, "n"]
    middle_random: Float[np.ndarray, "n"]


def read_pathways(instrument: Instrument, ids: Int[Tensor, "n"], *, together: int = 64) -> PathReading:
    """Follow every path of one hop and of two through a prompt, T of one for each j and T (T - 1) / 2 · n of two.

    Parameters
    ----------
    instrument
        Of the model.
    ids
        Token ids of one prompt.
    together
        Paths at a time.
    """
    paths = Pathways(instrument, ids)
    first = paths.one_hop()
    one = torch.stack([_applied(first[s], paths.home[s]) for s in range(paths.T)])
    n = paths.n
    powers = torch.tensor(POWERS, dtype=torch.float64)[:, None, None]
    sums = torch.stack([_sizes(one).pow(powers).sum(1), torch.zeros(len(POWERS), n, dtype=torch.float64)])
    total = torch.zeros_like(one[0])
    middle, middle_random = torch.zeros(n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
    for s in range(1, paths.T):
        for t in range(s):
            u = paths.two_hops(s, t, first[s], together)
            size, vector = _sizes(u), u.sum(0)
            sums[1] += size.pow(powers).sum(1)
            total += vector
            middle += _sizes(vector)
            middle_random += size.square().sum(0).sqrt()
    return PathReading(
        sizes=(sums ** (1 / powers[:, 0])).numpy(),
        total=torch.stack([_sizes(one.sum(0)), _sizes(total)]).numpy(),
        middle=middle.numpy(),
        middle_random=middle_random.numpy(),
    )


def measure_pathways(settings: Settings) -> xr.Dataset:
    """Follow the paths of one hop and of two through every prompt.

    Return means over prompts of the fields of :class:`PathReading`, with the provenance of a measurement.

    Parameters
    ----------
    settings
        As for :func:`~posbias.measure.run.measure`; the batch size is not used.
    """
    study = Study(settings)
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


@dataclass
class _Cut:
    """What the hooks keep of a forward pass in which the stream goes on from a copy of each attention's output."""

    streams: list[Tensor] = field(default_factory=list)  # x_0 … x_T
    outputs: list[Tensor] = field(default_factory=list)  # a_t, which depends on x_t
    loose: list[Tensor] = field(default_factory=list)  # the copy, which depends on nothing


@contextmanager
def _cut_loose(instrument: Instrument) -> Iterator[_Cut]:
    cut = _Cut()

    def layer_in(module: nn.Module, args: Any, kwargs: Any) -> None:
        cut.streams.append(given(args, kwargs))

    def layer_out(module: nn.Module, args: Any, output: Any) -> None:
        cut.streams.append(returned(output))

    def attention_out(module: nn.Module, args: Any, output: Any) -> Any:
        cut.outputs.append(returned(output))
        cut.loose.append(cut.outputs[-1].detach().requires_grad_(True))
        return rereturned(output, cut.loose[-1])

    layers, output_of = instrument.layers, instrument.family.output_of
    after = [(output_of(layer), attention_out) for layer in layers]
    with hooked([(layer, layer_in) for layer in layers], [*after, (layers[-1], layer_out)]):
        yield cut


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


def _sizes(u: Tensor) -> Tensor:
    return u.double().norm(dim=-1).cpu()
