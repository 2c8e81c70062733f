"""Measure what a redraw of the explorer costs in a browser.

    python benchmarks/explorer.py    # a table in Markdown: milliseconds, median and slowest of the redraws

A redraw is everything between a slider's move and the finished picture: settings, profile, plot and words. The slider
is the one of the position logits, for which a flat kernel's tables are made anew; other sliders keep them. An
attention hop takes two multiplications for each token with α log j, and two for each token and each of some 75
exponentials with the flat kernel, whose tables hold as many numbers; heads and layers share it. It needs
Chromium and chromedriver, as the tests of the pages do. The yardstick is a frame of a screen at 60 Hz, 16.7 ms.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
from selenium import webdriver

from bookkit.explorer import standalone_page

ROOT = Path(__file__).resolve().parents[1]
REDRAWS = 40
WARM = 10  # redraws before the first that counts: the browser compiles what is hot
FRAME = 1000 / 60
SETTINGS = {
    "BLOOM-176B, content head by head": "#model=bloom",
    "BLOOM-176B, no content": "#model=bloom&content=none",
    "BLOOM-176B, content, a force off (two profiles)": "#model=bloom&off=position",
    "BLOOM-176B, logarithmic, one slope, no content": "#model=bloom&content=none&encoding=log&slopes=one",
    "100 layers × 112 heads, 4,096 tokens": "#depth=100&heads=112&length=4096&lambda=0.05",
    "100 layers × 112 heads, 4,096 tokens, λ = 1": "#depth=100&heads=112&length=4096&lambda=1",
    "BLOOM-176B, content head by head, 4,096 tokens": "#model=bloom&length=4096",
    "BLOOM-176B, α log j, content head by head": "#model=bloom&encoding=log-position&alpha=2",
    "100 layers of λ = 1, 4,096 tokens, α log j": "#depth=100&lambda=1&length=4096&encoding=log-position&alpha=4",
    "24 layers of λ = 0.2, 2,048 tokens, flat": "#depth=24&lambda=0.2&length=2048&encoding=flat&tau=4.8",
    "100 layers of λ = 0.05, 4,096 tokens, flat": "#depth=100&lambda=0.05&length=4096&encoding=flat&tau=5",
    "100 layers of λ = 1, 4,096 tokens, flat": "#depth=100&lambda=1&length=4096&encoding=flat&tau=5",
}
REDRAW = """
const [count, done] = arguments, page = window.PosbiasExplorer, times = [];
const moved = { "log-position": "alpha", flat: "tau" }[page.state.encoding] || "scale", wanted = page.state[moved];
function next(k) {
  if (k === count) { page.change({ [moved]: wanted }); return done(times); }
  const before = page.redraws;
  page.change({ [moved]: wanted * (1 + 0.001 * (k + 1)) });
  (function wait() {
    if (page.redraws === before || page.drawn.milliseconds === undefined) return setTimeout(wait, 1);
    times.push([page.drawn.computed, page.drawn.milliseconds]);
    setTimeout(() => next(k + 1), 5);
  })();
}
next(0);
"""


def browser() -> webdriver.Chrome:
    """Start Chromium without a window."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome")
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    driver.set_script_timeout(300)
    driver.set_window_size(1280, 900)
    return driver


def main() -> None:
    """Print the table."""
    driver = browser()
    with tempfile.TemporaryDirectory() as folder:
        address = standalone_page(ROOT, Path(folder)).as_uri()
        print("| settings | profile, ms | redraw, ms | slowest, ms | redraw / frame |\n|---|---|---|---|---|")
        for name, hash_ in SETTINGS.items():
            driver.get("about:blank")
            driver.get(address + hash_)
            times = np.array(driver.execute_async_script(REDRAW, WARM + REDRAWS))[WARM:]
            computed, redraw = np.median(times, axis=0)
            print(f"| {name} | {computed:.1f} | {redraw:.1f} | {times[:, 1].max():.1f} | {redraw / FRAME:.2f} |")
    driver.quit()


if __name__ == "__main__":
    main()
