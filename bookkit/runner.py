"""The one runner: from ``book/NAME.md`` to an executed, tidy ``notebooks/NAME.ipynb``, never back.

A chapter is executed through papermill in ``_build/executed`` and takes the place of its committed notebook
only when every cell ran. Two runs on one machine give identical bytes.
"""

from __future__ import annotations

import base64
import io
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from bookkit.agreement import keep_agreeing
from bookkit.chapters import Chapter, find_chapter, list_chapters, read_markdown
from posbias import errors
from posbias.files import check_writable, write_whole

if TYPE_CHECKING:
    from nbformat import NotebookNode

Result = TypeVar("Result")
KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
LANGUAGE_INFO = {"file_extension": ".py", "mimetype": "text/x-python", "name": "python", "pygments_lexer": "ipython3"}

REPEATABLE = {
    "PYTHONHASHSEED": "0",  # sets print in one order
    "SOURCE_DATE_EPOCH": "0",  # no dates in figures
    "OMP_NUM_THREADS": "1",  # sums are taken in one order, and chapters that run side by side do not compete
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONWARNINGS": "ignore:IProgress not found",  # tqdm's, where a kernel has no widgets: with a path of the machine
}
"""The environment of every run."""


@dataclass(frozen=True)
class Outcome:
    """What became of a chapter: ``written``, ``unchanged`` or ``failed``."""

    stem: str
    status: Literal["written", "unchanged", "failed"]
    seconds: float = 0.0
    message: str = ""


def source_notebook(chapter: Chapter) -> NotebookNode:
    """Return the notebook that the md stands for: stable cell ids, fixed metadata, no outputs."""
    return tidy(read_markdown(chapter.source), chapter.stem)


def tidy(notebook: NotebookNode, stem: str) -> NotebookNode:
    """Drop from ``notebook`` all that differs between two runs of the same code; tidying twice changes nothing."""
    import nbformat

    notebook = nbformat.from_dict(notebook)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    dropped = ("jupytext", "papermill", "widgets", "kernelspec", "language_info")
    kept = {key: value for key, value in notebook.metadata.items() if key not in dropped}
    notebook.metadata = nbformat.from_dict({**kept, "kernelspec": KERNELSPEC, "language_info": LANGUAGE_INFO})
    for i, cell in enumerate(notebook.cells):
        cell["id"] = f"{stem}-{i:03d}"
        for key in ("papermill", "execution", "ExecuteTime"):
            cell.metadata.pop(key, None)
        if not cell.metadata.get("tags", True):
            del cell.metadata["tags"]
        if cell.cell_type == "code":
            cell.outputs = _tidy_outputs(cell.outputs)
    return notebook


def _tidy_outputs(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Merge neighbouring streams of one name (their pieces depend on timing), drop widget views, shrink figures."""
    merged: list[NotebookNode] = []
    for output in outputs:
        if output.output_type == "stream" and merged and merged[-1].get("name") == output.name:
            merged[-1].text += output.text
            continue
        data = output.get("data", {})
        data.pop("application/vnd.jupyter.widget-view+json", None)
        if "image/png" in data:
            data["image/png"] = base64.b64encode(with_palette(base64.b64decode(data["image/png"]))).decode()
        merged.append(output)
    return merged


def with_palette(figure: bytes) -> bytes:
    """Return an opaque PNG with 256 colours at most, a third of the bytes; one that has a palette is unchanged."""
    from PIL import Image

    image = Image.open(io.BytesIO(figure))
    if image.mode == "P":
        return figure
    palette = image.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    out = io.BytesIO()
    palette.save(out, "PNG", optimize=True, dpi=image.info.get("dpi"))
    return out.getvalue()


def notebook_text(notebook: NotebookNode) -> str:
    """Return the text of the ``.ipynb`` file of ``notebook``."""
    import nbformat

    return str(nbformat.writes(notebook, version=4)).rstrip("\n") + "\n"


def parse_parameters(chapter: Chapter, given: Mapping[str, str]) -> dict[str, Any]:
    """Return parameters given as text, in JSON and of the type of the chapter's default; ValueError for any other."""
    values = {}
    for name, text in given.items():
        if name not in chapter.parameters:
            known = f"one of {', '.join(chapter.parameters)}" if chapter.parameters else "none"
            raise errors.invalid(f"{chapter.stem}: parameter", known, name)
        default = chapter.parameters[name]
        kind = TypeAdapter(type(default), config=ConfigDict(allow_inf_nan=False))
        try:
            values[name] = text if isinstance(default, str) else kind.validate_json(text, strict=True)
        except ValidationError:
            expected = f"{type(default).__name__} (default {default!r})"
            raise errors.invalid(f"{chapter.stem}: {name}", expected, repr(text)) from None
    return values


def run_chapter(root: Path, stem: str) -> Outcome:
    """Execute the chapter with its defaults and write it to ``notebooks/`` if every cell ran and something changed."""
    chapter = find_chapter(root, stem)
    began = time.perf_counter()
    executed = _scratch(root) / f"{stem}.ipynb"
    failure = _execute(source_notebook(chapter), {}, executed, root)
    seconds = time.perf_counter() - began
    if failure:
        return Outcome(stem, "failed", seconds, failure)
    text = notebook_text(_settled(read_tidy(executed, stem), chapter))
    if chapter.notebook.is_file() and chapter.notebook.read_bytes() == text.encode():
        return Outcome(stem, "unchanged", seconds)
    chapter.notebook.parent.mkdir(exist_ok=True)
    write_whole(chapter.notebook, text)
    return Outcome(stem, "written", seconds)


def _settled(fresh: NotebookNode, chapter: Chapter) -> NotebookNode:
    """Return ``fresh`` with the committed outputs where they agree; a notebook that cannot be read has none."""
    import nbformat

    try:
        committed = read_tidy(chapter.notebook, chapter.stem)
        nbformat.validate(committed)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, nbformat.ValidationError):
        return fresh
    return keep_agreeing(fresh, committed)


def run_chapter_to(
    root: Path,
    stem: str,
    parameters: Mapping[str, Any],
    output: Path,
    *,
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """Execute the chapter with ``parameters`` and write it to ``output``; the book itself is not touched."""
    chapter, output = find_chapter(root, stem), output.resolve()
    check_output(root, output)
    began = time.perf_counter()
    executed = _scratch(root) / f"{stem}.{os.getpid()}.ipynb"
    failure = _execute(source_notebook(chapter), parameters, executed, root, environment or {})
    seconds = time.perf_counter() - began
    if failure:
        return Outcome(stem, "failed", seconds, failure)
    write_whole(output, notebook_text(read_tidy(executed, stem)))
    executed.unlink()
    return Outcome(stem, "written", seconds)


def check_output(root: Path, output: Path) -> None:
    """Check, before anything is executed, that ``output`` can and may be written."""
    if output.suffix != ".ipynb":
        raise ValueError(f"output: expected a name that ends in .ipynb, received {output.name}")
    for folder in ("notebooks", "book"):
        if output.is_relative_to((root / folder).resolve()):
            raise ValueError(f"output: expected a path outside the book's own {folder}/, received {output}")
    check_writable(output)


def run_book(root: Path, *, jobs: int = 1, echo: Callable[[str], None] = print) -> list[Outcome]:
    """Execute every chapter, ``jobs`` at a time, those that read the others' records last; one line for each."""
    chapters = list_chapters(root)
    first = [chapter.stem for chapter in chapters if "records" not in chapter.needs]
    last = [chapter.stem for chapter in chapters if "records" in chapter.needs]
    outcomes = []
    for stems, at_once in ((first, jobs), (last, 1)):  # one of the last may read the records of another
        for outcome in run_all(_outcome, [(root, stem) for stem in stems], at_once):
            outcomes.append(outcome)
            echo(f"[{len(outcomes)}/{len(chapters)}] {describe(outcome)}")
    return outcomes


def run_all(function: Callable[..., Result], calls: Sequence[tuple], jobs: int) -> Iterator[Result]:
    """Yield what ``function`` returns for each tuple of arguments, in their order, ``jobs`` at a time."""
    jobs = min(jobs, len(calls))
    if jobs <= 1:
        yield from (function(*call) for call in calls)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(function, *zip(*calls, strict=True))


def _outcome(root: Path, stem: str) -> Outcome:
    """Run one chapter of many: what is wrong with it is its outcome, not the end of the book."""
    try:
        return run_chapter(root, stem)
    except (ValueError, OSError) as error:
        return Outcome(stem, "failed", message=f"{type(error).__name__}: {error}")


def describe(outcome: Outcome) -> str:
    """Return the line (for a failure, the lines) that reports an outcome."""
    line = f"{outcome.stem}: {outcome.status} ({outcome.seconds:.1f} s)"
    return f"{line}\n{outcome.message}" if outcome.message else line


def _scratch(root: Path) -> Path:
    folder = root / "_build" / "executed"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def read_tidy(path: Path, stem: str) -> NotebookNode:
    """Read a notebook as :func:`tidy` leaves it."""
    import nbformat

    return tidy(nbformat.read(path, as_version=4), stem)


def _execute(
    notebook: NotebookNode,
    parameters: Mapping[str, Any],
    output: Path,
    root: Path,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Execute through papermill into ``output``; return what went wrong, "" if nothing did."""
    import papermill
    from nbclient.exceptions import CellTimeoutError, DeadKernelError
    from traitlets.config import Config

    source = output.with_suffix(".source.ipynb")
    write_whole(source, notebook_text(notebook))
    try:
        with _repeatable(environment), TemporaryDirectory(prefix="posbias-") as sockets:
            papermill.execute_notebook(
                str(source),
                str(output),
                parameters=dict(parameters),
                kernel_name=KERNELSPEC["name"],
                cwd=str(root),
                progress_bar=sys.stderr.isatty(),
                config=Config({"KernelManager": _transport(sockets)}),
            )
    except papermill.PapermillExecutionError as error:
        end = "\n".join("\n".join(error.traceback).splitlines()[-12:])
        return f"in this cell:\n{_indented(error.source)}\n{_indented(end)}"
    except (DeadKernelError, CellTimeoutError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        source.unlink()
    return ""


def _transport(folder: str) -> dict[str, str]:
    """Talk to the kernel through sockets in ``folder`` where there are any: a TCP port is open to every user."""
    return {"transport": "ipc", "ip": str(Path(folder) / "kernel")} if os.name == "posix" else {}


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


@contextmanager
def _repeatable(extra: Mapping[str, str]) -> Iterator[None]:
    """Set :data:`REPEATABLE`, and ``extra`` over it, while a kernel starts and runs; put back what was there."""
    wanted = {**REPEATABLE, **extra}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
