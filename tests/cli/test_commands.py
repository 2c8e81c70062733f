"""Commands that compute, in this process: what they write, and that nothing of a user's is overwritten."""

import subprocess
import sys

import numpy as np
import pytest
import yaml
from rollout_config import BASE, changed

from posbias import alibi_slopes, cli
from posbias.published import numbers as authors
from posbias.published.configuration import read_config
from posbias.rollout.profiles import read_profile, write_profile


@pytest.fixture
def posbias(capsys):
    """Return a function that runs a command line; it returns exit status, stdout and stderr."""

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            cli.main([*map(str, arguments)])
        return ended.value.code, *capsys.readouterr()

    return run


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(BASE))
    return path


def test_the_program_is_there():
    done = subprocess.run([sys.executable, "-m", "posbias", "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("posbias ") and not done.stderr


def test_rollout_writes_the_profile_at_full_precision(posbias, config, tmp_path):
    out = tmp_path / "p.csv"
    status, said, _ = posbias("rollout", config, "--output", out)
    assert status == 0 and "6 tokens, 2 layers x 2 heads" in said
    assert (read_profile(out) == read_config(config).profile()).all()
    assert posbias("rollout", config, "-o", out, "-n", 9)[0] == 2 and read_profile(out).size == 6
    assert posbias("rollout", config, "-o", out, "-n", 9, "--overwrite")[0] == 0 and read_profile(out).size == 9


def test_rollout_with_an_architecture_replaces_slopes_and_scale(posbias, config, tmp_path):
    out = tmp_path / "p.csv"
    assert posbias("rollout", config, "-o", out, "--architecture", "falcon", "--head-dim", 4)[0] == 0
    slopes = [(alibi_slopes(2) / 2).tolist()]
    content = {"diagonal_scores": [[0.5, 1], [1.5, 2]], "base_scores": [[0.0]]}
    config.write_text(yaml.safe_dump(changed(attention_config__alibi_slopes=slopes, content_config=content)))
    assert np.allclose(read_profile(out), read_config(config).profile(), atol=1e-14)


def test_compare_prints_distance_correlation_and_means(posbias, tmp_path):
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    write_profile(first, [0.5, 0.25, 0.25])
    write_profile(second, [0.25, 0.25, 0.5])
    lines = posbias("compare", first, second)[1].splitlines()
    assert lines[0].split()[-1] == "0.250000" and lines[1].split() == ["Spearman", "-0.500000"]
    assert lines[2].split()[-1] == "0.375000" and lines[3].split()[-1] == "0.625000"
    assert "yes" in lines[4]


def test_what_the_authors_published_is_rolled_out_and_written(posbias, tmp_path, monkeypatch):
    """Offline, with nothing but the package: the profile is the configuration's own, and the file equals it."""
    monkeypatch.setenv("POSBIAS_DATA", str(tmp_path / "nothing"))
    choice = ["--published", "bloom", "--content", "mean", "--corpus", "fineweb-edu", "--no-residual"]
    config = authors.config("bloom", "mean", residual=False)
    for name in ("p.csv", "c.yaml"):
        status, said, _ = posbias("rollout", *choice, "-o", tmp_path / name)
        assert status == 0 and "256 tokens, 70 layers x 112 heads" in said or "70 layers x 112 heads, 256" in said
    assert (read_profile(tmp_path / "p.csv") == config.profile()).all() and read_config(tmp_path / "c.yaml") == config
    assert posbias("rollout", "--published", "mpt-7b", "-n", 9, "-o", tmp_path / "short.csv")[0] == 0
    assert (read_profile(tmp_path / "short.csv") == authors.config("mpt-7b").at_length(9).profile()).all()


@pytest.mark.parametrize(("name", "figure"), [("measured", "measured"), ("figure/bloom_content", "bloom_content")])
def test_a_published_curve_is_written(posbias, tmp_path, name, figure):
    assert posbias("rollout", "--published", name, "-o", tmp_path / "m.csv")[0] == 0
    assert (read_profile(tmp_path / "m.csv") == authors.figure_profile(figure)).all()
