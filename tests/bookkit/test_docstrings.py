"""What the API page makes of docstrings: its fields are arguments and exceptions, and prose stays prose."""

import functools
import importlib
import inspect
import pkgutil
import pydoc
import re

import pytest
import yaml
from bs4 import BeautifulSoup
from conftest import ROOT
from sphinx.ext.napoleon import Config, NumpyDocstring
from sphinx.pycode import ModuleAnalyzer

import posbias
from bookkit import docstrings

PACKAGES = pkgutil.walk_packages(posbias.__path__, "posbias.")
MODULES = ["posbias", *(found.name for found in PACKAGES if not found.name.endswith("__main__"))]
SETTINGS = yaml.safe_load((ROOT / "_config.yml").read_text())["sphinx"]["config"]
NAPOLEON = Config(**{key: value for key, value in SETTINGS.items() if key.startswith("napoleon_")})


def documented(module):
    """Yield kind, name, arguments and docstring of what Sphinx documents in a module."""
    yield "module", module.__name__, (), module.__doc__
    own = {k: x for k, x in vars(module).items() if getattr(x, "__module__", None) == module.__name__}
    classes = {k: x for k, x in own.items() if inspect.isclass(x)}
    holders = [("", own)] + [(f"{k}.", {name: getattr(x, name) for name in vars(x)}) for k, x in classes.items()]
    for prefix, members in holders:
        for name, found in members.items():
            thing = inspect.unwrap(found)
            if name.startswith("_") or prefix.startswith("_"):
                continue
            if isinstance(thing, property | functools.cached_property):
                yield "property", prefix + name, (), thing.__doc__
            elif inspect.isroutine(thing) or inspect.isclass(thing):
                kind = "class" if inspect.isclass(thing) else "method" if prefix else "function"
                yield kind, prefix + name, arguments(found), thing.__doc__
    for (holder, name), lines in ModuleAnalyzer.for_module(module.__name__).find_attr_docs().items():
        yield "attribute" if holder else "data", f"{holder}.{name}".lstrip("."), (), "\n".join(lines)


def arguments(thing):
    try:
        return set(inspect.signature(thing).parameters)
    except ValueError:  # some classes, such as exceptions, have none
        return set()


def rendered(kind, docstring):
    """Return the lines of a docstring as Sphinx reads them."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    docstrings.divide(None, kind, "name", None, None, lines)
    lines = NumpyDocstring(lines, NAPOLEON, None, kind, "name", None, None).lines()
    docstrings.protect(None, kind, "name", None, None, lines)
    return lines


def faults(module, kind, names, docstring):
    """List the fields of a docstring that are no argument and no exception, and what comes back undescribed."""
    found = []
    for line in rendered(kind, docstring):
        field = re.match(r":(param|type|raises)(?: (.*?))?:(?: |$)", line)
        if field:
            name = (field[2] or "").replace("\\", "")
            given = exceptions(module, name) if field[1] == "raises" else name.lstrip("*") in names
            found += [] if given else [f"{field[1]} {name!r}"]
        elif re.match(r"(:returns:| {10}\*) ", line) and " -- " not in line:
            found.append(line)
    return found


def exceptions(module, names):
    found = [getattr(module, name, None) or pydoc.locate(name) for name in names.split(", ")]
    return all(isinstance(x, type) and issubclass(x, BaseException) for x in found)


@pytest.mark.parametrize("name", MODULES)
def test_every_field_is_an_argument_or_an_exception(name):
    module = pytest.importorskip(name, reason=f"what {name} needs is not installed")
    wrong = [
        f"{member}: {fault}"
        for kind, member, names, docstring in documented(module)
        for fault in faults(module, kind, names, docstring)
    ]
    assert not wrong, f"in {name}, prose after a section, or a stale name: {'; '.join(wrong)}"


@pytest.mark.parametrize(
    ("section", "wrong"),
    [
        ("Parameters\n----------\nx, lambda_\n    Two.\n*rest\n    More.", []),
        ("Parameters\n----------\nx\n    One.\n\nIts cost: none.", ["param 'Its cost'", "type 'Its cost'"]),
        ("Parameters\n----------\ny\n    Gone.", ["param 'y'"]),
        ("Parameters\n----------\nx\n    One.\n\nNotes\n-----\nIts cost: none.\n\nReferences\n----------\nA: b.", []),
        ("Parameters\n----------\nx\n    One.\n\nSource: a paper, equation 1: here.\n\n>>> 1\n1", []),
        ("Raises\n------\nValueError, OSError\n    Often.\nos.error\n    Seldom.", []),
        ("Raises\n------\nValueError\n    Often.\n\nIt is slow.", ["raises 'It is slow.'"]),
        ("Raises\n------\nint\n    Never.", ["raises 'int'"]),
        ("Returns\n-------\nsize : position\n    Of x.\ntotal\n    Of all.", []),
        ("Returns\n-------\nThe size: of x.", [":returns: **The size** (*of x.*)"]),
    ],
)
def test_prose_is_told_from_fields(section, wrong):
    assert faults(posbias, "function", {"x", "lambda_", "rest"}, f"Return.\n\n{section}") == wrong


@pytest.mark.parametrize("kind", ["data", "attribute", "property"])
def test_what_a_constant_is_stays_one_sentence(kind):
    assert rendered(kind, "Bits of ``x_``: 10 of |x|.") == ["..", "", r"Bits of ``x_``: 10 of \|x\|."]


def test_a_name_that_ends_in_an_underscore_keeps_it():
    lines = rendered("function", "Mix.\n\nParameters\n----------\nlambda_\n    Of |x|.")
    assert r":param lambda\_: Of \|x\|." in lines


def test_the_built_page_names_arguments_and_exceptions(html):
    page = BeautifulSoup((html / "book" / "api.html").read_text(encoding="utf-8"), "html.parser")
    seen, wrong = 0, []
    for label in page.select("dl.py > dd > dl.field-list > dt"):
        kind = label.get_text().strip(" :")
        heads = [p.find("strong").get_text() for p in label.find_next_sibling("dd").select("p:has(> strong)")]
        seen += len(heads)
        signature = label.find_parent("dl", class_="py").find("dt")
        if kind == "Parameters":
            names = {name.get_text().split("=")[0] for name in signature.select(".sig-param > .n")}
            if "kwargs" not in names:  # which a class of torch's takes on the page, built without torch
                wrong += [f"{signature['id']}: {head}" for head in heads if head.lstrip("*") not in names]
        elif kind == "Raises":
            module = importlib.import_module(max((m for m in MODULES if signature["id"].startswith(f"{m}.")), key=len))
            wrong += [f"{signature['id']}: {head}" for head in heads if not exceptions(module, head)]
        elif kind != "Returns":
            wrong.append(f"{signature['id']}: {kind}")
    assert not wrong, f"neither an argument nor an exception: {'; '.join(wrong)}"
    assert seen > 300, f"expected the fields of the API page, found {seen}"
