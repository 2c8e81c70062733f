"""Commands that compute: ``posbias rollout``, ``posbias compare`` and ``posbias published``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import typer

from posbias import errors

if TYPE_CHECKING:
    from posbias.published.configuration import RolloutConfig


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
        typer.Option(help="Which heads get a content value given once; the authors' program gives it to the first."),
    ] = "every-head",
    variant: Annotated[
        Literal["a", "b", "c", "kernels", "own", "birth"] | None,
        typer.Option(
            help="Of a measurement: attention only, with residuals, with content too, measured kernels, each prompt's "
            "own kernels, or the law at birth, which adds squares."
        ),
    ] = None,
    norm: Annotated[
        Literal["frobenius", "token"], typer.Option(help="Of a measurement: which reading of the mixing λ.")
    ] = "frobenius",
    law: Annotated[
        Literal["aligned", "birth"] | None,
        typer.Option(
            help="Of a configuration: what adds up, sizes (the rollout; aligned, unless given) or squares, as in an "
            "untrained network with the gains of its field branches, else λ/(1-λ)."
        ),
    ] = None,
) -> None:
    """Compute the influence profile that a configuration, or a measurement, describes."""
    from posbias.files import check_writable, refuse_same
    from posbias.published.architectures import architecture_faithful
    from posbias.published.configuration import read_config
    from posbias.rollout.profiles import write_profile

    refuse_same(output, config)
    if length is not None:
        errors.positive_integer("sequence_length", length)

    if (config.suffix == ".nc") != (variant is not None):
        raise errors.invalid(
            "--variant", "a variant for a measurement (.nc), and none for a configuration", config.name
        )
    if variant is not None:
        from posbias.netcdf import check_measurement

        if law is not None:
            raise errors.invalid("--law", "none for a measurement, but --variant", law)
        if architecture is not None or head_dim is not None:
            raise errors.invalid("--architecture and --head-dim", "neither: a measurement has its own", "one of them")
        check_measurement(config)
        check_writable(output)

        from posbias.measure.results import read_results
        from posbias.measure.rollouts import measured_profile

        results = read_results(config)
        p = measured_profile(results, variant, n=length, norm=norm)
        write_profile(output, p)
        typer.echo(_summary(output, p, results.sizes["layer"], results.sizes["head"]))
        return
    if (architecture is None) != (head_dim is None):
        raise errors.invalid("--architecture and --head-dim", "both or neither", "one of them")
    settings = read_config(config)
    check_writable(output)
    if architecture is not None and head_dim is not None:
        settings = architecture_faithful(settings, architecture, head_dim)
    if length is not None:
        settings = settings.at_length(length)
    p = settings.profile(scalar_content) if law != "birth" else _at_birth(config, settings, scalar_content)
    write_profile(output, p)
    typer.echo(_summary(output, p, settings.num_layers, settings.attention_config.num_heads))


def _at_birth(file: Path, settings: RolloutConfig, scalar_content: Literal["every-head", "first-head"]) -> np.ndarray:
    """Return the profile under the law at birth, or raise ValueError, with the file, where λ gives no gains."""
    from posbias.rollout.untrained import profile_of_gains

    try:
        return profile_of_gains(settings.kernels(scalar_content), settings.gains(), settings.sequence_length)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


def _summary(output: Path, p: np.ndarray, T: int, H: int) -> str:
    """Return one line about a profile."""
    from posbias.rollout.profiles import mean_position

    return (
        f"{output}: {p.size} tokens, {T} layers x {H} heads, "
        f"mean position {mean_position(p):.4f}, first {p[0]:.4g}, last {p[-1]:.4g}"
    )


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


def published(
    config: Annotated[
        str | None, typer.Option(help="Write a configuration: falcon-rw-7b, mpt-7b, mpt-30b, bloom-7b1 or bloom.")
    ] = None,
    content: Annotated[
        str | None,
        typer.Option(help="Its content logits: none, mean (one value), or all (each layer and head; default)."),
    ] = None,
    corpus: Annotated[
        str | None, typer.Option(help="What it was measured on: fineweb-edu (default), dclm or wikipedia.")
    ] = None,
    no_residual: Annotated[bool, typer.Option("--no-residual", help="With a mixing of 1 in every layer.")] = False,
    figure: Annotated[
        str | None,
        typer.Option(help="Write the curve of a figure: measured (BLOOM-176B), bloom, bloom_content or no_residual."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write: YAML for --config, CSV for --figure.")
    ] = None,
    download: Annotated[
        bool, typer.Option("--download", help="Fetch those of the authors' own files that are missing.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare the numbers that ship with the authors' own files at hand.")
    ] = False,
    rebuild: Annotated[
        Path | None, typer.Option(help="Read the authors' own files and write the numbers that ship to this file.")
    ] = None,
) -> None:
    """List what ships of the authors' numbers, write one of their configurations or curves, or check them."""
    from posbias.files import write_whole
    from posbias.published import numbers as authors
    from posbias.rollout.profiles import write_profile
    from studies.published import originals

    wanted = {"--config": config, "--figure": figure, "--download": download, "--verify": verify, "--rebuild": rebuild}
    given = [option for option, value in wanted.items() if value is not None and value is not False]
    if len(given) > 1:
        raise errors.invalid("options", f"one of {', '.join(wanted)}", " and ".join(given))
    if (output is None) == (config is not None or figure is not None):
        raise errors.invalid("--output", "it with --config or --figure, and only with them", output or "none")
    if config is None and (content is not None or corpus is not None or no_residual):
        raise errors.invalid("--content, --corpus and --no-residual", "them only with --config", "no --config")
    if config is not None and output is not None:
        content, corpus = "all" if content is None else content, "fineweb-edu" if corpus is None else corpus
        choice = config, content, corpus, not no_residual
        write_whole(output, authors.written_config(*choice))
        typer.echo(f"{output}: {_described(authors.config(*choice))}")
    elif figure is not None and output is not None:
        write_profile(output, authors.figure_profile(figure))
        typer.echo(f"{output}: BLOOM-176B, {figure}, from {originals.FIGURES[figure]}")
    elif download:
        typer.echo(f"{len(originals.download())} files fetched, in {originals.data_dir()}")
    elif verify:
        _verify()
    elif rebuild is not None:
        originals.rebuild(rebuild)
        typer.echo(f"{rebuild}: {rebuild.stat().st_size} bytes")
    else:
        _list()


def _described(config: RolloutConfig) -> str:
    return f"{config.num_layers} layers x {config.attention_config.num_heads} heads, {config.sequence_length} tokens"


def _list() -> None:
    """Print what ships, and the state of the authors' own files."""
    from posbias.published import numbers as authors
    from studies.published import originals

    typer.echo(f"ships with posbias, in {authors.SHIPPED.parent}:")
    for model in authors.MODELS:
        published = "; ".join(f"{x}: {', '.join(authors.corpora(model, x))}" for x in authors.CONTENTS)
        typer.echo(f"  --config {model}: {_described(authors.config(model))}; content {published}")
    for figure in originals.FIGURES:
        typer.echo(f"  --figure {figure}: {authors.figure_points(figure).size} tokens")
    typer.echo(f"  {len(authors.printed_tables())} printed distances, {len(authors.printed_recency())} probabilities")
    typer.echo(f"the authors' own files, which only --verify and --rebuild read, in {originals.data_dir().parent}:")
    for collection, name, state in originals.states():
        typer.echo(f"  {state:8} {collection}/{name}")
    typer.echo(f"from {' and '.join(originals.REPOSITORIES.values())}; --download fetches those of the first")


def _verify() -> None:
    """Print how each of the authors' own files compares with what ships; raise if one does not agree."""
    from studies.published import originals

    found = originals.verify()
    for check in found:
        typer.echo(f"{check.outcome:13} {check.collection}/{check.name}")
    equal = sum(check.outcome == "equal" for check in found)
    typer.echo(f"{equal} of {len(found)} files equal what ships, in {originals.data_dir().parent}")
    if any(check.outcome == "unread" for check in found):
        typer.echo("reading figures needs pypdf: pip install 'posbias[originals]'")
    bad = [check for check in found if check.outcome in ("differs", "other numbers")]
    if bad:
        received = "; ".join(f"{check.outcome}: {originals.data_dir(check.collection) / check.name}" for check in bad)
        raise errors.invalid("authors' files", "what ships, with the registry's checksums", received)
