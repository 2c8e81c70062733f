"""Panels of trained networks: what is drawn is what was given."""

import numpy as np
import pytest

plt = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")

from posbias.plotting import use_style
from studies.icl.figures import gap_panels, sink_panels

PAIRS = ["first vs middle", "first vs last", "middle vs last"]


@pytest.fixture(autouse=True)
def style():
    with plt.style.context("default"):
        use_style()
        yield
    plt.close("all")


def test_bars_are_means_error_bars_reach_to_the_seeds_and_dots_are_the_seeds():
    gaps = np.array([[0.1, 0.4, -0.2], [0.3, 0.5, -0.6]])
    fig = gap_panels({"2 layers": {"none": gaps, "RoPE": -gaps}, "4 layers": {"RoPE": gaps}}, PAIRS)
    ax = fig.axes[0]
    heights = [bar.get_height() for bar in ax.patches]
    np.testing.assert_allclose(heights, [0.2, 0.45, -0.4, -0.2, -0.45, 0.4])
    reach = np.array([segment[:, 1] for segment in ax.collections[0].get_segments()])
    np.testing.assert_allclose(reach, [[0.1, 0.3], [0.4, 0.5], [-0.6, -0.2]])
    dots = [line.get_ydata() for line in ax.lines if line.get_marker() == "."]
    np.testing.assert_allclose(np.array(dots[:3]).T, gaps)
    assert fig.axes[1].patches[0].get_x() == ax.patches[3].get_x()  # RoPE has its own place, with nothing beside it


def test_sinks_are_drawn_as_given():
    metric, even = np.array([0.3, 0.1, 0.2]), np.array([0.2, 0.1, 0.0])
    lines = {"windows": {"causal": metric, "window 5": metric / 2}, "prefixes": {"causal": metric, "prefix 2": metric}}
    fig = sink_panels({"layer 1": np.eye(3), "layer 2": np.eye(3)}, lines, even)
    windows, prefixes = (ax for ax in fig.axes if ax.get_ylabel() == "measure of sinks")
    np.testing.assert_allclose(windows.lines[0].get_xdata(), [1, 2, 3])
    np.testing.assert_allclose(windows.lines[1].get_ydata(), metric / 2)
    np.testing.assert_allclose(prefixes.lines[2].get_ydata(), even)
