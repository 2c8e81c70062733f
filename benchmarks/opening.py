"""Measure what loading, the self-check and measuring cost of small networks, now and in the second edition.

    python benchmarks/opening.py         # three minutes, in a clone with its history

Prints a table in Markdown, and writes it to benchmarks/opening.md and to the end of benchmarks/results.md. Times are of
the processor, one thread, medians of rounds in which the editions take turns, each in a process of its own. The second
edition is read from the history; it has no self-check, and of the two networks it refuses Mixtral's.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import process_time

import torch
from transformers import AutoConfig, AutoModelForCausalLM

SIZE = {
    "vocab_size": 2048, "hidden_size": 256, "num_hidden_layers": 12, "num_attention_heads": 8,
    "num_key_value_heads": 8, "intermediate_size": 704, "max_position_embeddings": 8192,
}  # fmt: skip
KINDS = {"llama": {}, "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2}}
SECOND = "0e8e8ba"
"""Commit of the second edition."""
B, N, ROUNDS = 8, 256, 5
HERE = Path(__file__).parent
FIRST = "| processor seconds |"
"""How the table begins, in results.md too."""
Worker = subprocess.Popen[str]


def taken(run: Callable[[], object]) -> float:
    """Return the processor time of one call."""
    start = process_time()
    run()
    return process_time() - start


def work(folder: str) -> None:
    """Take each step once for each line on standard input, and print its seconds; this edition's package or another."""
    import posbias
    from posbias.measure.instrument import Instrument

    package = Path(posbias.__file__).parent  # by files: an editable installation finds what the second edition lacks
    if (package / "models").is_dir():
        from posbias.models.loading import Source
    else:
        from posbias.measure.loading import Source

    torch.set_num_threads(1)

    def load():
        return Source(folder).load_model(torch.float32, "cpu", None, "sdpa")

    try:
        instrument = Instrument(load())
    except ValueError as error:
        print(json.dumps({"refused": str(error)}), flush=True)
        return
    ids = torch.randint(2, SIZE["vocab_size"], (B, N), generator=torch.Generator().manual_seed(0))
    ways = {
        "loading": load,
        "a forward pass of 8 prompts": lambda: instrument.forward(ids, lambda seen: None),
        "measuring them": lambda: instrument.measure(ids),
    }
    if (package / "measure" / "check.py").is_file():
        from posbias.measure.check import check_instrument

        ways["self-check, once"] = lambda: check_instrument(instrument, ids[0])
    print(json.dumps({}), flush=True)
    for _ in sys.stdin:
        print(json.dumps({way: taken(run) for way, run in ways.items()}), flush=True)


@contextmanager
def worker(package: Path, folder: Path) -> Iterator[Worker]:
    """Run :func:`work` in a process of its own with the package that is in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(package), "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).resolve()), str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as it:
        try:
            yield it
        finally:
            it.stdin.close()


def said(it: Worker) -> dict:
    """Return the next line of a worker."""
    line = it.stdout.readline()
    if not line:
        raise SystemExit("a worker ended without a word; run it alone: python benchmarks/opening.py FOLDER")
    return json.loads(line)


def costs(folder: Path, second: Path) -> list[dict[str, float]]:
    """Return the median seconds of each step for the network in a folder, in the second edition and now."""
    with worker(second, folder) as before, worker(HERE.parent, folder) as after:
        workers = [None if "refused" in said(one) else one for one in (before, after)]
        times: list[list[dict[str, float]]] = [[], []]
        for _ in range(ROUNDS + 1):  # the first round warms up
            for found, one in zip(times, workers, strict=True):
                if one is not None:
                    one.stdin.write("again\n")
                    one.stdin.flush()
                    found.append(said(one))
    return [{way: median(x[way] for x in each[1:]) for way in each[0]} if each else {} for each in times]


def table(found: dict[str, list[dict[str, float]]]) -> list[str]:
    """Return the lines of the table."""
    lines = [f"{FIRST} {' | '.join(f'{kind}, before | {kind}, now' for kind in found)} |"]
    lines.append("|---|" + "---|" * 2 * len(found))
    for way in next(iter(found.values()))[1]:
        cells = [f"{x[way]:.2f}" if way in x else "none" if x else "refused" for each in found.values() for x in each]
        lines.append(f"| {way} | {' | '.join(cells)} |")
    cells = [f"| {now['self-check, once'] / now['a forward pass of 8 prompts']:.1f} " for _, now in found.values()]
    return [*lines, f"| self-check, in such forward passes |{'|'.join(f' {x}' for x in cells)}|"]


def main() -> None:
    """Measure and write the tables."""
    with tempfile.TemporaryDirectory() as place:
        second = Path(place) / "second"
        second.mkdir()
        packed = subprocess.check_output(["git", "archive", SECOND, "posbias"], cwd=HERE.parent)
        subprocess.run(["tar", "x"], cwd=second, input=packed, check=True)
        found = {}
        for kind, fields in KINDS.items():
            torch.manual_seed(0)
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SIZE, **fields))
            model.save_pretrained(Path(place) / kind)
            found[kind] = costs(Path(place) / kind, second)
    about = f"12 layers × {SIZE['hidden_size']}, prompts of {N} tokens, fused attention; before: second edition "
    about += f"({SECOND}), which refuses mixtral; median of {ROUNDS} rounds, one thread, {platform.machine()}, "
    text = "\n".join([*table(found), "", f"{about}torch {torch.__version__}; `python benchmarks/opening.py`."]) + "\n"
    (HERE / "opening.md").write_text(text, encoding="utf-8")
    results = HERE / "results.md"
    own = results.read_text(encoding="utf-8").partition(f"\n{FIRST}")[0]
    results.write_text(f"{own}\n{text}", encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    if sys.argv[1:]:
        work(sys.argv[1])
    else:
        main()
