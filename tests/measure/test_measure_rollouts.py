"""Results as files, and rollouts from them alone."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
xr = pytest.importorskip("xarray", reason="xarray is not installed")

from measuring import refused, save, write_documents

from posbias import alibi_slopes, influence_profile, structured_kernels
from posbias.measure.corpus import Corpus
from posbias.measure.results import ATTRIBUTES, LATER_ATTRIBUTES, VARIABLES, make_results, read_results, write_results
from posbias.measure.run import measure
from posbias.models.loading import Source
from posbias.predict import available, predict, self_preferring_kernels
from posbias.rollout import masks
from posbias.rollout.influence import rollout_matrix
from posbias.rollout.untrained import aligned_profile, untrained_profile
from posbias.settings import DEFAULT, Settings

EVERY = (*DEFAULT, "logits", "heads")
NAMES = ("bloom", "mistral", "gemma2", "gpt2")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return the measurement of a tiny model of several families: name → path."""
    root = tmp_path_factory.mktemp("measured")
    documents = write_documents(root / "d.jsonl", [30] * 8)
    for name in NAMES:
        source = Source(str(save(root / name, name)))
        options = {"prompts": 6, "length": 16, "batch_size": 4, "quantities": EVERY if name == "gpt2" else EVERY[:-1]}
        write_results(root / f"{name}.nc", measure(Settings(source, Corpus(str(documents)), **options)))
    return {name: root / f"{name}.nc" for name in NAMES}


def test_files_are_labelled_and_say_where_they_come_from(files):
    for name, path in files.items():
        results = read_results(path)
        assert ("attention_heads" in results) == (name == "gpt2")
        for variable, x in results.data_vars.items():
            assert x.dims == VARIABLES[variable][0] and x.attrs["long_name"] == VARIABLES[variable][1]
        absent = {"pairings", "format_error", "position_bias", "added_bias", "no_branches", "quantisation"}
        least = {"posbias_schema", *ATTRIBUTES, *LATER_ATTRIBUTES[:4]}
        assert least <= set(results.attrs) <= least.union(LATER_ATTRIBUTES) - absent
        assert results.attrs["model"] == name and results.attrs["dataset"] == "d.jsonl"
        assert "/" not in "".join(str(x) for x in results.attrs.values()), "no path of this machine"
        assert results.sizes["prompt"] == 6 and results.sizes["position"] == 16
        json.loads(results.attrs["position_details"])


def test_what_is_in_a_file_is_consistent(files):
    for path in files.values():
        results = read_results(path)
        assert np.allclose(results.attention.sum("key"), 1, atol=1e-5)
        assert float(results.influence.sum()) == pytest.approx(1)
        rows = results.influence_prompts
        assert np.allclose(results.influence, rows.mean("prompt") / rows.mean("prompt").sum())
        for norm in ("frobenius", "token"):
            values = results[f"lambda_{norm}_prompts"]
            assert np.allclose(results[f"lambda_{norm}"], values.mean("prompt"))
            assert np.allclose(results[f"lambda_{norm}_std"], values.std("prompt", ddof=1))
            assert ((values > 0) & (values < 1)).all()
        eye = np.eye(16, dtype=bool)
        assert np.allclose(results.content_diagonal, results.content_logits.values[..., eye].mean(-1), atol=1e-6)
        off = results.content_logits.values[..., ~eye]
        assert np.allclose(results.content_offdiagonal, np.nanmean(off, axis=-1), atol=1e-6)
        for where in ("diagonal", "offdiagonal"):
            assert ((results[f"similarity_{where}"] > 0) & (results[f"similarity_{where}"] <= 1)).all()


def test_variants_of_an_alibi_model(files):
    results = read_results(files["bloom"])
    T, H = 3, 4
    A = results.attention.values.astype(np.float64)
    slope, lambda_ = alibi_slopes(H), results.lambda_frobenius.values
    base = results.content_offdiagonal.values
    content = {"base": base, "diagonal": results.content_diagonal.values - base}
    expected = {
        "a": influence_profile(structured_kernels(T, slope=slope), np.ones(T), 16),
        "b": influence_profile(structured_kernels(T, slope=slope), lambda_, 16),
        "c": influence_profile(structured_kernels(T, slope=slope, **content), lambda_, 16),
        "kernels": rollout_matrix(A / A.sum(-1, keepdims=True), lambda_)[-1],
    }
    for variant, p in expected.items():
        found = predict(results, variant)
        assert np.allclose(found, p, atol=1e-6), variant
    assert np.abs(expected["b"] - expected["c"]).max() > 1e-3
    branches = {"scales": results.branch_scale, "outputs": results.output_scale, "steps": results.step_gain}
    heads = structured_kernels(T, slope=slope)
    law = untrained_profile(heads, results.branch_gain.values, 16, **{name: x.values for name, x in branches.items()})
    assert np.allclose(predict(results, "untrained"), law, atol=1e-12)
    assert np.abs(law - expected["b"]).max() > 1e-3
    sizes = aligned_profile(heads, results.branch_gain.values, 16, **{name: x.values for name, x in branches.items()})
    assert np.allclose(predict(results, "head-gains-added"), sizes, atol=1e-12)
    other = predict(results, "b", norm="token")
    assert np.allclose(other, influence_profile(structured_kernels(T, slope=slope), results.lambda_token.values, 16))
    assert predict(results, "c", length=40).size == 40


def test_windows_go_into_the_rollout(files):
    results = read_results(files["mistral"])
    p = predict(results, "b")
    kernels = structured_kernels(3, mask=masks.sliding_window(5), H=4)
    assert np.allclose(p, influence_profile(kernels, results.lambda_frobenius.values, 16))


def test_layers_with_different_windows_are_mixed_layer_by_layer(files):
    results = read_results(files["gemma2"])
    assert results.window.values.tolist() == [5, 0, 5]
    A = np.asarray(self_preferring_kernels(results))
    assert A.shape == (3, 16, 16) and (A[0, 10, :6] == 0).all() and (A[1, 10, :11] > 0).all()
    assert predict(results, "layer-shares-self").sum() == pytest.approx(1)


def test_without_its_variables_the_law_of_untrained_networks_is_refused(files):
    results = read_results(files["bloom"]).drop_vars("branch_gain")
    names = ("attention-only", "layer-shares", "layer-shares-self", "measured-attention", "measured-attention-own")
    assert available(results) == names
    message = f"variant: expected one of {', '.join(names)}.* head-gains-squared: needs --quantities with branches"
    with pytest.raises(ValueError, match=message):
        predict(results, "untrained")


def test_what_is_no_measurement_is_refused(files, tmp_path):
    bad = tmp_path / "bad.nc"
    with pytest.raises(FileNotFoundError):
        read_results(bad)
    bad.write_text("not one")
    with pytest.raises(ValueError, match="expected a netCDF file written by posbias, received another format"):
        read_results(bad)
    bad.write_bytes(files["bloom"].read_bytes()[:4000])
    with pytest.raises(ValueError, match="expected an intact netCDF file"):
        read_results(bad)
    results = read_results(files["bloom"])
    for change, words in (
        (results.assign_attrs(posbias_schema=99), "expected a measurement of layout 1, received layout 99"),
        (results.drop_attrs(deep=False), "received no layout number"),
        (results.drop_vars("slopes"), "expected a complete measurement, received none of slopes"),
    ):
        change.to_netcdf(bad, engine="h5netcdf")
        with pytest.raises(ValueError, match=words):
            read_results(bad)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x.assign_attrs(length=99), "x.nc: length: expected 16, which the file has, received 99"),
        (lambda x: x.assign_attrs(length="x"), "x.nc: length: expected an integer, received 'x'"),
        (lambda x: x.assign_attrs(prompts=99), "x.nc: prompts: expected 6, which the file has, received 99"),
        (lambda x: x.isel(prompt=slice(0, 0)).assign_attrs(prompts=0), "x.nc: prompts: expected 1 or more, received 0"),
        (lambda x: x.isel(layer=slice(0, 0)), "x.nc: expected one layer or more, received none"),
        (lambda x: x.assign(slopes=x["slopes"] * np.nan), "x.nc: slopes: expected finite numbers, received a NaN or"),
    ],
)
def test_files_whose_numbers_do_not_fit_are_refused(files, tmp_path, capsys, monkeypatch, change, words):
    file = tmp_path / "x.nc"
    write_results(file, change(read_results(files["bloom"])))
    monkeypatch.chdir(tmp_path)
    for command in ("rollout {} -o p.csv --variant b", "report {} -o r.html"):
        refused(capsys, tmp_path, command.format(file).split(), words, there=[file])


def test_names_outside_the_layout_are_refused(files):
    attributes = dict.fromkeys(ATTRIBUTES, "x")
    with pytest.raises(ValueError, match="received gravity"):
        make_results({"gravity": np.zeros(2)}, attributes, np.zeros(1))
    with pytest.raises(ValueError, match="received seed"):
        make_results({}, {name: "x" for name in ATTRIBUTES if name != "seed"}, np.zeros(1))
