"""Weights by name: every layout that is right is accepted to the bit, and every other is refused by name."""

import json
import shutil

import pytest
import torch
from measuring import CONFIGS, OF_THE_BOOK, make, save
from safetensors.torch import load_file, save_file

from posbias.models.loading import Source

ROWS = list({kind: name for name, (kind, _) in reversed(CONFIGS.items())}.values())
"""One row of each family."""
WEIGHTS = "model.safetensors"
TAKES = {"dtype": torch.float32, "device": "cpu", "device_map": None}


def load(folder):
    return Source(str(folder)).load_model(**TAKES)


def rewrite(folder, change):
    """Replace the tensors of a checkpoint by ``change`` of them."""
    save_file(change(load_file(folder / WEIGHTS)), folder / WEIGHTS, metadata={"format": "pt"})


def same(model, other):
    mine, others = model.state_dict(), other.state_dict()
    return mine.keys() == others.keys() and all(torch.equal(x, others[key]) for key, x in mine.items())


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    save(folder / "gpt2", "gpt2")
    save(folder / "llama", "llama")
    make("gpt2").save_pretrained(folder / "sharded", max_shard_size="20KB")
    return folder


@pytest.mark.parametrize(
    ("name", "tied"), [(name, tied) for name in ROWS for tied in (False, True) if not tied or name in OF_THE_BOOK]
)
def test_what_is_right_is_loaded_to_the_bit(tmp_path, name, tied):
    model = make(name, tie_word_embeddings=tied)
    model.save_pretrained(tmp_path / "whole")
    model.save_pretrained(tmp_path / "sharded", max_shard_size="20KB")
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 1
    for layout in ("whole", "sharded"):
        assert same(load(tmp_path / layout), model)
    model.base_model.save_pretrained(tmp_path / "base")
    absent = [x for x in ("lm_head.weight", "lm_head.bias") if f"embed_out{x[7:]}" in dict(model.named_parameters())]
    heads = {key for key, _ in model.named_parameters() if key.startswith(("lm_head", "embed_out"))}
    if tied and not heads and not absent or model.base_model is model:  # Llama 4's decoder is no part of another
        assert same(load(tmp_path / "base"), model)
    else:
        with pytest.raises(ValueError, match=r"weights: expected a tensor for each of the model's, received none for"):
            load(tmp_path / "base")


def without(*parts):
    return lambda tensors: {name: x for name, x in tensors.items() if not any(part in name for part in parts)}


def copied(source, target):
    """Add the tensors of a layer once more, as another."""
    return lambda tensors: tensors | {k.replace(source, target): x.clone() for k, x in tensors.items() if source in k}


def renamed(old, new):
    return lambda tensors: {name.replace(old, new): x for name, x in tensors.items()}


def cut(part):
    return lambda tensors: {name: x[:-1].clone() if part in name else x for name, x in tensors.items()}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("h.1.ln_1.weight"), "weights: expected a tensor for each of the model's, received none for "
            "transformer.h.1.ln_1.weight"),
        (renamed("ln_f", "final"), "none for transformer.ln_f.bias and 1 more, and transformer.final.bias and 1 "
            "more that it does not have"),
        (lambda x: {**x, "extra.weight": x["transformer.wte.weight"].clone()},
            "weights: expected the model's alone, received extra.weight besides"),
        (without("h.2."), "received none for transformer.h.2.attn.c_attn.bias and 11 more"),
        (copied("h.2.", "h.11."), "the model's alone, received transformer.h.11.attn.c_attn.weight and 10 more"),
        (cut("wpe"), "transformer.wpe.weight: expected the shape (64, 32) of its configuration, received (63, 32)"),
        (cut("bias"), "expected the shape (96,) of its configuration, received (95,) and 18 more"),
        (lambda x: {"other": x["transformer.wte.weight"].clone()}, "expected a tensor for each of the model's"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(place, tmp_path, change, message):
    folder = tmp_path / "m"
    shutil.copytree(place / "gpt2", folder)
    rewrite(folder, change)
    with pytest.raises(ValueError) as error:
        load(folder)
    assert message in str(error.value) and str(error.value).startswith(f"model {folder}: ")
    assert "\n" not in str(error.value) and len(str(error.value)) < 400


def test_buffers_of_old_checkpoints_are_no_surplus(place, tmp_path):
    for name, buffers in {
        "gpt2": ["transformer.h.0.attn.bias", "transformer.h.1.attn.masked_bias"],
        "llama": ["model.layers.0.self_attn.rotary_emb.inv_freq"],
    }.items():
        folder = tmp_path / name
        shutil.copytree(place / name, folder)
        rewrite(folder, lambda x, more=buffers: {**x, **{key: torch.ones(4) for key in more}})
        assert same(load(folder), make(name))


def edited(**changes):
    def edit(folder):
        fields = json.loads((folder / "config.json").read_text()) | changes
        (folder / "config.json").write_text(json.dumps({k: x for k, x in fields.items() if x != "gone"}))

    return edit


def written(name, content):
    return lambda folder: (folder / name).write_bytes(content)


INDEX = "model.safetensors.index.json"
BROKEN = [
    ("gpt2", written(WEIGHTS, b""), "expected files that transformers reads, received Error while deserializing"),
    ("gpt2", lambda f: (f / WEIGHTS).unlink(), "expected files that transformers reads, received Error no file named"),
    ("gpt2", lambda f: (f / WEIGHTS).rename(f / "pytorch_model.bin"), "received pickled ones; give --allow-pickle"),
    ("sharded", written(INDEX, b"{nope"), "expected files that transformers reads, received Expecting property name"),
    ("gpt2", written("config.json", b"{nope"), "config.json: expected JSON, received Expecting property name"),
    ("gpt2", written("config.json", b'{"a":' * 100000 + b"1" + b"}" * 100000), "received objects nested too deep"),
    ("gpt2", edited(n_head="four"), "Field 'n_head' expected int, got str (value: 'four')"),
    ("gpt2", edited(n_head=5), "configuration: expected one that makes a model, received gpt2: `embed_dim` must be"),
    ("gpt2", edited(n_layer=0), "num_hidden_layers: expected an integer of at least 1, received 0"),
    ("gpt2", edited(n_layer=2), "weights: expected the model's alone, received transformer.h.2."),
    ("gpt2", edited(n_embd=48), "expected the shape (144,) of its configuration, received (96,) and 39 more"),
    ("gpt2", edited(vocab_size=10**12), "GiB available on cpu, received weights of 119209.3 GiB in float32"),
    ("gpt2", edited(activation_function="zz"), "configuration: expected one that makes a model, received gpt2: 'zz'"),
]


@pytest.mark.parametrize(("base", "change", "messages"), [(base, change, rest) for base, change, *rest in BROKEN])
def test_what_is_broken_is_said_in_one_line(place, tmp_path, base, change, messages):
    folder = tmp_path / "m"
    shutil.copytree(place / base, folder)
    change(folder)
    with pytest.raises(ValueError) as error:
        load(folder)
    line = str(error.value)
    assert all(message in line for message in messages), line
    assert str(folder) in line or line.startswith(("memory: ", "configuration: ")), line
    assert "\n" not in line and len(line) < 400


def test_parts_that_do_not_fit_are_refused(tmp_path):
    make("falcon-alibi", new_decoder_architecture=True, num_kv_heads=2).save_pretrained(tmp_path / "m")
    with pytest.raises(ValueError, match="m: expected a configuration whose model runs, received 'FalconDecoderLayer'"):
        load(tmp_path / "m")


def test_shards_that_the_index_does_not_name_are_not_looked_at(place, tmp_path):
    shutil.copytree(place / "sharded", tmp_path / "m")
    (tmp_path / "m" / "old.safetensors").write_bytes(b"")
    assert same(load(tmp_path / "m"), make("gpt2"))
