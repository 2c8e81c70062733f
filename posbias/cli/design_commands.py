"""The command that designs a prior: ``posbias design``, from a wanted profile to a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer

from posbias import errors

if TYPE_CHECKING:
    from posbias.design.designer import Design, Wanted
    from posbias.rollout.gains import Gains

UNIFORM = "uniform"
"""The target that needs no file."""
BYTES_EACH = 20_000
"""What each layer and each head takes of memory, rows and kernels of a search included."""


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("design")(design)


def design(
    output: Annotated[Path, typer.Option("--output", "-o", help="Configuration to write (.yaml).")],
    depth: Annotated[int, typer.Option("--depth", help="Number of layers T.")],
    heads: Annotated[int, typer.Option("--heads", help="Heads in each layer.")],
    length: Annotated[int, typer.Option("--length", "-n", help="Tokens.")],
    lambda_: Annotated[
        str | None,
        typer.Option("--lambda", help="Residual mixing in [0, 1]: one number, or T of them with commas between."),
    ] = None,
    gains: Annotated[
        Path | None,
        typer.Option(
            "--gains",
            help="In place of --lambda, for the law birth: a measurement (.nc) of an untrained network of that depth, "
            "with its branches; what its attentions and its gated MLPs do to gradients goes into the configuration.",
        ),
    ] = None,
    target: Annotated[
        str, typer.Option("--target", help="uniform, or a file of token_position,probability (.csv) of that length.")
    ] = UNIFORM,
    local: Annotated[
        int, typer.Option("--local", help="How many of the heads stay local, with ALiBi slopes that are not designed.")
    ] = 0,
    local_slopes: Annotated[
        str | None,
        typer.Option(
            help="Their slopes, with commas between; the steepest of ALiBi's rule for all heads unless given."
        ),
    ] = None,
    law: Annotated[
        Literal["aligned", "birth"],
        typer.Option(
            help="What adds up: sizes (the rollout), or squares, as in an untrained network. With squares the search "
            "takes longer (16 heads, 24 layers, 1,024 tokens: three times as long)."
        ),
    ] = "aligned",
    each_layer: Annotated[
        bool, typer.Option("--each-layer", help="Give every layer its own numbers; else all layers are alike.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="Of the starts of the search.")] = 0,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Figure to write (.png or .svg): the profile beside the target.")
    ] = None,
    profile: Annotated[
        Path | None, typer.Option("--profile", help="Profile to write (.csv): that under the law that is asked for.")
    ] = None,
) -> None:
    """Choose position biases of heads such that the influence profile is as near as can be to a wanted one."""
    _check_sizes(depth, heads, length)
    mixing = _check_mixing(lambda_, gains, depth, law)
    errors.seed("seed", seed)
    slopes = None if local_slopes is None else _numbers("local_slopes", local_slopes)
    _check_outputs({"output": output, "plot": plot, "profile": profile}, target, gains)
    wish = _target(target, length)

    from posbias.design import designer

    own = None if gains is None else _gains(gains, depth, heads)
    task = designer.wanted(wish, mixing, heads, local, local_slopes=slopes, law=law, gains=own)
    if plot is not None:
        import posbias.plotting  # noqa: F401 - what it needs may be missing, which is said before the search
    found = designer.design(task, each_layer=each_layer, seed=seed)
    report = _report(task, found, target)
    text = "".join(f"# {line}\n" for line in report) + _configuration(task, found)

    from posbias.files import write_whole
    from posbias.rollout.profiles import write_profile

    if plot is not None:
        write_whole(plot, _figure(task, found, plot.suffix[1:]))
    if profile is not None:
        write_profile(profile, found.profile)
    write_whole(output, text)
    typer.echo("\n".join([*report, f"written: {', '.join(str(path) for path in (output, profile, plot) if path)}"]))


SUFFIXES = {"output": (".yaml", ".yml"), "plot": (".png", ".svg"), "profile": (".csv",)}
"""How the names of the files end."""


def _check_outputs(outputs: dict[str, Path | None], target: str, gains: Path | None) -> None:
    """Raise for names that do not end as they should, files that cannot be written, and one file asked for twice."""
    from posbias.files import check_writable, refuse_same

    named: dict[Path, str] = {}
    for field, path in outputs.items():
        if path is None:
            continue
        if path.suffix not in SUFFIXES[field]:
            raise errors.invalid(field, f"a file that ends in {' or '.join(SUFFIXES[field])}", path.name or "none")
        if target != UNIFORM:
            refuse_same(path, Path(target))
        if gains is not None:
            refuse_same(path, gains)
        place = check_writable(path)
        if place in named:
            raise errors.invalid(field, f"another file than the {named[place]}", path)
        named[place] = field


def _check_sizes(depth: int, heads: int, length: int) -> None:
    """Raise for sizes that are none, or for which the machine has no memory."""
    errors.fits("depth", errors.positive_integer("depth", depth), depth * BYTES_EACH)
    errors.positive_integer("heads", heads)
    errors.positive_integer("length", length, minimum=2)
    errors.fits("heads", heads, heads * BYTES_EACH)
    errors.fits("length", length, length * 10_000)


def _numbers(field: str, text: str) -> np.ndarray:
    """Return numbers with commas between as an array, or raise ValueError."""
    try:
        return errors.finite_array(field, [float(part) for part in text.split(",")], ndim=(1,))
    except ValueError:
        raise errors.invalid(field, "finite numbers with commas between", repr(text[:60])) from None


def _check_mixing(text: str | None, gains: Path | None, depth: int, law: str) -> np.ndarray | None:
    """Return the mixing, None where a measurement is given in its place; raise unless it is one of both, and fits."""
    if (text is None) == (gains is None):
        raise errors.invalid("--lambda and --gains", "one of both", "neither" if text is None else "both")
    if gains is None:
        return _mixing(str(text), depth)
    from posbias.netcdf import check_measurement

    if law != "birth":
        raise errors.invalid("--gains", "--law birth with it", law)
    if gains.suffix != ".nc":
        raise errors.invalid("gains", "a measurement, which ends in .nc", gains.name or repr(str(gains)))
    check_measurement(gains)
    return None


def _gains(file: Path, depth: int, heads: int) -> Gains:
    """Return the gains of a measured network, or raise ValueError if it has other layers or heads, or none."""
    from posbias.design.measured_gains import measured_gains
    from posbias.measure.results import read_results

    results = read_results(file)
    for name, own, there in (("layers", results.sizes["layer"], depth), ("heads", results.sizes["head"], heads)):
        if own != there:
            option = {"layers": "--depth", "heads": "--heads"}[name]
            raise errors.invalid(f"gains {file}", f"{there} {name}, as {option} says", own)
    try:
        return measured_gains(results)
    except ValueError as error:
        raise ValueError(f"gains {file}: {error}") from None


def _mixing(text: str, depth: int) -> np.ndarray:
    """Return T values in [0, 1] from one or T of them, or raise ValueError."""
    values = _numbers("lambda", text)
    if values.size not in (1, depth):
        raise errors.invalid("lambda", f"1 number or {depth}, one for each layer", values.size)
    return errors.mixing_coefficients("lambda", np.full(depth, values[0]) if values.size == 1 else values)


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
    if task.law == "birth":
        from posbias.comparison.distances import normalised_wasserstein

        aligned = normalised_wasserstein(task.profile(found.description, "aligned"), task.target)
        lines.append(f"posbias rollout gives this profile with --law birth; without it another, of W1 {aligned:.4f}")
    return lines


def _configuration(task: Wanted, found: Design) -> str:
    """Return the design as a configuration of a rollout."""
    from posbias.published.configuration import RolloutConfig, config_text

    mixing = task.lambda_.tolist()
    constant = {"schedule_type": "constant", "lambda_const": mixing[0]}
    custom = {"schedule_type": "custom", "lambdas_custom": mixing}
    fields = {
        "sequence_length": task.target.size,
        "num_layers": len(mixing),
        "position_bias": found.description,
        "attention_config": {"num_heads": task.heads},
        "lambda_schedule_config": constant if len(set(mixing)) == 1 else custom,
        "branches": _branches(task),
    }
    return config_text(RolloutConfig.model_validate(fields))


def _branches(task: Wanted) -> dict[str, Any] | None:
    """Return a network's gains as a configuration has them, None where λ says all."""
    if task.gains is None:
        return None
    parts = {name: getattr(task.gains, name) for name in ("positions", "attention", "outputs", "steps", "overlaps")}
    return {**{name: x.tolist() for name, x in parts.items()}, "parallel": task.gains.parallel}


def _figure(task: Wanted, found: Design, kind: str) -> bytes:
    """Return the figure of target, rivals and design, profiles and prefix masses."""
    from posbias.design.designer import rival_heads
    from posbias.plotting import saved_panels

    heads = rival_heads(task)
    rivals = {name: task.profile(heads[name]) for name in ("no bias", "ALiBi's rule")}
    return saved_panels({"target": task.target, **rivals, "designed": found.profile}, kind)
