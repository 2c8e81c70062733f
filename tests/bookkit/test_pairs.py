"""The md is the source, the notebook beside it is what the runner made of it, and nothing else."""

import re
import subprocess

import nbformat
import pytest
from conftest import ROOT

from bookkit import runner
from bookkit.agreement import cell_disagreements
from bookkit.chapters import list_chapters

CHAPTERS = {chapter.stem: chapter for chapter in list_chapters(ROOT)}
each_chapter = pytest.mark.parametrize("stem", CHAPTERS)


def committed(stem):
    return nbformat.read(CHAPTERS[stem].notebook, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_sources_and_notebooks_come_in_pairs():
    sources = {path.stem for path in (ROOT / "book").glob("*.md") if "```{code-cell}" in path.read_text()}
    notebooks = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert sources == notebooks == set(CHAPTERS)


@each_chapter
def test_notebook_is_its_source_executed(stem):
    notebook = committed(stem)
    for cell in code_cells(notebook):
        cell.outputs, cell.execution_count = [], None
    expected = runner.notebook_text(runner.source_notebook(CHAPTERS[stem]))
    assert runner.notebook_text(notebook) == expected, f"{stem} was edited: run `python -m bookkit run {stem}`"


@each_chapter
def test_every_cell_ran_in_order_without_error(stem):
    cells = code_cells(committed(stem))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [tag for cell in cells for tag in cell.metadata.get("tags", []) if tag == "injected-parameters"]
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]


@each_chapter
def test_notebook_is_tidy_and_repeatable(stem):
    text = CHAPTERS[stem].notebook.read_text()
    assert runner.notebook_text(runner.tidy(nbformat.reads(text, 4), stem)) == text
    for cell in code_cells(nbformat.reads(text, 4)):
        for output in cell.outputs:
            plain = output.get("text", "") + str(output.get("data", {}).get("text/plain", ""))
            assert not re.search(r"at 0x[0-9a-f]+>", plain), f"{cell.id}: a memory address is another in every run"


@each_chapter
def test_no_output_warns_or_has_a_path_of_the_machine(stem):
    """Streams of both kinds, tables, text: a warning begins with the path of the module that gave it."""
    for cell in code_cells(committed(stem)):
        for output in cell.outputs:
            texts = [value for key, value in output.get("data", {}).items() if key.startswith("text/")]
            said = "\n".join([output.get("text", ""), *texts])
            found = re.search(r"\w+Warning: |site-packages|/ipykernel_\d+/", said)
            assert not found, f"{cell.id}: {said[:200]}"


@each_chapter
def test_figures_have_a_caption_and_alt_text(stem):
    for cell in code_cells(committed(stem)):
        if any(key.startswith("image/") for output in cell.outputs for key in output.get("data", {})):
            settings = cell.metadata.get("mystnb", {})
            assert settings.get("image", {}).get("alt", "").strip(), f"{cell.id}: image without alt text"
            assert settings.get("figure", {}).get("caption", "").strip(), f"{cell.id}: figure without caption"


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


@each_chapter
def test_running_again_gives_what_was_committed(stem):
    """`make book` writes notebooks/ anew: on another machine, too, the numbers must be those of the commit."""
    name = f"notebooks/{stem}.ipynb"
    before = git("show", f"HEAD:{name}")
    if before.returncode:
        pytest.skip("not committed yet")
    if git("diff", "--quiet", "HEAD", "--", "posbias", "studies", "book").returncode:
        pytest.skip("code or chapters differ from the commit")
    assert not cell_disagreements(nbformat.reads(before.stdout, 4), committed(stem))


@each_chapter
def test_no_cell_imports_everything_or_ends_with_a_semicolon(stem):
    """A trailing semicolon hides a value only where a history is kept, and nbval keeps none."""
    sources = [cell.source.rstrip() for cell in code_cells(committed(stem))]
    assert not [source for source in sources if source.endswith(";") or re.search(r"import \*", source)]
