"""Panels of trained networks: what is drawn is what was given."""

import numpy as np
import pandas as pd
import pytest

plt = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")

from posbias.plotting import use_style
from studies.icl.figures import depth_panels

PAIRS = ["first vs middle", "first vs last", "middle vs last"]


@pytest.fixture(autouse=True)
def style():
    with plt.style.context("default"):
        use_style()
        yield
    plt.close("all")


def gap_rows(gaps):
    """Return rows as of a table of gaps, from gaps (layers, seeds, pairs) by encoding; layers are 2, 4, …"""
    rows = [
        {"encoding": encoding, "layers": 2 * depth + 2, "seed": seed, "pair": pair, "gap": x[depth, seed, k]}
        for encoding, x in gaps.items()
        for depth in range(len(x))
        for seed in range(x.shape[1])
        for k, pair in enumerate(PAIRS)
    ]
    table = pd.DataFrame(rows)
    return table.assign(pair=pd.Categorical(table["pair"], PAIRS, ordered=True))


def test_lines_are_means_thin_lines_reach_to_the_seeds_and_dots_are_the_seeds():
    gaps = np.array([[[0.1, 0.4, -0.2], [0.3, 0.5, -0.6]], [[0.0, 0.2, 0.1], [0.2, 0.6, 0.3]]])
    fig = depth_panels(gap_rows({"none": gaps, "rope": -gaps}))
    assert [ax.get_title() for ax in fig.axes] == PAIRS
    for k, ax in enumerate(fig.axes):
        lines = [line for line in ax.lines if line.get_linestyle() == "-" and line.get_marker() != "None"]
        for sign, line, bars in zip((1, -1), lines, ax.collections, strict=True):
            np.testing.assert_allclose(line.get_ydata(), sign * gaps[..., k].mean(1))
            ends = np.array([segment[:, 1] for segment in bars.get_segments()])
            np.testing.assert_allclose(ends, np.sort(sign * gaps[..., k]))
            np.testing.assert_allclose([segment[0, 0] for segment in bars.get_segments()], line.get_xdata())
        dots = [line.get_ydata() for line in ax.lines if line.get_marker() == "."]
        np.testing.assert_allclose(np.array(dots[:2]).T, gaps[..., k])
    said = [text.get_text() for text in fig.axes[2].texts]
    assert said == ["middle preferred", "last preferred"] and fig.axes[2].get_xticks().tolist() == [2, 4]


def test_a_seed_that_one_depth_lacks_is_left_out_there():
    table = gap_rows({"none": np.full((2, 2, 3), 0.25)})
    fig = depth_panels(table[(table["layers"] == 2) | (table["seed"] == 0)])
    np.testing.assert_allclose(fig.axes[0].lines[0].get_ydata(), [0.25, 0.25])
