"""The same chapters as other processors would run them: their numbers must be the committed ones everywhere.

A world is an environment in which numerical libraries choose other code for the same sums, or share them among
more threads. What a world asks for and this processor lacks, the libraries leave out.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bookkit import runner
from bookkit.agreement import cell_disagreements
from bookkit.chapters import find_chapter, list_chapters
from posbias import errors

FOUND: list[str] = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])  # type: ignore[index]
"""What numpy would use of this processor beyond its baseline; names of other versions of numpy are no use to it."""
WORLDS: dict[str, dict[str, str]] = {
    "here": {},
    "prescott": {"OPENBLAS_CORETYPE": "Prescott"},
    "haswell": {"OPENBLAS_CORETYPE": "Haswell"},
    "skylake": {"OPENBLAS_CORETYPE": "SkylakeX"},
    "plain": {
        "OPENBLAS_CORETYPE": "Prescott",
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "NPY_DISABLE_CPU_FEATURES": " ".join(FOUND),
    },
    "avx2": {
        "OPENBLAS_CORETYPE": "Haswell",
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "NPY_DISABLE_CPU_FEATURES": " ".join(name for name in FOUND if re.search("AVX512|V4", name)),
    },
    "threads-2": dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "2"),
    "threads-3": dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "3"),
}
"""Name → what it sets over :data:`bookkit.runner.REPEATABLE`."""


@dataclass(frozen=True)
class Report:
    """What one chapter gave in one environment: a line for each cell that disagrees."""

    world: str
    stem: str
    seconds: float
    disagreements: Sequence[str]


def world_names() -> list[str]:
    """Return the environments that this kind of processor can imitate."""
    if platform.machine().lower() in ("x86_64", "amd64"):
        return list(WORLDS)
    return [name for name in WORLDS if name == "here" or name.startswith("threads")]


def run_worlds(
    root: Path,
    worlds: Sequence[str],
    stems: Sequence[str] = (),
    *,
    jobs: int = 1,
    echo: Callable[[str], None] = print,
) -> list[Report]:
    """Run chapters in several worlds and compare what they give with the committed notebooks, which stay as they are.

    Parameters
    ----------
    root
        Folder of the book.
    worlds
        Names out of :data:`WORLDS`; all that this kind of processor has if there are none.
    stems
        Chapters; all of them if there are none.
    jobs
        Chapters to run at a time.
    echo
        Called with a line about each run.

    Raises
    ------
    ValueError
        For a world or a chapter that there is not; the message lists those that are.
    """
    for name in worlds:
        if name not in WORLDS:
            raise errors.invalid("world", f"one of {', '.join(WORLDS)}", name)
    chapters = [find_chapter(root, stem) for stem in stems] or list_chapters(root)
    calls = [(root, name, chapter.stem) for name in worlds or world_names() for chapter in chapters]
    reports = []
    for report in runner.run_all(_report, calls, jobs):
        reports.append(report)
        echo(f"[{len(reports)}/{len(calls)}] {describe(report)}")
    return reports


def describe(report: Report) -> str:
    """Return the line that says whether a chapter agrees in a world, and what does not."""
    verdict = "differs" if report.disagreements else "agrees"
    line = f"{report.world}: {report.stem} {verdict} ({report.seconds:.1f} s)"
    return "\n    ".join([line, *report.disagreements])


def _report(root: Path, world: str, stem: str) -> Report:
    chapter = find_chapter(root, stem)
    output = root / "_build" / "worlds" / world / f"{stem}.ipynb"
    output.parent.mkdir(parents=True, exist_ok=True)
    outcome = runner.run_chapter_to(root, stem, {}, output, environment=WORLDS[world])
    if outcome.status == "failed":
        return Report(world, stem, outcome.seconds, [outcome.message])
    committed, received = runner.read_tidy(chapter.notebook, stem), runner.read_tidy(output, stem)
    return Report(world, stem, outcome.seconds, cell_disagreements(committed, received))
