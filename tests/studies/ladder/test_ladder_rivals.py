"""Others' predictions, judged: numbers by hand, and the check of what is nearer."""

import numpy as np
import pytest

from posbias.comparison.distances import normalised_wasserstein, spearman, total_variation
from studies.ladder import rivals as r
from studies.ladder.crossfit import TEXTS, Judged
from studies.ladder.rival_checks import PARTS, on_first, rival_checks


def made(near):
    """Return predictions that are the truth but for noise, or the truth turned round."""
    rng, truth = np.random.default_rng(0), np.linspace(1, 3, 20)
    rows = truth * np.exp(0.2 * rng.standard_normal((40, 20)))
    judged = {t: Judged({"even": np.full(20, 0.05)}, rows[k::2], np.arange(20)) for k, t in enumerate(TEXTS)}
    names = {name for pairs in PARTS.values() for pair in pairs for name in pair} - {"even"}
    names |= {"contributions-own", *r.OTHERS}
    away = np.tile(np.linspace(3, 0.1, 20), (6, 1))
    said = {name: rows[:6] if near and name != "attention" else away for name in names}
    said["attention"] = np.tile(np.linspace(5, 0.1, 20) ** 2, (6, 1))
    return r.Rivals(judged, dict.fromkeys(TEXTS, said), draws=100)


def test_scores_are_those_of_the_package():
    p, q = np.random.default_rng(1).dirichlet(np.ones(9), (2, 5))
    for name, one in (
        ("W1", normalised_wasserstein),
        ("total variation", total_variation),
        ("rank correlation", spearman),
    ):
        assert r.SCORES[name](p, q) == pytest.approx([one(a, b) for a, b in zip(p, q, strict=True)])
    assert np.isnan(r.rank_correlation(np.full((1, 9), 1 / 9), q[:1])).all()


def test_what_is_nearer_passes_and_what_is_not_does_not():
    assert all(check.passed and not check.how["undecided"] for check in rival_checks(made(True)))
    first = rival_checks(made(False))[0]
    assert not first.passed and "without the first" in first.reason
    assert not any(any(runs) for check in rival_checks(made(True)) for runs in check.broken.values())


def test_influence_moves_to_the_first_token():
    moved = on_first(made(True), 1.0)
    assert moved.made("globenc", next(iter(TEXTS)))[0].tolist() == [1.0, *[0.0] * 19]


def test_both_documents_that_predict_and_that_judge_are_drawn():
    one = made(True)
    text = next(iter(TEXTS))
    assert np.ptp(one.made("globenc", text)[1:], axis=0).min() > 0
    assert np.ptp(one.measured[text][1:], axis=0).min() > 0
    assert len(one.made("even", text)) == 1
    assert one.gap("globenc", "globenc") == (0, 0, 0)
