"""nbval, as `make notebooks` runs it: a committed number that is wrong by a thousandth fails, last digits do not."""

import shutil
import subprocess
import sys

from conftest import ROOT, chapter_source

from bookkit import runner

CODE = (
    "from bookkit.records import glue, record\nfrom bookkit.power import PowerCheck\n"
    "power = [PowerCheck('reversed', 3, 4)]\n"
    "record('RA-P4.2', True, f'gain {1 / 3:.6f}', fails_if='it falls', power=power)\nglue(gain=1 / 3)"
)


def test_a_record_that_is_wrong_by_a_thousandth_fails_and_noise_passes(make_book):
    root = make_book(right=chapter_source("Right", CODE))
    runner.run_chapter(root, "right")
    committed = (root / "notebooks" / "right.ipynb").read_text()
    shutil.copy(ROOT / "notebooks" / "conftest.py", root / "notebooks")
    for name, record, glued in (
        ("noise", "0.333334", "0.333334"),
        ("record", "0.333667", "0.333333"),
        ("glue", "0.333333", "0.333667"),
    ):
        changed = committed.replace("gain 0.333333", f"gain {record}").replace('"0.333333"', f'"{glued}"')
        (root / "notebooks" / f"{name}.ipynb").write_text(changed)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval", "notebooks"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    failed = {name for name in ("right", "noise", "record", "glue") if f"FAILED notebooks/{name}.ipynb" in done.stdout}
    assert failed == {"record", "glue"}, done.stdout + done.stderr
    assert "gain 0.333667, received" in done.stdout
    assert "glued gain: expected 0.333667, received 0.333333" in done.stdout
