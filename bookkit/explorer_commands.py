"""The command that makes the data of the explorer page."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

if TYPE_CHECKING:
    from bookkit.explorer import Preset, SlopeRule

REFERENCE = (
    "bloom-8", "bloom-12", "bloom-24", "mpt-12", "falcon-12", "gpt2-12", "llama-12", "llama-ntk-12", "mistral-12",
    "nope-12",
)  # fmt: skip
"""The reference models, in the order in which the page lists them."""
CORPUS = "builtin"
"""The held-out text that comes with the package."""


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("explorer-data")(explorer_data)


def explorer_data(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Script to write; the page's own.")] = None,
) -> None:
    """Write the presets of the explorer page: the published models and the measured reference models."""
    from bookkit.explorer import DATA
    from bookkit.project import find_root
    from posbias.files import write_whole

    root = find_root()
    path = root / DATA if output is None else output
    text = explorer_text(root / "results" / "models")
    write_whole(path, text)
    typer.echo(f"{path}: {len(text.encode()) / 1000:.0f} kB")


def explorer_text(measurements: Path) -> str:
    """Return the whole script, from the numbers that ship and a folder of measurements."""
    from bookkit.explorer import explorer_script

    return explorer_script([*published_presets(), *reference_presets(measurements)])


def published_presets() -> list[Preset]:
    """Return the five published models, with the content that was measured on FineWeb-Edu.

    Source: residual-aware paper, section 6.2 and figure 1; the numbers are those that ship with the package.

    >>> bloom = next(p for p in published_presets() if p.name == "bloom")
    >>> bloom.label, bloom.lambda_.size, bloom.heads, bloom.slopes
    ('BLOOM-176B', 70, 112, 'geometric')
    """
    from bookkit.explorer import Preset
    from posbias.published import numbers

    presets = []
    for name, model in numbers.MODELS.items():
        config = numbers.config(name, "all")
        heads = config.attention_config.num_heads
        rule, scale = slope_rule(config.attention_config.alibi_slopes[0], heads)
        mean = numbers.config(name, "mean").content_config.diagonal_scores[0][0]
        presets.append(
            Preset(
                name=name,
                label=model.label,
                collection="published",
                n=config.sequence_length,
                heads=heads,
                slopes=rule,
                scale=scale,
                window=0,
                lambda_=config.lambdas(),
                mean=mean,
                diagonal=np.array(config.content_config.diagonal_scores),
                single=True,
                measured=numbers.measured_profile() if name == "bloom" else None,
                source="mixing and content as published, measured on FineWeb-Edu",
            )
        )
    return presets


def slope_rule(slopes: Iterable[float], heads: int) -> tuple[SlopeRule, float]:
    """Return which rule gives a layer's slopes, and the factor on it.

    Raises
    ------
    ValueError
        If no rule gives them.

    >>> slope_rule([0.03125, 0.001953125], 2), slope_rule([0.0, 0.0], 2)
    (('rule', 0.5), ('none', 1.0))
    """
    from posbias import errors
    from posbias.rollout.logits import alibi_slopes, geometric_slopes

    given = np.array(list(slopes), dtype=np.float64)
    if not given.any():
        return "none", 1.0
    own, quoted = alibi_slopes(heads), geometric_slopes(heads)
    if np.allclose(given, given[0] / own[0] * own, rtol=1e-12, atol=0):
        return "rule", float(given[0] / own[0])
    if np.allclose(given, given[0] / quoted[0] * quoted, rtol=1e-12, atol=0):
        return "geometric", float(given[0] / quoted[0])
    raise errors.invalid("slopes", f"those of a rule for {heads} heads, times a factor", given.tolist())


def reference_presets(measurements: Path) -> list[Preset]:
    """Return the reference models as measured on the held-out text that comes with the package.

    λ is read from Frobenius norms, as in chapter 31, and content is the measured diagonal less the rest.

    Raises
    ------
    OSError
        If a measurement is missing.
    ValueError
        If layers differ in slopes or windows, which a preset cannot say.
    """
    from bookkit.explorer import Preset
    from posbias import errors
    from posbias.measure.summary import read_summary

    presets = []
    for name in REFERENCE:
        x = read_summary(measurements / f"{name}.{CORPUS}.nc")
        slopes, windows = x["slopes"].values.astype(np.float64), set(x["window"].values.tolist())
        if len(windows) > 1 or (slopes != slopes[0]).any():
            raise errors.invalid(name, "the same slopes and window in every layer", f"windows {sorted(windows)}")
        rule, scale = slope_rule(slopes[0], x.sizes["head"])
        diagonal = (x["content_diagonal"] - x["content_offdiagonal"]).values.astype(np.float64).round(9)
        presets.append(
            Preset(
                name=f"reference-{name}",
                label=name,
                collection="reference",
                n=int(x.attrs["length"]),
                heads=x.sizes["head"],
                slopes=rule,
                scale=scale,
                window=int(windows.pop()),
                lambda_=x["lambda_frobenius"].values.astype(np.float64).round(12),
                mean=round(float(diagonal.mean()), 4),
                diagonal=diagonal,
                single=False,
                measured=x["influence"].values.astype(np.float64),
                source="mixing, content and influence as measured on held-out text",
            )
        )
    return presets
