"""Tables of rotary kernels."""

import numpy as np
import pytest

xr = pytest.importorskip("xarray", reason="xarray is not installed")
pytest.importorskip("pandas", reason="pandas is not installed")

from posbias import influence_profile, normalised_wasserstein
from studies.ladder import rotary_tables
from studies.ladder.joining import joined_profile
from studies.result_files import FOLDERS

T, H, D, N = 2, 3, 4, 5
LAMBDA = np.array([0.2, 0.5])
UNIFORM = np.tril(np.ones((N, N))) / np.arange(1, N + 1)[:, None]


def study(query):
    """Return a study whose kernels all have the profile of uniform attention but the last-named, which is exact."""
    uniform = influence_profile(np.stack([UNIFORM] * T), LAMBDA)
    profile = np.stack([uniform] * (len(rotary_tables.LABELS) - 1) + [INFLUENCE])
    kernels = list(rotary_tables.LABELS)
    return xr.Dataset(
        {
            "profile": (("kernel", "position"), profile),
            "variation": (("kernel", "layer"), np.arange(len(kernels))[:, None] + np.zeros(T)),
            "first": (("kernel", "layer"), np.full((len(kernels), T), 0.25)),
            "variance": (("source", "layer", "position"), np.ones((2, T, N)) * np.arange(N)),
            "query": (("layer", "head", "feature"), np.broadcast_to(query, (T, H, D))),
            "key": (("layer", "head", "feature"), np.ones((T, H, D))),
            "theta": (("pair",), np.array([1.0, 0.1])),
            "scale": (("layer",), np.ones(T)),
        },
        coords={"kernel": kernels, "source": ["keys", "both"]},
    )


INFLUENCE = np.array([0.1, 0.1, 0.1, 0.2, 0.5])


@pytest.fixture
def kept():
    fields = {
        "influence": (("position",), INFLUENCE),
        "influence_prompts": (("prompt", "position"), np.stack([INFLUENCE, 2 * INFLUENCE])),
        "lambda_frobenius": (("layer",), LAMBDA),
        "window": (("layer",), np.array([0, 2])),
    }
    return {"one.builtin": xr.Dataset(fields)}


def test_without_a_mean_query_attention_is_uniform_in_its_window(kept):
    A = rotary_tables.mean_kernels(study(np.zeros(D)), kept["one.builtin"])
    assert np.allclose(A[0], UNIFORM)
    assert np.allclose(A[1], np.diag([1, *[0.5] * (N - 1)]) + np.diag([0.5] * (N - 1), -1))


def test_mean_queries_make_waves_and_heads_are_averaged(kept):
    heads = np.zeros((H, D))
    heads[0, 0] = 1  # ⟨Θ_x (1, 0), (1, 1)⟩ = cos x + sin x; the other heads attend evenly
    A = rotary_tables.mean_kernels(study(heads), kept["one.builtin"])
    waves = np.exp(np.cos(np.arange(N)) + np.sin(np.arange(N)))[::-1]
    assert np.allclose(A[0, -1], (waves / waves.sum() + 2 / N) / 3)


def test_scores_and_baselines(kept):
    table = rotary_tables.rotary_scores({("one", 256): study(np.zeros(D))}, kept)
    W1 = table.set_index("kernel")["W1"]
    assert list(W1.index) == [*rotary_tables.LABELS, "last", "recency"]
    assert W1["measured"] == 0 and W1["last"] == pytest.approx(1 - INFLUENCE @ np.arange(N) / (N - 1))
    assert W1["mean"] == W1["uniform"] > 0 and W1["recency"] < W1["last"]
    own = table.set_index("kernel")
    assert own["variation"]["mean"] == 1 and np.isnan(own["variation"]["measured"]) and own["sink"]["mean"] == 0.25
    assert rotary_tables.mended_share(table).item() == 0


def test_gains_of_kernels(kept):
    pairs = [("mean", "measured"), ("measured", "mean")]
    table = rotary_tables.rotary_gains({("one", 256): study(np.zeros(D))}, kept, pairs, resamples=20)
    assert table["gain"].iloc[0] == -table["gain"].iloc[1] > 0


def test_lengths_of_a_pair_are_one_family(kept):
    """50 resamples give p ≥ 2/51: enough for one comparison at 5 %, not for two."""
    both = kept | {"one.builtin-1024": kept["one.builtin"]}
    studies = {("one", n): study(np.zeros(D)) for n in (256, 1024)}
    pairs = [("mean", "measured")]
    table = rotary_tables.rotary_gains(studies, both, pairs, resamples=50)
    assert (table["p_value"] == 2 / 51).all() and not table["decided"].any()
    alone = rotary_tables.rotary_gains({("one", 256): study(np.zeros(D))}, kept, pairs, resamples=50)
    assert alone["decided"].tolist() == [1]


def test_variances_are_means_over_layers():
    table = rotary_tables.logit_variances({("one", 256): study(np.zeros(D))}, (0, 3))
    assert table["variance"].tolist() == [0, 3, 0, 3] and table["source"].tolist() == ["keys"] * 2 + ["both"] * 2


def test_right_angles_with_mean_kernels(kept):
    found = rotary_tables.angled_rotary({("one", 256): study(np.zeros(D))}, kept)
    window = np.diag([1, *[0.5] * (N - 1)]) + np.diag([0.5] * (N - 1), -1)
    p = joined_profile(np.stack([UNIFORM, window]), LAMBDA, power=2.0)
    assert found["one", 256] == pytest.approx(normalised_wasserstein(p, INFLUENCE))


def test_studies_by_model_then_length(tmp_path):
    folder = tmp_path / FOLDERS["rotary"]
    folder.mkdir()
    for name, kind in (("one", "rotary"), ("two", "rotary"), ("one", "rotary-1024")):
        xr.Dataset({"x": ("k", [1.0])}).to_netcdf(folder / f"{name}.{kind}.nc", engine="h5netcdf")
    found = rotary_tables.read_rotary(tmp_path, ["two", "none", "one"])
    assert list(found) == [("two", 256), ("one", 256), ("one", 1024)]
