"""The status page as it is built: its filter, by keyboard, and the lines that records of other pages lead to."""

import re
from collections import Counter

import pytest
from bs4 import BeautifulSoup
from conftest import ROOT, served
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from bookkit.ledger import anchor, status_table
from bookkit.records import read_records

SHOWN = """
const rows = [...document.querySelectorAll(".tag_verdicts tbody tr")].filter(row => row.checkVisibility());
return rows.map(row => row.querySelector("a[id]")?.id ?? row.querySelector("code").textContent);
"""
"""What is shown of the list: the place of a line, or the row of the ledger of which a claim with parts is the head."""


@pytest.fixture(scope="module")
def lines():
    return status_table(read_records(ROOT))


def test_without_a_script_the_list_is_whole(html, lines):
    page = BeautifulSoup((html / "notebooks" / "verdicts.html").read_text(encoding="utf-8"), "html.parser")
    rows = page.select(".tag_verdicts tbody tr")
    places = [row.find("a", id=True)["id"] for row in rows if row.find("a", id=True)]
    assert len(places) == len(lines) and not page.select("tr[hidden], .verdict-choices")
    assert set(places) == {anchor(s.row.row, s.part) for s in lines}
    heads = [row.code.text for row in rows if not row.find("a", id=True)]
    parts = Counter(s.row.row for s in lines)
    assert sorted(heads) == sorted(row for row, number in parts.items() if number > 1)


def test_records_lead_to_their_lines(html):
    for record in {record.chapter: record for record in read_records(ROOT)}.values():
        text = (html / "notebooks" / f"{record.chapter}.html").read_text(encoding="utf-8")
        line = f'<strong>{record.verdict}</strong> – <a href="verdicts.html#{anchor(record.row, record.part)}">'
        assert line in re.sub(r"\s+", " ", text), record.chapter


def test_the_list_is_filtered_by_keyboard(driver, html, lines):
    wait = WebDriverWait(driver, 30)

    parts = Counter(s.row.row for s in lines)

    def shown():
        found = set(driver.execute_script(SHOWN))
        places = found & everything
        assert driver.find_element("tag name", "output").text == f"{len(places)} of {len(lines)} lines"
        of_places = {s.row.row for s in lines if anchor(s.row.row, s.part) in places}
        assert found - places == {row for row in of_places if parts[row] > 1}
        return places

    everything = {anchor(s.row.row, s.part) for s in lines}
    with served(html) as address:
        driver.get(f"{address}/notebooks/verdicts.html")
        driver.find_element("css selector", ".tag_verdicts summary.sd-summary-title").click()
        wait.until(lambda driver: driver.execute_script(SHOWN))  # the page is laid out
        assert shown() == everything
        source, verdict = driver.find_elements("css selector", ".verdict-choices select")
        source.send_keys("W")
        assert shown() == {anchor(s.row.row, s.part) for s in lines if s.origin == "WU"}
        source.send_keys(Keys.TAB)
        driver.switch_to.active_element.send_keys("v")
        chosen = [s for s in lines if s.origin == "WU" and s.verdict == "vacuous"]
        assert shown() == {anchor(s.row.row, s.part) for s in chosen} != set()
        hidden = (everything - shown()).pop()
        driver.execute_script(f"location.hash = {hidden!r}")
        assert shown() == everything
