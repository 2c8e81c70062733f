"""``posbias lookup --server``: the same lookup on a model that is served."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from posbias import errors
from posbias.lookup.contexts import read_rows
from posbias.lookup.tasks import PROMPTS, Task
from posbias.settings import setting

ELSEWHERE = ("form", "dtype", "device", "device_map", "special_tokens")
"""Settings of a lookup that are the server's."""


@dataclass(frozen=True)
class Serving:
    """Say where a model is served."""

    server: str | None = setting(
        None,
        "Ask a model that is served, in place of MODEL: an address with OpenAI's API, as http://localhost:8000/v1; the "
        "key, if it wants one, is OPENAI_API_KEY of the environment.",
    )
    model: str | None = setting(None, "With --server: what the server calls the model.")
    concurrency: int = setting(8, "With --server: requests side by side.")


def lookup_served(
    serving: Mapping[str, Any],
    given: Sequence[str],
    task: Task,
    asking: Mapping[str, Any],
    conditions: Sequence[str],
    output: Path,
    dry_run: bool,
) -> Any:
    """Ask the server and return what is found, or print what would be asked; ``given`` are rows."""
    from posbias.lookup.file import Found
    from posbias.lookup.served import look_up_served, preview_served

    if serving["model"] is None:
        raise errors.invalid("--model", "what the server calls the model", "none")
    if len(given) > 1:
        raise errors.invalid("model", "none beside --server, rows alone", given[0])
    settings = {**asking, "form": task.form}
    if unused := [name for name in ELSEWHERE if settings.get(name) not in (None, True)]:
        raise errors.invalid(unused[0], "none with --server, which has its own", settings[unused[0]])
    task.check_given(given[0] if given else None, asking["prompts"])
    rows = read_rows(given[0])[: asking["prompts"]] if given else None
    count = asking["prompts"] or PROMPTS
    if dry_run:
        return typer.echo(preview_served(task, rows, conditions, count, asking["seed"]))
    from posbias.engines.served import ServedEngine

    partial = output.with_name(f"{output.name}.partial")
    engine = ServedEngine(serving["server"], serving["model"], concurrency=serving["concurrency"], kept=partial)
    how: dict[str, Any] = {"prompts": count, "conditions": conditions, "seed": asking["seed"], "progress": True}
    try:
        found = Found(look_up_served(engine, task, rows, **how))
    except KeyboardInterrupt:
        typer.echo(f"{partial} has the answers so far: the same command goes on", err=True)
        raise
    found.save(output)
    partial.unlink(missing_ok=True)
    return found
