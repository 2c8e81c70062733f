import csv
import json
from importlib.resources import files

import numpy as np
import pytest
from conftest import ROOT, chapter_source

from posbias.book import ledger, runner
from posbias.book.ledger import Record
from posbias.book.records import KEY, glue, read_records, record, rounded


@pytest.fixture
def shown(monkeypatch):
    """Collect what is displayed instead of displaying it."""
    bundles = []
    monkeypatch.setattr("IPython.display.display", lambda data, metadata, **_: bundles.append({**data, **metadata}))
    return bundles


def test_rounded_gives_plain_numbers():
    values = [np.float64(1 / 3), np.float32(0.5), np.int64(3), True, np.bool_(True), 10**9, "0.1", None]
    assert [rounded(value) for value in values] == [0.333333, 0.5, 3, True, True, 10**9, "0.1", None]
    assert [type(rounded(value)) for value in values[:5]] == [float, float, int, bool, bool]
    assert rounded(np.array(2.5)) == 2.5
    for bad in (float("nan"), np.inf):
        with pytest.raises(ValueError, match="finite"):
            rounded(bad)


def test_glue_keeps_rounded_values_under_their_names(monkeypatch):
    kept = {}
    monkeypatch.setattr("myst_nb.glue", lambda name, value, display: kept.update({name: value}))
    glue(gain=np.float64(2 / 3), n=256)
    assert kept == {"gain": 0.666667, "n": 256}


def test_record_shows_and_carries_its_verdict(shown):
    record("RA-P4.2", np.bool_(True), "smallest gain of prefix mass 0.0")
    record("RA-T2-T3", True, "0.12 against 0.12", kind="reproduced")
    record("WU-H", False, "sign differs", reason="a factor is missing")
    assert shown[0]["text/markdown"] == "**RA-P4.2** holds: smallest gain of prefix mass 0.0"
    assert shown[0][KEY] == {
        "row": "RA-P4.2", "verdict": "holds", "figure": "smallest gain of prefix mass 0.0", "reason": ""
    }  # fmt: skip
    assert shown[1][KEY]["verdict"] == "reproduced"
    assert shown[2]["text/plain"] == "WU-H deviates: sign differs (a factor is missing)"
    assert shown[2][KEY]["reason"] == "a factor is missing"


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("RA-P9.9", True, "1"), {}, "row: expected one of RA-eq1, .* received 'RA-P9.9'"),
        (("RA-P4.2", 1, "1"), {}, "passed: expected True or False"),
        (("RA-P4.2", True, " "), {}, "figure: expected what was measured"),
        (("RA-P4.2", True, "1"), {"kind": "proved"}, "kind: expected holds or reproduced"),
        (("RA-P4.2", False, "gain -0.1"), {}, "reason: expected why it deviates, received none; measured: gain -0.1"),
        (("RA-P4.2", False, "1"), {"reason": " "}, "reason: expected why"),
    ],
)
def test_wrong_records_are_refused(shown, arguments, options, message):
    with pytest.raises(ValueError, match=message):
        record(*arguments, **options)
    assert shown == []


def test_records_are_read_out_of_executed_notebooks(make_book):
    code = "from posbias.book.records import glue, record\nrecord('RA-P4.2', True, 'gain 0.0')\nglue(gain=1/3)"
    root = make_book(one=chapter_source("One", code))
    outcome = runner.run_chapter(root, "one")
    assert outcome.status == "written", outcome.message
    assert read_records(root / "notebooks") == [Record("RA-P4.2", "holds", "gain 0.0", "", "one")]
    glued = json.loads((root / "notebooks" / "one.ipynb").read_text())["cells"][1]["outputs"][1]
    assert glued["data"]["application/papermill.record/text/plain"] == ["0.333333"] or (
        glued["data"]["application/papermill.record/text/plain"] == "0.333333"
    )
    (root / "notebooks" / "two.ipynb").write_text("{}")
    with pytest.raises(ValueError, match="two.ipynb: expected a notebook"):
        read_records(root / "notebooks")
    with pytest.raises(FileNotFoundError):
        read_records(root / "none")


def test_ledger_has_every_row_once_with_its_chapters():
    rows = ledger.read_ledger()
    ids = [row.row for row in rows]
    assert len(ids) == len(set(ids)) == 51
    assert {row.source for row in rows} == {"RA", "WU", "LN", "AP", "X"}
    for row in rows:
        assert row.row.isascii() and row.row.startswith(f"{row.source}-")
        assert row.claim and row.check and row.chapters
    with files("posbias.book").joinpath("ledger.csv").open() as file:
        assert next(csv.reader(file)) == ["row", "source", "claim", "check", "chapter"]


def test_status_joins_rows_with_records():
    records = [
        Record("RA-P4.2", "holds", "gain 0.0", "", "02_forces"),
        Record("RA-P4.2", "deviates", "gain -1", "odd", "12_mixing"),
        Record("RA-eq1", "reproduced", "0.2", "", "01_rollout"),
    ]
    table = {status.row.row: status for status in ledger.status_table(records)}
    assert len(table) == len(ledger.read_ledger())
    assert table["RA-P4.2"].verdict == "deviates"
    assert table["RA-eq1"].verdict == "reproduced"
    assert table["RA-B"].verdict == "open"
    assert ledger.count_verdicts(table.values()) == {"holds": 0, "reproduced": 1, "deviates": 1, "open": 49}
    text = ledger.status_markdown([table["RA-P4.2"]], {"02_forces": "Four forces"})
    assert "gain 0.0<br>`12_mixing` deviates: gain -1 (odd)" in text
    assert "[Four forces](02_forces.ipynb)" in text
    assert all(line.count(" | ") == 4 for line in text.splitlines() if not line.startswith("|:"))
    with pytest.raises(ValueError, match="received 'XX'"):
        ledger.status_table([Record("XX", "holds", "1", "", "x")])


def test_committed_records_come_from_the_chapters_the_ledger_names():
    chapters = {row.row: row.chapters for row in ledger.read_ledger()}
    for found in read_records(ROOT / "notebooks"):
        assert found.chapter in chapters[found.row], found
