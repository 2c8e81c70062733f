"""Commands that compute, in this process: what they write, and that nothing of a user's is overwritten."""

import subprocess
import sys

import pytest
import yaml
from rollout_config import BASE

from posbias import cli
from posbias.configuration import read_config
from posbias.rollout.profiles import read_profile, write_profile


@pytest.fixture
def posbias(capsys):
    """Return a function that runs a command line; it returns exit status, stdout and stderr."""

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            cli.main([*map(str, arguments)])
        return ended.value.code, *capsys.readouterr()

    return run


def test_the_program_is_there():
    done = subprocess.run([sys.executable, "-m", "posbias", "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("posbias ") and not done.stderr


def test_rollout_writes_the_profile_at_full_precision(posbias, tmp_path):
    config, out = tmp_path / "config.yaml", tmp_path / "p.csv"
    config.write_text(yaml.safe_dump(BASE))
    status, said, _ = posbias("rollout", config, "--output", out)
    assert status == 0 and "6 tokens, 2 layers x 2 heads" in said
    assert (read_profile(out) == read_config(config).profile()).all()
    out.write_text("")
    assert posbias("rollout", config, "-o", out)[0] == 2 and not out.read_text()
    assert posbias("rollout", config, "-o", out, "--overwrite")[0] == 0 and read_profile(out).size == 6


def test_compare_prints_distance_correlation_and_means(posbias, tmp_path):
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    write_profile(first, [0.5, 0.25, 0.25])
    write_profile(second, [0.25, 0.25, 0.5])
    lines = posbias("compare", first, second)[1].splitlines()
    assert lines[:2] == ["a.csv", "against b.csv, 3 positions"]
    assert [lines[2], *lines[4:6]] == ["W1 0.250", "total variation 0.250", "rank correlation -0.500"]
    assert lines[6].startswith("means 0.375 and 0.625; the first is nearer the start")
