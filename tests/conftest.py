"""A throw-away book to run, and the built pages to look at."""

import functools
import http.server
import os
import threading
from pathlib import Path

# Here, before numpy and torch are imported, and for every process that a test starts: what the tests compute is small,
# and more threads than processors wait for one another. OMP_NUM_THREADS=2 before the command still has its way.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings

# No deadlines: a busy machine is no defect. CI draws the same examples every time, everyone else new ones.
settings.register_profile(
    "posbias", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("posbias")

ROOT = Path(__file__).resolve().parents[1]


def pytest_configure():
    """With POSBIAS_UNALIGNED=24, put the arrays of every weights file that a test writes 24 bytes further back.

    Weights of single precision are read in place, so their sums are then taken at other places in memory.
    """
    pad = int(os.environ.get("POSBIAS_UNALIGNED", 0))
    if pad:
        import safetensors.torch
        import transformers.modeling_utils

        def save_file(tensors, filename, metadata=None):
            content = safetensors.torch.save(tensors, metadata)
            end = 8 + int.from_bytes(content[:8], "little")
            header = content[8:end] + pad * b" "
            Path(filename).write_bytes(len(header).to_bytes(8, "little") + header + content[end:])

        safetensors.torch.save_file = transformers.modeling_utils.safe_save_file = save_file

HEADER = """---
kernelspec:
  display_name: Python 3
  language: python
  name: python3
{extra}---

# {title}

"""


def chapter_source(title, *cells, extra=""):
    """Write a MyST text notebook of code cells; a cell that begins with ``:tags:`` keeps that line."""
    blocks = [f"```{{code-cell}} ipython3\n{cell}\n```\n" for cell in cells]
    return HEADER.format(title=title, extra=extra) + "\n".join(blocks)


@pytest.fixture
def make_book(tmp_path):
    """Return a function that writes a book of the given chapters (stem=source) and returns its folder."""

    def make(**sources):
        root = tmp_path / "project"
        for folder in ("book", "notebooks"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        files = "".join(f"  - file: notebooks/{stem}\n" for stem in sources)
        (root / "_toc.yml").write_text(f"format: jb-book\nroot: index\nchapters:\n  - file: book/notation\n{files}")
        for stem, source in sources.items():
            (root / "book" / f"{stem}.md").write_text(source)
        return root

    return make


@pytest.fixture
def server(tmp_path):
    """Return a folder and the address under which its files are served."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{running.server_port}/"
    running.shutdown()
    running.server_close()


@pytest.fixture
def one_thread():
    """Let torch compute on one thread, as a process with OMP_NUM_THREADS=1 does: the same bits."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def html():
    """Return the folder of the built pages."""
    folder = ROOT / "_build" / "html"
    if not (folder / "index.html").is_file():
        pytest.skip("the book is not built: run make html")
    return folder


def pages(folder):
    """List the pages of the built book, scripts' own folders left out."""
    return sorted(p for p in folder.rglob("*.html") if p.relative_to(folder).parts[0] not in ("_static", "_sources"))
