"""The command ``posbias design``: position biases of a network that is to be, or one to add to a finished model."""

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
    from posbias.design.designer import Design, Wanted
    from posbias.rollout.gains import Gains

UNIFORM = "uniform"
"""The target that needs no file."""
BYTES_EACH = 20_000
"""What each layer and each head takes of memory, rows and kernels of a search included."""
OF_NEW = (
    "depth", "heads", "length", "lambda_", "gains", "plot", "profile", "local_slopes", "local", "each_layer", "law",
    "target",
)  # fmt: skip
"""Options that a bias for a finished model has no use for."""
SUFFIXES = {"output": (".yaml", ".yml"), "plot": (".png", ".svg"), "profile": (".csv",)}
"""How the names of the files end."""


@dataclass(frozen=True)
class Asked:
    """Hold the options beside the file to write."""

    depth: int | None = setting(None, "Number of layers T.")
    heads: int | None = setting(None, "Heads in each layer.")
    length: int | None = setting(None, "Tokens.", "-n")
    lambda_: str | None = setting(None, "Residual mixing in [0, 1]: one number, or T of them with commas between.")
    gains: Path | None = setting(
        None,
        "In place of --lambda, with --law untrained: a measurement (.nc) of an untrained network of that depth, with "
        "its branches; what its attentions and its gated MLPs do to gradients goes into the configuration.",
    )
    target: str = setting(UNIFORM, "uniform, or a file of token_position,probability (.csv) of that length.")
    local: int = setting(0, "How many of the heads stay local, with ALiBi slopes that are not designed.")
    local_slopes: str | None = setting(
        None, "Their slopes, with commas between; the steepest of ALiBi's rule for all heads unless given."
    )
    law: Literal["aligned", "untrained"] = setting(
        "aligned",
        "What adds up: sizes (the rollout), or squares, as in an untrained network. With squares the search takes "
        "longer (16 heads, 24 layers, 1,024 tokens: three times as long).",
    )
    each_layer: bool = setting(False, "Give every layer its own numbers; else all layers are alike.")
    seed: int = setting(0, "Of the starts of the search.")
    plot: Path | None = setting(None, "Figure to write (.png or .svg): the profile beside the target.")
    profile: Path | None = setting(None, "Profile to write (.csv): that under the law that is asked for.")
    measured: Path | None = setting(
        None,
        "In place of all that: a measurement of a finished model (.nc), with kernels. What is written is a bias to add "
        "to it (posbias measure --bias), such that the rollout of its measured attention is even.",
    )
    kind: Literal["best", "log", "alibi", "layers", "flat"] | None = setting(
        None,
        "Of such a bias: one exponent or one slope for all heads, one for each layer, or the best of these, unless "
        "given; or flat logits in some heads of each layer, which hide near keys and cost most.",
    )
    criterion: Literal["uniform", "worst"] | None = setting(
        None, "Nearest to uniform, unless given, or the largest influence of the worst sixteenth of the prompt."
    )
    overwrite: bool = setting(False, "Replace files that are there.")


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("design", short_help="Choose biases for a wanted profile.")(design)


@with_options(options=[Asked])
def design(
    output: Annotated[Path, typer.Option("--output", "-o", help="Configuration, or bias, to write (.yaml).")],
    *,
    options: dict[str, Any],
) -> None:
    """Choose position biases such that the influence profile is as near as can be to a wanted one."""
    from posbias.files import write_whole

    asked = Asked(**options)
    if asked.measured is not None:
        refuse_given(asked, OF_NEW, "none beside --measured")
        _check_outputs({"output": output}, (asked.measured,), asked.overwrite)
        text, report = _added(asked.measured, asked.kind or "best", asked.criterion or "uniform")
        write_whole(output, text)
        typer.echo("\n".join([*report, f"written: {output}; try it: posbias measure --bias {output}"]))
        return
    refuse_given(asked, ("kind", "criterion"), "none without --measured")
    T, H, n = _sizes(asked)
    mixing = _check_mixing(asked.lambda_, asked.gains, T, asked.law)
    errors.seed("seed", asked.seed)
    slopes = None if asked.local_slopes is None else _numbers("local_slopes", asked.local_slopes)
    files = {"output": output, "plot": asked.plot, "profile": asked.profile}
    _check_outputs(files, (asked.gains, None if asked.target == UNIFORM else Path(asked.target)), asked.overwrite)
    wish = _target(asked.target, n)

    from posbias.design import designer
    from posbias.rollout.profiles import write_profile

    own = None if asked.gains is None else _gains(asked.gains, T, H)
    task = designer.wanted(wish, mixing, H, asked.local, local_slopes=slopes, law=asked.law, gains=own)
    if asked.plot is not None:  # what it needs may be missing, which is said before the search
        from posbias.plotting import saved_panels
    found = designer.design(task, each_layer=asked.each_layer, seed=asked.seed)
    report = _report(task, found, asked.target)
    text = "".join(f"# {line}\n" for line in report) + _configuration(task, found)
    if asked.plot is not None:
        heads = designer.rival_heads(task)
        others = {name: task.profile(heads[name]) for name in ("no bias", "ALiBi's rule")}
        drawn = {"target": task.target, **others, "designed": found.profile}
        write_whole(asked.plot, saved_panels(drawn, asked.plot.suffix[1:]))
    if asked.profile is not None:
        write_profile(asked.profile, found.profile)
    write_whole(output, text)
    written = [str(path) for path in (output, asked.profile, asked.plot) if path]
    typer.echo("\n".join([*report, f"written: {', '.join(written)}"]))


def _added(measured: Path, kind: str, criterion: str) -> tuple[str, list[str]]:
    """Return the file with a bias for a finished model, and what is said of it."""
    from posbias.netcdf import check_measurement

    check_measurement(measured)

    from posbias.configuration import yaml_text
    from posbias.design.choice import attended, chosen_bias, distance_to_even, evaluated, worst_place
    from posbias.measure.results import read_results

    results = read_results(measured)
    model = attended(results)
    found = chosen_bias(model, kind, criterion)
    before = evaluated(model, "none", {"kind": "none"}).profile
    report = [
        f"{results.attrs['model']}: {len(model.lambda_)} layers x {model.heads} heads, {model.n} tokens; kind "
        f"{found.kind}, criterion {criterion}",
        *(
            f"{name}: W1 to uniform {distance_to_even(p):.4f}, worst place {worst_place(p):.3f} of an even share"
            for name, p in (("rollout as measured", before), ("expected with the bias", found.profile))
        ),
    ]
    return "".join(f"# {line}\n" for line in report) + yaml_text({"position_bias": found.description}), report


def _check_outputs(outputs: dict[str, Path | None], sources: tuple[Path | None, ...], overwrite: bool) -> None:
    """Raise for files that cannot be written or are there, that are read, and for one file asked for twice."""
    from posbias.files import check_output, refuse_same

    named: dict[Path, str] = {}
    for field, path in outputs.items():
        if path is None:
            continue
        for source in sources:
            if source is not None:
                refuse_same(path, source)
        place = check_output(path, SUFFIXES[field], field, overwrite=overwrite)
        if place in named:
            raise errors.invalid(field, f"another file than the {named[place]}", path)
        named[place] = field


def _sizes(asked: Asked) -> list[int]:
    """Return layers, heads and tokens, or raise for none of them, and for more than the machine has memory for."""
    found = []
    for name, least, size in (("depth", 1, BYTES_EACH), ("heads", 1, BYTES_EACH), ("length", 2, 10_000)):
        if (value := getattr(asked, name)) is None:
            raise errors.invalid(f"--{name}", "a number, or --measured for a finished model", "none")
        found.append(errors.positive_integer(name, value, minimum=least))
        errors.fits(name, value, value * size)
    return found


def _numbers(field: str, text: str) -> np.ndarray:
    """Return numbers with commas between as an array, or raise ValueError."""
    try:
        return errors.finite_array(field, [float(part) for part in text.split(",")], ndim=(1,))
    except ValueError:
        raise errors.invalid(field, "finite numbers with commas between", repr(text[:60])) from None


def _check_mixing(text: str | None, gains: Path | None, depth: int, law: str) -> np.ndarray | None:
    """Return T values in [0, 1], None where a measurement is given in their place; raise unless it is one of both."""
    from posbias.netcdf import check_measurement

    if (text is None) == (gains is None):
        raise errors.invalid("--lambda and --gains", "one of both", "neither" if text is None else "both")
    if gains is None:
        values = _numbers("lambda", str(text))
        if values.size not in (1, depth):
            raise errors.invalid("lambda", f"1 number or {depth}, one for each layer", values.size)
        return errors.mixing_coefficients("lambda", np.broadcast_to(values, depth))
    if law != "untrained":
        raise errors.invalid("--gains", "--law untrained with it", law)
    if gains.suffix != ".nc":
        raise errors.invalid("gains", "a measurement, which ends in .nc", gains)
    check_measurement(gains)
    return None


def _gains(file: Path, depth: int, heads: int) -> Gains:
    """Return the gains of a measured network, or raise ValueError if it has other layers or heads, or none."""
    from posbias.design.measured_gains import measured_gains
    from posbias.measure.results import read_results

    results = read_results(file)
    for option, name, own, there in (
        ("--depth", "layers", results.sizes["layer"], depth), ("--heads", "heads", results.sizes["head"], heads)
    ):  # fmt: skip
        if own != there:
            raise errors.invalid(f"gains {file}", f"{there} {name}, as {option} says", own)
    try:
        return measured_gains(results)
    except ValueError as error:
        raise ValueError(f"gains {file}: {error}") from None


def _target(name: str, length: int) -> np.ndarray:
    """Return the wanted profile, or raise ValueError if it is none of that length."""
    from posbias.rollout.profiles import read_profile

    if name == UNIFORM:
        return np.full(length, 1 / length)
    if not name.endswith(".csv"):
        raise errors.invalid("target", "uniform, or a file with a profile (.csv)", repr(name[:60]))
    p = read_profile(name)
    if p.size != length:
        raise errors.invalid(f"target {name}", f"{length} positions, as --length says", p.size)
    return p


def _report(task: Wanted, found: Design, target: str) -> list[str]:
    """Return what was asked for and what was found, lines of a table among them."""
    from posbias.comparison.distances import normalised_wasserstein
    from posbias.design.designer import least_distance_with_local, rivals
    from posbias.rollout.profiles import mean_position

    K, tau = len(task.local_slopes), float(task.lambda_.sum())
    lines = [
        f"target {target}, law {task.law}: {task.target.size} tokens, {task.lambda_.size} layers x {task.heads} heads, "
        f"{K} of them local, Σλ = {tau:.4g}",
        f"{'normalised W1 to the target':30} {'all heads':>10} {f'{K} local':>10}",
        *(f"{name:30} {every:10.4f} {kept:10.4f}" for name, (every, kept) in rivals(task).items()),
        f"{'designed':30} {'':10} {found.distance:10.4f}",
    ]
    if task.law == "aligned":
        lines.append(f"{'no free heads are below':30} {'':10} {least_distance_with_local(task):10.4f}")
    lines.append(f"designed: mean position {mean_position(found.profile):.4f}, last token {found.profile[-1]:.4f}")
    if task.law == "untrained":
        aligned = normalised_wasserstein(task.profile(found.description, "aligned"), task.target)
        lines.append(
            f"posbias rollout gives this profile with --law untrained; without it another, of W1 {aligned:.4f}"
        )
    return lines


def _configuration(task: Wanted, found: Design) -> str:
    """Return the design as a configuration of a rollout."""
    from posbias.configuration import RolloutConfig, config_text

    mixing, gains = task.lambda_.tolist(), task.gains
    branches: dict[str, Any] | None = None  # where λ says all
    if gains is not None:
        names = ("positions", "attention", "outputs", "steps", "overlaps")
        branches = {name: getattr(gains, name).tolist() for name in names} | {"parallel": gains.parallel}
    constant = {"schedule_type": "constant", "lambda_const": mixing[0]}
    custom = {"schedule_type": "custom", "lambdas_custom": mixing}
    fields = {
        "sequence_length": task.target.size,
        "num_layers": len(mixing),
        "position_bias": found.description,
        "attention_config": {"num_heads": task.heads},
        "lambda_schedule_config": constant if len(set(mixing)) == 1 else custom,
        "branches": branches,
    }
    return config_text(RolloutConfig.model_validate(fields))
