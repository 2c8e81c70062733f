"""A model of ours written as llama.cpp writes it, one file, and opened again: the same numbers, or one line."""

import shutil

import gguf
import numpy as np
import pytest
from measuring import WORDS, make, refused

import posbias
from posbias.models.gguf_file import quantisation_of, read_gguf

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
RANDOM = {"rule": "random", "prompts": 3, "length": 12, "quantities": "influence", "attention": "eager"}


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


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_file_has_the_models_numbers(tmp_path, kind):
    model = write(tmp_path / "tiny.gguf", kind)
    opened = posbias.open(tmp_path / "tiny.gguf")
    ours = posbias.open(model, tokenizer=tmp_path / "tiny.gguf").measure(**RANDOM).results
    theirs = opened.measure(**RANDOM).results
    assert ours.attrs["prompts_sha256"] == theirs.attrs["prompts_sha256"]
    assert theirs.attrs["quantisation"] == "F32 (GGUF), dequantised" and "quantisation" not in ours.attrs
    for name in ("lambda_token", "influence"):
        assert np.allclose(ours[name], theirs[name], rtol=1e-4, atol=1e-6), name
    assert ours["lambda_token"].std() > 0.01


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gguf")
    write(folder / "tiny.gguf", "llama")
    return folder


def test_one_file_is_all(place, tmp_path):
    shutil.copy(place / "tiny.gguf", tmp_path / "tiny.gguf")
    opened, folder = posbias.open(tmp_path / "tiny.gguf"), posbias.open(tmp_path)
    texts = [" ".join(WORDS[k : k + 9]) for k in range(4)]
    measured = opened.measure(texts=texts, length=8)
    assert measured.results.attrs["model"] == "tiny.gguf" and measured.results.attrs["revision"].startswith("file-")
    assert np.array_equal(measured.influence, folder.measure(texts=texts, length=8).influence)
    chat = [[{"role": "user", "content": text}] for text in texts]
    assert np.array_equal(opened.measure(texts=chat, length=8).influence, measured.influence)
    page = measured.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "F32 (GGUF), dequantised" in page
    shutil.copy(place / "tiny.gguf", tmp_path / "other.gguf")
    with pytest.raises(ValueError, match="expected files that transformers reads"):
        posbias.open(tmp_path)


def test_weights_that_were_rounded_are_those_that_are_measured(tmp_path):
    x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32)
    rounded = gguf.quants.quantize(x, gguf.GGMLQuantizationType.Q4_1)
    assert 1e-3 < np.abs(gguf.quants.dequantize(rounded, gguf.GGMLQuantizationType.Q4_1) - x).max() < 0.05
    write(tmp_path / "tiny.gguf", "llama", lambda writer: writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_1))
    assert quantisation_of(read_gguf(tmp_path / "tiny.gguf")) == "Q4_1"


def opening(model, folder):
    return ["report", str(model), "-n", "16", "-o", str(folder / "page.html")]


def torn(folder):
    write(folder / "tiny.gguf", "llama")
    whole = (folder / "tiny.gguf").read_bytes()
    (folder / "tiny.gguf").write_bytes(whole[: len(whole) // 2])


def foreign(folder):
    writer = gguf.GGUFWriter(folder / "tiny.gguf", "plamo")
    writer.add_context_length(64)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def extra(folder):
    write(folder / "tiny.gguf", "llama", lambda writer: writer.add_tensor("rope_freqs.weight", np.ones(4, np.float32)))


def window(folder):
    write(folder / "tiny.gguf", "phi3", lambda writer: writer.add_sliding_window(5))


def scaled(folder):
    write(folder / "tiny.gguf", "llama", lambda writer: writer.add_rope_scaling_factor(4.0))


REFUSED = {
    "torn": (torn, "tiny.gguf: expected a whole GGUF file"),
    "foreign": (foreign, "tiny.gguf: expected an architecture that transformers converts: llama, "),
    "more than is read": (extra, "expected a model of all "),
    "a window that is not read": (window, "received attention.sliding_window = 5, which it leaves out"),
    "positions that are not read": (scaled, "received rope.scaling.factor = 4.0, which it leaves out"),
    "less than is read": (
        lambda folder: write(folder / "tiny.gguf", "llama", without="ffn_up"),
        "received 3 missing (",
    ),
    "GPT-2 of another length": (
        lambda folder: write(folder / "tiny.gguf", "gpt2", without="position"),
        "received 1 missing (transformer.wpe.weight)",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_one_line_says_what_is_wrong(tmp_path, capsys, why):
    spoil, expected = REFUSED[why]
    (folder := tmp_path / "model").mkdir()
    spoil(folder)
    refused(capsys, tmp_path, opening(folder / "tiny.gguf", tmp_path), expected, there=[folder])


def test_without_the_package_it_is_named(place, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("posbias.models.gguf_file.find_spec", lambda name: None)
    refused(capsys, tmp_path, opening(place / "tiny.gguf", tmp_path), "pip install gguf")
