"""What Sphinx makes of docstrings and chapters: the API page, references, reading times."""

import builtins
import importlib
import inspect
import re
from types import SimpleNamespace

import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup
from conftest import ROOT
from docutils import nodes
from docutils.utils import new_document
from pybtex.database import parse_file
from sphinx.ext.napoleon import Config, NumpyDocstring

import posbias
from bookkit import pages

SETTINGS = yaml.safe_load((ROOT / "_config.yml").read_text())["sphinx"]["config"]
NAPOLEON = Config(**{key: value for key, value in SETTINGS.items() if key.startswith("napoleon_")})
REFERENCE = r":?:?(?:py:)?(?:func|class|mod|data|meth|attr|exc):\}?`[^`<]*?<?~?((?:posbias|studies|bookkit)[\w.]*)>?`"


def named(path):
    """Return what a dotted name stands for."""
    parts = path.split(".")
    for k in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:k]))
        except ModuleNotFoundError:
            continue
        for name in parts[k:]:
            found = found.__annotations__.get(name) or getattr(found, name)
        return found
    raise ModuleNotFoundError(path)


def test_references_lead_somewhere():
    """Sphinx does not say so: a name that is not on the API page is shown as plain code."""
    pytest.importorskip("torch", reason="torch is not installed")
    wrong = []
    sources = [path for folder in ("posbias", "studies", "bookkit") for path in (ROOT / folder).rglob("*.py")]
    for path in [*sources, *(ROOT / "book").glob("*.md"), ROOT / "index.md"]:
        for name in set(re.findall(REFERENCE, path.read_text(encoding="utf-8"))):
            try:
                named(name)
            except (ModuleNotFoundError, AttributeError):
                wrong.append(f"{path.relative_to(ROOT)}: {name}")
    assert not wrong, "\n".join(sorted(wrong))


@pytest.fixture(scope="module")
def api(html):
    return BeautifulSoup((html / "book" / "api.html").read_text(encoding="utf-8"), "html.parser")


def test_the_api_page_has_every_public_name(api):
    shown = {mark["id"] for mark in api.select("[id^=posbias]")}
    for name in ["open", *posbias.__all__]:
        found = getattr(posbias, name)
        home = found.__name__ if inspect.ismodule(found) else f"{found.__module__}.{found.__name__}"
        assert home in shown or f"module-{home}" in {mark["id"] for mark in api.select("[id]")}, home
    for command in ("measure", "report", "rollout", "compare", "lookup", "design"):
        assert f"Usage: posbias {command}" in api.get_text(), command


def test_the_api_page_names_arguments_and_exceptions(api):
    seen, wrong = 0, []
    for label in api.select("dl.py > dd > dl.field-list > dt"):
        kind = label.get_text().strip(" :")
        heads = [p.find("strong").get_text() for p in label.find_next_sibling("dd").select("p:has(> strong)")]
        seen += len(heads)
        signature = label.find_parent("dl", class_="py").find("dt")
        names = {name.get_text().split("=")[0] for name in signature.select(".sig-param > .n")}
        module = inspect.getmodule(named(signature["id"]))
        for head in heads:
            if kind == "Parameters" and head.lstrip("*") in names | {"kwargs"}:
                continue
            if kind == "Raises" and all(hasattr(module, x) or hasattr(builtins, x) for x in head.split(", ")):
                continue
            wrong += [] if kind == "Returns" else [f"{signature['id']}: {kind}: {head}"]
    assert not wrong, f"neither an argument nor an exception: {'; '.join(wrong)}"
    assert seen > 50, f"expected the fields of the API page, found {seen}"


def rendered(kind, docstring):
    """Return the lines of a docstring as Sphinx reads them."""
    lines = inspect.cleandoc(docstring).splitlines()
    pages.divide(None, kind, "name", None, None, lines)
    lines = NumpyDocstring(lines, NAPOLEON, None, kind, "name", None, None).lines()
    pages.protect(None, kind, "name", None, None, lines)
    return lines


@pytest.mark.parametrize("kind", ["data", "attribute", "property"])
def test_what_a_constant_is_stays_one_sentence(kind):
    assert rendered(kind, "Bits of ``x_``: 10 of |x|.") == ["..", "", r"Bits of ``x_``: 10 of \|x\|."]


def test_a_source_is_no_part_of_the_last_parameter():
    lines = rendered("function", "Mix.\n\nParameters\n----------\nlambda_\n    Of |x|.\n\nSource: a paper, eq. 1.")
    assert r":param lambda\_: Of \|x\|." in lines and ".. rubric:: Source" in lines


@pytest.mark.parametrize(("words", "minutes"), [(100, 5), (1700, 10), (2700, 20)])
def test_the_reading_time_stands_under_the_title(tmp_path, words, minutes):
    v4 = nbformat.v4
    cells = [v4.new_markdown_cell("word " * words), v4.new_code_cell("x = 1")]
    nbformat.write(v4.new_notebook(cells=cells), tmp_path / "rollout.ipynb")
    for suffix, lines in (("ipynb", [f"Reading time: about {minutes} minutes."]), ("md", [])):
        page = new_document("page")
        page += nodes.section("", nodes.title(text="Title"), nodes.paragraph(text="Text."))
        env = SimpleNamespace(docname="rollout", doc2path=lambda name, end=suffix: str(tmp_path / f"{name}.{end}"))
        pages.add_reading_time(SimpleNamespace(env=env), page)
        assert [node.astext() for node in page[0]] == ["Title", *lines, "Text."]


def test_references_are_cited_and_can_be_found():
    entries = parse_file(ROOT / "book" / "references.bib").entries
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "book").glob("*.md")]
    cited = {key for page in pages for keys in re.findall(r"{cite(?::\w)?}`([^`]*)`", page) for key in keys.split(",")}
    assert cited == set(entries), sorted(cited ^ set(entries))
    for key, entry in entries.items():
        arxiv = entry.fields.get("archiveprefix") == "arXiv" and re.fullmatch(
            r"\d{4}\.\d{4,5}(v\d+)?", entry.fields.get("eprint", "")
        )
        assert arxiv or "doi" in entry.fields or "url" in entry.fields, f"{key} has no eprint, DOI or URL"
