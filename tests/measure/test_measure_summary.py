"""Measurements without their matrices."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("xarray", reason="xarray is not installed")

from measuring import save, write_documents

from posbias.cli import main
from posbias.measure.corpus import Corpus
from posbias.measure.loading import Source
from posbias.measure.quantities import DEFAULT
from posbias.measure.results import read_results
from posbias.measure.rollouts import OF_MEANS, VARIANTS, measured_profile, measured_rollout
from posbias.measure.run import measure, measured
from posbias.measure.study import Settings
from posbias.measure.summary import read_summaries, read_summary, shaved, summarise, write_summary
from posbias.rollout.order import stochastic_monotonicity

EVERYTHING = (*DEFAULT, "heads", "logits")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    root = tmp_path_factory.mktemp("measured")
    corpus = Corpus(str(write_documents(root / "d.jsonl", [30] * 6)))
    measure(Settings(Source(str(save(root / "bloom", "bloom"))), corpus, 5, 16, quantities=EVERYTHING), root / "m.nc")
    return root / "m.nc"


def test_a_summary_has_what_needs_the_matrices_and_not_them(tmp_path, path):
    results = read_results(path)
    write_summary(tmp_path / "s.nc", summarise(results))
    summary = read_summary(tmp_path / "s.nc")
    assert not {"content_logits", "attention", "attention_heads", "histogram_diagonal", "query", "bin"} & set(summary)
    assert "step_gain" in results and "step_gain" not in summary
    for variant in VARIANTS:
        expected = measured_profile(results, variant)
        assert np.allclose(summary["rollout"].sel(variant=variant), expected, atol=1e-15)
    A = results["attention"].values.astype(float)
    for t, K in enumerate(A / A.sum(-1, keepdims=True)):
        found = stochastic_monotonicity(K)
        assert float(summary["monotonicity_violated"][t]) == pytest.approx(found.violated)
        assert float(summary["monotonicity_shortfall"][t]) == pytest.approx(found.shortfall)
    received = [A[0, k:, k].mean() for k in range(16)]
    assert np.allclose(summary["attention_received"][0], received, atol=1e-6)
    assert np.array_equal(summary["influence"], results["influence"])
    assert {**results.attrs, "summary": 1} == summary.attrs
    again = measured_rollout(summary, "c").profile()
    assert np.allclose(again, summary["rollout"].sel(variant="c"), atol=1e-15)
    assert (tmp_path / "s.nc").stat().st_size < path.stat().st_size


def test_prompts_are_kept_to_ten_bits_or_not_at_all(path):
    results = read_results(path)
    kept, left = summarise(results)["influence_prompts"].values, results["influence_prompts"].values
    assert abs(kept / left - 1).max() <= 2**-11 * 1.001 and (kept != left.astype(np.float32)).any()
    without = summarise(results, prompts=False)
    assert not {"influence_prompts", "influence_signed_prompts", "lambda_token_prompts"} & set(without)


def test_rounding_to_ten_bits():
    x = np.random.default_rng(0).lognormal(0, 20, 10_000).astype(np.float32)
    assert abs(shaved(x) / x - 1).max() <= 2**-11 * 1.0001
    assert (shaved(x).view(np.uint32) & 0x1FFF == 0).all() and np.array_equal(shaved(-x), -shaved(x))


def test_the_command_and_the_folder(tmp_path, path, capsys):
    main_arguments = ["summarise", str(path), "-o", str(tmp_path / "a.x.nc")]
    with pytest.raises(SystemExit) as ended:
        main(main_arguments)
    assert ended.value.code == 0 and "KiB" in capsys.readouterr().out
    (tmp_path / "z.nc").write_text("damaged, and not asked for")
    found = read_summaries(tmp_path)
    assert list(found) == ["a.x", "z"] and found["a.x"] is found["a.x"] and "b" not in found
    with pytest.raises(ValueError, match="z.nc"):
        found["z"]
    for arguments, message in (
        (["summarise", str(path), "-o", str(tmp_path / "b.txt")], "expected a file name that ends in .nc"),
        (["summarise", str(tmp_path / "none.nc"), "-o", str(tmp_path / "b.nc")], "No such file"),
        (["summarise", str(tmp_path / "a.x.nc"), "-o", str(tmp_path / "b.nc")], "expected a complete measurement"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2 and message in capsys.readouterr().err
    assert not (tmp_path / "b.nc").exists()


def test_a_measurement_is_no_summary(path):
    with pytest.raises(ValueError, match="expected a summary of layout 1, made by posbias summarise"):
        read_summary(path)


def test_measuring_without_a_file_is_the_same(path):
    results = read_results(path)
    folder = path.parent
    corpus = Corpus(str(folder / "d.jsonl"))
    here = measured(Settings(Source(str(folder / "bloom")), corpus, 5, 16, quantities=EVERYTHING))
    assert np.array_equal(here["influence"], results["influence"])


def test_dense_kernels_are_those_of_the_rollout(path):
    results = read_results(path)
    for variant in OF_MEANS:
        rollout = measured_rollout(results, variant)
        P = np.eye(16)
        for t, A in enumerate(rollout.dense()):
            P = (1 - rollout.lambda_[t]) * P + rollout.lambda_[t] * (A @ P)
        assert np.allclose(P[-1], rollout.profile(), atol=1e-12)


def test_a_summary_replaces_no_file_unless_asked(tmp_path, path, capsys):
    for words, code in (([], 0), ([], 2), (["--overwrite"], 0)):
        with pytest.raises(SystemExit) as ended:
            main(["summarise", str(path), "-o", str(tmp_path / "s.nc"), *words])
        assert ended.value.code == code
    assert "or --overwrite, received one that is there" in capsys.readouterr().err
