"""The studies of untrained networks: what a file holds, and that its predictions are those of its networks."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from measuring import settings as tiny

from posbias.comparison.distances import normalised_wasserstein
from posbias.measure.branches import no_branches, read_branches
from posbias.measure.corpus import Corpus
from posbias.measure.instrument import Instrument
from posbias.measure.session import Session
from posbias.models.families import FAMILIES
from posbias.models.loading import Source
from posbias.models.weights import shape_of
from posbias.rollout.structured import structured_kernels
from posbias.rollout.untrained import aligned_profile, untrained_profile
from posbias.settings import Settings
from studies.sizes import SIZES, Sized, Untrained
from studies.untrained.measure import SMALL, Small, measure_untrained
from studies.untrained_profiles import PROFILES

PROMPTS, N = 5, 16
PARAMETERS = {
    "gpt2": 124_439_808, "gpt2-medium": 354_823_168, "opt-125m": 125_239_296, "pythia-160m": 162_322_944,
    "pythia-410m": 405_334_016, "bloom-560m": 559_214_592, "qwen2-0.5b": 494_032_768, "falcon-rw-1b": 1_311_625_216,
    "tinyllama-1.1b": 1_100_048_384, "llama-3.2-1b": 1_235_814_400,
    "mpt-125m": (50368 + 12 * 12 * 768 + 2 * 12 + 1) * 768,  # of ALiBi, no biases: nobody publishes the number
}  # fmt: skip
"""Parameters as they are published for the checkpoints, tied embeddings once."""


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("untrained") / "little"
    tiny("llama", num_hidden_layers=2).save_pretrained(folder)
    return Settings(Untrained(str(folder)), Corpus("builtin"), PROMPTS, N, 2, rule="random")


@pytest.fixture(scope="module")
def found(settings):
    return measure_untrained(settings, random_output=True, seeds=2)


def test_a_file_holds_every_seed_with_its_own_network(settings, found):
    assert dict(found["influence"].sizes) == {"seed": 2, "position": N}
    np.testing.assert_allclose(found["influence"].sum("position"), 1, rtol=1e-3)
    np.testing.assert_allclose(found["profile"].sum("position"), 1)
    assert [*found["prediction"].values] == [*PROFILES]
    assert (found["influence"][0] != found["influence"][1]).any()
    assert found.attrs["model"] == "little (untrained)" and found.attrs["seed"] == "0 to 1"
    assert found.attrs["revision"].endswith(", seeds 0 to 1") and found.attrs["prompts_sha256"].endswith(" (seed 1's)")
    assert "little" not in found.attrs["revision"] and all("long_name" in x.attrs for x in found.data_vars.values())


def test_predictions_are_those_of_the_network(settings, found):
    study = Session(replace(settings, source=replace(settings.source, seed=1), seed=1))
    read = read_branches(study.instrument, study.ids[:4])
    kernels = structured_kernels(2, H=4)
    given = {"scales": read.branch_scale, "steps": read.step_gain}
    profile = found["profile"][1]
    expected = untrained_profile(kernels, read.branch_gain, N, **given)
    np.testing.assert_allclose(profile.sel(prediction="untrained"), expected, rtol=1e-6)
    np.testing.assert_allclose(
        profile.sel(prediction="aligned"), aligned_profile(kernels, read.branch_gain, N, **given), rtol=1e-6
    )
    without = untrained_profile(kernels, read.branch_gain, N, scales=read.branch_scale)
    np.testing.assert_allclose(profile.sel(prediction="no steps"), without, rtol=1e-6)
    assert np.abs(profile.sel(prediction="no gates") - expected).max() > 1e-5
    x = study.instrument.embeddings(study.ids).requires_grad_(True)
    r = torch.randn(97, generator=torch.Generator().manual_seed(0))
    logits = study.instrument.model(inputs_embeds=x).logits[:, -1]
    (gradient,) = torch.autograd.grad((logits @ r).sum(), x)
    shares = gradient.norm(dim=-1) / gradient.norm(dim=-1).sum(1, keepdim=True)
    np.testing.assert_allclose(found["influence_random"][1], shares.mean(0), rtol=1e-3)
    assert np.abs(found["influence_random"] - found["influence"]).max() > 1e-3
    K = read.step_gain
    off = ~np.eye(N, dtype=bool)
    overlap = [(k / np.sqrt(np.outer(np.diag(k), np.diag(k))))[off].mean() for k in K]
    np.testing.assert_allclose(found["overlap"][1], overlap, rtol=1e-6)


def test_without_their_rotation_queries_and_keys_are_others(settings, found):
    other = measure_untrained(settings, unrotated=True, seeds=1)
    assert other.attrs["unrotated"] == 1 and found.attrs["unrotated"] == 0
    assert (other["content"].values[0] != found["content"].values[0]).any()
    p, q = (x["influence"].values[0] for x in (found, other))
    assert 0 < normalised_wasserstein(p / p.sum(), q / q.sum()) < 0.02


def test_a_size_is_the_network_of_its_configuration(tmp_path):
    Sized("gpt2").config().save_pretrained(tmp_path / "written")
    assert Untrained(str(tmp_path / "written")).version() == Sized("gpt2").version() != Sized("gpt2", seed=1).version()


@pytest.mark.parametrize("name", SIZES)
def test_published_sizes_have_the_published_number_of_parameters(name):
    config = Sized(name).config()
    assert config.model_type in FAMILIES and "/" in SIZES[name].source
    model = shape_of(config)
    assert model.num_parameters() == PARAMETERS[name]
    assert {x.device.type for x in model.parameters()} == {"meta"}


def test_models_with_weights_are_refused(settings):
    with pytest.raises(ValueError, match="source: expected an untrained network, received reference/llama-12"):
        measure_untrained(replace(settings, source=Source("reference/llama-12")))


@pytest.mark.parametrize("name", [*SMALL])
def test_small_networks_can_be_built_and_read(name):
    settings = Settings(Small(name), Corpus("builtin"), 1, 8, rule="random")
    study = Session(settings)
    assert study.settings.source.name() == f"{name}, 12 layers of width 256 (untrained)"
    assert isinstance(study.instrument, Instrument) and no_branches(study.instrument) is None
