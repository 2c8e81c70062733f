"""Runs that are asked to end, or out of disk: one line, a checkpoint to go on from, and nothing else left."""

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
from measuring import arguments, save, status, write_documents

from posbias import files, netcdf
from posbias.cli import main
from posbias.files import whole_file
from posbias.measure.instrument import Instrument
from posbias.measure.unfinished import Terminated, held_back, sigterm_raises

SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("place")
    save(root / "bloom", "bloom")
    write_documents(root / "d.jsonl", [40] * 12)
    return root


@pytest.mark.parametrize("number", SIGNALS)
def test_a_measurement_that_is_asked_to_end_leaves_a_checkpoint_of_the_batch_at_work(
    place, tmp_path, capsys, monkeypatch, number
):
    words, real, calls = arguments(place, tmp_path / "m.nc"), Instrument.measure, []

    def measure(self, *rest):
        calls.extend(rest[1:2])  # none in the self-check
        if len(calls) == 3:
            os.kill(os.getpid(), number)
        return real(self, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Instrument, "measure", measure)
        code, _, err = status(capsys, words)
    left = tmp_path / "m.nc.rank0.checkpoint"
    assert code == SIGNALS[number] and list(tmp_path.iterdir()) == [left]
    assert err == f"posbias: interrupted; {left} is left: the same command with --resume goes on\n"
    assert torch.load(left, weights_only=True)["done"] == 3
    assert status(capsys, [*words, "--resume"])[0] == 0
    assert [x.name for x in tmp_path.iterdir()] == ["m.nc"]


def test_before_the_first_batch_there_is_nothing_to_go_on_from(place, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("posbias.measure.session.Session.check", lambda *_: signal.default_int_handler(2, None))
    code, _, err = status(capsys, arguments(place, tmp_path / "m.nc"))
    assert code == 130 and err == "posbias: interrupted; no checkpoint was written yet\n"


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

    monkeypatch.setattr("posbias.cli.make_app", lambda *_: lambda **_: type("Made", (), {"field": Late()}))
    with pytest.raises(SystemExit) as ended:
        main(["chapters"])
    assert ended.value.code == number and capsys.readouterr().err == "posbias: interrupted\n"


def test_what_is_open_is_closed_on_sigterm(tmp_path):
    with pytest.raises(Terminated), sigterm_raises(), whole_file(tmp_path / "out") as temporary:
        temporary.write_text("half")
        os.kill(os.getpid(), signal.SIGTERM)
    assert list(tmp_path.iterdir()) == []


FULL = """
import resource, sys
from posbias.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
main(sys.argv[1:])
"""


def test_a_full_disk_ends_a_measurement_in_one_line(place, tmp_path):
    """In a process that may write 2,000 bytes to a file: the checkpoint of the last batch, before the result."""
    words = [sys.executable, "-c", FULL, *arguments(place, tmp_path / "m.nc")]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 2 and done.stderr == f"posbias: {tmp_path}/m.nc.rank0.checkpoint: File too large\n", done
    assert list(tmp_path.iterdir()) == []


def test_netcdf_files_are_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path, data = tmp_path / "x.nc", xr.Dataset({"x": ("k", [1.0, 2.0])}, attrs={"said": "λ"})
    netcdf.write(path, data, {"x": {"zlib": True}})
    assert netcdf.load(path).identical(data)
    monkeypatch.setattr(files.os, "replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        netcdf.write(path, data)
    assert netcdf.load(path).identical(data) and [x.name for x in tmp_path.iterdir()] == ["x.nc"]
