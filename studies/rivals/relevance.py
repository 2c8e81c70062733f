"""AttnLRP (Achtibat et al. 2024, arXiv 2402.05602): input times a gradient of other rules.

Linear maps and residual sums: the gradient (ε-rule). A product of two factors: half to each,
which for weights times values and for queries times keys halves what goes back to
both. An activation and a norm: all to the input (identity rule), as if what they multiply by were a
constant. Softmax: its gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from posbias.models.families import family_of
from posbias.models.hooks import After, Before, given, hooked, regiven
from posbias.models.norms import is_norm


def lessened(x: Tensor, share: float) -> Tensor:
    """Return x, of whose gradient a share goes back."""
    return share * x + (1 - share) * x.detach()


def identical(x: Tensor, out: Tensor) -> Tensor:
    """Return ``out`` as x times a constant, so that all of its relevance is that of x."""
    small = torch.finfo(x.dtype).tiny
    return x * (out / torch.where(x == 0, small, x)).detach()


def _share(share: float) -> After:
    return lambda module, args, out: lessened(out, share)


def _whole(module: nn.Module, args: Any, out: Tensor) -> Tensor:
    return identical(args[0], out)


def _halved(module: nn.Module, args: Any, kwargs: Any) -> Any:
    return regiven(args, kwargs, lessened(given(args, kwargs), 0.5))


def relevance_of(model: Any, ids: Int[Tensor, "n"], *, fixed: bool = False) -> Float[np.ndarray, "n"]:
    """Return each token's relevance for the likeliest next token's logit; negative is against it.

    With ``fixed`` attention is held and values get all of a product: relevance is conserved, as it
    is not by softmax, whose gradient drops what does not depend on its input.
    """
    before: list[tuple[nn.Module, Before]] = []
    after: list[tuple[nn.Module, After]] = []
    layers: Any = family_of(model.config).layers(model)  # with the modules of a Llama
    for layer in layers:
        attend, mlp = layer.self_attn, layer.mlp
        after += [(x, _share(0.0 if fixed else 0.25)) for x in (attend.q_proj, attend.k_proj)]
        after.append((attend.v_proj, _share(1.0 if fixed else 0.5)))
        after.append((mlp.act_fn, _whole))
        before.append((mlp.down_proj, _halved))
    after += [(module, _whole) for module in model.modules() if is_norm(module)]
    x = model.get_input_embeddings()(ids).detach().requires_grad_()
    with hooked(before, after):
        model(inputs_embeds=x[None], use_cache=False).logits[0, -1].max().backward()
    assert x.grad is not None
    return (x * x.grad).sum(-1).detach().numpy()
