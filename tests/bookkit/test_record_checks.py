"""The line of a check in a page's list says less than its record where the check has a brief."""

import pytest

from bookkit.records import MADE, record_checks
from studies.checks import Check


def test_the_list_has_the_brief_and_the_record_the_whole_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("IPython.display.display", lambda *_, **__: None)
    MADE.clear()
    broken = {"reversed": [False]}
    said = ("The peak moves.", True, "it moves by 3, 4 and 5", "it stays", broken, "it stays")
    lines = record_checks([Check("WU-H", "statement", *said, {}, "3 to 5"), Check("WU-H", "proof", *said, {})])
    assert [found for *_, found in lines] == ["3 to 5", "it moves by 3, 4 and 5"]
    assert MADE["WU-H", "statement"].figure == "it moves by 3, 4 and 5"
