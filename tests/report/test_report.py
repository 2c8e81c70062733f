"""The numbers of a report: rows, intervals and tests, which it shares with the book."""

import numpy as np
import pandas as pd
import pytest
from reports import LENGTH, N, U, made_of, measure_bloom, of_documents, said
from scipy.stats import spearmanr

import posbias
from posbias.measure.measurement import Measurement
from posbias.predict import PREDICTORS
from posbias.report import document, page, stats
from posbias.report.stats import BLIND, Evidence
from posbias.rollout.profiles import mean_position
from studies.ladder import scores
from studies.summaries import summarise


@pytest.fixture(scope="module")
def measured(place):
    return measure_bloom(place)


@pytest.fixture(scope="module")
def evidence(measured):
    return Evidence(measured._subject(), resamples=200)


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


def test_tenths_add_up_and_leave_the_last_token_out():
    p = np.random.default_rng(0).dirichlet(np.ones(54), size=3)
    shares = stats.tenths(p)
    np.testing.assert_allclose(shares.sum(-1), 1)
    np.testing.assert_allclose(
        stats.tenths(np.c_[p[:, :50], np.full(3, 9.0)]),
        (p[:, :50] / p[:, :50].sum(-1, keepdims=True)).reshape(3, 10, 5).sum(-1),
    )


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
