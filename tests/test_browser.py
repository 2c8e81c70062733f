"""Every built page in a browser without a network, wide and on a phone."""

import functools
import http.server
import shutil
import threading

import pytest
from conftest import pages

webdriver = pytest.importorskip("selenium.webdriver")

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)

SETTLED = """
const done = arguments[arguments.length - 1];
for (const img of document.images) img.loading = "eager";
const mathematics = window.MathJax && MathJax.startup ? MathJax.startup.promise : Promise.resolve();
const images = [...document.images].map(img => img.decode().catch(() => null));
Promise.all([mathematics, document.fonts.ready, ...images]).then(() => setTimeout(done, 50));
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
const wide = document.documentElement.scrollWidth;
if (wide > window.innerWidth) {
  const beyond = e => e.getBoundingClientRect().right > window.innerWidth + 1;
  const culprit = [...document.querySelectorAll("main *")].find(beyond) || {outerHTML: ""};
  const example = culprit.outerHTML.slice(0, 120);
  found.push("sideways overflow: " + wide + " px in " + window.innerWidth + ", e.g. " + example);
}
for (const entry of performance.getEntriesByType("resource"))
  if (!entry.name.startsWith(location.origin) && !entry.name.startsWith("data:")) found.push("fetched: " + entry.name);
return found;
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def address(html):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(html)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def driver():
    binary = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    service = shutil.which("chromedriver")
    if binary is None or service is None:
        pytest.skip(f"no {'browser' if binary is None else 'chromedriver'} on this machine")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(service))
    driver.set_script_timeout(60)
    yield driver
    driver.quit()


def resize(driver, width):
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def problems(driver):
    """List what is wrong with the page that is open."""
    driver.execute_async_script(SETTLED)
    console = [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    return driver.execute_script(PROBLEMS) + [f"console: {message}" for message in console]


@pytest.mark.parametrize("width", [1280, 390])
def test_every_page(driver, address, html, width):
    resize(driver, width)
    found = []
    for page in pages(html):
        name = page.relative_to(html).as_posix()
        driver.get(f"{address}/{name}")
        found += [f"{name} at {width} px: {problem}" for problem in problems(driver)]
    assert not found, "\n".join(found)


BROKEN = """<!doctype html><link rel="icon" href="data:,"><body><main>
<img src="none.png"><img src="data:image/gif;base64,R0lGODlhAQABAAAAACw=">
<mjx-merror>Undefined control sequence</mjx-merror> <p>\\\\(x^2\\\\)</p>
<div style="width: 5000px">wide</div><script src="http://elsewhere.invalid/x.js"></script>
<script>throw Error("from the page")</script></main></body>"""


def test_a_broken_page_is_found_out(driver, address, html):
    resize(driver, 390)
    driver.get(f"{address}/search.html")
    driver.execute_script(f"document.open(); document.write({BROKEN.replace(chr(10), ' ')!r}); document.close()")
    found = "\n".join(problems(driver))
    for expected in (
        "not loaded",
        "without alt",
        "not rendered",
        "left as text",
        "overflow",
        "elsewhere",
        "from the page",
    ):
        assert expected in found, found


def test_search_finds_a_page(driver, address):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    resize(driver, 1280)
    driver.get(f"{address}/index.html")
    driver.execute_async_script(SETTLED)
    next(
        b for b in driver.find_elements(By.CSS_SELECTOR, ".search-button__button, .search-button") if b.is_displayed()
    ).click()
    field = next(f for f in driver.find_elements(By.CSS_SELECTOR, "input[name=q]") if f.is_displayed())
    field.send_keys("bibliography\n")
    found = WebDriverWait(driver, 20).until(lambda d: d.find_elements(By.CSS_SELECTOR, "#search-results li a"))
    assert any("bibliography" in link.get_attribute("href") for link in found)
