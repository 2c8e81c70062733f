"""pyproject.toml, environment.yml, constraints.txt, CITATION.cff and the page that says how to cite say the same."""

import re
import tomllib

import pytest
import yaml
from conftest import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pybtex.database import parse_file, parse_string

import posbias

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
CONDA_NAMES = {"pytorch": "torch"}


def requirements(lines):
    parsed = [Requirement(line) for line in lines]
    return {CONDA_NAMES.get(r.name, canonicalize_name(r.name)): r.specifier for r in parsed}


CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text())
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())


def test_conda_environment_has_the_same_dependencies_and_the_book():
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())
    pip = next(item["pip"] for item in conda["dependencies"] if isinstance(item, dict))
    lines = [item for item in conda["dependencies"] if isinstance(item, str) and item != "pip"]
    ours = requirements([*PROJECT["dependencies"], *(line for extra in EXTRAS.values() for line in extra)])
    (python,) = (line for line in lines if line.startswith("python="))  # Binder reads no other form
    assert Requirement("p" + PROJECT["requires-python"]).specifier.contains(python.removeprefix("python="))
    assert requirements(line for line in [*lines, *pip] if line != python and not line.startswith("-e")) == ours
    folders = [ROOT / line.removeprefix("-e ") for line in pip if line.startswith("-e")]
    names = [tomllib.loads((folder / "pyproject.toml").read_text())["project"]["name"] for folder in folders]
    assert names == ["posbias", "posbias-book"]


def test_pythons_that_are_tested_can_run_it():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "book.yml").read_text())["jobs"]
    tested = jobs["test"]["strategy"]["matrix"]["python"]
    least = Requirement("p" + PROJECT["requires-python"]).specifier
    assert {"3.11", "3.14"} <= set(tested) and all(least.contains(version) for version in tested)


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
    assert PROJECT["version"] == CITATION["version"] == posbias.__version__
    edition, date = CITATION["preferred-citation"]["edition"].capitalize(), CITATION["date-released"]
    newest = re.search(r"^## (.*):", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1]
    assert newest == f"{edition} edition, version {PROJECT['version']} ({date:%B %Y})"


def test_the_papers_that_are_cited_are_in_the_bibliography():
    entries = [entry.fields for entry in parse_file(ROOT / "book" / "references.bib").entries.values()]
    titles = {(x["eprint"].split("v")[0], re.sub(r"[{}]", "", x["title"])) for x in entries if "eprint" in x}
    cited = {
        (x["identifiers"][0]["value"].removeprefix("arXiv:"), x["title"]): x["url"] for x in CITATION["references"]
    }
    assert set(cited) <= titles
    assert all(url == f"https://arxiv.org/abs/{number}" for (number, _), url in cited.items())


def test_how_to_cite_is_the_preferred_citation():
    (written,) = re.findall(r"^~~~bibtex\n(.*?)^~~~$", (ROOT / "index.md").read_text(), re.MULTILINE | re.DOTALL)
    (entry,) = parse_string(written, "bibtex").entries.values()
    asked, date = CITATION["preferred-citation"], CITATION["date-released"]
    expected = {name: str(asked[name]) for name in ("title", "edition", "year", "url")}
    assert dict(entry.fields) == expected | {"month": f"{date:%B}", "note": f"Version {CITATION['version']}"}
    assert (asked["year"], asked["month"]) == (date.year, date.month) and asked["title"] == CONFIG["title"]
    assert [str(person) for person in entry.persons["author"]] == [f"{{{x['name']}}}" for x in asked["authors"]]


def test_the_repositorys_address_is_in_few_files():
    address, pages = CONFIG["repository"]["url"], CONFIG["html"]["baseurl"]
    for cited in (CITATION, CITATION["preferred-citation"]):
        assert (cited["repository-code"], cited["url"]) == (address, pages)
    kept = [path for name in ("posbias", "studies", "bookkit", "book") for path in (ROOT / name).rglob("*.[pm][yd]")]
    kept += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "index.md", "pyproject.toml")]
    assert [path.name for path in kept if address in path.read_text(encoding="utf-8")] == ["your_model.md"]
    assert f"git clone {address} " in (ROOT / "book" / "your_model.md").read_text()
