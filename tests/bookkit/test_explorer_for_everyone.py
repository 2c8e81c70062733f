"""The explorer in a browser: keyboard, words, colours, phones, no network, and its place in the book."""

import json
import re
from html import unescape

import numpy as np
import pytest
from conftest import ROOT, pages, resize
from explorer_fields import predicted
from explorer_page import CONTRAST, after, contrast, drawn, element, errors, luminance, profile, settled_hash
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from bookkit.explorer import DATA
from posbias.rollout.profiles import u_shape
from studies.published import numbers

ASSETS = ROOT / DATA.parent


def enter(field, text):
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(text, Keys.ENTER)


def test_keyboard_alone(driver, show):
    show("#depth=10&length=40")
    body = driver.switch_to.active_element
    reached = []
    for _ in range(60):
        ActionChains(driver).send_keys(Keys.TAB).perform()  # to a file's field, send_keys gives a file
        body = driver.switch_to.active_element
        reached.append(body.get_attribute("id") or body.text)
        if reached[-1] == "explorer-depth":
            break
    assert reached[-1] == "explorer-depth" and "explorer-force-mask" in reached and "explorer-model" in reached
    p = after(driver, lambda: body.send_keys(Keys.ARROW_RIGHT))
    assert np.abs(p - predicted(depth=11, length=40)).max() < 1e-9
    p = after(driver, lambda: element(driver, "force-residual").send_keys(Keys.SPACE))
    assert p[0] > 0.9 and driver.execute_script("return PosbiasExplorer.state.off") == ["residual"]
    exact = element(driver, "length-exact")
    p = after(driver, lambda: enter(exact, "77"))
    assert p.size == 77
    element(driver, "token").send_keys(Keys.HOME, Keys.ARROW_RIGHT)
    spoken = element(driver, "token").get_attribute("aria-valuetext")
    assert spoken.startswith("Token 2 of 77: ")
    assert spoken == driver.find_element(By.CLASS_NAME, "explorer-reading").text


def test_a_wrong_number_is_refused_and_the_old_one_kept(driver, show):
    show("#depth=10")
    exact = element(driver, "depth-exact")
    enter(exact, "500")
    box = driver.find_element(By.CLASS_NAME, "explorer-refused")
    assert "depth: expected an integer from 1 to 100, received 500; kept as it was." in box.text
    assert driver.execute_script("return PosbiasExplorer.state.depth") == 10
    assert exact.get_attribute("value") == "10"
    after(driver, lambda: enter(exact, "20"))
    assert not box.is_displayed()


def test_every_control_has_a_name_and_the_summary_is_spoken_once(driver, show):
    show("#depth=10&length=40")
    unnamed = """const label = e => e.labels && e.labels.length, said = e => e.getAttribute("aria-label");
        const named = e => label(e) || said(e) || e.textContent.trim();
        const all = [...document.querySelectorAll("#explorer :is(input, select, button)")];
        return [all.length, all.filter(e => !named(e) || (e.tagName === "SELECT" && !e.labels.length)).length]"""
    total, without = driver.execute_script(unnamed)
    assert total > 30 and without == 0
    live = driver.find_element(By.CSS_SELECTOR, "#explorer [aria-live=polite]")
    count = "window.spoken = 0; new MutationObserver(() => window.spoken++).observe(arguments[0], {childList: true})"
    WebDriverWait(driver, 10).until(lambda d: live.get_attribute("textContent"))
    driver.execute_script(count, live)
    element(driver, "depth").send_keys(*10 * [Keys.ARROW_RIGHT])
    settled_hash(driver, "depth=20")
    assert driver.execute_script("return window.spoken") == 1
    said = live.get_attribute("textContent")
    for part in ("First token", "Trough", "Last token", "Mean position"):
        assert part in said
    image = driver.find_element(By.CLASS_NAME, "explorer-plot")
    assert image.get_attribute("role") == "img" and "First token" in image.get_attribute("aria-label")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_contrast(driver, show, theme):
    show()
    driver.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
    least = dict.fromkeys(
        ["soft", "accent", "profile", "measured", "contributions", "maps", "all", "sizes", "uniform"], 4.5
    ) | {"text": 7, "line": 3}
    colours = driver.execute_script(CONTRAST, [*least, "ground", "warning"])
    assert (luminance(colours["ground"]) < 0.2) == (theme == "dark")
    for name, ratio in least.items():
        assert contrast(colours[name], colours["ground"]) >= ratio, name
    assert contrast(colours["text"], colours["warning"]) >= 7


@pytest.mark.parametrize(
    "hash_",
    [
        "#depth=3.5&colour=1&axis=linear&mask=window&content=diagonal&mixing=decay&slopes=one&off=mask,residual",
        "#encoding=flat&tau=4.8&depth=24&lambda=0.2&length=2048&content=diagonal&law=untrained",
    ],
)
def test_phone_has_no_sideways_scrolling(driver, show, hash_):
    resize(driver, 360)
    show(hash_)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= 360
    beyond = """return [...document.querySelectorAll("#explorer *:not(.explorer-spoken)")].filter(
        e => e.getBoundingClientRect().right > 361).map(e => e.className)"""
    assert driver.execute_script(beyond) == []


def test_nothing_is_asked_of_the_network(driver, show):
    driver.get_log("performance")
    show("#model=bloom")
    after(driver, lambda: element(driver, "depth").send_keys(Keys.ARROW_LEFT))
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert len(sent) >= 6 and all(url.startswith(("file:///", "about:", "data:")) for url in sent), sent
    assert errors(driver) == []
    sources = "".join(file.read_text() for file in ASSETS.glob("*.js") if "uPlot" not in file.name)
    assert not re.search(r"\bfetch\(|XMLHttpRequest|sendBeacon|WebSocket|EventSource|\bimport\(", sources)


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (360, "dark")])
def test_built_page(driver, html, width, theme):
    address = (html / "book" / "explorer.html").as_uri()  # where the page was
    resize(driver, width)
    driver.get("about:blank")
    driver.get_log("browser")
    driver.get(f"{address}#model=bloom&content=none")
    drawn(driver)
    top = driver.execute_script("return document.getElementById('explorer').getBoundingClientRect().top")
    assert "/notebooks/one_page.html#model=bloom" in driver.current_url and 0 <= top < 100
    driver.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
    assert np.abs(profile(driver) - numbers.config("bloom", "none").profile()).max() < 1e-9
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    ground = driver.execute_script(CONTRAST, ["ground"])["ground"]
    assert (luminance(ground) < 0.2) == (theme == "dark")
    collapse = driver.find_element(By.LINK_TEXT, "Collapse")
    p = after(driver, lambda: driver.execute_script("arguments[0].click()", collapse))
    assert p[0] > 0.99
    trough = driver.find_element(By.LINK_TEXT, "A trough before training")
    p = after(driver, lambda: driver.execute_script("arguments[0].click()", trough))
    assert u_shape(p).present and driver.execute_script("return PosbiasExplorer.drawn.law") == "untrained"
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    assert errors(driver) == []


def test_every_link_to_the_explorer_in_the_built_book_is_accepted(html, engine):
    found = {}
    for built in pages(html):
        for href in re.findall(r'href="((?:[^"]*one_page\.html)?#[^"]*=[^"]*)"', built.read_text(encoding="utf-8")):
            found[unescape(href).partition("#")[2]] = built.name
    assert {"one_page.html", "rollout.html"} <= {*found.values()}
    for fragment, name in found.items():
        parsed = engine.execute_script("return PosbiasState.parse('#' + arguments[0], PosbiasPresets)", fragment)
        assert parsed["refused"] == [], f"{name}: {fragment}"
