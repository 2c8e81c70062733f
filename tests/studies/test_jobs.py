"""Networks that are trained several at a time."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

WORK = """
import functools, os, sys, time
from studies.jobs import by_setting

def job(path):
    open(f"{path}.{os.getpid()}", "w").close()
    time.sleep(120)

if __name__ == "__main__":
    list(by_setting([functools.partial(job, sys.argv[1])] * 2, 1, 2))
"""


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="asks /proc which processes run")
def test_processes_end_with_the_one_that_began_them(tmp_path):
    """Two writers of one checkpoint would be there if a killed run were resumed while its processes train on."""
    (tmp_path / "work.py").write_text(WORK)
    parent = subprocess.Popen([sys.executable, str(tmp_path / "work.py"), str(tmp_path / "at")], cwd=tmp_path)
    try:
        workers = waited(lambda: [int(p.suffix[1:]) for p in tmp_path.glob("at.*")], lambda found: len(found) == 2)
        assert all(runs(worker) for worker in workers)
        os.kill(parent.pid, signal.SIGKILL)
        assert waited(lambda: [w for w in workers if runs(w)], lambda left: not left) == []
    finally:
        parent.kill()
        parent.wait()


def runs(process):
    """Return whether a process is there and is no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def waited(look, enough, seconds=60):
    """Return what is seen as soon as it is enough, or in the end."""
    until = time.monotonic() + seconds
    while not enough(seen := look()) and time.monotonic() < until:
        time.sleep(0.05)
    return seen
