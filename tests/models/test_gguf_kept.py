"""What a GGUF file is made into is kept, whole, and used by the next command; the numbers are the same without it."""

import numpy as np
import pytest
import torch
from gguf_files import write
from measuring import WORDS, save

import posbias
from posbias.models import gguf_file
from posbias.models.loading import Source

TEXTS = [" ".join(WORDS[k : k + 9]) for k in range(4)]
LLAMA_LIKE = ("bloom", "gpt2", "llama", "qwen2")


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("POSBIAS_DATA", str(tmp_path / "data"))
    return tmp_path / "data" / "gguf"


def kept_in(data):
    (folder,) = data.iterdir()
    return folder


def measured(file, **opening):
    return posbias.open(file, **opening).measure(texts=TEXTS, length=8).results


@pytest.mark.parametrize("kind", LLAMA_LIKE)
def test_numbers_are_the_same_with_it_and_without(tmp_path, data, capsys, kind):
    file = tmp_path / "tiny.gguf"
    write(file, kind)
    without = measured(file, cache=False)
    assert not data.exists() and capsys.readouterr().err == ""
    first = measured(file)
    assert f"tiny.gguf: weights are now kept in {kept_in(data)}" in capsys.readouterr().err
    again = measured(file)
    assert f"tiny.gguf: weights kept in {kept_in(data)}" in capsys.readouterr().err
    for other in (first, again):
        assert other.attrs == without.attrs and set(other) == set(without)
        for name in without:
            np.testing.assert_allclose(other[name], without[name], rtol=1e-6, atol=1e-6, err_msg=name)
    chat = [[{"role": "user", "content": text}] for text in TEXTS]
    tokens = [posbias.open(file, cache=kept).measure(texts=chat, length=8).results for kept in (True, False)]
    assert tokens[0].attrs["prompts_sha256"] == tokens[1].attrs["prompts_sha256"]


def test_what_is_kept_is_read_in_place_of_the_file(tmp_path, data, monkeypatch):
    write(tmp_path / "tiny.gguf", "llama")
    measured(tmp_path / "tiny.gguf")
    monkeypatch.setattr("posbias.models.loading.read_gguf", lambda file: pytest.fail("read"))
    source = Source(str(tmp_path / "tiny.gguf"))
    half = source.load_model(torch.bfloat16, "cpu")
    assert half.dtype == torch.bfloat16 and half.model.rotary_emb.inv_freq.dtype == torch.float32
    assert source.about() == {"quantisation": "F32 (GGUF), dequantised"} and source.version().startswith("file-")


def test_a_file_with_other_numbers_is_another(tmp_path, data):
    write(tmp_path / "tiny.gguf", "llama")
    before = measured(tmp_path / "tiny.gguf")
    write(tmp_path / "tiny.gguf", "llama", lambda writer: writer.add_description("another"))
    after = measured(tmp_path / "tiny.gguf")
    assert len([*data.iterdir()]) == 2 and before.attrs["revision"] != after.attrs["revision"]


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json", gguf_file.MANIFEST])
def test_a_torn_file_is_made_anew(tmp_path, data, capsys, name):
    write(tmp_path / "tiny.gguf", "llama")
    before = measured(tmp_path / "tiny.gguf")
    file = kept_in(data) / name
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2))
    capsys.readouterr()
    after = measured(tmp_path / "tiny.gguf")
    np.testing.assert_array_equal(before["influence"], after["influence"])
    *earlier, torn, made = capsys.readouterr().err.splitlines()
    assert "torn file; it is made anew" in torn and "weights are now kept" in made
    assert bool(earlier) == (name == "model.safetensors"), "weights are looked at when they are needed"
    assert len(file.read_bytes()) == len(whole) and bytes(8) not in file.read_bytes()[-8:]


def test_a_folder_that_cannot_be_written_is_done_without(tmp_path, capsys):
    write(tmp_path / "tiny.gguf", "llama")
    (tmp_path / "data").write_text("a file")
    assert measured(tmp_path / "tiny.gguf").attrs["quantisation"] == "F32 (GGUF), dequantised"
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and "expected a cache folder to write, received " in said[0]


def test_what_cannot_be_written_whole_is_not_there(tmp_path, data, capsys, monkeypatch):
    write(tmp_path / "tiny.gguf", "llama")
    monkeypatch.setattr(
        gguf_file.os, "rename", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    assert np.isfinite(measured(tmp_path / "tiny.gguf")["influence"]).all()
    assert not [*data.iterdir()] and "No space left on device; they are not kept" in capsys.readouterr().err


def test_another_tokenizer_in_a_folder_of_the_same_name_is_told(tmp_path):
    here, other = (save(tmp_path / x / "llama", start=x == "here") for x in ("here", "other"))
    versions = [Source(str(here), tokenizer=x and str(x)).version() for x in (None, here, other)]
    assert versions[0] == versions[1] and versions[2].startswith(f"{versions[0]}, tokenizer files-")
