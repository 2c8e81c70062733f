"""Built pages as PDF, printed by a browser without a window: the afternoon's route as one file, and the preprint."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
STEP = re.compile(r"^\d+\. \{doc\}`notebooks/(\w+)`", re.MULTILINE)
"""A page of the route, as the first page of the book lists it."""
ARTICLE = re.compile(r'<article class="bd-article">(.*?)</article>', re.DOTALL)
LINK = re.compile(r'href="(?:\.\./)?(?:(\w+)/)?(\w+)\.html(?:#([^"]*))?"')
"""A link to another page: its folder, its name, and the place on it."""
NEXT = re.compile(r"<p><em>Next:</em>.*?</p>", re.DOTALL)
"""What a page ends with: on paper the next one follows, and this line alone would take a sheet."""
FORMULAS = re.compile(r"<script [^>]*mathjax/")
"""What a page loads to set formulas; a page without formulas does not."""
LOOK = """<style>
.route + .route { break-before: page; }
.cell_output details:has(tbody tr:nth-child(13)) { display: none; }
@page { size: A4; }
</style>"""
"""A page of the route begins on a new sheet; long folded tables stay on the site."""


def route(root: Path) -> list[str]:
    """Return the names of the route's pages in their order."""
    return STEP.findall((root / "index.md").read_text(encoding="utf-8"))


def joined(root: Path) -> Path:
    """Write the built pages of the route as one page beside them, and return it; links lead into it or to the site."""
    folder, names = root / "_build" / "html" / "notebooks", route(root)
    site = re.search(r"baseurl: (\S+)", (root / "_config.yml").read_text(encoding="utf-8"))[1]  # type: ignore[index]

    def led(link: re.Match[str]) -> str:
        where, name, place = link.groups()
        if name in names and where in (None, "notebooks"):
            return f'href="#{place or name}"'
        return f'href="{site}{where or "notebooks"}/{name}.html{f"#{place}" if place else ""}"'

    pages = {name: (folder / f"{name}.html").read_text(encoding="utf-8") for name in names}
    parts = []
    for name, page in pages.items():
        article = ARTICLE.search(page)
        assert article is not None
        parts.append(f'<div class="route" id="{name}">{LINK.sub(led, NEXT.sub("", article[1]))}</div>')
    around = next(filter(FORMULAS.search, pages.values()), pages[names[0]])
    whole = ARTICLE.sub(lambda _: f'<article class="bd-article">{"".join(parts)}</article>', around)
    whole = re.sub(
        r"<title>.*?</title>", "<title>Position bias in transformers: an afternoon</title>", whole, flags=re.DOTALL
    )
    path = folder / "afternoon.html"
    path.write_text(whole.replace("</head>", f"{LOOK}</head>"), encoding="utf-8")
    return path


def print_route(root: Path) -> Path:
    """Print the route to ``_build/afternoon.pdf`` and return it; ValueError without a browser."""
    browser = find_browser()
    page = joined(root)
    pdf = print_page(browser, page, root / "_build" / "afternoon.pdf")
    page.unlink()
    return pdf


def print_preprint(root: Path) -> Path:
    """Print the built preprint to ``_build/preprint.pdf`` and return it; ValueError without a browser."""
    page = root / "_build" / "html" / "book" / "preprint.html"
    return print_page(find_browser(), page, root / "_build" / "preprint.pdf")


def find_browser() -> str:
    """Return the browser that prints; ValueError without one."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise ValueError(f"pdf: expected a browser, one of {', '.join(BROWSERS)}, received none")
    return browser


def print_page(browser: str, page: Path, pdf: Path) -> Path:
    """Print a built page to a file, and return the file."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer", "--virtual-time-budget=120000"]
    subprocess.run([browser, *options, f"--print-to-pdf={pdf}", page.as_uri()], check=True, capture_output=True)
    return pdf
