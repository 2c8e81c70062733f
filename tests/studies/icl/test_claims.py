"""Claims about trained networks, on results made up so that the answer is known, and on broken ones."""

import numpy as np
import pytest

xr = pytest.importorskip("xarray", reason="xarray is not installed")
pytest.importorskip("torch", reason="torch is not installed")

from scipy.stats import ttest_1samp

from studies.icl import claims
from studies.icl.claims import (
    bias_claims,
    depth_claims,
    lost_middles,
    outcomes,
    scale,
    sink_claims,
    summary,
)
from studies.icl.outcomes import gaps
from studies.icl.settings import preset
from studies.icl.tables import gap_table, sink_table

SEEDS = 3


def made_up(gap=(0, 0, 0), sinks=None, T=2, tokens=17, spread=0.1):
    """Return results with the given gaps in every seed, up to a small spread, and sink metric."""
    accuracy = np.full((SEEDS, 3, 2), 0.5)
    accuracy[..., 0] += np.asarray(gap) * (1 + spread * np.arange(-1, 2)[:, None])
    sinks = np.zeros(tokens) if sinks is None else np.asarray(sinks)
    return xr.Dataset(
        {
            "accuracy": (("seed", "pair", "order"), accuracy),
            "sinks": (("seed", "layer", "key"), np.broadcast_to(sinks, (SEEDS, T, tokens))),
        },
        coords={"seed": np.arange(SEEDS)},
    )


def network_of(runs, **fields):
    """Return the one setting among runs whose network has these fields."""
    found = [s for s in runs if all(getattr(s.network, name) == value for name, value in fields.items())]
    assert len(found) == 1
    return found[0]


def as_the_paper_says(s):
    """Return the gap of first and last of a network in figures 4 and 5 that fits every sentence."""
    depth, k = s.network.layers, s.network
    base = {"none": 0.5, "rope": 0.4, "decay": 0.2}[k.encoding]
    if k.residual:
        return base + {2: 0, 4: 0.2, 6: 0.1}[depth]
    return base * depth / 6


def depth_runs(last=as_the_paper_says, middle=0.1, spread=0.1):
    """Return results whose gaps with the first are as ``last`` says; deep RoPE with a residual loses the middle."""
    runs = {s: made_up((last(s), last(s), middle * last(s)), spread=spread) for s in preset("figure2")}
    deep = network_of(runs, residual=True, encoding="rope", layers=6)
    return runs | {deep: made_up((last(deep), last(deep), -0.5 * last(deep)), spread=spread)}


def held(found):
    """Return the names of the claims that hold."""
    return set(found.index[found["holds"]])


PLAIN = {"deeper-none", "deeper-decay", "deeper-rope", "decay-lowers", "rope-lowers", "decay-lowers-more"}
PLAIN |= {"middle-last-smallest"}
RESIDUAL = {"not-monotonic", "middle-lost-deep-rope"}
LARGER = {"larger-none", "larger-decay", "larger-rope"}


def test_sentences_on_depth_hold_and_fail_where_they_should():
    found = depth_claims(depth_runs())
    assert set(found.index) == held(found) == PLAIN | RESIDUAL
    rising = "over the middle +0.17, +0.33, +0.50; over the last +0.17, +0.33, +0.50"
    assert found.loc["deeper-none", "measured"] == rising
    assert found.loc["middle-lost-deep-rope", "measured"] == "RoPE with 6 layers"
    flat = depth_claims(depth_runs(last=lambda s: 0.3))
    assert held(flat) == {"middle-last-smallest", "middle-lost-deep-rope"}
    assert "middle-last-smallest" not in held(depth_claims(depth_runs(middle=2)))
    backwards = held(depth_claims(depth_runs(last=lambda s: -as_the_paper_says(s))))
    assert backwards <= {"middle-last-smallest", "not-monotonic"}


def test_the_middle_must_be_lost_with_deep_rope_and_with_nothing_else():
    runs = depth_runs()
    decay = network_of(runs, residual=True, encoding="decay", layers=2)
    also = depth_claims(runs | {decay: made_up((0.3, 0.1, -0.2))}).loc["middle-lost-deep-rope"]
    assert not also.holds and also.measured == "decay mask with 2 layers; RoPE with 6 layers"
    for residual_gaps in ((0.3, -0.1, 0.2), (-0.3, -0.1, -0.2)):
        none = {s: made_up(residual_gaps) if s.network.residual else x for s, x in runs.items()}
        lost = depth_claims(none).loc["middle-lost-deep-rope"]
        assert not lost.holds and lost.measured == "by none"


def test_where_the_middle_is_lost():
    both = gap_table({s: made_up((0.3, 0.1, -0.2 if s.network.layers == 4 else 0.2)) for s in preset("figure5")})
    lost = lost_middles(both, ["encoding", "layers"])
    assert len(lost) == 9 and lost[lost].index.tolist() == [("decay", 4), ("none", 4), ("rope", 4)]
    stopped = both["gap"].where((both["seed"] > 0) | (both["encoding"] != "rope"))  # such a network has no sign
    assert not lost_middles(both.assign(gap=stopped), ["encoding", "layers"])["rope", 4]
    parted = both["gap"].where((both["seed"] > 0) | (both["pair"] != "middle vs last"), 0.02)  # one seed keeps it
    assert not lost_middles(both.assign(gap=parted), ["encoding", "layers"]).any()


def test_with_a_fixed_vocabulary_and_a_residual_depth_must_make_every_gap_larger():
    def runs(size):
        return {s: made_up((size(s), size(s), -size(s))) for s in preset("figure9") + preset("figure10")}

    found = depth_claims(runs(lambda s: s.network.layers / 10))
    assert set(found.index) == PLAIN | LARGER and held(found) >= LARGER
    assert found.loc["larger-none", "measured"] == "0.20, 0.40, 0.60"
    assert held(depth_claims(runs(lambda s: -s.network.layers / 10))) >= LARGER  # towards the end counts too
    turns = depth_claims(runs(lambda s: 0.3 if s.network.encoding == "rope" else s.network.layers / 10))
    assert held(turns) & LARGER == {"larger-none", "larger-decay"}


def test_depths_that_lack_an_encoding_are_left_out():
    runs = depth_runs()
    dropped = {s: x for s, x in runs.items() if not (s.network.layers == 6 and s.network.encoding == "rope")}
    few = depth_claims(dropped)
    assert few.loc["deeper-none", "measured"].endswith("last +0.17, +0.33") and set(few.index) == PLAIN
    plain = depth_claims({s: x for s, x in runs.items() if not s.network.residual})
    assert plain.loc["deeper-none", "measured"].endswith("last +0.17, +0.33, +0.50") and set(plain.index) == PLAIN
    expected = "runs: expected two depths with every encoding, without a residual, received 1"
    with pytest.raises(ValueError, match=expected):
        depth_claims({s: x for s, x in dropped.items() if s.network.layers != 4})


def test_seeds_that_only_some_settings_have_are_left_out():
    runs = depth_runs()
    plain = network_of(runs, residual=False, encoding="none", layers=2)
    more = xr.concat([runs[plain], runs[plain].assign_coords(seed=[3, 4, 5])], "seed")
    more["accuracy"].values[3:, :, 0] = 0.0
    assert depth_claims(runs | {plain: more}).equals(depth_claims(runs))


def bias_gap(s):
    bias, k = s.task.bias, s.network
    if k.encoding == "none":
        return (0.3, 0.35, 0.05) if k.mask.kind == "causal" else (0, 0, 0)
    return {"ends": (0.4, 0.05, -0.35), "first": (0.5, 0.5, 0), "middle": (-0.5, 0, 0.5), "last": (0, -0.5, -0.5)}[bias]


def bias_runs(gap=bias_gap, base=0.05, spread=0.1):
    unbiased = [s for s in preset("figure5") if s.network.encoding == "none"]
    return {s: made_up(gap(s), spread=spread) for s in preset("figure3") + preset("figure6")} | {
        s: made_up((0.3, 0.35, base)) for s in unbiased
    }


CAUSAL, CAPTURES = ({f"{what}-{b}" for b in ("ends", "first", "middle", "last")} for what in ("causal", "captured"))
OTHERS = {"no-mask", "causal-ends-last", "ends-first-slightly", "lost-only-on-ends"}


def test_sentences_on_biased_data_hold_and_fail_where_they_should():
    found = bias_claims(bias_runs())
    assert set(found.index) == held(found) == CAUSAL | CAPTURES | OTHERS
    runs = bias_runs()
    silent = next(s for s in runs if s.network.mask.kind == "full" and s.network.encoding == "none")
    runs[silent]["accuracy"].values[0, 0, 0] += 0.02  # one seed has a gap
    assert not bias_claims(runs).loc["no-mask", "holds"]
    nothing = held(bias_claims(bias_runs(lambda s: (0, 0, 0), base=0.0)))
    assert nothing == {"no-mask", "causal-ends-last"}
    always = held(bias_claims(bias_runs(lambda s: (0.4, 0.0, -0.35))))
    assert always == {"captured-ends"}
    gained = held(bias_claims(bias_runs(lambda s: (0.4, 0.0, -0.35), base=-0.35)))
    assert gained == {"captured-ends", "causal-ends-last"}
    tilted = bias_claims(bias_runs(lambda s: (0.4, 0.3, -0.35) if s.task.bias == "ends" else bias_gap(s)))
    assert "ends-first-slightly" not in held(tilted)

    def also(s):
        k = s.network
        lost = s.task.bias == "middle" and k.encoding == "none" and k.mask.kind == "causal"
        return (0.3, 0.2, -0.1) if lost else bias_gap(s)

    verdict = bias_claims(bias_runs(also)).loc["lost-only-on-ends"]
    assert not verdict.holds and verdict.measured == "4 of 6 there; elsewhere causal no encoding on middle"


def test_sentences_on_sinks_hold_where_they_should_and_fail_where_not():
    def metric(s):
        kind, w = s.network.mask.kind, s.network.mask.width
        x = np.full(17, 0.1)
        x[: max(w, 1) if kind == "prefix" else 1] = 0.3 + (0.01 * w if kind == "window" else 0)
        return x

    table = sink_table({s: made_up(sinks=metric(s)) for s in preset("figure8")})
    table.loc[("window", 5), 4] = 0.9
    found = sink_claims(table)
    assert set(found.index) == held(found) == {"sink-causal", "sink-windows", *(f"sink-prefix{K}" for K in (2, 4, 6))}
    assert found.loc["sink-causal", "measured"].startswith("tokens 1 (0.30)")
    assert found.loc["sink-windows", "measured"].startswith("ahead by -0.55 at 5, ahead by +0.29 at 9, ")
    assert held(sink_claims(table.iloc[:, ::-1].set_axis(table.columns, axis=1))) == set()


def test_seeds_that_part_make_no_rise():
    runs = depth_runs()
    deep = network_of(runs, residual=False, encoding="none", layers=6)
    parted = made_up((0.5, 0.5, 0.05))
    parted["accuracy"].values[0, :, 0] = 0.55  # one seed falls from four layers to six, the mean rises
    assert "deeper-none" not in held(depth_claims(runs | {deep: parted}))
    decay = network_of(runs, residual=False, encoding="decay", layers=6)
    above = made_up((0.2, 0.2, 0.02))
    above["accuracy"].values[0, :, 0] = 1.02  # in one seed the decay mask raises the gap, on the mean it lowers it
    assert "decay-lowers" not in held(depth_claims(runs | {decay: above}))


def test_both_gaps_with_the_first_must_rise_and_both_must_be_larger_than_the_third():
    runs = depth_runs()
    deep = network_of(runs, residual=False, encoding="none", layers=6)
    flat = depth_claims(runs | {deep: made_up((0.33, 0.5, 0.05))}).loc["deeper-none"]
    assert not flat.holds
    assert flat.measured == "over the middle +0.17, +0.33, +0.33; over the last +0.17, +0.33, +0.50"
    between = depth_claims(runs | {deep: made_up((0.4, 0.6, 0.5))})
    assert "deeper-none" in held(between) and "middle-last-smallest" not in held(between)
    assert between.loc["middle-last-smallest", "measured"] == "8 of 9; not no encoding"


def test_a_summary_counts_and_names_them():
    runs = {s: x.assign_attrs(iterations=20_000) for s, x in depth_runs().items()}
    made = "3 seeds x 20,000 iterations, 18 settings"
    assert summary(depth_claims(runs), runs) == f"9 of 9 claims hold, 0 reversed, 0 unclear; {made}"
    (one, *_) = runs
    two = runs[one].isel(seed=[0, 1]).assign_attrs(iterations=500)
    assert scale(runs) == "20% of the iterations, 3 seeds"
    assert scale(runs | {one: two}) == "0% or 20% of the iterations, 2 or 3 seeds"
    found = depth_claims(depth_runs(last=lambda s: -as_the_paper_says(s), spread=0.01))
    figure = summary(found, runs | {one: two})
    counts = f"{found['holds'].sum()} of 9 claims hold, {found['contradicted'].sum()} reversed "
    assert figure.startswith(f"{counts}({found.loc['deeper-none', 'claim']}; ")
    assert figure.endswith("; 2 or 3 seeds x 20,000 or 500 iterations, 18 settings")


def test_a_claim_is_contradicted_by_all_seeds_and_unclear_where_one_is_against():
    runs = depth_runs(spread=0.01)
    assert (outcomes(depth_claims(runs)) == 1).all()
    deep = network_of(runs, residual=False, encoding="none", layers=6)
    falls = depth_claims(runs | {deep: made_up((0.1, 0.1, 0.01), spread=0.01)})
    assert falls.loc["deeper-none", ["holds", "contradicted"]].tolist() == [False, True]
    assert outcomes(falls)["deeper-none"] == -1 and outcomes(falls)["deeper-rope"] == 1
    parted = made_up((0.1, 0.1, 0.01), spread=0.01)
    parted["accuracy"].values[0, :, 0] = 1.1  # one seed rises, the mean falls
    assert outcomes(depth_claims(runs | {deep: parted}))["deeper-none"] == 0
    wide = made_up((0.1, 0.1, 0.01), spread=2.0)  # all seeds fall, too far apart for a test
    assert outcomes(depth_claims(runs | {deep: wide}))["deeper-none"] == 0


def test_the_middle_lost_elsewhere_contradicts_only_if_both_ends_are_ahead_in_all_seeds():
    runs = depth_runs(spread=0.01)
    decay = network_of(runs, residual=True, encoding="decay", layers=2)
    for gap, outcome in (((0.3, 0.1, -0.2), -1), ((0.3, 0.1, -0.005), 1)):
        found = depth_claims(runs | {decay: made_up(gap, spread=0.01)})
        assert outcomes(found)["middle-lost-deep-rope"] == outcome
    apart = made_up((0.3, 0.1, -0.2), spread=0.01)
    apart["accuracy"].values[0, 2, 0] = 0.55
    lost = depth_claims(runs | {decay: apart}).loc["middle-lost-deep-rope"]
    assert lost.holds and not lost.contradicted  # a middle that one seed keeps is not lost


def test_sinks_and_biases_are_contradicted_by_seeds():
    def metric(top):
        return np.where(np.arange(17) == top, 0.5, 0.1)

    def runs_of(top, seed=0):
        return {s: made_up(sinks=metric(top) + 1e-3 * seed) for s in preset("figure8")}

    tables = [sink_table(runs_of(8, seed)) for seed in range(3)]
    against = sink_claims(sink_table(runs_of(8)), tables)
    assert against["contradicted"].all() and not against["holds"].any()
    assert not sink_claims(sink_table(runs_of(8)))["contradicted"].any()
    mixed = sink_claims(sink_table(runs_of(8)), [*tables[:2], sink_table(runs_of(0))])
    assert outcomes(mixed)["sink-causal"] == 0
    biases = bias_claims(bias_runs(lambda s: tuple(-x for x in bias_gap(s)), spread=0.01))
    assert set(biases.index[biases["contradicted"]]) >= CAUSAL | CAPTURES
    tilted = lambda s: (0.4, 0.9, -0.35) if s.task.bias == "ends" else bias_gap(s)  # noqa: E731
    found = outcomes(bias_claims(bias_runs(tilted, spread=0.01)))
    assert found["ends-first-slightly"] == -1 and found["captured-ends"] == 1


def test_runs_that_are_missing_are_said():
    few = dict(list(bias_runs().items())[1:])
    expected = "expected every mask, encoding and bias of figures 3 and 6, and one without bias, received 1 fewer"
    with pytest.raises(ValueError, match=f"runs: {expected}"):
        bias_claims(few)
    with pytest.raises(ValueError, match="runs: expected causal, window and prefix masks, received causal"):
        sink_claims(sink_table({s: made_up() for s in preset("figure7")}))


def apart(gap, noise=0.0):
    """Return results whose seeds are apart by noise, the same in every pair."""
    values = np.asarray(gap) + noise * np.linspace(-1, 1, SEEDS)[:, None]
    x = made_up()
    x["accuracy"].values[:] = 0.5 + np.stack([values, -values], axis=-1) / 2
    return x


def rising_runs(noise=0.0):
    """Return results in which depth pulls to the first, the less the more the encoding decays."""
    base = {"none": 0.5, "rope": 0.4, "decay": 0.2}
    size = {s: base[s.network.encoding] * s.network.layers / 6 for s in preset("figure4")}
    return {s: apart((x, x, 0.1 * x), noise) for s, x in size.items()}


def test_broken_results_keep_what_they_do_not_break():
    runs, rng = rising_runs(noise=0.01), np.random.default_rng(0)
    every = np.concatenate([gaps(x) for x in runs.values()])
    shuffled = claims.shuffled_settings(runs, rng)
    assert list(shuffled) == list(runs)
    others = np.concatenate([gaps(x) for x in shuffled.values()])
    assert np.sort(others, axis=0) == pytest.approx(np.sort(every, axis=0)) and not np.allclose(others, every)
    swapped = np.concatenate([gaps(x) for x in claims.swapped_ends(runs, rng).values()])
    assert np.abs(swapped[:, 1]) == pytest.approx(np.abs(every[:, 1]))
    assert 0 < (swapped[:, 1] < 0).sum() < len(every)
    noise = np.concatenate([gaps(x) for x in claims.noise_of_seeds(runs, rng).values()])
    allowed = np.array([-1, 0, 1]) * 0.01 * np.sqrt(3 / 2)
    assert np.abs(noise[..., None] - allowed).min(-1).max() < 1e-9
    tokens = claims.shuffled_tokens({s: made_up(sinks=np.eye(17)[0]) for s in runs}, rng)
    tops = {int(x["sinks"].values[0, 0].argmax()) for x in tokens.values()}
    assert len(tops) > 1 and 16 not in tops  # the query stays


def test_claims_on_broken_results_and_how_often_they_fail():
    runs = rising_runs()
    table = depth_claims(runs)
    breaks = {"nothing": lambda runs, rng: runs, "ends": claims.swapped_ends}
    broken = claims.claims_on_broken(depth_claims, runs, breaks, times=4)
    assert broken["nothing"].shape == (4, len(table))
    assert ((broken["nothing"] == 1) == table["holds"]).all(axis=None)
    assert (broken["ends"] == -1).sum().sum() < 4  # swapped by coins: hardly anything stands against a claim
    assert [(broken[what]["deeper-none"] != 1).sum() for what in ("nothing", "ends")] == [0, 4]


def test_p_values_over_seeds_are_those_of_a_t_test():
    values = np.random.default_rng(0).normal(0.1, 0.2, (5, 4))
    assert claims.seed_p_values(values) == pytest.approx(ttest_1samp(values, 0, axis=1).pvalue)
    same = np.full((1, 3), 0.014)  # seeds that agree to more than a test can tell
    t = 0.014 / claims.SAMPLING * np.sqrt(3)
    assert claims.seed_p_values(same)[0] == pytest.approx(1 - t / np.sqrt(2 + t**2))  # t with 2 degrees


def test_a_claim_is_reversed_by_every_seed_and_term_alone():
    down = np.full((1, 20), -0.2) + np.linspace(-0.01, 0.01, 20)
    but_one = down.copy()
    but_one[0, 0] = 0.001  # the mean is far below 0, one seed is not
    needs = {"down": [down], "one seed": [but_one], "both": [np.concatenate([down, -down])], "small": [down / 100]}
    needs |= {"lost": [np.full((1, 3), np.nan)], "nothing": []}
    assert [name for name, against in claims.reversed_claims(needs).items() if against] == ["down"]
    assert claims.reversed_claims({"nothing": []}) == {"nothing": False}
    three = np.array([[-0.2, -0.21, -0.19]])  # p = 0.0008, so that it stands among 60 groups and not among 100
    for groups, stands in ((60, True), (100, False)):
        family = {"a": [three], "b": [-three] * (groups - 1)}
        assert claims.reversed_claims(family)["a"] == stands


def test_a_family_of_gaps_by_holm():
    some = [s for s in preset("figure4") if s.network.encoding == "none"][:2]
    rows = gap_table({some[0]: apart((0.9, 0.9, 0.0), 0.01), some[1]: apart((0.0, 0.1, 0.9), 0.2)})
    found = claims.seed_tests(rows, ["layers"])
    assert len(found) == 6 and (found["seeds"] == 3).all() and (found["adjusted"] >= found["p"]).all()
    clear = found.index[found["adjusted"] < 0.05].tolist()
    assert clear == [(2, "first vs middle"), (2, "first vs last")]
    assert found["adjusted"].min() == pytest.approx(6 * found["p"].min())
    missing = rows[~((rows["seed"] == 0) & (rows["layers"] == 2))]
    assert (claims.seed_tests(missing, ["layers"]).loc[2, "p"] == 1).all()
