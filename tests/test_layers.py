"""What may import what, read out of the sources; and what ``import posbias`` really loads."""

import ast
import subprocess
import sys
from importlib.metadata import requires

import pytest
from conftest import ROOT
from packaging.requirements import Requirement

SOURCES = sorted((ROOT / "posbias").rglob("*.py"))
RANK = {"masks": 0, "logits": 0, "kernels": 1, "structured": 2, "rollout": 3, "config": 4}
RANK |= {"published": 5, "originals": 6}
"""Of these, none imports one of a higher rank: masks and logits to kernels to rollouts to comparisons."""

ONLY_IN = {
    "matplotlib": ("posbias.plotting", "posbias.figuretext"),
    "torch": ("posbias.checkpoint", "posbias.measure", "posbias.reference", "posbias.restartable", "posbias.scratch"),
    "transformers": ("posbias.measure", "posbias.reference"),
    "datasets": ("posbias.measure",),
    "xarray": ("posbias.measure", "posbias.netcdf", "posbias.scratch"),
    "pypdf": ("posbias.originals", "posbias.vectorfigure"),
    "pooch": ("posbias.originals", "posbias.shipped"),
    "requests": ("posbias.originals", "posbias.shipped"),
    "typer": (
        "posbias.cli",
        "posbias.commands",
        "posbias.book.commands",
        "posbias.measure.commands",
        "posbias.reference.commands",
        "posbias.scratch.commands",
    ),
    "papermill": ("posbias.book",),
    "jupytext": ("posbias.book",),
    "nbformat": ("posbias.book",),
    "myst_nb": ("posbias.book",),
    "IPython": ("posbias.book",),
}
"""What is heavy, or not for numerics, and the modules (with what is below them) that may import it."""


def name_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in SOURCES}


def imports_of(path):
    """List the modules that a file imports, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.names[0].name != "*", f"{path}: import *"
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (inner & set(MODULES)) or {node.module}
    return found


GRAPH = {name: imports_of(path) for name, path in MODULES.items()}


def below(name, packages):
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def test_no_import_cycle():
    done, path = set(), []

    def visit(name):
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name not in done:
            path.append(name)
            for other in sorted(GRAPH[name] & set(MODULES) - {name}):
                visit(other)
            done.add(path.pop())

    for name in MODULES:
        visit(name)


@pytest.mark.parametrize("name", MODULES)
def test_arrows_go_one_way(name):
    rank = RANK.get(name.removeprefix("posbias."))
    for other in GRAPH[name]:
        higher = RANK.get(other.removeprefix("posbias."))
        assert rank is None or higher is None or higher <= rank, f"{name} imports {other}"
        if below(other, ["posbias.book"]):
            assert below(name, ["posbias.book", "posbias.cli"]), f"{name} imports the book: {other}"
        if below(other, ["posbias.measure"]):
            assert below(name, ["posbias.measure", "posbias.commands", "posbias.book"]), f"{name} imports {other}"
        allowed = ONLY_IN.get(other.split(".")[0])
        assert allowed is None or below(name, allowed), f"{name} imports {other}"


def test_import_posbias_is_light():
    code = "import sys; before = {*sys.modules}; import posbias; print(*{*sys.modules} - before)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    of_jaxtyping = {Requirement(line).name.replace("-", "_") for line in requires("jaxtyping")}
    others = {name.split(".")[0] for name in loaded} - {"posbias"} - set(sys.stdlib_module_names)
    assert {"numpy"} <= others <= {"numpy", "scipy", "jaxtyping"} | of_jaxtyping
    assert len({name for name in loaded if below(name, ["posbias"])}) <= 12
