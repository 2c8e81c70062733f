"""Model families: where the blocks are, what the attention output is, how logits are scaled and biased.

A family is one row of :data:`FAMILIES`; no forward pass is copied. The rows were read in the transformers
implementations and are held to them by parity tests on a tiny random model of every row. Torch is not imported here,
but where transformers is asked about an architecture without a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from posbias import errors

if TYPE_CHECKING:
    from torch import Tensor, nn

Position = Literal["alibi", "rotary", "learned", "no"]
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
    calls: Literal["interface", "softmax", "sdpa", "_attn"] = "interface"
    """What the attention module calls for its attention: what transformers' attention interface has for it; torch's
    softmax, between two products of its own; torch's fused attention; or a method of its own of that name. The file
    ``posbias/models/watch.py`` has what is done about them."""
    bias: Callable[[Arguments, nn.Module, int], Tensor | None] | None = None
    """What is added to the logits beside the mask where the softmax is called: a function of the attention module's
    arguments, the module and n that returns (H, 1, n) logits or None."""
    norm: tuple[str, ...] = ("input_layernorm",)
    """Paths from a layer to the norm whose output the attention module takes; the first that is there counts. Empty
    where the attention module takes x_t itself."""
    projections: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    """Names, in the attention module, of what makes queries, keys and values of that output."""
    groups: Callable[[Any], tuple[int, int, int]] | None = None
    """For one fused projection: how many of its outputs in turn belong to queries, keys and values, a function of the
    attention module; the pattern repeats until the outputs end."""
    parallel: bool | Callable[[Any], bool] = False
    """Whether the MLP reads what the attention reads."""
    fused: bool | Callable[[Any], bool] = True
    """Whether torch's scaled dot-product attention (``sdpa``) computes the family's function, so that a pass that needs
    no attention weights can do without them."""
    stream: Callable[[Any], str | None] = lambda layer: None
    """Path from a layer to the module whose output is x_t, what a_t is added to; None for the layer's input."""
    multiplier: Callable[[Any], float] = lambda layer: 1.0
    """What the output is multiplied by on its way to x_t, read from the layer: a_t is the product."""
    latent: tuple[str, str, str] | None = None
    """Where values are made of a short vector that is normed: paths from the attention module to that norm, to what
    makes the vector, and to what makes of it each head's key, without its rotated part, and value in turn."""

    gate: Callable[[Any, Tensor], Tensor] | None = None
    """What the heads' averages are multiplied by before the output projection, one head after another: a function of
    the attention module and of what it is given."""
    mixers: Mapping[str, str] = field(default_factory=dict)
    """Where some layers have no attention: path from a layer to the module that mixes tokens in its place → kind, a
    file of :mod:`posbias.models.mixers`."""

    def layers(self, model: nn.Module) -> list[nn.Module]:
        """Return the layers of ``model``, first layer first."""
        return list(model.get_submodule(self.blocks))  # type: ignore[call-overload]

    def kind_of(self, layer: nn.Module) -> str:
        """Return what kind of mixer a layer has: ``attention``, or another that the row names."""
        there = dict(layer.named_modules(remove_duplicate=False))
        return next((kind for path, kind in self.mixers.items() if path in there), "attention")

    def mixer_of(self, layer: nn.Module) -> nn.Module:
        """Return the module that mixes the tokens of ``layer``, the attention module where it has one."""
        there = dict(layer.named_modules(remove_duplicate=False))
        return next((there[path] for path in self.mixers if path in there), None) or self.attention_of(layer)

    def attention_of(self, layer: nn.Module) -> nn.Module:
        """Return the attention module of ``layer``, or raise ValueError for a layer without attention."""
        if (kind := self.kind_of(layer)) != "attention":
            raise errors.invalid("layer", "attention in every layer", f"{kind.replace('_', ' ')} in one of {self.name}")
        return layer.get_submodule(self.attention)

    def output_of(self, layer: nn.Module) -> nn.Module:
        """Return the module of ``layer`` whose output is a_t."""
        attends = self.kind_of(layer) == "attention"
        return layer.get_submodule(self.output) if attends else self.mixer_of(layer)

    def stream_of(self, layer: nn.Module) -> nn.Module | None:
        """Return the module of ``layer`` whose output is x_t, None if x_t is the layer's input."""
        path = self.stream(layer)
        return None if path is None else layer.get_submodule(path)

    def norm_of(self, layer: nn.Module) -> nn.Module:
        """Return the norm before the attention of ``layer``."""
        if not getattr(layer, "do_layer_norm_before", True):
            raise errors.invalid("model", "a norm before attention", "one after it")
        there = dict(layer.named_modules(remove_duplicate=False))
        return there[next(path for path in self.norm if path in there)]

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


def text_config(config: Any) -> Any:
    """Return the configuration of the decoder: a part of that of a model of text and pictures, else itself."""
    return getattr(config, "text_config", config)


def layer_number(attention: nn.Module) -> int:
    """Return the number of the layer, from 0, that an attention module belongs to."""
    found: Any = getattr(attention, "layer_idx", None)
    return int(attention.layer_id if found is None else found)  # type: ignore[arg-type]


def window(attention: nn.Module, config: Any) -> int | None:
    """Return how many tokens, the query included, the layer may see; None if all of its past."""
    config, t = text_config(config), layer_number(attention)
    kinds: Any = getattr(config, "layer_types", None) or getattr(config, "attention_layers", None)
    if kinds is not None and kinds[t] not in ("sliding_attention", "local"):
        return None
    knows = attention if hasattr(attention, "sliding_window") else config
    width: Any = getattr(knows, "sliding_window", None) or (kinds and getattr(config, "window_size", None))
    return int(width) if width else None


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


def _shared_one_after_another(attention: Any) -> tuple[int, int, int]:
    """Give all queries, then all keys, then all values, of which there are fewer."""
    config, size = attention.config, attention.head_dim
    return config.num_attention_heads * size, config.num_key_value_heads * size, config.num_key_value_heads * size


def _gpt_bigcode_groups(attention: Any) -> tuple[int, int, int]:
    """Give all queries, then the one key and value that all heads share; head by head if none is shared."""
    size = attention.head_dim
    return (attention.embed_dim if attention.multi_query else size), size, size


def _qwen3_next_gate(attention: Any, x: Tensor) -> Tensor:
    """Read the gate beside each head's query."""
    return attention.q_proj(x).unflatten(-1, (-1, 2, attention.head_dim))[..., 1, :].flatten(-2).sigmoid()


def _llama_like(name: str, **fields: Any) -> Family:
    paths = {"blocks": "model.layers", "attention": "self_attn", "output": "self_attn"}
    return Family(name, **{**paths, "position": "rotary", "scale": _scaling, **fields})


def _gpt_like(name: str, **fields: Any) -> Family:
    paths = {"blocks": "transformer.h", "attention": "attn", "output": "attn"}
    return Family(name, **{**paths, "context": ("n_positions",), "norm": ("ln_1",), **fields})


_LLAMAS = (
    "llama mistral qwen2 qwen3 gemma olmo olmoe mixtral qwen2_moe qwen3_moe starcoder2 nemotron ministral3 smollm3 "
    "glm4_moe"
)
"""Families that are as Llama in all that a row says."""
_LATENT = ("kv_a_layernorm", "kv_a_proj_with_mqa", "kv_b_proj")

_ROWS = (
    Family(
        "bloom",
        blocks="transformer.h",
        attention="self_attention",
        output="self_attention.dense",  # the attention module adds the residual itself
        position="alibi",
        scale=_inv_norm_factor,
        context=("seq_length",),
        calls="softmax",
        bias=_bloom_bias,
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
        calls="softmax",
        bias=_mpt_bias,
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
        calls="sdpa",  # its eager attention adds ALiBi twice: in the mask and beside it
        norm=("ln_attn", "input_layernorm"),
        projections=("query_key_value",),
        groups=_falcon_groups,
        parallel=lambda config: bool(config.parallel_attn or config.new_decoder_architecture),
    ),
    *(_llama_like(name) for name in _LLAMAS.split()),
    _llama_like("gemma2", output="post_attention_layernorm", fused=False),  # normed before it is added; soft-capped
    _llama_like("gemma3_text", output="post_attention_layernorm"),
    _llama_like("gemma3", blocks="model.language_model.layers", output="post_attention_layernorm"),  # and pictures
    *(_llama_like(name, parallel=True) for name in ("phi", "cohere", "cohere2")),
    _llama_like("phi3", projections=("qkv_proj",), groups=_shared_one_after_another),
    *(
        _llama_like(name, output="post_attention_layernorm", norm=())
        for name in ("olmo2", "olmo3", "exaone4")  # the attention takes x_t itself, and its output is normed
    ),
    _llama_like("gpt_oss", fused=False),
    *(
        _llama_like(name, projections=("q_proj",), latent=_LATENT)
        for name in ("deepseek_v2", "deepseek_v3", "mistral4")
    ),
    _llama_like(
        "llama4_text",
        context=("attention_chunk_size", "max_position_embeddings"),  # chunks are no window
    ),
    _llama_like("glm4", output="post_self_attn_layernorm"),
    _llama_like("granite", multiplier=lambda layer: float(layer.residual_multiplier)),
    _llama_like("lfm2", norm=("operator_norm",), mixers={"conv": "short_convolution"}),
    _llama_like(
        "granitemoehybrid",
        position=lambda config: "rotary" if config.position_embedding_type == "rope" else "no",
        multiplier=lambda layer: float(layer.residual_multiplier),
        mixers={"mamba": "mamba2"},
    ),
    _llama_like("qwen3_next", gate=_qwen3_next_gate, mixers={"linear_attn": "gated_delta"}),
    _llama_like("stablelm", parallel=lambda config: bool(config.use_parallel_residual)),
    _llama_like(
        "gpt_neox",
        blocks="gpt_neox.layers",
        attention="attention",
        output="attention",
        projections=("query_key_value",),
        groups=_head_by_head,
        parallel=lambda config: bool(config.use_parallel_residual),
    ),
    _gpt_like(
        "gptj",
        position="rotary",
        scale=lambda attention: 1 / float(attention.scale_attn),
        parallel=True,
        calls="_attn",
        fused=False,
    ),
    _gpt_like("gpt2", position="learned", scale=_scaling, projections=("c_attn",), groups=_one_after_another),
    _gpt_like("gpt_bigcode", position="learned", scale=_scaling, projections=("c_attn",), groups=_gpt_bigcode_groups),
    _gpt_like(
        "gpt_neo",
        attention="attn.attention",
        output="attn.attention",
        position="learned",
        scale=lambda attention: 1.0,
        context=("max_position_embeddings",),
        calls="_attn",
        fused=False,
    ),
    _llama_like("opt", blocks="model.decoder.layers", position="learned", norm=("self_attn_layer_norm",)),
)
FAMILIES: dict[str, Family] = {row.name: row for row in _ROWS}
"""The supported families by ``model_type``; :func:`register` adds to them."""


def register(row: Any) -> None:
    """Add a row to :data:`FAMILIES`, for as long as Python runs; ``python -m posbias.models.check`` tries one."""
    if not isinstance(row, Family):
        raise errors.invalid("row", "a Family", type(row).__name__)
    if row.name in FAMILIES:
        raise errors.invalid("name", "one that has no row yet", repr(row.name))
    FAMILIES[row.name] = row


ALONE = "influence alone can be measured: posbias measure -q influence"
"""What can be done with a causal model that has no row."""


def check_family(fields: Mapping[str, Any], *, row: bool = True) -> None:
    """Raise ValueError unless the fields of a configuration are those of a causal language model with a row.

    Without ``row`` any causal language model will do, which is what input-token influence needs: none that reads the
    whole prompt, as an encoder does.

    >>> check_family({"model_type": "bert"})
    Traceback (most recent call last):
    ValueError: architecture: expected a causal language model that transformers knows, no encoder, received bert
    """
    from transformers.models.auto import modeling_auto as auto

    name = str(fields.get("model_type"))
    if name in FAMILIES:
        return
    encodes = name in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES and not fields.get("is_decoder")
    encodes |= bool(fields.get("is_encoder_decoder", name in auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES))
    known = name in {*auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *find_left_out()}
    if (encodes or not known) and "AutoModelForCausalLM" not in (fields.get("auto_map") or {}):  # code of its own
        expected = "a causal language model that transformers knows, no encoder"
        raise errors.invalid("architecture", expected, name[:60])
    if row:
        how = "or add one, as the page operations says"
        raise errors.invalid("architecture", "a family with a row", f"{name}, which has none; {ALONE}; {how}")


def row_of(config: Any) -> Family | None:
    """Return the row of the family that the configuration of a transformers model belongs to, None without one."""
    return FAMILIES.get(config.model_type)


def longest_of(config: Any) -> int | None:
    """Return the longest sequence that a model with this configuration takes, None if it states none."""
    row = row_of(config)
    fields = ("max_position_embeddings",) if row is None else row.context
    stated = [getattr(config, name, None) for name in fields]
    return next((int(n) for n in stated if n), None)


def family_of(config: Any) -> Family:
    """Return the row of the family that the configuration of a transformers model belongs to, or raise ValueError.

    >>> from transformers import GPT2Config
    >>> family_of(GPT2Config()).attention
    'attn'
    """
    if row_of(config) is None:
        check_family(config.to_dict())
    return FAMILIES[config.model_type]


def find_left_out() -> dict[str, str]:
    """Return the classes of causal models that transformers lists by architecture elsewhere, as Mistral 4's."""
    from transformers.models.auto import modeling_auto

    causal = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    found = modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    return {name: x for name, x in found.items() if str(x).endswith("ForCausalLM") and name not in causal}


def causal_class(config: Any) -> Any:
    """Return ``AutoModelForCausalLM``, which knows the architecture of this configuration from now on.

    >>> from transformers import GPT2Config
    >>> causal_class(GPT2Config()).__name__
    'AutoModelForCausalLM'
    """
    import transformers

    if (name := find_left_out().get(config.model_type)) is not None:
        transformers.AutoModelForCausalLM.register(type(config), getattr(transformers, name), exist_ok=True)
    return transformers.AutoModelForCausalLM
