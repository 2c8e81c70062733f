"""nbval, as `make notebooks` runs it: a committed number that is wrong by a thousandth fails, last digits do not."""

import os
import re
import shutil
import subprocess
import sys

from conftest import ROOT, chapter_source

from bookkit import runner

IMPORTS = "from bookkit.records import glue, record\nfrom bookkit.power import PowerCheck"
RECORDS = (
    "power = [PowerCheck('reversed', 3, 4)]\n"
    "record('RA-P4.2', True, f'gain {1 / 3:.6f}', fails_if='it falls', power=power)"
)


def test_a_record_that_is_wrong_by_a_thousandth_fails_and_noise_passes(make_book):
    root = make_book(right=chapter_source("Right", IMPORTS, RECORDS, "glue(gain=1 / 3)"))
    runner.run_chapter(root, "right")
    right = root / "notebooks" / "right.ipynb"
    committed = right.read_text()
    right.unlink()
    shutil.copy(ROOT / "notebooks" / "conftest.py", root / "notebooks")
    for name, number in (("noise", "0.333334"), ("wrong", "0.333667")):
        changed = committed.replace("gain 0.333333", f"gain {number}").replace('"0.333333"', f'"{number}"')
        (root / "notebooks" / f"{name}.ipynb").write_text(changed)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "nbval.plugin", "--nbval", "."]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=root / "notebooks", env=environment, capture_output=True, text=True, check=False)
    failed = re.findall(r"FAILED (\S+::Cell \d)", done.stdout)
    assert failed == ["wrong.ipynb::Cell 1", "wrong.ipynb::Cell 2"], done.stdout + done.stderr
    assert "gain 0.333667, received" in done.stdout
    assert "glued gain: expected 0.333667, received 0.333333" in done.stdout
