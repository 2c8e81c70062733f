"""Every built page in a browser without a network, wide, on a phone and on paper."""

import pytest
from conftest import ROOT, pages, resize, served

MOVED = ROOT / "book" / "moved"
"""Pages in place of those that have moved."""

SETTLED = """
const done = arguments[arguments.length - 1];
for (const img of document.images) img.loading = "eager";
const mathematics = window.MathJax && MathJax.startup ? MathJax.startup.promise : Promise.resolve();
const images = [...document.images].map(img => img.decode().catch(() => null));
Promise.all([mathematics, document.fonts.ready, ...images]).then(() => setTimeout(done, 50));
"""

OVERFLOW = """
const [wide, seen] = [document.documentElement.scrollWidth, document.documentElement.clientWidth];
const cut = [...document.querySelectorAll("div.math")].filter(e => e.querySelector("mjx-container")?.checkVisibility())
  .filter(e => e.querySelector("mjx-container").scrollWidth > e.querySelector("mjx-container").clientWidth + 1)
  .map(e => `formula cut in ${seen}: ${e.textContent.trim().slice(0, 40)}`);
if (wide <= seen) return cut;
const beyond = e => e.getBoundingClientRect().right > seen + 1;
const culprit = [...document.querySelectorAll("main *")].find(beyond) || {outerHTML: ""};
return [`sideways overflow: ${wide} px in ${seen}, e.g. ${culprit.outerHTML.slice(0, 120)}`];
"""

PROBLEMS = r"""
const found = [];
for (const img of document.images) {
  if (!img.naturalWidth) found.push("image not loaded: " + img.src.slice(0, 80));
  if (!(img.getAttribute("alt") || "").trim()) found.push("image without alt text: " + img.src.slice(0, 80));
}
for (const bad of document.querySelectorAll("mjx-merror, merror, [data-mjx-error]"))
  found.push("mathematics not rendered: " + bad.textContent.slice(0, 80));
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const node = texts.currentNode;
  if (node.parentElement.closest("script, style, pre, code, mjx-container")) continue;
  if (/\\[(\[][^]*\\[)\]]/.test(node.data)) found.push("mathematics left as text: " + node.data.trim().slice(0, 80));
}
for (const entry of performance.getEntriesByType("resource"))
  if (!entry.name.startsWith(location.origin) && !entry.name.startsWith("data:")) found.push("fetched: " + entry.name);
return found;
"""

PRINTED = """
const found = new Set(), limit = document.documentElement.clientWidth, seen = e => e.getBoundingClientRect().width;
const say = (what, e) => found.add(`${what} on paper: ${e.className} ${e.textContent.trim().slice(0, 60)}`);
for (const e of document.querySelectorAll("main :is(pre, img, td, th, div.math, mjx-container, svg)"))
  if (e.getBoundingClientRect().right > limit + 1) say("cut", e);
for (const e of document.querySelectorAll("main :is(pre, div.math)"))
  if (e.scrollWidth > e.clientWidth + 1) say("cut", e);
const alive = "button, nav, .bd-sidebar, .headerlink, details:is(.above-input, .page-code)";
for (const e of document.querySelectorAll(alive))
  if (e.checkVisibility() && seen(e)) say("still there", e);
for (const e of document.querySelectorAll(".bd-article details > summary + *"))
  if (!e.closest(".above-input, .page-code") && !e.checkVisibility()) say("folded", e);
return [...found];
"""
PAPER = 696 + 15
"""Pixels between the margins of an A4 sheet, which is narrower than Letter, and of the window's scroll bar."""


@pytest.fixture(scope="module")
def address(html):
    with served(html) as address:
        yield address


def problems(driver):
    """List what is wrong with the page that is open, in a wide window, in that of a phone, and on paper."""
    resize(driver, 1280)
    driver.execute_async_script(SETTLED)
    console = [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    found = driver.execute_script(PROBLEMS) + [f"console: {message}" for message in console]
    for width in (1280, 390):
        resize(driver, width)
        found += driver.execute_script(OVERFLOW)
    resize(driver, PAPER)
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    found += driver.execute_script(PRINTED)
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    return found


@pytest.mark.parametrize("part", range(4))
def test_every_page(driver, address, html, part):
    found = []
    moved = {path.relative_to(MOVED) for path in MOVED.rglob("*.html")}  # each leads to a page that is looked at
    own = [page for page in pages(html) if page.relative_to(html) not in moved]
    for page in own[part::4]:
        name = page.relative_to(html).as_posix()
        driver.get(f"{address}/{name}")
        found += [f"{name}: {problem}" for problem in problems(driver)]
    assert not found, "\n".join(found)


BROKEN = """<!doctype html><meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">
<body><main>
<img src="none.png"><img src="data:image/gif;base64,R0lGODlhAQABAAAAACw=">
<mjx-merror>Undefined control sequence</mjx-merror> <p>\\\\(x^2\\\\)</p>
<div style="width: 500px">wide</div><script src="http://elsewhere.invalid/x.js"></script>
<script>throw Error("from the page")</script><pre style="width: 800px">code</pre><nav>menu</nav>
<div class="bd-article"><details><summary>Proof</summary><p>Idea</p></details></div></main></body>"""


def test_a_broken_page_is_found_out(driver, address, html):
    driver.get(f"{address}/search.html")
    driver.execute_script(f"document.open(); document.write({BROKEN.replace(chr(10), ' ')!r}); document.close()")
    found = "\n".join(problems(driver))
    expected = (
        "not loaded, without alt, not rendered, left as text, elsewhere, from the page, cut on, still there, folded"
    )
    for problem in expected.split(", "):
        assert problem in found, found
    assert "in 390" in found and "in 1280" not in found


def test_search_finds_a_page(driver, address):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    resize(driver, 1280)
    driver.get(f"{address}/index.html")
    driver.execute_async_script(SETTLED)
    buttons = driver.find_elements(By.CSS_SELECTOR, ".search-button__button, .search-button")
    next(button for button in buttons if button.is_displayed()).click()
    field = next(f for f in driver.find_elements(By.CSS_SELECTOR, "input[name=q]") if f.is_displayed())
    field.send_keys("bibliography\n")
    found = WebDriverWait(driver, 20).until(lambda d: d.find_elements(By.CSS_SELECTOR, "#search-results li a"))
    assert any("bibliography" in link.get_attribute("href") for link in found)
