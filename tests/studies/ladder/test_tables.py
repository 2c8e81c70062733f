"""Tables of what stands between rollout and influence: layers, refinements, hops, paths."""

import itertools

import numpy as np
import pytest

xr = pytest.importorskip("xarray", reason="xarray is not installed")
pd = pytest.importorskip("pandas", reason="pandas is not installed")

from posbias import normalised_wasserstein
from posbias.rollout.paths import paths_by_hops, recombined
from studies.ladder import tables

T, N = 2, 4
DIMS = {
    "kernel": ["content-free", "uniform", "values", "projected", "vectors"],
    "mixing": ["norms", "positions", "direction", "gradient", "values"],
    "step": ["kept", "gain"],
    "join": ["sizes", "angles"],
}


def profiles(*shape, seed=0):
    p = np.random.default_rng(seed).gamma(1.0, size=(*shape, N))
    return p / p.sum(-1, keepdims=True)


@pytest.fixture
def gap():
    """Return one model's refinements in which the rollout follows the gradient exactly."""
    entering, lam = profiles(T + 1), np.array([0.3, 0.5])
    stepped = profiles(1, T, seed=1)
    for t in reversed(range(T)):
        entering[t] = (1 - lam[t]) * entering[t + 1] + lam[t] * stepped[0, t]
    rolled = np.broadcast_to(entering, (1, 1, 1, T + 1, N))
    gain = np.ones((T, N))
    gain[0, -1] = 1.5
    along = {f"lambda_{kind}": (("layer",), lam * k) for k, kind in enumerate(tables.READINGS, 1)}
    return xr.Dataset(
        {
            "entering": (("depth", "position"), 7 * entering),
            "rolled": (("few_kernels", "few_mixings", "join", "depth", "position"), rolled),
            "stepped": (("kernel", "layer", "position"), stepped),
            "join_cosine": (("layer",), [0.1, -0.2]),
            "gain": (("layer", "position"), gain),
            **{name: (("position",), profiles(seed=2)) for name in ("influence", "influence_past_norm")},
            **{name: (("position",), profiles(seed=3)) for name in ("influence_values", "influence_beside")},
            **along,
        },
        coords={"few_kernels": ["uniform"], "few_mixings": ["norms"], "join": ["sizes"], "kernel": ["uniform"]},
    )


def test_a_rollout_that_is_right_has_no_gap(gap):
    table = tables.layer_table({"one": gap})
    assert table["model"].tolist() == ["one"] * T and table["layer"].tolist() == [1, 2]
    assert table["height"].tolist() == [0, 1] and table["cosine"].tolist() == [0.1, -0.2]
    assert table[["gap", "alone"]].abs().max().max() < 1e-12
    assert table["gain"].iloc[0] == pytest.approx(1.5) and np.isnan(table["gain"].iloc[1])


def test_a_wrong_layer_is_seen(gap):
    wrong = gap.copy(deep=True)
    wrong["stepped"].values[0, 0] = np.eye(N)[0]
    table = tables.layer_table({"one": wrong})
    off = normalised_wasserstein(np.eye(N)[0], gap["stepped"].values[0, 0])
    assert table["alone"].tolist() == pytest.approx([0.3 * off, 0.0], abs=1e-9)


def test_sums_of_readings(gap):
    row = tables.model_readings({"one": gap}).loc["one"]
    assert [row[kind] for kind in tables.READINGS] == pytest.approx([0.8, 1.6, 2.4, 3.2])
    moved = normalised_wasserstein(profiles(seed=2), profiles(seed=3))
    assert row["weights_fixed"] == pytest.approx(moved) and row["no_final_norm"] == pytest.approx(moved)


@pytest.fixture
def refined():
    """Return three models and their influence: value heads are near in all, vectors nearer in one, further in two."""
    gap, kept = {}, {}
    for seed, name in enumerate(("one", "two", "three")):
        p = profiles(seed=10 + seed)
        predictions = np.broadcast_to(np.eye(N)[0], (*map(len, DIMS.values()), N)).copy()
        first = np.eye(N)[0]
        predictions[2, 0, 0, 1] = 0.9 * p + 0.1 * first
        predictions[4, 0, 0, 1] = p if name == "one" else 0.88 * p + 0.12 * first
        predictions[0, 0, 1, 0] = p  # needs the gradient
        predictions[0, 0, 0, 0] = 0.95 * first + 0.05 * p
        gap[name] = xr.Dataset(
            {
                "prediction": ((*DIMS, "position"), predictions),
                "own": (("position",), p),
                "quadrature": (("kernel", "position"), np.broadcast_to(np.eye(N)[-1], (5, N))),
            },
            coords=DIMS,
        )
        prompts = ("prompt", "position"), np.stack([p, p])
        kept[f"{name}.builtin"] = xr.Dataset({"influence": (("position",), p), "influence_prompts": prompts})
    return gap, kept


def test_every_refinement_has_a_row(refined):
    table = tables.refinement_table(*refined, resamples=20)
    assert len(table) == 3 * (len(tables.WAYS) + 2)
    own = table.query('way == "each prompt\'s own kernels"')
    assert own["W1"].max() < 1e-12 and (own["low"] > 0).all()
    first = normalised_wasserstein(np.eye(N)[0], refined[1]["two.builtin"]["influence"].values)
    plain = table.query("way == 'rollout' and model == 'two'").iloc[0]
    assert plain["W1"] == pytest.approx(first) and plain["gain"] == 0
    of_free = table.query("model == 'two'").set_index("way")["gain"]
    assert of_free["(b)"] == 0 > of_free["(b), right angles"]  # held against (b)


def test_ways_are_counted(refined):
    summary = tables.way_summary(tables.refinement_table(*refined, resamples=200))
    assert summary.loc["each prompt's own kernels", ["better", "worse"]].tolist() == [3, 0]
    assert summary.loc["right angles", ["better", "worse"]].tolist() == [0, 0]  # as far off as the rollout


def test_the_choice_does_not_see_the_model_it_is_judged_on(refined):
    table = tables.held_out_choices(*refined)
    any_kernel = table.query("choice == 'any measured kernel'").set_index("model")
    ways = {"one": "values, angles", "two": "vectors, angles", "three": "vectors, angles"}
    assert any_kernel["way"].to_dict() == ways
    p = refined[1]["one.builtin"]["influence"].values
    assert any_kernel["W1"]["one"] == pytest.approx(0.1 * normalised_wasserstein(p, np.eye(N)[0]))
    assert set(table.query("choice == 'content-free, forward pass'")["way"]) == {"content-free"}


def test_all_combinations(refined):
    ways = tables.combinations(refined[0]["one"])
    assert len(ways) == 100 and tables.PLAIN in ways
    assert [tuple(way.values()) for way in ways] == list(itertools.product(*DIMS.values()))


A = np.array([[[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.2, 0.3, 0.5, 0], [0.4, 0.3, 0.2, 0.1]]] * T)
LAMBDA = np.array([0.3, 0.6])
PATH_POWERS = [1.0, 1.25, 1.5, 1.75, 2.0]


def hop_study(scale=(1.0, 1.0, 1.0)):
    """Return a study whose gradient's parts are the rollout's, each of another size."""
    P = paths_by_hops(A, LAMBDA, 1.0)
    g = P * np.array(scale)[:, None]
    paths = np.stack([paths_by_hops(A, LAMBDA, power) for power in PATH_POWERS])
    return xr.Dataset(
        {
            "gradient_hops": (("hop", "position"), g),
            "rollout_hops": (("variant", "hop", "position"), P[None]),
            "influence": (("position",), g.sum(0) / 4),
            "kernel_paths": (("power", "hop", "position"), paths),
        },
        coords={"variant": ["b"], "power": PATH_POWERS},
    )


def test_hops_of_equal_parts_agree(monkeypatch):
    row = tables.hop_summary({"one": hop_study()}).iloc[0]
    assert row["apart"] == pytest.approx(0) and row["agrees"] and row["uncancelled"] == pytest.approx(0)
    assert row["cancels"] == pytest.approx(0.75)
    monkeypatch.setattr(tables, "SHAPED", 1)
    assert tables.hop_table({"one": hop_study()})["W1"].notna().tolist() == [False, True, False]
    monkeypatch.undo()
    table = tables.hop_table({"one": hop_study()})
    assert table["hop"].tolist() == [0, 1, 2] and np.isnan(table["W1"].iloc[0])
    assert table["rollout"].tolist() == pytest.approx([0.28, 0.54, 0.18])
    assert table["W1"].iloc[1:].max() < 1e-12 and not any(table["early"].iloc[1:])


def test_other_shares_of_hops_do_not():
    row = tables.hop_summary({"one": hop_study((1e-12, 1e-12, 1.0))}).iloc[0]
    assert row["apart"] == pytest.approx(0.82) and not row["agrees"]


def measured(seed):
    """Return a summary that measured_rollout can read."""
    one, two = np.zeros((T, 1)), np.zeros(T, dtype=int)
    return xr.Dataset(
        {
            "influence": (("position",), paths_by_hops(A, LAMBDA, 1.0).sum(0)),
            "lambda_frobenius": (("layer",), LAMBDA),
            "slopes": (("layer", "head"), one + 0.1 * seed),
            "window": (("layer",), two),
            "content_offdiagonal": (("layer", "head"), one),
            "content_diagonal": (("layer", "head"), one),
        },
        attrs={"length": N},
    )


def test_sizes_fit_what_is_made_of_sizes():
    hops = {"one": hop_study(), "two": hop_study()}
    kept = {f"{name}.builtin": measured(seed) for seed, name in enumerate(hops, 1)}
    shapes = tables.path_shapes(hops, kept)
    assert set(shapes) == {(name, kernel) for name in hops for kernel in ("b", "c", "kernels")}
    powers = tables.path_powers(shapes, kept)
    assert len(powers) == 6 * len(PATH_POWERS)
    fits = tables.held_out_fits(shapes, kept, "kernels")
    assert fits["power"].tolist() == [1.0, 1.0] and fits["rho"].tolist() == pytest.approx([1.0, 1.0], abs=1e-3)
    assert fits[["sizes", "chosen"]].max().max() < 1e-12 and fits["damped"].max() < 1e-3 < fits["vectors"].min()


def test_what_is_fitted_does_not_see_the_model_it_is_judged_on():
    hops = {"one": hop_study(), "two": hop_study()}
    kept = {f"{name}.builtin": measured(seed) for seed, name in enumerate(hops, 1)}
    parts = hops["two"]["kernel_paths"].values
    squares = recombined(parts[0].sum(1), parts[-1])
    kept["two.builtin"]["influence"] = ("position",), squares
    fits = tables.held_out_fits(tables.path_shapes(hops, kept), kept, "kernels").set_index("model")
    assert fits["power"].to_dict() == {"one": 2.0, "two": 1.0}
    assert fits.loc["two", "vectors"] < 1e-12 and fits.loc["two", "chosen"] == fits.loc["two", "sizes"] > 1e-3


POWERS = np.array([1.0, 1.5, 2.0])


def path_study(total):
    """Return paths of one hop that are aligned, and of two hops whose sizes fall with the power."""
    sizes = np.array([[4.0, 4.0, 4.0], [10.0, 6.0, 2.0]])
    return xr.Dataset(
        {
            "sizes": (("hop", "power", "position"), np.stack([sizes / 2, sizes / 2], -1)),
            "total": (("hop", "position"), np.array([[4.0, 0.0], [total, 0.0]])),
            "middle": (("position",), [5.0, 0.0]),
            "middle_random": (("position",), [4.0, 0.0]),
        },
        coords={"hop": [1, 2], "power": POWERS},
    )


def test_coherence_by_hand():
    found = tables.coherence(path_study(4.0))
    assert found == pytest.approx(
        {"C1": 1, "C2": 0.4, "unrelated": 0.2, "over_i": 0.5, "over_i_unrelated": 0.4, "ratio": 0.4, "power": 1.75}
    )
    table = tables.coherence_table({64: {"one": path_study(4.0)}, 128: {"one": path_study(10.0)}})
    assert table["tokens"].tolist() == [64, 128] and table["power"].tolist() == [1.75, 1.0]


def test_a_damping_of_one_changes_nothing():
    hops, kept = {"one": hop_study()}, {"one.builtin": measured(1)}
    shapes = tables.path_shapes(hops, kept)
    coherences = pd.DataFrame({"model": ["one"], "ratio": [1.0], "C2": [0.0]})
    row = tables.measured_damping(coherences, shapes, kept).loc["one"]
    assert row["by_ratio"] == pytest.approx(0) and row["by_C2"] > 0.01
