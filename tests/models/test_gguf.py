"""A model of ours written as llama.cpp writes it, one file, and opened again: the same numbers, or one line."""

import shutil

import gguf
import numpy as np
import pytest
from gguf_files import FAMILIES, write
from measuring import WORDS, refused

import posbias
from posbias.models.gguf_file import quantisation_of, read_gguf

RANDOM = {"rule": "random", "prompts": 3, "length": 12, "quantities": "influence", "attention": "eager"}


@pytest.fixture(autouse=True)
def data(tmp_path_factory, monkeypatch):
    """Keep what is made of files out of the user's cache folder."""
    monkeypatch.setenv("POSBIAS_DATA", str(tmp_path_factory.mktemp("data")))


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


def test_one_file_is_all(place, tmp_path, undrawn):
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
