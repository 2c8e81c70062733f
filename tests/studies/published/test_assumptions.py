"""The tables of what the files assume, against the files themselves."""

import numpy as np
import pytest

from posbias.published import numbers
from studies.published.assumptions import content_frame, slope_frame, tab_frame


def test_only_the_model_whose_heads_are_no_power_of_two_breaks_the_rule():
    slopes = slope_frame().set_index("model")
    assert slopes["geometric"].all()
    assert slopes.index[~slopes["rule"]].tolist() == ["bloom"]
    powers = np.log2(slopes["heads"]) % 1 == 0
    assert (powers == slopes["rule"]).all()


def test_content_is_summed_up_as_it_stands():
    content = content_frame().set_index("model")
    for name, row in content.iterrows():
        d = np.array(numbers.config(name).content_config.diagonal_scores)
        assert row["mean"] == pytest.approx(d.mean()) and row["magnitude"] >= abs(row["mean"])
        assert row["scaled"] ** 2 * row["head_dim"] == pytest.approx(row["magnitude"] ** 2)
        assert row["odds"] == pytest.approx(np.minimum(np.exp(d), 1e6).mean())


def test_mean_is_the_one_number_of_the_other_folder():
    content = content_frame().set_index("model")["mean"]
    for name in numbers.MODELS:
        mean = numbers.config(name, "mean").content_config.diagonal_scores[0][0]
        assert content[name] == pytest.approx(mean, abs=1e-3)


def test_tabs_are_those_of_the_files():
    tabs = tab_frame()
    assert tabs["configuration"].is_unique and set(tabs["configuration"]) <= set(numbers.configuration_names())
    assert (tabs["tabs"] > 0).all() and len(tabs) == 13
