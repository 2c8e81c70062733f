"""What predicts how soon values are found: by hand; what else tables say, the chapters print."""

import numpy as np
import pytest
import xarray as xr

from studies.lookup import tables
from studies.lookup.tables import TASK, Run, predicted
from studies.lookup.training import make_results

BORN = ("squares_born", "rollout_born", "influence_born", "influence_trained", "rollout_trained")


def run_of(accuracy, profile, *, encoding="none", tokens=1, values=4, found=None, step=10, layers=4):
    """Return a setting with this accuracy by seed, test and place, and this profile by place and the query's."""
    accuracy = np.asarray(accuracy, dtype=float)
    seeds, tests, n = accuracy.shape
    arrays = {"loss": np.zeros((seeds, tests)), "accuracy": accuracy, "log_probability": np.log(accuracy + 1e-9)}
    for k in (1, 2, 4):
        end = np.repeat(accuracy[:, -1], k, axis=1) if found is None else np.full((seeds, k * n), found)
        arrays |= {f"accuracy_{k}": end, f"log_probability_{k}": np.log(end + 1e-9)}
    name = f"{encoding}-T{layers}-n{n}-one-even"
    attributes = {"setting": name, "encoding": encoding, "tokens": tokens, "pairs": n, "values": values}
    attributes |= {"layers": layers, "heads": 4, "places": "even"}
    share = np.asarray(profile, dtype=float) / tokens
    profiles = {}
    for k, names in ((1, BORN), (2, BORN[3:]), (4, BORN[3:])):
        by_token = np.append(np.repeat(np.repeat(share, k), tokens), 0.5)[None].repeat(seeds, 0)
        end = "" if k == 1 else f"_{k}"
        profiles |= {f"{name}{end}": (("seed", f"position{end}"), by_token) for name in names}
    return Run(make_results(arrays, range(seeds), step * tests, attributes), xr.Dataset(profiles))


def delayed(encoding, price, n=32, **options):
    """Return a setting in which a nat of the prior, part by part, costs so many steps."""
    profile = predicted(run_of(np.ones((1, 2, n)), np.ones(n), encoding=encoding), TASK)
    logs = np.log(np.maximum(profile, 1e-3 * profile.mean()))
    learned = np.arange(1, 4001)[:, None] > np.repeat(np.round(2000 - price * logs), n // 8)
    accuracy = np.where(learned, 1.0, 1 / 4)[None].repeat(2, 0)
    return run_of(accuracy, np.ones(n), encoding=encoding, step=1, **options)


@pytest.mark.parametrize("encoding", ["steep", "early", "flat"])
def test_a_nat_is_worth_what_it_delays(encoding):
    """Hidden places, which flat heads have, are left out."""
    run = delayed(encoding, 40.0)
    row = tables.nat_table([run]).loc[f"{encoding}-T4-n32-one-even"]
    assert row["steps"] == pytest.approx(40, rel=0.02) and row["explained"] > 0.99 and row["time"] > 1500
    prior = predicted(run, TASK)
    assert (prior < tables.HIDDEN * prior.mean()).any() == (encoding == "flat")
