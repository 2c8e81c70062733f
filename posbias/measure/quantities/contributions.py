"""the share of each token's part in what a token becomes in a layer, without gradients.

In a layer token i goes on as y_i = x_i + a_i, which is a sum of parts T_ij = Σ_h A_h[i,j] W_O^h v_h[j] + δ_ij x_i, one
for each token j that it sees, and of biases, which are nobody's. The contribution of j is how much shorter y_i would be
without its part, max(0, ‖y_i‖₁ - ‖y_i - T_ij‖₁), as a share of its row: a causal Markov kernel, as attention is one.

Source: Ferrando, Gállego and Costa-jussà 2022 (arXiv 2203.04212), for a residual sum that is not normed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from posbias.measure import quantities
from posbias.measure.instrument import Instrument, lacking_parts
from posbias.models.mixers import Seen
from posbias.models.weights import works_on

if TYPE_CHECKING:
    from posbias.measure.traces import Traces

ENTRIES = {"cpu": 1 << 20, "cuda": 1 << 28}
"""Numbers of the parts that are held at a time, of n² × d: what stays in a core's cache; few launches."""


class Quantity(quantities.Quantity):
    variables = {
        "contributions": (
            ("layer", "query", "key"), "mean share of a key's part in what a query becomes in the layer"
        ),
        "contributions_own": (("prompt", "position"), "last row of the product of the prompt's own contributions"),
    }  # fmt: skip

    def __init__(self, traces: Traces) -> None:
        super().__init__(traces)
        n, whole = traces.settings.length, traces.session.matrices
        self.layers = [LayerContributions(self.instrument, t, n, whole=whole) for t in range(self.instrument.T)]
        self.sums = {f"layer{t}.{name}": x for t, layer in enumerate(self.layers) for name, x in layer.sums.items()}
        self.carried = torch.zeros(0)

    @staticmethod
    def lacking(instrument: Instrument) -> str | None:
        return lacking_parts(instrument)

    def start(self, ids: Int[Tensor, "B n"]) -> None:
        self.carried = torch.zeros(ids.shape)
        self.carried[:, -1] = 1.0

    def observe(self, seen: Seen) -> None:
        self.carried = self.layers[seen.layer].add(seen, self.carried)

    def read(self, batch: slice, ids: Int[Tensor, "B n"]) -> dict[str, Tensor]:
        return {"contributions_own": self.carried.double().cpu()}

    def arrays(self, prompts: int) -> dict[str, np.ndarray]:
        means = [x.cpu().numpy() / prompts for x in self.sums.values()]
        return {"contributions": np.stack(means)} if means else {}


def contribution_shares(
    without: Float[Tensor, "k q d"], y: Float[Tensor, "q d"], seen: Float[Tensor, "q k"], own: Float[Tensor, "q"]
) -> Float[Tensor, "q k"]:
    """Return the share of each key's part in what queries become; ``own`` are the queries' places among the keys.

    ``without`` is what a query would become without each key's part. A query to which nothing contributes, not even
    itself, keeps itself.

    >>> parts = torch.tensor([[[1.0, 0.0]], [[1.0, 2.0]], [[0.0, -1.0]]])
    >>> y = parts.sum(0)
    >>> contribution_shares(y - parts, y, torch.ones(1, 3, dtype=torch.bool), torch.tensor([2])).tolist()
    [[0.5, 0.5, 0.0]]
    """
    shorter = y.abs().sum(-1) - without.abs().sum(-1)
    kept = shorter.mT.clamp_min(0).masked_fill(~seen, 0.0)
    nothing = kept.sum(-1) == 0
    kept[nothing, own[nothing]] = 1.0
    return kept / kept.sum(-1, keepdim=True)


class LayerContributions:
    """Sum one layer's contributions over prompts, and carry each prompt's own product through the layer."""

    def __init__(self, instrument: Instrument, t: int, n: int, *, whole: bool) -> None:
        self.layer, self.mixer = instrument.layers[t], instrument.mixer(t)
        device = instrument.devices()[t]
        self.sums = {}
        if whole:
            self.sums["contributions"] = torch.zeros(n, n, dtype=torch.float64, device=device)

    def add(self, seen: Seen, carried: Float[Tensor, "B n"]) -> Float[Tensor, "B n"]:
        """Add the prompts of a batch, and return their products carried through the layer."""
        carried = carried.to(works_on(self.layer))
        hopped = torch.zeros_like(carried)
        for prompt, queries, kernel in self.kernels(seen):
            if "contributions" in self.sums:
                self.sums["contributions"][queries, : queries.stop] += kernel
            hopped[prompt, : queries.stop] += carried[prompt, queries] @ kernel.to(carried)
        return hopped

    def kernels(self, seen: Seen) -> Iterator[tuple[int, slice, Float[Tensor, "q k"]]]:
        """Yield prompt, queries, and the contributions to them of the keys up to the last of them."""
        assert seen.stream is not None
        n, d = seen.stream.shape[1:]
        rows = max(1, ENTRIES.get(seen.stream.device.type, ENTRIES["cpu"]) // (n * d))
        for prompt, made in enumerate(self.mixer.prompts(seen)):
            x = seen.stream[prompt].float()
            for start in range(0, n, rows):
                queries = slice(start, min(start + rows, n))
                parts = made.parts(queries)
                y = x[queries] + parts.sum(0) + made.biases(queries)
                without = parts.neg_().add_(y)
                own = torch.arange(start, queries.stop, device=x.device)
                without[own, own - start] -= x[queries]
                yield prompt, queries, contribution_shares(without, y, seen.visible(queries), own)
