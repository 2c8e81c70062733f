import numpy as np
import pytest

from studies.published.originals import recover_curve

pytest.importorskip("pypdf")
pyplot = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture
def figure(tmp_path):
    """Return a function that draws markers at x, y and writes a PDF."""
    pyplot.switch_backend("pdf")

    def draw(x, y, *, marker="o", grid=True, **axes):
        with pyplot.style.context("default"):
            fig, ax = pyplot.subplots(figsize=(4, 3))
            ax.plot(x, y, marker=marker)
            ax.grid(grid)
            ax.set(**axes)
            fig.savefig(tmp_path / "figure.pdf")
            pyplot.close(fig)
        return tmp_path / "figure.pdf"

    return draw


@pytest.mark.parametrize("scale", [1e-3, 250.0])
def test_points_come_back(figure, scale):
    x = np.arange(40.0)
    y = scale * np.random.default_rng(0).normal(size=40)
    curve = recover_curve(figure(x, y))
    assert np.abs(curve.x - x).max() < 1e-5 and np.abs(curve.y - y).max() < 1e-6 * scale
    assert curve.residual < 1e-4


def test_labels_below_zero_are_never_taken_for_positive_ones(figure):
    """The minus sign is no character of the label's font: such labels are left out, and two others are needed."""
    curve = recover_curve(figure([0, 1, 2], [-3.0, 1.0, -2.0], ylim=(-4, 4)))
    assert np.allclose(curve.y, [-3, 1, -2], atol=1e-5)
    with pytest.raises(ValueError, match="vertical axis: expected at least two labelled ticks"):
        recover_curve(figure([0, 1, 2], [-3.0, -1.0, -2.0], ylim=(-4, -0.5)))


def test_a_curve_without_markers_is_refused(figure):
    with pytest.raises(ValueError, match="a curve drawn with markers, received 0 markers"):
        recover_curve(figure([0, 1, 2], [1, 2, 3], marker=None))


def test_an_axis_that_is_not_linear_is_refused(figure):
    with pytest.raises(ValueError, match="vertical axis"):
        recover_curve(
            figure([0, 1, 2, 3], [1, 10, 100, 1000], yscale="log", yticks=[1, 10, 100], yticklabels=[1, 10, 100])
        )


def test_what_is_no_pdf_is_refused(tmp_path):
    path = tmp_path / "figure.pdf"
    path.write_text("not a PDF")
    with pytest.raises(ValueError, match="expected a PDF"):
        recover_curve(path)
    with pytest.raises(FileNotFoundError):
        recover_curve(tmp_path / "none.pdf")
