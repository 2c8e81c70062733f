"""Progress: a bar on a terminal, nothing where a run is short or nothing is asked for."""

import io
import sys
import time

from posbias.measure import progress as module
from posbias.measure.progress import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_short_run_says_nothing_in_a_log_and_a_longer_one_tells(capsys, monkeypatch):
    with progress(3, "prompts", "measuring") as bar:
        bar.update(3)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(module, "EVERY", 0.01)
    with progress(1, "model", "loading"):
        time.sleep(0.2)
    assert capsys.readouterr().err.count("loading") > 2, "a sign of life though no step has ended"
    monkeypatch.setattr(module, "EVERY", 0.3)
    for _ in range(4):
        with progress(1, "step", "one of many"):
            time.sleep(0.2)
    assert 1 <= capsys.readouterr().err.count("\rone of many") <= 3, "short steps in a row are not silent together"
    monkeypatch.setattr(module, "EVERY", 0.01)
    with progress(3, "prompts", "measuring", done=1) as bar:
        time.sleep(0.02)
        bar.update(1, "loss 0.5")
    assert "measuring" in (told := capsys.readouterr().err) and "2/3" in told and "loss 0.5" in told


def test_on_a_terminal_there_is_a_bar_unless_it_is_not_to_be_shown(monkeypatch):
    for shown in (True, False):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        with progress(3, "prompts", "measuring", shown=shown) as bar:
            bar.update(3)
        assert ("3/3" in terminal.getvalue()) == shown
