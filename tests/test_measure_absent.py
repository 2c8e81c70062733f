"""Without the extra: the command says what to install; and what opens no model loads nothing of it."""

import subprocess
import sys

import pytest
from conftest import ROOT

from posbias.cli import one_line


def test_a_missing_module_names_its_extra():
    error = ModuleNotFoundError("No module named 'torch'", name="torch")
    assert one_line(error).endswith("pip install '.[measure]'")


def loaded(code, words=()):
    """Return which of these modules some code has loaded."""
    code += "\nimport sys; print(*{'torch', 'transformers', 'transformers.modeling_utils'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return {*done.stdout.splitlines()[-1].split()}


def test_the_instrument_loads_none_of_transformers_models():
    pytest.importorskip("torch")
    assert loaded("import posbias.measure.instrument, posbias.measure.quantities.contributions") == {"torch"}


def test_what_reads_files_loads_no_torch(tmp_path):
    pytest.importorskip("torch")
    import posbias

    measured = posbias.open("reference/bloom-8").measure(prompts=2, length=8, quantities="kernels")
    measured.save(tmp_path / "m.nc")
    commands = "\n".join((
        "import sys, posbias",
        "from posbias.cli import make_app",
        "def run(*words): make_app()(args=list(words), standalone_mode=False)",
        "file, page, table = sys.argv[1:]",
        "run('report', file, '-o', page)",
        "run('compare', file, file)",
        "run('rollout', file, '--variant', 'attention-only', '-o', table)",
        "run('design', '-o', table + '.yaml', '--depth', '4', '--heads', '2', '-n', '16', '--lambda', '0.5')",
        "from studies.results import load",
        "load('ladder')",
    ))  # fmt: skip
    words = [str(tmp_path / name) for name in ("m.nc", "page.html", "profile.csv")]
    assert not loaded(commands, words) and {path.name for path in tmp_path.iterdir()} > {"page.html", "profile.csv"}
