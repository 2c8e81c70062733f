"""Which tokens a model uses: each is changed in turn, and the next token's distribution says how much that mattered.

Plain transformers: a forward pass, its cache of keys and values, and no hook. A token at place i changes nothing before
it, so that the cache of the whole prompt, cut at i, is where each changed prompt goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import DynamicCache

BLOCK = 8
"""Neighbouring places whose changed prompts are read together."""


def next_token(model: Any, **inputs: Any) -> Float[Tensor, "B v"]:
    """Return the distribution of the token that follows each prompt."""
    return model(**inputs, logits_to_keep=1).logits[:, -1].float().softmax(-1)


def first_of(cache: Any, stop: int, copies: int) -> DynamicCache:
    """Return keys and values of the first ``stop`` tokens, once for each of ``copies`` prompts that begin with them."""
    found = DynamicCache()
    for k, layer in enumerate(cache.layers):
        found.update(*(x[:, :, :stop].expand(copies, -1, -1, -1) for x in (layer.keys, layer.values)), k)
    return found


def hiding_mask(places: Sequence[int], start: int, n: int, dtype: torch.dtype) -> Float[Tensor, "B 1 m n"]:
    """Return what is added to logits of queries from ``start`` on: key i is hidden from the queries behind it."""
    query, key = torch.arange(start, n)[:, None], torch.arange(n)
    hidden = [(key > query) | ((key == i) & (query > i)) for i in places]
    return torch.stack(hidden)[:, None].to(dtype) * torch.finfo(dtype).min


@torch.no_grad()
def measure_changes(
    model: Any,
    ids: Int[Tensor, "n"],
    others: Int[Tensor, "n"],
    way: str,
    front: Sequence[int] = (),
    places: Sequence[int] | None = None,
    *,
    likeliest: bool = False,
) -> Float[np.ndarray, "n"]:
    """Return the total variation of the next token's distribution when each token in turn is changed.

    Of the ``likeliest`` next token: by how much its probability changes, in place of that.
    ``way`` is ``replaced`` by the token of ``others`` at its place, ``deleted``, or ``hidden`` as a key from all later
    queries; ``front`` are tokens before the prompt, which are not changed. What is not among ``places`` is nan.
    """
    n, f = len(ids), len(front)
    ids, others = ids.to(model.device), others.to(model.device)
    whole = model(torch.cat([ids.new_tensor(front), ids])[None], use_cache=True, logits_to_keep=1)
    own = whole.logits[0, -1].softmax(-1)
    found, places = np.full(n, np.nan), range(n) if places is None else places
    for together in (places[k : k + BLOCK] for k in range(0, len(places), BLOCK)):
        start = together[0]
        more: dict[str, Any] = {}
        rows = [ids[start:].clone() for _ in together]
        for i, row in zip(together, rows, strict=True):
            if way == "replaced":
                row[i - start] = others[i]
        if way == "deleted":
            rows = [torch.cat([row[: i - start], row[i - start + 1 :]]) for i, row in zip(together, rows, strict=True)]
        if way == "hidden":
            hidden = [f + i for i in together]
            more["attention_mask"] = hiding_mask(hidden, f + start, f + n, whole.logits.dtype).to(model.device)
        cache = first_of(whole.past_key_values, f + start, len(together))
        changed = next_token(model, input_ids=torch.stack(rows), past_key_values=cache, **more)
        apart = (changed - own).abs()
        found[list(together)] = (apart[:, own.argmax()] if likeliest else apart.sum(-1) / 2).cpu()
    return found


def measure_steps(
    model: Any, ids: Int[Tensor, "n"], others: Int[Tensor, "n"], front: Sequence[int] = ()
) -> dict[str, Float[np.ndarray, "n"]]:
    """Return what the gradient alone expects of the likeliest next token's probability where another token is put.

    ``step``: |g·(e' - e)|. ``reach``: |g| |e' - e|, as if every step went in the direction that matters most.
    """
    x = embedded(model, ids, front).requires_grad_()
    [slope] = torch.autograd.grad(next_token(model, inputs_embeds=x[None]).max(), x)
    g, step = slope[len(front) :].float(), (embedded(model, others, ()) - x.detach()[len(front) :]).float()
    found = {"step": (g * step).sum(-1).abs(), "reach": g.norm(dim=-1) * step.norm(dim=-1)}
    return {name: size.cpu().numpy() for name, size in found.items()}


def measure_gradient(model: Any, ids: Int[Tensor, "n"], front: Sequence[int] = ()) -> Float[np.ndarray, "n"]:
    """Return the norm of the gradient of the likeliest next token's probability by each token's embedding."""
    x = embedded(model, ids, front).requires_grad_()
    next_token(model, inputs_embeds=x[None]).max().backward()
    assert x.grad is not None
    return x.grad[len(front) :].float().norm(dim=-1).cpu().numpy()


def embedded(model: Any, ids: Tensor, front: Sequence[int]) -> Tensor:
    """Return the embeddings of a prompt and of what stands before it, of which no gradient is known."""
    whole = torch.cat([ids.new_tensor(front), ids])
    return model.get_input_embeddings()(whole.to(model.device)).detach()
