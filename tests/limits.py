"""What makes code hard to read, found in its syntax; run as a file, it prints how many lines there are.

``python tests/limits.py`` counts the lines of each folder, and of each page those of cells that a reader sees at once
and of those behind a click.
"""

import ast
import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
PRAGMA = re.compile(r"\s*# (noqa|type: ignore|fmt|pragma)\b.*")


def functions(tree):
    """Yield every function with its number of lines, those of its docstring aside."""
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            text = node.body[0]
            documented = ast.get_docstring(node, clean=False) is not None
            docstring = text.end_lineno - text.lineno + 1 if documented else 0
            yield node.name, node.end_lineno - node.lineno + 1 - docstring


def wide_lines(text, columns):
    """Return the numbers of lines that are longer than that many columns, remarks to a tool aside."""
    return [k for k, line in enumerate(text.splitlines(), 1) if len(PRAGMA.sub("", line)) > columns]


def _truths(tree):
    """Return the names, attributes and properties that a file declares to be true or false."""
    truths = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.annotation and ast.unparse(node.annotation) == "bool":
            truths.add(node.arg)
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "bool":
            truths.add(ast.unparse(node.target).split(".")[-1])
        elif isinstance(node, FUNCTIONS) and node.returns and ast.unparse(node.returns) == "bool":
            truths.add(node.name)
    return truths


def _is_truth(node, truths):
    """Say whether an expression is true or false rather than a number."""
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) in {"bool", "isinstance", "any", "all", "callable", "hasattr"}
    if isinstance(node, (ast.Name, ast.Attribute)):
        return (node.id if isinstance(node, ast.Name) else node.attr) in truths
    if isinstance(node, ast.BoolOp):
        return all(_is_truth(value, truths) for value in node.values)
    return isinstance(node, ast.Compare) or isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _is_sequence(node):
    text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return text or isinstance(node, (ast.List, ast.Tuple, ast.JoinedStr, ast.ListComp))


def _slices(node):
    """Count the members of a tuple that are parts of something, cut out between bounds."""
    parts = [x.slice for x in getattr(node, "elts", ()) if isinstance(x, ast.Subscript)]
    return sum(any(isinstance(x, ast.Slice) and (x.lower or x.upper) for x in ast.walk(part)) for part in parts)


def golf(tree, truths=frozenset()):
    """Yield the line and the kind of every expression that saves lines and costs its reader more.

    Three kinds: a comprehension within another; a list, a tuple or a text times something that is true or false;
    two or more slices taken, or filled, in one assignment of a tuple.
    """
    truths = truths | _truths(tree)
    outer = [node for node in ast.walk(tree) if isinstance(node, COMPREHENSIONS)]
    inside = [node for one in outer for node in ast.walk(one) if node is not one]
    within = {id(node) for node in inside if isinstance(node, COMPREHENSIONS)}
    starred = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Starred)}
    for node in ast.walk(tree):
        if id(node) in within:
            yield node.lineno, "a comprehension within another"
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            for one, other in ((node.left, node.right), (node.right, node.left)):
                if (_is_sequence(one) or id(node) in starred) and _is_truth(other, truths):
                    yield node.lineno, "a sequence times true or false"
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            if max(_slices(node.value), *map(_slices, node.targets)) > 1:
                yield node.lineno, "slices in the assignment of a tuple"


def cell_lines(notebook):
    """Return the lines of code that a page shows at once, and of those behind a click."""
    shown = hidden = 0
    for cell in json.loads(notebook.read_text())["cells"]:
        tags = {*cell["metadata"].get("tags", [])}
        lines = len("".join(cell["source"]).splitlines())
        if cell["cell_type"] != "code" or "remove-cell" in tags:
            continue
        if tags & {"hide-input", "hide-cell"}:
            hidden += lines
        else:
            shown += lines
    return shown, hidden


def main():
    """Print the lines of each folder, and of the cells of each page."""
    for folder in ("posbias", "studies", "bookkit", "tests"):
        sizes = [len(path.read_text().splitlines()) for path in (ROOT / folder).rglob("*.py")]
        print(f"{folder:24} {sum(sizes):7,} lines in {len(sizes)} files, the longest {max(sizes)}")
    pages = {path.stem: cell_lines(path) for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
    for name, (shown, hidden) in pages.items():
        print(f"{name:24} {shown:7} lines of cells shown, {hidden:5} behind a click")
    shown, hidden = zip(*pages.values(), strict=True)
    print(f"{'all pages':24} {sum(shown):7} lines of cells shown, {sum(hidden):5} behind a click")


if __name__ == "__main__":
    main()
