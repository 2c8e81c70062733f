"""Broken results, tests over seeds and intervals over settings for the networks that learn to retrieve."""

import numpy as np
import pandas as pd
import pytest

xr = pytest.importorskip("xarray", reason="xarray is not installed")
pytest.importorskip("torch", reason="torch is not installed")

from scipy.stats import ttest_1samp

from studies.icl import claim_power, nulls, seed_tests
from studies.icl.claims import depth_claims, sink_claims
from studies.icl.gap_tables import FIELDS, described, gap_table
from studies.icl.outcomes import gaps
from studies.icl.rollout_agreement import SOURCES, agreement_intervals
from studies.icl.settings import preset
from studies.icl.sinks import sink_table


def made_up(gap, noise=0.0, seeds=3, tokens=17):
    """Return results with a gap for each pair, seeds apart by noise, and the sink metric on the first token alone."""
    values = np.asarray(gap) + noise * np.linspace(-1, 1, seeds)[:, None]
    accuracy = 0.5 + np.stack([values, -values], axis=-1) / 2
    sinks = np.zeros((seeds, 2, tokens))
    sinks[..., 0] = 0.9
    return xr.Dataset(
        {"accuracy": (("seed", "pair", "order"), accuracy), "sinks": (("seed", "layer", "key"), sinks)},
        coords={"seed": np.arange(seeds)},
        attrs={"iterations": 10},
    )


def depth_runs(noise=0.0):
    """Return results in which depth pulls to the first, the less the more the encoding decays."""
    base = {"none": 0.5, "rope": 0.4, "decay": 0.2}
    size = {s: base[s.network.encoding] * s.network.layers / 6 for s in preset("figure2")}
    return {s: made_up((x, x, 0.1 * x), noise) for s, x in size.items()}


def test_mirrored_places_exchange_first_and_last():
    gap = np.array([0.3, 0.1, -0.2])
    accuracy = made_up(gap)["accuracy"].values
    found = nulls.mirrored(accuracy)
    assert (found[..., 0] - found[..., 1])[0] == pytest.approx(-gap[::-1])
    assert nulls.mirrored(found) == pytest.approx(accuracy)


def test_broken_results_keep_what_they_do_not_break():
    runs, rng = depth_runs(noise=0.01), np.random.default_rng(0)
    every = np.concatenate([gaps(x) for x in runs.values()])
    shuffled = nulls.shuffled_settings(runs, rng)
    assert list(shuffled) == list(runs)
    others = np.concatenate([gaps(x) for x in shuffled.values()])
    assert np.sort(others, axis=0) == pytest.approx(np.sort(every, axis=0)) and not np.allclose(others, every)
    swapped = np.concatenate([gaps(x) for x in nulls.swapped_ends(runs, rng).values()])
    assert np.abs(swapped[:, 1]) == pytest.approx(np.abs(every[:, 1]))
    assert 0 < (swapped[:, 1] < 0).sum() < len(every)
    noise = np.concatenate([gaps(x) for x in nulls.noise_of_seeds(runs, rng).values()])
    allowed = np.array([-1, 0, 1]) * 0.01 * np.sqrt(3 / 2)
    assert np.abs(noise[..., None] - allowed).min(-1).max() < 1e-9
    tokens = nulls.shuffled_tokens(runs, rng)
    tops = {int(x["sinks"].values[0, 0].argmax()) for x in tokens.values()}
    assert len(tops) > 1 and 16 not in tops  # the query stays


def test_claims_on_broken_results_and_how_often_they_fail():
    runs = depth_runs()
    table = depth_claims(runs)
    breaks = {"nothing": lambda runs, rng: runs, "ends": nulls.swapped_ends}
    broken = claim_power.claims_on_broken(depth_claims, runs, breaks, times=4)
    assert broken["nothing"].shape == (4, len(table))
    assert ((broken["nothing"] == 1) == table["holds"]).all(axis=None)
    assert (broken["ends"] == -1).sum().sum() < 4  # swapped by coins: hardly anything stands against a claim
    powers = claim_power.with_power(table, broken)
    assert powers.loc["deeper-none", ["nothing", "ends"]].tolist() == [0, 4]
    again = claim_power.claims_on_broken(depth_claims, runs, breaks, times=4)
    assert again["ends"].equals(broken["ends"])
    with pytest.raises(ValueError, match="times: expected an integer of at least 1"):
        claim_power.claims_on_broken(depth_claims, runs, breaks, times=0)


def test_a_sink_on_shuffled_tokens_is_no_longer_on_the_first():
    runs = {s: made_up((0, 0, 0)) for s in preset("figure8")}
    check = lambda runs: sink_claims(sink_table(runs))  # noqa: E731 - a check, as chapters pass it
    assert check(runs).loc["sink-causal", "holds"]
    broken = claim_power.claims_on_broken(check, runs, {"tokens": nulls.shuffled_tokens}, times=10)
    assert broken["tokens"]["sink-causal"].sum() <= 3


def test_p_values_over_seeds_are_those_of_a_t_test():
    values = np.random.default_rng(0).normal(0.1, 0.2, (5, 4))
    assert seed_tests.seed_p_values(values) == pytest.approx(ttest_1samp(values, 0, axis=1).pvalue)
    same = np.full((1, 3), 0.014)  # seeds that agree to more than a test can tell
    t = 0.014 / seed_tests.SAMPLING * np.sqrt(3)
    assert seed_tests.seed_p_values(same)[0] == pytest.approx(1 - t / np.sqrt(2 + t**2))  # t with 2 degrees


def test_a_claim_is_reversed_by_every_seed_and_term_alone():
    down = np.full((1, 20), -0.2) + np.linspace(-0.01, 0.01, 20)
    but_one = down.copy()
    but_one[0, 0] = 0.001  # the mean is far below 0, one seed is not
    small, none = down / 100, np.full((1, 3), np.nan)
    needs = {
        "down": [down],
        "one seed": [but_one],
        "both": [np.concatenate([down, -down])],
        "small": [small],
        "lost": [none],
        "nothing": [],
    }
    found = seed_tests.reversed_claims(needs, least=0.01)
    assert found == {"down": True} | dict.fromkeys(["one seed", "both", "small", "lost", "nothing"], False)
    assert seed_tests.reversed_claims({"nothing": []}, least=0.01) == {"nothing": False}
    three = np.array([[-0.2, -0.21, -0.19]])  # p = 0.0008, so that it stands among 60 groups and not among 100
    for groups, stands in ((60, True), (100, False)):
        family = {"a": [three], "b": [-three] * (groups - 1)}
        assert seed_tests.reversed_claims(family, least=0.01)["a"] == stands


def test_a_family_of_gaps_by_holm():
    some = [s for s in preset("figure4") if s.network.encoding == "none"][:2]
    rows = gap_table({some[0]: made_up((0.9, 0.9, 0.0), 0.01), some[1]: made_up((0.0, 0.1, 0.9), 0.2)})
    found = seed_tests.seed_tests(rows, ["layers"])
    assert len(found) == 6 and (found["seeds"] == 3).all() and (found["adjusted"] >= found["p"]).all()
    clear = found.index[found["adjusted"] < 0.05].tolist()
    assert clear == [(2, "first vs middle"), (2, "first vs last")]
    assert found["adjusted"].min() == pytest.approx(6 * found["p"].min())
    missing = rows[~((rows["seed"] == 0) & (rows["layers"] == 2))]
    assert (seed_tests.seed_tests(missing, ["layers"]).loc[2, "p"] == 1).all()


def points_of(signs, settings):
    """Return points of settings whose rollout names the sign of a gap (1) or not (0); the earlier is ahead in all."""
    rows = []
    for source in SOURCES:
        for setting, right in zip(settings, signs, strict=True):
            fields = described(setting)
            for pair in range(3):
                difference = 1.0 if right else -1.0
                rows.append(fields | {"source": source, "pair": pair, "difference": difference, "gap": 0.3})
    table = pd.DataFrame(rows, columns=[*FIELDS, "source", "pair", "difference", "gap"])
    return table.assign(share=table["difference"], preference=table["gap"])


def test_intervals_of_signs_take_settings_as_units():
    settings = preset("figure4")
    points = points_of([1, 1, 0, 1, 1, 0, 1, 1, 1], settings)
    found = agreement_intervals(points, {"all": ""}, least=0.01).loc["rollout", "all"]
    assert found["sign"] == pytest.approx(7 / 9) and found["settings"] == 9
    assert found["ahead"] == pytest.approx(7 / 9 - 1)  # the earlier place is always ahead
    width = found["sign_high"] - found["sign_low"]
    assert width == pytest.approx(2 * 1.96 * np.sqrt(7 / 9 * 2 / 9 / 9), rel=0.2)  # of 9 settings, not 27 gaps
    every = agreement_intervals(points_of([1] * 9, settings), {"all": ""}, least=0.01).loc["rollout", "all"]
    assert every[["sign_low", "sign_high", "p"]].tolist() == pytest.approx([1, 1, 1])
    with pytest.raises(ValueError, match="groups: expected queries that select gaps"):
        agreement_intervals(points, {"none": "layers == 99"}, least=0.01)
