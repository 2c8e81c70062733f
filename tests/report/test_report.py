"""The report: what it says, what it shares with the book, what it says of files that lack something, and no more."""

import re
from html import escape
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from conftest import ROOT, command
from parsed import Parsed
from scipy.stats import spearmanr

import posbias
from posbias import cli, predict
from posbias.measure.measurement import Measurement
from posbias.predict import PREDICTORS
from posbias.report import document, figures, page, stats, text
from posbias.report.stats import BLIND, Evidence
from posbias.rollout.profiles import mean_position
from studies.ladder import scores
from studies.summaries import summarise

N, LENGTH = 8, 24
WITH_MAPS = ("independent-layers", "value-maps", "value-maps-positional", "layer-shares")
BAD = "<script>alert(\"x\")</script> & 'q' $a_$ \x00\n{}"


@pytest.fixture(scope="module")
def measured(place):
    return posbias.open(place / "bloom").measure(prompts=N, length=LENGTH, dataset=place / "d.jsonl")


@pytest.fixture(scope="module")
def evidence(measured):
    return Evidence(measured._subject(), resamples=200)


@pytest.fixture(scope="module")
def whole(measured, tmp_path_factory):
    """Return tags, words and the text of one report, for tests that only read it."""
    folder = tmp_path_factory.mktemp("whole")
    found, words = written(measured, folder, drawn=True)
    return found, words, (folder / "r.html").read_text()


def outlined(figure, description):
    """Stand in for a drawn figure, which takes most of a report's time."""
    plt.close(figure)
    return f'<svg role="img" aria-label="{escape(description)}"></svg>'


def written(measurement, tmp_path, drawn=False):
    """Write a report with few resamples, check that it is a page, and return its tags and its words."""
    with pytest.MonkeyPatch.context() as patch:
        if not drawn:
            patch.setattr(page, "inline_svg", outlined)
        path = document.write_report(tmp_path / "r.html", measurement._subject(), resamples=100)
    found = Parsed(path.read_text())
    return found, " ".join(" ".join(found.words).split())


def changed(measurement, **values):
    """Return a measurement with arrays replaced."""
    results = measurement.results
    return Measurement(results.assign({name: (results[name].dims, x) for name, x in values.items()}))


def test_a_yardstick_of_ones_own_is_named_by_its_label(measured, monkeypatch):
    """It takes what was measured as it is, so that nothing is nearer."""
    monkeypatch.setitem(predict.PREDICTORS, "as-seen", None)  # taken out again
    monkeypatch.setitem(predict.NAMES, "as-seen", "as-seen")

    @predict.predictor("as-seen", needs=(), label="the curve as it was seen")
    def as_seen(results):
        """Take the measured curve."""
        return results["influence"].values / results["influence"].values.sum()

    told = said(Evidence(measured._subject(), resamples=10), "nearest")
    assert "No prediction of this model is as near as the curve as it was seen" in told


def without(measurement, *patterns):
    names = [x for x in measurement.results.variables if any(re.fullmatch(pattern, x) for pattern in patterns)]
    return Measurement(measurement.results.drop_vars(names))


# What it says


def test_a_row_of_the_table_has_the_distances_of_its_curve(evidence):
    """Nearest first; W₁ and total variation by their sums, rank correlations by scipy, the mean position of each."""
    rows = [*document.score_cells(evidence)]
    q = {evidence.subject.label(name): q for name, q in evidence.profiles.items()}
    names = [row[0].removesuffix(" (yardstick)") for row in rows]
    blind = [name for name, row in zip(names, rows, strict=True) if row[0].endswith(" (yardstick)")]
    assert {*names[:-2]} == {*q} and {*blind} == {PREDICTORS[name].label for name in (*BLIND, "power-law")}
    away = {name: np.abs(np.cumsum(x - evidence.p)).sum() / (LENGTH - 1) for name, x in q.items()}
    assert [away[name] for name in names[:-2]] == sorted(away.values())
    for name, row in zip(names[:-2], rows, strict=False):
        rank = float(spearmanr(q[name], evidence.p)[0]) if np.ptp(q[name]) else np.nan
        known = (away[name], np.abs(q[name] - evidence.p).sum() / 2, rank, mean_position(q[name]))
        assert (row[1], *row[3:6]) == tuple(map(page.number, known))
        low, high = map(float, row[2].split(" to "))
        assert low <= float(row[1]) <= high
    means = [evidence.floor[name].mean() for name in ("W1", "total_variation", "spearman")]
    ends = np.quantile(evidence.floor["W1"], [0.025, 0.975])
    halves = "one half of the prompts by the other"
    assert rows[-2] == (halves, page.number(means[0]), page.span(ends), *map(page.number, means[1:]), "", "")
    assert rows[-1] == ("measured", *[""] * 4, page.number(mean_position(evidence.p)), evidence.has_u)
    told = f"are {means[0]:.3f} of the length apart on average ({ends[0]:.3f} to {ends[1]:.3f})"
    assert told in said(evidence, "floor")


def test_the_table_says_which_curves_have_a_trough(measured):
    subject = made_of(measured, U, 0.01)._subject()
    subject.predictions["value-maps"] = subject.influence
    found = {row[0]: row[6] for row in document.score_cells(Evidence(subject, resamples=200))}
    assert (found["value maps"], found["measured"], found["equal shares (yardstick)"]) == ("yes", "yes", "no")


def test_scores_and_tests_are_those_of_the_book(measured, evidence):
    """One code: the chapter scores a summary, the report the measurement; prompts here are units of their own."""
    small = summarise(measured.results)
    theirs = scores.scored(small, resamples=200).set_index("prediction")
    exact = small["influence_prompts"].values - measured.results["influence_prompts"].values
    assert np.abs(exact).max() < 1e-3 * measured.results["influence_prompts"].values.max()
    former = {one.kept_as: name for name, one in PREDICTORS.items()} | {"uniform": "even", "power": "power-law"}
    both = {name: former[name] for name in theirs.index if former.get(name) in evidence.scores.index}
    assert {"b", "own", "untrained", "last", "uniform", "power"} < {*both}
    for theirs_name, name in both.items():
        columns = ["W1", "low", "high", "first_aside", "difference"]
        np.testing.assert_allclose(evidence.scores.loc[name, columns], theirs.loc[theirs_name, columns], atol=2e-3)
    gains = scores.gain_table({"m.builtin": small}, ["m"], [("last", "b")], resamples=200)
    own = evidence.gains.query("before == 'last' and after == 'layer-shares'")
    assert own["gain"].item() == pytest.approx(gains["gain"].item(), abs=2e-3)
    assert own["p_value"].item() == pytest.approx(gains["p_value"].item(), abs=0.02)


def test_all_tests_of_the_table_are_one_family(measured, monkeypatch):
    """Holm by hand: 3 × .01, then 2 × .03, then the larger of that and .04; two that look significant are open."""
    asked = []

    def known(influence, profiles, pairs, _):
        asked.extend(pairs)
        return pd.DataFrame({"before": "b", "after": "a", "gain": [1, -1, 1], "p_value": [0.01, 0.03, 0.04]})

    monkeypatch.setattr(stats, "gain_rows", known)
    evidence = Evidence(measured._subject(), resamples=20)
    np.testing.assert_allclose(evidence.gains["adjusted"], [0.03, 0.06, 0.06])
    assert evidence.gains["decided"].tolist() == [1, 0, 0]
    assert {(b, v) for v in evidence.subject.of_model for b in BLIND} <= {*asked}


def test_a_row_of_the_paired_tests_names_the_nearer_first(measured):
    """Predicted is what was measured: every other prediction is further away, and p values are the corrected ones."""
    found = Evidence(made_of(measured, measured.rollout("b").values, 0.01)._subject(), resamples=8000)
    rows = {tuple(row[0].split(" against ")): row[1:] for row in document.gain_cells(found)}
    own = found.subject.label("layer-shares")
    gain, span, p, verdict = rows[own, found.subject.label("even")]
    away = float(found.scores.loc["even", "W1"])
    assert float(gain) == pytest.approx(away, abs=0.002) and gain.startswith("+") and verdict == "closer"
    low, high = map(float, span.split(" to "))
    assert low <= float(gain) <= high
    raw, corrected = found.gains["p_value"].min(), found.gains["adjusted"].min()
    assert float(p.removeprefix("≤ ")) == pytest.approx(corrected, abs=6e-4) and corrected > 3 * raw
    least = found.gains["p_value"] <= 2 / 8001  # of no resample on the other side
    assert [row[2].startswith("≤") for row in rows.values()] == least.tolist() and least.any()


def test_the_interval_of_the_mean_position_is_of_whole_prompts_drawn_again(evidence):
    places = [mean_position(x) for x in evidence.resampled]
    low, high = np.quantile(places, [0.025, 0.975])
    first, *inner, last = np.cumsum(evidence.p)
    shares = np.diff(np.interp(np.linspace(0, LENGTH - 1, 11), np.arange(LENGTH), [0, first, *inner])) / inner[-1]
    listed = ", ".join(f"{x:.1%}" for x in shares[:-1])
    assert said(evidence, "where") == (
        "<strong>The mean position of influence is in the second half of the prompt</strong>: "
        f"{mean_position(evidence.p):.2f} ({low:.2f} to {high:.2f}), {first:.1%} of the influence on the first token "
        f"and {last - inner[-1]:.1%} on the last. Without the last token, the tenths of the prompt have, from the "
        f"first on, {listed} and {shares[-1]:.1%}."
    )


def said(evidence, name):
    """Return a sentence of the answer, nothing where it has nothing to say."""
    return "".join(text.answer(evidence, name))


def made_of(measurement, profile, spread=0.0, prompts=60):
    """Return a measurement whose prompts have a given profile, up to noise."""
    p = np.asarray(profile, dtype=np.float64) / np.sum(profile)
    noise = np.exp(spread * np.random.default_rng(0).normal(size=(prompts, p.size)))
    results = measurement.results.drop_dims("prompt")
    results = results.assign(influence=("position", p), influence_prompts=(("prompt", "position"), p * noise))
    return Measurement(results.assign_attrs(prompts=prompts))


U = np.r_[3.0, np.ones(LENGTH - 3), 3.0, 9.0]


@pytest.mark.parametrize(
    ("profile", "spread", "words"),
    [
        (U, 0.01, "It has a trough"),
        (np.linspace(1, 2, LENGTH), 0.01, "It has no trough"),
        (np.r_[1.06, np.ones(LENGTH - 3), 3, 9], 1.0, "Whether it has a trough is open"),
    ],
)
def test_the_trough_in_words(measured, profile, spread, words):
    found = Evidence(made_of(measured, profile, spread)._subject(), resamples=200)
    assert words in said(found, "trough")
    first, last = LENGTH * found.p[[0, -2]]
    told = said(found, "trough")
    level = np.convolve(found.p[:-1], np.full(9, 1 / 9), mode="valid")
    trough, at = level.min() * LENGTH, (level.argmin() + 4) / (LENGTH - 1)
    depth = f", depth {1 - trough / min(first, last):.0%}: the" if words == "It has a trough" else ""
    assert f"<strong>{words}</strong>{depth}" in told
    assert f"of 9 tokens {trough:.2f} (at {at:.0%} of the prompt)" in told
    assert f"the first token has {first:.2f} times" in told and f"the last but one {last:.2f}." in told
    assert "more than 5% above that stretch." in told


def test_a_prediction_that_beats_nothing_is_said_to(measured):
    last = np.full(LENGTH, 1e-4)
    last[-1] = 1
    found = Evidence(made_of(measured, last, 0.01)._subject())
    assert "<strong>not closer than all on the last token (further away)</strong>" in said(found, "nearest")
    even = Evidence(made_of(measured, measured.rollout("b").values, 0.01)._subject())
    blind = "It is closer than all on the last token and equal shares, and closer than a power law"
    assert even.nearest == "layer-shares" and blind in said(even, "nearest")


def test_a_prediction_that_has_the_order_backwards_and_one_that_is_tied_are_said_to(measured):
    falling = np.r_[np.linspace(2, 1, LENGTH - 1), 4]
    back = Evidence(made_of(measured, falling, 0.01)._subject(), resamples=200)
    knows = {-0.68: ": it has the order of positions backwards", 0.1: ": it does not know the order of positions"}
    for rank, words in (knows | {0.9: ""}).items():
        back.scores.loc[back.nearest, "spearman"] = rank
        assert f", rank correlation {rank:+.2f}{words}. It is" in said(back, "nearest")
    twin = (same := made_of(measured, measured.rollout("b").values, 0.01))._subject()
    twins = dict.fromkeys(("value-maps", "contributions", "independent-layers", "fixed-attention"), same.rollout("b"))
    twin.predictions.update(twins)
    words = "value maps; contributions, mean; independent layers and 1 more"
    assert f" (not told apart from {words}), 0.000 of the length away" in said(Evidence(twin), "nearest")


ALL_ON_LAST, EQUAL = "all on the last token", "equal shares"
FITTED = "a power law with one number fitted to the measured curve itself"


@pytest.mark.parametrize(
    ("last", "even", "law", "words"),
    [
        (1, 1, 0, f"closer than {ALL_ON_LAST} and {EQUAL}, and not told apart from {FITTED}"),
        (1, 1, -1, f"closer than {ALL_ON_LAST} and {EQUAL}, and further away than {FITTED}"),
        (0, 1, 1, f"<strong>not closer than {ALL_ON_LAST} (open)</strong>"),
        (1, -1, 1, f"<strong>not closer than {EQUAL} (further away)</strong>"),
        (-1, 0, 0, f"<strong>not closer than {ALL_ON_LAST} (further away) and {EQUAL} (open)</strong>"),
        (None, 0.5, 0, f"closer than {ALL_ON_LAST} and {EQUAL}, without a test"),
        (None, 0.1, 0, f"<strong>no closer than the better of {ALL_ON_LAST} and {EQUAL}</strong>, without a test"),
    ],
)
def test_the_verdict_says_what_each_test_found(measured, monkeypatch, last, even, law, words):
    found = Evidence(measured._subject(), resamples=20)
    found.scores.loc[[found.nearest, "last", "even"], "W1"] = 0.2, 0.3, even
    known = {"last": last, "even": even, "power-law": law}
    monkeypatch.setattr(found, "against", lambda before, after: last if last is None else known.get(before, 1))
    assert f"It is {words}." in said(found, "nearest")


def test_layers_are_counted_from_one_and_long_states_are_looked_at_behind_the_first_quarter(measured):
    caption = figures.mixing_figure(np.array([0.2, 0.4, 0.1]), None).caption
    assert caption == "Attention adds most in layer 2, λ = 0.400, and least in layer 3, λ = 0.100."
    long = Evidence(changed(measured, norm_ratio=np.array([11.0, 9.0, 12.0]))._subject(), resamples=10)
    later = measured.results["attention"].values[[0, 2], LENGTH // 4 :, 0]
    assert long.long_layers.tolist() == [0, 2] and long.first_attention == pytest.approx(later.mean())


def test_the_closest_is_chosen_among_all_rows(measured):
    level = Evidence(made_of(measured, np.ones(LENGTH))._subject(), resamples=50)
    words = said(level, "nearest")
    away = (
        f"{level.scores['W1']['even']:.3f} of the length away ({page.span(level.scores.loc['even', ['low', 'high']])})"
    )
    assert words.startswith(f"<strong>No prediction of this model is as near as equal shares</strong>, {away}")
    assert f"is <em>{level.subject.label(level.nearest)}</em>" in words and "The closest prediction" not in words
    rising = made_of(measured, np.linspace(1, 1.2, LENGTH), 0.01)._subject()
    rising.predictions["value-maps"] = rising.influence
    found = Evidence(rising, resamples=50)
    best = found.scores.loc[["attention-only", "layer-shares", "layer-shares-self", "measured-attention"], "W1"].min()
    assert found.nearest == "value-maps" and best > found.scores.loc["even", "W1"] > 0
    words = said(found, "nearest")
    assert "The closest prediction is <em>value maps</em>" in words
    assert "Every rollout is further away than equal shares" in words and f"{best:.3f}" in words


def test_halves_of_the_prompts_are_halves_of_the_documents(measured):
    """Two documents of different profiles: every division is one against the other, whatever their prompts are."""
    one, two = np.linspace(1, 2, LENGTH), np.linspace(2, 1, LENGTH)
    results = made_of(measured, one + two, prompts=4).results.assign(
        influence_prompts=(("prompt", "position"), np.stack([one, two, one, two])),
        document=("prompt", np.array([0, 1, 0, 1])),
    )
    floor = Evidence(Measurement(results)._subject(), resamples=20).floor
    np.testing.assert_allclose(floor["W1"], posbias.normalised_wasserstein(one / one.sum(), two / two.sum()))
    np.testing.assert_allclose(floor["spearman"], -1)


@pytest.mark.parametrize(
    ("profile", "spread", "answer"),
    [
        (np.r_[3 * np.ones(3), np.ones(LENGTH - 6), 3 * np.ones(3)], 0.01, ": yes"),
        (np.r_[1.5, np.ones(5), np.geomspace(1, 60, LENGTH - 6)], 0.01, ": no"),  # a lip on a ramp
        (np.r_[1.15 * np.ones(3), np.ones(LENGTH - 6), 3 * np.ones(3)], 1.0, ": cannot tell"),
    ],
)
def test_lost_in_the_middle_takes_more_than_a_lip_at_the_start(measured, profile, spread, answer):
    found = Evidence(made_of(measured, profile, spread)._subject(), resamples=200)
    assert f"Both ends favoured{answer}</strong>. They are if the first" in said(found, "lost")
    ends, drawn = (10 * stats.tenths(x)[..., [0, -1]] for x in (found.p, found.resampled))
    spans = (f"{low:.2f} to {high:.2f}" for low, high in np.quantile(drawn, [0.025, 0.975], axis=0).T)
    told = f"have over 1.05 equal shares; here they have {ends[0]:.2f} and {ends[1]:.2f} (95% intervals "
    assert told + " and ".join(spans) + ")." in said(found, "lost")
    only = "Only the end has more than an equal share; the start has less"
    assert (only in said(found, "lost")) == answer.endswith(": no")


def test_where_a_passage_is_found_best_is_said_of_documents_of_the_same_model(place, measured, tmp_path, monkeypatch):
    row = {"documents": ["ban bem", "ker dir", "bab"], "question": "bem", "answer": "ker"}
    found = posbias.open(place / "bloom").lookup("documents", [row] * 30)
    monkeypatch.setattr(page, "inline_svg", outlined)

    def found_best(right, **attrs):
        changed = found.results.copy(deep=True).assign_attrs(attrs)
        changed["correct"].values[:] = right
        path = measured.report(tmp_path / "r.html", lookup=type(found)(changed))
        return " ".join(" ".join(Parsed(path.read_text()).words).split())

    assert "The middle is lost: cannot tell, since 0% of the answers are right" in found_best(0)
    words = found_best([1, 0, 1])
    assert "found best? The middle is lost: yes, by 1.00" in words and "By accuracy places differ" in words
    assert "3 documents in a prompt of" in words and "30 rows" in words
    assert "It cannot be said from key-value lookup" in found_best([1, 0, 1], task="kv")
    changes = {"revision": "other", "model": "other"}
    for name, value in changes.items():
        other = found.results.assign_attrs({name: value})
        with pytest.raises(ValueError, match="^lookup: expected a lookup of bloom"):
            measured.report(tmp_path / "n.html", lookup=type(found)(other))
    assert not (tmp_path / "n.html").exists()
    files = measured.save(tmp_path / "m.nc"), found.save(tmp_path / "l.nc")
    with pytest.raises(SystemExit) as ended:
        cli.main(["report", str(files[0]), "--lookup", str(files[1]), "-o", str(tmp_path / "c.html")])
    words = " ".join(Parsed((tmp_path / "c.html").read_text()).words)
    assert not ended.value.code and "--lookup" not in words and "30 rows" in words


def test_tenths_add_up_and_leave_the_last_token_out():
    p = np.random.default_rng(0).dirichlet(np.ones(54), size=3)
    shares = stats.tenths(p)
    np.testing.assert_allclose(shares.sum(-1), 1)
    np.testing.assert_allclose(
        stats.tenths(np.c_[p[:, :50], np.full(3, 9.0)]),
        (p[:, :50] / p[:, :50].sum(-1, keepdims=True)).reshape(3, 10, 5).sum(-1),
    )


def of_documents(measured, copies):
    """Return a measurement of four documents, each of so many equal prompts, with the answer to a U open."""
    rng = np.random.default_rng(1)
    influence = np.r_[1.3, np.ones(LENGTH - 3), 3, 9] * np.exp(0.3 * rng.normal(size=(4, LENGTH)))
    lambdas = rng.uniform(0.1, 0.9, size=(4, 3))
    names = {"influence_prompts": influence, "lambda_frobenius_prompts": lambdas}
    results = measured.results.drop_vars([x for x in measured.results if x.endswith("_prompts")]).drop_dims("prompt")
    dims = {name: measured.results[name].dims for name in names}
    results = results.assign({name: (dims[name], np.repeat(x, copies, axis=0)) for name, x in names.items()})
    results = results.assign(influence=("position", influence.sum(0) / influence.sum()))
    results = results.assign(lambda_frobenius=("layer", lambdas.mean(0)))
    results = results.assign(document=("prompt", np.repeat(np.arange(4), copies)))
    return Evidence(Measurement(results.assign_attrs(prompts=4 * copies))._subject(), resamples=300)


def test_intervals_and_tests_are_over_documents_not_prompts(measured):
    """Copies of a prompt in its document change nothing; as prompts of their own they would."""
    one, many = of_documents(measured, 1), of_documents(measured, 10)
    assert (many.unit, many.sample_size) == ("documents", 4) and (one.unit, one.sample_size) == ("prompts", 4)
    for name in ("band", "mixing_band"):
        np.testing.assert_allclose(getattr(many, name), getattr(one, name), rtol=1e-9)
    for name in ("scores", "gains"):
        columns = getattr(one, name).select_dtypes("number").columns
        np.testing.assert_allclose(getattr(many, name)[columns], getattr(one, name)[columns], rtol=1e-9, atol=1e-12)
    assert one.has_u == many.has_u == "open"
    results = many.subject.results
    apart = Evidence(Measurement(results.assign(document=("prompt", np.arange(40))))._subject(), resamples=300)
    assert np.ptp(apart.band, axis=0).mean() < 0.5 * np.ptp(many.band, axis=0).mean()
    assert apart.has_u == "yes"


def test_one_document_or_prompt_gives_no_intervals(measured):
    document = measured.results.assign(document=("prompt", np.zeros(N, int)))
    for results in (document, measured.results.isel(prompt=[0]).assign_attrs(prompts=1)):
        one = Evidence(Measurement(results)._subject())
        assert one.influence is None and one.mixing_band is None and one.gains.empty


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


# One file


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


# Files that lack something

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


# Names that are not to be trusted


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


# Pictures


def test_pictures_are_of_modest_size():
    A = np.tril(np.ones((1000, 1000))) / np.arange(1, 1001)[:, None]
    small = figures.shrink(A)
    assert small.shape == (figures.CELLS, figures.CELLS)
    assert small.mean() == pytest.approx(A.mean(), rel=0.02) and small[0, 1] == 0
    np.testing.assert_allclose(figures.shrink(A[:5, :5]), A[:5, :5])
    B = np.arange(9.0).reshape(3, 3)  # two rows and columns, then one: of other sizes
    np.testing.assert_allclose(figures.shrink(B, 2), [[2, 3.5], [6.5, 8]])


# The command that makes it


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


def test_the_ladder_is_said_in_words(place):
    how = {"dataset": place / "d.jsonl", "quantities": "kernels,ladder", "batch_size": 4}
    m = posbias.open(place / "bloom").measure(N, LENGTH, **how)
    evidence = Evidence(m._subject(), resamples=40)
    away = {name: posbias.compare(m.rollout(name), m.influence).wasserstein for name in WITH_MAPS}
    words = said(evidence, "ladder")
    assert all(f"{w1:.3f}" in words for w1 in away.values())
    assert ("nearly independent" in words) == (away["independent-layers"] < 0.03)
    steps = ("averaging attention", "leaving content out", "from there to layer shares")
    for k, costly in enumerate(steps):
        away = dict(zip(WITH_MAPS, np.cumsum([0.1, *np.roll([0.2, 0.1, 0.15], k)]), strict=True))
        assert said(SimpleNamespace(scores={"W1": away}, climbed=None), "ladder").endswith(f"step is {costly}.")
    assert words in "".join(text.answer(evidence))
    assert "This is of" not in words
    there = np.arange(N) < 5
    few = m.results.assign(ladder_prompts=m.results["ladder_prompts"].where(xr.DataArray(there, dims="prompt")))
    own = m.results["influence_prompts"].values[there].sum(0)
    apart = posbias.normalised_wasserstein(own / own.sum(), m.influence.values)
    words = said(Evidence(Measurement(few)._subject(), resamples=40), "ladder")
    assert f"This is of 5 of the prompts, whose own measured influence is {apart:.3f} from that" in words
    first = m.results.assign(ladder_prompts=m.results["ladder_prompts"] * (m.results["ladder_prompts"].position == 0))
    gone = Evidence(Measurement(first)._subject(), resamples=40)
    assert "Layers are <strong>not independent" in said(gone, "ladder")


def test_a_token_whose_state_is_out_of_line_is_said_to_take_lambda_with_it(measured):
    assert said(Evidence(measured._subject(), resamples=40), "sink") == ""
    ratios = measured.results["norm_ratio"].copy()
    ratios[-1] = 178.0
    A = np.tile(np.eye(LENGTH), (ratios.size, 1, 1))
    A[-1] = 0.5 * np.eye(LENGTH) + 0.5 * np.eye(LENGTH)[0]
    long = measured.results.assign(norm_ratio=ratios, attention=(("layer", "query", "key"), A))
    words = said(Evidence(Measurement(long)._subject(), resamples=40), "sink")
    assert f"In 1 of {ratios.size} layers, the first of them layer {ratios.size}," in words
    assert "over 10 times" in words and "at most 178 times" in words and "gets 50% of the attention" in words


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
