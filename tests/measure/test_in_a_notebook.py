"""Measurements and profiles as other tools have them: in a notebook, in a figure of several, in pandas and xarray."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import command

import posbias
from posbias import Profile

N, LENGTH = 4, 16


@pytest.fixture(scope="module")
def measured(place):
    return posbias.open(place / "bloom").measure(prompts=N, length=LENGTH, dataset=place / "d.jsonl")


def test_several_in_one_figure_have_colours_of_their_own(measured):
    other = Profile(np.full(LENGTH, 1 / LENGTH), "even")
    ax = measured.influence.plot()
    assert other.plot(ax=ax, linestyle="--") is ax
    drawn = [line for line in ax.lines if line.get_label() in (measured.influence.name, "even")]
    assert len({line.get_color() for line in drawn}) == len(drawn) == 2 and len(ax.lines) == 3
    np.testing.assert_array_equal(drawn[0].get_ydata(), measured.influence.values)
    with pytest.raises(ValueError, match="ax: expected one axes"):
        other.plot(ax=np.zeros(2))


def test_progress_is_shown_where_it_is_asked_for(place, capsys, monkeypatch):
    asked = {"prompts": N, "length": LENGTH, "dataset": place / "d.jsonl"}
    posbias.open(place / "bloom").measure(**asked)
    assert "measuring" not in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: "a shell"))
    posbias.open(place / "bloom").measure(**asked, progress=True)
    assert f"{N}/{N}" in capsys.readouterr().err


def test_tables_of_other_libraries(measured):
    table = measured.to_pandas()
    np.testing.assert_array_equal(table["measured"], measured.influence.values)
    np.testing.assert_array_equal(table["layer-shares"], measured.rollout("b").values)


def test_two_measurements_are_compared_by_their_files(measured, tmp_path, capsys):
    file, profile = measured.save(tmp_path / "m.nc"), tmp_path / "p.csv"
    assert command("rollout", file, "--variant", "b", "-o", profile) == 0
    capsys.readouterr()
    assert command("compare", file, file) == 0 and "W1 0.000" in capsys.readouterr().out
    assert command("compare", profile, file) == 0
    found = posbias.compare(measured.rollout("b"), measured.influence)
    assert repr(found).splitlines()[2:] == capsys.readouterr().out.splitlines()[2:] and found.interval is not None


def test_the_shell_completes_commands():
    """What a shell asks for: names that begin with what was typed."""
    code = "from posbias.cli import main; main()"
    asked = {"_POSBIAS_COMPLETE": "complete_bash", "COMP_WORDS": "posbias re", "COMP_CWORD": "1"}
    import os

    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True)
    assert "report" in done.stdout.split(), done.stderr
