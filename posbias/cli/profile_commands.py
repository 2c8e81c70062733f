"""Commands that compute: ``posbias rollout`` and ``posbias compare``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import typer

from posbias import errors

if TYPE_CHECKING:
    from posbias.published.configuration import RolloutConfig

FIGURE = "figure/"
"""How the names of the curves begin that the authors drew."""


def register(app: typer.Typer) -> None:
    """Add the commands that compute to ``app``."""
    app.command("rollout", short_help="Predict the influence profile.")(rollout)
    app.command("compare", short_help="Compare two profiles.")(compare)


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
    content: Annotated[
        str | None,
        typer.Option(help="Of a published configuration: none, mean (one value), or all (by layer and head; default)."),
    ] = None,
    corpus: Annotated[
        str | None, typer.Option(help="What it was measured on: fineweb-edu (default), dclm or wikipedia.")
    ] = None,
    no_residual: Annotated[bool, typer.Option("--no-residual", help="With a mixing of 1 in every layer.")] = False,
    variant: Annotated[
        Literal["a", "b", "c", "attention", "residual", "content", "kernels", "own", "birth"] | None,
        typer.Option(
            help="Of a measurement: attention only (a), with residuals (b), with content too (c), measured kernels, "
            "each prompt's own kernels, or the law at birth, which adds squares."
        ),
    ] = None,
    norm: Annotated[
        Literal["frobenius", "token"] | None,
        typer.Option(help="Of a measurement: which reading of the mixing λ; frobenius unless given."),
    ] = None,
    law: Annotated[
        Literal["aligned", "birth"] | None,
        typer.Option(
            help="Of a configuration: what adds up, sizes (the rollout; aligned, unless given) or squares, as in an "
            "untrained network with the gains of its field branches, else λ/(1-λ)."
        ),
    ] = None,
    architecture: Annotated[
        str | None,
        typer.Option(help="bloom, mpt or falcon: use the model's own slopes and scales; needs --head-dim."),
    ] = None,
    head_dim: Annotated[int | None, typer.Option(help="Size of a head, for --architecture.")] = None,
    scalar_content: Annotated[
        Literal["every-head", "first-head"] | None,
        typer.Option(
            help="Of a configuration: which heads get a content value given once, every-head unless given; the "
            "authors' program gives it to the first."
        ),
    ] = None,
    length: Annotated[int | None, typer.Option("--length", "-n", help="Tokens, in place of its own.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output if it is there.")] = False,
) -> None:
    """Compute the influence profile that a configuration, a measurement, or what the authors published describes."""
    from posbias.files import check_output, refuse_same
    from posbias.rollout.profiles import write_profile

    if (source is None) == (published is None):
        received = "neither" if source is None else "both"
        raise errors.invalid("source and --published", "a configuration or a measurement, or a name", received)
    measured = source is not None and source.suffix == ".nc"
    drawn = published is not None and (published == "measured" or published.startswith(FIGURE))
    _check_only(source or published, measured, {"--variant": variant, "--norm": norm})
    of_files = {
        "--architecture": architecture,
        "--head-dim": head_dim,
        "--scalar-content": scalar_content,
        "--law": law,
    }
    _check_only(source or published, not (measured or drawn), of_files)
    of_names = {"--content": content, "--corpus": corpus, "--no-residual": no_residual or None}
    _check_only(source or published, source is None and not drawn, of_names)
    _check_only(source or published, not drawn, {"--length": length})
    if measured and variant is None:
        raise errors.invalid("--variant", f"one for the measurement {source}", "none")
    if (architecture is None) != (head_dim is None):
        raise errors.invalid("--architecture and --head-dim", "both or neither", "one of them")
    if length is not None:
        errors.positive_integer("sequence_length", length)
    if source is not None:
        refuse_same(output, source)
    check_output(output, output.suffix, overwrite=overwrite)
    if drawn:
        from posbias.published.numbers import figure_profile

        p = figure_profile(str(published).removeprefix(FIGURE))
        T, H = 70, 112
    elif measured and source is not None:
        from posbias.netcdf import check_measurement

        check_measurement(source)

        from posbias.measure.results import read_results
        from posbias.measure.rollouts import measured_profile
        from posbias.measure.settings import LETTERS

        results = read_results(source)
        p = measured_profile(results, LETTERS.get(str(variant), str(variant)), n=length, norm=norm or "frobenius")
        T, H = results.sizes["layer"], results.sizes["head"]
    else:
        from posbias.published import numbers
        from posbias.published.architectures import architecture_faithful
        from posbias.published.configuration import read_config

        choice = str(published), "all" if content is None else content, corpus or "fineweb-edu", not no_residual
        settings = numbers.config(*choice) if source is None else read_config(source)
        T, H = settings.num_layers, settings.attention_config.num_heads
        if source is None and output.suffix == ".yaml":
            from posbias.files import write_whole

            write_whole(output, numbers.written_config(*choice))
            typer.echo(f"{output}: {T} layers x {H} heads, {settings.sequence_length} tokens")
            return
        if architecture is not None and head_dim is not None:
            settings = architecture_faithful(settings, architecture, head_dim)
        if length is not None:
            settings = settings.at_length(length)
        heads = scalar_content or "every-head"
        p = _untrained(source, settings, heads) if law == "birth" else settings.profile(heads)
    write_profile(output, p)
    typer.echo(f"{output}: {_described(p, T, H)}")


def _check_only(source: object, allowed: bool, options: Mapping[str, object]) -> None:
    """Raise ValueError for options that a source does not have."""
    for option, value in options.items():
        if value is not None and not allowed:
            raise errors.invalid(option, f"none for {source}", value)


def _untrained(
    file: Path | None, settings: RolloutConfig, scalar_content: Literal["every-head", "first-head"]
) -> np.ndarray:
    """Return the profile under the law at birth, or raise ValueError, with the file, where λ gives no gains."""
    from posbias.rollout.untrained import profile_of_gains

    try:
        return profile_of_gains(settings.kernels(scalar_content), settings.gains(), settings.sequence_length)
    except ValueError as error:
        raise ValueError(f"{file or 'published'}: {error}") from None


def _described(p: np.ndarray, T: int, H: int) -> str:
    from posbias.rollout.profiles import mean_position

    ends = f"mean position {mean_position(p):.4f}, first {p[0]:.4g}, last {p[-1]:.4g}"
    return f"{p.size} tokens, {T} layers x {H} heads, {ends}"


def compare(
    first: Annotated[Path, typer.Argument(help="Profile (token_position,probability).")],
    second: Annotated[Path, typer.Argument(help="Profile of the same length.")],
) -> None:
    """Print normalised W1, Spearman's correlation and both mean positions of two profiles."""
    from posbias.comparison.distances import mean_identity, spearman
    from posbias.rollout.profiles import mean_position, read_profile

    p, q = read_profile(first), read_profile(second)
    identity = mean_identity(p / p.sum(), q / q.sum())
    typer.echo(f"normalised W1      {identity.wasserstein:.6f}")
    typer.echo(f"Spearman           {spearman(p, q):.6f}")
    typer.echo(f"mean of {first.name}: {mean_position(p):.6f}")
    typer.echo(f"mean of {second.name}: {mean_position(q):.6f}")
    typer.echo(f"ordered            {'yes: W1 is the difference of means' if identity.ordered else 'no'}")
