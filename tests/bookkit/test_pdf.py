"""The afternoon's route as one PDF, of a book of two pages."""

import pypdf
import pytest
from conftest import ROOT

from bookkit.pdf import BROWSERS, joined, print_preprint, print_route, route

INDEX = "1. {doc}`notebooks/one`: first?\n2. {doc}`notebooks/two`: second?\n\n3. {doc}`book/three`\n"
PAGE = """<html><head><title>{0}</title></head><body><nav hidden>menu</nav>
<article class="bd-article"><h1 id="{0}-title">{0}</h1>
<a href="one.html#one-title">back</a> <a href="../book/three.html">x</a><p><em>Next:</em> 2</p></article></body>"""


@pytest.fixture
def book(tmp_path):
    folder = tmp_path / "_build" / "html" / "notebooks"
    folder.mkdir(parents=True)
    (tmp_path / "index.md").write_text(INDEX)
    (tmp_path / "_config.yml").write_text("html:\n  baseurl: https://posbias.example/\n")
    for name in ("one", "two"):
        (folder / f"{name}.html").write_text(PAGE.format(name))
    return tmp_path


def test_links_lead_into_the_file_or_to_the_site(book):
    page = joined(book).read_text()
    assert page.index('id="one"') < page.index('id="two"') and page.count("<nav") == 1 and "Next" not in page
    assert page.count('href="#one-title"') == 2 and page.count('href="https://posbias.example/book/three.html"') == 2


def test_formulas_are_set_if_any_page_has_some(book):
    second = book / "_build" / "html" / "notebooks" / "two.html"
    script = '<script defer src="../_static/mathjax/tex.js"></script>'
    second.write_text(second.read_text().replace("</head>", f"{script}</head>"))
    assert script in joined(book).read_text()


@pytest.mark.usefixtures("driver")
def test_the_preprint_is_a_file_of_its_own(book):
    folder = book / "_build" / "html" / "book"
    folder.mkdir()
    (folder / "preprint.html").write_text(PAGE.format("preprint"))
    sheets = pypdf.PdfReader(print_preprint(book)).pages
    assert "preprint" in sheets[0].extract_text()


@pytest.mark.usefixtures("driver")
def test_each_page_begins_on_a_sheet_of_its_own(book):
    sheets = [sheet.extract_text() for sheet in pypdf.PdfReader(print_route(book)).pages]
    assert [text.split()[0] for text in sheets] == ["one", "two"]
    assert not (book / "_build" / "html" / "notebooks" / "afternoon.html").exists()


def test_without_a_browser_there_is_one_line(book, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ValueError, match=f"pdf: expected a browser, one of {', '.join(BROWSERS)}, received none"):
        print_route(book)


def test_the_route_has_fourteen_pages():
    assert len(route(ROOT)) == 14
