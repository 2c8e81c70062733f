"""A command that is killed for good: SIGKILL in a process of its own, while its second checkpoint is half written."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from posbias.cli import main
from posbias.measure import checkpoint

HERE = Path(__file__).parent


def killed(words, before=""):
    """Run a command line, after the statements ``before``, and assert that it was killed."""
    path = os.pathsep.join([str(HERE.parent), str(HERE), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, killed\n{before}\nkilled.run(sys.argv[1:])", *map(str, words)],
        cwd=HERE.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def run(words):
    """Run a command line in this process, which does not outlive its second checkpoint."""
    whole_file, written = checkpoint.whole_file, []

    @contextmanager
    def half_a_file(path):
        with whole_file(path) as file:
            yield file
            written.append(file)
            if len(written) == 2:
                os.truncate(file, file.stat().st_size // 2)
                os.kill(os.getpid(), signal.SIGKILL)

    checkpoint.whole_file = half_a_file
    main(words)
