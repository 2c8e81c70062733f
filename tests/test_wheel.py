"""The wheel: what is in it, and that it works where nothing of the checkout can be seen."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from conftest import ROOT
from packaging.requirements import Requirement
from rollout_config import BASE

from posbias import shipped

pytestmark = pytest.mark.skipif(find_spec("pip") is None, reason="pip is not installed: the wheel cannot be built")
QUIETLY = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-index")
INSIDE = "bloom-8"
"""The reference model in the wheel."""


def environment(home):
    """Return the variables of a user who has set none of ours."""
    ours = ("PYTHONPATH", "POSBIAS_DATA")
    variables = {name: value for name, value in os.environ.items() if name not in ours}
    return {**variables, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "OMP_NUM_THREADS": "1"}


def requirements(extras=()):
    """List the distributions that posbias asks for, with what these ask for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    found, left = {}, [Requirement(line) for line in lines]
    while left:
        wanted = left.pop()
        if wanted.name not in found:
            found[wanted.name] = distribution(wanted.name)
            others = (Requirement(line) for line in found[wanted.name].requires or ())
            left += [r for r in others if r.marker is None or r.marker.evaluate({"extra": ""})]
    return found.values()


@pytest.fixture(scope="session")
def checkout(tmp_path_factory):
    """What a build reads of the checkout, with what an earlier build, of all that is there, leaves behind."""
    folder = tmp_path_factory.mktemp("wheel") / "checkout"
    folder.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "LICENSE-text", "NOTICE"):
        shutil.copy(ROOT / name, folder)
    for name in ("posbias", "studies", "bookkit"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    everything = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    (folder / "posbias.egg-info").mkdir()
    (folder / "posbias.egg-info" / "SOURCES.txt").write_text("".join(f"{path.as_posix()}\n" for path in everything))
    return folder


@pytest.fixture(scope="session")
def wheel(checkout):
    out = checkout.parent / "dist"
    build = [sys.executable, "-m", "pip", "wheel", *QUIETLY, "--no-build-isolation", "-w", out, checkout]
    done = subprocess.run(build, capture_output=True, text=True, cwd=out.parent, env=environment(out.parent))
    assert done.returncode == 0, done.stderr
    (file,) = out.iterdir()
    return file


def linked(folder, extras=()):
    """Make a folder of links to what the wheel, with extras, asks for, and return it."""
    folder.mkdir()
    for found in requirements(extras):
        for name in {file.parts[0] for file in found.files} - {"..", "__pycache__"}:
            if not (folder / name).exists():
                (folder / name).symlink_to(found.locate_file(name))
    return folder


@pytest.fixture(scope="session")
def python(wheel, tmp_path_factory):
    """Return the Python of an environment of the wheel and links to what it asks for."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=os.name != "nt")
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", *QUIETLY, "--no-compile", wheel]
    done = subprocess.run(pip, capture_output=True, text=True, cwd=folder, env=environment(folder))
    assert done.returncode == 0, done.stderr
    ours = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, text=True
    ).stdout.strip()
    (Path(ours) / "others.pth").write_text(f"{linked(folder / 'others')}\n")
    return python


@pytest.fixture
def elsewhere(tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump(BASE))
    return folder


def call(python, folder, *words):
    """Run the installed command in a folder; return its status, stdout and stderr."""
    command = [python.with_name("posbias"), *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment(folder.parent))
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


def refused(python, folder, *words):
    """Run a command that ends with status 2 and one line on stderr, and return the line."""
    status, out, err = call(python, folder, *words)
    assert (status, out) == (2, "") and err.startswith("posbias: ") and err.count("\n") == 1, (status, out, err)
    return err


def run(python, folder, code, *arguments):
    command = [python, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment(folder.parent))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_what_is_in_the_wheel(wheel, checkout):
    assert wheel.stat().st_size <= 9e6
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    kept = {name for name in names if not re.match(r"posbias-[\d.]+\.dist-info/", name)}
    files = {p.relative_to(checkout).as_posix() for p in (checkout / "posbias").rglob("*") if p.is_file()}
    assert kept == files
    inside = {name.split("/")[3] for name in kept if name.startswith("posbias/data/reference/")}
    assert inside == {INSIDE, shipped.HELD_OUT, shipped.LONGER}
    assert {name.rpartition("/")[2] for name in names - kept} >= {"LICENSE", "LICENSE-text", "NOTICE", "METADATA"}


def test_the_front_door(python, elsewhere):
    code = (
        "import posbias\nkernels = posbias.structured_kernels(T=12, slope=posbias.alibi_slopes(8))\n"
        "p = posbias.influence_profile(kernels, posbias.schedules.constant(12, 0.1), n=1000)\n"
        "print(posbias.__file__, p.shape, round(p.sum(), 6))"
    )
    file, *rest = run(python, elsewhere, code).split()
    assert Path(file).is_relative_to(python.parents[1]) and rest == ["(1000,)", "1.0"]
    opened = "import posbias\ntry: posbias.{}\nexcept ModuleNotFoundError as error: print(error)"
    for call in ("open('reference/bloom-8')", "load('mine.nc')"):
        assert run(python, elsewhere, opened.format(call)).startswith("No module named")
    code = "from posbias import shipped; print(*shipped.shipped_names(), len(shipped.reference_names()))"
    assert run(python, elsewhere, code).split() == [INSIDE, str(len(shipped.reference_names()))]


def test_profiles_are_computed_and_compared(python, elsewhere):
    assert call(python, elsewhere, "--version")[1].startswith("posbias ")
    status, out, _ = call(python, elsewhere, "rollout", "config.yaml", "-o", "p.csv")
    assert status == 0 and "p.csv: 6 tokens, 2 layers x 2 heads" in out
    status, out, _ = call(python, elsewhere, "compare", "p.csv", "p.csv")
    assert status == 0 and "against p.csv, 6 positions\nW1 0.000" in out
    assert "q.csv: No such file" in refused(python, elsewhere, "compare", "p.csv", "q.csv")
    design = ("design", "--depth", "2", "--lambda", "0.2", "--heads", "2", "--length", "8", "-o", "even.yaml")
    assert call(python, elsewhere, *design)[::2] == (0, "")


@pytest.mark.parametrize(
    "words", [["measure", f"reference/{INSIDE}", "-d", "builtin", "-o", "new.nc"], ["report", "m.nc", "-o", "m.html"]]
)
def test_without_its_extra_a_command_names_it(python, elsewhere, words):
    (elsewhere / "m.nc").write_bytes(b"\x89HDF\r\n\x1a\n")
    assert "[measure]" in refused(python, elsewhere, *words)


COMMANDS = """
import json, sys
from posbias.cli import main
for words in json.loads(sys.argv[1]):
    try: main(words)
    except SystemExit as end: print("status", end.code or 0)
"""


def test_the_model_inside_is_measured(python, elsewhere):
    """One process runs both commands, for each would load torch, seconds."""
    options = ["-d", "builtin", "-N", "2", "-n", "32", "-o", "m.nc"]
    words = json.dumps([["measure", f"reference/{INSIDE}", *options], ["report", "m.nc", "-o", "m.html"]])
    variables = {**environment(elsewhere.parent), "PYTHONPATH": str(linked(elsewhere.parent / "extra", ["measure"]))}
    command = [python, "-c", COMMANDS, words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=elsewhere, env=variables)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert "2 prompts of 32 tokens (builtin)\n8 layers × 6 heads" in done.stdout
    assert re.findall(r"^status (\d+)", done.stdout, re.M) == ["0", "0"], (done.stdout, done.stderr)
    assert (elsewhere / "m.html").stat().st_size > 10_000
