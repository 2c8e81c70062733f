"""One rule of imports for each folder, read out of the sources; and what ``import posbias`` really loads."""

import ast
import subprocess
import sys
from collections import Counter
from importlib.metadata import requires

import pytest
from conftest import ROOT
from packaging.requirements import Requirement

GROUND = {"checks", "files", "shipped", "provenance"}
"""Files at the root that every folder may import; ``plotting`` and ``figuretext`` are for chapters and reports."""

MAY_IMPORT = {
    "checks": set(),
    "files": {"checks"},
    "provenance": set(),
    "shipped": {"checks", "files"},
    "figuretext": set(),
    "plotting": {"figuretext"},
    "statistics": GROUND,
    "rollout": GROUND,
    "comparison": GROUND | {"statistics", "rollout"},
    "theory": GROUND | {"statistics", "rollout", "comparison"},
    "published": GROUND | {"rollout"},
    "networks": GROUND | {"rollout"},
    "training": GROUND | {"statistics", "rollout", "comparison", "theory", "networks"},
    "measure": GROUND | {"statistics", "rollout", "comparison", "theory", "networks", "training.loop"},
    "measure.handle": GROUND | {"networks", "measure"},
    "measure.measurement": GROUND | {"rollout", "comparison", "measure", "training.loop", "plotting"},
    "measure.report": GROUND
    | {"statistics", "rollout", "comparison", "published", "training.loop", "measure", "plotting", "figuretext"},
    "measure.studies": GROUND | {"statistics", "rollout", "comparison", "theory", "networks", "training", "measure"},
    "book": GROUND | {"statistics", "published"},
}
"""What each folder may import beside itself. The command line and the front door may import everything."""
DOORS = {"", "cli", "__main__"}

HEAVY = {
    "matplotlib": {
        "plotting",
        "figuretext",
        "measure.measurement",
        "measure.report.pictures",
    },  # the last for a type alone
    "torch": {"networks", "measure", "training", "cli"},
    "transformers": {"networks", "measure", "training", "cli"},
    "datasets": {"measure"},
    "xarray": {"measure", "training", "cli"},
    "pypdf": {"published"},
    "pooch": {"published", "shipped"},
    "requests": {"published", "shipped"},
    "typer": {"cli"},
    "papermill": {"book"},
    "jupytext": {"book"},
    "nbformat": {"book"},
    "myst_nb": {"book"},
    "IPython": {"book"},
}
"""What is heavy, or not for numerics, and the folders that may import it."""


def name_of(path):
    parts = path.relative_to(ROOT / "posbias").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted((ROOT / "posbias").rglob("*.py"))}


def imports_of(path):
    """List the modules that a file imports, also inside functions; ours without the name of the package."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.names[0].name != "*", f"{path}: import *"
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name for name in inner if name.removeprefix("posbias.") in MODULES} or {node.module}
    return {"" if name == "posbias" else name.removeprefix("posbias.") for name in found}


GRAPH = {name: imports_of(path) for name, path in MODULES.items()}


def below(name, folders):
    return any(name == folder or name.startswith(f"{folder}.") for folder in folders)


def folder_of(name):
    """Return the folder of a module that has the rule: the longest that matches."""
    return max((folder for folder in MAY_IMPORT if below(name, [folder])), key=len)


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


@pytest.mark.parametrize("name", [name for name in MODULES if name not in DOORS and not below(name, ["cli"])])
def test_each_folder_imports_what_its_rule_allows(name):
    folder = folder_of(name)
    for other in GRAPH[name] & set(MODULES):
        same = folder_of(other) == folder if other not in DOORS else False
        assert same or below(other, MAY_IMPORT[folder]), f"{name} imports {other or 'posbias'}"
    if not below(folder, ["measure"]):
        assert not below("measure", [folder])


@pytest.mark.parametrize("name", MODULES)
def test_heavy_packages_stay_in_their_folders(name):
    for other in GRAPH[name] - set(MODULES):
        allowed = HEAVY.get(other.split(".")[0])
        assert allowed is None or below(name, allowed), f"{name} imports {other}"


def test_a_name_of_a_file_means_one_thing():
    leaves = Counter(name.split(".")[-1] for name in MODULES)
    assert [name for name, count in leaves.items() if count > 1] == []


def test_import_posbias_is_light():
    code = "import sys; before = {*sys.modules}; import posbias; print(*{*sys.modules} - before)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    others = {name.split(".")[0] for name in loaded} - {"posbias"} - set(sys.stdlib_module_names)
    assert others == set()
    assert {name for name in loaded if below(name, ["posbias"])} == {"posbias"}


def test_the_engine_alone_asks_for_numpy_and_little_else():
    code = "import sys; before = {*sys.modules}; from posbias import *; print(*{*sys.modules} - before)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    others = {name.split(".")[0] for name in done.stdout.split()} - {"posbias"} - set(sys.stdlib_module_names)
    of_jaxtyping = {Requirement(line).name.replace("-", "_") for line in requires("jaxtyping")}
    assert {"numpy"} <= others <= {"numpy", "scipy", "jaxtyping"} | of_jaxtyping
