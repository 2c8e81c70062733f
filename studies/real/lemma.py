"""The lemma on long states, inside a network."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from posbias.models.families import family_of
from posbias.models.hooks import given, hooked, regiven, returned

CLOSE = 1e-3
"""What moves by less is said not to move: norms have an ε."""


@torch.no_grad()
def layer_norms(
    network: Any, ids: Int[Tensor, "B n"], t: int, c: float, *, every: bool = False, output: float = 1.0
) -> tuple[Float[np.ndarray, "B n"], Float[np.ndarray, "B n"]]:
    """Return ‖x_i‖ and ‖a_i‖ of layer t where the first state, or every one, is made c times as long.

    ``output`` multiplies what attention adds, for a check that should notice.
    """
    family, seen = family_of(network.config), {}
    layer = family.layers(network)[t]

    def lengthen(_: Any, args: Any, kwargs: Any) -> Any:
        x = seen["x"] = given(args, kwargs).clone()
        x[:, slice(None) if every else 0] *= c
        return regiven(args, kwargs, x)

    def keep(_: Any, args: Any, out: Any) -> None:
        seen["a"] = output * returned(out)

    with hooked([(layer, lengthen)], [(family.output_of(layer), keep)]):
        network(ids)
    return seen["x"].norm(dim=-1).numpy(), seen["a"].norm(dim=-1).numpy()


def lemma_holds(network: Any, ids: Int[Tensor, "B n"], t: int, c: float, **change: Any) -> bool:
    """Tell whether a layer does what the lemma on one long state says: nothing else moves, and λ is below its bound."""
    x, a = layer_norms(network, ids, t, 1.0)
    longer, a_longer = layer_norms(network, ids, t, c, **change)
    token, token_longer = a / (x + a), a_longer / (longer + a_longer)
    all_x, all_a, start = (np.linalg.norm(v, axis=-1) for v in (longer, a_longer, a))
    return bool(
        np.allclose(a, a_longer, rtol=CLOSE)
        and np.allclose(token[:, 1:], token_longer[:, 1:], rtol=CLOSE)
        and np.abs(token.mean(1) - token_longer.mean(1)).max() <= 1 / ids.shape[1]
        and (all_a / (all_x + all_a) <= start / (c * x[:, 0] + start) * (1 + CLOSE)).all()
    )


@torch.no_grad()
def spread(network: Any, ids: Int[Tensor, "n"]) -> float:
    """Return how far a prompt's states are apart at most, over all layers, as a share of the longest."""
    states = network(ids[None], output_hidden_states=True).hidden_states
    return max(float((x - x[:, :1]).norm(dim=-1).max() / x.norm(dim=-1).max()) for x in states)
