"""Runs that are asked to end, killed, or out of disk: one line, a checkpoint to go on from, and nothing else left."""

import os
import signal
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("xarray", reason="xarray is not installed")

import xarray as xr
from conftest import ROOT
from measuring import save, write_documents

from posbias import (
    files,
    netcdf,
)
from posbias.cli import main
from posbias.files import remove_orphans, whole_file, write_whole
from posbias.measure import checkpoint
from posbias.measure.instrument import Instrument
from posbias.measure.unfinished import Terminated, held_back, sigterm_raises
from studies import driver
from studies.icl import optimisation

SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143}
ICL = ["train-icl", "--iterations", "6", "--batch-size", "4", "--seeds", "1", "--tested", "20", "-o"]
ICL_NAME = "mixture-none-causal-none-2-plain"


def ended(words, capsys):
    """Run a command line in this process and return its status and what it says on stderr but for progress."""
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    told = capsys.readouterr().err.splitlines()
    return end.value.code or 0, [line for line in told if line.startswith("posbias")]


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """Return a command line that measures a tiny model in four batches, without the output."""
    root = tmp_path_factory.mktemp("place")
    save(root / "bloom", "bloom")
    write_documents(root / "d.jsonl", [40] * 12)
    size = ["--prompts", "8", "--length", "16", "--batch-size", "2"]
    return ["measure", "--model", root / "bloom", "--dataset", root / "d.jsonl", *size, "-o"]


@pytest.mark.parametrize("number", SIGNALS)
def test_training_ends_after_a_whole_step_and_goes_on_to_the_same_bits(tmp_path, capsys, monkeypatch, number):
    assert ended([*ICL, tmp_path / "whole"], capsys) == (0, [])
    real = optimisation._Run.step

    def step(self, k):
        if k == 2:
            os.kill(os.getpid(), number)
        real(self, k)

    with monkeypatch.context() as patch:
        patch.setattr(optimisation._Run, "step", step)
        status, said = ended([*ICL, tmp_path / "cut"], capsys)
    left = tmp_path / "cut" / f"{ICL_NAME}.seed0.checkpoint"
    assert status == SIGNALS[number]
    assert said == [f"posbias: interrupted; {left} is left: the same command with --resume goes on"]
    assert [x.name for x in left.parent.iterdir()] == [left.name]
    assert torch.load(left, weights_only=True)["done"] == 3
    assert ended([*ICL, tmp_path / "cut", "--resume"], capsys) == (0, [])
    one, two = (netcdf.load(tmp_path / x / f"{ICL_NAME}.nc").drop_attrs() for x in ("whole", "cut"))
    assert one.identical(two) and [x.suffix for x in left.parent.iterdir()] == [".nc"]


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("every", [0, 60])
def test_a_measurement_that_is_asked_to_end_says_what_is_left(words, tmp_path, capsys, monkeypatch, number, every):
    real, calls = Instrument.measure, []

    def measure(self, *rest):
        calls.append(1)
        if len(calls) == 3:
            os.kill(os.getpid(), number)
        return real(self, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Instrument, "measure", measure)
        status, said = ended([*words, tmp_path / "m.nc", "--checkpoint-every", every], capsys)
    left = tmp_path / "m.nc.rank0.checkpoint"
    there = [x.name for x in tmp_path.iterdir()]
    assert status == SIGNALS[number] and len(said) == 1 and set(there) <= {left.name}
    if every == 0 or there:
        assert said == [f"posbias: interrupted; {left} is left: the same command with --resume goes on"]
        assert ended([*words, tmp_path / "m.nc", "--resume"], capsys) == (0, [])
        assert [x.name for x in tmp_path.iterdir()] == ["m.nc"]
    else:
        assert said == ["posbias: interrupted; no checkpoint was written yet"]


def test_a_study_that_is_asked_to_end_keeps_its_files(tmp_path, capsys, monkeypatch):
    def fail(*_):
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(driver, "write", fail)
    asked = ["study", "hops", "--only", "bloom-8", "--prompts", 2, "--length", 8, "-o", tmp_path]
    assert ended(asked, capsys) == (143, ["posbias: interrupted; no file was made yet"])
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []


def test_a_request_waits_for_a_step_and_a_second_one_does_not():
    before = signal.getsignal(signal.SIGINT)  # in the background shells leave it ignored
    with pytest.raises(Terminated), held_back() as asked:
        assert not asked
        os.kill(os.getpid(), signal.SIGTERM)
        assert asked and asked.signal == signal.SIGTERM
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("not reached")
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(("error", "number"), [(Terminated, 143), (KeyboardInterrupt, 130)])
def test_a_request_while_a_class_is_made_is_no_traceback(capsys, monkeypatch, error, number):
    class Late:
        def __set_name__(self, owner, name):
            raise error

    monkeypatch.setattr("posbias.cli.make_app", lambda: lambda **_: type("Made", (), {"field": Late()}))
    with pytest.raises(SystemExit) as ended:
        main(["chapters"])
    assert ended.value.code == number and capsys.readouterr().err == "posbias: interrupted\n"


def test_what_is_open_is_closed_on_sigterm(tmp_path):
    with pytest.raises(Terminated), sigterm_raises(), whole_file(tmp_path / "out") as temporary:
        temporary.write_text("half")
        os.kill(os.getpid(), signal.SIGTERM)
    assert list(tmp_path.iterdir()) == []


DYING = """
import os, signal, sys
from pathlib import Path
from posbias.files import whole_file
with whole_file(Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed_by_the_next_write(tmp_path, monkeypatch):
    path = tmp_path / "out.nc"
    path.write_text("old")
    done = subprocess.run([sys.executable, "-c", DYING, str(path)], cwd=ROOT)
    assert done.returncode == -signal.SIGKILL and len(list(tmp_path.iterdir())) == 2
    other = tmp_path / f".out.nc.{files._host()}.{os.getpid()}.abc"  # of a process that lives
    foreign = tmp_path / ".out.nc.00000000.1.abc"  # of another host
    unlike = tmp_path / ".out.nc.backup"
    for name in (other, foreign, unlike):
        name.write_text("")
    remove_orphans(tmp_path / "another.nc")
    assert len(list(tmp_path.iterdir())) == 5
    write_whole(path, "new")
    assert {x.name for x in tmp_path.iterdir()} == {"out.nc", other.name, foreign.name, unlike.name}
    assert path.read_text() == "new"


FULL = """
import resource, sys
from posbias.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
main(sys.argv[1:])
"""


def limited(words):
    """Run a command line in a process that may write 2,000 bytes to a file, as on a disk that is nearly full."""
    return subprocess.run(
        [sys.executable, "-c", FULL, *map(str, words)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.mark.parametrize("every", [0, 60])
def test_a_full_disk_ends_a_measurement_in_one_line(words, tmp_path, every):
    done = limited([*words, tmp_path / "m.nc", "--checkpoint-every", every])
    name = "m.nc.rank0.checkpoint"  # there is one of the last batch in any case, before the result
    assert done.returncode == 2 and f"{tmp_path / name}: File too large" in done.stderr, done
    assert done.stderr.splitlines()[-1].startswith("posbias: ") and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_keeps_the_previous_checkpoint_of_a_measurement(words, tmp_path, capsys, monkeypatch):
    real, calls = checkpoint.save, []

    def once(*rest):
        real(*rest)
        calls.append(1)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", once)
        assert ended([*words, tmp_path / "m.nc", "--checkpoint-every", 0], capsys)[0] == 130
    left = tmp_path / "m.nc.rank0.checkpoint"
    before = left.read_bytes()
    done = limited([*words, tmp_path / "m.nc", "--checkpoint-every", 0, "--resume"])
    assert done.returncode == 2 and f"{left}: File too large; the previous checkpoint is kept" in done.stderr, done
    assert left.read_bytes() == before and [x.name for x in tmp_path.iterdir()] == [left.name]


def test_netcdf_files_are_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path, data = tmp_path / "x.nc", xr.Dataset({"x": ("k", [1.0, 2.0])}, attrs={"said": "λ"})
    netcdf.write(path, data, {"x": {"zlib": True}})
    assert netcdf.load(path).identical(data)
    monkeypatch.setattr(files.os, "replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        netcdf.write(path, data)
    assert netcdf.load(path).identical(data) and [x.name for x in tmp_path.iterdir()] == ["x.nc"]
