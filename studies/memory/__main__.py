"""``python -m studies.memory``: train what ``results/memory.nc`` lacks, one network after another."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from studies import results

SEEDS = (0, 1, 2)


def main(words: Sequence[str] | None = None) -> None:
    """Run the command; it goes on where it was."""
    from studies.memory.measure import NETWORKS, train_all
    from studies.memory.texts import TEXTS

    names = [".".join(parts) for parts in product(NETWORKS, TEXTS)]
    parser = argparse.ArgumentParser("python -m studies.memory", description="Networks on texts of known memory.")
    parser.add_argument("network", nargs="*", default=names, help="such as rope.copy-64; all unless given")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="of weights and texts")
    parser.add_argument("--output", "-o", type=Path, default=results.FOLDER / "memory.nc", help="file of entries")
    asked = parser.parse_args(words)
    unknown = [name for name in asked.network if name not in names]
    if unknown:
        parser.error(f"network: expected some of {', '.join(names)}, received {', '.join(unknown)}")
    kept = results.Results(asked.output) if asked.output.is_file() else {}
    lacking = [name for name in asked.network if name not in kept]
    for name, data in train_all(lacking, asked.seeds, asked.output):
        losses = " ".join(f"{x:.2f}" for x in data["loss"].values)
        print(f"{asked.output}: {name}, losses {losses}, optimum {float(data['optimum'][0]):.2f}", flush=True)


if __name__ == "__main__":
    main()
