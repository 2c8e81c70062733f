"""The registry of predictions: by hand, by former names, what is missing, and one more."""

import numpy as np
import pytest
import xarray as xr

from posbias import predict
from posbias.measure.measurement import Measurement
from posbias.report.document import score_cells
from posbias.report.stats import Evidence

ATTRS = {"length": 3, "prompts": 4, "model": "m", "dataset": "d", "rule": "first", "quantities": "mixing,influence"}


@pytest.fixture
def results():
    """Return a measurement of one layer with one head that attends to all tokens alike, and gives half."""
    variables = {
        "lambda_frobenius": ("layer", [0.5]),
        "lambda_token": ("layer", [0.25]),
        "slopes": (("layer", "head"), [[0.0]]),
        "window": ("layer", [0]),
        "influence": ("position", [0.2, 0.2, 0.6]),
    }
    return xr.Dataset(variables, attrs=ATTRS)


def test_three_tokens_by_hand(results):
    profiles = {
        "attention-only": [1 / 3, 1 / 3, 1 / 3],
        "layer-shares": [1 / 6, 1 / 6, 2 / 3],
        "last": [0, 0, 1],
        "even": [1 / 3, 1 / 3, 1 / 3],
    }
    for name, p in profiles.items():
        np.testing.assert_allclose(predict.predict(results, name), p)
    assert predict.available(results) == ("attention-only", "layer-shares")
    own = results.assign(contributions_own=(("prompt", "position"), [[0.0, 1.0, 3.0], [1.0, 1.0, 2.0]]))
    assert "contributions-own" in predict.available(own) and "contributions" not in predict.available(own)
    np.testing.assert_allclose(predict.predict(own, "contributions-own"), [1 / 8, 2 / 8, 5 / 8])
    one_over_distance = results.assign(influence=("position", np.array([2, 3, 6]) / 11))
    np.testing.assert_allclose(predict.predict(one_over_distance, "power-law"), np.array([2, 3, 6]) / 11, atol=1e-3)


def test_content_is_a_preference_for_oneself(results):
    """One head, logits of log 2 for a token with itself and 0 for others: the last weighs itself twice."""
    content = {"content_offdiagonal": 0.0, "content_diagonal": np.log(2)}
    whole = results.assign({name: (("layer", "head"), [[x]]) for name, x in content.items()})
    np.testing.assert_allclose(predict.predict(whole, "layer-shares-self"), [1 / 8, 1 / 8, 3 / 4])


def test_former_names_are_understood_and_files_keep_them(results):
    former = {"a": "attention-only", "b": "layer-shares", "c": "layer-shares-self", "kernels": "measured-attention"}
    former |= {"own": "measured-attention-own", "untrained": "head-gains-squared", "vectors": "value-maps"}
    former |= {"positions": "value-maps-positional", "independent": "independent-layers"}
    for kept_as, name in former.items():
        assert predict.find(kept_as) is predict.PREDICTORS[name] and predict.PREDICTORS[name].kept_as == kept_as
    assert (
        Measurement(results).rollout("b").values.tolist()
        == Measurement(results).rollout("layer-shares").values.tolist()
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("d", "variant: expected one of attention-only, .*, power-law, received 'd'"),
        (["b"], "variant: expected one of"),
        ("value-maps", "value-maps: needs --quantities with ladder$"),
        ("layer-shares-self", "layer-shares-self: needs --quantities with content"),
        ("measured-attention", "measured-attention: needs --quantities with kernels$"),
        ("head-gains-squared", "head-gains-squared: none of a model with norms on the sum$"),
    ],
)
def test_what_cannot_be_predicted_is_refused_with_what_to_measure(results, name, said):
    with pytest.raises(ValueError, match=said):
        predict.predict(results.assign_attrs(no_branches="norms on the sum", kernel_size=3), name)


def test_one_more_prediction_is_one_function(results, monkeypatch):
    """It is a variant, a row of a comparison and of a report, and says what it lacks."""
    for name in ("halved", "later"):  # taken out again
        monkeypatch.setitem(predict.PREDICTORS, name, None)
        monkeypatch.setitem(predict.NAMES, name, name)

    @predict.predictor("halved", needs={"influence"}, label="the measured curve and equal shares, half each")
    def halved(results):
        """Take the mean of what was measured and equal shares."""
        return (results["influence"].values + 1 / 3) / 2

    @predict.predictor("later", needs={"gravity"}, label="later")
    def later(results):
        """Take what is not measured."""

    m = Measurement(results)
    np.testing.assert_allclose(m.rollout("halved"), [4 / 15, 4 / 15, 7 / 15])
    assert "halved" in m.variants and "later" not in m.variants
    assert m.compare()["halved"].wasserstein == pytest.approx(m.compare()["even"].wasserstein / 2)
    assert {one.names[1] for one in m.compare().values()} == {"m, measured influence"}, "baselines are of it"
    rows = [row[0] for row in score_cells(Evidence(m._subject(), resamples=10))]
    assert "the measured curve and equal shares, half each" in rows and "later" not in rows
    assert m._subject().missing["later"] == "needs --quantities with gravity"


def test_a_mean_over_prompts_weighs_each_by_what_it_has():
    rows = xr.DataArray([[9.0, 1.0], [1.0, 1.0]], dims=("prompt", "position"))
    assert predict._mean(rows) == pytest.approx([10 / 12, 2 / 12])


def test_each_rung_of_the_ladder_has_its_own_name():
    rungs = {"vectors": "value-maps", "positions": "value-maps-positional", "fixed-attention": "fixed-attention"}
    rungs["independent"] = "independent-layers"
    values = np.random.default_rng(0).dirichlet(np.ones(4), (2, len(rungs)))
    results = xr.Dataset({"ladder_prompts": (("prompt", "rung", "position"), values)}, {"rung": list(rungs)})
    for k, name in enumerate(rungs.values()):
        np.testing.assert_allclose(predict.PREDICTORS[name].function(results), values[:, k].mean(0))
