"""Readings of the mixing, gains, and the rollouts that they make."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from measuring import save, write_documents

from posbias.measure.corpus import Corpus
from posbias.measure.loading import Source
from posbias.measure.rollouts import measured_rollout
from posbias.measure.run import measured
from posbias.measure.study import Settings
from studies.ladder.gap import join_cosine, measure_refinements, mixing, step_gain
from studies.ladder.gradients import StreamReading
from studies.ladder.path_gradients import measure_pathways

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
