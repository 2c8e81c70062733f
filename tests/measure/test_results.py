"""Results as files, and rollouts from them alone."""

import numpy as np
import pytest
import xarray as xr
from conftest import chapter_source
from measuring import refused, save, write_documents

from posbias import alibi_slopes, influence_profile, structured_kernels
from posbias.cli import main
from posbias.measure.corpus import Corpus
from posbias.measure.results import LEAST, VARIABLES, read_results, write_results
from posbias.measure.run import measure
from posbias.measured_kernels import dense, law, measured_kernels, position_kernels, self_preferring_kernels
from posbias.models.loading import Source
from posbias.predict import PREDICTORS, available, predict
from posbias.rollout import masks
from posbias.rollout.influence import rollout_matrix
from posbias.rollout.order import stochastic_monotonicity
from posbias.rollout.untrained import aligned_profile, untrained_profile
from posbias.settings import DEFAULT, Settings
from studies.summaries import shave, summarise

EVERY = (*DEFAULT, "logits", "heads")
NAMES, WITH_HEADS = ("bloom", "mistral", "gemma2", "gpt2"), ("bloom", "gpt2")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return the measurement of a tiny model of several families: name → path."""
    root = tmp_path_factory.mktemp("measured")
    documents = write_documents(root / "d.jsonl", [30] * 8)
    for name in NAMES:
        source = Source(str(save(root / name, name)))
        kept = EVERY if name in WITH_HEADS else EVERY[:-1]
        options = {"prompts": 6, "length": 16, "batch_size": 4, "quantities": kept}
        write_results(root / f"{name}.nc", measure(Settings(source, Corpus(str(documents)), **options)))
    return {name: root / f"{name}.nc" for name in NAMES}


@pytest.fixture
def path(files):
    return files["bloom"]


def test_files_are_labelled_and_say_where_they_come_from(files):
    for name, path in files.items():
        results = read_results(path)
        assert ("attention_heads" in results) == (name in WITH_HEADS)
        for variable, x in results.data_vars.items():
            assert x.dims == VARIABLES[variable][0] and x.attrs["long_name"] == VARIABLES[variable][1]
        absent = {"ladder_prompts", "position_bias", "condition", "no_branches", "quantisation"}
        least = {"posbias_schema", "quantities", "attention", "kernel_size", *LEAST[1:]}
        assert least <= set(results.attrs) and not absent & set(results.attrs)
        assert results.attrs["model"] == name and results.attrs["dataset"] == "d.jsonl"
        assert "/" not in "".join(str(x) for x in results.attrs.values()), "no path of this machine"
        assert results.sizes["prompt"] == 6 and results.sizes["position"] == 16


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
            assert ((values > 0) & (values < 1)).all()
        eye = np.eye(16, dtype=bool)
        assert np.allclose(results.content_diagonal, results.content_logits.values[..., eye].mean(-1), atol=1e-6)
        off = results.content_logits.values[..., ~eye]
        assert np.allclose(results.content_offdiagonal, np.nanmean(off, axis=-1), atol=1e-6)


def test_variants_of_an_alibi_model(files):
    results = read_results(files["bloom"])
    T, H = 3, 4
    A = results.attention.values.astype(np.float64)
    slope, lambda_ = alibi_slopes(H), results.lambda_frobenius.values
    base = results.content_offdiagonal.values
    content = {"diagonal": results.content_diagonal.values - base}
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
    made = law(results)  # of one kernel for the heads of a layer, which is each head's
    heads = {"kernels": np.repeat(made["kernels"][:, None], 4, axis=1), "gains": results.branch_gain.values}
    assert np.allclose(predict(results, "head-gains-squared"), untrained_profile(**made | heads))


def test_without_its_variables_the_law_of_untrained_networks_is_refused(files):
    results = read_results(files["bloom"]).drop_vars("branch_gain")
    names = ("attention-only", "layer-shares", "layer-shares-self", "measured-attention", "measured-attention-own")
    assert available(results) == names
    message = f"variant: expected one of {', '.join(names)}.* head-gains-squared: needs --quantities with branches"
    with pytest.raises(ValueError, match=message):
        predict(results, "untrained")


def test_what_is_no_measurement_is_refused(files, tmp_path):
    bad = tmp_path / "bad.nc"
    results = read_results(files["bloom"])
    for change, words in (
        (results.drop_vars("influence"), "expected a complete measurement, received none of influence"),
        (results.drop_vars("lambda_frobenius"), "received none of lambda_frobenius"),
        (
            xr.Dataset(results.data_vars, attrs={k: v for k, v in results.attrs.items() if k != "dtype"}),
            "none of dtype",
        ),
    ):
        change.to_netcdf(bad, engine="h5netcdf")
        with pytest.raises(ValueError, match=words):
            read_results(bad)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x.assign_attrs(length=99), "x.nc: length: expected 16, which the file has, received 99"),
        (lambda x: x.assign_attrs(length="x"), "x.nc: length: expected 16, which the file has, received x"),
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


def test_a_summary_has_what_needs_the_matrices_and_not_them(tmp_path, path):
    results = read_results(path)
    write_results(tmp_path / "s.nc", summarise(results))
    summary = read_results(tmp_path / "s.nc")
    assert not {"content_logits", "attention", "attention_heads", "query"} & set(summary)
    assert "step_gain" in results and "step_gain" not in summary
    kept = {PREDICTORS[name].kept_as: predict(results, name) for name in available(results)}
    assert set(kept) == {"a", "b", "c", "kernels", "own", "untrained", "head-gains-added"}
    for name, expected in kept.items():
        assert np.allclose(summary["rollout"].sel(variant=name), expected, atol=1e-15)
        assert np.allclose(predict(summary, name), expected, atol=1e-15)
    A = results["attention"].values.astype(float)
    for t, K in enumerate(A / A.sum(-1, keepdims=True)):
        found = stochastic_monotonicity(K)
        assert float(summary["monotonicity_violated"][t]) == pytest.approx(found.violated)
        assert float(summary["monotonicity_shortfall"][t]) == pytest.approx(found.shortfall)
    received = [A[0, k:, k].mean() for k in range(16)]
    assert np.allclose(summary["attention_received"][0], received, atol=1e-6)
    like = summarise(results.assign(contributions=results["attention"]))  # of queries that see a key, too
    assert np.allclose(like["contributions_received"], summary["attention_received"], atol=1e-6)
    assert np.array_equal(summary["influence"], results["influence"])
    assert {**results.attrs, "summary": 1} == summary.attrs
    again = predict(summary, "c")
    assert np.allclose(again, summary["rollout"].sel(variant="c"), atol=1e-15)
    assert (tmp_path / "s.nc").stat().st_size < path.stat().st_size


def test_matrices_and_rollouts_of_prompts_are_kept_in_32_bits_and_other_numbers_in_64(path):
    with xr.open_dataset(path, engine="h5netcdf") as kept:
        sizes = {str(name): x.dtype.itemsize for name, x in kept.data_vars.items() if x.dtype.kind == "f"}
        wide = {name for name in sizes if name in ("rollout_own", "ladder_prompts") or "query" in kept[name].dims}
    assert {"attention", "rollout_own"} <= wide < {*sizes}
    assert sizes == {name: 4 if name in wide else 8 for name in sizes}


def test_prompts_are_kept_to_ten_bits_or_not_at_all(path):
    results = read_results(path)
    kept, left = summarise(results)["influence_prompts"].values, results["influence_prompts"].values
    assert abs(kept / left - 1).max() <= 2**-11 * 1.001 and (kept.view(np.uint32) & 0x1FFF == 0).all()
    x = np.random.default_rng(0).lognormal(0, 20, 1000).astype(np.float32)
    assert np.array_equal(shave(-x), -shave(x)) and (shave(x) != x).any()
    without = summarise(results, prompts=False)
    assert not {"influence_prompts", "influence_signed_prompts", "lambda_token_prompts", "document"} & set(without)


def test_dense_kernels_are_those_of_the_rollout(path):
    results = read_results(path)
    lambda_ = results["lambda_frobenius"].values
    ways = {
        "layer-shares": position_kernels,
        "layer-shares-self": self_preferring_kernels,
        "measured-attention": measured_kernels,
    }
    for name, kernels in ways.items():
        P = np.eye(16)
        for t, A in enumerate(dense(kernels(results), 3, 16)):
            P = (1 - lambda_[t]) * P + lambda_[t] * (A @ P)
        assert np.allclose(P[-1], predict(results, name), atol=1e-12)


READS = chapter_source("Reads", ':tags: [parameters]\n\nmeasurement = ""', "len(open(measurement, 'rb').read()) > 8")


def test_a_chapter_does_not_run_on_one(path, tmp_path, monkeypatch, make_book, capsys):
    root = make_book(reads=READS)
    monkeypatch.chdir(root)
    (tmp_path / "cut.nc").write_bytes(path.read_bytes()[:3000])
    for given, words in (
        (tmp_path / "cut.nc", "expected an intact netCDF file"),
        ("no.nc", "No such file"),
        (path, ""),
    ):
        output = tmp_path / "report.ipynb"
        with pytest.raises(SystemExit) as ended:
            main(["run", "reads", "-p", f"measurement={given}", "-o", str(output)], groups=["bookkit.commands"])
        err = capsys.readouterr().err
        assert output.exists() == (not ended.value.code) == (given == path), err
        assert words in err and (given == path or err.count("\n") == 1)
