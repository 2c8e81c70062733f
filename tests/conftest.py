"""A throw-away book to run, the built pages, and a browser to look at them."""

import functools
import gc
import http.server
import os
import shutil
import threading
from contextlib import contextmanager, suppress
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

    Weights of single precision are read in place, so their sums are then taken at other places in memory. On a
    busy machine little takes long enough to be told of, which tests of an empty stderr do not expect.
    """
    with suppress(ImportError):
        from posbias.measure import progress

        progress.EVERY = 3600.0
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


def pytest_collection_finish():
    """Set aside what is imported, which stays to the end: no search for garbage has to go through it, seconds each."""
    gc.freeze()


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


def command(*words):
    """Run the command line in this process and return its exit status."""
    from posbias.cli import main

    with pytest.raises(SystemExit) as ended:
        main([*map(str, words)])
    return ended.value.code or 0


@pytest.fixture
def undrawn(monkeypatch):
    """Have the figures of reports made and not written out, which takes most of their time; transcripts have them."""
    import matplotlib.pyplot as plt

    def closed(figure, description):
        plt.close(figure)
        return f"<svg>{description}</svg>"

    monkeypatch.setattr("posbias.report.page.inline_svg", closed)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@contextmanager
def served(folder):
    """Serve the files of a folder; yield the address, without a slash at its end."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip


@pytest.fixture(scope="session")
def driver():
    """Return a browser without a network, the same for all tests of a process."""
    from selenium import webdriver

    binary = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    service = shutil.which("chromedriver")
    if binary is None or service is None:
        pytest.skip(f"no {'browser' if binary is None else 'chromedriver'} on this machine")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(service))
    driver.set_script_timeout(60)
    yield driver
    driver.quit()


def resize(driver, width):
    """Give the browser's window a width; below 500 pixels it is a phone's."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


@pytest.fixture(scope="session")
def explorer(tmp_path_factory):
    """Return the address of the explorer on a page of its own, from disk."""
    from bookkit.explorer import standalone_page

    return standalone_page(ROOT, tmp_path_factory.mktemp("explorer")).as_uri()


@pytest.fixture
def show(driver, explorer):
    """Return a function that opens the explorer at a hash, once it is drawn."""
    from explorer_page import drawn

    resize(driver, 1280)

    def open_at(hash_=""):
        driver.get("about:blank")
        driver.get(explorer + hash_)
        drawn(driver)

    return open_at


@pytest.fixture
def engine(driver, explorer):
    """Return the browser with the explorer open at any settings, for tests of functions that do not look at them."""
    from explorer_page import drawn

    if not driver.execute_script("return window.PosbiasState"):
        driver.get(explorer)
        drawn(driver)
    return driver


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """Return a folder with tiny models and twelve documents; tests write elsewhere."""
    from measuring import save, write_documents

    root = tmp_path_factory.mktemp("place")
    for name in ("bloom", "llama", "mistral"):
        save(root / name, name)
    write_documents(root / "d.jsonl", [40] * 12)
    return root


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
