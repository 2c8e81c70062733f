"""What keeps a model or its tokenizer from being loaded, and a run from being started: one line each."""

import json
import shutil

import pytest
import torch
from measuring import N, make, prompts, save, settings
from transformers import AutoConfig, AutoTokenizer

import posbias
from posbias.measure.corpus import Corpus
from posbias.measure.instrument import Instrument
from posbias.models.families import family_of
from posbias.models.loading import Source, Untrained, check_fits, check_shape
from posbias.models.weights import find_device
from posbias.settings import Settings


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return save(tmp_path_factory.mktemp("loading") / "gpt2", "gpt2")


def test_what_the_hub_says_is_passed_on(monkeypatch):
    def answer(*args, **options):
        raise OSError("a message of\nmany lines, and " + 500 * "words")

    monkeypatch.setattr(AutoConfig, "from_pretrained", answer)
    with pytest.raises(ValueError) as error:
        Source("someone/thing", revision="v2").config()
    said = "model someone/thing: expected a directory, or an id that the hub answers for, received a message of many"
    assert str(error.value).startswith(said) and "\n" not in str(error.value) and len(str(error.value)) < 300


@pytest.mark.parametrize("name", ["no/such/folder", "./nowhere", "/no/such", "two words", "~/x", "a/b/c", "x/m.nc"])
def test_what_looks_like_a_path_is_no_id(name):
    with pytest.raises(ValueError, match="expected a directory, or an id that the hub answers for, received no such"):
        posbias.open(name)


@pytest.mark.parametrize("beside", [True, False])
def test_a_directory_with_an_adapter_is_refused(place, tmp_path, beside):
    folder = shutil.copytree(place, tmp_path / "m") if beside else tmp_path
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    with pytest.raises(ValueError, match=r"merge an adapter in memory: posbias\.open\(peft_model\.merge_and_unload"):
        posbias.open(folder)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "model : expected a directory, or an id on the hub, received an empty name"),
        ("FILE", "config.json: expected a directory, or an id on the hub, received a file"),
    ],
)
def test_names_of_nothing_are_refused(place, name, message):
    with pytest.raises(ValueError) as error:
        Source(str(place / "config.json") if name == "FILE" else name).config()
    assert message in str(error.value)


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
def test_a_broken_tokenizer_is_refused(place, tmp_path, change, message):
    """transformers makes an empty tokenizer where the files are gone: prompts of nothing would be measured."""
    folder = tmp_path / "m"
    shutil.copytree(place, folder)
    change(folder)
    with pytest.raises(ValueError) as error:
        Source(str(folder)).load_tokenizer()
    assert str(error.value).startswith(f"tokenizer {folder}: ") and message in str(error.value)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500


@pytest.mark.parametrize("change", [{"sliding_window": 1}, {"use_bidirectional_attention": True}])
def test_windows_of_none_are_none_and_masks_are_causal(change):
    check_shape("m", settings("qwen2_moe", sliding_window=0))
    with pytest.raises(ValueError, match=f"m: {next(iter(change))}: expected"):
        check_shape("m", settings("gemma3_text", **change))


def test_of_text_and_pictures_the_text_is_measured(tmp_path):
    source = Source(str(save(tmp_path / "gemma3", "gemma3")))
    assert (source.config().model_type, source.config().num_hidden_layers) == ("gemma3_text", 3)
    assert Untrained(str(tmp_path / "gemma3"), seed=1).config().model_type == "gemma3_text"
    model = source.load_model(torch.float32, "cpu", None)
    found, own = (Instrument(m).measure(prompts()).influence for m in (model, make("gemma3")))
    assert torch.allclose(found, own, rtol=1e-5)


def test_the_largest_id_counts_not_how_many_there_are(place, tmp_path):
    folder = tmp_path / "m"
    shutil.copytree(place, folder)
    fields = json.loads((folder / "tokenizer.json").read_text())
    fields["model"]["vocab"]["far"] = 200
    (folder / "tokenizer.json").write_text(json.dumps(fields))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    config = Source(str(folder)).config()
    assert len(tokenizer) < config.vocab_size == 97
    with pytest.raises(ValueError, match="tokenizer: expected ids below the model's 97, received 200 for 'far'"):
        check_fits(config, tokenizer, N)
    check_fits(config, Source(str(place)).load_tokenizer(), N)


@pytest.mark.parametrize(
    "device", ["meta", "xpu", "privateuseone", "nonsense", "", "cuda:99", "cuda:x", "cpu:-1", "CPU"]
)
def test_devices_that_are_not_there_are_refused(device):
    with pytest.raises(ValueError, match=r"^device: expected .*, received [^\n]*$"):
        find_device(Settings(Source("m"), Corpus("builtin"), 1, 8, device=device).device)


@pytest.mark.parametrize(
    ("name", "changes"),
    [("bloom", {"apply_residual_connection_post_layernorm": True}), ("opt", {"do_layer_norm_before": False})],
)
def test_lambda_refers_to_what_attention_is_added_to(name, changes):
    """x is computed here from each layer's input, a is what the layer adds to it; both are independent of the hooks."""
    model, taken, summed = make(name, **changes), [], []
    layers = family_of(model.config).layers(model)
    for layer in layers:
        layer.register_forward_pre_hook(lambda _, args, kw: taken.append((*args, *kw.values())[0]), with_kwargs=True)
        after = layer.post_attention_layernorm if name == "bloom" else layer.self_attn_layer_norm
        after.register_forward_pre_hook(lambda _, args: summed.append(args[0]))
    with torch.no_grad():
        model(prompts(), use_cache=False)
    for module in model.modules():
        module._forward_pre_hooks.clear()
    reading = Instrument(model).measure(prompts())
    for t, layer in enumerate(layers):
        x = layer.input_layernorm(taken[t]).detach() if name == "bloom" else taken[t]
        a = summed[t].view_as(x) - x
        (x_token, x_all), (a_token, a_all) = ((y.norm(dim=-1), y.norm(dim=(1, 2))) for y in (x.double(), a.double()))
        assert torch.allclose(reading.lambda_frobenius[:, t], a_all / (x_all + a_all), atol=1e-6)
        assert torch.allclose(reading.lambda_token[:, t], (a_token / (x_token + a_token)).mean(-1), atol=1e-6)
