"""Weights by name: every layout that is right is accepted to the bit, and every other is refused by name."""

import json
import shutil

import numpy as np
import pytest
import torch
from measuring import CONFIGS, OF_THE_BOOK, make, prompts, save
from safetensors.torch import load_file, save_file

import posbias
from posbias.cli import main
from posbias.measure.loading import Source

ROWS = list({kind: name for name, (kind, _) in reversed(CONFIGS.items())}.values())
"""One row of each family."""
WEIGHTS = "model.safetensors"
TAKES = {"dtype": torch.float32, "device": "cpu", "device_map": None}


def load(folder, **options):
    return Source(str(folder), **options).load_model(**TAKES)


def rewrite(folder, change):
    """Replace the tensors of a checkpoint by ``change`` of them."""
    save_file(change(load_file(folder / WEIGHTS)), folder / WEIGHTS, metadata={"format": "pt"})


def same(model, other):
    mine, others = model.state_dict(), other.state_dict()
    return mine.keys() == others.keys() and all(torch.equal(x, others[key]) for key, x in mine.items())


def behind(prefix):
    return lambda tensors: {prefix + name: x for name, x in tensors.items()}


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


@pytest.mark.parametrize(
    ("name", "prefix"),
    [("gpt2", "module."), ("llama", "module._orig_mod."), ("gpt_neox", "net.model.inner."), ("gpt2 base", "module.")],
)
def test_prefixed_names_are_refused_and_mended(tmp_path, name, prefix):
    model = make(name.split()[0], tie_word_embeddings=name.startswith("gpt2"))
    (model.base_model if name.endswith("base") else model).save_pretrained(tmp_path)
    rewrite(tmp_path, behind(prefix))
    with pytest.raises(ValueError) as error:
        load(tmp_path)
    assert str(error.value).startswith(f"model {tmp_path}: weights: expected names such as ")
    assert str(error.value).endswith(f"received the same names behind {prefix!r}; try --strip-prefix {prefix}")
    mended = load(tmp_path, strip_prefix=prefix)
    assert same(mended, model)
    with torch.no_grad():
        torch.testing.assert_close(mended(prompts()).logits, model(prompts()).logits, rtol=1e-5, atol=1e-5)


def test_the_command_and_the_front_door_take_the_prefix(place, tmp_path, capsys):
    shutil.copytree(place / "gpt2", tmp_path / "gpt2")
    rewrite(tmp_path / "gpt2", behind("module."))
    words = ["measure", "-o", str(tmp_path / "m.nc"), "-m", str(tmp_path / "gpt2"), "--rule", "random"]
    words += ["-N", "2", "-n", "8", "--device", "cpu"]
    with pytest.raises(SystemExit):
        main(words)
    assert "try --strip-prefix module.\n" in capsys.readouterr().err and not (tmp_path / "m.nc").exists()
    with pytest.raises(SystemExit, match="0"):
        main([*words, "--strip-prefix", "module."])
    found = posbias.open(tmp_path / "gpt2", strip_prefix="module.").measure(2, 8, rule="random", seed=0).influence
    plain = posbias.open(place / "gpt2").measure(2, 8, rule="random", seed=0).influence
    np.testing.assert_allclose(found, plain, rtol=1e-5)
    np.testing.assert_allclose(posbias.load(tmp_path / "m.nc").influence, plain, rtol=1e-5)


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
    ("change", "options", "message"),
    [
        (without("h.1.ln_1.weight"), {}, "weights: expected a tensor for each of the model's, received none for "
            "transformer.h.1.ln_1.weight"),
        (renamed("ln_f", "final"), {}, "none for transformer.ln_f.bias and 1 more, and transformer.final.bias and 1 "
            "more that it does not have"),
        (lambda x: {**x, "extra.weight": x["transformer.wte.weight"].clone()}, {},
            "weights: expected the model's alone, received extra.weight besides"),
        (without("h.2."), {}, "layers: expected the 3 of its configuration, received 2 in its weights"),
        (copied("h.2.", "h.11."), {}, "layers: expected the 3 of its configuration, received 12 in its weights"),
        (cut("wpe"), {}, "transformer.wpe.weight: expected the shape (64, 32) of its configuration, received (63, 32)"),
        (cut("bias"), {}, "expected the shape (96,) of its configuration, received (95,) and 18 more"),
        (lambda x: x, {"strip_prefix": "module."}, "strip_prefix: expected what names of its weights begin with, "
            "received 'module.'"),
        (lambda x: {**x, **{f"ema.{k}": 0 * t for k, t in x.items()}}, {"strip_prefix": "ema."},
            "strip_prefix: expected names with 'ema.', or without, received transformer.h.0.attn.c_attn.bias with it"),
        (lambda x: {"other": x["transformer.wte.weight"].clone()}, {}, "the 3 of its configuration, received 0"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(place, tmp_path, change, options, message):
    folder = tmp_path / "m"
    shutil.copytree(place / "gpt2", folder)
    rewrite(folder, change)
    with pytest.raises(ValueError) as error:
        load(folder, **options)
    assert message in str(error.value) and str(error.value).startswith(f"model {folder}: ")
    assert "\n" not in str(error.value) and len(str(error.value)) < 400


def test_layers_of_a_base_model_are_counted(tmp_path):
    make("llama", tie_word_embeddings=True).base_model.save_pretrained(tmp_path)
    rewrite(tmp_path, without("layers.0."))
    with pytest.raises(ValueError, match="layers: expected the 3 of its configuration, received 2 in its weights"):
        load(tmp_path)


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
    ("gpt2", written(WEIGHTS, b""), f"{WEIGHTS}: expected whole .safetensors files, received"),
    ("gpt2", lambda f: written(WEIGHTS, (f / WEIGHTS).read_bytes()[:9000])(f), "metadata, file not fully covered"),
    ("gpt2", lambda f: (f / WEIGHTS).unlink(), f"expected weights in {WEIGHTS}, or {INDEX}, received none"),
    ("gpt2", lambda f: (f / WEIGHTS).rename(f / "pytorch_model.bin"), "received pickled ones; give --allow-pickle"),
    ("sharded", written(INDEX, b"{nope"), f"{INDEX}: expected JSON, received Expecting property name"),
    ("sharded", written(INDEX, b"[]"), f"{INDEX}: expected a JSON object, received []"),
    ("sharded", written(INDEX, b'{"weight_map": {"a": 1}}'), "weight_map: expected names of tensors"),
    ("sharded", written(INDEX, b'{"weight_map": {"a": "gone.safetensors"}}'), "received gone.safetensors, not there"),
    ("sharded", lambda f: min(f.glob("*.safetensors")).write_bytes(b"\1" * 99), "-of-00011.safetensors: expected"),
    ("gpt2", written("config.json", b"{nope"), "config.json: expected JSON, received Expecting property name"),
    ("gpt2", written("config.json", b"\xff\xfe"), "config.json: expected JSON, received 'utf-8' codec"),
    ("gpt2", written("config.json", b"[1]"), "config.json: expected a JSON object, received [1]"),
    ("gpt2", written("config.json", b'{"a":' * 100000 + b"1" + b"}" * 100000), "received objects nested too deep"),
    ("gpt2", edited(model_type="gone"), "config.json: architecture: expected a model_type", "received none"),
    ("gpt2", edited(model_type="bert"), "config.json: architecture: expected a causal language model", "received bert"),
    ("gpt2", edited(model_type=[3]), "config.json: architecture: expected a model_type", "received [3]"),
    ("gpt2", edited(n_head=0), "num_attention_heads: expected an integer of at least 1, received 0"),
    ("gpt2", edited(n_head="four"), "Field 'n_head' expected int, got str (value: 'four')"),
    ("gpt2", edited(n_head=5), "num_attention_heads: expected a divisor of hidden_size 32, received 5"),
    ("gpt2", edited(n_layer=0), "num_hidden_layers: expected an integer of at least 1, received 0"),
    ("gpt2", edited(n_layer=10**9), "num_hidden_layers: expected at most 1000, received 1000000000"),
    ("gpt2", edited(n_layer=2), "layers: expected the 2 of its configuration, received 3 in its weights"),
    ("gpt2", edited(n_embd=48), "expected the shape (144,) of its configuration, received (96,) and 39 more"),
    ("gpt2", edited(n_embd=10**9), "configuration: expected one that makes a model, received gpt2: Storage size"),
    ("gpt2", edited(vocab_size=10**12), "GiB available, received weights of 119209.3 GiB in float32"),
    ("gpt2", edited(vocab_size=0), "vocab_size: expected an integer of at least 1, received 0"),
    ("gpt2", edited(activation_function="zz"), "configuration: expected one that makes a model, received gpt2: 'zz'"),
    ("llama", edited(num_key_value_heads=3), "num_key_value_heads: expected a divisor of the 4 heads, received 3"),
    ("llama", edited(head_dim=7), "expected files that transformers reads, received Class validation error"),
]


@pytest.mark.parametrize(("base", "change", "messages"), [(base, change, rest) for base, change, *rest in BROKEN])
def test_what_is_broken_is_said_in_one_line(place, tmp_path, base, change, messages):
    folder = tmp_path / "m"
    shutil.copytree(place / base, folder)
    change(folder)
    with pytest.raises(ValueError) as error:
        load(folder)
    line = str(error.value)
    assert all(message in line for message in messages) and str(folder) in line, line
    assert "\n" not in line and len(line) < 400


def test_parts_that_do_not_fit_are_refused_before_weights_are_read(tmp_path):
    save(tmp_path / "m", "falcon-alibi")
    edited(new_decoder_architecture=True)(tmp_path / "m")
    (tmp_path / "m" / WEIGHTS).write_bytes(b"")
    with pytest.raises(ValueError, match="m: expected a configuration whose model runs, received 'FalconDecoderLayer'"):
        load(tmp_path / "m")


def test_shards_that_the_index_does_not_name_are_not_looked_at(place, tmp_path):
    shutil.copytree(place / "sharded", tmp_path / "m")
    (tmp_path / "m" / "old.safetensors").write_bytes(b"")
    assert same(load(tmp_path / "m"), make("gpt2"))
