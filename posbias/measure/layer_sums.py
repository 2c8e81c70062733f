"""What is kept of the readings: sums that do not depend on how prompts were grouped into batches.

A layer's sums live on the layer's own device until the end, in 64 bits. A number per prompt (λ, influence) is
kept as it is, so that means, deviations and bootstrap bands can be had later. Histograms are counts of whole
entries: exact, and the same for any grouping.

**Bin rule.** Content logits are counted in 256 bins of width 1/4, centred on the multiples of 1/4 from -32 to
31.75, the outermost two open; logits in one bin differ by less than a factor e^(1/4) in attention. The rule
looks at no data, so that counts from any batches, prompts and machines may be added.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Bool, Float, Num
from torch import Tensor

from posbias import checks
from posbias.measure.instrument import AttentionReading

BINS = 256
BIN_WIDTH = 0.25
CENTRE = BINS // 2  # the bin of logits around 0
CHUNK = {"cpu": 1 << 19, "cuda": 1 << 26}  # entries taken at a time: what stays in a core's cache; few launches


def bin_centres() -> Float[np.ndarray, "bins"]:
    """Return the centres of the content-logit bins.

    >>> bin_centres()[[0, 128, 255]].tolist()
    [-32.0, 0.0, 31.75]
    """
    return (np.arange(BINS) - CENTRE) * BIN_WIDTH


def entropy_similarity(counts: Num[np.ndarray, "... bins"]) -> Float[np.ndarray, "..."]:
    """Return 1 - H / log K: 1 if all entries share a bin, 0 if they are spread evenly over the K bins.

    Parameters
    ----------
    counts
        Histogram along the last dimension, not all 0.

    Source: residual-aware paper, appendix E. The paper states neither the bins nor their number: ours are fixed
    (see :mod:`posbias.measure.layer_sums`), so that values compare within this project only.

    >>> entropy_similarity(np.array([[4, 0], [2, 2]])).tolist()
    [1.0, 0.0]
    """
    total = counts.sum(axis=-1, keepdims=True)
    if (total <= 0).any() or counts.shape[-1] < 2:
        raise checks.refuse("counts", "histograms of two bins or more with an entry each", f"shape {counts.shape}")
    p = counts / total
    entropy = -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=-1)
    return np.asarray(np.clip(1 - entropy / np.log(counts.shape[-1]), 0.0, 1.0))


class LayerStatistics:
    """Sum one layer's content logits, their histogram and attention over prompts.

    Parameters
    ----------
    H, n
        Heads and tokens.
    device
        Where the layer is, and the sums with it.
    content
        Whether to keep the mean content logits as matrices; their means over the diagonal and off it are kept
        either way.
    heads
        Whether to keep attention for each head, beside the average over heads.
    """

    def __init__(self, H: int, n: int, device: torch.device, *, content: bool = True, heads: bool = False) -> None:
        wide = torch.float32 if device.type == "mps" else torch.float64  # Apple's devices have no 64 bits
        self.H, self.n, self.device = H, n, device
        self.sums: dict[str, Tensor] = {
            "attention": torch.zeros(n, n, dtype=wide, device=device),
            "histogram": torch.zeros(H, BINS, dtype=torch.int64, device=device),
            "histogram_diagonal": torch.zeros(H, BINS, dtype=torch.int64, device=device),
        }
        if heads:
            self.sums["attention_heads"] = torch.zeros(H, n, n, dtype=wide, device=device)
        if content:
            self.sums["content"] = torch.zeros(H, n, n, dtype=wide, device=device)
        else:
            self.sums |= {name: torch.zeros(H, dtype=wide, device=device) for name in ("diagonal", "offdiagonal")}

    def add(self, reading: AttentionReading) -> None:
        """Add the prompts of a batch."""
        self._add_attention(reading.probabilities)
        self._add_content(reading)

    def means(self, prompts: int, allowed: Bool[np.ndarray, "n n"]) -> dict[str, np.ndarray]:
        """Return means over prompts, and over positions where a name says so, with the histograms.

        Parameters
        ----------
        prompts
            How many prompts were added.
        allowed
            Keys that the mask allows; content logits elsewhere are NaN, for no forward pass has them.
        """
        sums = {name: x.cpu().numpy() for name, x in self.sums.items()}
        counts = sums["histogram_diagonal"], sums["histogram"] - sums["histogram_diagonal"]
        out = {"histogram_diagonal": counts[0], "histogram_offdiagonal": counts[1]}
        out |= {name: sums[name] / prompts for name in ("attention", "attention_heads") if name in sums}
        off = allowed & ~np.eye(self.n, dtype=bool)
        if "content" in sums:
            content = np.where(allowed, sums["content"], np.nan) / prompts
            out["content_logits"] = content
            out["content_diagonal"] = content.diagonal(axis1=-2, axis2=-1).mean(-1)
            out["content_offdiagonal"] = content[:, off].mean(-1)
        else:
            out["content_diagonal"] = sums["diagonal"] / (prompts * self.n)
            out["content_offdiagonal"] = sums["offdiagonal"] / (prompts * off.sum())
        return out

    def _add_attention(self, probabilities: Float[Tensor, "B H n n"]) -> None:
        if "attention_heads" in self.sums:
            heads = probabilities.sum(0, dtype=torch.float32)
            self.sums["attention_heads"] += heads
            self.sums["attention"] += heads.mean(0)
        else:
            self.sums["attention"] += probabilities.sum((0, 1), dtype=torch.float32) / self.H

    def _add_content(self, reading: AttentionReading) -> None:
        """Add content logits by blocks of queries, with the keys up to a block's last query: later ones are masked."""
        B, n = len(reading.logits), self.n
        scratch = _Scratch.shared(self.H, n, self.device)
        total = scratch.total.zero_()
        rows = _query_block(n)
        counted = 0
        for start in range(0, n, rows):
            queries = slice(start, min(start + rows, n))
            shape = (self.H, queries.stop - start, queries.stop)
            together = max(1, scratch.content.numel() // math.prod(shape))
            for prompt in range(0, B, together):
                prompts = slice(prompt, min(prompt + together, B))
                size = prompts.stop - prompt
                content, codes = (
                    buffer[: size * math.prod(shape)].view(size, *shape) for buffer in (scratch.content, scratch.codes)
                )
                reading.content(prompts, queries, out=content)
                total[:, queries, : queries.stop] += content[0] if size == 1 else content.sum(0)
                self._count(content, codes, scratch.offsets, start)
            counted += B * (queries.stop - start) * queries.stop
        hidden = counted - B * int(reading.allowed.sum())
        self.sums["histogram"][:, 0] -= hidden  # masked entries fell below every bin
        if "content" in self.sums:
            self.sums["content"] += total
            return
        diagonal = total.diagonal(dim1=-2, dim2=-1).sum(-1, dtype=self.sums["diagonal"].dtype)
        everything = total.masked_fill_(~reading.allowed, 0.0).sum((-2, -1), dtype=diagonal.dtype)
        self.sums["diagonal"] += diagonal
        self.sums["offdiagonal"] += everything - diagonal

    def _count(self, content: Tensor, codes: Tensor, offsets: Tensor, start: int) -> None:
        """Count the content logits of queries from ``start`` on in their bins; overwrites ``content``."""
        content.mul_(1 / BIN_WIDTH).add_(CENTRE + 0.5).clamp_(0, BINS - 1)
        content.nan_to_num_(0.0)  # for the run to get to where a NaN is reported with its layer and prompt
        codes.copy_(content)  # towards 0, which is down: nothing is negative
        codes += offsets
        for name, part in (("histogram", codes), ("histogram_diagonal", codes.diagonal(start, dim1=-2, dim2=-1))):
            counts = torch.bincount(part.reshape(-1), minlength=self.H * BINS)
            self.sums[name] += counts.view(self.H, BINS)


def _query_block(n: int) -> int:
    """Return how many queries to take at a time: in eight blocks little more than half of all pairs is touched."""
    return max(32, -(-n // 8))


class _Scratch:
    """Buffers that all layers of a device share: fresh memory costs more than the arithmetic done in it."""

    _made: dict[torch.device, _Scratch] = {}

    def __init__(self, H: int, n: int, device: torch.device) -> None:
        entries = max(CHUNK.get(device.type, CHUNK["cpu"]), H * min(n, _query_block(n)) * n)
        self.content = torch.empty(entries, device=device)
        self.codes = torch.empty(entries, dtype=torch.int32, device=device)
        self.offsets = BINS * torch.arange(H, dtype=torch.int32, device=device)[:, None, None]
        self.total = torch.empty(H, n, n, device=device)

    @classmethod
    def shared(cls, H: int, n: int, device: torch.device) -> _Scratch:
        """Return the buffers for this shape, made at its first use; those for another shape are let go."""
        found = cls._made.get(device)
        if found is None or found.total.shape != (H, n, n):
            found = cls._made[device] = cls(H, n, device)
        return found
