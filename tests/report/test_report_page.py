"""The page of a report: one file, what it says of files that lack something, names, pictures, its command."""

import re

import numpy as np
import pytest
import xarray as xr
from conftest import ROOT, command
from reports import U, changed, made_of, measure_bloom, of_documents, outlined, said, without, written

import posbias
from posbias import cli
from posbias.measure.measurement import Measurement
from posbias.report import figures, page, text
from posbias.report.stats import Evidence
from studies.summaries import summarise


@pytest.fixture(scope="module")
def measured(place):
    return measure_bloom(place)


BAD = "<script>alert(\"x\")</script> & 'q' $a_$ \x00\n{}"


@pytest.fixture(scope="module")
def whole(measured, tmp_path_factory):
    """Return tags, words and the text of one report, for tests that only read it."""
    folder = tmp_path_factory.mktemp("whole")
    found, words = written(measured, folder, drawn=True)
    return found, words, (folder / "r.html").read_text()


def test_few_prompts_are_said_to_be_few(measured, whole, tmp_path):
    assert "So few prompts make intervals too short" in whole[1]
    assert "So few" not in written(made_of(measured, U, 0.05, prompts=12), tmp_path)[1]
    assert "So few documents" in written(Measurement(of_documents(measured, 10).subject.results), tmp_path)[1]


def test_what_was_asked_is_listed(measured, whole):
    _, words, html = whole
    subject = measured._subject()
    names = ", ".join(subject.label(name) for name in subject.predictions)
    assert [*text.list_settings(subject)] == [
        ("model", "bloom (bloom, 3 layers × 4 heads, alibi positions)"), ("corpus", "d.jsonl, rule first"),
        ("prompts", "8 of 24 tokens"), ("quantities", "mixing, influence, kernels, content, branches"),
        ("number format", "32 bits"), ("predictions", names),
        *(("not here", f"{subject.label(name)}: {why}") for name, why in subject.missing.items()),
    ]  # fmt: skip
    more = measured.results.assign_attrs(condition="sharper:2", quantisation="Q4", revision="0af3")
    asked = [*text.list_settings(Measurement(more)._subject())]
    assert asked[1:3] == [("condition", "sharper:2"), ("weights", "Q4")]
    assert "your own: <code>posbias lookup bloom rows" in said(Evidence(Measurement(more)._subject()), "placed")
    assert "from 100 resamples of 8 prompts, the same" in words
    assert f"the total mixing, is {measured.results['lambda_frobenius'].values.sum():.2f}: the hops" in words
    (best,) = re.findall(r'<tr class="best">\s*<td>(.*?)</td>', html)
    assert best == subject.label(Evidence(subject, resamples=20).nearest)


def test_nothing_is_fetched_and_everything_has_words(whole):
    found, _, text = whole
    for tag, attributes in found.tags:
        assert tag not in ("script", "img", "iframe", "object", "audio", "video")
        for name in ("href", "src", "action", "data"):
            assert attributes.get(name, "#").startswith(("#", "data:")), attributes
    assert not re.search(r"(href|src)=.https?:", text) and "@import" not in text and "url(//" not in text
    assert all(attributes["aria-label"].strip() for tag, attributes in found.tags if tag == "svg")
    assert all(attributes["tabindex"] == "0" for _, attributes in found.tags if attributes.get("class") == "wide")
    assert "@media print" in text and "prefers-color-scheme: dark" in text and len(text) < 3e6


LACKS = {
    "no attention": (("attention",), ["measured-attention"], ["The file has no attention kernels"]),
    "no content": (("content_.*",), ["layer-shares-self"], ["not here"]),
    "no branches": (("branch_.*", "output_scale", "step_gain", "parallel"), ["head-gains-squared"], ["not here"]),
    "no prompts": ((".*_prompts",), [], ["there are no intervals and no tests", "no more than a description"]),
}


@pytest.mark.parametrize("what", LACKS)
def test_what_a_file_lacks_the_page_says(measured, tmp_path, what):
    patterns, missing, said = LACKS[what]
    m = without(measured, *patterns)
    subject = m._subject()
    assert set(missing) <= set(subject.missing) and {"attention-only", "layer-shares"} <= set(subject.predictions)
    _, words = written(m, tmp_path)
    assert all(phrase in words for phrase in said)
    for variant in missing:
        assert f"{subject.label(variant)}: " in words


def test_a_summary_has_what_a_measurement_has_but_for_pictures_of_matrices(measured, tmp_path):
    found, words = written(Measurement(summarise(measured.results)), tmp_path)
    assert "The file has no attention kernels" in words and [tag for tag, _ in found.tags].count("svg") == 2


def test_no_number_is_no_reason_to_fail(measured, tmp_path):
    prompts = measured.influence.prompts.copy()
    prompts[0, 0] = np.nan
    _, words = written(changed(measured, influence_prompts=prompts), tmp_path, drawn=True)
    assert "there are no intervals" in words


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("influence", np.nan, "expected finite numbers, received nan"),
        ("lambda_frobenius", np.nan, "lambda_frobenius: expected finite numbers, received nan"),
        ("lambda_frobenius", 2.5, r"lambda_frobenius: expected values in \[0, 1\], received 2.5 at layer 0"),
        ("lambda_token", np.inf, "lambda_token: expected finite numbers, received inf"),
    ],
)
def test_what_no_measurement_has_is_refused(measured, tmp_path, name, value, message):
    with pytest.raises(ValueError, match=message):
        changed(measured, **{name: np.full(measured.results[name].shape, value)}).report(tmp_path / "never.html")
    assert not (tmp_path / "never.html").exists()


def test_a_file_of_later_making(measured, tmp_path):
    """Variables and attributes that measurements of today do not have."""
    attrs = {"quantities": "mixing,influence,kernels", "dtype": "bfloat16"}
    _, words = written(Measurement(measured.results.assign_attrs(attrs)), tmp_path)
    assert "bfloat16, 16 bits" in words
    assert "mixing, influence, kernels" in words


def test_names_are_escaped_wherever_they_stand(measured, whole, tmp_path):
    names = ("model", "dataset", "architecture", "position", "tokenizer", "revision", "rule")
    names += ("quantities", "dtype", "device", "command")
    bad = Measurement(measured.results.assign_attrs({name: BAD for name in names}))
    found, words = written(bad, tmp_path, drawn=True)
    assert {tag for tag, _ in found.tags} == {tag for tag, _ in whole[0].tags}
    assert '<script>alert("x")</script>' in words and "\x00" not in words
    assert not any(name.startswith("on") for _, attributes in found.tags for name in attributes)


def test_text_is_one_line_of_printable_signs():
    for value in (BAD, "\ud800", "a\u2028b", "日本語"):
        made = str(page.sentence("{x}", x=value))
        made.encode()
        assert not set("<>\"'\n\x00") & set(made) and all(c.isprintable() for c in made)


def test_pictures_are_of_modest_size():
    A = np.tril(np.ones((1000, 1000))) / np.arange(1, 1001)[:, None]
    small = figures.shrink(A)
    assert small.shape == (figures.CELLS, figures.CELLS)
    assert small.mean() == pytest.approx(A.mean(), rel=0.02) and small[0, 1] == 0
    np.testing.assert_allclose(figures.shrink(A[:5, :5]), A[:5, :5])
    B = np.arange(9.0).reshape(3, 3)  # two rows and columns, then one: of other sizes
    np.testing.assert_allclose(figures.shrink(B, 2), [[2, 3.5], [6.5, 8]])


def test_one_command_from_a_model_to_a_page(place, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(page, "inline_svg", outlined)
    out, kept = tmp_path / "r.html", tmp_path / "k.nc"
    words = ["report", place / "bloom", "-d", place / "d.jsonl", "-N", 4, "-n", 20, "-o", out]
    assert command(*words, "--keep", kept) == 0 and "bloom, 4 prompts of 20 tokens" in capsys.readouterr().out
    assert command("report", kept, "-o", out, "--overwrite", "-N", 4) == 2
    assert "prompts: expected a model to measure" in capsys.readouterr().err and out.exists()
    assert posbias.load(kept).prompts == 4
    first = out.read_text()
    assert "<td>value maps</td>" in first and "Layers are <strong>" in first, "the ladder is measured unasked"
    assert command("report", kept, "-o", out) == 2 and out.read_text() == first
    assert "r.html: expected a file that is not there yet, or --overwrite" in capsys.readouterr().err
    out.write_text("old")
    assert command("report", kept, "-o", out, "--overwrite") == 0 and "Position bias of bloom" in out.read_text()


@pytest.mark.parametrize(("given", "ladder"), [("20", True), ("1", False)])
def test_a_report_measures_the_ladder_on_few_prompts(tmp_path, monkeypatch, given, ladder):
    """Of one prompt there is none: it has no other to exchange layers with."""
    asked = []

    def measured(settings, **how):
        asked.append(settings)
        raise ValueError("seen")

    monkeypatch.setattr("posbias.measure.run.measure", measured)
    with pytest.raises(SystemExit, match="^2$"):
        cli.main(["report", "reference/bloom-8", "-o", str(tmp_path / "r.html"), "-N", given])
    (settings,) = asked
    assert (settings.prompts, settings.length) == (int(given), 256)
    assert ("ladder" in settings.quantities) == ladder
    assert not ladder or settings.ladder_prompts == 32 and "contributions" in settings.quantities


def test_the_book_has_a_report_of_its_own(measured, tmp_path, monkeypatch):
    """Made beside the page on measuring one's own model, which links it; without kept measurements there is none."""
    from bookkit import site

    monkeypatch.setattr(page, "inline_svg", outlined)
    site.sample_report(tmp_path)
    for folder in ("results", site.SAMPLE_PAGE.parent):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "results" / "models.nc").touch()
    monkeypatch.setattr("studies.results.load", lambda *_: {site.SAMPLE: measured.results})
    site.sample_report(tmp_path)
    assert "Position bias of bloom" in (tmp_path / site.SAMPLE_PAGE).read_text()
    assert f'href="{site.SAMPLE_PAGE.name}"' in (ROOT / "book" / "your_model.md").read_text()


def test_each_panel_of_many_layers_shows_the_layer_that_it_names(monkeypatch):
    from posbias.report import figures

    T, drawn = 24, []
    attention = np.arange(T)[:, None, None] * np.ones((T, 5, 5))
    heat = figures._heat
    monkeypatch.setattr(
        figures, "_heat", lambda ax, image, *a, **k: drawn.append((ax, image)) or heat(ax, image, *a, **k)
    )
    figures.kernel_figure(xr.Dataset({"attention": (("layer", "query", "key"), attention)}, attrs={"length": 5}))
    assert 1 < len(drawn) < T and drawn[-1][0].get_title() == "layer 24"
    assert [ax.get_title() for ax, _ in drawn] == [f"layer {image[0, 0] + 1:.0f}" for _, image in drawn]
