"""Without the extra: the command says what to install; runs whether or not torch is there."""

import re
import tomllib

import pytest
from conftest import ROOT

from posbias.cli import MEASURING, one_line


@pytest.mark.parametrize(
    ("name", "extra"), [("torch", "measure"), ("transformers.utils", "measure"), ("papermill", "book")]
)
def test_a_missing_module_names_its_extra(name, extra):
    error = ModuleNotFoundError(f"No module named {name!r}", name=name)
    assert one_line(error).endswith(f"pip install '.[{extra}]'")


def test_all_that_the_extra_measure_installs_is_known():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {re.match(r"[\w-]+", line)[0] for line in extras["measure"]}
    assert {name for name in names if name != "pooch"} == MEASURING  # the authors' files are fetched with pooch too
