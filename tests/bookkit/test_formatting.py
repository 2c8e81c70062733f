import re
from dataclasses import replace

import nbformat
import pytest
from conftest import ROOT, chapter_source

from bookkit.chapters import list_chapters, read_markdown
from bookkit.formatting import extent, formatted, problems
from bookkit.wording import ROW, words_out
from posbias.measure.measurement import Measurement
from posbias.predict import PREDICTORS, yardsticks


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


def test_formulas_proofs_and_tables_take_their_time(write):
    formula = "```{math}\n:label: eq\nx\n```\n\n$$\ny\n$$\n\n"
    proof = "````{prf:proof}\nOne.\n\nTwo.\n````\n\n"
    read = extent(read_markdown(write("x = 1", title=f"Title\n\n{formula}{proof}| a | b |\n|---|--:|\n| 1 | 2 |\n")))
    assert (read.formulas, read.proofs, read.tables, read.minutes) == (2, 2, 1, 5)
    box = f"Title\n\n`````{{dropdown}} Proof\n{proof}`````\n\n{formula}\n"
    boxed = extent(read_markdown(write("x = 1", title=box)))
    assert (boxed.formulas, boxed.proofs) == (read.formulas, 0), "a closed box is not read"
    assert replace(read, formulas=5).minutes == 10


def test_finished_pages_have_no_word_that_is_out():
    assert words_out(ROOT) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("At\nBirth it listens.", ["2: expected X, received Birth"]),
        ("On average, or in the\nmean.", ["1: expected Y, received in the mean"]),
        ("A `birth` of $birth$, [a page](birth.md), {doc}`birth`, fig-birth, birth-law.", []),
        ("The {doc}`law at birth <x>`", ["1: expected X, received birth"]),
        ("What A stands for stands here.", ["1: expected Z, received stands"]),
        ("Rollouts (b) and (c).", ["1: expected V, received (b)"]),
        ("```bash\nposbias --law birth\nposbias  # at birth\n```", ["3: expected X, received birth"]),
        ("```{figure} birth.png\n:alt: At birth\n```", ["2: expected X, received birth"]),
        ("````{prf:theorem} Law at birth\n```{math}\nbirth\n```\n````", ["1: expected X, received birth"]),
        (
            '```{code-cell} ipython3\nbirth = x["birth"]\ny = "the birth", f"a {birth} of \'birth\'"\n```',
            ["3: expected X, received birth"],
        ),
        (
            '```{code-cell} ipython3\n---\nmystnb:\n  image: {alt: "two\n    births"}\n---\nx = 1\n```',
            ["5: expected X, received births"],
        ),
        ("```{code-cell} ipython3\n:tags: [hide-input]\n\nx = 1  # at birth\n```", ["4: expected X, received birth"]),
    ],
)
def test_words_that_are_out(tmp_path, text, found):
    (tmp_path / "book").mkdir()
    rows = [("`birth`, `births`", "X", "-"), ("`in the mean`", "Y", "-"), ("`stands`", "Z", "`stands for`")]
    rows += [("`(b)`", "V", "on {doc}`one <other>`"), ("`(c)`", "W", "on {doc}`page <page>`")]
    (tmp_path / "book" / "notation.md").write_text("".join("* - {}\n  - {}\n  - {}\n".format(*row) for row in rows))
    (tmp_path / "book" / "page.md").write_text(text)
    lines = [line.removeprefix("page.md:") for line in words_out(tmp_path, ["page"])]
    assert lines == found


def test_a_term_has_one_definition():
    terms, words = (
        dict(re.findall(r"^\* - (\*\*.*)\n  - (.*)$", (ROOT / "book" / f"{page}.md").read_text(), re.MULTILINE))
        for page in ("notation", "one_page")
    )
    assert (len(terms), len(words)) == (50, 12)
    assert [term for term, text in words.items() if not terms[term].startswith(text)] == []


def test_notation_lists_the_predictions_of_the_registry():
    text = (ROOT / "book" / "notation.md").read_text()
    listed = re.findall(r"^\| `([\w-]+)` \| (.*) \| (.*) \|$", text, re.MULTILINE)
    assert listed == [(one.name, one.label, one.meaning) for one in PREDICTORS.values()]
    named = re.findall(r"``([\w-]+)``", Measurement.rollout.__doc__)
    assert named == [*yardsticks()], "not a second list, which would go out of date"


OLD = re.compile(r"\([abcd]\)|rung \d|aligned sum|law of untrained networks|vectors|kernels")


@pytest.mark.parametrize("notebook", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda file: file.stem)
def test_tables_name_predictions_as_the_registry_does(notebook):
    if notebook.stem in ("published", "verdicts"):  # the letters of a paper, and records of earlier editions
        return
    outputs = [x for cell in nbformat.read(notebook, 4).cells for x in cell.get("outputs", [])]
    tables = [str(x.get("data", {}).get("text/markdown", "")) for x in outputs]
    cells = {cell.strip() for table in tables for line in table.splitlines() for cell in line.split("|")[1:-1]}
    assert sorted(cell for cell in cells if OLD.fullmatch(cell)) == []


def test_every_word_of_the_list_is_looked_for():
    text = (ROOT / "book" / "notation.md").read_text()
    listed = text.split("## Words that are out")[1].split("## ")[0]
    assert len(ROW.findall(text)) == listed.count("\n* - ") - 1
