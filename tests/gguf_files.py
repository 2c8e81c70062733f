"""Tiny models written as llama.cpp writes them, one GGUF file each."""

import gguf
import numpy as np
from measuring import WORDS, make

FAMILIES = {
    "bloom": "bloom", "falcon-rotary": "falcon", "gpt2": "gpt2", "llama": "llama", "mistral": "llama",
    "qwen2": "qwen2", "phi3": "phi3",
}  # fmt: skip
"""Tiny models, by the architecture that llama.cpp files them under."""
CHANGES = {
    "bloom": {"tie_word_embeddings": True}, "gpt2": {"n_positions": 1024}, "mistral": {"sliding_window": None},
    "qwen2": {"use_sliding_window": False}, "phi3": {"sliding_window": None, "num_key_value_heads": 2},
}  # fmt: skip
"""What each is made with so that its file can say it."""


def pairs(weight, heads):
    """Return rows of queries or keys with each head's two halves in turns, as ggml rotates them."""
    return weight.reshape(heads, 2, len(weight) // heads // 2, -1).swapaxes(1, 2).reshape(weight.shape)


def stacked(weight, heads):
    """Return BLOOM's rows of queries, keys and values, head by head, as all queries, all keys, all values."""
    return weight.reshape(heads, 3, len(weight) // heads // 3, -1).swapaxes(0, 1).reshape(weight.shape)


def tensors(model, kind, architecture):
    """Yield name and numbers of every tensor of a file, by the conventions of llama.cpp's own conversion."""
    config, state = model.config, model.state_dict()
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture.upper()], config.num_hidden_layers)
    for name, tensor in state.items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        known = (names.get_name(one, (".weight", ".bias")) for one in (name, name.removeprefix("transformer.")))
        x, name = tensor.float().numpy(), next(filter(None, known))
        if architecture == "llama" and (".attn_q." in name or ".attn_k." in name):
            x = pairs(x, config.num_attention_heads if ".attn_q." in name else config.num_key_value_heads)
        if kind == "bloom" and "attn_qkv" in name:
            x = stacked(x, config.num_attention_heads)
        if kind == "gpt2" and x.ndim == 2 and "blk." in name:
            x = x.T
        yield name, np.ascontiguousarray(x)


def write(path, kind, change=lambda writer: None, without="none"):
    """Write a tiny model to a file, and return the model."""
    architecture = FAMILIES[kind]
    model = make(kind, **CHANGES.get(kind, {}))
    config, writer = model.config, gguf.GGUFWriter(path, architecture)
    writer.add_context_length(getattr(config, "max_position_embeddings", None) or 64)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(getattr(config, "intermediate_size", None) or 4 * config.hidden_size)
    writer.add_head_count(config.num_attention_heads)
    groups = 1 if architecture == "falcon" else getattr(config, "num_key_value_heads", config.num_attention_heads)
    writer.add_head_count_kv(groups)
    writer.add_layer_norm_eps(1e-5)
    writer.add_layer_norm_rms_eps(getattr(config, "rms_norm_eps", 1e-5))
    if architecture == "llama":
        writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(config.vocab_size)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    add_tokenizer(writer, config.vocab_size)
    change(writer)
    for name, x in tensors(model, kind, architecture):
        if without not in name:
            writer.add_tensor(name, x)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def add_tokenizer(writer, size):
    """Add a byte-level tokenizer whose words are letters, and a chat template."""
    letters = [*dict.fromkeys("".join(WORDS))]
    words = ["<s>", "<|endoftext|>", "Ġ", *letters, *(f"{a}{b}" for a in letters for b in letters)][:size]
    words += [f"<{k}>" for k in range(len(words), size)]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(words)
    writer.add_token_types([3, 3, *[1] * (size - 2)])
    writer.add_token_merges([f"{word[0]} {word[1]}" for word in words if len(word) == 2 and word[0] in letters])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_unk_token_id(1)
    writer.add_pad_token_id(0)
    writer.add_chat_template("{% for message in messages %}{{ message['content'] }}{% endfor %}")
