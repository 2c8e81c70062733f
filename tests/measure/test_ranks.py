"""Several processes: one that is killed, those that wait for others, and what they leave to go on from."""

from contextlib import nullcontext

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("xarray", reason="xarray is not installed")

from measuring import EVERYTHING, agree, launched, save, status

from posbias.measure import processes as module
from posbias.measure.results import read_results

KILLED = """
import os, signal, sys, time
from pathlib import Path
from posbias.cli import main
from posbias.measure.instrument import Instrument

rank, started, done, real = os.environ["RANK"], Path(sys.argv[1]), [], Instrument.measure

def measure(self, *rest):
    done.extend(rest[1:2])  # none in the self-check
    if rank == "1" and len(done) == 3:
        while not started.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == "0" and len(done) == 2:
        started.touch()
        time.sleep(1)
    return real(self, *rest)

Instrument.measure = measure
main(sys.argv[2:])
"""


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """Return a command line without its output."""
    root = tmp_path_factory.mktemp("place")
    save(root / "bloom", "bloom")
    options = {"model": root / "bloom", "rule": "random", "prompts": 12, "length": 150, "batch-size": 2}
    options |= {"kernel-size": 130, "quantities": EVERYTHING}
    return ["measure", *(str(word) for name, x in options.items() for word in (f"--{name}", x))]


def test_when_one_process_is_killed_the_other_leaves_a_checkpoint_and_both_go_on(words, tmp_path, capsys, monkeypatch):
    script, output = tmp_path / "killed.py", tmp_path / "two.nc"
    script.write_text(KILLED)
    done = launched(script, tmp_path / "started", *words, "-o", output)
    assert done.returncode != 0 and done.stderr.count("posbias: ") == 1, done.stderr
    assert "posbias: interrupted" in done.stderr
    kept = [tmp_path / f"two.nc.rank{rank}.checkpoint" for rank in range(2)]
    assert [path.exists() for path in kept] == [True, False] and not output.exists()
    assert torch.load(kept[0], weights_only=True)["done"] == 2, "the batch at work was ended and kept"
    assert status(capsys, [*words, "-o", str(tmp_path / "one.nc")])[0] == 0
    resumed = [*words, "-o", str(output), "--resume"]
    done = launched("-m", "posbias", *resumed)
    assert done.returncode == 0, done.stderr
    one, two = read_results(tmp_path / "one.nc"), read_results(output)
    agree(one, two)
    assert {"attention_cells", "content_cells", "step_gain_cells", "rollout_own", "tokens"} <= set(two)
    assert not any(path.exists() for path in kept)


def test_a_process_waits_for_a_slow_one_longer_than_torch_would(monkeypatch):
    asked = []
    for name, x in {"RANK": 1, "WORLD_SIZE": 2, "MASTER_ADDR": "localhost", "MASTER_PORT": 29500}.items():
        monkeypatch.setenv(name, str(x))
    monkeypatch.setattr(module.distributed, "init_process_group", lambda backend: asked.append(backend))
    monkeypatch.setattr(module.distributed, "new_group", lambda **options: asked.append(options) or "own")
    monkeypatch.setattr(module.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(module.distributed, "destroy_process_group", lambda: asked.append("left"))
    monkeypatch.setattr(module.distributed, "all_reduce", lambda x, group: asked.append(group))
    with module.processes() as group:
        assert group.add_up(torch.ones(2)).tolist() == [1, 1]
    assert asked == ["gloo", {"backend": "gloo", "timeout": module.PATIENCE}, "own", "left"]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_checkpoint_beside_a_finished_result_is_cleared(words, tmp_path, monkeypatch, capsys, rank):
    """A process that is killed between the result and its checkpoint's removal leaves one that nobody needs."""
    from posbias.measure import run

    output, left = tmp_path / "m.nc", tmp_path / f"m.nc.rank{rank}.checkpoint"
    two = lambda: nullcontext(module.Processes(rank, 1))  # noqa: E731 - world 1: what the file says
    assert status(capsys, [*words, "-o", str(output)])[0] == 0
    left.write_bytes(b"")
    monkeypatch.setattr(run, "processes", two)
    assert status(capsys, [*words, "-o", str(output)])[0] == 2 and left.exists()
    assert status(capsys, [*words, "-o", str(output), "--resume"])[0] == 0 and not left.exists()
    assert np.isfinite(read_results(output)["influence"]).all()
