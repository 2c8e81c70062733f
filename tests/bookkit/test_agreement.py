"""The comparison of outputs: numbers within a tolerance, words and integers exactly."""

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkit import agreement
from bookkit.agreement import Tolerance, cell_disagreements, disagreement
from bookkit.figuretext import describe
from bookkit.records import KEY


def stream(text):
    return {"output_type": "stream", "name": "stdout", "text": text}


def shown(text, **metadata):
    return {"output_type": "display_data", "data": {"text/plain": text}, "metadata": metadata}


def notebook(*outputs, **metadata):
    cell = nbformat.v4.new_code_cell("1", metadata=metadata, id="c-000")
    cell.outputs = [nbformat.from_dict(output) for output in outputs]
    return nbformat.v4.new_notebook(cells=[cell])


def recorded(figure, verdict="holds"):
    return shown(f"X {verdict}: {figure}", **{KEY: {"row": "X", "verdict": verdict, "figure": figure, "reason": ""}})


@pytest.mark.parametrize(
    ("expected", "received"),
    [
        ("sum 0.1234567", "sum 0.1234568"),
        ("error 0.0 of 5 layers", "error   2.2e-17 of 5 layers"),
        ("W₁ −0.5000001", "W₁ -0.5000002"),
        ("12,345.60001", "12,345.60002"),
        ("W1 1.00000", "W1 1.00001"),
    ],
)
def test_the_same_to_what_is_known(expected, received):
    assert disagreement(expected, received) == disagreement(received, expected) == ""


@pytest.mark.parametrize(
    ("expected", "received"),
    [
        ("7 layers", "8 layers"), ("0.652", "0.653"), ("1.5e-09", "1.6e-09"), ("0.5 0.25", "0.5"), ("0.5", "-0.5"),
        ("W1 1.00000", "W1 1.00005"),  # the tolerance of a cell that states none: 2e-5
        ("5.8e-38", "5.8e-13"), ("9007199254740993", "9007199254740992"), ("2.13.0", "2.130.0"), ("1e400", "0.5"),
        ("| a |\n|---|", "| a | |---|"),
    ],
)  # fmt: skip
def test_not_the_same(expected, received):
    assert disagreement(expected, received).startswith("expected")
    assert disagreement(received, expected).startswith("expected")


@given(st.floats(1e-6, 1e6), st.sampled_from([1e-3, -1e-3]), st.integers(4, 17))
def test_a_number_that_is_wrong_by_a_thousandth_is_noticed(value, error, digits):
    right, wrong = (f"{x:#.{digits}g}" for x in (value, value * (1 + error)))
    for expected, received in ((right, wrong), (f"W1 {right} of 1", f"W1 {wrong} of 1")):
        assert disagreement(expected, received)
    for made in (recorded, stream, shown):
        assert cell_disagreements(notebook(made(f"W1 {right}")), notebook(made(f"W1 {wrong}")))


def test_a_cell_states_what_its_numbers_are_known_to():
    loose = {"tolerance": {"rtol": 0.01}}
    texts = [notebook(stream(f"ratio {x} after 7 steps"), **loose) for x in ("0.988", "0.992", "0.95")]
    assert not cell_disagreements(texts[0], texts[1])
    (line,) = cell_disagreements(texts[0], texts[2])
    assert line == "c-000: stdout: expected ratio 0.988, received ratio 0.95"
    assert cell_disagreements(notebook(stream("7"), **loose), notebook(stream("8"), **loose))
    assert Tolerance(rtol=1e-6, places=1).holds("0.12", "0.13") and not Tolerance(rtol=1e-6).holds("0.12", "0.13")
    assert not Tolerance(rtol=1e-6, places=1).holds("0.12", "0.14")
    assert Tolerance(rtol=1e-6, places=1).holds("1.2e-05", "1.3e-05")
    assert Tolerance(atol=0.02, places=1).holds("0.05", "0.07")
    assert not Tolerance(atol=0.02, places=1).holds("0.05", "0.08")
    assert not Tolerance(rtol=1e-6, places=1).holds("2.0", "3")


@pytest.mark.parametrize("stated", [0.1, {"rtol": 2}])
def test_a_tolerance_that_is_none_is_refused(stated):
    with pytest.raises(ValueError, match="c-000: tolerance: expected rtol and atol"):
        agreement.cell_tolerance(notebook(tolerance=stated).cells[0])


def test_glued_numbers_are_named():
    outputs = [shown(x, scrapbook={"name": "mean_b", "mime_prefix": ""}) for x in ("0.999999", "1.0", "1.01")]
    assert not cell_disagreements(notebook(outputs[0]), notebook(outputs[1]))
    (line,) = cell_disagreements(notebook(outputs[0]), notebook(outputs[2]))
    assert line == "c-000: glued mean_b: expected 0.999999, received 1.01"


def test_verdicts_and_reasons_are_words():
    assert not cell_disagreements(notebook(recorded("gain 0.123456")), notebook(recorded("gain 0.123457")))
    (line,) = cell_disagreements(notebook(recorded("gain 0.1")), notebook(recorded("gain 0.1", "deviates")))
    assert "holds" in line and "deviates" in line
    same_words = (notebook(shown("X", **{KEY: {"row": "X", "verdict": verdict}})) for verdict in ("holds", "deviates"))
    assert cell_disagreements(*same_words) == [
        "c-000: record: expected row: X; verdict: holds, received row: X; verdict: deviates"
    ]
    (line,) = cell_disagreements(notebook(stream("1")), notebook(stream("1"), stream("2")))
    assert line == "c-000: stdout: expected 1, received 12"
    (line,) = cell_disagreements(notebook(stream("1")), notebook())
    assert line == "c-000: expected outputs stdout, received none"
    assert not cell_disagreements(notebook(stream("a\nb\n")), notebook(stream("a\n"), stream("b\n")))
    error = {"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": []}
    assert cell_disagreements(notebook(stream("1")), notebook(error))


def test_the_order_of_what_is_shown_counts():
    assert cell_disagreements(notebook(stream("0.1"), shown("x"), stream("2")), notebook(stream("0.12"), shown("x")))
    assert cell_disagreements(notebook(stream("a"), shown("x")), notebook(shown("x"), stream("a")))


@pytest.mark.parametrize("mime", ["text/html", "application/json", "image/png"])
def test_no_kind_of_output_goes_unseen(mime):
    def only(content):
        return notebook({"output_type": "display_data", "data": {mime: content}, "metadata": {}})

    assert not cell_disagreements(only("right"), only("right"))
    assert cell_disagreements(only("right"), only("wrong"))
    assert cell_disagreements(notebook(), only("right")) and cell_disagreements(only("right"), notebook())


def test_uncompared_cells_may_say_what_they_like():
    tag = {"tags": ["nbval-ignore-output"]}
    assert not cell_disagreements(notebook(stream("3.11.7"), **tag), notebook(stream("3.12.1"), **tag))
    other = notebook(stream("1"))
    other.cells[0].source = "2"
    assert cell_disagreements(notebook(stream("1")), other) == [
        "other code than when it was committed: run the chapter first"
    ]


def picture(y, *, png="iVBOR", look="-", label="influence", mime="image/png", **limits):
    fig, ax = plt.subplots()
    ax.plot(np.arange(len(y)), y, look, label=label)
    ax.set(**limits)
    text = describe(fig)
    plt.close(fig)
    return {"output_type": "display_data", "data": {mime: png, "text/plain": text}, "metadata": {}}


def test_a_picture_is_compared_by_its_data():
    y = np.geomspace(1e-4, 1, 300)
    committed = notebook(picture(y, yscale="log"))
    assert not cell_disagreements(committed, notebook(picture(y * (1 + 1e-6), yscale="log", png="other bytes")))
    assert cell_disagreements(committed, notebook(picture(y, yscale="linear")))
    assert cell_disagreements(committed, notebook(picture(2 * y, yscale="log")))  # the same curve on other axes
    assert cell_disagreements(committed, notebook(picture(y[::-1], yscale="log")))
    assert cell_disagreements(committed, notebook(picture(y**1.02, yscale="log", ylim=(7e-5, 1.6))))
    assert cell_disagreements(committed, notebook(picture(y, yscale="log", look="--")))
    assert cell_disagreements(committed, notebook(picture(y, yscale="log", look="r")))
    assert cell_disagreements(committed, notebook(picture(y, yscale="log", mime="image/svg+xml")))
    assert cell_disagreements(committed, notebook(shown("a text")))


def test_points_agree_within_a_500th_of_the_axes():
    y = np.linspace(0.2, 0.8, 9)
    committed, near, far = (notebook(picture(y + moved, ylim=(0, 1))) for moved in (0, 1e-3, 5e-3))
    assert not cell_disagreements(committed, near) and cell_disagreements(committed, far)


@pytest.mark.parametrize(
    "names",
    [
        [{"label": f"λ = {x}"} for x in ("0.1", "0.2")],
        [{"xticks": [0, 1], "xticklabels": x} for x in (["bloom", "mpt"], ["mpt", "bloom"])],
    ],
)
def test_numbers_and_names_in_a_figure_are_words_and_numbers(names):
    y = np.linspace(0, 1, 9)
    first, second = (notebook(picture(y, **given)) for given in names)
    assert not cell_disagreements(first, first) and cell_disagreements(first, second)


def test_everything_that_is_drawn_is_described():
    fig, (left, right) = plt.subplots(1, 2)
    left.bar([0, 1], [1, 2], label="gaps", color="k", hatch="//")
    left.scatter([0, 1], [0.5, 1.5], c=[0, 1], label="seeds")
    left.fill_between([0, 1], [0, 0], [1, 1], color="k")
    left.text(0.5, 1, "here")
    left.axhline(1, color="k")
    left.set(xlim=(-1, 2), ylim=(0, 2), title="bars")
    left.legend(["first", "second"])
    right.imshow([[0, 1], [2, 4]])
    text = describe(fig)
    plt.close(fig)
    for part in (
        "axes bars\n  x-axis linear: -1.000e+00 to 2.000e+00\n  y-axis linear: 0.000e+00 to 2.000e+00",
        "  patch #000000 //: 0.200 0.000, 0.467 0.000, 0.467 0.500, 0.200 0.500, 0.200 0.000",
        "  area seeds viridis: 0.333 0.250, 0.667 0.750; 0.000 1.000; colours 0.000e+00 to 1.000e+00",
        "  area #000000: 0.333 0.500, 0.333 0.000",
        "  text here: 0.500 0.500",
        "  curve #000000 -: 0.000 0.500, 1.000 0.500",
        "  legend first second: ",
        "  y-axis linear: 1.500e+00 to -5.000e-01",
        "  image viridis: 0.000 0.250 0.500 1.000; colours 0.000e+00 to 4.000e+00",
    ):
        assert part in text, f"{part} is not in\n{text}"
