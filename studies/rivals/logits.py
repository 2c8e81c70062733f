"""ALTI-Logit (Ferrando et al. 2023, arXiv 2305.12535): what each token adds to two logits' difference.

The last token's state is its embedding plus what attention and MLPs of all layers add, so that a
logit is a sum over layers. What attention adds in layer t is a sum over the states that it reads,
and a state is a mixture of tokens by the product of contributions of the layers below: Δ = Σ_t Δ_t
M_{t-1}. The last norm divides by what it divides by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from posbias.models.norms import denominators, multiplier
from studies.rivals.layers import Layer


def contrast(model: Any, top: Layer) -> Float[Tensor, "d"]:
    """Return u, for which u · last state is the likeliest token's logit less the next one's."""
    norm, last = model.model.norm, top.output[-1]
    one, other = model.lm_head(norm(last)).topk(2).indices
    rows = model.lm_head.weight
    return (rows[one] - rows[other]) * multiplier(norm, last) / denominators(norm, last)


@torch.no_grad()
def logit_parts(
    layers: Sequence[Layer], mixed: Sequence[Float[Tensor, "n n"]], u: Float[Tensor, "d"]
) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"]]:
    """Return what each token adds to u · last state: by attention, as in the paper, and by all.

    ``mixed`` are the layers' contributions. With everything, what an MLP adds belongs to the tokens
    of which the state that it reads is mixed, and the last token's embedding to the last token; the
    sum is then u · last state.
    """
    n = len(layers[0].x)
    attended, whole = torch.zeros(n), torch.zeros(n)
    for layer, kernel in zip(reversed(layers), reversed(mixed), strict=True):
        given = layer.parts(slice(n - 1, n))[:, 0] @ u
        stepped = (layer.output[-1] - layer.y[-1]) @ u
        attended = attended @ kernel + given
        whole = whole @ kernel + given + stepped * kernel[-1]
    whole[-1] += layers[0].x[-1] @ u
    return attended, whole
