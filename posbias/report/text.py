"""What a report says in words: what was asked, the answer, how to read it, and the commands to do it again."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator

import numpy as np

from posbias.measure.request import GIVEN
from posbias.measure.results import position_words
from posbias.report.page import text
from posbias.report.stats import LEAST_FOR_U, Evidence, Subject
from posbias.rollout.profiles import TOLERANCE
from studies.reference.influence_tables import SMOOTH

SHORT = {"float32": "32 bits", "bfloat16": "bfloat16, 16 bits", "float16": "float16, 16 bits"}
ERRORS = {
    "lambda": "λ",
    "influence": "share of influence that moves",
    "attention": "attention",
    "content": "content logits",
}
"""What a number format can cost, by the names that files have, and as pages write them."""

READING = (
    "The thick curve is measured: how strongly each input token moves the probability of the most likely next token "
    "(gradient norms, averaged over the prompts, normalised to sum 1). Its shade is the 95 % interval.",
    "The other curves are predictions. Most are rollouts: the product of all layers' averaged attention, each mixed "
    "with the identity by λ. They know no token and no gradient.",
    "The influence axis is logarithmic, and the dashed line is an equal share, 1/n, for every token.",
    "(a) has no residual stream; (b) adds it, with the λ below; (c) adds mean content logits; rollouts with measured "
    "attention take what was measured instead of a formula for it.",
    "High on the left: the causal mask, which every hop of attention feeds. High on the right: the residual stream, "
    "which keeps each token's own state, and encodings that favour recent tokens.",
    "W₁ is how far influence has to be moved, on average, to turn one profile into the other, as a share of the "
    "length: 0 is equal, a shift of the whole profile by a tenth of the length is 0.1.",
    "The baselines know nothing of the model, except that the exponential was fitted to the measured curve itself, and "
    "that the clock has one number of it. A rollout that is no nearer than these predicts nothing.",
    "Intervals hold 95 % of what resamples give: they say what other prompts of the same kind could have given, not "
    "what another corpus or another training run would.",
    "A difference stands if its p value, corrected by Holm's rule for the rows of its table, is at most 0.05.",
    "Spearman compares the order of positions only; the mean is the average position, 0 first and 1 last.",
    "Small influence is not small use: gradients are local, and a token that is found when it matters can have little "
    "influence on average.",
)
AT_BIRTH = (
    "The law at birth is no rollout: it adds squares over sets of layers where a rollout adds sizes. In place of λ it "
    "takes the gains of the weights, what the norms divide by, and what the MLPs do to gradients. It is derived for "
    "weights drawn independently, as before training; of a trained model it says what such weights would give."
)
"""Stands among the notes where the law at birth is among the predictions."""


def reading(subject: Subject) -> list[str]:
    """Return the notes on how to read a report."""
    return [*READING[:4], *([AT_BIRTH] if "birth" in subject.predictions else []), *READING[4:]]


def asked(subject: Subject) -> Iterator[tuple[str, str]]:
    """Yield what was asked: model, corpus, prompts, quantities and number format, by name."""
    attrs = subject.results.attrs
    layers, heads = subject.results.sizes["layer"], subject.results.sizes.get("head")
    kind = f"{attrs.get('architecture', 'unknown')}, {layers} layers"
    kind += f" × {heads} heads" if heads else ""
    how = str(attrs.get("position", "unknown"))
    yield (
        "model",
        f"{subject.title} ({kind}, {position_words(how) if how == 'none' or 'given' in how else f'{how} positions'})",
    )
    if "position_bias" in attrs:
        yield "position biases", shortened(str(attrs["position_bias"]))
    if "added_bias" in attrs:
        yield "bias added while measured", shortened(str(attrs["added_bias"]))
    yield "corpus", f"{attrs.get('dataset', 'unknown')}, rule {attrs.get('rule', 'unknown')}"
    yield "prompts", f"{attrs.get('prompts', 'unknown')} of {len(subject.influence)} tokens"
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


def number_format(attrs: dict[str, object]) -> str:
    """Return the number format and what it costs, as far as a file says.

    >>> number_format({"dtype": "bfloat16", "format_error": '{"lambda": 0.002, "content": 0.39}'})
    'bfloat16, 16 bits; largest error on one prompt against 32 bits: λ 0.002, content logits 0.39'
    >>> number_format({"dtype": "bfloat16"})
    'bfloat16, 16 bits; what that costs was not measured'
    """
    dtype = str(attrs.get("dtype", "unknown"))
    name = SHORT.get(dtype, dtype)
    try:
        errors = dict(json.loads(str(attrs["format_error"])))
        parts = [f"{words} {float(errors[k]):.2g}" for k, words in ERRORS.items() if k in errors]
    except (KeyError, TypeError, ValueError):
        parts = []
    if not parts:
        return name if dtype == "float32" else f"{name}; what that costs was not measured"
    return f"{name}; largest error on one prompt against 32 bits: {', '.join(parts)}"


def answer(evidence: Evidence) -> Iterator[str]:
    """Yield the answer, sentences of HTML: where influence is, whether there is a trough, and what predicts it."""
    influence = evidence.subject.influence
    where = "first" if influence.mean_position < 0.5 else "second"
    yield (
        f"<strong>On average the next token draws on the {where} half of the prompt</strong>: mean position "
        f"{influence.mean_position:.2f}{_within(evidence, 'mean position')}, {influence.first:.1%} of the influence on "
        f"the first token and {influence.last:.1%} on the last."
    )
    yield trough(evidence)
    yield nearest(evidence)


def _within(evidence: Evidence, quantity: str) -> str:
    """Return the interval of a quantity in brackets, nothing where there is none."""
    drawn = evidence.quantities[quantity][1]
    if drawn is None:
        return ""
    low, high = np.quantile(drawn, [0.025, 0.975])
    return f" ({low:.2f} to {high:.2f})"


def trough(evidence: Evidence) -> str:
    """Return whether there is a trough, with the criterion."""
    shape, n = evidence.shape, len(evidence.p)
    if shape is None:
        return f"Whether there is a trough cannot be said of {n} tokens: the criterion wants {LEAST_FOR_U}."
    levels = (
        f"the first token has {shape.start * n:.2f} times an equal share, the lowest stretch of {SMOOTH} tokens "
        f"{shape.trough * n:.2f} (at {shape.location:.0%} of the prompt), the last but one {shape.end * n:.2f}"
    )
    rule = f"A trough counts where both ends, the last token aside, are more than {TOLERANCE:.0%} above that stretch."
    if evidence.influence is None:
        found = "<strong>It has a trough</strong>" if shape.present else "<strong>It has no trough</strong>"
        return f"{found} in these prompts: {levels}. {rule} Without intervals, that is no more than a description."
    if evidence.has_u == "open":
        return f"<strong>Whether it has a trough is open</strong>: resamples do not agree. Here {levels}. {rule}"
    found = "<strong>It has a trough</strong>" if evidence.has_u == "yes" else "<strong>It has no trough</strong>"
    depth = f", depth {shape.depth:.0%}" if evidence.has_u == "yes" else ""
    return f"{found}{depth}: {levels}. {rule}"


def nearest(evidence: Evidence) -> str:
    """Return which prediction is nearest, and whether it beats the baselines."""
    name = evidence.nearest
    if name is None:
        return "No prediction could be computed from this file."
    label = f"<em>{text(evidence.subject.label(name))}</em>"
    row = evidence.scores.loc[name]
    away = f"{row['W1']:.3f} of the length away"
    away += "" if np.isnan(row["low"]) else f" ({row['low']:.3f} to {row['high']:.3f})"
    return f"The nearest prediction is {label}, {away}: {verdict(evidence, name)}."


def verdict(evidence: Evidence, name: str) -> str:
    """Return whether a prediction beats the two baselines that know nothing, tested where that can be."""
    blind = {"last": "all on the last token", "uniform": "equal shares"}
    signs = {b: evidence.against(b, name) for b in blind}
    own = evidence.scores.loc[name, "W1"]
    if None in signs.values():
        beaten = own < min(evidence.scores.loc[b, "W1"] for b in blind)
        said = "nearer than both baselines" if beaten else "<strong>no nearer than the better baseline</strong>"
        return f"{said}, without a test"
    if all(sign == 1 for sign in signs.values()):
        fitted = {1: "nearer than", 0: "not told apart from", -1: "further away than"}[
            evidence.against("recency", name) or 0
        ]
        return f"nearer than both baselines, and {fitted} an exponential that is fitted to the measured curve itself"
    short = [f"{blind[b]} ({'open' if sign == 0 else 'further away'})" for b, sign in signs.items() if sign != 1]
    return f"<strong>not nearer than {' and '.join(short)}</strong>"


def again(subject: Subject) -> list[str]:
    """Return the commands that make a measurement like this one, and its report."""
    attrs = {name: str(value) for name, value in subject.results.attrs.items()}
    model, seed = attrs.get("model", "MODEL"), attrs.get("seed", "0")
    words = ["posbias", "measure"]
    if model.endswith(" (untrained)"):
        drawn = re.search(r"seed (\d+)$", attrs.get("revision", ""))
        model = model.removesuffix(" (untrained)")
        words += ["--init", model.removesuffix(GIVEN), *(["--position-bias", "design.yaml"] * model.endswith(GIVEN))]
        seed = drawn[1] if drawn else seed
    else:
        words += ["--model", model]
        if re.fullmatch(r"[0-9a-f]{40}", attrs.get("revision", "")):
            words += ["--revision", attrs["revision"]]
    rule, _, each = attrs.get("rule", "first").partition(", ")
    if rule != "random":
        words += ["--dataset", attrs.get("dataset", "builtin")]
    words += ["--prompts", attrs.get("prompts", "200"), "--length", attrs.get("length", "256")]
    words += ["--batch-size", attrs.get("batch_size", "8"), "--dtype", attrs.get("dtype", "float32")]
    words += ["--rule", rule, "--seed", seed]
    if count := re.match(r"\d+", each):
        words += ["--per-document", count[0]]
    if attrs.get("quantities"):
        words += ["--quantities", attrs["quantities"]]
    words += [word for name in ("kernel_size", "attention") if name in attrs for word in _option(name, attrs[name])]
    if attrs.get("special_tokens") == "False":
        words += ["--no-special-tokens"]
    bias = [f"echo {shlex.quote(attrs['added_bias'])} > bias.json"] if "added_bias" in attrs else []
    words += ["--bias", "bias.json"] * len(bias)
    measure = shlex.join([" ".join(word.split()) for word in [*words, "--output", "measurement.nc"]])
    return [*bias, measure, "posbias report measurement.nc --output report.html"]


def _option(name: str, value: str) -> list[str]:
    """Return an option of the command line with its value."""
    return [f"--{name.replace('_', '-')}", value]
