"""A measurement of one's own as a chapter's parameter: what is wrong with it is one line, before anything runs."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from conftest import chapter_source
from measuring import save, write_documents

from posbias.cli import main
from posbias.measure.corpus import Corpus
from posbias.measure.results import read_comparable, write_results
from posbias.measure.run import measure
from posbias.models.loading import Source
from posbias.settings import Settings

READS = chapter_source("Reads", ':tags: [parameters]\n\nmeasurement = ""', "len(open(measurement, 'rb').read()) > 8")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the path of a measurement of three prompts."""
    root = tmp_path_factory.mktemp("measured")
    corpus = Corpus(str(write_documents(root / "d.jsonl", [30] * 3)))
    found = measure(Settings(Source(str(save(root / "model", "bloom"))), corpus, prompts=3, length=8))
    write_results(root / "m.nc", found)
    return root / "m.nc"


def changed(results, name, value):
    values = results[name].values.astype(np.float64)
    values[(1, *[0] * (values.ndim - 1))] = value
    return results.assign({name: (results[name].dims, values, results[name].attrs)})


BAD = [
    (lambda x: x.isel(prompt=[0]).assign_attrs(prompts=1), "expected 2 prompts or more, for intervals .*, received 1"),
    (lambda x: x.drop_vars("attention"), "expected a measurement of kernels and content, .* none of attention"),
    (lambda x: changed(x, "influence_prompts", np.nan), "influence_prompts: expected finite numbers, received"),
    (lambda x: changed(x, "lambda_frobenius", np.inf), "lambda_frobenius: expected finite numbers, received"),
    (lambda x: changed(x, "influence_prompts", -1.0), "influence_prompts: expected numbers of at least 0"),
    (
        lambda x: x.assign(influence_prompts=x["influence_prompts"] * np.array([1, 0, 1])[:, None]),
        "influence_prompts: expected numbers of at least 0 and some above in each prompt",
    ),
]


def test_a_bad_measurement_is_refused(whole, tmp_path):
    results = read_comparable(whole)
    assert results.sizes["prompt"] == 3
    for change, words in BAD:
        change(results).to_netcdf(tmp_path / "bad.nc", engine="h5netcdf")
        with pytest.raises(ValueError, match=words):
            read_comparable(tmp_path / "bad.nc")


def test_a_chapter_does_not_run_on_one(whole, tmp_path, monkeypatch, make_book, capsys):
    root = make_book(reads=READS)
    monkeypatch.chdir(root)
    (tmp_path / "cut.nc").write_bytes(whole.read_bytes()[:3000])
    for path, words in (
        (tmp_path / "cut.nc", "expected an intact netCDF file"),
        ("no.nc", "No such file"),
        (whole, ""),
    ):
        output = tmp_path / "report.ipynb"
        with pytest.raises(SystemExit) as ended:
            main(["run", "reads", "-p", "measurement", str(path), "-o", str(output)], groups=["bookkit.commands"])
        err = capsys.readouterr().err
        assert output.exists() == (not ended.value.code) == (path == whole), err
        assert words in err and (path == whole or err.count("\n") == 1)
