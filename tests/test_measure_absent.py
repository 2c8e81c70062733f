"""Without the extra: the command says what to install; runs whether or not torch is there."""

from posbias.cli import one_line


def test_a_missing_module_names_its_extra():
    error = ModuleNotFoundError("No module named 'torch'", name="torch")
    assert one_line(error).endswith("pip install '.[measure]'")
