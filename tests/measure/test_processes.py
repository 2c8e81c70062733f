"""Two processes that share prompts come to what one finds; one that dies leaves the other with a line and its sums."""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr
from conftest import ROOT
from lookup_worlds import byte_tokenizer, save_network
from measuring import status

DIES = """
import os, sys
from posbias.cli import main
from posbias.measure.traces import Traces
real = Traces.read_batch
Traces.read_batch = lambda self, k: os._exit(9) if k == {last} and os.environ["RANK"] == "1" else real(self, k)
main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_network(tmp_path_factory.mktemp("tiny"), byte_tokenizer(), max_position_embeddings=4096)


RUNS = """
import json, sys
from posbias.cli import main
codes = []
for words in json.loads(sys.argv[1]):
    try: main(words)
    except SystemExit as end: codes.append(end.code)
sys.exit(max(codes))
"""


FORKS = """
import gc, json, os, sys
import h5netcdf, posbias.cli.model_commands, posbias.lookup.run, posbias.measure.model, posbias.measure.run, scipy.stats
import torch.distributed, transformers.generation.utils, transformers.modeling_utils
transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1])
gc.freeze()  # else each fork looks through all of torch once more as it ends, a second
for line in sys.stdin:
    code, words, shared, place = json.loads(line)
    children = []
    for rank in range(2):
        child = os.fork()
        if child == 0:
            os.chdir(place)
            for stream, name in ((1, "out"), (2, "err")):
                os.dup2(os.open(f"{place}.{rank}.{name}", os.O_CREAT | os.O_TRUNC | os.O_WRONLY), stream)
            os.environ.update(shared, RANK=str(rank))
            sys.argv = ["-c", *words]
            exec(code, {"__name__": "__main__"})
            sys.exit(0)
        children.append(child)
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]), flush=True)
"""
"""A program that has loaded what a measurement of a model needs, and runs others in two processes that have it too."""


def shared_by_two():
    """Return the variables that torchrun gives each of two processes, but the rank."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    found = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    return found | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def launch(folder):
    """Return a function that runs a program in two processes and returns status and what was said of each.

    Both are forks of one that has loaded torch, seconds for each otherwise.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    starter = subprocess.Popen(
        [sys.executable, "-c", FORKS, folder],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip

    def run(code, *words, place):
        starter.stdin.write(json.dumps([code, words, shared_by_two(), str(place)]) + "\n")
        starter.stdin.flush()
        codes = json.loads(starter.stdout.readline())
        said = [[place.with_name(f"{place.name}.{rank}.{x}").read_text() for x in ("out", "err")] for rank in range(2)]
        return [(code, *both) for code, both in zip(codes, said, strict=True)]

    with starter:
        yield run


def alike(first, second):
    """Assert that two files hold the same numbers, computed in 32 bits, and come from the same."""
    assert set(first) == set(second) and first.attrs == second.attrs
    for name in first:
        if first[name].dtype.kind in "fiu":
            np.testing.assert_allclose(first[name], second[name], rtol=1e-6, atol=1e-9, err_msg=name)


QUANTITIES = "kernels,content,heads,contributions,ladder,branches"
MEASURE = ("-N", "7", "-n", "12", "-B", "2", "-q")


def test_sums_and_answers_are_those_of_one_process(launch, folder, tmp_path, capsys):
    """Where there are fewer batches than processes, each reads all, and one writes."""
    runs = {
        "m.nc": ["measure", str(folder), *MEASURE, QUANTITIES],
        "l.nc": ["lookup", str(folder), "-N", "3", "--places", "3"],
        "few.nc": ["measure", str(folder), "-N", "1", "-n", "12", "-q", "influence"],
    }
    two = launch(RUNS, json.dumps([[*words, "-o", name] for name, words in runs.items()]), place=tmp_path)
    assert [code for code, *_ in two] == [0, 0], two
    assert two[1][1] == "" and [line.partition(":")[0] for line in two[0][1].splitlines() if ".nc: " in line] == [*runs]
    assert {path.name for path in tmp_path.iterdir()} == {*runs}
    for name, words in runs.items():
        assert status(capsys, [*words, "-o", str(tmp_path / f"one-{name}")])[0] == 0
        alike(xr.load_dataset(tmp_path / f"one-{name}"), xr.load_dataset(tmp_path / name))


def test_one_that_dies_ends_the_other_and_both_go_on_from_their_sums(launch, folder, tmp_path, capsys):
    words = ["measure", str(folder), *MEASURE, "kernels", "-o"]
    first, second = launch(DIES.format(last=3), *words, "m.nc", place=tmp_path)
    assert second[0] == 9 and first[0] == 2 and "one that ended before" in first[2].splitlines()[-1]
    assert "Traceback" not in first[2]
    assert {path.name for path in tmp_path.iterdir()} == {"m.nc.partial", "m.nc.partial1"}
    code, _, said = status(capsys, [*words, str(tmp_path / "m.nc"), "--resume"])
    assert code == 2 and "partial sums of a run with the same settings, received process=0 of 2" in said
    found = launch(DIES.format(last=1), *words, "m.nc", "--resume", place=tmp_path)  # a batch that is done
    assert [code for code, *_ in found] == [0, 0]
    assert status(capsys, [*words, str(tmp_path / "one.nc")])[0] == 0
    alike(*[xr.load_dataset(tmp_path / name) for name in ("one.nc", "m.nc")])
