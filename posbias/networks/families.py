"""Model families: where the blocks are, what the attention output is, how logits are scaled and biased.

A family is one row of :data:`FAMILIES`; no forward pass is copied. The rows were read in the transformers
implementations and are held to them by parity tests on a tiny random model of every row. Torch is not imported here, so
that an unknown architecture is refused before anything heavy is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from posbias import errors

if TYPE_CHECKING:
    from torch import Tensor, nn

Position = Literal["alibi", "rotary", "learned"]
Arguments = dict[str, Any]


@dataclass(frozen=True)
class Family:
    """Say where to look in the models of one family; what differs within it is a function of what decides."""

    name: str
    """``model_type`` of the family's configurations."""
    blocks: str
    """Path from the model to the list of its layers."""
    attention: str
    """Path from a layer to the module that computes the attention weights."""
    output: str
    """Path from a layer to the module whose output is a_t, the attention output before it is added to x_t."""
    position: Position | Callable[[Any], Position]
    scale: Callable[[nn.Module], float]
    """The number by which q·k is multiplied, read from the attention module."""
    context: tuple[str, ...] = ("max_position_embeddings",)
    """Fields of the configuration that may hold the longest sequence; the first one that is there counts."""
    bias: Callable[[Arguments, nn.Module, int], Tensor | None] | None = None
    """What the attention module adds to the logits beside the mask: a function of its arguments, the module and n that
    returns (H, 1, n) logits or None, and may change the arguments."""
    biased: str | None = None
    """Name of the argument that carries it."""
    exact_in_16_bit: bool = True
    """False if the logits are rounded together with the bias, so that q·k is to be computed again in 32 bits."""
    unrotated: tuple[str, str] | None = None
    """Paths from the attention module to those whose outputs are queries and keys before the rotation, if there are."""
    norm: tuple[str, ...] = ("input_layernorm",)
    """Paths from a layer to the norm whose output the attention module takes; the first that is there counts."""
    projections: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    """Names, in the attention module, of what makes queries, keys and values of that output."""
    groups: Callable[[Any], tuple[int, int, int]] | None = None
    """For one fused projection: how many of its outputs in turn belong to queries, keys and values, a function of the
    attention module; the pattern repeats until the outputs end."""
    parallel: bool | Callable[[Any], bool] = False
    """Whether the MLP reads what the attention reads."""
    fused: bool | Callable[[Any], bool] = True
    """Whether torch's scaled dot-product attention (``sdpa``) computes the family's function, so that a pass that needs
    no attention weights can do without them. Falcon with ALiBi is fused although its eager attention differs: see
    ``_falcon_bias``."""
    stream: Callable[[Any], str | None] = lambda layer: None
    """Path from a layer to the module whose output is x_t, what a_t is added to; None for the layer's input."""

    def layers(self, model: nn.Module) -> list[nn.Module]:
        """Return the layers of ``model``, first layer first."""
        return list(model.get_submodule(self.blocks))  # type: ignore[call-overload]

    def attention_of(self, layer: nn.Module) -> nn.Module:
        """Return the attention module of ``layer``."""
        return layer.get_submodule(self.attention)

    def output_of(self, layer: nn.Module) -> nn.Module:
        """Return the module of ``layer`` whose output is a_t."""
        return layer.get_submodule(self.output)

    def stream_of(self, layer: nn.Module) -> nn.Module | None:
        """Return the module of ``layer`` whose output is x_t, None if x_t is the layer's input."""
        path = self.stream(layer)
        return None if path is None else layer.get_submodule(path)

    def norm_of(self, layer: nn.Module) -> nn.Module:
        """Return the norm before the attention of ``layer``."""
        if not getattr(layer, "do_layer_norm_before", True):
            raise errors.invalid("model", "a norm before attention", "one after it")
        return layer.get_submodule(next(path for path in self.norm if hasattr(layer, path)))

    def projections_of(self, attention: nn.Module) -> list[nn.Module]:
        """Return the projections of ``attention``: one that is fused, or those of queries, keys and values."""
        return [attention.get_submodule(name) for name in self.projections]

    def columns(self, attention: nn.Module, projection: int, size: int) -> np.ndarray:
        """Return to what each of ``size`` outputs of a projection belongs: q, k or v."""
        if self.groups is None:
            return np.full(size, "qkv"[projection])
        return np.resize(np.repeat(list("qkv"), self.groups(attention)), size)

    def position_of(self, config: Any) -> Position:
        """Return how positions enter in a model with this configuration."""
        return self.position(config) if callable(self.position) else self.position

    def is_parallel(self, config: Any) -> bool:
        """Tell whether the MLP reads what the attention reads in a model with this configuration."""
        return self.parallel(config) if callable(self.parallel) else self.parallel

    def is_fused(self, config: Any) -> bool:
        """Tell whether fused attention computes the same function in a model with this configuration.

        >>> from transformers import GPT2Config, GPTJConfig
        >>> [family_of(config).is_fused(config) for config in (GPT2Config(), GPTJConfig())]
        [True, False]
        """
        return self.fused(config) if callable(self.fused) else self.fused

    def longest(self, config: Any) -> int | None:
        """Return the longest sequence that a model with this configuration takes, None if it states none."""
        return next((int(n) for n in (getattr(config, x, None) for x in self.context) if n), None)


def window(attention: nn.Module, config: Any) -> int | None:
    """Return how many tokens, the query included, the layer may see; None if all of its past.

    The attention module knows where layers differ, the configuration where they do not.
    """
    knows = attention if hasattr(attention, "sliding_window") else config
    width: Any = getattr(knows, "sliding_window", None)
    return None if width is None else int(width)


def soft_cap(attention: nn.Module) -> float | None:
    """Return c if the layer replaces its content logits z by c·tanh(z / c), else None."""
    cap = getattr(attention, "attn_logit_softcapping", None)
    return None if cap is None else float(cap)


def content_form(config: Any) -> str:
    """Return what the content logits of a model with this configuration are: scaled q·k, soft-capped in some."""
    cap = getattr(config, "attn_logit_softcapping", None)
    return "scaled q·k" if cap is None else f"scaled q·k soft-capped at {float(cap):g}"


def output_projection(attention: nn.Module) -> nn.Module:
    """Return the projection that takes the heads' averaged values."""
    names = "o_proj", "dense", "out_proj", "c_proj"
    return next(attention.get_submodule(name) for name in names if hasattr(attention, name))


def _scaling(attention: Any) -> float:
    return float(attention.scaling)


def _inv_norm_factor(attention: Any) -> float:
    return float(attention.inv_norm_factor)


def _bloom_bias(arguments: Arguments, attention: nn.Module, n: int) -> Tensor | None:
    """Read the (B·H, 1, n) ALiBi logits of the first prompt; without padding all prompts have the same."""
    return arguments["alibi"][: attention.num_heads]  # type: ignore[misc]


def _mpt_bias(arguments: Arguments, attention: nn.Module, n: int) -> Tensor | None:
    """Read the last n keys of the (H, 1, max_seq_len) bias: the module slices it in the same way."""
    bias = arguments.get("position_bias")
    return None if bias is None else bias[..., -n:]


def _falcon_bias(arguments: Arguments, attention: Any, n: int) -> Tensor | None:
    """Read ALiBi from the keyword if the mask does not carry it already; else silence the keyword.

    transformers adds ALiBi/√d to the mask, for the fused kernels, and the eager path adds the keyword once
    more, so that eager attention has twice the architecture's slopes. A keyword of zeros (None would switch
    to rotary positions) leaves what the fused kernels compute.
    """
    import torch

    alibi, mask = arguments.get("alibi"), arguments.get("attention_mask")
    if alibi is None:
        return None
    if mask is not None and ((mask != 0) & (mask > torch.finfo(mask.dtype).min / 2)).any():
        arguments["alibi"] = alibi.new_zeros(alibi.shape)
        return None
    return alibi.reshape(-1, attention.num_heads, 1, n)[0].float() * attention.inv_norm_factor


def _head_by_head(attention: Any) -> tuple[int, int, int]:
    """Give each head's query, key and value in turn."""
    size = attention.head_dim if hasattr(attention, "head_dim") else attention.head_size
    return size, size, size


def _one_after_another(attention: Any) -> tuple[int, int, int]:
    """Give all queries, then all keys, then all values."""
    size = attention.embed_dim if hasattr(attention, "embed_dim") else attention.hidden_size
    return size, size, size


def _falcon_groups(attention: Any) -> tuple[int, int, int]:
    """Give the heads that share a key and a value, then these: all heads with ``multi_query``."""
    size = attention.head_dim
    if attention.new_decoder_architecture:
        return attention.num_heads // attention.num_kv_heads * size, size, size
    return (attention.num_heads * size if attention.multi_query else size), size, size


def _llama_like(name: str, **fields: Any) -> Family:
    paths = {"blocks": "model.layers", "attention": "self_attn", "output": "self_attn"}
    unrotated = ("q_proj", "k_proj")
    return Family(name, **{**paths, "position": "rotary", "scale": _scaling, "unrotated": unrotated, **fields})


def _gpt_like(name: str, **fields: Any) -> Family:
    paths = {"blocks": "transformer.h", "attention": "attn", "output": "attn"}
    return Family(name, **{**paths, "context": ("n_positions",), "norm": ("ln_1",), **fields})


FAMILIES: Mapping[str, Family] = {
    row.name: row
    for row in (
        Family(
            "bloom",
            blocks="transformer.h",
            attention="self_attention",
            output="self_attention.dense",  # the attention module adds the residual itself
            position="alibi",
            scale=_inv_norm_factor,
            context=("seq_length",),
            bias=_bloom_bias,
            biased="alibi",
            exact_in_16_bit=False,
            projections=("query_key_value",),
            groups=_head_by_head,
            fused=False,  # transformers has no such path
            stream=lambda layer: "input_layernorm" if layer.apply_residual_connection_post_layernorm else None,
        ),
        Family(
            "mpt",
            blocks="transformer.blocks",
            attention="attn",
            output="attn",
            position="alibi",  # whatever attn_config says: the implementation always adds the bias
            scale=lambda attention: float(attention.softmax_scale),  # type: ignore[arg-type]
            context=("max_seq_len",),
            bias=_mpt_bias,
            biased="position_bias",
            norm=("norm_1",),
            projections=("Wqkv",),
            groups=_one_after_another,
            fused=False,  # nor here
        ),
        Family(
            "falcon",
            blocks="transformer.h",
            attention="self_attention",
            output="self_attention",
            position=lambda config: "alibi" if config.alibi else "rotary",
            scale=_inv_norm_factor,
            bias=_falcon_bias,
            biased="alibi",
            norm=("ln_attn", "input_layernorm"),
            projections=("query_key_value",),
            groups=_falcon_groups,
            parallel=lambda config: bool(config.parallel_attn or config.new_decoder_architecture),
        ),
        _llama_like("llama"),
        _llama_like("mistral"),
        _llama_like("qwen2"),
        _llama_like("qwen3", unrotated=("q_norm", "k_norm")),  # normed before they are rotated
        _llama_like("gemma"),
        _llama_like("gemma2", output="post_attention_layernorm", fused=False),  # normed before it is added; soft-capped
        _llama_like("phi", parallel=True),
        _llama_like(
            "gpt_neox",
            blocks="gpt_neox.layers",
            attention="attention",
            output="attention",
            unrotated=None,
            projections=("query_key_value",),
            groups=_head_by_head,
            parallel=lambda config: bool(config.use_parallel_residual),
        ),
        _gpt_like(
            "gptj",
            position="rotary",
            scale=lambda attention: 1 / float(attention.scale_attn),
            parallel=True,
            fused=False,
        ),
        _gpt_like("gpt2", position="learned", scale=_scaling, projections=("c_attn",), groups=_one_after_another),
        _llama_like("opt", blocks="model.decoder.layers", position="learned", norm=("self_attn_layer_norm",)),
    )
}
"""The supported families by ``model_type``."""


def check_family(model_type: Any) -> None:
    """Raise ValueError unless an architecture is supported, with those that are."""
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        received = str(model_type)[:60] if model_type else "no model_type"
        raise errors.invalid("architecture", f"one of {', '.join(FAMILIES)}", received)


def family_of(config: Any) -> Family:
    """Return the row of the family that the configuration of a transformers model belongs to, or raise ValueError.

    >>> from transformers import GPT2Config
    >>> family_of(GPT2Config()).attention
    'attn'
    """
    check_family(config.model_type)
    return FAMILIES[config.model_type]
