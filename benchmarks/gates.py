"""Measure what gates cost: the law of untrained networks and a design at 24 layers × 16 heads × 1,024 tokens.

    python benchmarks/gates.py [--tokens 1024]     # some minutes

Prints a table in Markdown: seconds of one profile of heads that all differ, and of a whole design with half of the
heads local.
"""

from __future__ import annotations

import argparse
import os
import platform
from time import perf_counter

import numpy as np

from posbias.design.designer import design, wanted
from posbias.rollout.biased import biased_kernels
from posbias.rollout.gains import Gains, gains
from posbias.rollout.untrained import profile_of_gains

T, H = 24, 16
C, STEP, OVERLAP = 0.25, 0.5, 0.2
"""Gains of attention and MLP, and the overlap of gates, in every layer."""


def networks() -> dict[str, Gains]:
    """Return gains alone, and the same beside gated MLPs."""
    even = [[C]] * T
    return {
        "gains": gains([1], even),
        "gains and gates": gains([1], even, steps=[[STEP]] * T, overlaps=[[[OVERLAP]]] * T),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--tokens", type=int, default=1024, help="n (1024)")
    n = arguments.parse_args().tokens
    local = [{"kind": "alibi", "slope": 2.0 ** -(k / 2 + 0.5)} for k in range(H // 2)]
    kernels = biased_kernels(T, [*local, *({"kind": "flat", "tau": 0.2 + 0.1 * k} for k in range(H // 2))])
    print("| network | profile | design |\n|---|---|---|")
    for name, network in networks().items():
        start = perf_counter()
        profile_of_gains(kernels, network, n)
        profile = perf_counter() - start
        start = perf_counter()
        design(wanted(np.full(n, 1 / n), None, H, H // 2, law="untrained", gains=network))
        print(f"| {name} | {profile:.3g} s | {perf_counter() - start:.3g} s |", flush=True)
    print(
        f"\n{T} layers × {H} heads × {n:,} tokens; {os.cpu_count()} cores, {platform.machine()}, "
        f"Python {platform.python_version()}, numpy {np.__version__}; `python benchmarks/gates.py`."
    )


if __name__ == "__main__":
    main()
