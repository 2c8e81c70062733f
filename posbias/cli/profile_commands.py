"""Commands that compute: ``posbias rollout`` and ``posbias compare``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer

from posbias import errors
from posbias.cli.options import refuse_given, with_options
from posbias.measure.settings import setting

if TYPE_CHECKING:
    from posbias.published.configuration import RolloutConfig

Variant = Literal[
    "a", "b", "c", "attention", "residual", "content", "kernels", "own", "untrained",
    "independent", "fixed-attention", "vectors", "positions",
]  # fmt: skip
FIGURE = "figure/"
"""How the names of the curves begin that the authors drew."""


@dataclass(frozen=True)
class Asked:
    """Hold the options of a rollout beside what it reads and writes."""

    content: str | None = setting(
        None, "Of a published configuration: none, mean (one value), or all (by layer and head; default)."
    )
    corpus: str | None = setting(None, "What it was measured on: fineweb-edu (default), dclm or wikipedia.")
    no_residual: bool = setting(False, "With a mixing of 1 in every layer.")
    variant: Variant | None = setting(
        None,
        "Of a measurement: attention only (a), with residuals (b), with content too (c), measured kernels, each "
        "prompt's own kernels, the law of untrained networks, which adds squares, or a rung of the ladder: "
        "independent layers, fixed attention, mean attention with the network's own value maps (vectors), positions "
        "alone.",
    )
    norm: Literal["frobenius", "token"] | None = setting(
        None, "Of a measurement: which reading of the mixing λ; frobenius unless given."
    )
    law: Literal["aligned", "untrained"] | None = setting(
        None,
        "Of a configuration: what adds up, sizes (the rollout; aligned, unless given) or squares, as in an untrained "
        "network with the gains of its field branches, else λ/(1-λ).",
    )
    architecture: str | None = setting(
        None, "bloom, mpt or falcon: use the model's own slopes and scales; needs --head-dim."
    )
    head_dim: int | None = setting(None, "Size of a head, for --architecture.")
    scalar_content: Literal["every-head", "first-head"] | None = setting(
        None,
        "Of a configuration: which heads get a content value given once, every-head unless given; the authors' program "
        "gives it to the first.",
    )
    length: int | None = setting(None, "Tokens, in place of its own.", "-n")
    overwrite: bool = setting(False, "Replace the output if it is there.")


def register(app: typer.Typer) -> None:
    """Add the commands that compute to ``app``."""
    app.command("rollout", short_help="Predict the influence profile.")(rollout)
    app.command("compare", short_help="Compare two profiles.")(compare)


@with_options(options=[Asked])
def rollout(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Profile to write (.csv); the configuration itself (.yaml).")
    ],
    source: Annotated[
        Path | None, typer.Argument(help="Configuration in the authors' YAML format, or a measurement (.nc).")
    ] = None,
    published: Annotated[
        str | None,
        typer.Option(
            help="In place of a file, what the authors published: the configuration of falcon-rw-7b, mpt-7b, mpt-30b, "
            "bloom-7b1 or bloom, or the curve measured (BLOOM-176B), figure/bloom, figure/bloom_content or "
            "figure/no_residual."
        ),
    ] = None,
    *,
    options: dict[str, Any],
) -> None:
    """Compute the influence profile that a configuration, a measurement, or what the authors published describes."""
    from posbias.files import check_output, refuse_same, write_whole
    from posbias.rollout.profiles import mean_position, write_profile

    asked = Asked(**options)
    if (source is None) == (published is None):
        received = "neither" if source is None else "both"
        raise errors.invalid("source and --published", "a configuration or a measurement, or a name", received)
    measured = source is not None and source.suffix == ".nc"
    drawn = published is not None and (published == "measured" or published.startswith(FIGURE))
    for allowed, names in (
        (measured, ("variant", "norm")),
        (not (measured or drawn), ("architecture", "head_dim", "scalar_content", "law")),
        (source is None and not drawn, ("content", "corpus", "no_residual")),
        (not drawn, ("length",)),
    ):
        refuse_given(asked, () if allowed else names, f"none for {source or published}")
    if measured and asked.variant is None:
        raise errors.invalid("--variant", f"one for the measurement {source}", "none")
    if (asked.architecture is None) != (asked.head_dim is None):
        raise errors.invalid("--architecture and --head-dim", "both or neither", "one of them")
    if asked.length is not None:
        errors.positive_integer("sequence_length", asked.length)
    if source is not None:
        refuse_same(output, source)
    check_output(output, output.suffix, overwrite=asked.overwrite)
    if drawn:
        from posbias.published.numbers import figure_profile

        p, T, H = figure_profile(str(published).removeprefix(FIGURE)), 70, 112
    elif measured and source is not None:
        p, T, H = _of_measurement(source, asked)
    else:
        from posbias.published import numbers
        from posbias.published.configuration import read_config

        content = "all" if asked.content is None else asked.content
        choice = str(published), content, asked.corpus or "fineweb-edu", not asked.no_residual
        config = numbers.config(*choice) if source is None else read_config(source)
        T, H = config.num_layers, config.attention_config.num_heads
        if source is None and output.suffix == ".yaml":
            write_whole(output, numbers.written_config(*choice))
            typer.echo(f"{output}: {T} layers x {H} heads, {config.sequence_length} tokens")
            return
        p = _of_configuration(str(source or "published"), config, asked)
    write_profile(output, p)
    ends = f"mean position {mean_position(p):.4f}, first {p[0]:.4g}, last {p[-1]:.4g}"
    typer.echo(f"{output}: {p.size} tokens, {T} layers x {H} heads, {ends}")


def _of_measurement(file: Path, asked: Asked) -> tuple[np.ndarray, int, int]:
    """Return the rollout of a measurement, with its layers and heads."""
    from posbias.netcdf import check_measurement

    check_measurement(file)

    from posbias.measure.results import read_results
    from posbias.measure.rollouts import measured_profile
    from posbias.measure.settings import LETTERS

    results, variant = read_results(file), str(asked.variant)
    p = measured_profile(results, LETTERS.get(variant, variant), n=asked.length, norm=asked.norm or "frobenius")
    return p, results.sizes["layer"], results.sizes["head"]


def _of_configuration(name: str, config: RolloutConfig, asked: Asked) -> np.ndarray:
    """Return the profile of a configuration; ValueError, with its name, where λ gives no gains."""
    from posbias.published.architectures import architecture_faithful
    from posbias.rollout.untrained import profile_of_gains

    if asked.architecture is not None and asked.head_dim is not None:
        config = architecture_faithful(config, asked.architecture, asked.head_dim)
    if asked.length is not None:
        config = config.at_length(asked.length)
    heads = asked.scalar_content or "every-head"
    if asked.law != "untrained":
        return config.profile(heads)
    try:
        return profile_of_gains(config.kernels(heads), config.gains(), config.sequence_length)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def compare(
    first: Annotated[
        Path, typer.Argument(help="Profile (token_position,probability), or a measurement (.nc): its influence.")
    ],
    second: Annotated[Path, typer.Argument(help="Profile of the same length, or a measurement.")],
) -> None:
    """Print normalised W1, Spearman's correlation and both mean positions of two profiles."""
    from posbias.comparison.distances import mean_identity, spearman
    from posbias.rollout.profiles import mean_position

    p, q = _profile_of(first), _profile_of(second)
    if p.size != q.size:
        raise errors.invalid("profiles", "the same number of positions", f"{p.size} ({first}) and {q.size} ({second})")
    identity = mean_identity(p / p.sum(), q / q.sum())
    typer.echo(f"normalised W1      {identity.wasserstein:.6f}")
    typer.echo(f"Spearman           {spearman(p, q):.6f}")
    typer.echo(f"mean of {first.name}: {mean_position(p):.6f}")
    typer.echo(f"mean of {second.name}: {mean_position(q):.6f}")
    typer.echo(f"ordered            {'yes: W1 is the difference of means' if identity.ordered else 'no'}")


def _profile_of(file: Path) -> np.ndarray:
    """Return the profile in a file, or the influence in a measurement."""
    from posbias.rollout.profiles import read_profile

    if file.suffix != ".nc":
        return read_profile(file)
    from posbias.measure.measurement import load

    return load(file).influence.values
