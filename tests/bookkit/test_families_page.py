"""The table of families on the page is that of the rows."""

from bookkit.families import BEGIN, PAGE, table, written
from posbias.models.families import FAMILIES


def test_the_page_has_the_table_of_the_rows():
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page), "python -m bookkit.families writes the table again"
    assert page.count(BEGIN) == 1 and all(f"| `{name}` |" in table() for name in FAMILIES)
