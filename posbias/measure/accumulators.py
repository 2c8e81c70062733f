"""What is kept of the readings: sums that do not depend on how prompts were grouped into batches.

A layer's sums live on the layer's own device until the end, in 64 bits. A number per prompt (λ, influence) is
kept as it is, so that means, deviations and bootstrap bands can be had later.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from posbias.models.attention import Reading, blocks
from posbias.rollout.masks import sliding_window


class LayerSums:
    """Sum one layer's attention and content logits over prompts, and carry each prompt's rollout through the layer."""

    def __init__(
        self, H: int, n: int, device: torch.device, quantities: Collection[str], *, matrices: bool = True
    ) -> None:
        wide = torch.float32 if device.type == "mps" else torch.float64  # Apple's devices have no 64 bits
        self.n, self.device, self.quantities = n, device, frozenset(quantities)
        shapes: dict[str, tuple[int, ...]] = {}
        if "kernels" in quantities and matrices:
            shapes["attention"] = (n, n)
        if "heads" in quantities:
            shapes["attention_heads"] = (H, n, n)
        if "content" in quantities:
            shapes |= {"diagonal": (H,), "everything": (H,)}
        if "logits" in quantities:
            shapes["content"] = (H, n, n)
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
        n, both = self.n, ("attention", "attention_heads")
        out: dict[str, np.ndarray] = {name: sums[name] / prompts for name in both if name in sums}
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
        if "attention" in self.sums:
            self.sums["attention"][queries, : queries.stop] += mean.sum(0)
        if "attention_heads" in self.sums:
            self.sums["attention_heads"][:, queries, : queries.stop] += p.sum(0, dtype=mean.dtype)
        return mean

    def _add_content(self, z: Float[Tensor, "b H q k"], visible: Tensor, queries: slice) -> None:
        """Add content logits of some queries."""
        total = (z[0] if len(z) == 1 else z.sum(0)).masked_fill(~visible, 0.0)
        own = total.diagonal(queries.start, dim1=-2, dim2=-1)
        self.sums["diagonal"] += own.sum(-1, dtype=self.sums["diagonal"].dtype)
        self.sums["everything"] += total.sum((-2, -1), dtype=self.sums["everything"].dtype)
        if "content" in self.sums:
            self.sums["content"][:, queries, : queries.stop] += total
