"""The five lines of the first page: a model opened, measured, predicted, compared, reported; and what is refused."""

import shutil

import huggingface_hub
import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

import posbias
from posbias.cli import main
from posbias.measure.measurement import Measurement
from posbias.settings import RUNGS
from studies.summaries import summarise

N, LENGTH = 6, 16


@pytest.fixture(scope="module")
def measured(place):
    return posbias.open(place / "bloom").measure(prompts=N, length=LENGTH, dataset=place / "d.jsonl")


def test_the_five_lines_on_a_directory(measured):
    p = measured.rollout("b")
    found = posbias.compare(p, measured.influence)
    assert len(p) == LENGTH and measured.mixing.shape == (3,)
    assert found.wasserstein == pytest.approx(posbias.normalised_wasserstein(p, measured.influence))
    assert found.interval[0] < found.interval[1] and found.prompts == N
    assert measured.influence.prompts.shape == (N, LENGTH)


def test_the_five_lines_on_a_reference_model():
    m = posbias.open("reference/bloom-8").measure(prompts=2, length=8)
    assert (m.model, m.prompts, m.length) == ("bloom-8", 2, 8)
    assert len(m.rollout("c")) == 8


def test_the_five_lines_on_an_id_of_the_hub(place, tmp_path, monkeypatch):
    """What the hub's client keeps of a model that it fetched, read without a network."""
    repository, commit = tmp_path / "models--someone--tiny", "c0ffee" * 6 + "cafe"
    shutil.copytree(place / "bloom", repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    opened = posbias.open("someone/tiny")
    m = opened.measure(prompts=4, length=12, dataset=place / "d.jsonl")
    assert repr(opened).startswith("someone/tiny: bloom, 3 layers × 4 heads, ALiBi positions")
    assert "measured influence, 12 positions\nW1 0." in repr(posbias.compare(m.rollout("b"), m.influence))
    assert m.provenance["revision"] == commit


def test_the_figure_leaves_the_ladder_out_and_provenance_what_is_of_the_file(measured):
    dims = ("prompt", "rung", "pairing", "position")
    ladder = xr.DataArray(np.ones((N, len(RUNGS), 1, LENGTH)), dims=dims, coords={"rung": [*RUNGS]})
    climbed = Measurement(measured.results.assign(ladder_prompts=ladder).assign_attrs(summary="made"))
    labels = [line.get_label() for line in climbed.plot().lines]
    assert "value-maps" in climbed.variants and "layer shares" in labels and "value maps" not in labels
    plt.close("all")
    assert not {"summary", "posbias_schema"} & {*climbed.provenance} and climbed.provenance["length"] == LENGTH


def test_what_a_model_has_none_of_is_said_of_what_was_asked_for(measured):
    lacking = dict.fromkeys(("no_attention", "no_kernels", "no_branches"), "layers without it")
    lines = repr(Measurement(measured.results.assign_attrs(lacking))).splitlines()
    told = [line for line in lines if line.endswith(": none, of a model with layers without it")]
    assert [line.split(":")[0] for line in told] == ["kernels", "head gains"]


def test_objects_say_what_they_are(place, measured):
    opened = posbias.open(place / "llama")
    assert repr(opened).endswith(
        "llama: llama, 3 layers × 4 heads, rotary positions, at most 64 tokens; weights are read by .measure()"
    )
    lines = repr(measured).splitlines()
    assert lines[0] == f"Measurement of bloom, {N} prompts of {LENGTH} tokens (d.jsonl)"
    assert lines[1].startswith("3 layers × 4 heads, total mixing ")
    assert lines[2].startswith(f"bloom, measured influence: {LENGTH} positions, mean 0.")
    assert lines[3].startswith("first 0.") and len(lines) == 4
    assert "95% interval" in repr(posbias.compare(measured.rollout("b"), measured.influence))


def test_opening_reads_no_weights(place, tmp_path):
    shutil.copytree(place / "bloom", tmp_path / "empty", ignore=shutil.ignore_patterns("*.safetensors"))
    opened = posbias.open(tmp_path / "empty")
    assert "3 layers × 4 heads, ALiBi positions, prompts of any length" in repr(opened)
    with pytest.raises(ValueError, match="model .*empty: expected"):
        opened.measure(prompts=2, length=8, dataset=place / "d.jsonl")


def test_saved_and_loaded_is_the_same_and_rollouts_are_those_of_the_command(measured, tmp_path):
    again = posbias.load(measured.save(str(tmp_path / "m.nc")))
    assert repr(again) == repr(measured) and again.provenance == measured.provenance
    np.testing.assert_array_equal(again.influence, measured.influence)
    for variant in ("b", "own", "untrained"):
        with pytest.raises(SystemExit, match="0"):
            main(["rollout", str(tmp_path / "m.nc"), "--variant", variant, "-o", str(tmp_path / f"{variant}.csv")])
        values = np.loadtxt(tmp_path / f"{variant}.csv", delimiter=",", skiprows=1)[:, 1]
        np.testing.assert_allclose(measured.rollout(variant), values, rtol=1e-4)


def test_a_summary_predicts_what_the_measurement_does(measured):
    summary = Measurement(summarise(measured.results))
    assert [*measured.compare()] == [*measured.variants, "last", "even", "power-law"]
    assert "head-gains-squared" in measured.variants and measured.variants == summary.variants
    for variant in measured.variants:
        np.testing.assert_allclose(summary.rollout(variant), measured.rollout(variant), rtol=1e-6)
    other = Measurement(summary.results.assign(content_diagonal=summary.results["content_diagonal"] / 2))
    assert not np.allclose(other.rollout("c"), summary.rollout("c")), "what is changed is computed again"


def test_the_report_of_an_older_summary_has_no_law_of_untrained_networks_and_no_intervals(measured, tmp_path, undrawn):
    older = summarise(measured.results.drop_vars(["step_gain"]), prompts=False)
    m = Measurement(older)
    assert m.influence.prompts is None and posbias.compare(m.rollout(), m.influence).interval is None
    without = m.report(tmp_path / "old.html").read_text()
    assert "–" in without and "<td>head gains, squared</td>" not in without
    assert "Add the effects of different sets of layers as squares" not in without


def test_the_report_has_the_scores_and_where_they_come_from(measured, tmp_path, undrawn):
    text = measured.report(tmp_path / "r.html").read_text()
    assert "<td>head gains, squared</td>" in text
    assert "Add the effects of different sets of layers as squares" in text
    for score in measured.compare().values():  # each prompt is a document of its own here
        low, high = score.interval
        assert f"<td>{score.wasserstein:.3f}</td><td>{low:.3f} to {high:.3f}</td>" in text
    for name in ("prompts_sha256", "torch", "dataset", "dtype"):
        assert f"<dt>{name}</dt><dd>{measured.provenance[name]}</dd>" in text
    assert "yardstick" in text and "equal share" in text


def test_the_plot_shows_what_was_measured_and_predicted(measured):
    ax = measured.plot()
    curves = {line.get_label(): line.get_ydata() for line in ax.lines}
    np.testing.assert_array_equal(curves["measured"], measured.influence)
    np.testing.assert_array_equal(curves["layer shares"], measured.rollout("b"))
    styles = [(line.get_linestyle(), line.get_color()) for line in ax.lines]
    assert len(set(styles)) == len(styles)
    _, own = plt.subplots()
    assert measured.plot(own) is own
    plt.close("all")


def test_files_that_are_none_of_ours_are_refused(measured, tmp_path):
    for call, name, message in [
        (posbias.load, "m.csv", "path: expected a file name that ends in .nc, received m.csv"),
        (measured.report, "r.pdf", r"path: expected a file name that ends in \.html, received r\.pdf"),
        (measured.save, "m", r"path: expected a file name that ends in \.nc"),
        (measured.save, "nowhere/m.nc", "No such file or directory"),
    ]:
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            call(tmp_path / name)


def test_a_star_import_leaves_the_builtin_open():
    names = {}
    exec("from posbias import *", names)
    assert "open" not in names and "compare" in names and "open" in dir(posbias)
