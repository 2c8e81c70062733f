"""No chapter asserts what a verdict says before the verdict is recorded: a check that fails must end in a verdict."""

import ast

import pytest
from conftest import ROOT, chapter_source

from bookkit.chapters import read_markdown

CHAPTERS = sorted((ROOT / "book").glob("*.md"))


def names_in(node):
    return {leaf.id for leaf in ast.walk(node) if isinstance(leaf, ast.Name)}


def is_record(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "record"


def asserted_before_recorded(path):
    """List (row, names) of records whose verdict was asserted, by a name in it, in an earlier statement."""
    asserted, found = set(), []
    for cell in read_markdown(path).cells:
        if cell.cell_type != "code":
            continue
        for statement in ast.parse("".join(x for x in cell.source.splitlines(True) if x[:1] not in "%!")).body:
            for call in filter(is_record, ast.walk(statement)):
                passed = call.args[1] if len(call.args) > 1 else None
                both = asserted & names_in(passed) - FUNCTIONS if passed is not None else set()
                found += [(ast.unparse(call.args[0]), sorted(both))] if both else []
            asserted |= {
                name for node in ast.walk(statement) if isinstance(node, ast.Assert) for name in names_in(node)
            }
    return found


FUNCTIONS = {"bool", "all", "any", "len", "min", "max", "abs", "sum", "int", "float", "np", "pd", "pb", "set", "range"}
"""Names that say nothing of a verdict."""


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_verdicts_are_recorded_before_they_are_asserted(path):
    assert asserted_before_recorded(path) == []


def test_an_assertion_before_the_record_is_found(tmp_path):
    file = tmp_path / "rollout.md"
    file.write_text(chapter_source("One", "held = 1 < 2\nassert held", "record('RA-B', bool(held), 'x')"))
    assert asserted_before_recorded(file) == [("'RA-B'", ["held"])]
    file.write_text(chapter_source("One", "held = 1 < 2", "record('RA-B', bool(held), 'x')\nassert held"))
    assert asserted_before_recorded(file) == []
