"""Claims about trained networks, on results made up; the chapter, which breaks kept ones, notices the rest."""

import numpy as np
import xarray as xr

from studies.icl import claims
from studies.icl.claims import bias_claims
from studies.icl.settings import preset

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


def held(found):
    """Return the names of the claims that hold."""
    return set(found.index[found["holds"]])


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
