"""The explorer: the data of its presets, and the parts of its page without the book around them.

The page opens from disk too, where scripts may not fetch files, so the data are a script that sets one variable. What
a preset does not say, the page has defaults for; ``book/assets/explorer/state.js`` reads the fields.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from posbias import errors
from posbias.files import write_whole
from posbias.rollout.logits import alibi_slopes, geometric_slopes
from studies.published import numbers

DATA = Path("book") / "assets" / "explorer" / "data.js"
"""Where the data lie in the project; ``python -m bookkit explorer-data`` writes them."""
HEADER = (
    "/* Presets of the explorer. Made by `python -m bookkit explorer-data`; "
    "change bookkit/explorer.py, not this file. */"
)
REFERENCE = (
    "bloom-8", "bloom-12", "bloom-24", "mpt-12", "falcon-12", "gpt2-12", "llama-12", "llama-ntk-12", "mistral-12",
    "nope-12",
)  # fmt: skip
"""The reference models, in the order in which the page lists them."""


def standalone_page(root: Path, folder: Path, name: str = "one_page") -> Path:
    """Write what a page has of the explorer as a page of its own into a folder, and return its path."""
    source = root / "book" / f"{name}.md"
    body = "\n".join(re.findall(r"^```\{raw\} html\n(.*?)\n```$", source.read_text("utf-8"), re.MULTILINE | re.DOTALL))
    shutil.copytree(root / DATA.parent, folder / "_static" / "explorer", dirs_exist_ok=True)
    page = folder / "notebooks" / f"{name}.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    head = '<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>Explorer</title>\n'
    size = '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">\n'
    write_whole(page, f'{head}{size}<body><main class="bd-content">\n{body}\n</main></body></html>\n')
    return page


def explorer_script(root: Path) -> str:
    """Return the script with the presets: JSON, a layer to a line, set as ``PosbiasPresets``."""
    entries = []
    for preset in (*measured_presets(root), *published_presets()):
        diagonal, measured, curves = preset.pop("diagonal"), preset.pop("measured"), preset.pop("curves", {})
        lines = [f"  {json.dumps(name)}: {json.dumps(value)}," for name, value in preset.items()]
        rows = (_row(row, preset["single"]) for row in diagonal)
        lines.append('  "diagonal": [\n' + ",\n".join(rows) + "\n  ],")
        if curves:
            drawn = ",\n".join(f'"{name}": {_curve(p / p.sum(), 5)}' for name, p in curves.items())
            lines.append(f'  "curves": {{\n{drawn}\n  }},')
        curve = "null" if measured is None else _curve(measured, 7)
        entries.append("{\n" + "\n".join(lines) + f'\n  "measured": {curve}\n}}')
    told = json.dumps(documents(root), ensure_ascii=False).replace("}, {", "},\n{")
    return f"{HEADER}\nvar PosbiasPresets = [{', '.join(entries)}];\nvar PosbiasDocuments = {told};\n"


def _curve(p: Iterable[float], digits: int) -> str:
    return f"[{','.join(f'{x:.{digits}g}' for x in p)}]"


SETS = 6
"""Contexts of eight documents that the explorer shows."""


def documents(root: Path) -> list[dict[str, Any]]:
    """Return contexts of eight documents, and what each did for the model's answer, by the document asked for."""
    from posbias.lookup.contexts import make_contexts
    from posbias.lookup.tasks import Task
    from studies import results

    kept, found = results.load("documents", root / "results")["smollm2.used"].isel(context=slice(SETS)), []
    contexts = make_contexts(Task("documents", kept.sizes["asked"]), kept.sizes["context"], 0)
    for k, context in enumerate(contexts):
        asks = context.asks["competing"]
        one = {"documents": asks[0].documents, "begin": [x.begin for x in asks], "answers": [x.answer for x in asks]}
        one |= {"source": kept["source"][k].values.astype(int).tolist()}
        ways = {"deletion": "removed", "influence": "influence", "contributions": "contributions"}
        ways |= {"attention": "attention"}
        found.append(one | {way: kept[name][k].values.astype(float).round(4).tolist() for way, name in ways.items()})
    return found


def _row(row: Iterable[float], single: bool) -> str:
    """Return a layer's numbers as JSON."""
    return f"[{','.join(_written(x, single) for x in row)}]"


def _written(x: float, single: bool) -> str:
    """Return a number in the digits that tell it from its neighbours, of measurements to seven decimals."""
    if single:
        return np.format_float_positional(np.float32(x), unique=True, trim="-")
    return np.format_float_positional(x, precision=7, unique=False, trim="-")


def published_presets() -> Iterator[dict[str, Any]]:
    """Yield the five published models, with the content that was measured on FineWeb-Edu.

    Source: residual-aware paper, section 6.2 and figure 1; the numbers are those that ship with the package.

    >>> bloom = next(p for p in published_presets() if p["name"] == "bloom")
    >>> bloom["label"], len(bloom["lambda"]), bloom["heads"], bloom["slopes"]
    ('BLOOM-176B', 70, 112, 'geometric')
    """
    for name, model in numbers.MODELS.items():
        config = numbers.config(name, "all")
        heads = config.attention_config.num_heads
        rule, scale = slope_rule(config.attention_config.alibi_slopes[0], heads)
        yield {
            "name": name,
            "label": model.label,
            "collection": "published",
            "source": "slopes, mixing and content as published, measured on FineWeb-Edu",
            "length": config.sequence_length,
            "heads": heads,
            "slopes": rule,
            "scale": scale,
            "window": 0,
            "mean": numbers.config(name, "mean").content_config.diagonal_scores[0][0],
            "single": True,  # numbers of single precision, written as such
            "lambda": config.lambdas().tolist(),
            "diagonal": np.array(config.content_config.diagonal_scores),
            "measured": numbers.measured_profile() if name == "bloom" else None,
        }


def measured_presets(root: Path) -> Iterator[dict[str, Any]]:
    """Yield SmolLM2 on Wikipedia, then the reference models on the held-out text that comes with the package."""
    from studies import results

    of_all = {study: results.load(study, root / "results") for study in ("real", "models", "contributions", "ladder")}
    for name in ("smollm2", *REFERENCE):
        large = name == "smollm2"
        x = of_all["real"][f"{name}.wiki-256"] if large else of_all["models"][f"{name}.builtin"]
        if large:
            curves = {"contributions": x["rollout"].sel(variant="contributions")}
            curves |= {"value-maps": x["rollout"].sel(variant="vectors")}
        else:
            shares = of_all["contributions"][f"{name}.shares"]["profile"]
            curves = {"contributions": shares.sel(prediction="contributions")}
            curves |= {"value-maps": of_all["ladder"][f"{name}.rungs"]["rung_mean"].sel(rung="vectors")}
        slopes, (window,) = x["slopes"].values.astype(np.float64), set(x["window"].values.tolist())
        if (slopes != slopes[0]).any():
            raise errors.invalid(name, "the same slopes in every layer", "others")
        rule, scale = slope_rule(slopes[0], x.sizes["head"])
        diagonal = (x["content_diagonal"] - x["content_offdiagonal"]).values.astype(np.float64).round(7)
        yield {
            "name": name if large else f"reference-{name}",
            "label": "SmolLM2" if large else name,
            "collection": "pretrained" if large else "reference",
            "source": f"mixing, content and influence as measured on {'Wikipedia' if large else 'held-out text'}",
            "length": int(x.attrs["length"]),
            "heads": x.sizes["head"],
            "slopes": rule,
            "scale": scale,
            "window": int(window),
            "mean": round(float(diagonal.mean()), 4),
            "single": False,
            "lambda": x["lambda_frobenius"].values.astype(np.float64).round(7).tolist(),
            "diagonal": diagonal,
            "curves": {curve: p.values.astype(np.float64) for curve, p in curves.items()},
            "measured": x["influence"].values.astype(np.float64),
        }


def slope_rule(slopes: Iterable[float], heads: int) -> tuple[str, float]:
    """Return which rule gives a layer's slopes, and the factor on it; ValueError if none gives them.

    ``rule`` is 2^(-8h/H) filled up as ALiBi's authors do, ``geometric`` the same without, ``none`` no slopes.

    >>> slope_rule([0.03125, 0.001953125], 2), slope_rule([0.0, 0.0], 2)
    (('rule', 0.5), ('none', 1.0))
    """
    given = np.array(list(slopes), dtype=np.float64)
    if not given.any():
        return "none", 1.0
    for name, own in (("rule", alibi_slopes(heads)), ("geometric", geometric_slopes(heads))):
        if np.allclose(given, given[0] / own[0] * own, rtol=1e-12, atol=0):
            return name, float(given[0] / own[0])
    raise errors.invalid("slopes", f"those of a rule for {heads} heads, times a factor", given.tolist())
