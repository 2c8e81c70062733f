"""Who may import whom, no circle, nothing heavy before it is asked for, and limits that a reader feels."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter

import pytest
from conftest import ROOT
from limits import functions, golf, wide_lines

LAYERS = (
    "errors files netcdf plotting processes provenance settings shipped", "rollout", "comparison configuration",
    "models", "measure measured_kernels predict prompts engines heads conditions",
    "report lookup design explain", "cli",
)  # fmt: skip
"""Folders and files of the package from the ground up: each imports what stands before it or beside it."""
DOORS = {"posbias", "posbias.__main__", "posbias.measure.measurement", "posbias.measure.model", "posbias.models.check"}
"""What opens to everything: a measurement has a report, a model explains, and a row of the table is tried on one."""
RANK = {f"posbias.{name}": rank for rank, names in enumerate(LAYERS) for name in names.split()}
RANK["posbias"] = RANK["posbias.cli"]  # the front door
SHARED = ("studies.results", "studies.making", "studies.train", "studies.checkpoint", "studies.additions")
SHARED += ("studies.reference", "studies.untrained_profiles", "studies.interventions", "studies.sizes")
SHARED += ("studies.biased", "studies.rotation", "studies.changes", "studies.summaries", "studies.questions")
SHARED += ("studies.checks", "studies.palette")
"""What every study may import beside posbias."""
AGAIN = "studies.second"
"""Asks a second model what the other studies asked, by their means; nothing imports it."""
MOST_LINES = 15_525
"""Of the whole package. `python tests/limits.py` prints those of every folder and page, which nothing holds."""
FILE_LINES, FUNCTION_LINES, COLUMNS = 400, 40, 120
"""What a reader can hold in mind: a file's lines, a function's without its docstring, and the columns of a line."""
LONG_FILES = {
    "posbias/models/families.py": "one table, a row a family",
}
"""Files that are longer, and why."""
GOLF = {
    "studies/design/hooks.py",
    "studies/design/measure.py",
    "studies/design/remedies.py",
    "studies/design/search.py",
    "studies/factor/measure.py",
    "studies/icl/claims.py",
    "studies/icl/tables.py",
    "studies/icl/task.py",
    "studies/ladder/alignment.py",
    "studies/ladder/gradients.py",
    "studies/ladder/rotary.py",
    "studies/lookup/measure.py",
    "studies/lookup/prompts.py",
    "studies/real/checks.py",
    "studies/real/entries.py",
    "studies/reference/measure.py",
    "studies/reference/models.py",
    "studies/reference/texts.py",
    "studies/results.py",
    "studies/train.py",
}
"""Files with expressions that should be undone; each goes from here when it is."""
PATHS = [path for folder in ("posbias", "studies", "bookkit") for path in (ROOT / folder).rglob("*.py")]
MODULES = {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p for p in sorted(PATHS)}


def leaf(node):
    """Say whether nothing below a node can be a statement."""
    return isinstance(node, ast.expr | ast.expr_context | ast.operator | ast.arguments)


def imports_of(path):
    """Return the modules of ours that a file imports, also inside functions, but not for types alone."""
    found, left = set(), [ast.parse(path.read_text())]
    while left:
        node = left.pop()
        for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        left += node.orelse if for_types else (child for child in ast.iter_child_nodes(node) if not leaf(child))
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.names[0].name != "*", f"{path}: relative import, or import *"
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & set(MODULES)
            found |= inner or {node.module}
    return found & set(MODULES)


GRAPH = {name: imports_of(path) - {name} for name, path in MODULES.items()}


def allowed(name, other):
    """Say whether one module may import another."""
    ours, theirs = (".".join(x.split(".")[:2]) for x in (name, other))
    if ours == theirs or name in DOORS and other.startswith("posbias"):
        return True
    if theirs in RANK:
        return RANK.get(ours, len(LAYERS)) >= RANK[theirs]
    if ours.startswith("studies."):
        return theirs in SHARED or ours == AGAIN
    return ours.startswith("bookkit") and (
        other.startswith("bookkit") or theirs in ("studies.results", "studies.published", "studies.checks")
    )


def test_arrows_go_one_way():
    broken = [f"{name} -> {other}" for name in GRAPH for other in GRAPH[name] if not allowed(name, other)]
    assert not broken, "\n".join(broken)


def test_no_circle():
    TopologicalSorter(GRAPH).prepare()


def loaded(code):
    """Return the packages that some code loads beside those of Python itself."""
    code = f"import sys; before = {{*sys.modules}}; {code}; print(*{{*sys.modules}} - before)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    names = {name.split(".")[0] for name in done.stdout.split()} - set(sys.stdlib_module_names)
    return {name for name in names if not name.startswith("_sysconfigdata")}


HEAVY = {"torch", "transformers", "datasets", "pandas", "xarray", "matplotlib", "papermill", "nbformat"}


def test_nothing_heavy_is_loaded():
    assert loaded("import posbias") == {"posbias"}
    assert {"numpy", "scipy"} <= (names := loaded("from posbias import *")) and not names & HEAVY
    assert not loaded("from posbias.cli import make_app; make_app()") & {*HEAVY, "scipy"}


def test_pages_that_read_results_load_no_models():
    read = "from studies import summaries; from studies.design import tables; from studies.ladder import scores"
    names = loaded(f"{read}; from studies.norms import tables; from studies.real import checks")
    assert "pandas" in names and not names & {"torch", "transformers", "datasets"}


def test_a_notebook_without_widgets_is_not_told_so():
    told = "import warnings, posbias; warnings.warn('IProgress not found. Please update jupyter.')"
    subprocess.run([sys.executable, "-W", "error", "-c", told], cwd=ROOT, check=True)


SOURCES = {path.relative_to(ROOT).as_posix(): path.read_text() for path in sorted(PATHS)}
TESTS = {path.relative_to(ROOT).as_posix(): path.read_text() for path in sorted((ROOT / "tests").rglob("*.py"))}


def test_a_file_can_be_held_in_mind():
    sizes = {name: len(text.splitlines()) for name, text in {**SOURCES, **TESTS}.items()}
    long = {name: size for name, size in sizes.items() if size > FILE_LINES and name not in LONG_FILES}
    assert not long, f"longer than {FILE_LINES} lines: {long}"
    whole = sum(size for name, size in sizes.items() if name.startswith("posbias/"))
    assert whole <= MOST_LINES, f"posbias has {whole} lines, of {MOST_LINES}"


def test_a_function_can_be_held_in_mind():
    sizes = {f"{name}::{f}": size for name, text in SOURCES.items() for f, size in functions(ast.parse(text))}
    long = {name: size for name, size in sizes.items() if size > FUNCTION_LINES}
    assert not long, f"longer than {FUNCTION_LINES} lines: {long}"


def test_lines_are_within_their_columns():
    wide = {name: lines for name, text in {**SOURCES, **TESTS}.items() if (lines := wide_lines(text, COLUMNS))}
    assert not wide, f"wider than {COLUMNS} columns: {wide}"


def test_no_line_is_saved_at_its_readers_cost():
    saved = [f"{name}:{line}: {kind}" for name, text in SOURCES.items() if name not in GOLF
             for line, kind in golf(ast.parse(text))]  # fmt: skip
    assert not saved, "\n".join(saved)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("rows = [[x + 1 for x in row] for row in table]", "a comprehension within another"),
        ("rows = [row for row in table if any(x for x in row)]", "a comprehension within another"),
        ("def f(dry_run: bool): return [*asked, *['dry_run'] * dry_run]", "a sequence times true or false"),
        ("names = (*LEAST, *MIXING * ('mixing' in names))", "a sequence times true or false"),
        ("text = 'not ' * (not done) + f' {part}' * bool(part)", "a sequence times true or false"),
        ("out[1:, 1:], out[1:, 0], out[0, 0] = A, rest, 1", "slices in the assignment of a tuple"),
        ("middle, up, down = x[:1], x[1 : k + 1], x[k + 1 :]", "slices in the assignment of a tuple"),
    ],
)
def test_golf_is_found(code, kind):
    assert {found for _, found in golf(ast.parse(code))} == {kind}


@pytest.mark.parametrize(
    "code",
    [
        "rows = [x + 1 for row in table for x in row]",
        "def f(heads: int, exact: bool): return [None] * heads + [0] * (heads - 1) + [()] * (heads or 1), 2 * exact",
        "i, j = np.arange(n)[:, None], np.arange(n)[None, :]",
        "first, rest = row[0], row[1:]",
    ],
)
def test_plain_code_is_not_golf(code):
    assert not [*golf(ast.parse(code))]


def test_docstrings_count_for_the_file_and_not_for_the_function():
    code = 'def f():\n    """Do.\n\n    More.\n    """\n    return 1\n'
    assert [*functions(ast.parse(code))] == [("f", 2)]
    assert wide_lines("x" * 121 + "\n" + "y  # type: ignore[" + "z" * 110, 120) == [1]
