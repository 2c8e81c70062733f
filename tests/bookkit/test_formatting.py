import pytest
from conftest import ROOT, chapter_source

from bookkit.chapters import list_chapters, read_markdown
from bookkit.formatting import extent, formatted, problems


@pytest.fixture
def write(tmp_path):
    def write(*cells, title="Title"):
        file = tmp_path / "rollout.md"
        file.write_text(chapter_source(title, *cells))
        return file

    return write


def test_chapters_are_formatted_linted_and_short():
    assert problems([chapter.source for chapter in list_chapters(ROOT)]) == []


def test_formatting_changes_code_and_nothing_else(write):
    file = write(":tags: [hide-input]\n\nx=1;y='a'", "z = 1")
    text = formatted(file)
    assert text == file.read_text().replace("x=1;y='a'", 'x = 1\ny = "a"')
    file.write_text(text)
    assert formatted(file) == text
    assert problems([file]) == []


@pytest.mark.parametrize(
    ("cell", "problem"),
    [
        ("x=1", "rollout.ipynb"),
        ("import os", "F401"),
        ("undefined", "F821"),
        ("x = '" + "a" * 90 + "'\nx", "E501"),
        ("", "code cell 1: expected code, received an empty cell"),
        ("\n".join(["x = 1"] * 26), "code cell 1: expected at most 25 lines, received 26"),
    ],
)
def test_problems_are_named(write, cell, problem):
    found = problems([write("y = 1", cell) if "cell 1" not in problem else write(cell)])
    assert any(problem in line for line in found), found


def test_chapters_that_are_too_long(write):
    assert "at most 2500 words, received 2501" in problems([write(title="word " * 2500)])[0]
    cells = ["\n".join(["x = 1"] * 20)] * 11
    assert "at most 200 lines of visible code, received 220" in problems([write(*cells)])[0]
    hidden = [f":tags: [hide-input]\n\n{cell}" for cell in cells]
    assert problems([write(*hidden)]) == []


def test_code_that_is_no_python_is_refused(write):
    with pytest.raises(ValueError, match="Failed to parse"):
        formatted(write("x ="))


def test_reading_time(write):
    read = extent(read_markdown(write("x = 1", title="word " * 400)))
    assert (read.words, read.lines, read.minutes) == (401, 1, 5)
