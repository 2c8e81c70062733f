"""Commands that compute: ``posbias rollout``, ``compare`` and ``design``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from posbias import errors
from posbias.cli.options import Replace
from posbias.files import check_output, write_whole

if TYPE_CHECKING:
    from posbias.rollout.labelled import Profile


def register(app: typer.Typer) -> None:
    """Add the commands that compute to ``app``."""
    app.command("rollout", short_help="Predict the influence profile.")(rollout)
    app.command("compare", short_help="Compare two profiles.")(compare)
    app.command("design", short_help="Choose biases for an even profile.")(design)


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
    overwrite: Replace = False,
) -> None:
    """Compute the influence profile that a configuration or a measurement describes."""
    from posbias.rollout.profiles import mean_position, write_profile

    measured = source.suffix == ".nc"
    if measured == (variant is None):
        expected = f"one for the measurement {source}" if measured else f"none for {source}, a configuration"
        raise errors.invalid("--variant", expected, variant or "none")
    check_output(output, ".csv", overwrite=overwrite)
    if variant is None:
        from posbias.configuration import read_config

        config = read_config(source)
        p, T, H = config.profile(), config.num_layers, config.attention_config.num_heads
    else:
        from posbias.measure.results import read_results
        from posbias.predict import predict

        results = read_results(source)
        p, T, H = predict(results, variant), results.sizes.get("layer", 0), results.sizes.get("head", 0)
    write_profile(output, p)
    ends = f"mean position {mean_position(p):.4f}, first {p[0]:.4g}, last {p[-1]:.4g}"
    typer.echo(f"{output}: {p.size} tokens, {T} layers x {H} heads, {ends}")


def compare(
    first: Annotated[
        Path, typer.Argument(help="Profile (token_position,probability), or a measurement (.nc): its influence.")
    ],
    second: Annotated[Path, typer.Argument(help="Profile of the same length, or a measurement.")],
) -> None:
    """Print normalised W1, total variation, rank correlation and mean positions of two profiles, beside baselines."""
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


def design(
    output: Annotated[Path, typer.Option("--output", "-o", help="Configuration, or bias, to write (.yaml).")],
    depth: Annotated[int | None, typer.Option(help="Number of layers T.")] = None,
    heads: Annotated[int | None, typer.Option(help="Heads in each layer.")] = None,
    length: Annotated[int | None, typer.Option("--length", "-n", help="Tokens.")] = None,
    lambda_: Annotated[
        str | None,
        typer.Option("--lambda", help="Residual mixing in [0, 1]: one number, or T of them with commas between."),
    ] = None,
    measured: Annotated[
        Path | None,
        typer.Option(
            help="In place of all that: a measurement of a finished model (.nc), with kernels. What is written is a "
            "bias to add to it (posbias measure --condition bias:FILE), such that the rollout of its measured "
            "attention is even: the best of one exponent or one slope for all heads, and one for each layer."
        ),
    ] = None,
    overwrite: Replace = False,
) -> None:
    """Choose position biases such that the influence profile is as even as can be.

    For a network that is to be, the nearest of four is written: no bias, ALiBi's rule, the exponent Σλ - 1, or flat
    heads with τ = Σλ.
    """
    check_output(output, (".yaml", ".yml"), overwrite=overwrite)
    network = {"--depth": depth, "--heads": heads, "--length": length, "--lambda": lambda_}
    for option, value in network.items():
        if (value is None) == (measured is None):
            expected = "none beside --measured" if measured else "a number, or --measured for a finished model"
            raise errors.invalid(option, expected, "none" if value is None else value)
    report, text = _of_finished(measured, output) if measured else _of_new(depth, heads, length, lambda_)
    write_whole(output, "".join(f"# {line}\n" for line in report) + text)
    typer.echo("\n".join([*report, f"written: {output}"]))


def _of_new(depth: int | None, heads: int | None, length: int | None, mixing: str | None) -> tuple[list[str], str]:
    """Return what is said of the biases in closed form, and the nearest to uniform as a configuration."""
    from posbias.configuration import RolloutConfig, config_text
    from posbias.design import closed_forms, distance_to_even

    T, H = errors.positive_integer("depth", depth), errors.positive_integer("heads", heads)
    n, lambda_ = errors.positive_integer("length", length, minimum=2), _mixing(str(mixing), T)
    schedule = {"schedule_type": "custom", "lambdas_custom": lambda_.tolist()}
    fields = {"sequence_length": n, "num_layers": T, "lambda_schedule_config": schedule}
    found, report = {}, [f"{n} tokens, {T} layers x {H} heads, Σλ = {lambda_.sum():.4g}"]
    for name, biases in closed_forms(lambda_, H).items():
        config = RolloutConfig.model_validate(fields | {"position_bias": biases})
        distance = distance_to_even(config.profile())
        found[distance] = config, name
        report.append(f"{name:20} W1 to uniform {distance:.4f}")
    config, name = found[min(found)]
    return [*report, f"nearest: {name}"], config_text(config)


def _of_finished(measured: Path, output: Path) -> tuple[list[str], str]:
    """Return what is said of the bias for a finished model, and the file with it."""
    from posbias.configuration import yaml_text
    from posbias.design import choose_bias, evaluate, read_attention
    from posbias.measure.results import read_results

    results = read_results(measured)
    model = read_attention(results)
    found, before = choose_bias(model), evaluate(model, "none", {"kind": "none"})
    shape = f"{len(model.lambda_)} layers x {model.heads} heads, {model.n} tokens"
    report = [f"{results.attrs['model']}: {shape}; kind {found.kind}"]
    for name, choice in (("rollout as measured", before), ("expected with the bias", found)):
        report.append(f"{name}: W1 to uniform {choice.value:.4f}")
    return [*report, f"try it: posbias measure MODEL --condition bias:{output}"], yaml_text(
        {"position_bias": found.description}
    )


def _mixing(text: str, depth: int) -> np.ndarray:
    """Return T values in [0, 1], at least one above 0, or raise ValueError."""
    try:
        values = np.array([float(part) for part in text.split(",")])
    except ValueError:
        raise errors.invalid("--lambda", "numbers with commas between", repr(text[:60])) from None
    if values.size not in (1, depth) or not values.any():
        raise errors.invalid("--lambda", f"1 number or {depth}, at least one above 0", text)
    return errors.mixing_coefficients("lambda", np.broadcast_to(values, depth))
