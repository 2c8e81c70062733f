"""Progress: lines in a log, a bar on a terminal, nothing where nothing is asked for."""

import io
import sys
import time

import pytest

from posbias.measure import progress as module
from posbias.measure.progress import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_short_run_says_nothing_and_a_longer_one_what_was_done(capsys, monkeypatch):
    with progress(3, "prompts", "measuring") as bar:
        bar.update(3)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(module.Progress, "seconds", 31)
    with progress(3, "prompts", "measuring") as bar:
        for _ in range(3):
            bar.update(note="loss 0.5")
    assert capsys.readouterr().err == "measuring: 3 prompts in 0:31, loss 0.5\n"


def test_a_long_run_tells_at_intervals_also_within_one_step(capsys, monkeypatch):
    monkeypatch.setattr(module, "EVERY", 0.05)
    with progress(40, "prompts", "measuring", done=20) as bar:
        time.sleep(0.12)
        bar.update(10)
        time.sleep(0.12)
    *told, last = capsys.readouterr().err.splitlines()
    assert told[0] == "measuring: 20/40 prompts, 0:00 so far"
    assert (
        told[-1].startswith("measuring: 30/40 prompts, ") and told[-1].endswith(" left") and " prompts/s, " in told[-1]
    )
    assert last == "measuring: 10 prompts in 0:00"


def test_the_rate_leaves_out_what_was_done_before(monkeypatch):
    bar = progress(100, "steps", "training", done=50)
    monkeypatch.setattr(time, "monotonic", lambda since=bar._since: since + 10)
    bar.update(20)
    assert bar.line() == "training: 70/100 steps, 2 steps/s, 0:15 left"
    bar.total = None
    assert bar.line() == "training: 70 steps, 2 steps/s"


def test_after_an_error_nothing_is_said(capsys):
    with pytest.raises(KeyError), progress(3, "prompts", "measuring") as bar:
        bar.update()
        raise KeyError
    assert capsys.readouterr().err == ""


def test_on_a_terminal_there_is_a_bar(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress(3, "prompts", "measuring") as bar:
        bar.update(3, "9 tokens/s")
    assert "measuring: 100%" in terminal.getvalue() and "3/3" in terminal.getvalue()
    assert "9 tokens/s" in terminal.getvalue()


def test_nothing_is_told_unless_asked_for(capsys):
    with progress(3, "prompts", "measuring", shown=False) as bar:
        bar.update()
    assert capsys.readouterr().err == ""
