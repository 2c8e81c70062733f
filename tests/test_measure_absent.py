"""Without the extra: the command says what to install; runs whether or not torch is there."""

import pytest

from posbias.cli import one_line


@pytest.mark.parametrize(
    ("name", "extra"), [("torch", "measure"), ("transformers.utils", "measure"), ("papermill", "book")]
)
def test_a_missing_module_names_its_extra(name, extra):
    error = ModuleNotFoundError(f"No module named {name!r}", name=name)
    assert one_line(error).endswith(f"pip install 'posbias[{extra}]'")
