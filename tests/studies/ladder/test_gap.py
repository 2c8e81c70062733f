"""Readings of the mixing, gains and weighted heads, and the rollouts that they make."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from measuring import CONFIGS, make, prompts, save, write_documents

from posbias.measure.corpus import Corpus
from posbias.measure.instrument import Instrument
from posbias.measure.loading import Source
from posbias.measure.rollouts import measured_rollout
from posbias.measure.run import measured
from posbias.measure.settings import Settings
from posbias.networks.families import output_projection
from studies.ladder.gap import join_cosine, measure_refinements, mixing, step_gain
from studies.ladder.gradients import StreamReading
from studies.ladder.heads import WEIGHTINGS, ValueReading, read_values
from studies.ladder.paths import measure_pathways

EVERY = sorted(set(CONFIGS) - {"gpt2-inverse-layer"})  # which wants 32 bits; the way through it is gpt2's
CLOSE = 2e-3  # 10 bits are kept


def reading(entering=((3.0, 4.0), (0.0, 2.0)), **others):
    """Return one layer, one prompt, two positions."""
    small = {"added": (1.0, 3.0), "branch": (1.0, 0.0), "around": (2.0, 4.0), "along_stream": (3.0, 3.0)}
    small |= {"along_branch": (1.0, 1.0), "stream_size": (3.0, 1.0), "branch_size": (1.0, 1.0)}
    fields = {k: torch.tensor([[v]], dtype=torch.float64) for k, v in (small | others).items()}
    return StreamReading(
        influence=torch.ones(1, 2), entering=torch.tensor(entering, dtype=torch.float64)[:, None], **fields
    )


def test_readings_of_the_mixing_by_hand():
    found = mixing(reading(), reading(branch=(2.0, 2.0), along_branch=(9.0, 9.0)))
    assert found.norms == pytest.approx(2**0.5 / (2**0.5 + 10**0.5)) and found.positions.tolist() == [[0.25, 0.5]]
    assert found.direction.tolist() == [0.25] and found.gradient.tolist() == [0.2] and found.values.tolist() == [0.5]


def test_gains_by_hand():
    """Position 0 is not reached from above: its gain is 1."""
    assert step_gain(reading()).tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(("size", "cosine"), [(7.0, 1.0), (5.0, 0.0), (1.0, -1.0)])
def test_cosines_by_hand(size, cosine):
    one = reading(((size, 0.0), (0.0, 1.0)), around=(4.0, 0.0), branch=(3.0, 0.0))
    assert join_cosine(one) == pytest.approx([cosine])


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    root = tmp_path_factory.mktemp("refinements")
    corpus = Corpus(str(write_documents(root / "d.jsonl", [40] * 3)))
    return Settings(Source(str(save(root / "model", "bloom"))), corpus, prompts=3, length=10, batch_size=2)


@pytest.fixture(scope="module")
def found(settings):
    return measure_refinements(settings), measured(settings)


def test_the_plain_rollouts_are_those_of_the_measurement(found):
    ours, whole = found
    for kernel, variant in (("content-free", "b"), ("uniform", "kernels")):
        p = ours["prediction"].sel(kernel=kernel, mixing="norms", step="kept", join="sizes").values
        assert np.allclose(p, measured_rollout(whole, variant).profile(), rtol=CLOSE)
        rolled = ours["rolled"].sel(few_kernels=kernel, few_mixings="norms", join="sizes").values
        assert np.allclose(rolled[0], p, rtol=CLOSE) and rolled[-1].tolist() == [0] * 9 + [1]
    assert np.allclose(ours["influence"] / ours["influence"].sum(), whole["influence"], rtol=CLOSE)
    assert np.allclose(ours["lambda_norms"], whole["lambda_frobenius"], rtol=CLOSE)
    assert np.allclose(ours["lambda_positions"].mean("position"), whole["lambda_token"], rtol=CLOSE)
    assert {k: v for k, v in ours.attrs.items() if k in whole.attrs} == whole.attrs


def test_everything_is_a_distribution_or_a_share(found):
    ours, _ = found
    for name in ("prediction", "quadrature", "own", "rolled", "stepped", "pulled"):
        assert np.allclose(ours[name].sum("position"), 1, rtol=CLOSE), name
    for name in ("norms", "positions", "direction", "gradient", "values"):
        assert ((ours[f"lambda_{name}"] > 0) & (ours[f"lambda_{name}"] < 1)).all(), name
    assert (abs(ours["join_cosine"]) <= 1).all() and (ours["gain"] > 0).all()
    assert ours.attrs["elsewhere_past_layers"] == 0 and ours.attrs["prompts"] == 3 and ours.attrs["model"] == "model"


def test_a_single_prompt_is_its_own_mean(settings):
    from dataclasses import replace

    ours = measure_refinements(replace(settings, prompts=1))
    p = ours["prediction"].sel(kernel="uniform", mixing="norms", step="kept", join="sizes")
    assert np.allclose(ours["own"], p, rtol=CLOSE)


def test_paths_of_every_prompt_are_averaged(settings):
    paths = measure_pathways(settings)
    assert paths["sizes"].sizes == {"hop": 2, "power": 5, "position": 10}
    assert (paths["total"] <= paths["sizes"].sel(power=1.0) * (1 + CLOSE)).all()
    assert (paths["middle"] <= paths["sizes"].sel(hop=2, power=1.0) * (1 + CLOSE)).all()
    assert paths.attrs["prompts"] == 3


def readings(ours, ids):
    found = []
    read_values(ours, ids, found.append)
    return found


@pytest.mark.parametrize("name", EVERY)
def test_weighted_values_are_what_the_projection_gives(name):
    ours, ids, outputs = Instrument(make(name, dtype=torch.float64)), prompts(B=2), []
    projections = [output_projection(attention) for attention in ours.attentions]
    handles = [p.register_forward_hook(lambda module, args, output: outputs.append(output)) for p in projections]
    found = readings(ours, ids)
    for handle in handles:
        handle.remove()
    assert [reading.layer for reading in found] == list(range(ours.T))
    for reading, output, projection in zip(found, outputs, projections, strict=True):
        moved = torch.einsum("bhij,bhjd->bid", reading.weights, reading.projected)
        bias = 0 if projection.bias is None else projection.bias
        assert torch.allclose(moved + bias, output, rtol=1e-4, atol=1e-5 * output.abs().max().item())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in ours.model.modules())


@pytest.mark.parametrize("name", ["bloom", "llama", "gpt2"])
def test_kernels_written_out(name):
    ours, ids = Instrument(make(name, dtype=torch.float64)), prompts(B=1, n=5)
    for reading in readings(ours, ids):
        kernels = reading.kernels()[:, 0]
        written = torch.zeros_like(kernels)
        A, v, w = reading.weights[0].double(), reading.values[0], reading.projected[0]
        for i, j in itertools.product(range(5), repeat=2):
            for h in range(ours.H):
                written[0, i, j] += A[h, i, j]
                written[1, i, j] += A[h, i, j] * v[h, j].norm()
                written[2, i, j] += A[h, i, j] * w[h, j].norm()
            written[3, i, j] = sum(A[h, i, j] * w[h, j] for h in range(ours.H)).norm()
        assert torch.allclose(kernels, written / written.sum(-1, keepdim=True), rtol=1e-5, atol=1e-9)
        assert torch.allclose(kernels.sum(-1), torch.ones_like(kernels[..., 0]))
        assert not kernels.triu(1).any()


def test_by_hand():
    """Two heads on two tokens: the first looks back at a value of 3, the second at itself with a value of 1."""
    A = torch.tensor([[[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]]])
    v = torch.tensor([[[[3.0], [0.0]], [[1.0], [1.0]]]])
    directions = torch.tensor([[[1.0, 0.0]], [[0.0, 2.0]]])  # what each head's value becomes
    reading = ValueReading(0, A, v, torch.einsum("hde,bhnd->bhne", directions, v))
    last = dict(zip(WEIGHTINGS, reading.kernels()[:, 0, 1].tolist(), strict=True))
    assert last["uniform"] == [0.5, 0.5] and last["values"] == [0.75, 0.25]
    assert last["projected"] == pytest.approx([0.6, 0.4]) and last["vectors"] == pytest.approx([0.6, 0.4])


def test_a_layer_that_multiplies_nothing_is_noticed():
    ours = Instrument(make("llama"))
    ours.attentions.append(ours.attentions[0])  # one more than there are softmaxes in the layers counted
    ours.layers.append(ours.layers[0])
    with pytest.raises(RuntimeError):
        readings(ours, prompts(B=1))
