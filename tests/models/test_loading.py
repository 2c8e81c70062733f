"""Models from files: loaded to the bit, or refused in a line; every byte is in what tells one from another."""

import json
import os
import shutil

import pytest
import torch
from measuring import CONFIGS, OF_THE_BOOK, N, make, prompts, save, settings
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoTokenizer, GPT2Config

import posbias
from posbias.measure.corpus import Corpus
from posbias.measure.instrument import Instrument
from posbias.models import loading
from posbias.models import weights as memory
from posbias.models.loading import Source, check_fits, check_shape, folder_digest
from posbias.models.weights import find_device
from posbias.settings import Settings

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


@pytest.fixture(scope="module")
def tiny(place):
    return place / "gpt2"


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
        with pytest.raises(ValueError, match=r"weights: expected those of its configuration, received \d+ missing"):
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
        (without("h.1.ln_1.weight"), "weights: expected those of its configuration, received 1 missing (transf"),
        (renamed("ln_f", "final"), "2 missing (transformer.ln_f.bias), 2 unknown (transformer.final.bias)"),
        (lambda x: {**x, "extra.weight": x["transformer.wte.weight"].clone()},
            "weights: expected those of its configuration, received 1 unknown (extra.weight)"),
        (without("h.2."), "received 12 missing (transformer.h.2.attn.c_attn.bias)"),
        (copied("h.2.", "h.11."), "received 11 unknown (transformer.h.11.attn.c_attn.weight)"),
        (cut("wpe"), "received 1 of another shape (transformer.wpe.weight: (63, 32) for (64, 32))"),
        (cut("bias"), "received 19 of another shape (transformer.h.0.attn.c_attn.bias: (95,) for (96,))"),
        (lambda x: {"other": x["transformer.wte.weight"].clone()}, " missing ("),
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
    ("gpt2", lambda f: (f / WEIGHTS).rename(f / "pytorch_model.bin"), "received pickled ones; load them yourself"),
    ("sharded", written(INDEX, b"{nope"), "expected files that transformers reads, received Expecting property name"),
    ("gpt2", edited(n_head="four"), "Field 'n_head' expected int, got str (value: 'four')"),
    ("gpt2", edited(n_head=5), "configuration: expected one that makes a model, received gpt2: `embed_dim` must be"),
    ("gpt2", edited(n_layer=2), "unknown (transformer.h.2."),
    ("gpt2", edited(n_embd=48), "received 40 of another shape (transformer.h.0.attn.c_attn.bias: (96,) for (144,))"),
    ("gpt2", edited(vocab_size=10**12), "GiB available on cpu, received weights of 119209.3 GiB in float32"),
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


def test_shards_that_the_index_does_not_name_are_not_looked_at(place, tmp_path):
    shutil.copytree(place / "sharded", tmp_path / "m")
    (tmp_path / "m" / "old.safetensors").write_bytes(b"")
    assert same(load(tmp_path / "m"), make("gpt2"))


@pytest.fixture
def model(place, tmp_path):
    shutil.copytree(place / "gpt2", tmp_path / "gpt2")
    return tmp_path / "gpt2"


def flip(file, at):
    """Change one byte, and the file's time by as little as can be."""
    content, times = bytearray(file.read_bytes()), file.stat()
    content[at] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns + 1))


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"])
def test_every_byte_of_every_file_counts(model, name):
    before = Source(str(model)).version()
    assert before == Source(str(model)).version() and before.startswith("files-") and len(before) == 22
    for part in (0.0, 0.5, 1.0):
        flip(model / name, int(part * ((model / name).stat().st_size - 1)))
        assert Source(str(model)).version() != before


def test_names_count_and_place_and_other_files_do_not(model, tmp_path):
    before = folder_digest(model)
    assert folder_digest(shutil.copytree(model, tmp_path / "elsewhere")) == before
    (model / "README.md").write_text("words")
    (model / "m.nc").write_bytes(b"a measurement beside the model")
    (model / "inner").mkdir()
    (model / "inner" / "config.json").write_text("{}")
    assert folder_digest(model) == before
    (model / "vocab.txt").write_text("more")
    assert folder_digest(model) != before


def test_a_tokenizer_from_elsewhere_counts(place, model, tmp_path):
    alone = Source(str(model)).version()
    assert Source(str(model), tokenizer=str(model)).version() == alone
    assert Source(str(model), tokenizer=f"{model}/../gpt2").version() == alone
    other = tmp_path / "tokenizer"
    other.mkdir()
    for file in (place / "llama").glob("tokenizer*"):
        shutil.copy(file, other)
    both = Source(str(model), tokenizer=str(other)).version()
    assert both.startswith(f"{alone}, tokenizer files-")
    flip(other / "tokenizer.json", 900)
    assert Source(str(model), tokenizer=str(other)).version() != both


def test_commits_are_the_identity_on_the_hub(model, monkeypatch):
    commits = {"someone/model": "1" * 40, "someone/tokenizer": "2" * 40}

    def cached(name, file, **_):
        if name == "someone/tokenizer" and file != "tokenizer.json":
            return None
        return f"/cache/models/snapshots/{commits[name]}/{file}"

    monkeypatch.setattr(loading, "cached_file", cached)
    assert Source("someone/model").version() == "1" * 40
    assert Source("someone/model", tokenizer="someone/tokenizer").version() == f"{'1' * 40}, tokenizer {'2' * 40}"
    both = Source("someone/model", tokenizer=str(model)).version()
    assert both == f"{'1' * 40}, tokenizer {folder_digest(model)}"


def test_what_the_hub_says_is_passed_on(monkeypatch):
    def answer(*args, **options):
        raise OSError("a message of\nmany lines, and " + 500 * "words")

    monkeypatch.setattr(AutoConfig, "from_pretrained", answer)
    with pytest.raises(ValueError) as error:
        Source("someone/thing", revision="v2").config()
    said = "model someone/thing: expected a directory, or an id that the hub answers for, received a message of many"
    assert str(error.value).startswith(said) and "\n" not in str(error.value) and len(str(error.value)) < 300


@pytest.mark.parametrize("beside", [True, False])
def test_a_directory_with_an_adapter_is_refused(tiny, tmp_path, beside):
    folder = shutil.copytree(tiny, tmp_path / "m") if beside else tmp_path
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    with pytest.raises(ValueError, match=r"merge an adapter in memory: posbias\.open\(peft_model\.merge_and_unload"):
        posbias.open(folder)


def empty(folder):
    """Leave the class of a tokenizer, with no vocabulary."""
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: [file.unlink() for file in f.glob("tokenizer*")], "expected a directory with one of tokenizer.json"),
        (empty, "expected one with tokens that are not special, received none"),
        (lambda f: (f / "tokenizer.json").write_text("{}"), "expected files that transformers reads, received"),
    ],
)
def test_a_broken_tokenizer_is_refused(tiny, tmp_path, change, message):
    """transformers makes an empty tokenizer where the files are gone: prompts of nothing would be measured."""
    folder = tmp_path / "m"
    shutil.copytree(tiny, folder)
    change(folder)
    with pytest.raises(ValueError) as error:
        Source(str(folder)).load_tokenizer()
    assert str(error.value).startswith(f"tokenizer {folder}: ") and message in str(error.value)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500


def test_a_mask_that_is_not_causal_is_refused():
    check_shape("m", settings("gemma3_text"))
    with pytest.raises(ValueError, match="m: use_bidirectional_attention: expected"):
        check_shape("m", settings("gemma3_text", use_bidirectional_attention=True))


def test_of_text_and_pictures_the_text_is_measured(tmp_path):
    source = Source(str(save(tmp_path / "gemma3", "gemma3")))
    assert (source.config().model_type, source.config().num_hidden_layers) == ("gemma3_text", 3)
    model = source.load_model(torch.float32, "cpu", None)
    found, own = (Instrument(m).measure(prompts()).influence for m in (model, make("gemma3")))
    assert torch.allclose(found, own, rtol=1e-5)


def test_the_largest_id_counts_not_how_many_there_are(tiny, tmp_path):
    folder = tmp_path / "m"
    shutil.copytree(tiny, folder)
    fields = json.loads((folder / "tokenizer.json").read_text())
    fields["model"]["vocab"]["far"] = 97
    (folder / "tokenizer.json").write_text(json.dumps(fields))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    config = Source(str(folder)).config()
    assert len(tokenizer) < config.vocab_size == 97
    with pytest.raises(ValueError, match="tokenizer: expected ids below the model's 97, received 97 for 'far'"):
        check_fits(config, tokenizer, N)
    check_fits(config, Source(str(tiny)).load_tokenizer(), N)


@pytest.mark.parametrize(
    "device", ["meta", "xpu", "privateuseone", "nonsense", "", "cuda:99", "cuda:x", "cpu:-1", "CPU"]
)
def test_devices_that_are_not_there_are_refused(device):
    with pytest.raises(ValueError, match=r"^device: expected .*, received [^\n]*$"):
        find_device(Settings(Source("m"), Corpus("builtin"), 1, 8, device=device).device)


def test_memory_that_is_available_is_at_most_a_containers(tmp_path, monkeypatch):
    place = torch.device("cpu")
    monkeypatch.setattr(memory, "LIMIT", tmp_path / "max")
    free = memory.memory_available(place)
    for limit in ("max", "4096"):
        (tmp_path / "max").write_text(f"{limit}\n")
        there = memory.memory_available(place)
        assert there == 4096 if limit == "4096" else 0.5 * free < there < 2 * free
    with pytest.raises(ValueError, match=r"expected at most the 0\.0 GiB .* on cpu, received weights of"):
        memory.check_weights_fit(GPT2Config(), torch.float32, place)
