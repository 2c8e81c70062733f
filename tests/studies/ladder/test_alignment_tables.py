"""Tables of the study between: which files are read, places that are known, and coherence of known cross terms."""

import numpy as np
import pandas as pd
import pytest

xr = pytest.importorskip("xarray", reason="xarray is not installed")
pytest.importorskip("h5netcdf", reason="h5netcdf is not installed")

from studies.ladder import alignment_tables as tables

RHO = np.array([-0.2, 0.0, 0.5, 1.0])
N, T, FEW = 16, 3, 4


def family():
    """Give distributions that move from the end to the start as ρ grows."""
    rows = np.exp(np.outer(1.5 - 2 * RHO, np.linspace(0, 1, N)) * 3)
    return rows / rows.sum(1, keepdims=True)


def made(place, *, cross=0.1, seed=0):
    """Give a file whose influence is that of the family at a place, in every prompt up to a little noise."""
    rng = np.random.default_rng(seed)
    p = np.array([np.interp(place, RHO, column) for column in family().T])
    influence = p * rng.uniform(0.98, 1.02, (12, N))
    possible = rng.uniform(0.2, 0.4, (2, T, FEW))
    share = np.full((2, T), 0.2)
    fields = {
        "influence_prompts": (("prompt", "position"), influence),
        "influence": (("position",), influence.sum(0)),
        "profile": (("kernel", "coherence", "position"), np.stack([family(), family()])),
        "predicted": (("kernel", "reading", "position"), np.stack([family()[1:]] * 2)),
        "rollout": (("variant", "position"), family()[:2]),
        "cross": (("join", "layer", "few"), cross * possible),
        "possible": (("join", "layer", "few"), possible),
        "share": (("sum", "layer"), share),
        "expected_share": (("sum", "layer"), share / 4),
    }
    coords = {"kernel": ["content-free", "measured"], "coherence": RHO, "reading": ["cosines", "shares", "both"]}
    coords |= {"variant": ["b", "kernels"], "join": ["attention", "step"], "sum": ["attention", "step"]}
    return xr.Dataset(fields, coords=coords)


@pytest.fixture
def kept():
    stages = {"bloom-12.seed-1.step-000100": 100, "bloom-12.seed-1.step-000003": 3, "bloom-12.seed-1.between": 600}
    found = {name: made(0.1 * k, seed=k).assign_attrs(training_steps=n) for k, (name, n) in enumerate(stages.items())}
    others = ("bloom-8.between", "bloom-8.seed-0.between", "mine.between", "bloom-8.gap", "bloom-8.seed-1.gap")
    return found | {name: made(0.5) for name in others}


def test_entries_are_read_in_order_and_once(kept):
    files = tables.read_between(kept, ["bloom-8", "bloom-12"])
    assert list(files) == [
        "bloom-8.between",
        "bloom-12.seed-1.step-000003",
        "bloom-12.seed-1.step-000100",
        "bloom-12.seed-1.between",
    ]
    assert [x.attrs["stage_step"] for x in files.values()][1:] == [3, 100, 600]
    assert [x.attrs["stage_finished"] for x in files.values()] == [1, 0, 0, 1]
    assert (
        files["bloom-8.between"].attrs["stage_seed"] == 0 and files["bloom-12.seed-1.between"].attrs["stage_seed"] == 1
    )


@pytest.mark.parametrize("place", [-0.1, 0.0, 0.2, 0.73, 1.0])
def test_the_place_of_a_member_of_the_family_is_found(place):
    p = np.array([np.interp(place, RHO, column) for column in family().T])
    found, distance = tables.place_of(np.stack([p, family()[2]]), family(), RHO)
    assert found == pytest.approx([place, 0.5], abs=0.011) and distance.max() < 1e-3


def test_the_table_has_place_limits_and_coherence():
    files = {str(place): made(place) for place in (0.1, 0.6)}
    files = {k: x.assign_attrs(stage_model=k, stage_seed=0, stage_step=1, stage_finished=1) for k, x in files.items()}
    table = tables.place_table(files, resamples=100)
    assert np.allclose(table["place"], [0.1, 0.6], atol=0.03)
    assert (table["low"] <= table["place"] + 0.011).all() and (table["high"] >= table["place"] - 0.011).all()
    assert (table["nearest"] < table[["law", "aligned"]].min(axis=1)).all()
    assert np.allclose(table[["coherence", "excess"]], [0.1, 2.0])
    assert (table["mean_law"] > table["mean"]).all() and (table["mean"] > table["mean_aligned"]).all()


def sides(places):
    files = {str(place): made(place) for place in places}
    samples = {name: tables.sample_between(x) for name, x in files.items()}
    return samples, {name: tables.limits_of(x) for name, x in files.items()}


def test_networks_stand_within_both_limits_or_beyond_one():
    samples, limits = sides([0.3, 0.8, -0.15])
    found = tables.limit_decisions(samples, limits)
    assert found["law"].tolist() == ["within", "within", "beyond"] and (found["aligned"] == "within").all()
    samples.pop("-0.15")
    many = {f"{name} {k}": x for name, x in samples.items() for k in range(10)}
    found = tables.limit_decisions(many, {name: limits[name.split()[0]] for name in many}, resamples=100)
    assert (found == "within").all(axis=None)
    samples["0.8"] = tables.moved_between(samples["0.8"], limits["0.8"], 1.1)
    assert tables.limit_decisions(samples, limits)["aligned"].tolist() == ["within", "beyond"]


@pytest.mark.parametrize("place", [0.0, 0.4, 1.0, 1.2])
def test_a_sample_is_moved_to_a_place(place):
    samples, limits = sides([0.3])
    law, aligned = (p @ np.arange(N) for p in limits["0.3"])
    moved = tables.moved_between(samples["0.3"], limits["0.3"], place).profile @ np.arange(N)
    assert (law - moved) / (law - aligned) == pytest.approx(place, abs=1e-9)


def test_every_layer_of_every_kind_has_a_row():
    stages = []
    for step, cross in ((0, 0.0), (10, 0.05), (30, 0.3), (100, 0.2)):
        attrs = {"stage_model": "m", "stage_seed": 0, "stage_step": step, "stage_finished": 0}
        stages.append(made(0.1, cross=cross).assign_attrs(attrs))
    layers = tables.layer_coherences(dict(zip("abcd", stages, strict=True)))
    assert len(layers) == 4 * 2 * T and sorted(set(layers["layer"])) == [1, 2, 3]
    assert np.allclose(layers.query("kind == 'attention' and step == 30")[["coherence", "excess"]], [0.3, 2.0])


def test_agreement_of_what_agrees_and_of_what_does_not():
    place = np.linspace(0, 0.9, 8)
    table = pd.DataFrame({"model": list("aabbccdd"), "place": place, "coherence": place, "reversed": place[::-1]})
    found = tables.agreement(table)
    assert found["spearman"] == pytest.approx(1) and found["error"] == 0 and found["low"] > 0.99
    assert tables.agreement(table, "reversed")["spearman"] == pytest.approx(-1)
    assert found["spread"] == pytest.approx(abs(place - place.mean()).mean())
