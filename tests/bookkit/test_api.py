"""Every public name is in a chapter or on the API page."""

import ast
import re

from conftest import ROOT

from bookkit.chapters import list_chapters, read_markdown

API = (ROOT / "book" / "api.md").read_text()


def public_names():
    for path in sorted((ROOT / "posbias").rglob("*.py")):
        if path.stem not in ("__init__", "__main__"):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                    yield module, node.name


def test_every_public_name_is_in_a_chapter_or_on_the_api_page():
    chapters = [read_markdown(chapter.source) for chapter in list_chapters(ROOT)]
    code = "\n".join(cell.source for notebook in chapters for cell in notebook.cells if cell.cell_type == "code")
    listed = set(re.findall(r"automodule:: (\S+)", API))
    missing = [
        f"{module}.{name}"
        for module, name in public_names()
        if module not in listed and not re.search(rf"\b{name}\b", code)
    ]
    assert not missing, f"neither in a chapter nor on the API page (book/api.md): {', '.join(missing)}"


def test_the_built_page_shows_what_it_lists(html):
    page = (html / "book" / "api.html").read_text()
    listed = set(re.findall(r"automodule:: (\S+)", API))
    missing = [f"{m}.{n}" for m, n in public_names() if m in listed and f'id="{m}.{n}"' not in page]
    assert not missing, f"without a docstring, or the pages are older than the code: {', '.join(missing)}"
