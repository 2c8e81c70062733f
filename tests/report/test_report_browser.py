"""A report in a browser, wide and on a phone, light, dark and printed: what the book's pages are held to."""

import pytest

pytest.importorskip("selenium.webdriver")
pytest.importorskip("torch", reason="torch is not installed")

from conftest import ROOT, resize, served
from test_browser import problems

BAD = "<script>throw Error('from a name')</script>" + 90 * "x"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Return where two reports are served: of a summary beside another, and of one with a bad name."""
    from posbias.measure.measurement import Measurement
    from studies.results import load

    if not (ROOT / "results" / "models.nc").is_file():
        pytest.skip("results/ is not here")
    folder, kept = tmp_path_factory.mktemp("served"), load("models")
    one, other = (Measurement(kept[f"{name}.builtin"]) for name in ("bloom-8", "mpt-12"))
    one.report(folder / "r.html", beside=other)
    Measurement(one.results.assign_attrs(model=BAD, dataset=BAD, tokenizer="none")).report(folder / "bad.html")
    with served(folder) as address:
        yield address


@pytest.mark.parametrize("name", ["r", "bad"])
def test_a_report_is_a_page_like_the_books(driver, address, name):
    driver.get(f"{address}/{name}.html")
    driver.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    assert not problems(driver)


def test_all_that_opens_or_scrolls_is_reached_by_keyboard(driver, address):
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import WebDriverWait

    resize(driver, 1280)
    driver.get(f"{address}/r.html")
    count = "document.querySelectorAll('main a, summary, main > .wide').length"
    count = f"return document.readyState == 'complete' && {count}"
    wanted = WebDriverWait(driver, 30).until(lambda d: d.execute_script(count))
    body, seen = driver.find_element("tag name", "body"), set()
    body.send_keys(Keys.TAB)
    for _ in range(wanted + 2):
        seen.add(driver.switch_to.active_element.id)
        driver.switch_to.active_element.send_keys(Keys.TAB)
    assert len(seen) >= wanted >= 6
