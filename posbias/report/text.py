"""What a report says beside its templates: what was asked, and what a lookup found."""

import shlex
from collections.abc import Iterator
from typing import Any

import xarray as xr
from markupsafe import Markup

from posbias.comparison.samples import SMOOTH
from posbias.lookup.file import describe, ends_text, verdict
from posbias.lookup.sources import law_sentence
from posbias.lookup.tasks import TASKS
from posbias.report.page import environment, sentence
from posbias.report.stats import LONG, Evidence, Subject, tenths
from posbias.rollout.profiles import TOLERANCE

SHORT = {"float32": "32 bits", "bfloat16": "bfloat16, 16 bits", "float16": "float16, 16 bits"}
"""What a number format can cost, by the names that files have, and as pages write them."""

ANSWER = environment(tenths=tenths).get_template("answer.html")
"""The sentences of the answer, a macro each."""
NEARLY = 0.03
"""Distance in W₁ below which a report calls two profiles nearly alike."""


def answer(evidence: Evidence, *names: str) -> list[Markup]:
    """Return the sentences of the answer that have something to say, in their order; some of them by name."""
    known = {
        "say_where_found": say_where_found,
        "tolerance": TOLERANCE,
        "smooth": SMOOTH,
        "nearly": NEARLY,
        "long": LONG,
    }
    macros: Any = ANSWER.make_module(known)
    made = (" ".join(macro(evidence).split()) for macro in macros.answer if not names or macro.name in names)
    return [Markup(words) for words in made if words]


def list_settings(subject: Subject) -> Iterator[tuple[str, str]]:
    """Yield what was asked: model, corpus, prompts, quantities and number format, by name."""
    attrs = subject.results.attrs
    layers, heads = subject.results.sizes.get("layer"), subject.results.sizes.get("head")
    if layers is None:
        yield "model", f"{subject.title} ({attrs['architecture']}, a family without a row: influence alone)"
    else:
        kind = f"{attrs['architecture']}, {layers} layers" + (f" × {heads} heads" if heads else "")
        yield "model", f"{subject.title} ({kind}, {attrs['position']} positions)"
    for title, name in (("condition", "condition"), ("profile", "profile"), ("weights", "quantisation")):
        if name in attrs:
            yield title, f"{attrs[name]:.200}"
    yield "corpus", f"{attrs['dataset']}, rule {attrs['rule']}"
    yield "prompts", f"{attrs['prompts']} of {len(subject.influence)} tokens"
    given = attrs.get("quantities")
    yield "quantities", str(given).replace(",", ", ") if given else "all of that time: the file names none"
    yield "number format", SHORT.get(str(attrs["dtype"]), str(attrs["dtype"]))
    yield "predictions", ", ".join(subject.label(name) for name in subject.predictions) or "none"
    for name, why in subject.missing.items():
        yield "not here", f"{subject.label(name)}: {why}"


def say_where_found(subject: Subject) -> Markup:
    """Return where a passage is found best as far as that was tried, else how to try it."""
    if subject.lookup is not None:
        return sentence("{said}", said=found_best(subject.lookup))
    model, revision = (str(subject.results.attrs[name]) for name in ("model", "revision"))
    command = shlex.join(["posbias", "lookup", " ".join(model.split()), "rows.jsonl", "-o", "lookup.nc"])
    return sentence(
        "Influence cannot tell: it is sensitivity, not success. Try it with documents, questions and answers of your "
        "own{where}: <code>{command}</code>, then make this report with <code>--lookup lookup.nc</code>.",
        where=", with the path of the model's folder" if revision.startswith("files-") else "",
        command=command,
    )


def found_best(found: xr.Dataset) -> str:
    """Return whether a lookup lost the middle, and its best and worst place; of bare pairs and copies only what it was.

    In which places these are found changes with instruction, question and template.
    """
    task = str(found.attrs["task"])
    if task != "documents":
        return f"It cannot be said from {TASKS[task]}: a lookup with the task documents tells ({describe(found)})."
    said = (verdict(found), ends_text(found), law_sentence(found), f"Asked: {describe(found)}.")
    return " ".join(filter(None, said))
