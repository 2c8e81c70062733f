"""The status page as it is built: its filter, by keyboard, and the lines that records of other pages lead to."""

import re

import pytest
from bs4 import BeautifulSoup
from conftest import ROOT, served

from bookkit.ledger import anchor, status_table
from bookkit.records import read_records

SHOWN = """
const rows = [...document.querySelectorAll(".tag_verdicts tbody tr")].filter(row => row.checkVisibility());
return rows.map(row => row.querySelector("a[id]").id);
"""


@pytest.fixture(scope="module")
def lines():
    return status_table(read_records(ROOT))


def test_without_a_script_the_list_is_whole(html, lines):
    page = BeautifulSoup((html / "notebooks" / "status.html").read_text(encoding="utf-8"), "html.parser")
    rows = page.select(".tag_verdicts tbody tr")
    assert len(rows) == len(lines) and not page.select("tr[hidden], .verdict-choices")
    assert {row.find("a", id=True)["id"] for row in rows} == {anchor(s.row.row, s.part) for s in lines}


def test_records_lead_to_their_lines(html):
    for record in {record.chapter: record for record in read_records(ROOT)}.values():
        text = (html / "notebooks" / f"{record.chapter}.html").read_text(encoding="utf-8")
        line = f'<strong>{record.verdict}</strong> – <a href="status.html#{anchor(record.row, record.part)}">'
        assert line in re.sub(r"\s+", " ", text), record.chapter


def test_the_list_is_filtered_by_keyboard(driver, html, lines):
    keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
    wait = pytest.importorskip("selenium.webdriver.support.wait").WebDriverWait(driver, 30)

    def shown():
        found = driver.execute_script(SHOWN)
        assert driver.find_element("tag name", "output").text == f"{len(found)} of {len(lines)} lines"
        return set(found)

    everything = {anchor(s.row.row, s.part) for s in lines}
    with served(html) as address:
        driver.get(f"{address}/notebooks/status.html")
        wait.until(lambda driver: driver.execute_script(SHOWN))  # the page is laid out
        assert shown() == everything
        source, verdict = driver.find_elements("css selector", ".verdict-choices select")
        source.send_keys("W")
        assert shown() == {anchor(s.row.row, s.part) for s in lines if s.row.origin == "WU"}
        source.send_keys(keys.TAB)
        driver.switch_to.active_element.send_keys("v")
        chosen = [s for s in lines if s.row.origin == "WU" and s.verdict == "vacuous"]
        assert shown() == {anchor(s.row.row, s.part) for s in chosen} != set()
        hidden = (everything - shown()).pop()
        driver.execute_script(f"location.hash = {hidden!r}")
        assert shown() == everything
