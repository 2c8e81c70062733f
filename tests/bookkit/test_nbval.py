"""nbval, as `make notebooks` runs it: a committed number that is wrong by a thousandth fails, last digits do not."""

import os
import re
import shutil
import subprocess
import sys

from conftest import ROOT, chapter_source

from bookkit import runner

IMPORTS = "from bookkit.records import glue, record\nfrom bookkit.power import PowerCheck"
POWER = "power = [PowerCheck('reversed', 3, 4)]\n"
GAIN = POWER + "record('RA-P4.2', True, f'gain {1 / 3:.6f}', fails_if='it falls', power=power)"
LOSS = POWER + "record('RA-P4.3', True, f'loss {2 / 3:.6f}', fails_if='it falls', power=power)"


def test_a_record_that_is_wrong_by_a_thousandth_fails_and_noise_passes(make_book):
    root = make_book(both=chapter_source("Both", IMPORTS, GAIN, "glue(gain=1 / 3)", LOSS, "glue(loss=2 / 3)"))
    assert runner.run_chapter(root, "both").status == "written"
    notebook = root / "notebooks" / "both.ipynb"
    text = notebook.read_text()
    for name, own, committed in (("gain", "0.333333", "0.333334"), ("loss", "0.666667", "0.667333")):
        for wrapped in ("{} {}", '"{1}"'):  # as recorded, and as glued
            assert wrapped.format(name, own) in text
            text = text.replace(wrapped.format(name, own), wrapped.format(name, committed))
    notebook.write_text(text)
    shutil.copy(ROOT / "notebooks" / "conftest.py", root / "notebooks")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "nbval.plugin", "--nbval", "."]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=root / "notebooks", env=environment, capture_output=True, text=True, check=False)
    said = done.stdout
    assert re.findall(r"FAILED (\S+::Cell \d)", said) == ["both.ipynb::Cell 3", "both.ipynb::Cell 4"], (
        said + done.stderr
    )
    assert "loss 0.667333, received" in said
    assert "glued loss: expected 0.667333, received 0.666667" in said
