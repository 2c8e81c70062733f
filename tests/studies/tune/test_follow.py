"""Whether quantities follow answers, on profiles that are known; the page's words when three seeds are there."""

import numpy as np
import pytest
import xarray as xr

from studies.tune import evidence, follow, form

N = 66


def text(middle, prompts=12):
    """Return an entry whose middle half has so large a part of each profile."""
    rng = np.random.default_rng(0)
    p = np.full(N, (1 - middle) / 34)
    p[17:49] = middle / 32
    rows = p * rng.uniform(0.9, 1.1, size=(prompts, 1))
    use = np.full_like(rows, np.nan)
    for k in range(prompts):
        places = [0, *range(1 + k % 4, N - 1, 4), N - 1]
        use[k, places] = rows[k, places]
    arrays = {"influence": rows, "use": use, "contributions": rows, "loss": np.full(prompts, 3.0 + middle)}
    return xr.Dataset({x: (("prompt", "position")[: v.ndim], v) for x, v in arrays.items()})


def texts(**shares):
    return {arm: text(share) for arm, share in shares.items()}


def test_a_share_is_that_of_the_middle():
    shares = follow.middle_shares(texts(before=0.3), "use")
    assert shares["before"][0] == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("every", "middle", "verdict"), [(0.4, 0.5, "follows"), (0.31, 0.31, "stays"), (0.4, 0.38, "open")]
)
def test_a_verdict_is_that_of_the_threshold(every, middle, verdict):
    found = texts(before=0.3, every=every, middle=middle)
    row = follow.change_table(found).loc["use"]
    assert follow.verdict_of(row) == verdict and row["every"] == pytest.approx(every - 0.3)
    check = follow.follow_checks(found)[1]
    assert check.passed == (verdict == "follows") and not any(check.broken["nothing moves"])
    assert follow.follow_shown(found).loc["use", "by our thresholds"] == follow._SAID[verdict]
    said = {"follows": "it follows the answers", "stays": "it stays", "open": "that is undecided"}[verdict]
    assert said in follow.follow_said(found) and f"{every - 0.3:.3f}" in follow.follow_said(found)


def test_nothing_is_said_of_what_was_not_measured():
    kept = {"before.text": text(0.3), "every.seed-0.text": text(0.4)}
    assert not follow.texts_of(kept) and "not measured" in follow.follow_said({}) and follow.follow_checks({}) == []
    kept["middle.seed-0.text"] = text(0.5)
    assert [*follow.texts_of(kept)] == ["before", "every", "middle"]


def answers(ends, middle):
    """Return 40 sets in which so large a share of the ends, and of the places between, is right."""
    rng = np.random.default_rng(1)
    share = np.array([ends, *[middle] * 6, ends])
    right = (rng.random((40, 8)) < share).astype(float)
    source = np.where(right == 1, np.arange(8), -1)
    apart = (rng.random((40, 8)) < 0.9).astype(float)
    arrays = {"correct": right, "source": source, "apart_correct": apart}
    return xr.Dataset({name: (("context", "place"), x) for name, x in arrays.items()})


def seen_of(seeds, middle=0.95):
    """Return evidence of both trainings with so many seeds."""
    kept = {"before.answers": answers(0.8, 0.2), "every.seed-0.training": xr.Dataset(coords={"step": range(60)})}
    for seed in range(seeds):
        kept[f"every.seed-{seed}.answers"] = answers(0.95, middle)
        kept[f"middle.seed-{seed}.answers"] = answers(0.6, 0.95)
        kept[f"ends.seed-{seed}.answers"] = answers(0.95, 0.2)
    by_seed = {seed: evidence.tables.answers_of(kept, seed) for seed in range(seeds)}
    return evidence.Evidence(kept, by_seed)


@pytest.mark.parametrize(("seeds", "undecided"), [(1, True), (2, True), (3, False)])
def test_three_seeds_decide(seeds, undecided):
    seen = seen_of(seeds)
    check, said = evidence.asked_check(seen), evidence.numbers(seen)
    assert check.passed and check.how["undecided"] == undecided
    assert np.mean(check.broken["places mixed"]) <= 0.2 and not any(check.broken["answers before turned round"])
    assert said["why_seeds"] == ("one seed", "two seeds", "three seeds")[seeds - 1]
    assert ("every place, seed 1" in evidence.shown(seen).index) == (seeds > 1)


def test_a_loss_refutes():
    seen = seen_of(3, middle=0.02)
    assert not evidence.asked_check(seen).passed


def with_controls(middle):
    """Return evidence with both controls, which gain so much in the middle and nothing at the ends."""
    seen = seen_of(3)
    arms = seen.by_seed[0] | {"apart": answers(0.8, middle), "text": answers(0.8, 0.2)}
    return evidence.Evidence(seen.kept, {**seen.by_seed, 0: arms})


def test_a_control_that_gains_in_the_middle_contradicts():
    assert evidence.control_checks(seen_of(3)) == []
    (check,) = evidence.control_checks(with_controls(0.9))
    assert not check.passed and "eight kinds" in check.reason and "running text" not in check.reason
    (check,) = evidence.control_checks(with_controls(0.2))
    assert check.passed and not any(check.broken["answers before turned round"])
    assert not check.how["undecided"]
    shares = evidence.shares_said(with_controls(0.2))
    assert shares["why_text_middle_said"] == shares["why_apart_middle_said"] != shares["why_every_middle_said"]


def test_trainings_that_differ_in_places_alone_are_compared():
    arms = {"every": answers(1, 1), "middle": answers(0, 1), "ends": answers(1, 0)}
    seen = evidence.Evidence({}, {0: arms, 1: arms | {"middle": answers(1, 0)}, 2: {"middle": answers(1, 1)}})
    found = evidence.contrasts_said(seen)
    assert (found["why_contrast_middle"], found["why_contrast_ends"]) == ("0 to 100", "0 to 100")
    assert found["why_contrast_ends_said"].startswith("1.00 (") and " and 0.00 (" in found["why_contrast_middle_said"]


def test_a_control_contradicts_only_if_each_of_its_seeds_does():
    seen, more = with_controls(0.9), with_controls(0.2).first
    both = evidence.Evidence(seen.kept, {0: seen.first, 1: {**seen.by_seed[1], "apart": more["apart"]}})
    (check,) = evidence.control_checks(both)
    assert check.passed and check.how["undecided"]
    (check,) = evidence.control_checks(evidence.Evidence(seen.kept, {0: seen.first, 1: seen.first}))
    assert not check.passed and not check.how["undecided"]


def test_one_control_alone_does_not_decide():
    seen = with_controls(0.2)
    seen = evidence.Evidence(seen.kept, {0: {arm: x for arm, x in seen.first.items() if arm != "text"}})
    (check,) = evidence.control_checks(seen)
    assert check.passed and check.how["undecided"]
    assert "why_text_middle_said" not in evidence.shares_said(seen)


def test_other_kinds_are_compared_with_the_same_sets():
    found = form.form_numbers({"before": answers(0.8, 0.2)})
    assert found["why_form_gain_before"] == pytest.approx(0.7, abs=0.1)
    assert found["why_form_low_before"] < found["why_form_gain_before"] < found["why_form_high_before"]
    assert "why_form_ends" not in found
