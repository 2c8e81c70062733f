"""Commands that compute: ``posbias rollout`` and ``posbias compare``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from posbias import errors

if TYPE_CHECKING:
    from posbias.rollout.labelled import Profile


def register(app: typer.Typer) -> None:
    """Add the commands that compute to ``app``."""
    app.command("rollout", short_help="Predict the influence profile.")(rollout)
    app.command("compare", short_help="Compare two profiles.")(compare)


def rollout(
    output: Annotated[Path, typer.Option("--output", "-o", help="Profile to write (.csv).")],
    source: Annotated[Path, typer.Argument(help="Configuration in the authors' YAML format, or a measurement (.nc).")],
    variant: Annotated[
        str | None,
        typer.Option(
            help="Of a measurement: the name of a prediction as in its report, such as attention-only, layer-shares, "
            "layer-shares-self, measured-attention, head-gains-squared or value-maps; a wrong one shows all."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output if it is there.")] = False,
) -> None:
    """Compute the influence profile that a configuration or a measurement describes."""
    from posbias.files import check_output
    from posbias.rollout.profiles import mean_position, write_profile

    measured = source.suffix == ".nc"
    if measured == (variant is None):
        expected = f"one for the measurement {source}" if measured else f"none for {source}, a configuration"
        raise errors.invalid("--variant", expected, variant or "none")
    check_output(output, ".csv", overwrite=overwrite)
    p, T, H = _of_configuration(source) if variant is None else _of_measurement(source, variant)
    write_profile(output, p)
    ends = f"mean position {mean_position(p):.4f}, first {p[0]:.4g}, last {p[-1]:.4g}"
    typer.echo(f"{output}: {p.size} tokens, {T} layers x {H} heads, {ends}")


def _of_measurement(file: Path, variant: str) -> tuple[np.ndarray, int, int]:
    """Return the rollout of a measurement, with its layers and heads."""
    from posbias.measure.results import read_results
    from posbias.predict import predict

    results = read_results(file)
    return predict(results, variant), results.sizes.get("layer", 0), results.sizes.get("head", 0)


def _of_configuration(file: Path) -> tuple[np.ndarray, int, int]:
    """Return the profile of a configuration, with its layers and heads."""
    from posbias.configuration import read_config

    config = read_config(file)
    return config.profile(), config.num_layers, config.attention_config.num_heads


def compare(
    first: Annotated[
        Path, typer.Argument(help="Profile (token_position,probability), or a measurement (.nc): its influence.")
    ],
    second: Annotated[Path, typer.Argument(help="Profile of the same length, or a measurement.")],
) -> None:
    """Print normalised W1, Spearman's correlation and both mean positions of two profiles, beside baselines."""
    from posbias.comparison.pairs import compare as compare_profiles

    typer.echo(repr(compare_profiles(_profile_of(first), _profile_of(second))))


def _profile_of(file: Path) -> Profile:
    """Return the profile in a file, or the influence in a measurement."""
    if file.suffix == ".nc":
        from posbias.measure.measurement import load

        return load(file).influence
    from posbias.rollout.labelled import Profile
    from posbias.rollout.profiles import read_profile

    return Profile(read_profile(file), file.name)
