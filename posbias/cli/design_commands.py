"""The command ``posbias design``: position biases of a network that is to be, or one to add to a finished model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from posbias import errors
from posbias.cli.options import refuse_given, with_options
from posbias.settings import setting


@dataclass(frozen=True)
class Asked:
    """Hold the options beside the file to write."""

    depth: int | None = setting(None, "Number of layers T.")
    heads: int | None = setting(None, "Heads in each layer.")
    length: int | None = setting(None, "Tokens.", "-n")
    lambda_: str | None = setting(None, "Residual mixing in [0, 1]: one number, or T of them with commas between.")
    measured: Path | None = setting(
        None,
        "In place of all that: a measurement of a finished model (.nc), with kernels. What is written is a bias to add "
        "to it (posbias measure --bias), such that the rollout of its measured attention is even: the best of one "
        "exponent or one slope for all heads, and one for each layer.",
    )
    overwrite: bool = setting(False, "Replace the file if it is there.")


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("design", short_help="Choose biases for an even profile.")(design)


@with_options(options=[Asked])
def design(
    output: Annotated[Path, typer.Option("--output", "-o", help="Configuration, or bias, to write (.yaml).")],
    *,
    options: dict[str, Any],
) -> None:
    """Choose position biases such that the influence profile is as even as can be.

    For a network that is to be, the nearest of four is written: no bias, ALiBi's rule, the exponent Σλ - 1, or flat
    heads with τ = Σλ.
    """
    from posbias.files import check_output, write_whole

    asked = Asked(**options)
    check_output(output, (".yaml", ".yml"), overwrite=asked.overwrite)
    if asked.measured is None:
        report, text = _of_new(asked)
    else:
        refuse_given(asked, ("depth", "heads", "length", "lambda_"), "none beside --measured")
        report, text = _of_finished(asked.measured)
        report.append(f"try it: posbias measure --bias {output}")
    write_whole(output, "".join(f"# {line}\n" for line in report) + text)
    typer.echo("\n".join([*report, f"written: {output}"]))


def _of_new(asked: Asked) -> tuple[list[str], str]:
    """Return what is said of the biases in closed form, and the nearest to uniform as a configuration."""
    from posbias.configuration import RolloutConfig, config_text
    from posbias.design import closed_forms, distance_to_even

    T, H, n = (_size(asked, name, least) for name, least in (("depth", 1), ("heads", 1), ("length", 2)))
    lambda_ = _mixing(asked.lambda_, T)
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


def _of_finished(measured: Path) -> tuple[list[str], str]:
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
    return report, yaml_text({"position_bias": found.description})


def _size(asked: Asked, name: str, least: int) -> int:
    """Return layers, heads or tokens, or raise for none of them."""
    if (value := getattr(asked, name)) is None:
        raise errors.invalid(f"--{name}", "a number, or --measured for a finished model", "none")
    return errors.positive_integer(name, value, minimum=least)


def _mixing(text: str | None, depth: int) -> np.ndarray:
    """Return T values in [0, 1], at least one above 0, or raise ValueError."""
    try:
        values = np.array([float(part) for part in str(text).split(",")])
    except ValueError:
        raise errors.invalid("--lambda", "numbers with commas between", repr(str(text)[:60])) from None
    if values.size not in (1, depth) or not values.any():
        raise errors.invalid("--lambda", f"1 number or {depth}, at least one above 0", text)
    return errors.mixing_coefficients("lambda", np.broadcast_to(values, depth))
