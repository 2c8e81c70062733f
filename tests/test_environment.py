"""pyproject.toml, environment.yml, constraints.txt and CITATION.cff say the same."""

import re
import tomllib

import pytest
import yaml
from conftest import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import posbias

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
CONDA_NAMES = {"pytorch": "torch"}


def requirements(lines):
    parsed = [Requirement(line) for line in lines]
    return {CONDA_NAMES.get(r.name, canonicalize_name(r.name)): r.specifier for r in parsed}


def test_conda_environment_has_the_same_dependencies():
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())
    pip = next(item["pip"] for item in conda["dependencies"] if isinstance(item, dict))
    lines = [item for item in conda["dependencies"] if isinstance(item, str) and item != "pip"]
    ours = requirements([*PROJECT["dependencies"], *(line for extra in EXTRAS.values() for line in extra)])
    assert requirements([*lines, *pip]) == {**ours, "python": Requirement("p" + PROJECT["requires-python"]).specifier}


PINS = dict(
    line.split("==")
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line and not line.startswith("#")
)


@pytest.mark.parametrize("extra", ["dependencies", *EXTRAS])
def test_constraints_meet_the_requirements(extra):
    pins = {canonicalize_name(name): version for name, version in PINS.items()}
    lines = PROJECT["dependencies"] if extra == "dependencies" else EXTRAS[extra]
    for name, specifier in requirements(lines).items():
        assert name in pins, f"{name} has no version in constraints.txt"
        assert specifier.contains(pins[name]), f"{name}=={pins[name]} does not meet {specifier}"


def test_versions_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert PROJECT["version"] == citation["version"] == posbias.__version__
    assert re.search(rf"^## .*(unreleased|{PROJECT['version']})", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_a_page_shows_the_table_that_the_benchmark_wrote():
    assert (ROOT / "benchmarks" / "results.md").read_text() in (ROOT / "book" / "reproduce.md").read_text()


def test_the_repositorys_address_stands_in_one_file():
    address = yaml.safe_load((ROOT / "_config.yml").read_text())["repository"]["url"]
    kept = [path for name in ("posbias", "studies", "bookkit", "book") for path in (ROOT / name).rglob("*.[pm][yd]")]
    kept += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "index.md", "pyproject.toml", "CITATION.cff")]
    assert not [path for path in kept if address in path.read_text(encoding="utf-8")]
