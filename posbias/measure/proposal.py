"""A starting row for a model whose family has none: from the tree of its modules, and from what flows between them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from posbias import errors
from posbias.measure.instrument import Instrument
from posbias.measure.plain import FAILS
from posbias.measure.rowcheck import WITHIN, Products, SeenLayer, values_compared
from posbias.measure.selfcheck import sums_apart
from posbias.networks.families import FAMILIES, GROUPS, Family
from posbias.networks.hooks import given, hooked, returned

CONTEXT = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx")
SCALES = ("scaling", "scale", "softmax_scale", "inv_norm_factor", "scale_attn")
ROTARY = ("rope_parameters", "rotary_dim", "rotary_pct")
"""Names that transformers has for a configuration's longest sequence, for what q·k is multiplied by, and for rotary
positions."""


def proposed(model: Any, ids: Int[Tensor, "B n"]) -> dict[str, Any]:
    """Return the fields of a row, as a file in YAML says them, or raise ValueError where there is no place to start.

    Names say where the layers and their attention are; the norm, a_t, whether blocks are parallel, the scale and
    the order of a fused projection are found in a pass: they are what fits.
    """
    config, blocks = model.config, ""
    for path, one in model.named_modules():
        if isinstance(one, nn.ModuleList) and len(one) == config.num_hidden_layers and all(map(_attention, one)):
            blocks = path
            break
    if not blocks:
        received = f"none of {config.num_hidden_layers} layers in which every one has an attention module"
        raise errors.invalid("architecture", "a list of layers with attention", f"{config.model_type}: {received}")
    layer = model.get_submodule(blocks)[0]
    attention = _attention(layer)
    module = layer.get_submodule(attention)
    projections = [name for name in ("q_proj", "k_proj", "v_proj") if hasattr(module, name)]
    names = [name for name, one in module.named_children() if getattr(one, "weight", None) is not None]
    normed = [name for name in ("q_norm", "k_norm") if hasattr(module, name)]
    rotary = any("Rotary" in type(one).__name__ for one in model.modules())
    rotary = rotary or any(getattr(config, name, None) for name in ROTARY)
    said: dict[str, Any] = {"blocks": blocks, "attention": attention, "output": attention}
    said["position"] = "rotary" if rotary else "alibi" if getattr(config, "alibi", False) else "learned"
    said["scale"] = 1.0
    said["context"] = [name for name in CONTEXT if getattr(config, name, None)] or list(CONTEXT[:1])
    said["norm"] = _norms(model, layer, attention, ids)
    said["projections"] = projections or names[:1]
    if len(projections) < 3:
        said["groups"] = next(iter(GROUPS))
    if normed or projections:
        said["unrotated"] = normed or projections[:2]
    said |= _fitting(model, said, layer, ids)
    said |= {"fused": bool(getattr(type(model), "_supports_sdpa", False))}
    return said


def _attention(layer: nn.Module) -> str:
    """Return the path to the attention module: of those whose class says so the innermost; empty if there is none."""
    found = [path for path, one in layer.named_modules() if path and "Attention" in type(one).__name__]
    return next((path for path in found if not any(other.startswith(f"{path}.") for other in found)), "")


def _norms(model: Any, layer: nn.Module, attention: str, ids: Int[Tensor, "B n"]) -> list[str]:
    """Return the path to the module of the layer whose output the attention is given; empty if there is none."""
    outputs: dict[str, Tensor] = {}
    read: list[Tensor] = []

    def keep(path: str) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:  # what a hook returns would be the output
            if isinstance(x := returned(output), Tensor):
                outputs.setdefault(path, x)

        return hook

    others = [(path, one) for path, one in layer.named_modules() if not f"{path}.".startswith((".", f"{attention}."))]
    after = [(one, keep(path)) for path, one in others]
    reads = layer.get_submodule(attention), lambda module, args, kwargs: read.append(given(args, kwargs))
    with torch.no_grad(), hooked([reads], after):
        model(input_ids=ids, use_cache=False)
    same = [name for name, x in outputs.items() if read and x.shape == read[0].shape and torch.equal(x, read[0])]
    return same[:1]


def _fitting(model: Any, said: dict[str, Any], layer: nn.Module, ids: Int[Tensor, "B n"]) -> dict[str, Any]:
    """Return output, parallel, scale and groups that fit the model's numbers; as they were where nothing fits."""
    name, paths = model.config.model_type, [said["attention"]]
    inside = f"{paths[0]}."
    paths += [path for path, one in layer.named_modules() if path not in ("", *paths)]
    paths.sort(key=lambda path: (path != said["attention"], path.startswith(inside)))
    found: dict[str, Any] = {}
    for path, parallel in ((path, parallel) for path in paths for parallel in (False, True)):
        row = Family(
            name, said["blocks"], said["attention"], path, said["position"], lambda module: 1.0, parallel=parallel
        )
        FAMILIES[name] = row
        try:
            if max(sums_apart(Instrument(model), ids[:1])) < WITHIN:
                found = {"output": path, **({"parallel": True} if parallel else {})}
                break
        except FAILS:
            continue
        finally:
            del FAMILIES[name]
    made = {**_with(found, said), "projections": tuple(said["projections"])}
    row = Family(name, said["blocks"], said["attention"], **made, scale=lambda module: 1.0)
    FAMILIES[name] = row
    try:
        instrument, layers = Instrument(model), []
        for order in GROUPS if "groups" in said else ():
            instrument.family = replace(row, groups=GROUPS[order])
            if values_compared(instrument, ids).holds:
                found["groups"] = order
                break
        with torch.no_grad(), Products() as products:
            instrument.forward(ids, lambda seen: layers.append(SeenLayer(instrument, seen, products)))
    except FAILS:
        return found
    finally:
        del FAMILIES[name]
    return found | {"scale": _scale(instrument.attentions[0], layers[0].factor)}


def _with(found: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    return {"output": said["output"], "position": said["position"]} | found


def _scale(attention: nn.Module, factor: float) -> str | float:
    """Return the attention module's number that is the factor, or that queries were multiplied by; else the factor."""
    there = {name: x for name in SCALES if isinstance(x := getattr(attention, name, None), float)}
    if abs(factor - 1) < WITHIN and there:
        return next(iter(there))
    return next((name for name, x in there.items() if abs(x / factor - 1) < WITHIN), float(f"{factor:.6g}"))
