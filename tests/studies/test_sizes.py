"""Untrained networks: the same bits for a seed, no weights are read, and names say configuration and seed."""

import random
import shutil

import numpy as np
import pytest
import torch
import transformers
from measuring import save, settings
from transformers import AutoConfig, AutoModelForCausalLM

from posbias.measure.corpus import Corpus
from posbias.measure.run import measure
from posbias.models.loading import Source
from posbias.settings import ALONE, Settings
from studies.sizes import Untrained


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("a connection was asked for"))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with a tiny checkpoint, and its configuration alone."""
    root = tmp_path_factory.mktemp("untrained")
    save(root / "trained", "gpt2", initializer_range=0.3)
    (root / "alone").mkdir()
    shutil.copy(root / "trained" / "config.json", root / "alone")
    return root


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
    networks = [Untrained(str(place / name)) for name in ("trained", "alone")]
    assert [x.name() for x in networks] == ["trained (untrained)", "alone (untrained)"]
    assert len({x.version() for x in networks}) == 1 and networks[0].version().endswith(", seed 0")
    assert networks[0].version() != Untrained(str(place / "trained"), seed=1).version()
    settings("gpt2", n_layer=4).save_pretrained(tmp_path / "deeper")
    assert networks[0].version() != Untrained(str(tmp_path / "deeper")).version()


def test_random_tokens_need_no_tokenizer_and_a_twin_has_the_prompts_of_its_checkpoint(place):
    asked = {"corpus": Corpus("builtin"), "prompts": 4, "length": 12, "rule": "random", "quantities": ALONE}
    found = measure(Settings(Untrained(str(place / "alone"), seed=2), **asked)).attrs
    assert {"model": "alone (untrained)", "tokenizer": "none", "architecture": "gpt2"}.items() <= found.items()
    assert found["revision"].endswith(", seed 2")
    folder = str(place / "trained")
    twin, own = (measure(Settings(x, **asked)) for x in (Untrained(folder, tokenizer=folder), Source(folder)))
    assert twin.attrs["prompts_sha256"] == own.attrs["prompts_sha256"] != found["prompts_sha256"]
    assert not np.allclose(twin["influence"], own["influence"])
