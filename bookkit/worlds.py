"""The same chapters and tests as other machines would run them: their numbers must be the committed ones everywhere.

A world is an environment in which numerical libraries choose other code for the same sums, share them among more
threads, or find the same numbers at other places in memory. What a world asks for and this processor lacks, the
libraries leave out.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bookkit import runner
from bookkit.agreement import cell_disagreements
from bookkit.chapters import find_chapter, list_chapters
from posbias import errors

FOUND: list[str] = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])  # type: ignore[index]
"""What numpy would use of this processor beyond its baseline; names of other versions of numpy are no use to it."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
PLAIN = {
    "OPENBLAS_CORETYPE": "Prescott",
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    "NPY_DISABLE_CPU_FEATURES": " ".join(FOUND),
}
WORLDS: dict[str, dict[str, str]] = {
    "here": {},
    "prescott": {"OPENBLAS_CORETYPE": "Prescott"},
    "haswell": {"OPENBLAS_CORETYPE": "Haswell"},
    "skylake": {"OPENBLAS_CORETYPE": "SkylakeX"},
    "plain": PLAIN,
    "avx2": {
        "OPENBLAS_CORETYPE": "Haswell",
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "NPY_DISABLE_CPU_FEATURES": " ".join(name for name in FOUND if re.search("AVX512|V4", name)),
    },
    "threads-2": dict.fromkeys(THREADS, "2"),
    "threads-3": dict.fromkeys(THREADS, "3"),
}
"""Worlds of chapters: name → what it sets over :data:`bookkit.runner.REPEATABLE`."""
UNIT_WORLDS: dict[str, dict[str, str]] = {
    "plain": PLAIN,
    "threads-1": dict.fromkeys(THREADS, "1"),
    "threads-3": dict.fromkeys(THREADS, "3"),
    **{f"unaligned-{pad}": {"POSBIAS_UNALIGNED": pad} for pad in ("8", "24", "56")},
}
"""Worlds of unit tests; ``tests/conftest.py`` moves all weights by so many bytes in memory."""
NO_NUMBERS = ("tests/bookkit", "tests/test_browser.py", "tests/test_links.py", "tests/test_wheel.py")
"""Tests of pages and packages, which are not run in other worlds unless they are named."""


@dataclass(frozen=True)
class Report:
    """What one chapter, or the tests, gave in one environment: a line for each cell or test that disagrees."""

    world: str
    stem: str
    seconds: float
    disagreements: Sequence[str]


def world_names(worlds: Mapping[str, object]) -> list[str]:
    """Return the environments that this kind of processor can imitate."""
    if platform.machine().lower() in ("x86_64", "amd64"):
        return list(worlds)
    return [name for name in worlds if name.startswith(("here", "threads", "unaligned"))]


def known_worlds(names: Sequence[str], worlds: Mapping[str, object]) -> Sequence[str]:
    """Return the worlds asked for, by default all that this processor has; ValueError for one that there is not."""
    for name in names:
        if name not in worlds:
            raise errors.invalid("world", f"one of {', '.join(worlds)}", name)
    return names or world_names(worlds)


def run_worlds(root: Path, worlds: Sequence[str], stems: Sequence[str], *, jobs: int = 1) -> Iterator[Report]:
    """Run chapters, by default all, in several worlds and compare with the committed notebooks, which stay."""
    chapters = [find_chapter(root, stem) for stem in stems] or list_chapters(root)
    calls = [(root, name, chapter.stem) for name in known_worlds(worlds, WORLDS) for chapter in chapters]
    return runner.run_all(_chapter_report, calls, jobs)


def _chapter_report(root: Path, world: str, stem: str) -> Report:
    output = root / "_build" / "worlds" / world / f"{stem}.ipynb"
    output.parent.mkdir(parents=True, exist_ok=True)
    outcome = runner.run_chapter_to(root, stem, {}, output, environment=WORLDS[world])
    if outcome.status == "failed":
        return Report(world, stem, outcome.seconds, [outcome.message])
    notebooks = (runner.read_tidy(path, stem) for path in (find_chapter(root, stem).notebook, output))
    return Report(world, stem, outcome.seconds, cell_disagreements(*notebooks))


def run_units(root: Path, worlds: Sequence[str], files: Sequence[str], *, jobs: int = 1) -> Iterator[Report]:
    """Run unit tests, by default all that compare numbers, in several worlds."""
    paths = files or ["tests", "posbias", "studies", *(f"--ignore={path}" for path in NO_NUMBERS)]
    for world in known_worlds(worlds, UNIT_WORLDS):
        began = time.perf_counter()
        options = ["-q", "-p", "no:cacheprovider", "-n", str(jobs if jobs > 1 else 0)]
        command = [sys.executable, "-m", "pytest", *options, *paths]
        environment = {**os.environ, **UNIT_WORLDS[world]}
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
        failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        wrong = (failed or [done.stdout + done.stderr]) if done.returncode else []
        yield Report(world, "unit tests", time.perf_counter() - began, wrong)


def describe(report: Report) -> str:
    """Return the line that says whether a chapter or the tests agree in a world, and what does not."""
    verdict = "differs" if report.disagreements else "agrees"
    line = f"{report.world}: {report.stem} {verdict} ({report.seconds:.1f} s)"
    return "\n    ".join([line, *report.disagreements])
