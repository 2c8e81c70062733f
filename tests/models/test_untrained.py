"""Untrained networks: published sizes, the same bits for a seed, and what is refused before anything is built."""

import random
import shutil

import numpy as np
import pytest
import torch
import transformers
from measuring import arguments, refused, save, settings, write_documents
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

import posbias
from posbias.cli import main
from posbias.measure.corpus import Corpus, Prompts, make_prompts
from posbias.measure.results import read_results
from posbias.models import weights as memory
from posbias.models.loading import Source, Untrained, special_tokens
from posbias.models.opening import Vocabulary


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("a connection was asked for"))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with a tiny checkpoint, its configuration alone, and documents."""
    root = tmp_path_factory.mktemp("untrained")
    save(root / "trained", "gpt2", initializer_range=0.3)
    (root / "alone").mkdir()
    shutil.copy(root / "trained" / "config.json", root / "alone")
    write_documents(root / "d.jsonl", [40] * 6)
    return root


FALCON = settings("falcon-alibi", new_decoder_architecture=True).to_json_string()


def command(output, **changes):
    return arguments(None, output, **{"prompts": 4, "length": 12, "batch_size": 2, **changes})


def measured(capsys, words):
    with pytest.raises(SystemExit) as ended:
        main(words)
    said = capsys.readouterr()
    assert ended.value.code == 0, said.err
    return read_results(words[words.index("--output") + 1])


def bits(model):
    return {name: x.numpy().tobytes() for name, x in model.state_dict().items()}


def test_the_same_seed_gives_the_same_bits_and_leaves_random_numbers_alone(place):
    def draw(seed):
        return bits(Untrained(str(place / "alone"), seed=seed).load_model(torch.float32, "cpu", None))

    def states():
        legacy = np.random.get_state()  # noqa: NPY002 - what transformers seeds
        return random.getstate(), legacy[1].tolist(), torch.get_rng_state().tolist()

    before = states()
    first = draw(3)
    assert states() == before
    torch.manual_seed(99)
    assert draw(3) == first and draw(4) != first


def test_weights_are_those_that_transformers_draws(place):
    model = Untrained(str(place / "alone"), seed=5).load_model(torch.float32, "cpu", None)
    assert not model.training and model.config._attn_implementation == "eager"
    transformers.set_seed(5)
    assert bits(model) == bits(AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(place / "alone")))
    half = Untrained(str(place / "alone"), seed=5).load_model(torch.bfloat16, "cpu", None)
    assert {x.dtype for x in half.parameters()} == {torch.bfloat16}


def test_the_twin_of_a_checkpoint_reads_no_weights(place, tmp_path):
    twin = Untrained(str(place / "trained")).load_model(torch.float32, "cpu", None)
    trained = Source(str(place / "trained")).load_model(torch.float32, "cpu", None)
    assert bits(twin) != bits(trained) and abs(twin.transformer.wte.weight.std().item() - 0.3) < 0.03
    shutil.copytree(place / "trained", tmp_path / "broken")
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"no weights at all")
    assert bits(Untrained(str(tmp_path / "broken")).load_model(torch.float32, "cpu", None)) == bits(twin)
    assert bits(Untrained(str(place / "alone")).load_model(torch.float32, "cpu", None)) == bits(twin)


def test_names_and_versions_say_configuration_and_seed(place, tmp_path):
    shutil.copy(place / "alone" / "config.json", tmp_path / "mine.json")
    places = place / "trained", place / "alone" / "config.json", tmp_path / "mine.json"
    networks = [Untrained(str(path)) for path in places]
    assert [x.name() for x in networks] == ["trained (untrained)", "alone (untrained)", "mine (untrained)"]
    assert len({x.version() for x in networks}) == 1 and networks[0].version().endswith(", seed 0")
    assert len({networks[0].version(), Untrained(str(places[0]), seed=1).version()}) == 2
    settings("gpt2", n_layer=4).save_pretrained(tmp_path / "deeper")
    assert networks[0].version() != Untrained(str(tmp_path / "deeper")).version()


def test_the_command_and_python_measure_random_tokens_without_a_tokenizer(place, tmp_path, capsys):
    results = measured(capsys, command(tmp_path / "m.nc", untrained=place / "alone", seed=2))
    expected = {"model": "alone (untrained)", "dataset": "random tokens", "rule": "random", "tokenizer": "none"}
    expected |= {"special_tokens": "False", "architecture": "gpt2", "seed": 2}
    assert expected.items() <= results.attrs.items() and results.attrs["revision"].endswith(", seed 2")
    model = posbias.open(untrained=place / "alone", seed=2)
    assert repr(model).endswith("weights are drawn with seed 2 by .measure()") and "alone (untrained)" in repr(model)
    again, other = (model.measure(4, 12, batch_size=2, seed=seed).results for seed in (2, 5))
    assert again.attrs == results.attrs
    np.testing.assert_allclose(again["influence_prompts"], results["influence_prompts"], rtol=1e-5)
    assert other.attrs["revision"] == results.attrs["revision"]
    assert other.attrs["prompts_sha256"] != results.attrs["prompts_sha256"]


def test_a_twin_has_the_prompts_of_its_checkpoint(place, tmp_path, capsys):
    """The tokenizer beside the configuration cuts text, and draws the random tokens that the trained model gets."""
    text, rules = {"dataset": place / "d.jsonl"}, {"rule": "random"}
    for k, (options, of_twin) in enumerate(((text, text), (rules, {}))):  # a twin gets random tokens unless told
        twin = measured(capsys, command(tmp_path / f"{k}-twin.nc", untrained=place / "trained", **of_twin))
        model = measured(capsys, command(tmp_path / f"{k}.nc", model=place / "trained", **options))
        assert twin.attrs["prompts_sha256"] == model.attrs["prompts_sha256"]
        assert twin.attrs["tokenizer"] == model.attrs["tokenizer"] == "trained"
        assert not np.allclose(twin["influence"], model["influence"])


def test_text_needs_a_tokenizer_that_fits(place, tmp_path, capsys):
    words = command(tmp_path / "m.nc", untrained=place / "alone", dataset=place / "d.jsonl")
    refused(capsys, tmp_path, words, "tokenizer: expected a directory, an id or reference/NAME (--tokenizer)", "none")
    large = [*words, "--tokenizer", "reference/bloom-12"]
    refused(capsys, tmp_path, large, "tokenizer: expected at most the model's 97 tokens, received 2048")
    results = measured(capsys, [*words, "--tokenizer", str(place / "trained")])
    assert results.attrs["rule"] == "first" and results.attrs["tokenizer"] == "trained"


def test_a_reference_model_has_a_twin():
    network = Untrained("reference/bloom-12")
    assert network.name() == "reference/bloom-12 (untrained)" and network.find_tokenizer() == "reference/bloom-12"
    assert len(network.load_tokenizer()) == network.config().vocab_size == 2048


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (FALCON, "mine: expected a configuration whose model runs, received 'Falcon"),  # known when it first runs
        ('{"model_type": "gpt2", "vocab_size": 100000000000}', "Unable to allocate"),
    ],
)
def test_bad_configurations_are_refused(tmp_path, capsys, content, words):
    folder, out = tmp_path / "mine", tmp_path / "out"
    folder.mkdir()
    out.mkdir()
    (folder / "config.json").write_text(content)
    refused(capsys, out, command(out / "m.nc", untrained=folder), words)


def test_memory_that_is_available_is_at_most_a_containers(tmp_path, monkeypatch):
    place = torch.device("cpu")
    monkeypatch.setattr(memory, "LIMIT", tmp_path / "max")
    free = memory.memory_available(place)
    for limit in ("max", "4096"):
        (tmp_path / "max").write_text(f"{limit}\n")
        there = memory.memory_available(place)
        assert there == 4096 if limit == "4096" else 0.5 * free < there < 2 * free
    with pytest.raises(ValueError, match=r"expected at most the 0\.0 GiB .* on cpu, received weights of"):
        memory.check_weights_fit(transformers.GPT2Config(), torch.float32, place)


def test_random_tokens_leave_out_what_is_special(place, tmp_path):
    ids = make_prompts(Corpus("none"), Vocabulary(5), 50, 20, rule="random", excluded={0, 3}).ids
    assert set(np.unique(ids)) == {1, 2, 4}
    assert special_tokens(AutoConfig.for_model("llama", eos_token_id=[7, 8], pad_token_id=9)) == {1, 7, 8, 9}
    with pytest.raises(ValueError, match="tokens that are not special, received none of 2"):
        make_prompts(Corpus("none"), Vocabulary(2), 1, 4, rule="random", excluded={0, 1})
    tokenizer = AutoTokenizer.from_pretrained(place / "trained")
    before = make_prompts(Corpus("none"), tokenizer, 4, 30, rule="random").ids
    assert (before[:, 0] == 0).all() and (before[:, 1:] > 1).all() and len(np.unique(before)) > 20
    assert (make_prompts(Corpus("none"), tokenizer, 4, 30, rule="random", excluded=(0, 1)).ids == before).all()
    size = len(tokenizer)  # and tokens that are special without a role
    tokenizer.add_tokens([transformers.AddedToken(f"<|reserved-{k}|>", special=True) for k in range(200)])
    tokenizer.save_pretrained(tmp_path)
    reserved = AutoTokenizer.from_pretrained(tmp_path)
    assert len(reserved) == size + 200 and not set(range(size, size + 200)) & set(reserved.all_special_ids)
    assert make_prompts(Corpus("none"), reserved, 8, 30, rule="random").ids.max() < size


def test_the_padding_token_of_opt_is_never_drawn(tmp_path):
    config = settings("opt", vocab_size=6, pad_token_id=1, bos_token_id=2, eos_token_id=2)
    config.save_pretrained(tmp_path / "tiny")
    study = posbias.open(untrained=tmp_path / "tiny").measure(3, 20)
    assert np.isfinite(study.influence.values).all()
    ids = make_prompts(Corpus("none"), Vocabulary(6), 3, 20, rule="random", excluded=special_tokens(config)).ids
    assert study.provenance["prompts_sha256"] == Prompts(ids, 0, np.arange(3)).sha256 and not np.isin(ids, [1, 2]).any()
