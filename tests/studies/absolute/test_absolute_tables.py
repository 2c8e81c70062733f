"""Estimates of leakage with their resamples, as tables: by hand, and against what the leakage itself says."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")
xr = pytest.importorskip("xarray", reason="xarray is not installed")

from studies.absolute.leakage import Components, gram, leakage, position_basis, sample_pairs
from studies.absolute.measure import HeadReading
from studies.absolute.tables import (
    Estimate,
    Kept,
    balance,
    gap,
    known_leakage,
    share,
    significant,
    sink_table,
    source_table,
)
from studies.results import load

BASIS = position_basis(sample_pairs(32, 16, first_key=0))
I, J = BASIS.pairs  # noqa: E741 - i and j of the page


def content(heads=(2, 2), N=16, seed=0):
    return np.random.default_rng(seed).normal(size=(N, *heads, I.size))


def components(seed=0):
    logits, log_z, free = content(seed=seed) + 0.1 * J, content(seed=1) / 9 + np.log(I + 1.0), content(seed=2)
    return Components(
        total=leakage(BASIS.both, logits - log_z),
        denominators=leakage(BASIS.both, log_z),
        logits=leakage(BASIS.both, logits),
        cross=gram(BASIS.both, logits, log_z),
        residual=leakage(BASIS.both, free),
    )


def test_estimates_by_hand():
    a, b = Estimate(2.0, np.array([1.0, 2.0, 3.0])), Estimate(1.0, np.array([1.0, 1.0, 2.0]))
    assert (a - b).value == 1 and (a - b).draws.tolist() == [0, 1, 1]
    assert (a / b).value == 2 and (a / b).draws.tolist() == [1, 2, 1.5]
    assert (a.low, a.high) == pytest.approx((1.05, 2.95)) and f"{a:.2f}" == "2.00 (1.05 … 2.95)"


def test_sources_are_those_of_the_components():
    parts = components()
    table = source_table(parts).set_index("source")
    assert table["variance"]["log Z, causal"] == parts.denominators.variance.mean()
    assert table["heads"]["log Z, causal"] == 1 and table["heads"]["logits, bidirectional"] == 0
    assert table["share"]["log A, causal"].value == float(parts.total.pooled((0, 1)).share)
    assert (balance(parts).value, gap(parts).value) == (parts.balance()[0], parts.gap()[0])
    assert gap(parts).low < gap(parts).value < gap(parts).high


def test_known_leakage_is_found():
    known = {"none": 0.0 * I, "denominator": -np.log(I + 1.0)}
    values = {name: content((40,), seed=3) + added for name, added in known.items()}
    table = known_leakage(values, known, BASIS).set_index("leakage")
    assert table.loc["none", "true"] == 0 and table.loc["none", "raw"] < 0.2 and table.loc["none", "controlled"] == 0
    found = table.loc["denominator", "estimate"]
    assert abs(found.value - table.loc["denominator", "true"]) < 4 * found.draws.std() < 0.1 * found.value
    assert 0.85 < table.loc["none", "covered"] <= 1
    assert table.loc["denominator", "controlled"] == 1


def test_sinks_by_hand():
    """One head gives all prompts one output, the other unrelated ones."""
    o = np.stack([np.ones((6, 50)), np.random.default_rng(6).normal(size=(6, 50))])
    outputs = (o @ o.swapaxes(1, 2))[None]
    reading = HeadReading(np.full((6, 1, 2), [[[0.8, 0.1]]]), outputs, np.array([0.1]))
    table = sink_table({"with": reading}, np.array([[True, False]])).set_index("heads")
    assert table.loc["sink", "varies"].value == pytest.approx(0, abs=1e-12)
    assert table.loc["other", "varies"].value == pytest.approx(1, abs=0.2)
    assert table["number"].tolist() == [1, 1] and table["first"].tolist() == pytest.approx([0.8, 0.1])
    assert len(sink_table({"with": reading}, np.zeros((1, 2), dtype=bool))) == 1


def kept():
    """Two layers of one head; the whole is 4, the denominators 2, the stream 1, in every layer."""
    variance = np.array([4.0, 2.0, 4.0, 1.0])[None, :, None, None] * np.ones((1, 4, 2, 1))
    draws = variance[:, :, :1] * np.array([0.9, 1.1])[None, None, :, None]
    heads, resamples = ("condition", "part", "layer", "head"), ("condition", "part", "resample")
    arrays = {
        "variance": (heads, variance),
        "spread": (heads, 10 * np.ones_like(variance)),
        "p_value": (heads, np.array([0.001, 0.9] * 4).reshape(1, 4, 2, 1)),
        "resampled": ((*resamples, "layer"), draws * np.ones((1, 4, 2, 2))),
        "resampled_share": (resamples, draws[..., 0] / 10),
    }
    return Kept(xr.Dataset(arrays, {"condition": ["m"], "part": ["total", "denominators", "logits", "residual"]}))


def test_kept_estimates_by_hand():
    data = kept()
    assert data.variance("m", "total").value == 8 and data.variance("m", "total", slice(0, 1)).value == 4
    assert data.variance("m", "total").draws.tolist() == pytest.approx([7.2, 8.8])
    assert data.share("m", "residual").value == pytest.approx(0.1)
    assert data.balance("m").value == pytest.approx(1 / 3) and data.balance("m").draws.tolist() == [1 / 3, 1 / 3]
    assert data.gap("m").value == pytest.approx(0.25) and data.heads("m", "residual") == 0.5
    (row,) = data.table(["m"]).itertuples()
    assert row.balance.value == data.balance("m").value and row.heads_residual == 0.5
    assert data.tests() == {"tests": 8, "raw": 4, "controlled": 4}
    assert significant(np.array([0.04, 0.5, 0.6, 0.7])) == 0


def test_p_values_of_a_kept_file_are_shares_of_flips():
    """0.05 of 1,000 flips is kept in 32 bits as a little more, and still counts."""
    data = kept().data
    on = data.assign(p_value=xr.full_like(data["p_value"], float(np.float32(0.05))))
    assert Kept(on).tests() == {"tests": 8, "raw": 8, "controlled": 8} and Kept(on).heads("m", "total") == 1
    real = Kept(load("absolute")["components"])
    assert real.data.attrs["prompts"] == 128 and real.gap("llama-12 text all").low < real.gap("llama-12 text all").high
    assert share(leakage(BASIS.both, content()).pooled((0, 1))).low < 0.05
