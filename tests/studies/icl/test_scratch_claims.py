"""Claims about trained networks, and the rollout's word on them, on results made up so that the answer is known."""

import numpy as np
import pytest

xr = pytest.importorskip("xarray", reason="xarray is not installed")
pytest.importorskip("torch", reason="torch is not installed")

from posbias.rollout.influence import rollout_matrix
from studies.icl.claims import (
    bias_claims,
    depth_claims,
    lost_middles,
    outcomes,
    scale,
    sign,
    sink_claims,
    summary,
)
from studies.icl.gap_tables import gap_table
from studies.icl.outcomes import gaps, preferences
from studies.icl.prediction import differences, predicted_profiles, shares
from studies.icl.settings import PAIRS, preset
from studies.icl.sinks import even_sinks, even_table, sink_table, tables_by_seed

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


def test_a_sign_needs_a_mean_and_every_seed():
    assert sign(np.array([0.02, 0.02, 0.02])) == 1 and sign(np.array([0.3, 0.3, -0.001])) == 0
    assert sign(np.full(3, 0.009)) == 0
    assert sign(np.array([0.3, np.nan, 0.3])) == 0  # a network that stopped has none
    assert sign(np.array([[0.2, 0.1], [-0.2, -0.1]])).tolist() == [1, -1]


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


def held(claims):
    """Return the names of the claims that hold."""
    return set(claims.index[claims["holds"]])


PLAIN = {
    "deeper-none", "deeper-decay", "deeper-rope", "decay-lowers", "rope-lowers", "decay-lowers-more",
    "middle-last-smallest",
}  # fmt: skip
RESIDUAL = {"not-monotonic", "middle-lost-deep-rope"}
LARGER = {"larger-none", "larger-decay", "larger-rope"}


def test_sentences_on_depth_hold_where_they_should():
    claims = depth_claims(depth_runs())
    assert set(claims.index) == held(claims) == PLAIN | RESIDUAL
    rising = "over the middle +0.17, +0.33, +0.50; over the last +0.17, +0.33, +0.50"
    assert claims.loc["deeper-none", "measured"] == rising
    assert claims.loc["middle-lost-deep-rope", "measured"] == "RoPE with 6 layers"


def test_sentences_on_depth_fail_where_they_should():
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


def test_with_a_fixed_vocabulary_and_a_residual_depth_must_make_every_gap_larger():
    def runs(size):
        return {s: made_up((size(s), size(s), -size(s))) for s in preset("figure9") + preset("figure10")}

    claims = depth_claims(runs(lambda s: s.network.layers / 10))
    assert set(claims.index) == PLAIN | LARGER and held(claims) >= LARGER
    assert claims.loc["larger-none", "measured"] == "0.20, 0.40, 0.60"
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


BIASES = ("ends", "first", "middle", "last")
CAUSAL = {f"causal-{b}" for b in BIASES}
CAPTURES = {f"captured-{b}" for b in BIASES}
OTHERS = {"no-mask", "causal-ends-last", "ends-first-slightly", "lost-only-on-ends"}


def test_sentences_on_biased_data_hold_where_they_should():
    claims = bias_claims(bias_runs())
    assert set(claims.index) == held(claims) == CAUSAL | CAPTURES | OTHERS


def test_sentences_on_biased_data_fail_where_they_should():
    nothing = held(bias_claims(bias_runs(lambda s: (0, 0, 0), base=0.0)))
    assert nothing == {"no-mask", "causal-ends-last"}
    always = held(bias_claims(bias_runs(lambda s: (0.4, 0.0, -0.35))))
    assert always == {"captured-ends"}
    gained = held(bias_claims(bias_runs(lambda s: (0.4, 0.0, -0.35), base=-0.35)))
    assert gained == {"captured-ends", "causal-ends-last"}
    tilted = bias_claims(bias_runs(lambda s: (0.4, 0.3, -0.35) if s.task.bias == "ends" else bias_gap(s)))
    assert "ends-first-slightly" not in held(tilted)


def test_a_causal_mask_that_loses_the_middle_on_other_data_is_said():
    def also(s):
        k = s.network
        lost = s.task.bias == "middle" and k.encoding == "none" and k.mask.kind == "causal"
        return (0.3, 0.2, -0.1) if lost else bias_gap(s)

    verdict = bias_claims(bias_runs(also)).loc["lost-only-on-ends"]
    assert not verdict.holds and verdict.measured == "4 of 6 there; elsewhere causal no encoding on middle"


PREFIXES = {f"sink-prefix{K}" for K in (2, 4, 6)}


def test_sentences_on_sinks_hold_where_they_should_and_fail_where_not():
    def metric(s):
        kind, w = s.network.mask.kind, s.network.mask.width
        x = np.full(17, 0.1)
        x[: max(w, 1) if kind == "prefix" else 1] = 0.3 + (0.01 * w if kind == "window" else 0)
        return x

    table = sink_table({s: made_up(sinks=metric(s)) for s in preset("figure8")})
    table.loc[("window", 5), 4] = 0.9
    claims = sink_claims(table)
    assert set(claims.index) == held(claims) == {"sink-causal", "sink-windows"} | PREFIXES
    assert claims.loc["sink-causal", "measured"].startswith("tokens 1 (0.30)")
    ahead = "ahead by -0.55 at 5, ahead by +0.29 at 9, ahead by +0.33 at 13"
    assert claims.loc["sink-windows", "measured"] == ahead
    backwards = table.iloc[:, ::-1].set_axis(table.columns, axis=1)
    assert held(sink_claims(backwards)) == set()


def test_the_sink_metric_by_layer_and_beyond_even_attention():
    setting = preset("figure7")[0]
    sinks = np.stack([np.full(17, 0.5), np.arange(17) / 100])
    runs = {setting: made_up(sinks=sinks)}
    causal = ("causal", 0)
    np.testing.assert_allclose(sink_table(runs).loc[causal], (0.5 + np.arange(16) / 100) / 2)
    np.testing.assert_allclose(sink_table(runs, last_layer=True).loc[causal], np.arange(16) / 100)
    beyond = sink_table(runs, last_layer=True, beyond_even=True).loc[causal]
    np.testing.assert_allclose(beyond, np.arange(16) / 100 - even_sinks(setting)[:-1])
    np.testing.assert_allclose(even_table(runs).loc[causal], even_sinks(setting)[:-1])
    assert list(even_table(runs).columns) == list(range(1, 17))


def test_the_sink_metric_of_each_seed():
    setting = preset("figure7")[0]
    x = made_up(sinks=np.arange(17) / 100)
    x["sinks"] = x["sinks"] + xr.DataArray([0.0, 0.1, 0.2], dims="seed")
    found = tables_by_seed({setting: x}, last_layer=True)
    assert [t.loc[("causal", 0), 1] for t in found] == pytest.approx([0, 0.1, 0.2])
    np.testing.assert_allclose(np.mean(found, axis=0), sink_table({setting: x}, last_layer=True))


def test_even_attention_exceeds_a_fifth_where_a_query_sees_fewer_than_five_tokens():
    for setting in preset("figure8"):
        mask, expected = setting.network.mask.matrix(17), np.zeros(17)
        for j in range(17):
            queries = [i for i in range(17) if mask[i, j]]
            expected[j] = sum(1 / mask[i].sum() > 0.2 for i in queries) / len(queries)
        np.testing.assert_allclose(even_sinks(setting), expected)


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
    figure, reason = summary(depth_claims(runs), runs)
    made = "3 seeds x 20,000 iterations, 18 settings"
    assert figure == f"9 of 9 claims hold, 0 contradicted, 0 open; {made}" and reason == ""
    (one, *_) = runs
    two = runs[one].isel(seed=[0, 1]).assign_attrs(iterations=500)
    assert scale(runs) == "20% of the iterations, 3 seeds"
    assert scale(runs | {one: two}) == "0% or 20% of the iterations, 2 or 3 seeds"
    claims = depth_claims(depth_runs(last=lambda s: -as_the_paper_says(s), spread=0.01))
    figure, reason = summary(claims, runs | {one: two})
    assert figure.startswith(f"{claims['holds'].sum()} of 9 claims hold, {claims['contradicted'].sum()} contradicted, ")
    assert figure.endswith("; 2 or 3 seeds x 20,000 or 500 iterations, 18 settings")
    assert reason.startswith(f"contradicted: {claims.loc['deeper-none', 'claim']}; ")


def test_a_claim_is_contradicted_by_all_seeds_and_open_where_one_is_against():
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


def test_differences_of_places_take_item_and_label_together():
    p = np.arange(17) / 100
    expected = [(0 + 1) - (6 + 7), (0 + 1) - (14 + 15), (6 + 7) - (14 + 15)]
    np.testing.assert_allclose(differences(p, 8), np.array(expected) / 100)
    assert differences(np.stack([p, p]), 8).shape == (2, 3)


def test_shares_are_differences_over_what_is_on_both_places():
    p = np.zeros(17)
    p[[0, 1, 14, 16]] = 0.1, 0.2, 0.1, 0.6
    np.testing.assert_allclose(shares(p, 8), [1, 0.5, -1])
    assert np.isnan(shares(np.eye(17)[16], 8)).all()


def test_the_prediction_is_the_last_row_of_the_rollout():
    rng = np.random.default_rng(0)
    kernels = np.tril(rng.random((2, 3, 5, 5)))
    kernels /= kernels.sum(-1, keepdims=True)
    lambdas = rng.random((2, 3))
    x = xr.Dataset(
        {
            "kernels": (("seed", "layer", "query", "key"), kernels.astype(np.float32)),
            "lambda_frobenius": (("seed", "layer"), lambdas.astype(np.float32)),
        }
    )
    for p, A, lambda_ in zip(predicted_profiles(x), kernels, lambdas, strict=True):
        np.testing.assert_allclose(p, rollout_matrix(A, lambda_)[-1], atol=1e-6)


def test_gaps_are_the_first_order_less_the_second():
    np.testing.assert_allclose(gaps(made_up((0.2, 0.1, -0.1))).mean(0), (0.2, 0.1, -0.1))
    assert gaps(made_up()).shape == (SEEDS, len(PAIRS))


def test_a_preference_is_the_gap_over_all_that_is_told():
    accuracy = np.array([[[0.1, 0.0], [0.3, 0.9], [0.0, 0.0]]])
    found = preferences(xr.Dataset({"accuracy": (("seed", "pair", "order"), accuracy)}))
    np.testing.assert_allclose(found, [[1, -0.5, np.nan]])
