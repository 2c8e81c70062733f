"""A measurement of a tiny model, changed as a test needs it, and its report in tags and words."""

import re
from html import escape

import matplotlib.pyplot as plt
import numpy as np
import pytest
from parsed import Parsed

import posbias
from posbias.measure.measurement import Measurement
from posbias.report import document, page, text
from posbias.report.stats import Evidence

N, LENGTH = 8, 24
U = np.r_[3.0, np.ones(LENGTH - 3), 3.0, 9.0]


def measure_bloom(place):
    """Measure a tiny model on few prompts."""
    return posbias.open(place / "bloom").measure(prompts=N, length=LENGTH, dataset=place / "d.jsonl")


def outlined(figure, description):
    """Stand in for a drawn figure, which takes most of a report's time."""
    plt.close(figure)
    return f'<svg role="img" aria-label="{escape(description)}"></svg>'


def written(measurement, tmp_path, drawn=False):
    """Write a report with few resamples, check that it is a page, and return its tags and its words."""
    with pytest.MonkeyPatch.context() as patch:
        if not drawn:
            patch.setattr(page, "inline_svg", outlined)
        path = document.write_report(tmp_path / "r.html", measurement._subject(), resamples=100)
    found = Parsed(path.read_text())
    return found, " ".join(" ".join(found.words).split())


def changed(measurement, **values):
    """Return a measurement with arrays replaced."""
    results = measurement.results
    return Measurement(results.assign({name: (results[name].dims, x) for name, x in values.items()}))


def without(measurement, *patterns):
    names = [x for x in measurement.results.variables if any(re.fullmatch(pattern, x) for pattern in patterns)]
    return Measurement(measurement.results.drop_vars(names))


def said(evidence, name):
    """Return a sentence of the answer, nothing where it has nothing to say."""
    return "".join(text.answer(evidence, name))


def made_of(measurement, profile, spread=0.0, prompts=60):
    """Return a measurement whose prompts have a given profile, up to noise."""
    p = np.asarray(profile, dtype=np.float64) / np.sum(profile)
    noise = np.exp(spread * np.random.default_rng(0).normal(size=(prompts, p.size)))
    results = measurement.results.drop_dims("prompt")
    results = results.assign(influence=("position", p), influence_prompts=(("prompt", "position"), p * noise))
    return Measurement(results.assign_attrs(prompts=prompts))


def of_documents(measured, copies):
    """Return a measurement of four documents, each of so many equal prompts, with the answer to a U open."""
    rng = np.random.default_rng(1)
    influence = np.r_[1.3, np.ones(LENGTH - 3), 3, 9] * np.exp(0.3 * rng.normal(size=(4, LENGTH)))
    lambdas = rng.uniform(0.1, 0.9, size=(4, 3))
    names = {"influence_prompts": influence, "lambda_frobenius_prompts": lambdas}
    results = measured.results.drop_vars([x for x in measured.results if x.endswith("_prompts")]).drop_dims("prompt")
    dims = {name: measured.results[name].dims for name in names}
    results = results.assign({name: (dims[name], np.repeat(x, copies, axis=0)) for name, x in names.items()})
    results = results.assign(influence=("position", influence.sum(0) / influence.sum()))
    results = results.assign(lambda_frobenius=("layer", lambdas.mean(0)))
    results = results.assign(document=("prompt", np.repeat(np.arange(4), copies)))
    return Evidence(Measurement(results.assign_attrs(prompts=4 * copies))._subject(), resamples=300)
