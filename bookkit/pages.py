"""A Sphinx extension: docstrings in the house style, reading times, helps, and nothing from a network."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive

from bookkit.formatting import extent
from bookkit.ledger import line_markdown
from bookkit.records import KEY


def setup(app: Any) -> dict[str, Any]:
    """Divide docstrings before napoleon (priority 500) reads their sections, and escape what it makes of them."""
    app.connect("autodoc-process-docstring", divide, priority=400)
    app.connect("autodoc-process-docstring", protect, priority=600)
    app.connect("source-read", shorten_records)
    app.connect("doctree-read", add_reading_time)
    app.connect("doctree-read", fold_setup)
    app.connect("html-page-context", add_filter)
    app.connect("html-page-context", drop_thebe, priority=900)
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def divide(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Give the lines of one docstring their sections, in place; an empty comment keeps an attribute's first line whole.

    >>> lines = ["Bits that are kept: 10."]
    >>> divide(None, "data", "BITS", 10, None, lines)
    >>> lines
    ['..', '', 'Bits that are kept: 10.']
    """
    whole = ["..", ""] if what in ("attribute", "data", "property") else []
    lines[:] = whole + sections(lines)


def protect(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Escape the lines of one docstring, in place."""
    lines[:] = [escape(line) for line in lines]


def sections(lines: list[str]) -> list[str]:
    """Give what follows ``Source:``, and the examples, headings of their own, else they belong to the section above.

    >>> sections(["Source: Wu et al. 2025,", "theorem 4.1."])
    ['', 'Source', '------', 'Wu et al. 2025,', 'theorem 4.1.']
    """
    divided: list[str] = []
    for line in lines:
        if line.startswith("Source: "):
            divided += ["", "Source", "------", line.removeprefix("Source: ")]
        elif line.startswith(">>>") and "Examples" not in divided:
            divided += ["", "Examples", "--------", line]
        else:
            divided.append(line)
    return divided


def escape(line: str) -> str:
    r"""Escape bars and trailing underscores outside of literals and examples: Sphinx reads them as references.

    >>> print(escape("Return |x - y| for ``lambda_`` and lambda_."))
    Return \|x - y\| for ``lambda_`` and lambda\_.
    """
    if line.lstrip().startswith((">>>", "...")):
        return line
    parts = re.split(r"(``.*?``|`[^`]*`_?)", line)
    parts[::2] = [re.sub(r"(?<!\\)\||(?<=\w)_(?!\w)", r"\\\g<0>", text) for text in parts[::2]]
    return "".join(parts)


def add_reading_time(app: Any, doctree: Any) -> None:
    """Insert the reading time under the title of a chapter."""
    import nbformat

    path = Path(app.env.doc2path(app.env.docname))
    title = doctree.next_node(nodes.title)
    if path.suffix == ".ipynb" and title is not None:
        minutes = extent(nbformat.read(path, as_version=4)).minutes
        line = nodes.paragraph(text=f"Reading time: about {minutes} minutes.", classes=["reading-time"])
        title.parent.insert(title.parent.index(title) + 1, line)


def fold_setup(app: Any, doctree: Any) -> None:
    """Move code that is folded away and shows nothing into one fold at the end of a page.

    So are parameters, unless the cell right behind them shows its code.
    """
    cells = [
        cell for cell in doctree.findall(nodes.container) if cell.get("nb_element") == "cell_code" and _sets_up(cell)
    ]
    if not cells:
        return
    end = next(iter(doctree.findall(nodes.section)))
    end += nodes.raw("", '<details class="page-code"><summary>Code for this page</summary>', format="html")
    for cell in cells:
        cell.parent.remove(cell)
        del cell[1:]
        cell.attributes.pop("hide_mode", None)
        end += cell
    end += nodes.raw("", "</details>", format="html")


def _sets_up(cell: nodes.container) -> bool:
    """Tell whether a cell of code is set-up: its parameters, or code that is folded away and shows nothing."""
    if "tag_parameters" in cell["classes"]:
        behind = cell.next_node(descend=False, siblings=True)
        return not isinstance(behind, nodes.container) or "hide_mode" in behind
    outputs = [node for node in cell.children if node.get("nb_element") == "cell_code_output"]  # type: ignore[attr-defined]
    shown = any(not isinstance(node, nodes.container) for output in outputs for node in output.findall())
    return cell.get("hide_mode") in ("input", "all") and not shown


def shorten_records(app: Any, docname: str, source: list[str]) -> None:
    """Let each record be one line of its page, with a link to the status page: its notebook keeps all that it says."""
    if f'"{KEY}"' not in source[0] or app.env.doc2path(docname, base=False)[-6:] != ".ipynb":
        return
    notebook = json.loads(source[0])
    for output in [output for cell in notebook["cells"] for output in cell.get("outputs", [])]:
        kept = output.get("metadata", {}).get(KEY)
        if kept:
            output["data"]["text/markdown"] = line_markdown(kept["row"], kept["part"], kept["verdict"])
    source[0] = json.dumps(notebook)


def add_filter(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Load the script that filters the list of verdicts, on the page that has the list."""
    if "tag_verdicts" in context.get("body", ""):
        app.add_js_file("status.js", loading_method="defer")


class CommandHelp(Directive):
    """Show what a command of ``posbias`` says with ``--help``, as it says it."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the help as one literal block."""
        command = [sys.executable, "-m", "posbias", self.arguments[0], "--help"]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return [nodes.literal_block(text.strip(), text.strip(), language="none")]


def drop_thebe(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Take the launcher of live cells (thebe) off a page: jupyter-book puts it there, with a script from elsewhere."""
    for kind in ("script_files", "css_files"):
        context[kind] = [file for file in context[kind] if not is_thebe(file)]


def is_thebe(file: Any) -> bool:
    """Say whether a script or style sheet, or the code written into the page, is thebe's."""
    return "thebe" in f"{file.filename} {file.attributes.get('body', '')}".lower()
