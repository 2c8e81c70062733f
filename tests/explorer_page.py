"""The explorer in a browser: what it has drawn, what it says, and the colours that it draws with."""

import numpy as np
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait


def drawn(driver):
    ready = "return window.PosbiasExplorer && PosbiasExplorer.drawn && PosbiasExplorer.drawn.milliseconds !== undefined"
    busy = "return document.getElementById('explorer').getAttribute('aria-busy')"
    WebDriverWait(driver, 30).until(lambda d: d.execute_script(ready) and not d.execute_script(busy))


def profile(driver):
    drawn(driver)
    return np.array(driver.execute_script("return Array.from(PosbiasExplorer.drawn.profile)"), dtype=float)


def after(driver, action):
    """Do something that changes the settings, wait for the next drawing, and return the profile."""
    before = driver.execute_script("return PosbiasExplorer.redraws")
    action()
    WebDriverWait(driver, 30).until(lambda d: d.execute_script("return PosbiasExplorer.redraws") > before)
    return profile(driver)


def element(driver, name):
    return driver.find_element(By.ID, f"explorer-{name}")


def errors(driver):
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]


def settled_hash(driver, part):
    WebDriverWait(driver, 10).until(lambda d: part in d.execute_script("return location.hash"))


def is_said(driver, part):
    """Wait until a screen reader is told something."""
    live = driver.find_element(By.CSS_SELECTOR, "#explorer [aria-live=polite]")
    WebDriverWait(driver, 10).until(lambda d: part in live.get_attribute("textContent"))


def legend(driver):
    return driver.find_element(By.CLASS_NAME, "explorer-legend").text


def thin(driver, name):
    return np.array(driver.execute_script(f"return Array.from(PosbiasExplorer.drawn.{name} || [])"), dtype=float)


def choose(driver, name, value):
    return after(driver, lambda: Select(element(driver, name)).select_by_value(value))


CONTRAST = """
const style = getComputedStyle(document.getElementById("explorer"));
const context = document.createElement("canvas").getContext("2d");
const rgb = name => {
  context.fillStyle = style.getPropertyValue("--explorer-" + name).trim();
  context.fillRect(0, 0, 1, 1);
  return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
};
return Object.fromEntries(arguments[0].map(name => [name, rgb(name)]));
"""


def luminance(rgb):
    linear = [x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in np.array(rgb) / 255]
    return float(np.array([0.2126, 0.7152, 0.0722]) @ linear)


def contrast(a, b):
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)
