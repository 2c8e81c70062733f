"""What is kept of the readings: sums that do not depend on how prompts were grouped into batches.

A layer's sums live on the layer's own device until the end, in 64 bits. A number per prompt (λ, influence) is
kept as it is, so that means, deviations and bootstrap bands can be had later.

Beyond a number of tokens matrices are added up over cells of neighbouring tokens (:mod:`posbias.rollout.token_bins`).
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from posbias.models.attention import Reading, blocks
from posbias.rollout.masks import sliding_window
from posbias.rollout.token_bins import BAND, TokenBins


class LayerSums:
    """Sum one layer's attention and content logits over prompts, and carry each prompt's rollout through the layer.

    Matrices of heads need cells of one token each; quantities that are no matter of attention are passed over.
    """

    def __init__(self, H: int, cells: TokenBins, device: torch.device, quantities: Collection[str]) -> None:
        wide = torch.float32 if device.type == "mps" else torch.float64  # Apple's devices have no 64 bits
        self.H, self.cells, self.device, self.quantities = H, cells, device, frozenset(quantities)
        self.is_whole = len(cells.starts) == cells.n
        self.index = torch.from_numpy(cells.index).to(device)
        g = len(cells.starts)
        shapes: dict[str, tuple[int, ...]] = {}
        if "kernels" in quantities:
            shapes |= {"attention": (g, g)} if self.is_whole else {"attention": (g, g), "band": (g, BAND)}
        if "heads" in quantities:
            shapes["attention_heads"] = (H, g, g)
        if "content" in quantities:
            shapes |= {"diagonal": (H,), "everything": (H,)}
        if "logits" in quantities:
            shapes["content"] = (H, g, g)
        self.sums = {name: torch.zeros(shape, dtype=wide, device=device) for name, shape in shapes.items()}

    def add(self, reading: Reading, carried: Float[Tensor, "B n"] | None = None) -> Float[Tensor, "B n"] | None:
        """Add the prompts of a batch, and return their rollouts carried through the layer."""
        weights, content = "kernels" in self.quantities, "content" in self.quantities
        hopped = None if carried is None else torch.zeros_like(carried)
        for prompts, queries in blocks(reading, self.device) if weights or content else ():
            z, p = reading.block(prompts, queries, content=content, weights=weights)
            if p is not None:
                mean = self._add_weights(p, queries)
                if hopped is not None and carried is not None:
                    rows = carried[prompts, None, queries].to(mean.dtype)
                    hopped[prompts, : queries.stop] += (rows @ mean)[:, 0].to(hopped.dtype)
            if z is not None:
                self._add_content(z, reading.visible(queries), queries)
        if hopped is None or carried is None:
            return None
        assert reading.mixing is not None
        share = reading.mixing.to(carried)[:, None]
        return (1 - share) * carried + share * hopped

    def means(self, prompts: int, reach: int) -> dict[str, np.ndarray]:
        """Return means over prompts, and over positions where a name says so."""
        sums = {name: x.cpu().numpy() for name, x in self.sums.items()}
        n, out = self.cells.n, {}
        if "attention" in sums:
            mean = sums["attention"] / (prompts * self.cells.sizes[:, None])
            out["attention" if self.is_whole else "attention_cells"] = mean
        if "attention_heads" in sums:
            out["attention_heads"] = sums["attention_heads"] / prompts
        if "band" in sums:
            out["attention_band"] = sums["band"] / (prompts * self.cells.sizes[:, None])
        if "content" not in self.quantities:
            return out
        earlier = (reach - 1) * (2 * n - reach) // 2  # pairs of a query and a key before it, in a window of ``reach``
        out["content_diagonal"] = sums["diagonal"] / (prompts * n)
        with np.errstate(invalid="ignore"):  # a window of one token shows none
            out["content_offdiagonal"] = (sums["everything"] - sums["diagonal"]) / (prompts * earlier)
        if "content" in sums:
            out["content_logits"] = np.where(sliding_window(reach).matrix(n), sums["content"] / prompts, np.nan)
        return out

    def _add_weights(self, p: Float[Tensor, "b H q k"], queries: slice) -> Float[Tensor, "b q k"]:
        """Add weights of some queries, and return their means over heads."""
        mean = p.mean(1, dtype=torch.promote_types(p.dtype, torch.float32))
        total = mean.sum(0)
        self._sum("attention", total, queries)
        if "band" in self.sums:
            self.sums["band"].index_add_(0, self.index[queries], _near(total, queries).to(self.sums["band"].dtype))
        if "attention_heads" in self.sums:
            self._sum("attention_heads", p.sum(0, dtype=mean.dtype), queries)
        return mean

    def _add_content(self, z: Float[Tensor, "b H q k"], visible: Tensor, queries: slice) -> None:
        """Add content logits of some queries."""
        total = (z[0] if len(z) == 1 else z.sum(0)).masked_fill(~visible, 0.0)
        own = total.diagonal(queries.start, dim1=-2, dim2=-1)
        self.sums["diagonal"] += own.sum(-1, dtype=self.sums["diagonal"].dtype)
        self.sums["everything"] += total.sum((-2, -1), dtype=self.sums["everything"].dtype)
        if "content" in self.sums:
            self._sum("content", total, queries)

    def _sum(self, name: str, block: Float[Tensor, "*H q k"], queries: slice) -> None:
        """Add a block to a matrix of tokens or of cells."""
        into = self.sums[name]
        if self.is_whole:
            into[..., queries, : queries.stop] += block
            return
        keys = block.new_zeros(*block.shape[:-1], into.shape[-1])
        keys.index_add_(-1, self.index[: queries.stop], block)
        into.index_add_(-2, self.index[queries], keys.to(into.dtype))


def _near(total: Float[Tensor, "q k"], queries: slice) -> Float[Tensor, "q band"]:
    """Return the weights of queries at distances 0, 1, … of the band."""
    rows = torch.arange(queries.start, queries.stop, device=total.device)[:, None]
    keys = rows - torch.arange(BAND, device=total.device)
    return total.gather(1, keys.clamp_min(0)).masked_fill(keys < 0, 0.0)
