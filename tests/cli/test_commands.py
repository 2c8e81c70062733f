import os
import subprocess
import sys

import numpy as np
import pytest
import yaml
from rollout_config import BASE, changed

from posbias import alibi_slopes, cli
from posbias.published import numbers as authors
from posbias.rollout.profiles import read_profile, write_profile


def posbias(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "posbias", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def refused(result, *words, output=None):
    """One line on stderr that starts with the program's name, status 2, and no output file."""
    assert result.returncode == 2, result
    assert result.stderr.startswith("posbias: ") and result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr
    if output:
        assert not output.exists()


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(BASE))
    return path


def test_rollout_writes_the_profile_at_full_precision(config, tmp_path):
    from posbias.published.configuration import read_config

    out = tmp_path / "p.csv"
    result = posbias("rollout", config, "--output", out)
    assert result.returncode == 0 and "6 tokens, 2 layers x 2 heads" in result.stdout
    assert (read_profile(out) == read_config(config).profile()).all()


def test_rollout_with_an_architecture_replaces_slopes_and_scale(config, tmp_path):
    from posbias.published.configuration import read_config

    out = tmp_path / "p.csv"
    assert posbias("rollout", config, "-o", out, "--architecture", "falcon", "--head-dim", 4).returncode == 0
    slopes = [(alibi_slopes(2) / 2).tolist()]
    content = {"diagonal_scores": [[0.5, 1], [1.5, 2]], "base_scores": [[0.0]]}
    config.write_text(yaml.safe_dump(changed(attention_config__alibi_slopes=slopes, content_config=content)))
    assert np.allclose(read_profile(out), read_config(config).profile(), atol=1e-14)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--architecture", "gpt", "--head-dim", "4"], ["bloom, mpt, falcon", "gpt"]),
        (["--architecture", "bloom"], ["both or neither"]),
        (["--architecture", "bloom", "--head-dim", "0"], ["head_dim", "at least 1", "0"]),
        (["--length", "0"], ["sequence_length", "at least 1", "0"]),
    ],
)
def test_bad_options_of_rollout_are_refused(config, tmp_path, options, words):
    out = tmp_path / "p.csv"
    refused(posbias("rollout", config, "-o", out, *options), *words, output=out)


def test_bad_files_of_rollout_are_refused(config, tmp_path):
    out = tmp_path / "p.csv"
    refused(posbias("rollout", tmp_path / "none.yaml", "-o", out), "none.yaml", output=out)
    config.write_text(yaml.safe_dump(changed(sequence_length=-1)))
    refused(posbias("rollout", config, "-o", out), "sequence_length", "received -1", output=out)
    config.write_text("")
    refused(posbias("rollout", config, "-o", out), "empty file", output=out)


def test_an_output_that_cannot_be_written_is_refused(config, tmp_path):
    refused(posbias("rollout", config, "-o", tmp_path / "no" / "p.csv"), "p.csv")
    refused(posbias("rollout", config, "-o", tmp_path), str(tmp_path))


def test_compare_prints_distance_correlation_and_means(tmp_path):
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    write_profile(first, [0.5, 0.25, 0.25])
    write_profile(second, [0.25, 0.25, 0.5])
    lines = posbias("compare", first, second).stdout.splitlines()
    assert lines[0].split()[-1] == "0.250000" and lines[1].split() == ["Spearman", "-0.500000"]
    assert lines[2].split()[-1] == "0.375000" and lines[3].split()[-1] == "0.625000"
    assert "yes" in lines[4]


def test_profiles_of_different_lengths_are_refused(tmp_path):
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    write_profile(first, [0.5, 0.5])
    write_profile(second, [0.25, 0.25, 0.5])
    refused(posbias("compare", first, second), "same number of positions", "2 and 3")


def test_what_is_no_profile_is_refused(tmp_path):
    first, second = tmp_path / "a.csv", tmp_path / "b.nc"
    write_profile(first, [0.5, 0.5])
    second.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(range(256)))
    refused(posbias("compare", first, second), "b.nc: expected a CSV file with a profile, received another format")


def test_published_lists_what_ships_and_what_is_missing(tmp_path):
    result = posbias("published", POSBIAS_DATA=str(tmp_path))
    assert result.returncode == 0 and not result.stderr
    assert "--config bloom: 70 layers x 112 heads, 256 tokens" in result.stdout and "--figure measured" in result.stdout
    assert result.stdout.count("  missing  ") == 41 and "  ok  " not in result.stdout


def test_a_published_configuration_is_written_and_rolled_out(tmp_path):
    """Offline, with nothing but the package: the file equals the configuration, and the profile is its own."""
    from posbias.published.configuration import read_config

    out, profile = tmp_path / "config.yaml", tmp_path / "p.csv"
    choice = ["--config", "bloom", "--content", "mean", "--corpus", "fineweb-edu", "--no-residual"]
    result = posbias("published", *choice, "-o", out, POSBIAS_DATA=str(tmp_path / "nothing"))
    assert result.returncode == 0 and "70 layers x 112 heads, 256 tokens" in result.stdout
    config = authors.config("bloom", "mean", residual=False)
    assert read_config(out) == config
    assert posbias("rollout", out, "-o", profile).returncode == 0
    assert (read_profile(profile) == config.profile()).all()


def test_a_published_curve_is_written(tmp_path):
    out = tmp_path / "m.csv"
    assert posbias("published", "--figure", "measured", "-o", out, POSBIAS_DATA=str(tmp_path)).returncode == 0
    assert (read_profile(out) == authors.measured_profile()).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--config", "gpt-2", "-o", "OUT"], ["model", "falcon-rw-7b, mpt-7b, mpt-30b, bloom-7b1, bloom", "gpt-2"]),
        (["--config", "bloom", "--content", "some", "-o", "OUT"], ["content", "none, mean, all", "some"]),
        (["--config", "bloom", "--corpus", "c4", "-o", "OUT"], ["corpus", "fineweb-edu, dclm, wikipedia", "c4"]),
        (["--config", "bloom", "--content", "mean", "--corpus", "dclm", "-o", "OUT"], ["expected fineweb-edu", "dclm"]),
        (["--config", "", "-o", "OUT"], ["model", "falcon-rw-7b"]),
        (["--config", "bloom", "--content", "", "-o", "OUT"], ["content", "none, mean, all"]),
        (["--figure", "figure 7", "-o", "OUT"], ["measured, bloom, bloom_content, no_residual", "figure 7"]),
        (["--figure", "bloom"], ["--output", "none"]),
        (["--config", "bloom"], ["--output", "none"]),
        (["-o", "OUT"], ["only with them"]),
        (["--no-residual"], ["only with --config"]),
        (["--figure", "measured", "--corpus", "dclm", "-o", "OUT"], ["only with --config"]),
        (["--verify", "--download"], ["--verify", "--download"]),
        (["--config", "bloom", "--figure", "measured", "-o", "OUT"], ["--config and --figure"]),
    ],
)
def test_bad_options_of_published_are_refused(tmp_path, capsys, options, words):
    out = tmp_path / "out"
    with pytest.raises(SystemExit) as ended:
        cli.main(["published", *(str(out) if option == "OUT" else option for option in options)])
    said = capsys.readouterr()
    assert ended.value.code == 2 and said.out == "" and said.err.count("\n") == 1 and not out.exists()
    for word in words:
        assert word in said.err
