"""Commands that compute: ``posbias rollout``, ``posbias compare`` and ``posbias published``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import typer

from posbias import checks


def register(app: typer.Typer) -> None:
    """Add the commands that compute to ``app``."""
    for command in (rollout, compare, published):
        app.command(command.__name__)(command)


def rollout(
    config: Annotated[
        Path, typer.Argument(help="Configuration in the authors' YAML format, or a measurement (.nc) with --variant.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="CSV file to write.")],
    architecture: Annotated[
        str | None,
        typer.Option(help="bloom, mpt or falcon: use the model's own slopes and scales; needs --head-dim."),
    ] = None,
    head_dim: Annotated[int | None, typer.Option(help="Size of a head, for --architecture.")] = None,
    length: Annotated[int | None, typer.Option("--length", "-n", help="Tokens, in place of sequence_length.")] = None,
    scalar_content: Annotated[
        Literal["every-head", "first-head"],
        typer.Option(help="What one content value for many heads means; the authors' program gives it to the first."),
    ] = "every-head",
    variant: Annotated[
        Literal["a", "b", "c", "kernels"] | None,
        typer.Option(help="Of a measurement: attention only, with residuals, with content too, or measured kernels."),
    ] = None,
    norm: Annotated[
        Literal["frobenius", "token"], typer.Option(help="Of a measurement: which reading of the mixing λ.")
    ] = "frobenius",
) -> None:
    """Compute the influence profile that a configuration, or a measurement, describes."""
    from posbias.architectures import architecture_faithful
    from posbias.config import read_config
    from posbias.profiles import write_profile

    if (config.suffix == ".nc") != (variant is not None):
        raise checks.refuse("--variant", "it for a measurement (.nc), and only for one", config.name)
    if variant is not None:
        from posbias.measure.configure import measured_rollout
        from posbias.measure.results import read_results

        if architecture is not None or head_dim is not None:
            raise checks.refuse("--architecture and --head-dim", "neither: a measurement has its own", "one of them")
        results = read_results(config)
        p = measured_rollout(results, variant, n=length, norm=norm).profile()
        write_profile(output, p)
        typer.echo(_summary(output, p, results.sizes["layer"], results.sizes["head"]))
        return
    if (architecture is None) != (head_dim is None):
        raise checks.refuse("--architecture and --head-dim", "both or neither", "one of them")
    settings = read_config(config)
    if architecture is not None and head_dim is not None:
        settings = architecture_faithful(settings, architecture, head_dim)
    if length is not None:
        settings = settings.at_length(length)
    p = settings.profile(scalar_content)
    write_profile(output, p)
    typer.echo(_summary(output, p, settings.num_layers, settings.attention_config.num_heads))


def _summary(output: Path, p: np.ndarray, T: int, H: int) -> str:
    """Return one line about a profile."""
    from posbias.profiles import mean_position

    return (
        f"{output}: {p.size} tokens, {T} layers x {H} heads, "
        f"mean position {mean_position(p):.4f}, first {p[0]:.4g}, last {p[-1]:.4g}"
    )


def compare(
    first: Annotated[Path, typer.Argument(help="Profile (token_position,probability).")],
    second: Annotated[Path, typer.Argument(help="Profile of the same length.")],
) -> None:
    """Print normalised W1, Spearman's correlation and both mean positions of two profiles."""
    from posbias.profiles import mean_identity, mean_position, read_profile, spearman

    p, q = read_profile(first), read_profile(second)
    identity = mean_identity(p / p.sum(), q / q.sum())
    typer.echo(f"normalised W1      {identity.wasserstein:.6f}")
    typer.echo(f"Spearman           {spearman(p, q):.6f}")
    typer.echo(f"mean of {first.name}: {mean_position(p):.6f}")
    typer.echo(f"mean of {second.name}: {mean_position(q):.6f}")
    typer.echo(f"ordered            {'yes: W1 is the difference of means' if identity.ordered else 'no'}")


def published(
    download: Annotated[bool, typer.Option("--download", help="Fetch the files that are missing.")] = False,
    figure: Annotated[
        str | None,
        typer.Option(help="Recover a vector figure: measured (BLOOM-176B), bloom, bloom_content or no_residual."),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="CSV file for the recovered curve.")] = None,
) -> None:
    """List the authors' files with their state, download them, or recover the curve of one of their figures."""
    from posbias import published as authors
    from posbias.profiles import write_profile

    if (figure is None) != (output is None):
        raise checks.refuse("--figure and --output", "both or neither", "one of them")
    if download:
        authors.download()
    if figure is not None and output is not None:
        write_profile(output, authors.figure_profile(figure))
        typer.echo(f"{output}: recovered from {authors.FIGURES[figure]}")
        return
    bad = 0
    for name in authors.registry():
        try:
            authors.path(name)
            state = "ok"
        except FileNotFoundError:
            state = "missing"
        except ValueError as error:
            state, bad = str(error), bad + 1
        typer.echo(f"{state:8} {name}")
    typer.echo(f"in {authors.data_dir()}, from the authors' repository at {authors.COMMIT}")
    if bad:
        raise checks.refuse("published files", "the registry's checksums", f"{bad} that differ")
