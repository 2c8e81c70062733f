"""Measure long prompts: peak memory, size of the file and time of whole commands.

    python benchmarks/length.py [--only gpt2] [--length 4096]

Untrained networks of published sizes, whose contexts are set to the length; one prompt of random tokens, one process
for each row. The time is the processor's, so that other work on the machine counts little. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROWS = (
    ("gpt2", 4096, "mixing,influence"),
    ("gpt2", 4096, "mixing,influence,kernels"),
    ("gpt2", 8192, "mixing,influence"),
    ("qwen2-0.5b", 4096, "mixing,influence"),
    ("qwen2-0.5b", 4096, "mixing,influence,kernels"),
    ("qwen2-0.5b", 8192, "mixing,influence"),
)
PROGRAM = """
import json, sys, time
from pathlib import Path
from posbias.measure import run
from posbias.measure.results import write_results
from studies.sizes import Untrained
from posbias.measure.corpus import Corpus
from posbias.settings import quantities_of
from posbias.settings import Settings
folder, n, quantities, output = sys.argv[1:]
how = {"rule": "random", "attention": None, "quantities": quantities_of(quantities)}
settings = Settings(Untrained(folder), Corpus("builtin"), 1, int(n), 1, **how)
start = time.process_time()
write_results(Path(output), run.measure(settings))
status = Path("/proc/self/status").read_text().split("VmHWM:")[1]
print(json.dumps([int(status.split()[0]) * 1024, Path(output).stat().st_size, time.process_time() - start]))
"""


def main() -> None:
    from studies.sizes import SIZES

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=sorted({row[0] for row in ROWS}))
    parser.add_argument("--length", type=int, choices=sorted({row[1] for row in ROWS}))
    options = parser.parse_args()
    print("| model | tokens | quantities | peak GiB | file MB | processor s |")
    print("|---|---|---|---|---|---|", flush=True)
    for name, n, quantities in ROWS:
        if options.only not in (None, name) or options.length not in (None, n):
            continue
        with tempfile.TemporaryDirectory() as folder:
            config = SIZES[name].config()
            context = "n_positions" if config.model_type == "gpt2" else "max_position_embeddings"
            setattr(config, context, max(n, getattr(config, context)))
            config.save_pretrained(folder)
            words = [sys.executable, "-c", PROGRAM, folder, str(n), quantities, str(Path(folder) / "m.nc")]
            done = subprocess.run(words, capture_output=True, text=True, check=True)
        peak, size, seconds = json.loads(done.stdout.splitlines()[-1])
        row = (
            name,
            f"{n:,}",
            quantities,
            f"{peak / 2**30:.1f}",
            f"{size / 1e6:.1f}",
            f"{seconds:.0f}",
        )
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
