"""What a report says in words: what was asked, the answer, how to read it, and the commands to do it again."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping

import numpy as np
import xarray as xr
from markupsafe import Markup

from posbias.comparison.resampling import interval
from posbias.comparison.samples import SMOOTH
from posbias.lookup.file import differ, difference_text, does_task, places_text, score_text, stretches
from posbias.lookup.tasks import MAIN, SCORES, TASKS
from posbias.measure.opening import GIVEN
from posbias.measure.results import position_words, target_words
from posbias.report.page import sentence
from posbias.report.stats import LEAST_FOR_U, Evidence, Subject, tenths
from posbias.rollout.profiles import TOLERANCE

SHORT = {"float32": "32 bits", "bfloat16": "bfloat16, 16 bits", "float16": "float16, 16 bits"}
ERRORS = {"lambda": "λ", "influence": "share of influence that moves"}
ERRORS |= {"attention": "attention", "content": "content logits"}
"""What a number format can cost, by the names that files have, and as pages write them."""


UNTRAINED = " (untrained)"
"""Stands after the name of a network whose weights were drawn."""
TARGET = {"target": "top", "against": None, "of": "probability"}
"""Settings of the target, with what they are unless given."""
NEARLY = 0.03
"""Distance in W₁ below which a report calls two profiles nearly alike."""


def asked(subject: Subject) -> Iterator[tuple[str, str]]:
    """Yield what was asked: model, corpus, prompts, quantities and number format, by name."""
    attrs = subject.results.attrs
    layers, heads = subject.results.sizes.get("layer"), subject.results.sizes.get("head")
    if layers is None:
        yield "model", f"{subject.title} ({attrs['architecture']}, a family without a row: influence alone)"
    else:
        kind = f"{attrs['architecture']}, {layers} layers" + (f" × {heads} heads" if heads else "")
        how = str(attrs["position"])
        positions = position_words(how) if how == "none" or "given" in how else f"{how} positions"
        yield "model", f"{subject.title} ({kind}, {positions})"
    named = (("position biases", "position_bias"), ("bias added while measured", "added_bias"))
    for title, name in (*named, ("weights", "quantisation")):
        if name in attrs:
            yield title, shortened(str(attrs[name]))
    yield "corpus", f"{attrs['dataset']}, rule {attrs['rule']}"
    yield "prompts", f"{attrs['prompts']} of {len(subject.influence)} tokens"
    yield "influence of", target_words(attrs)
    given = attrs.get("quantities")
    yield "quantities", str(given).replace(",", ", ") if given else "all of that time: the file names none"
    yield "number format", number_format(attrs)
    yield "predictions", ", ".join(subject.label(name) for name in subject.predictions) or "none"
    for name, why in subject.missing.items():
        yield "not here", f"{subject.label(name)}: {why}"


def shortened(description: str, most: int = 200) -> str:
    """Return a description of position biases as it is, or its beginning where it is long.

    >>> shortened('{"kind": "none"}'), shortened("0123456789", 5)
    ('{"kind": "none"}', '01234 …')
    """
    return description if len(description) <= most else f"{description[:most]} …"


def sinks(results: xr.Dataset) -> str:
    """Return what sinks take of attention, nothing where there are none or where it is not known."""
    if "sink_share" not in results:
        return ""
    share = results["sink_share"].values
    most, least = int(share.argmax()), int(share.argmin())
    return (
        f"Sinks, which are no tokens, take {share.mean():.0%} of attention on average, from {share[least]:.0%} in "
        f"layer {least + 1} to {share[most]:.0%} in layer {most + 1}. Rollouts of measured attention keep what is left "
        "and are normalised at the end; the other rollouts know no sinks, but for the law of untrained networks."
    )


def number_format(attrs: dict[str, object]) -> str:
    """Return the number format and what it costs, as far as a file says.

    >>> number_format({"dtype": "bfloat16", "format_error": '{"lambda": 0.002, "content": 0.39}'})
    'bfloat16, 16 bits; largest error on one prompt against 32 bits: λ 0.002, content logits 0.39'
    >>> number_format({"dtype": "bfloat16"})
    'bfloat16, 16 bits; what that costs was not measured'
    """
    dtype = str(attrs["dtype"])
    name = SHORT.get(dtype, dtype)
    try:
        errors = dict(json.loads(str(attrs["format_error"])))
        parts = [f"{words} {float(errors[k]):.2g}" for k, words in ERRORS.items() if k in errors]
    except (KeyError, TypeError, ValueError):
        parts = []
    if not parts:
        return name if dtype == "float32" else f"{name}; what that costs was not measured"
    return f"{name}; largest error on one prompt against 32 bits: {', '.join(parts)}"


def answer(evidence: Evidence) -> Iterator[Markup]:
    """Yield the answer: where influence is, whether the middle is lost, where to put a passage, what predicts it."""
    yield where(evidence)
    yield lost(evidence)
    yield trough(evidence)
    if not str(evidence.subject.results.attrs["model"]).endswith(UNTRAINED):
        yield placed(evidence)
    yield nearest(evidence)
    if {"independent-layers", "value-maps", "value-maps-positional"} <= {*evidence.profiles}:
        yield ladder(evidence)


def where(evidence: Evidence) -> Markup:
    """Return where influence is: the half that has more of it, and shares by tenths of the prompt."""
    influence = evidence.subject.influence
    half = "first" if influence.mean_position < 0.5 else "second"
    words = (
        f"<strong>On average the next token draws on the {half} half of the prompt</strong>: mean position "
        f"{influence.mean_position:.2f}{_within(evidence, 'mean position')}, {influence.first:.1%} of the influence on "
        f"the first token and {influence.last:.1%} on the last."
    )
    if evidence.ends is not None:
        shares = [f"{share:.1%}" for share in tenths(evidence.p)]
        words += (
            f" Without the last token, the tenths of the prompt have, from the first on, {', '.join(shares[:-1])} and "
            f"{shares[-1]}."
        )
    return Markup(words)


def lost(evidence: Evidence) -> Markup:
    """Return whether both ends have more than an equal share, and the rule: a small rise is not enough."""
    rule = f"They are if the first and the last tenth, the last token aside, have over {1 + TOLERANCE:.2f} equal shares"
    if evidence.ends is None:
        return Markup(f"<strong>Both ends favoured: cannot tell</strong> from {len(evidence.p)} tokens. {rule}.")
    (first, last), drawn = evidence.ends
    here = f"{rule}; here they have {first:.2f} and {last:.2f}"
    if drawn is None:
        return Markup(f"<strong>Both ends favoured: cannot tell</strong> without intervals. {here}.")
    (low, end_low), (high, end_high) = interval(drawn)
    here += f" (95% intervals {low:.2f} to {high:.2f} and {end_low:.2f} to {end_high:.2f})"
    said = {"yes": "yes", "no": "no", "open": "cannot tell"}[evidence.lost]
    whole = ""
    if evidence.lost == "no":
        lower, higher = ("start", "end") if first < last else ("end", "start")
        whole = f" Only the {higher} has more than an equal share; the {lower} has less."
        whole = "" if max(first, last) <= 1 + TOLERANCE else whole
    return Markup(f"<strong>Both ends favoured: {said}.</strong> {here}.{whole}")


def placed(evidence: Evidence) -> Markup:
    """Return where a passage is found best as far as that was tried, else how to try it."""
    question = "<strong>Where is an important passage found best?</strong> "
    if (found := evidence.subject.lookup) is not None:
        return sentence(question + "{said}", said=found_best(found))
    model, revision = (str(evidence.subject.results.attrs[name]) for name in ("model", "revision"))
    command = shlex.join(["posbias", "lookup", " ".join(model.split()), "--task", "copy", "-o", "lookup.nc"])
    return sentence(
        f"{question}Influence cannot tell, because it is an average over prompts. Try it{{where}}: "
        "<code>{command}</code>, then make this report with <code>--lookup lookup.nc</code>.",
        where=", with the path of the model's folder" if revision.startswith("files-") else "",
        command=command,
    )


def found_best(found: xr.Dataset) -> str:
    """Return at which places a lookup found most and least, or why that cannot be said."""
    task = str(found.attrs["task"])
    main, ends = MAIN[task], stretches(found)
    how = f"{TASKS[task]}, {found.attrs['prompts']} prompts of {found.attrs['length']} tokens"
    if not does_task(found):
        return f"It cannot be said: the model does not do the task that was tried ({how})."
    if not differ(found, main):
        return f"{difference_text(found, main).capitalize()}: {how}."
    best, worst = (
        f"{places_text(found, ends[k])}, {SCORES[main][0]} {score_text(found, main, ends[k].group)}"
        for k in ("best", "worst")
    )
    return f"At {best}; worst at {worst}. {difference_text(found, main).capitalize()}: {how}."


def _within(evidence: Evidence, quantity: str) -> str:
    """Return the interval of a quantity in brackets, nothing where there is none."""
    drawn = evidence.quantities[quantity][1]
    if drawn is None:
        return ""
    low, high = np.quantile(drawn, [0.025, 0.975])
    return f" ({low:.2f} to {high:.2f})"


def trough(evidence: Evidence) -> Markup:
    """Return whether there is a trough, with the criterion."""
    shape, n = evidence.shape, len(evidence.p)
    if shape is None:
        return Markup(f"Whether there is a trough cannot be said of {n} tokens: the criterion wants {LEAST_FOR_U}.")
    levels = (
        f"the first token has {shape.start * n:.2f} times an equal share, the lowest stretch of {SMOOTH} tokens "
        f"{shape.trough * n:.2f} (at {shape.location:.0%} of the prompt), the last but one {shape.end * n:.2f}"
    )
    rule = f"A trough counts where both ends, the last token aside, are more than {TOLERANCE:.0%} above that stretch."
    said = {True: "<strong>It has a trough</strong>", False: "<strong>It has no trough</strong>"}
    if evidence.influence is None:
        why = "Without intervals, that is no more than a description."
        return Markup(f"{said[shape.present]} in these prompts: {levels}. {rule} {why}")
    if evidence.has_u == "open":
        return Markup(
            f"<strong>Whether it has a trough is open</strong>: resamples do not agree. Here {levels}. {rule}"
        )
    depth = f", depth {shape.depth:.0%}" if evidence.has_u == "yes" else ""
    return Markup(f"{said[evidence.has_u == 'yes']}{depth}: {levels}. {rule}")


def nearest(evidence: Evidence) -> Markup:
    """Return which prediction is nearest, and whether it beats the baselines."""
    name = evidence.nearest
    if name is None:
        return Markup("No prediction could be computed from this file.")
    row = evidence.scores.loc[name]
    away = f"{row['W1']:.3f} of the length away"
    away += "" if np.isnan(row["low"]) else f" ({row['low']:.3f} to {row['high']:.3f})"
    ties = "; ".join(evidence.subject.label(x) for x in evidence.tied)
    same = " (not told apart from {ties})" if ties else ""
    rank = f"{row['spearman']:+.2f}{order(row['spearman'])}"
    words = f"The closest prediction is <em>{{label}}</em>{same}, {away}, rank correlation (Spearman) {rank}. It is "
    return sentence(f"{words}{verdict(evidence, name)}.", label=evidence.subject.label(name), ties=ties)


def order(spearman: float) -> str:
    """Return what a rank correlation says about the order of positions; of one above 0.2, nothing.

    >>> [order(x) for x in (-0.68, -0.03, 0.2, 0.21)]
    [': it has the order of positions backwards', ': it does not know the order of positions', ..., '']
    """
    if spearman > 0.2:
        return ""
    return (
        ": it has the order of positions backwards" if spearman < -0.2 else ": it does not know the order of positions"
    )


def ladder(evidence: Evidence) -> Markup:
    """Return what the ladder says: whether layers are independent, and which simplification costs most."""
    away = evidence.scores["W1"]
    how = "nearly independent" if away["independent-layers"] < NEARLY else "not independent"
    words = (
        f"Layers are <strong>{how}</strong>: with each layer's gradient taken from a different prompt, the profile is "
        f"{away['independent-layers']:.3f} of the length from the measured one. With mean attention and the model's "
        f"own value maps the distance is {away['value-maps']:.3f}; with attention from positions alone "
        f"{away['value-maps-positional']:.3f}"
    )
    steps = {
        "averaging attention": ("independent-layers", "value-maps"),
        "leaving content out": ("value-maps", "value-maps-positional"),
    }
    if "layer-shares" in away:
        words += f"; with one number per layer in place of value maps, layer shares, {away['layer-shares']:.3f}"
        steps["from there to layer shares"] = ("value-maps-positional", "layer-shares")
    costs = {step: away[after] - away[before] for step, (before, after) in steps.items()}
    most = max(costs, key=costs.__getitem__)
    cost = f"The costliest step is {most}" if costs[most] > NEARLY else "No step costs much"
    return Markup(f"{words}. {cost}.")


def verdict(evidence: Evidence, name: str) -> str:
    """Return as HTML whether a prediction beats the yardsticks that know nothing, tested where that can be."""
    blind = {"last": "all on the last token", "even": "equal shares"}
    signs = {b: evidence.against(b, name) for b in blind}
    both = " and ".join(blind.values())
    own = evidence.scores.loc[name, "W1"]
    if None in signs.values():
        beaten = own < min(evidence.scores.loc[b, "W1"] for b in blind)
        said = (
            f"closer than both yardsticks, {both}" if beaten else "<strong>no closer than the better yardstick</strong>"
        )
        return f"{said}, without a test"
    if all(sign == 1 for sign in signs.values()):
        words = {1: "closer than", 0: "not told apart from", -1: "further away than"}
        fitted = words[evidence.against("power-law", name) or 0]
        fit = "a power law that is fitted to the measured curve itself"
        return f"closer than both yardsticks, {both}, and {fitted} {fit}"
    short = [f"{blind[b]} ({'open' if sign == 0 else 'further away'})" for b, sign in signs.items() if sign != 1]
    return f"<strong>not closer than {' and '.join(short)}</strong>"


def again(subject: Subject) -> list[str]:
    """Return the commands that make a measurement like this one, and its report."""
    attrs = {str(name): str(value) for name, value in subject.results.attrs.items()}
    model, revision, seed = attrs["model"], attrs["revision"], attrs["seed"]
    if model.endswith(UNTRAINED):
        model = model.removesuffix(UNTRAINED)
        words = ["--untrained", model.removesuffix(GIVEN), *["--position-bias", "design.yaml"] * model.endswith(GIVEN)]
        drawn = re.search(r"seed (\d+)$", revision)
        seed = drawn[1] if drawn else seed
    else:
        words = ["--model", model, *["--revision", revision] * bool(re.fullmatch(r"[0-9a-f]{40}", revision))]
    rule, _, each = attrs["rule"].partition(", ")
    words += options(attrs, *["dataset"] * (rule != "random"), "prompts", "length", "batch_size", "dtype")
    words += ["--rule", rule, "--seed", seed]
    if count := re.match(r"\d+", each):
        words += ["--per-document", count[0]]
    own = ("quantities", "kernel_size", "attention", *(x for x in TARGET if attrs.get(x) not in (None, TARGET[x])))
    words += options(attrs, *(name for name in own if attrs.get(name)))
    words += ["--no-special-tokens"] * (attrs["special_tokens"] == "False")
    return repeated("measure", words, attrs.get("added_bias"))


def options(attrs: Mapping[str, str], *names: str) -> list[str]:
    """Return options of the command line with the values that a file has.

    >>> options({"batch_size": "8"}, "batch_size")
    ['--batch-size', '8']
    """
    return [word for name in names for word in (f"--{name.replace('_', '-')}", attrs[name])]


def repeated(command: str, words: list[str], bias: str | None) -> list[str]:
    """Return the lines that run a command with a bias as it is described, if there is one, and that make its report."""
    file = "measurement.nc" if command == "measure" else "lookup.nc"
    words = ["posbias", command, *words, *["--bias", "bias.json"] * (bias is not None), "--output", file]
    lines = [] if bias is None else [f"echo {shlex.quote(bias)} > bias.json"]
    line = shlex.join([" ".join(word.split()) for word in words])
    return [*lines, line, f"posbias report {file} --output report.html"]
