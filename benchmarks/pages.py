"""Measure how long the pages of the built book take to load from disk: `make html`, then

    python benchmarks/pages.py

Prints a table in Markdown: seconds until the load event, and until the formulas are typeset; medians of three.
"""

from __future__ import annotations

import platform
import statistics
from pathlib import Path

from selenium import webdriver

PAGES = Path(__file__).resolve().parents[1] / "_build" / "html"
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,900")
TYPESET = "const done = arguments[0]; MathJax.startup.promise.then(() => done(performance.now() / 1000))"
LOADED = "return performance.getEntriesByType('navigation')[0].loadEventEnd / 1000"


def seconds(browser: webdriver.Chrome, page: Path) -> tuple[float, float]:
    """Return seconds to the load event and to the last formula."""
    browser.get(page.as_uri())
    has_formulas = browser.execute_script("return typeof MathJax !== 'undefined'")
    typeset = browser.execute_async_script(TYPESET) if has_formulas else 0.0
    return browser.execute_script(LOADED), typeset


def main() -> None:
    options = webdriver.ChromeOptions()
    for flag in FLAGS:
        options.add_argument(flag)
    browser = webdriver.Chrome(options=options)
    try:
        print("| page | loaded | formulas typeset | KiB |\n|---|---|---|---|")
        for page in sorted([PAGES / "index.html", *PAGES.glob("*/*.html")]):
            loaded, typeset = map(statistics.median, zip(*(seconds(browser, page) for _ in range(3)), strict=True))
            print(
                f"| {page.relative_to(PAGES)} | {loaded:.2f} s | {typeset:.2f} s | {page.stat().st_size / 1024:.0f} |"
            )
    finally:
        browser.quit()
    print(f"\n{platform.machine()}, {platform.system()}, from disk.")


if __name__ == "__main__":
    main()
