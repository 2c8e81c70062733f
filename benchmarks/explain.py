"""Explain one prompt: peak memory and processor time of the whole command, by length of the prompt.

    python benchmarks/explain.py [--only bloom-8] [--length 4096]

``bloom-8`` is the reference model (8 layers × 192); ``gpt2`` has GPT-2's size (12 layers × 768), drawn weights and
bloom-8's tokenizer. Both contexts are as long as the prompt, which is eight passages of the built-in corpus.
One process a row, one thread; the time is the processor's, so that other work on the machine counts little. Prints a
table in Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, AutoTokenizer

from posbias.shipped import builtin_documents, reference_folder
from studies.sizes import SIZES

PASSAGES, SPARE = 8, 8
"""Passages of a prompt; tokens of each that are left free, for what decoding and joining add."""
ROWS = (("bloom-8", 1024), ("bloom-8", 4096), ("gpt2", 4096))
"""Model, and tokens of the prompt."""
PROGRAM = """
import json, sys, time
from pathlib import Path
from posbias.cli import main
start = time.process_time()
try:
    main()
except SystemExit as done:
    assert not done.code, done.code
peak = Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]
print(json.dumps([int(peak) * 1024, time.process_time() - start]))
"""


def prompt(tokenizer: Any, tokens: int) -> str:
    """Return passages of different documents that together have about so many tokens, at most so many."""
    pieces = []
    for text in list(builtin_documents())[:PASSAGES]:
        ids = tokenizer(" ".join(text.split()), add_special_tokens=False, verbose=False)["input_ids"]
        pieces.append(str(tokenizer.decode(ids[: tokens // PASSAGES - SPARE])))
    return "\n\n".join(pieces)


def sized(name: str, folder: Path, tokenizer: Any, tokens: int) -> str:
    """Write a network that takes prompts of so many tokens, bloom-8 or one of GPT-2's size, and return its folder."""
    source = reference_folder("bloom-8")
    if name == "bloom-8":
        network = AutoModelForCausalLM.from_pretrained(source)
        network.config.seq_length = tokens
    else:
        config = SIZES[name].config()
        config.n_positions, config.vocab_size = tokens, len(tokenizer)
        config.bos_token_id = config.eos_token_id = tokenizer.bos_token_id
        network = AutoModelForCausalLM.from_config(config)
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=sorted({row[0] for row in ROWS}))
    parser.add_argument("--length", type=int, choices=sorted({row[1] for row in ROWS}))
    options = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(reference_folder("bloom-8"))
    print("| network | tokens of the prompt | peak GiB | processor s |")
    print("|---|---|---|---|", flush=True)
    for name, n in ROWS:
        if options.only not in (None, name) or options.length not in (None, n):
            continue
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            model = sized(name, folder / name, tokenizer, n)
            (folder / "prompt.txt").write_text(prompt(tokenizer, n), encoding="utf-8")
            words = ["explain", model, "-p", "prompt.txt", "-o", "page.html"]
            environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
            program = [sys.executable, "-c", PROGRAM, *words]
            done = subprocess.run(program, capture_output=True, text=True, cwd=folder, env=environment)
        if done.returncode:
            raise SystemExit(done.stderr)
        tokens = re.findall(r"([\d,]+) tokens", done.stdout)
        peak, seconds = json.loads(done.stdout.splitlines()[-1])
        row = (name, tokens[0], f"{peak / 2**30:.1f}", f"{seconds:.0f}")
        print(f"| {' | '.join(map(str, row))} |", flush=True)


if __name__ == "__main__":
    main()
