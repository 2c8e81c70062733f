"""Try a row of the table of families on a model: ``python -m posbias.networks.check DIR [--row row.yaml]``.

A model whose family has no row needs one in a file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from typing import Any, get_args

import yaml

from posbias import errors
from posbias.networks.families import FAMILIES, GROUPS, Family, Position, row_of, text_config

AS_TEXT = {
    **dict.fromkeys(("name", "blocks", "attention", "output", "position", "biased", "sinks"), str),
    **dict.fromkeys(("context", "norm", "projections", "unrotated", "latent"), list),
    **dict.fromkeys(("parallel", "fused", "exact_in_16_bit", "narrows"), bool),
    **dict.fromkeys(("scale", "multiplier", "groups"), (str, float, int)),
}
"""Fields of a row that a file can say, and what they are there. ``scale`` is an attribute of the attention module or a
number, ``multiplier`` the same of the layer, ``groups`` a name of :data:`~posbias.networks.families.GROUPS`."""
NEEDED = [one.name for one in fields(Family)][:6]
B, N = 2, 12
"""Prompts and tokens on which a row is tried."""


def read_row(path: str | Path, name: str) -> Family:
    """Return the row that a YAML file describes, of the family ``name`` unless it says another, or raise ValueError."""
    try:
        said = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise errors.invalid(f"row {path}", "a file in YAML", " ".join(str(error).split())[:120]) from None
    if not isinstance(said, dict):
        raise errors.invalid(f"row {path}", "fields of a row", f"{said!r:.60}")
    said = {"name": name, **said}
    if unknown := sorted(map(str, set(said) - set(AS_TEXT))):
        raise errors.invalid(f"row {path}", f"fields among {', '.join(AS_TEXT)}", ", ".join(unknown))
    if missing := [field for field in NEEDED if field not in said]:
        raise errors.invalid(f"row {path}", f"{', '.join(NEEDED)}", f"none of {', '.join(missing)}")
    if said["name"] != name:
        raise errors.invalid(f"row {path}: name", f"{name}, the model's model_type", said["name"])
    return row_from(said, f"row {path}")


def row_from(said: dict[str, Any], where: str) -> Family:
    """Return the row that a description in plain words is, or raise ValueError."""
    for field, value in said.items():
        if value is None or not isinstance(value, AS_TEXT[field]):  # type: ignore[arg-type]
            kinds = {str: "a name", list: "a list of names", bool: "true or false"}
            expected = kinds.get(AS_TEXT[field], "a name or a number")  # type: ignore[call-overload]
            raise errors.invalid(f"{where}: {field}", expected, f"{value!r:.60}")
    for field, names in (("groups", GROUPS), ("position", get_args(Position))):
        if said.get(field) not in (None, *names):
            raise errors.invalid(f"{where}: {field}", f"one of {', '.join(names)}", said[field])
    made: dict[str, Any] = {field: tuple(value) if isinstance(value, list) else value for field, value in said.items()}
    for field in {"scale", "multiplier"} & made.keys():
        made[field] = _number(made[field])
    if "groups" in made:
        made["groups"] = GROUPS[made["groups"]]
    return Family(**made)


def _number(value: str | float) -> Any:
    """Return the function that a number, or the name of an attribute, stands for."""
    read = (lambda module: value) if isinstance(value, int | float) else attrgetter(value)
    return lambda module: float(read(module))


@contextmanager
def tried(row: Family | None) -> Iterator[None]:
    """Put a row into the table until the block ends; None leaves the table as it is."""
    if row is None:
        yield
        return
    before = FAMILIES.get(row.name)
    FAMILIES[row.name] = row
    try:
        yield
    finally:
        FAMILIES.pop(row.name)
        if before is not None:
            FAMILIES[row.name] = before


@contextmanager
def said_once(expected: str) -> Iterator[None]:
    """Say what a model's own code raises as a ValueError of one line; ours are let through."""
    from posbias.measure.plain import FAILS

    try:
        yield
    except FAILS as error:
        if isinstance(error, ValueError) and ": expected " in str(error):
            raise
        raise errors.invalid("model", expected, " ".join(str(error).split())[:120]) from None


def opened(folder: Path) -> Any:
    """Return the model in a directory, in 32 bits and eager attention; random weights where there are none.

    Random weights are larger than those of a network before training, so that its attention is far from uniform.
    """
    import torch
    from transformers import set_seed

    from posbias.measure.loading import Source
    from posbias.networks.auto import causal_class

    source = Source(str(folder))
    config = source.config()
    if any(folder.glob("*.safetensors")):
        return source.load_model(torch.float32, "cpu", None, "eager").eval().requires_grad_(False)
    set_seed(0)
    with said_once("a configuration that makes a model"):
        model = causal_class(config).from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    with torch.no_grad():
        for x in model.parameters():
            x.add_(torch.randn_like(x) * (1.5 * x.shape[-1] ** -0.5 if x.dim() > 1 else 0.3))
    return model.requires_grad_(False)


def main(words: list[str] | None = None) -> int:
    """Try a row, print what agrees and what does not, and return 1 if something does not, 2 for what is refused."""
    parser = argparse.ArgumentParser(prog="python -m posbias.networks.check", description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path, metavar="DIR", help="directory of a model, or of a config.json alone")
    parser.add_argument("--row", type=Path, help="a row in YAML, in place of the table's")
    given = parser.parse_args(words)
    try:
        return _run(given.folder, given.row)
    except (ValueError, ModuleNotFoundError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2


def _run(folder: Path, file: Path | None) -> int:
    """Try the row of a file, or of the table."""
    from posbias.measure.opening import check_config

    name = str(check_config(folder / "config.json", f"model {folder}").get("model_type"))
    row = None if file is None else read_row(file, name)
    import torch

    from posbias.measure.plain import PlainInstrument
    from posbias.measure.rowcheck import compared

    model = opened(folder)
    if row is None and row_of(model.config) is None:
        raise errors.invalid("row", "--row, a row in YAML, for a family that the table has not", name)
    PlainInstrument(model)  # raises where it takes no embeddings, or does not run
    ids = torch.randint(1, text_config(model.config).vocab_size, (B, N), generator=torch.Generator().manual_seed(0))
    agree = True
    with tried(row), said_once("a model that runs as the row says"):
        for one in compared(model, ids):
            agree = agree and one.holds
            print(one, flush=True)
    print("the row agrees with the model" if agree else "the row DISAGREES with the model")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
