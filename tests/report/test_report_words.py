"""The sentences of a report: what it says of a curve, of predictions and of layers, and when."""

from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from parsed import Parsed
from reports import LENGTH, N, U, changed, made_of, measure_bloom, outlined, said

import posbias
from posbias import cli, predict
from posbias.measure.measurement import Measurement
from posbias.report import figures, page, stats, text
from posbias.report.stats import Evidence


@pytest.fixture(scope="module")
def measured(place):
    return measure_bloom(place)


WITH_MAPS = ("independent-layers", "value-maps", "value-maps-positional", "layer-shares")


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
