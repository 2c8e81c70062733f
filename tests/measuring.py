"""Tiny random models of every family, and a tokenizer, for the tests of the measuring half."""

import functools
import json

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoConfig, PreTrainedTokenizerFast

from posbias.cli import main
from posbias.models.families import causal_class

EVERYTHING = "kernels,content,logits,heads,branches,ladder"
"""Quantities of a measurement beyond the least."""
VOCABULARY = 97
N = 12

SMALL = {"vocab_size": VOCABULARY, "hidden_size": 32, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
LLAMA = {
    **SMALL, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48,
    "max_position_embeddings": 64,
}  # fmt: skip
FALCON = {**SMALL, "num_hidden_layers": 3, "num_attention_heads": 4, "max_position_embeddings": 64}
GPT = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64}
GPT |= {"bos_token_id": 0, "eos_token_id": 0}
BLOOM = {**SMALL, "n_layer": 3, "n_head": 4}
MPT = {"vocab_size": VOCABULARY, "d_model": 32, "n_layers": 3, "n_heads": 4, "max_seq_len": 64}
LOCAL = {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
MIXTURE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
ROUTED = {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 24}
ROUTED |= {"first_k_dense_replace": 1, "n_group": 2, "topk_group": 1}
LATENT = {**ROUTED, "num_key_value_heads": 4, "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4}
LATENT |= {"v_head_dim": 8}
STRETCHED = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 16.0, "original_max_position_embeddings": 4}
STRETCHED |= {"llama_4_scaling_beta": 0.1}
VISION = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
VISION |= {"image_size": 8, "patch_size": 4}

CONFIGS = {
    "bloom": ("bloom", BLOOM),
    "bloom-6-heads": ("bloom", {**BLOOM, "hidden_size": 48, "n_head": 6}),
    "mpt": ("mpt", MPT),
    "mpt-6-heads": ("mpt", {**MPT, "d_model": 48, "n_heads": 6}),
    "falcon-alibi": ("falcon", {**FALCON, "alibi": True, "multi_query": False, "parallel_attn": False, "bias": True}),
    "falcon-alibi-parallel": ("falcon", {**FALCON, "alibi": True, "multi_query": True, "parallel_attn": True}),
    "falcon-rotary": ("falcon", {**FALCON, "alibi": False, "multi_query": True, "parallel_attn": True}),
    "falcon-new": ("falcon", {**FALCON, "alibi": False, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "llama": ("llama", LLAMA),
    "mistral": ("mistral", {**LLAMA, "sliding_window": 5}),
    "qwen2": ("qwen2", {**LLAMA, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}),
    "qwen3": ("qwen3", {**LLAMA, "head_dim": 16}),
    "gpt_neox": ("gpt_neox", {**LLAMA, "use_parallel_residual": True, "rotary_pct": 0.5}),
    "gpt_neox-serial": ("gpt_neox", {**LLAMA, "use_parallel_residual": False}),
    "gptj": ("gptj", {**GPT, "rotary_dim": 4}),
    "gpt2": ("gpt2", GPT),
    "gpt2-inverse-layer": ("gpt2", {**GPT, "scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True}),
    "opt": ("opt", {**LLAMA, "ffn_dim": 48, "word_embed_proj_dim": 32}),
    "opt-projected": ("opt", {**LLAMA, "ffn_dim": 48, "word_embed_proj_dim": 16, "do_layer_norm_before": False}),
    "gemma": ("gemma", {**LLAMA, "head_dim": 16}),
    "gemma2": ("gemma2", {**LLAMA, "head_dim": 16, "sliding_window": 5, "attn_logit_softcapping": 5.0}),
    "phi": ("phi", {**LLAMA, "partial_rotary_factor": 0.5}),
    "phi3": ("phi3", {**LLAMA, "sliding_window": 5}),
    "olmo": ("olmo", LLAMA),
    "olmo2": ("olmo2", LLAMA),
    "olmo3": ("olmo3", {**LLAMA, **LOCAL}),
    "olmoe": ("olmoe", {**LLAMA, "num_experts": 4, "num_experts_per_tok": 2}),
    "gemma3_text": ("gemma3_text", {**LLAMA, **LOCAL, "head_dim": 16}),
    "gemma3": ("gemma3", {"text_config": {**LLAMA, **LOCAL, "head_dim": 16}, "vision_config": VISION}),
    "mixtral": ("mixtral", {**LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2_moe": ("qwen2_moe", {**LLAMA, **MIXTURE, "sliding_window": 0, "shared_expert_intermediate_size": 24}),
    "qwen2_moe-local": (
        "qwen2_moe",
        {**LLAMA, **MIXTURE, **LOCAL, "use_sliding_window": True, "shared_expert_intermediate_size": 24},
    ),
    "qwen3_moe": ("qwen3_moe", {**LLAMA, **MIXTURE, "head_dim": 16}),
    "gpt_oss": ("gpt_oss", {**LLAMA, **LOCAL, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "deepseek_v2": ("deepseek_v2", {**LLAMA, **LATENT, "topk_method": "greedy", "q_lora_rank": None}),
    "deepseek_v3": ("deepseek_v3", {**LLAMA, **LATENT, "q_lora_rank": 12}),
    "mistral4": ("mistral4", {**LLAMA, **LATENT, "q_lora_rank": 12, "rope_parameters": STRETCHED}),
    "llama4_text": (
        "llama4_text",
        {**LLAMA, "head_dim": 8, "intermediate_size_mlp": 48, "num_local_experts": 4, "no_rope_layers": [1, 0, 1]}
        | {"floor_scale": 4, "moe_layers": [1], "attention_chunk_size": 64},
    ),
    "glm4": ("glm4", {**LLAMA, "head_dim": 8}),
    "glm4_moe": ("glm4_moe", {**LLAMA, **ROUTED, "head_dim": 8, "use_qk_norm": True}),
    "smollm3": ("smollm3", {**LLAMA, "no_rope_layers": [1, 0, 1]}),
    "granite": ("granite", {**LLAMA, "residual_multiplier": 0.3, "attention_multiplier": 0.5, "logits_scaling": 2.0}),
    "cohere": ("cohere", {**LLAMA, "use_qk_norm": True, "logit_scale": 0.5}),
    "cohere2": ("cohere2", {**LLAMA, **LOCAL, "head_dim": 8}),
    "starcoder2": ("starcoder2", {**LLAMA, "sliding_window": 5}),
    "stablelm": ("stablelm", {**LLAMA, "qk_layernorm": True}),
    "stablelm-parallel": ("stablelm", {**LLAMA, "use_parallel_residual": True}),
    "nemotron": ("nemotron", LLAMA),
    "exaone4": ("exaone4", {**LLAMA, **LOCAL, "head_dim": 8}),
    "ministral3": ("ministral3", {**LLAMA, "head_dim": 8}),
    "gpt_neo": (
        "gpt_neo",
        {**SMALL, "num_layers": 3, "num_heads": 4, "max_position_embeddings": 64, "window_size": 5}
        | {"attention_types": [[["global", "local"], 1], [["local"], 1]]},
    ),
    "gpt_bigcode": ("gpt_bigcode", GPT),
    "gpt_bigcode-heads": ("gpt_bigcode", {**GPT, "multi_query": False}),
}
HYBRIDS = {
    "lfm2": ("lfm2", {**LLAMA, "layer_types": ["conv", "full_attention", "conv"], "conv_bias": True}),
    "granitemoehybrid": (
        "granitemoehybrid",
        {**LLAMA, "layer_types": ["linear_attention", "full_attention", "linear_attention"], "mamba_n_heads": 8}
        | {"mamba_n_groups": 2, "mamba_d_state": 8, "mamba_chunk_size": 8, "residual_multiplier": 0.3}
        | {"num_local_experts": 0, "shared_intermediate_size": 48},
    ),
    "qwen3_next": (
        "qwen3_next",
        {**LLAMA, **MIXTURE, "head_dim": 8, "layer_types": ["linear_attention", "full_attention", "linear_attention"]}
        | {"linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_key_heads": 2}
        | {"linear_num_value_heads": 4, "shared_expert_intermediate_size": 24},
    ),
}
"""The same of families some of whose layers have no attention."""
"""Name → (model_type, settings); every family of the table has a row here."""

ALIKE = {"olmo", "olmo3", "olmoe", "gemma3_text", "qwen2_moe", "qwen2_moe-local", "qwen3_moe", "glm4_moe", "cohere2"}
ALIKE |= {"deepseek_v2", "mistral4", "smollm3", "starcoder2", "stablelm", "stablelm-parallel", "exaone4", "ministral3"}
ALIKE |= {"nemotron", "gpt_bigcode"}
OF_THE_BOOK = list(CONFIGS)[:22]
"""Rows of the fourteen families that the studies measure."""
VARIED = [name for name in CONFIGS if name not in ALIKE and name != "gemma3"]
"""Rows of which no two work alike, for tests that take long. Left out: those that do what another does, with other
numbers, and the decoder inside a model of text and pictures, which is ``gemma3_text``."""


def settings(name, **changes):
    """Return the configuration of a tiny model."""
    kind, fields = (CONFIGS | HYBRIDS)[name]
    fields = {**fields, **changes}
    if kind in ("gpt_neox", "opt"):
        fields.pop("num_key_value_heads", None)
    return AutoConfig.for_model(kind, **fields)


def make(name, dtype=torch.float32, attention="eager", seed=0, **changes):
    """Return a tiny random model whose attention is far from uniform and whose biases and norms are not trivial."""
    transformers.set_seed(seed)
    model = causal_class(config := settings(name, **changes)).from_config(config, attn_implementation=attention)
    with torch.no_grad():
        for parameter in model.parameters():
            size = parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.3
            parameter.add_(torch.randn_like(parameter) * 1.5 * size)
    return model.to(dtype).eval()


@functools.cache
def prompts(B=3, n=N, seed=1):
    """Return random token ids, (B, n)."""
    return torch.randint(1, VOCABULARY, (B, n), generator=torch.Generator().manual_seed(seed))


WORDS = [f"{a}{b}{c}" for a in "bdgkl" for b in "aeiou" for c in "mnr"]


def text(words, seed=0):
    """Return a text of random words."""
    rng = np.random.default_rng(seed)
    return " ".join(rng.choice(WORDS, words))


def save(folder, name="llama", start=True, **changes):
    """Save a tiny model with a tokenizer that puts token 0 in front, and return the folder."""
    tokenizer = Tokenizer(models.WordLevel({"<s>": 0, "<unk>": 1, **{w: k + 2 for k, w in enumerate(WORDS)}}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if start:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", unk_token="<unk>").save_pretrained(folder)
    make(name, **changes).save_pretrained(folder)
    return folder


def write_documents(path, lengths, seed=0):
    """Write a .jsonl file of texts with the given numbers of words, and return its path."""
    records = [json.dumps({"text": text(words, seed + k)}) for k, words in enumerate(lengths)]
    path.write_text("\n".join(records) + "\n")
    return path


def arguments(place, output, *more, **changes):
    """Return a command line; a change of None leaves an option out."""
    options = {"prompts": 10, "length": 16, "batch_size": 3, "output": output}
    options |= {} if place is None else {"model": place / "bloom", "dataset": place / "d.jsonl"}
    options |= changes
    model = [str(options.pop("model"))] if "model" in options else []
    pairs = [(f"--{name.replace('_', '-')}", str(value)) for name, value in options.items() if value is not None]
    return ["measure", *model, *(word for pair in pairs for word in pair), *more]


def status(capsys, words):
    """Run the command line in this process and return its status, stdout and stderr."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err


def refused(capsys, folder, words, *expected, there=()):
    """Assert one line on stderr, status 2, and in the folder nothing but what was there."""
    code, out, err = status(capsys, words)
    assert code == 2 and out == "", (code, out, err)
    assert err.startswith("posbias: ") and err.count("\n") == 1, err
    for part in expected:
        assert part in err
    assert list(folder.iterdir()) == [*there]


def agree(one, two, off=1e-6):
    """Assert that two measurements agree."""
    assert set(one) == set(two)
    for name in one:
        assert np.allclose(one[name], two[name], rtol=1e-5, atol=off, equal_nan=True), name
