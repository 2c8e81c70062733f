"""The command that asks a model by place: ``posbias retrieval``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from posbias.cli.biases import HELP, read_bias
from posbias.measure.unfinished import resumable


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("retrieval")(retrieval)


def retrieval(
    output: Annotated[Path, typer.Option("--output", "-o", help="netCDF file to write (.nc).")],
    model: Annotated[str, typer.Option("--model", "-m", help="Directory, id on the hub, or reference/NAME.")],
    task: Annotated[
        str, typer.Option("--task", "-t", help="kv: find the value of a key; copy: go on with a segment of the text.")
    ] = "kv",
    pairs: Annotated[int | None, typer.Option(help="Of kv: pairs of a key and a value in a prompt; 64.")] = None,
    length: Annotated[
        int | None, typer.Option("--length", "-n", help="Of copy: tokens of a prompt, with cue and segment; 256.")
    ] = None,
    bias: Annotated[str, typer.Option(help=HELP)] = "none",
    temperature: Annotated[
        float, typer.Option(help="Divide what content adds to attention's logits by this: below 1 sharpens it; 1.")
    ] = 1.0,
    segment: Annotated[int | None, typer.Option(help="Of copy: tokens of the segment that is scored; 16.")] = None,
    cue: Annotated[int | None, typer.Option(help="Of copy: tokens before it that are given; 4.")] = None,
    dataset: Annotated[
        str | None,
        typer.Option("--dataset", "-d", help="Of copy: builtin, or another corpus as for posbias measure; builtin."),
    ] = None,
    separator: Annotated[str | None, typer.Option(help="Lines that begin a new document in a text file.")] = None,
    field: Annotated[str, typer.Option(help="Column of the text in .jsonl, .csv and .parquet.")] = "text",
    prompts: Annotated[
        int, typer.Option("--prompts", "-N", help="Number of prompts in all, spread evenly over the places.")
    ] = 200,
    profile_prompts: Annotated[
        int | None,
        typer.Option(help="How many of them also give a profile; 32, or all if there are fewer; 0 for none."),
    ] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", "-B", help="Prompts at a time.")] = 8,
    seed: Annotated[int, typer.Option(help="Of keys, values, and the order of places.")] = 0,
    dtype: Annotated[
        str | None, typer.Option(help="float32, bfloat16 or float16; 32 bits on a CPU, bfloat16 on a GPU unless given.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, …; a GPU if there is one.")] = None,
    device_map: Annotated[str | None, typer.Option(help="Spread the model by accelerate: auto, balanced, …")] = None,
    special_tokens: Annotated[bool, typer.Option(help="Put the tokenizer's start tokens in front.")] = True,
    report: Annotated[Path | None, typer.Option(help="Also write a report with figures: one file (.html).")] = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of the model on the hub.")] = None,
    tokenizer: Annotated[str | None, typer.Option(help="Directory or id, if it is not the model's own.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume from the checkpoint, if there is one.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output if it is there.")] = False,
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
    """Ask a model for what stands at each place of its prompt: scores by place, beside the prompts' profiles."""
    from posbias import errors
    from posbias.lookup.tasks import PROFILE_PROMPTS, Task, check_counts
    from posbias.measure.corpus import chosen_corpus
    from posbias.measure.opening import check_model
    from posbias.measure.settings import check_settings
    from posbias.measure.unfinished import check_run, own_checkpoint

    asked = Task(task, pairs, length, segment, cue)
    profiled = min(PROFILE_PROMPTS, prompts) if profile_prompts is None else profile_prompts
    check_counts(prompts, batch_size, profiled, seed, asked)
    errors.seconds("checkpoint_every", checkpoint_every)
    check_settings({"dtype": dtype, "device": device})
    if dataset is not None and task != "copy":
        raise errors.invalid("dataset", f"none with the task {task}, which reads no text", dataset)
    check_model(model)
    added = read_bias(bias)
    errors.finite_array("temperature", temperature, ndim=(0,))
    if temperature <= 0 or (temperature != 1 and added is not None):
        expected = "a number above 0" if temperature <= 0 else "1 with --bias: one change at a time"
        raise errors.invalid("temperature", expected, temperature)
    corpus, _ = chosen_corpus({"dataset": dataset, "separator": separator, "field": field})
    check_run(output, resume=resume, overwrite=overwrite, report=report)
    with resumable(lambda: [own_checkpoint(output)]):
        from posbias.lookup.run import Retrieval, added_bias, divided, retrieve
        from posbias.lookup.text import summary_lines
        from posbias.measure.loading import Source
        from posbias.measure.measurement import extra

        if report is not None:  # what it needs is asked for before the run
            with extra("book"):
                from posbias.report.lookup_page import write_retrieval_report
        allowed: dict[str, Any] = {"trust_remote_code": trust_remote_code, "allow_pickle": allow_pickle}
        source = Source(model, revision, tokenizer, strip_prefix=strip_prefix, **allowed)
        if added is not None:
            config = source.config()
            added.check(model, config.num_hidden_layers, config.num_attention_heads)
        change = None if added is None else added_bias(added.description)
        if temperature != 1:
            change = divided(temperature)
        subject = Retrieval(
            source,
            asked,
            prompts=prompts,
            profile_prompts=profiled,
            batch_size=batch_size,
            corpus=corpus,
            dtype=dtype,
            device=device,
            device_map=device_map,
            special_tokens=special_tokens,
            seed=seed,
            change=change,
        )
        results = retrieve(
            subject, output, resume=resume, overwrite=overwrite, checkpoint_every=checkpoint_every, progress=True
        )
        if results is not None:
            first, *others = summary_lines(results)
            typer.echo("\n".join([f"{output}: {first}", *others]))
            if report is not None:
                typer.echo(f"{write_retrieval_report(report, results)}: report")
