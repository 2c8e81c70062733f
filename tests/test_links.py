"""The built pages without a browser: no dead link, and nothing is fetched from another machine."""

import json
import re
from functools import cache
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest
from conftest import ROOT, pages

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "object": "data"}


class Tags(HTMLParser):
    """Collect the name and the attributes of every tag."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, {name: value or "" for name, value in attributes}))


@cache
def tags(path):
    return Tags(path.read_text(encoding="utf-8")).found


def hrefs(path):
    """Return where the links of a page lead."""
    return [attributes["href"] for name, attributes in tags(path) if name == "a" and "href" in attributes]


@cache
def anchors(path):
    named = {attributes["name"] for name, attributes in tags(path) if name == "a" and "name" in attributes}
    return named | {attributes["id"] for _, attributes in tags(path) if attributes.get("id")}


def problem(page, html, href):
    """Say what is wrong with a link on ``page``, or nothing."""
    url = urlsplit(href)
    if url.scheme or url.netloc or not (url.path or url.fragment):
        return None
    target = (page.parent / unquote(url.path)).resolve() if url.path else page
    target = target / "index.html" if target.is_dir() else target
    if not target.is_file() or not target.is_relative_to(html.resolve()):
        return f"{page.name}: {href}: no such page"
    if target.name == "explorer.html" and "=" in url.fragment:
        return None  # settings, which tests/bookkit/test_explorer.py opens
    if url.fragment and target.suffix == ".html" and unquote(url.fragment) not in anchors(target):
        return f"{page.name}: {href}: no such place on the page"
    return None


def test_no_dead_link(html):
    html = html.resolve()
    links = [(page, href) for page in pages(html) for href in hrefs(page)]
    assert len(links) > 50
    problems = [found for page, href in links if (found := problem(page, html, href))]
    assert not problems, "\n".join(problems)


def test_a_dead_link_is_found(tmp_path):
    page = tmp_path / "a.html"
    page.write_text('<p id="here"></p>')
    assert problem(page, tmp_path, "#here") is None and problem(page, tmp_path, "a.html#here") is None
    assert "no such page" in problem(page, tmp_path, "b.html")
    assert "no such place" in problem(page, tmp_path, "#there")


MARKUP = re.compile(r"\{[a-z:]+\}(<[^>]*>)*`|```\{[a-z]")
"""A role or a directive that a stray fence has turned into code."""


def test_no_markup_is_left_on_a_page(html):
    assert MARKUP.search("see {glue:text}`x`") and MARKUP.search("```{math}") and not MARKUP.search("{a} `b`")
    assert [page.name for page in pages(html) if MARKUP.search(page.read_text(encoding="utf-8"))] == []


def test_nothing_is_fetched_from_another_machine(html):
    external = re.compile(r"^(https?:)?//")
    found = []
    for page in pages(html):
        loaded = [attributes.get(LOADED[name]) for name, attributes in tags(page) if name in LOADED]
        links = [attributes for name, attributes in tags(page) if name == "link"]
        loaded += [link.get("href") for link in links if "canonical" not in link.get("rel", "").split()]
        found += [f"{page.name}: {address}" for address in loaded if address and external.match(address)]
    for sheet in (html / "_static").rglob("*.css"):
        addresses = re.findall(r"(?:url\(|@import)\s*['\"]?([^'\")\s]+)", sheet.read_text(encoding="utf-8"))
        found += [f"{sheet.name}: {address}" for address in addresses if external.match(address)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("file", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_between_files_of_the_repository(file):
    text = (ROOT / file).read_text()
    targets = [target.split("#")[0] for target in re.findall(r"\]\((?!https?:)([^)]+)\)", text)]
    missing = [target for target in targets if target and not (ROOT / target).exists()]
    assert not missing, f"{file}: no such file: {', '.join(missing)}"


def test_edit_links_land_on_the_md(html):
    edits = {href for page in pages(html) for href in hrefs(page) if "/edit/" in href}
    assert edits
    for href in edits:
        name = href.split("/edit/main/")[1]
        assert name.endswith(".md") and (ROOT / name).is_file(), href


SMALL = {
    "fixed attention": ("ladder", "ladder_mean_fixed"),
    "independent layers": ("ladder", "ladder_mean_independent"),
    "contributions, own": ("contributions", "contributions_one"),
    "contributions, mean": ("contributions", "contributions_mean"),
    "value maps": ("ladder", "ladder_mean_vectors"),
    "value maps, positional attention": ("ladder", "ladder_mean_positions"),
    "layer shares": ("ladder", "ladder_mean_b"),
    "head gains, squared": ("ladder", "ladder_mean_law"),
    "everything on the last token": ("ladder", "ladder_mean_last"),
    "equal shares": ("contributions", "contributions_mean_even"),
    "a power law, one fitted number": ("contributions", "contributions_mean_power"),
    "halves of the prompts": ("contributions", "contributions_mean_halves"),
}
"""Rows of the README's table, with where the numbers of the ten small models are kept."""


@cache
def glued(chapter):
    """Return what a chapter's notebook keeps for prose, by name."""
    cells = json.loads((ROOT / f"notebooks/{chapter}.ipynb").read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", []) if "data" in output]
    return {
        x["metadata"].get("scrapbook", {}).get("name"): x["data"].get("application/papermill.record/text/plain")
        for x in outputs
    }


def test_the_readme_has_the_numbers_of_the_book():
    real = glued("real")
    lines = [line.strip("|").split("|") for line in (ROOT / "README.md").read_text().splitlines() if line[:1] == "|"]
    rows = [[cell.strip() for cell in line] for line in lines if len(line) == 5][2:]
    assert len(rows) == len(SMALL)
    prose, numbers = (
        (ROOT / "README.md").read_text(),
        {k: float(x) for k, x in real.items() if k and k != "real_table" and x[0] != "'"},
    )
    assert f"gives only {numbers['real_sink_contributed']:.0%}".replace("%", " %") in prose
    assert f"has {numbers['real_use_gradient']:.1f} equal shares" in prose
    assert f"but {numbers['real_use_replaced']:.2f} of".replace("0.", ".") in prose
    kept = json.loads(real["real_table"].strip("'"))
    for title, W1, away, ranks, small in rows:
        expected = kept[title]
        assert (W1, away) == tuple(f"{x:.3f}"[1:] for x in expected[:2]), title
        assert ranks == ("" if expected[2] is None else f"{expected[2]:+.2f}".replace("0.", ".")), title
        chapter, name = SMALL[title]
        assert small == f"{float(glued(chapter)[name]):.3f}"[1:], title


def test_the_readme_has_the_accuracies_of_the_chapter_documents():
    prose, kept = (ROOT / "README.md").read_text(), glued("documents")
    by_place, least = kept["documents_by_place"].strip("'"), float(kept["documents_others_least"])
    assert f"{by_place} of {kept['documents_contexts']} questions by place".replace("0.", ".") in prose
    assert f"never for fewer than {least:.2f} ".replace("0.", ".") in prose
