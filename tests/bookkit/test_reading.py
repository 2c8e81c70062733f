from types import SimpleNamespace

import nbformat
import pytest
from docutils import nodes
from docutils.utils import new_document

from bookkit.reading import add_reading_time


@pytest.mark.parametrize(("words", "minutes"), [(100, 5), (1700, 10), (2700, 20)])
def test_the_reading_time_stands_under_the_title(tmp_path, words, minutes):
    v4 = nbformat.v4
    cells = [v4.new_markdown_cell("word " * words), v4.new_code_cell("x = 1")]
    nbformat.write(v4.new_notebook(cells=cells), tmp_path / "rollout.ipynb")
    page = new_document("page")
    page += nodes.section("", nodes.title(text="Title"), nodes.paragraph(text="Text."))
    env = SimpleNamespace(docname="rollout", doc2path=lambda name: str(tmp_path / f"{name}.ipynb"))
    add_reading_time(SimpleNamespace(env=env), page)
    assert [node.astext() for node in page[0]] == ["Title", f"Reading time: about {minutes} minutes.", "Text."]


def test_other_pages_have_none(tmp_path):
    page = new_document("page")
    page += nodes.section("", nodes.title(text="Title"))
    env = SimpleNamespace(docname="notation", doc2path=lambda name: str(tmp_path / f"{name}.md"))
    add_reading_time(SimpleNamespace(env=env), page)
    assert page.astext() == "Title"
