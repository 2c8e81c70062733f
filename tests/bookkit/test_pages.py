"""What Sphinx makes of docstrings and chapters: the API page, references, reading times."""

import builtins
import importlib
import inspect
import json
import re
from types import SimpleNamespace

import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup, SoupStrainer
from conftest import ROOT
from conftest import pages as built_pages
from docutils import nodes
from docutils.utils import new_document
from pybtex.database import parse_file
from sphinx.ext.napoleon import Config, NumpyDocstring

import posbias
from bookkit import pages
from bookkit.records import KEY

CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text())
SETTINGS = CONFIG["sphinx"]["config"]
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


@pytest.mark.parametrize(("words", "minutes"), [(100, 5), (1700, 10), (2700, 15)])
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


def test_set_up_is_in_one_fold_at_the_end():
    def cell(text, hidden, *outputs, parameters=False):
        source = nodes.container("", nodes.literal_block(text, text), nb_element="cell_code_source")
        shown = [nodes.container("", *outputs, nb_element="cell_code_output")] if outputs else []
        made = nodes.container("", source, *shown, nb_element="cell_code")
        made["classes"] = ["tag_parameters"] * parameters
        if hidden:
            made["hide_mode"] = hidden
        return made

    glued, table = nodes.container(nb_element="mime_bundle"), nodes.literal_block("1", "1")
    page = new_document("page")
    page += nodes.section("", nodes.title(text="Title"), cell("n = 1", None, parameters=True))
    page[0] += [
        cell("imports", "input"),
        cell("figure", "input", table),
        cell("m = 2", None, parameters=True),
        cell("idea", None),
        cell("said", "all", glued),
    ]
    page[0] += nodes.section("", nodes.title(text="Below"), cell("glue", "input", glued), nodes.paragraph(text="End."))
    pages.fold_setup(None, page)
    _, figure, own, idea, below, begin, *moved, end = page[0]
    shown = [x.astext() for x in (figure[0], own, idea, below)]
    assert shown == ["figure", "m = 2", "idea", "Below\n\nEnd."]
    assert [one.astext() for one in moved] == ["n = 1", "imports", "said", "glue"]
    assert "<summary>Code for this page</summary>" in begin.astext() and end.astext() == "</details>"
    assert not any("hide_mode" in one for one in moved) and figure["hide_mode"] == "input"
    before = page.pformat()
    pages.fold_setup(None, new_document("no code"))
    assert page.pformat() == before


def test_records_are_one_line_of_a_page_and_stay_whole_in_the_notebook():
    def output(row, part, verdict):
        kept = {"row": row, "part": part, "verdict": verdict}
        return {"metadata": {KEY: kept}, "data": {"text/markdown": "**long**", "text/plain": "long"}}

    outputs = [output("RA-P4.3", "statement", "proved"), output("RA-P4.3", "proof", "contradicted in part")]
    outputs += [output("DS-mean", "", "consistent"), {"data": {"text/markdown": "a table"}}]
    text = json.dumps({"cells": [{"source": "Text"}, {"outputs": outputs}]})
    shown = {}
    for ending in ("ipynb", "md"):
        source = [text]
        env = SimpleNamespace(doc2path=lambda name, base, end=ending: f"{name}.{end}")
        pages.shorten_records(SimpleNamespace(env=env), "notebooks/forces", source)
        shown[ending] = [x["data"]["text/markdown"] for x in json.loads(source[0])["cells"][1]["outputs"]]
    assert shown["md"] == ["**long**"] * 3 + ["a table"]
    first, second, third, other = shown["ipynb"]
    claim = (
        "*Claim.* With causal, monotone kernels smaller mixing coefficients leave less mass in every prefix: "
        "the profile becomes more recent. "
    )
    assert first.startswith(claim + "*Verdict (statement):* **proved** – ")
    assert first.endswith('<a href="verdicts.html#ra-p4-3-statement">how it was tested</a>')
    assert second.startswith(claim + "*Verdict (proof):* **contradicted in part** – ")
    assert third.startswith(r"*Claim.* With position logits $\alpha\log j$ the mean") and other == "a table"


def test_a_chapter_can_be_opened_on_binder(html):
    for path in built_pages(html):
        if (ROOT / "book/moved" / path.relative_to(html)).is_file():
            continue  # it leads on, and has no notebook
        page = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser", parse_only=SoupStrainer("a"))
        binder = [a["href"] for a in page.select("a[href*=mybinder]")]
        place = path.relative_to(html).with_suffix(".ipynb").as_posix()
        at = f"https://mybinder.org/v2/gh/posbias/posbias/main?urlpath=lab/tree/{place}"
        assert binder == [at] * (path.parent.name == "notebooks")


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
