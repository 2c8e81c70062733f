"""``posbias lookup --server`` and ``posbias explain --server``: the same on a model that is served."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from posbias import errors
from posbias.cli.options import kept_until_done
from posbias.lookup.contexts import read_rows
from posbias.lookup.tasks import PROMPTS, Task
from posbias.settings import setting

ELSEWHERE = ("form", "dtype", "device", "device_map", "special_tokens", "attention", "condition", "heads")
"""Settings that are the server's, or need a model in this process."""


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


def check_serving(serving: Mapping[str, Any], model: str | None, settings: Mapping[str, Any]) -> None:
    """Raise ValueError where no model of the server is named, another one is, or what the server has is asked for."""
    if serving["model"] is None:
        raise errors.invalid("--model", "what the server calls the model", "none")
    if model is not None:
        raise errors.invalid("model", "none beside --server", model)
    if unused := [name for name in ELSEWHERE if settings.get(name) not in (None, True)]:
        raise errors.invalid(unused[0], "none with --server, which has its own", settings[unused[0]])


@contextmanager
def engine_kept(serving: Mapping[str, Any], output: Path) -> Iterator[Any]:
    """Give the engine of a server; each answer is kept beside the output until the block has written that."""
    from posbias.engines.served import ServedEngine

    partial = output.with_name(f"{output.name}.partial")
    with kept_until_done(partial, "has the answers so far: the same command goes on"):
        yield ServedEngine(serving["server"], serving["model"], concurrency=serving["concurrency"], kept=partial)


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

    check_serving(serving, given[0] if len(given) > 1 else None, {**asking, "form": task.form, "heads": task.heads})
    task.check_given(given[0] if given else None, asking["prompts"])
    rows = read_rows(given[0])[: asking["prompts"]] if given else None
    count = asking["prompts"] or PROMPTS
    if dry_run:
        return typer.echo(preview_served(task, rows, conditions, count, asking["seed"]))
    how: dict[str, Any] = {"prompts": count, "conditions": conditions, "seed": asking["seed"], "progress": True}
    with engine_kept(serving, output) as engine:
        found = Found(look_up_served(engine, task, rows, **how))
        found.save(output)
    return found


def explain_at_server(
    serving: Mapping[str, Any],
    model: str | None,
    text: Any,
    answer: str | None,
    measuring: Mapping[str, Any],
    output: Path | None,
) -> None:
    """Delete segments of a prompt, and print and write what that changes; without output, what would be asked."""
    from posbias.explain.served import explain_served, preview_explain_served

    check_serving(serving, model, measuring)
    if output is None:
        return typer.echo(preview_explain_served(text, answer))
    with engine_kept(serving, output) as engine:
        found = explain_served(engine, text, answer=answer, progress=True)
        page = found.report(output)
    typer.echo(f"{found!r}\n{page}: page")
