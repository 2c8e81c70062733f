"""What settings of retrieval networks say together."""

import numpy as np
import pandas as pd
import pytest

torch = pytest.importorskip("torch")
xr = pytest.importorskip("xarray")
pytest.importorskip("transformers")

from scipy.stats import t as student

from studies.lookup import evidence
from studies.lookup.results import make_results
from studies.lookup.tables import PREDICTORS, TASK, Run, predicted

STEPS = 4000


def run_of(encoding, times=None, found=1.0, n=32):
    """Return a setting of two seeds that learned each place after so many steps."""
    attributes = {"setting": f"{encoding}-T4-n{n}-one-even", "encoding": encoding, "tokens": 1, "pairs": n}
    attributes |= {"values": 16, "layers": 4, "heads": 4, "places": "even"}
    tested = np.arange(1, STEPS + 1)
    learned = tested[:, None] > (np.zeros(n) if times is None else times)
    accuracy = np.where(learned, 1.0, 1 / 16)[None].repeat(2, 0)
    arrays = {"loss": np.zeros((2, STEPS)), "accuracy": accuracy, "log_probability": accuracy}
    for k in (1, 2, 4):
        arrays |= {f"accuracy_{k}": np.full((2, k * n), found), f"log_probability_{k}": np.zeros((2, k * n))}
    born = np.linspace(1, 2, n + 1)[None].repeat(2, 0)
    return Run(
        make_results(arrays, [0, 1], STEPS, attributes), xr.Dataset({"rollout_born": (("seed", "position"), born)})
    )


def delayed(encoding, price, n=32):
    """Return a setting in which a nat of the prior, part by part, costs so many steps."""
    profile = predicted(run_of(encoding, n=n), TASK)
    logs = np.log(np.maximum(profile, 1e-3 * profile.mean()))
    return run_of(encoding, np.repeat(np.round(2000 - price * logs), n // 8), n=n)


@pytest.mark.parametrize("encoding", ["steep", "log", "early"])
def test_a_nat_is_worth_what_it_delays(encoding):
    row = evidence.nat_table([delayed(encoding, 40.0)]).loc[f"{encoding}-T4-n32-one-even"]
    assert row["steps"] == pytest.approx(40, rel=0.02) and row["explained"] > 0.99
    assert row["low"] <= row["steps"] <= row["high"] and row["time"] > 1500


def test_hidden_places_and_networks_that_learned_nothing_are_left_out():
    hidden = delayed("flat", 40.0)
    assert (predicted(hidden, TASK) < evidence.HIDDEN * predicted(hidden, TASK).mean()).any()
    assert evidence.nat_table([hidden])["steps"].iloc[0] == pytest.approx(40, rel=0.02)
    assert len(evidence.nat_table([run_of("steep", found=0.2), delayed("log", 1.0)])) == 1


def test_the_spread_of_a_line_is_of_shared_biases_and_endless_for_another_sign():
    settings = [delayed("steep", 30.0), delayed("early", 45.0), delayed("alibi", 5.0)]
    spread = evidence.nat_spread(evidence.nat_table(settings))
    assert spread.loc[1, 32, 4] == pytest.approx(1.5, rel=0.05)
    wrong = evidence.nat_table([delayed("steep", 30.0), delayed("early", -45.0)])
    assert evidence.nat_spread(wrong).tolist() == [np.inf]


def test_even_kernels_give_no_order():
    assert not evidence.gives_order(run_of("none")) and not evidence.gives_order(run_of("rope"))
    assert evidence.gives_order(run_of("steep"))


def test_mean_ranks_resample_encodings():
    """Two encodings: resamples have the mean of one, of the other, or of both, so the ends are the encodings' own."""
    table = pd.DataFrame({"encoding": ["log", "log", "flat"], **{name: [0.0, 0.2, 0.9] for name in PREDICTORS}})
    table[TASK] = [1.0, 1.0, 0.7]
    found = evidence.rank_means(table, 400)
    assert found.loc[TASK, ["mean", "low", "high"]].tolist() == pytest.approx([0.9, 0.7, 1.0])
    assert found.loc["recency", ["low", "high"]].tolist() == pytest.approx([0.1, 0.9])
    assert found.loc["recency", "right"] == pytest.approx(2 / 3)
    ends = found.loc["recency", ["behind", "behind_low", "behind_high"]]
    assert ends.tolist() == pytest.approx([0.9 - 1.1 / 3, -0.2, 0.9])
    assert (found.loc[TASK, ["behind", "behind_low", "behind_high"]] == 0).all()


def test_certain_intervals_pool_a_line_and_count_the_settings():
    spread = np.array([0.1, 0.3, 0.2])
    half = evidence.certain(np.zeros(3), spread, ["x", "x", "y"], 3)
    level = 1 - 0.025 / 3
    assert half[0] == half[1] == pytest.approx(student.ppf(level, 4) * np.sqrt(0.05) / np.sqrt(3))
    assert half[2] == pytest.approx(student.ppf(level, 2) * 0.2 / np.sqrt(3))
