import csv
import dataclasses
import json
import re
from importlib.resources import files

import numpy as np
import pytest
from conftest import ROOT, chapter_source

from bookkit import ledger, runner
from bookkit.ledger import Record
from bookkit.power import PowerCheck
from bookkit.records import KEY, MADE, read_glued, read_records, record, rounded, show_verdicts


@pytest.fixture
def shown(monkeypatch):
    """Collect what is displayed instead of displaying it."""
    bundles = []
    monkeypatch.setattr(
        "IPython.display.display", lambda data, metadata=None, **_: bundles.append({**data, **(metadata or {})})
    )
    return bundles


def test_rounded_gives_plain_numbers():
    values = [np.float64(1 / 3), np.float32(0.5), np.int64(3), True, np.bool_(True), 10**9, "0.1", None]
    assert [rounded(value) for value in values] == [0.333333, 0.5, 3, True, True, 10**9, "0.1", None]
    assert [type(rounded(value)) for value in values[:5]] == [float, float, int, bool, bool]
    assert rounded(np.array(2.5)) == 2.5
    for bad in (float("nan"), np.inf):
        with pytest.raises(ValueError, match="finite"):
            rounded(bad)


STRONG = [PowerCheck("λ reversed", 19, 20), PowerCheck("ALiBi slopes halved", 10, 20)]
WEAK = [PowerCheck("λ reversed", 20, 20), PowerCheck("content shuffled", 9, 20)]
BLIND = [PowerCheck("λ reversed", 0, 20), PowerCheck("content shuffled", 0, 1)]
CHECK = {"fails_if": "a prefix mass falls with depth", "power": STRONG}


def test_record_shows_and_carries_its_verdict(shown):
    record("RA-P4.2", np.bool_(True), "smallest gain 0.0", **CHECK)
    assert shown[0]["text/markdown"] == (
        "**RA-P4.2**: **consistent**. smallest gain 0.0. *Fails if* a prefix mass falls with depth. "
        "*Power:* 19/20 λ reversed; 10/20 ALiBi slopes halved."
    )
    assert shown[0][KEY] == {
        "row": "RA-P4.2", "verdict": "consistent", "figure": "smallest gain 0.0", "reason": "",
        "fails_if": "a prefix mass falls with depth", "power": 0.5,
        "challenges": ["19/20 λ reversed", "10/20 ALiBi slopes halved"], "part": "", "set_after": False,
    }  # fmt: skip
    record("WU-H", False, "sign differs", reason="a factor is missing", part="printed proof", post_hoc=True, **CHECK)
    assert shown[1]["text/plain"].startswith(
        "WU-H, printed proof contradicted: sign differs (a factor is missing); threshold set after the run. Fails if"
    )


def test_verdicts_of_a_page_are_one_table(shown):
    MADE.clear()
    record("WU-H", True, "the peak moves", part="statement", **CHECK)
    record("X-decay", False, "1 of 3 differs", reason="a factor is missing", **CHECK)
    lines = [
        ("X-decay", "", "Products have a closed form.", "One differs."),
        ("WU-H", "statement", "The peak moves away.", "It does."),
    ]
    show_verdicts(lines)
    tested = '– <a href="verdicts.html#{}">test</a> |'
    assert shown[-1]["text/markdown"].splitlines()[2:] == [
        "| Products have a closed form. | One differs. | **contradicted** " + tested.format("x-decay"),
        "| The peak moves away. | It does. | **consistent** " + tested.format("wu-h-statement"),
    ]
    inside = shown[-1]["text/markdown"]
    show_verdicts(lines, fold="Both claims")
    assert shown[-1]["text/markdown"] == f":::{{dropdown}} Both claims\n{inside}\n:::"
    for wrong in (lines[:1], [*lines, ("AP-1", "", "A claim.", "A finding.")]):
        with pytest.raises(ValueError, match="one for each record"):
            show_verdicts(wrong)


@pytest.mark.parametrize(
    ("passed", "options", "verdict"),
    [
        (True, {}, "consistent"),
        (True, {"power": WEAK}, "not refuted"),
        (True, {"kind": "proved", "power": WEAK}, "proved"),
        (True, {"kind": "reproduced"}, "reproduced"),
        (True, {"power": BLIND}, "vacuous"),
        (True, {"power": [*BLIND, PowerCheck("λ halved", 1, 20)]}, "not refuted"),
        (True, {"kind": "reproduced", "power": BLIND}, "vacuous"),
        (True, {"kind": "proved", "power": BLIND}, "proved"),
        (False, {"reason": "x", "power": BLIND}, "contradicted"),
        (False, {"reason": "x", "kind": "proved", "power": WEAK}, "contradicted"),
        (False, {"reason": "x", "in_part": True}, "contradicted in part"),
        (True, {"undecided": np.bool_(True)}, "undecided"),
        (True, {"undecided": True, "power": BLIND}, "undecided"),
        (False, {"undecided": True, "reason": "x"}, "contradicted"),
    ],
)
def test_the_scale_of_verdicts(shown, passed, options, verdict):
    record("RA-P4.2", passed, "1", **{**CHECK, **options})
    assert shown[0][KEY]["verdict"] == verdict


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("RA-P9.9", True, "1"), {}, "row: expected one of RA-eq1, .* received 'RA-P9.9'"),
        (("RA-P4.2", 1, "1"), {}, "passed: expected True or False"),
        (("RA-P4.2", True, " "), {}, "figure: expected a text"),
        (("RA-P4.2", True, "1"), {"fails_if": ""}, "fails_if: expected a text"),
        (("RA-P4.2", True, "1"), {"power": []}, "power: expected at least one alternative"),
        (("RA-P4.2", True, "1"), {"kind": "holds"}, "kind: expected consistent, proved, reproduced"),
        (("RA-P4.2", False, "gain -0.1"), {}, "reason: expected why the check did not pass, received none; .* -0.1"),
    ],
)
def test_wrong_records_are_refused(shown, arguments, options, message):
    with pytest.raises(ValueError, match=message):
        record(*arguments, **{**CHECK, **options})
    assert shown == []


def test_records_are_read_out_of_executed_notebooks(make_book):
    code = (
        "from bookkit.records import glue, record\nfrom bookkit.power import PowerCheck\n"
        "power = [PowerCheck('reversed', 3, 4)]\n"
        "record('RA-P4.2', True, 'gain 0.0', fails_if='it falls', power=power)\nglue(gain=1/3)"
    )
    root = make_book(one=chapter_source("One", code))
    outcome = runner.run_chapter(root, "one")
    assert outcome.status == "written", outcome.message
    assert read_records(root) == [
        Record("RA-P4.2", "consistent", "gain 0.0", "", "it falls", 0.75, ("3/4 reversed",), chapter="one")
    ]
    assert read_glued(root) == {"gain": 0.333333}
    glued = json.loads((root / "notebooks" / "one.ipynb").read_text())["cells"][1]["outputs"][1]
    assert glued["data"]["application/papermill.record/text/plain"] == ["0.333333"] or (
        glued["data"]["application/papermill.record/text/plain"] == "0.333333"
    )
    (root / "notebooks" / "one.ipynb").write_text("{}")
    with pytest.raises(ValueError, match="one.ipynb: expected a notebook"):
        read_records(root)


def test_ledger_has_every_row_once_with_its_chapters():
    rows = ledger.read_ledger()
    ids = [row.row for row in rows]
    assert len(ids) == len(set(ids)) >= 86
    sources = {"RA", "WU", "LN", "AP", "X", "BI", "DS", "RT", "GF", "C", "S", "Y", "D", "L", "R", "M", "P"}
    assert {row.source for row in rows} == sources
    for row in rows:
        assert row.row.isascii() and row.row.startswith(f"{row.source}-")
        assert row.claim and row.check and row.chapters
    with files("bookkit").joinpath("ledger.csv").open() as file:
        assert next(csv.reader(file)) == ["row", "source", "claim", "check", "chapter", "ours"]


def test_twelve_headlines_with_two_numbers_at_most():
    with files("bookkit").joinpath("headlines.csv").open(encoding="utf-8") as file:
        heads = list(csv.DictReader(file))
    assert len(heads) == 12 and {x["row"] for x in heads} <= {row.row for row in ledger.read_ledger()}
    parts = {(record.row, record.part) for record in read_records(ROOT)}
    for head in heads:
        claim = head["headline"].replace("SmolLM2", "").replace("BLOOM-176B", "")
        assert not re.search(r"\d|\bproved|contradict|refute|reproduce", claim), head["row"]
        assert not head["parts"] or {(head["row"], part) for part in head["parts"].split("; ")} <= parts, head["row"]
        assert head["margin"] or not re.search(r"\b(no|not|none|never|exactly)\b", head["headline"]), head["row"]
        for sentence in filter(None, (head["headline"], head["seen"], head["margin"])):
            assert not sentence[0].islower() and sentence.endswith(".") and "\n" not in sentence
        assert head["seen"].count("{") <= 2, head["row"]


def entry(row, verdict, *, power=1.0, part="", reason="", chapter="x"):
    return Record(row, verdict, "gain 0.0", reason, "it falls", power, ("3/4 reversed",), part, False, chapter)


def test_status_joins_rows_with_records():
    records = [
        entry("RA-P4.2", "consistent", chapter="forces"),
        entry("RA-P4.2", "contradicted in part", power=0.75, reason="odd", chapter="mixing"),
        dataclasses.replace(entry("RA-eq1", "reproduced"), challenges=("19/20 λ reversed", "9/20 λ halved")),
        entry("WU-H", "proved", part="statement"),
        entry("WU-H", "contradicted", part="printed proof", reason="a factor"),
    ]
    lines = ledger.status_table(records)
    table = {(status.row.row, status.part): status for status in lines}
    assert len(table) == len(lines) == len(ledger.read_ledger()) + 1
    assert table["RA-P4.2", ""].verdict == "contradicted in part"
    assert table["RA-P4.2", ""].power == 0.75
    assert (table["RA-eq1", ""].verdict, table["RA-eq1", ""].least_challenge) == ("reproduced", "9/20")
    assert table["RA-B", ""].verdict == "open"
    assert [table["WU-H", part].verdict for part in ("statement", "printed proof")] == ["proved", "contradicted"]
    assert (table["RA-P4.2", ""].standing, table["WU-H", "printed proof"].standing) == ("holds in part", "fails")
    with pytest.raises(ValueError, match="received 'XX'"):
        ledger.status_table([entry("XX", "consistent")])


def test_the_status_page_says_what_each_verdict_counts_as():
    rows = re.findall(r"^\| ([a-z ]+) \| \{glue.*?\| ([a-z ]+) \|", (ROOT / "book/status.md").read_text(), re.MULTILINE)
    assert dict(rows) == {verdict: ledger.PLAIN[verdict] for verdict in ledger.VERDICTS if verdict != "open"}


def test_committed_lines_have_a_place_each_on_the_status_page():
    places = [ledger.anchor(status.row.row, status.part) for status in ledger.status_table(read_records(ROOT))]
    assert len(set(places)) == len(places)


def test_a_part_that_no_paper_claims_is_ours():
    records = [entry("WU-T4.1", "proved", part=part) for part in ("statement", "our constants")]
    found = {(x.row.row, x.part): x for x in ledger.status_table([*records, entry("D-U", "consistent", part="one")])}
    assert [found["WU-T4.1", part].origin for part in ("statement", "our constants")] == ["WU", "ours"]
    assert [found[row, ""].origin for row in ("LN-rebuttal", "RA-mean")] == ["others", "ours"]
    text = ledger.headlines_markdown(list(found.values()), {}, read_glued(ROOT))
    assert "#d-u-one" in text and "#wu-t4-1" not in text and text.count("\n") == 11
    late = [dataclasses.replace(entry("D-U", "consistent", part="one"), post_hoc=True)]
    marked = ledger.headlines_markdown(ledger.status_table(late), {}, read_glued(ROOT))
    assert "†" not in text and marked.count("</a>**†. ") == 1
    assert "| this book | " in ledger.status_markdown([x for x in found.values() if x.row.row == "WU-T4.1"], {})


def test_committed_records_have_the_parts_that_the_ledger_calls_ours():
    parts = {(record.row, record.part) for record in read_records(ROOT)}
    assert [(row.row, part) for row in ledger.read_ledger() for part in row.ours if (row.row, part) not in parts] == []


def test_committed_records_come_from_the_chapters_the_ledger_names():
    chapters = {row.row: row.chapters for row in ledger.read_ledger()}
    for found in read_records(ROOT):
        assert found.chapter in chapters[found.row], found


def test_committed_records_are_vacuous_where_their_checks_noticed_nothing():
    weighed = [x for x in read_records(ROOT) if x.verdict in ("reproduced", "consistent", "not refuted", "vacuous")]
    blind = [x for x in weighed if all(text.startswith("0/") for text in x.challenges)]
    assert blind == [x for x in weighed if x.verdict == "vacuous"] != []
