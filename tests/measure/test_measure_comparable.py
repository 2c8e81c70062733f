"""A measurement of one's own as a chapter's parameter: what is wrong with it is one line, before anything runs."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from conftest import chapter_source
from measuring import save, write_documents

from posbias.cli import main
from posbias.measure.corpus import Corpus
from posbias.measure.loading import Source
from posbias.measure.results import read_comparable, read_results
from posbias.measure.run import measure
from posbias.measure.settings import Settings

READS = chapter_source("Reads", ':tags: [parameters]\n\nmeasurement = ""', "len(open(measurement, 'rb').read()) > 8")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the path of a measurement of three prompts."""
    root = tmp_path_factory.mktemp("measured")
    corpus = Corpus(str(write_documents(root / "d.jsonl", [30] * 3)))
    measure(Settings(Source(str(save(root / "model", "bloom"))), corpus, prompts=3, length=8), root / "m.nc")
    return root / "m.nc"


def changed(results, name, value):
    values = results[name].values.astype(np.float64)
    values[(1, *[0] * (values.ndim - 1))] = value
    return results.assign({name: (results[name].dims, values, results[name].attrs)})


BAD = {
    "another layout": (
        lambda x: x.assign_attrs(posbias_schema=0),
        "expected a measurement of layout 1, received layout 0",
    ),
    "no layout": (lambda x: x.drop_attrs(deep=False), "expected a measurement of layout 1, received no layout number"),
    "incomplete": (lambda x: x.drop_vars(["slopes", "attention"]), "complete measurement, received none of slopes"),
    "one prompt": (
        lambda x: x.isel(prompt=[0]).assign_attrs(prompts=1),
        "expected 2 prompts or more, for intervals over prompts, received 1",
    ),
    "a NaN": (
        lambda x: changed(x, "influence_prompts", np.nan),
        "influence_prompts: expected finite numbers, received",
    ),
    "an Inf": (lambda x: changed(x, "lambda_frobenius", np.inf), "lambda_frobenius: expected finite numbers, received"),
    "below 0": (lambda x: changed(x, "influence_prompts", -1.0), "influence_prompts: expected numbers of at least 0"),
    "nothing": (
        lambda x: x.assign(influence_prompts=x["influence_prompts"] * np.array([1, 0, 1])[:, None]),
        "influence_prompts: expected numbers of at least 0 and some above in each prompt",
    ),
}


@pytest.fixture
def run(tmp_path, monkeypatch, make_book, capsys):
    """Run a chapter on a measurement; return (exit status, stderr, whether there is a report)."""
    root = make_book(reads=READS)
    monkeypatch.chdir(root)

    def call(path):
        output = tmp_path / "report.ipynb"
        with pytest.raises(SystemExit) as ended:
            main(["run", "reads", "-p", "measurement", str(path), "-o", str(output)])
        made = sorted(x.name for x in (root / "_build").rglob("*") if x.is_file()) if (root / "_build").exists() else []
        return ended.value.code, capsys.readouterr().err, output.exists(), made

    return call


@pytest.mark.parametrize("what", BAD)
def test_a_bad_measurement_is_refused_before_the_run(whole, tmp_path, run, what):
    change, words = BAD[what]
    bad = tmp_path / "bad.nc"
    change(read_results(whole)).to_netcdf(bad, engine="h5netcdf")
    with pytest.raises(ValueError, match=words):
        read_comparable(bad)
    status, err, there, made = run(bad)
    assert status == 2 and words in err and err.count("\n") == 1 and err.startswith("posbias: ")
    assert not there and not made


def test_what_is_no_netcdf_is_refused_before_the_run(whole, tmp_path, run):
    text, cut = tmp_path / "text.nc", tmp_path / "cut.nc"
    text.write_text("not one")
    cut.write_bytes(whole.read_bytes()[:3000])
    for path, words in (
        (text, "received another format"),
        (cut, "expected an intact netCDF file"),
        ("no.nc", "No such file"),
    ):
        status, err, there, made = run(path)
        assert status == 2 and words in err and err.count("\n") == 1 and not there and not made


def test_a_good_one_is_run(whole, run):
    assert read_comparable(whole).sizes["prompt"] == 3
    status, err, there, _ = run(whole)
    assert not status and there, err
