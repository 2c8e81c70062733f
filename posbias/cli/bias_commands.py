"""The command that chooses what to add to a finished model: ``posbias bias``, from a measurement to a position bias."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("bias")(bias)


def bias(
    measurement: Annotated[Path, typer.Argument(help="Measurement of the model (.nc), with kernels.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write (.yaml): what --bias takes.")],
    kind: Annotated[
        Literal["best", "log", "alibi", "layers", "flat"],
        typer.Option(
            help="One exponent or one slope for all heads, one for each layer, or the best of these; or flat logits in "
            "some heads of each layer, which hide near keys and cost most."
        ),
    ] = "best",
    criterion: Annotated[
        Literal["uniform", "worst"],
        typer.Option(help="Nearest to uniform, or the largest influence of the worst sixteenth of the prompt."),
    ] = "uniform",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output if it is there.")] = False,
) -> None:
    """Choose a position bias to add to a model, such that the rollout of its measured attention is even."""
    from posbias.files import check_output, write_whole
    from posbias.netcdf import check_measurement

    check_output(output, ".yaml", overwrite=overwrite)
    check_measurement(measurement)

    from posbias.design.choice import attended, chosen_bias, distance_to_even, evaluated, worst_place
    from posbias.measure.results import read_results
    from posbias.published.configuration import yaml_text

    results = read_results(measurement)
    model = attended(results)
    found = chosen_bias(model, kind, criterion)
    before = evaluated(model, "none", {"kind": "none"}).profile
    lines = [
        f"{results.attrs['model']}: {len(model.lambda_)} layers x {model.heads} heads, {model.n} tokens; kind "
        f"{found.kind}, criterion {criterion}",
        *(
            f"{name}: W1 to uniform {distance_to_even(p):.4f}, worst place {worst_place(p):.3f} of an even share"
            for name, p in (("rollout as measured", before), ("expected with the bias", found.profile))
        ),
    ]
    text = "".join(f"# {line}\n" for line in lines) + yaml_text({"position_bias": found.description})
    write_whole(output, text)
    typer.echo("\n".join([*lines, f"written: {output}; try it: posbias measure --bias {output}"]))
