"""Commands that measure, and that make a measurement small: ``posbias measure`` and ``summarise``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from posbias.cli.biases import HELP, read_bias
from posbias.measure.unfinished import resumable


def register(app: typer.Typer) -> None:
    """Add the commands around measurements to ``app``."""
    app.command("measure")(measure)
    app.command("summarise")(summarise)


def measure(
    output: Annotated[Path, typer.Option("--output", "-o", help="netCDF file to write (.nc).")],
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Directory, id on the hub, or reference/NAME.")
    ] = None,
    init: Annotated[
        str | None,
        typer.Option(
            help="In place of a model, an untrained network: config.json, a directory with one, a published size such "
            "as gpt2, llama-12x256 or bloom-12x256. Weights are drawn with --seed; none are read."
        ),
    ] = None,
    position_bias: Annotated[
        Path | None,
        typer.Option(
            help="Of --init: a rollout configuration (.yaml) whose position_bias takes the place of the network's own "
            "positions; layers and heads must be the same."
        ),
    ] = None,
    bias: Annotated[str, typer.Option(help=HELP)] = "none",
    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset",
            "-d",
            help="builtin, fineweb-edu, dclm, wikipedia, or a path: text, .jsonl, .csv, .parquet; none for random.",
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Also write a report with figures and scores: one file (.html).")
    ] = None,
    prompts: Annotated[int, typer.Option("--prompts", "-N", help="Number of prompts.")] = 1000,
    length: Annotated[int, typer.Option("--length", "-n", help="Tokens in each.")] = 256,
    batch_size: Annotated[int, typer.Option("--batch-size", "-B", help="Prompts at a time.")] = 8,
    dtype: Annotated[
        str | None, typer.Option(help="float32, bfloat16 or float16; 32 bits on a CPU, bfloat16 on a GPU unless given.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, …; a GPU if there is one.")] = None,
    device_map: Annotated[
        str | None, typer.Option(help="Spread the model by accelerate: auto, balanced, sequential.")
    ] = None,
    seed: Annotated[int, typer.Option(help="For the rules cut and random, and the weights of --init.")] = 0,
    rule: Annotated[
        Literal["first", "cut", "random"] | None,
        typer.Option(
            help="The first tokens of documents, tokens from inside them, or random tokens; first unless given, random "
            "with --init and no --dataset."
        ),
    ] = None,
    per_document: Annotated[int, typer.Option(help="Maximum number of prompts from a document, for rule cut.")] = 1,
    separator: Annotated[
        str | None, typer.Option(help="Regular expression: lines that begin a new document in a text file.")
    ] = None,
    field: Annotated[str, typer.Option(help="Column of the text in .jsonl, .csv and .parquet.")] = "text",
    special_tokens: Annotated[bool, typer.Option(help="Put the tokenizer's start tokens in front.")] = True,
    quantities: Annotated[
        str,
        typer.Option(
            "--quantities",
            "-q",
            help="What is measured, with commas between: mixing and influence always; kernels, content, logits "
            "(content as matrices), heads (attention of each head), branches (for the law at birth).",
        ),
    ] = "mixing,influence,kernels,content,branches",
    kernel_size: Annotated[
        int, typer.Option(help="Most tokens of which matrices are kept whole; beyond, averaged over as many cells.")
    ] = 512,
    attention: Annotated[
        Literal["auto", "eager", "sdpa"],
        typer.Option(help="How attention is computed; fused (sdpa) where the family has it unless given."),
    ] = "auto",
    tokens: Annotated[bool, typer.Option(help="Keep the prompts' token ids in the file.")] = True,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of the model on the hub.")] = None,
    tokenizer: Annotated[str | None, typer.Option(help="Directory or id, if it is not the model's own.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume from the checkpoint, if there is one.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output if it is there.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what it would take in memory, disk and time, and measure nothing.")
    ] = False,
    checkpoint_every: Annotated[float, typer.Option(help="Minimum time between checkpoints, in seconds.")] = 60.0,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")
    ] = False,
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Load weights that are not in safetensors; they can run code.")
    ] = False,
    strip_prefix: Annotated[
        str, typer.Option(help="Leave away what stands in front of the names of the weights: module., _orig_mod.")
    ] = "",
) -> None:
    """Measure λ, content logits, attention and input-token influence of a model on a corpus."""
    from posbias import errors
    from posbias.cli.designs import read_design
    from posbias.measure import request
    from posbias.measure.quantities import quantities_of

    rule = rule or ("random" if init is not None and dataset is None else "first")
    options: dict[str, Any] = {"revision": revision, "strip_prefix": strip_prefix}
    options |= {"trust_remote_code": trust_remote_code, "allow_pickle": allow_pickle}
    request.check_subject(model, init, seed, device_map=device_map, **options)
    request.check_numbers(prompts, length, batch_size, per_document=per_document, seed=seed)
    errors.seconds("checkpoint_every", checkpoint_every)
    if dtype is not None:
        request.check_dtype(dtype)
    if device is not None:
        errors.device("device", device)
    names = quantities_of(quantities)
    errors.positive_integer("kernel_size", kernel_size)
    request.check_source(model, init)
    if position_bias is not None and init is None:
        raise errors.invalid("position_bias", "--init, for a network that is built with it", f"model {model}")
    design = None if position_bias is None else read_design(position_bias)
    added = read_bias(bias)
    corpus = request.chosen_corpus(dataset, rule, separator, field)
    request.check_run(output, resume=resume or dry_run, overwrite=overwrite, report=report)
    with resumable(lambda: [request.own_checkpoint(output)]):
        from posbias.measure import run
        from posbias.measure.measurement import Measurement
        from posbias.measure.model import chosen_source
        from posbias.measure.study import Settings, Study

        source = chosen_source(model, init, seed, tokenizer=tokenizer, **options)
        if design is not None:
            config = source.config()
            design.check(str(init), config.num_hidden_layers, config.num_attention_heads)
            source = chosen_source(model, init, seed, design.description, tokenizer=tokenizer, **options)
        if added is not None:
            config = source.config()
            added.check(str(model or init), config.num_hidden_layers, config.num_attention_heads)
        settings = Settings(
            source=source,
            corpus=corpus,
            prompts=prompts,
            length=length,
            batch_size=batch_size,
            dtype=dtype,
            device=device,
            device_map=device_map,
            rule=rule,
            seed=seed,
            per_document=per_document,
            special_tokens=special_tokens,
            quantities=names,
            kernel_size=kernel_size,
            attention=None if attention == "auto" else attention,
            keep_tokens=tokens,
        )
        if dry_run:
            typer.echo(Study(settings).estimate())
            return
        results = run.measure(
            settings,
            output,
            resume=resume,
            overwrite=overwrite,
            checkpoint_every=checkpoint_every,
            progress=True,
            bias=None if added is None else added.description,
        )
        if results is not None:
            typer.echo(f"{output}: {Measurement(results)!r}")
            if report is not None:
                typer.echo(f"{Measurement(results).report(report)}: report")


def summarise(
    measurement: Annotated[Path, typer.Argument(help="Measurement (.nc).")],
    output: Annotated[Path, typer.Option("--output", "-o", help="netCDF file to write (.nc).")],
    prompts: Annotated[bool, typer.Option(help="Keep each prompt's influence, rounded to 10 bits.")] = True,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output if it is there.")] = False,
) -> None:
    """Reduce a measurement to what needs no matrices, with its rollouts: a small file."""
    from posbias import errors
    from posbias.files import refuse_same
    from posbias.measure.request import check_measurement, check_output

    refuse_same(output, measurement)
    if check_output(output).exists() and not overwrite:
        raise errors.invalid(str(output), "a file that is not there yet, or --overwrite", "one that is there")
    check_measurement(measurement)

    from posbias.measure.results import read_results
    from posbias.measure.summary import summarise, write_summary

    write_summary(output, summarise(read_results(measurement), prompts=prompts))
    typer.echo(f"{output}: {output.stat().st_size / 1024:.0f} KiB")
