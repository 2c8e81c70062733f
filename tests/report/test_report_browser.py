"""Pages on a model and on one prompt in a browser, wide and on a phone, light, dark and printed: as the book's are."""

import pandas as pd
import pytest
from conftest import ROOT, resize, served
from test_browser import problems

BAD = "<script>throw Error('from a name')</script>" + 90 * "x"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Return where pages are served: a summary's report, one with a bad name, and one on a prompt."""
    from posbias.explain.explanation import Explanation
    from posbias.measure.measurement import Measurement
    from studies.results import load

    if not (ROOT / "results" / "models.nc").is_file():
        pytest.skip("results/ is not here")
    folder, one = tmp_path_factory.mktemp("served"), Measurement(load("models")["bloom-8.builtin"])
    one.report(folder / "r.html")
    Measurement(one.results.assign_attrs(model=BAD, dataset=BAD, tokenizer="none")).report(folder / "bad.html")
    texts = [f"passage {k}: " + 12 * "some words " for k in range(1, 5)]
    n = range(1, 5)
    share = {"share": [0.4, 0.1, 0.2, 0.3]}
    segments = {"label": texts, "text": texts, "tokens": 9, "removed": -0.5, "contributed": 0.25}
    segments = pd.DataFrame(share | segments, index=n)
    tokens = pd.DataFrame({"token": texts, "segment": n} | share)
    Explanation("m", "the probability", 0.5, tokens, segments).report(folder / "p.html")
    with served(folder) as address:
        yield address


@pytest.mark.parametrize("name", ["r", "bad", "p"])
def test_a_report_is_a_page_like_the_books(driver, address, name):
    driver.get(f"{address}/{name}.html")
    driver.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    assert not problems(driver)


@pytest.mark.parametrize("name", ["r", "p"])
def test_a_figures_words_can_be_read_on_a_phone(driver, address, name):
    resize(driver, 390)
    driver.get(f"{address}/{name}.html")
    sizes = "Math.min(...[...document.querySelectorAll('main figure svg')].map(x => x.getBoundingClientRect().width))"
    assert driver.execute_script(f"return {sizes}") >= 34 * 16


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
    assert len(seen) >= wanted >= 2
