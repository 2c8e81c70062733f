"""A report put together: the sections in order, for one measurement or for two beside each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from posbias.comparison.distances import normalised_wasserstein, wasserstein_to
from posbias.comparison.resampling import hull_interval
from posbias.files import write_whole
from posbias.report import figures as pictures
from posbias.report import page
from posbias.report import tables as tabulated
from posbias.report import text as wording
from posbias.report.known_models import KINDS, known_models
from posbias.report.stats import FEW_UNITS, RESAMPLES, Evidence, Subject

WHAT_IS_ABSENT = {
    "kernels": "The file has no attention kernels, so that there is no picture of them.",
    "content": "The file has no content logits, so that there is no picture of them.",
}


def write_report(path: Path, subject: Subject, other: Subject | None = None, *, resamples: int = RESAMPLES) -> Path:
    """Write a report and return its path.

    Parameters
    ----------
    path
        The file to write, whole or not at all.
    subject
        The measurement.
    other
        One to set beside it.
    resamples
        Of the bootstrap over documents or prompts.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    evidence = Evidence(subject, resamples)
    parts = list(sections(evidence, None if other is None else Evidence(other, resamples)))
    write_whole(path, page.page(f"Position bias of {subject.title}", parts))
    return path


def sections(evidence: Evidence, other: Evidence | None) -> Iterator[str]:
    """Yield the sections of a report in order.

    Parameters
    ----------
    evidence
        What is known of the measurement.
    other
        What is known of one beside it, or None.
    """
    subject = evidence.subject
    yield f"<h1>Position bias of {page.text(subject.title)}</h1>"
    yield page.paragraph(page.text(subject.described), "quiet")
    yield f'<div class="answer">{"".join(page.paragraph(x) for x in wording.answer(evidence))}</div>'
    yield pictures.profile_figure(evidence)
    if other is not None:
        yield beside_section(evidence, other)
    yield page.section("What was asked", page.facts(wording.asked(subject)))
    yield score_section(evidence)
    yield mixing_section(evidence)
    yield picture_section(evidence)
    yield standing_section([evidence] if other is None else [evidence, other])
    yield page.section("How to read it", page.items(wording.reading(subject)))
    yield data_section(evidence)
    yield again_section(subject)


def score_section(evidence: Evidence) -> str:
    """Return how near each prediction comes: distances with intervals, then tests."""
    label = "" if evidence.nearest is None else evidence.subject.label(evidence.nearest)
    scores = page.table(tabulated.SCORE_TITLES, tabulated.score_rows_text(evidence), best=label)
    if evidence.influence is None:
        why = "The file has no influence of single prompts that resamples could be drawn from (it takes two prompts or "
        why += "more, from two documents or more, finite and above 0): there are no intervals and no tests."
        return page.section("How near each prediction comes", scores, page.paragraph(why))
    drawn = f"Intervals and tests are from {evidence.resamples:,} resamples of {evidence.sample_size} {evidence.unit}, "
    drawn += (
        "the same for both of a pair. A positive gain speaks for the first named; p values are corrected for all rows."
    )
    if evidence.sample_size < FEW_UNITS:
        drawn += f" So few {evidence.unit} make intervals too short and tests too sure."
    tests = page.table(tabulated.GAIN_TITLES, tabulated.gain_rows_text(evidence), words=(4,))
    return page.section(
        "How near each prediction comes", scores, page.paragraph(drawn), page.folded("Paired tests", tests)
    )


def mixing_section(evidence: Evidence) -> str:
    """Return λ by depth."""
    words = "What attention adds, against what it is added to: λ = ‖a‖ / (‖x‖ + ‖a‖), layer by layer. "
    words += f"Their sum, the total mixing, is {evidence.mixing.sum():.2f}: the hops of attention on an average path."
    return page.section("Mixing", page.paragraph(words), pictures.mixing_figure(evidence))


def picture_section(evidence: Evidence) -> str:
    """Return kernels and content as pictures, and say which are not there."""
    results = evidence.subject.results
    drawn = [pictures.kernel_figure(results), pictures.received_figure(results)]
    kernels = [x for x in drawn if x is not None] or [page.paragraph(WHAT_IS_ABSENT["kernels"])]
    content = pictures.content_figure(results) or page.paragraph(WHAT_IS_ABSENT["content"])
    form = results.attrs.get("content_form")
    note = [page.paragraph(f"Content logits are {page.text(form)}.", "quiet")] if form else []
    return page.section("Attention and content", *kernels, content, *note)


def standing_section(evidences: list[Evidence]) -> str:
    """Return where the model stands among known ones."""
    known, own = known_models(), [evidence.own_standing for evidence in evidences]
    order = sorted(known, key=lambda x: (KINDS.index(x.kind), x.name))
    counts = ", ".join(f"{sum(x.kind == kind for x in known)} {kind}" for kind in KINDS)
    words = (
        f"Beside {counts} models. Other text, other lengths and other sizes: neighbours in this figure are a hint, no "
    )
    words += "test. Of the published models one has its measured curve printed; the others have λ and distances alone."
    if len(own) > 1:
        own[1] = replace(own[1], kind="the other")
    titles, rows = tabulated.STANDING_TITLES, [*tabulated.standing_rows_text([*own, *order])]
    table = page.folded("The models in numbers", page.table(titles, rows, best=rows[0][0], words=(1, 11)))
    figure = pictures.standing_figure(own, known)
    return page.section("Where it stands", page.paragraph(words), figure, table)


def beside_section(evidence: Evidence, other: Evidence) -> str:
    """Return two models beside each other: profiles, numbers, and differences with intervals."""
    keys = ("prompts_sha256", "prompts", "length")
    paired = all(
        evidence.subject.results.attrs.get(key) == other.subject.results.attrs.get(key) is not None for key in keys
    )
    name = page.text(other.subject.described)
    figure = pictures.beside_figure({"this model": evidence.p, "the other": other.p})
    table = page.table(tabulated.BESIDE_TITLES, tabulated.beside_rows(evidence, other, paired=paired))
    how = "Both saw the same prompts: intervals of differences are paired. " if paired else ""
    how += "" if paired else "They saw different prompts: intervals take the two as independent. "
    lines = [page.paragraph(f"The other is {name}."), figure, page.paragraph(how + _between(evidence, other)), table]
    lines += [page.paragraph(f"The other: {wording.trough(other)} {wording.nearest(other)}")]
    return page.section(f"Beside {other.subject.title}", *lines)


def _between(evidence: Evidence, other: Evidence) -> str:
    """Return the distance between two measured profiles, where they have one."""
    if evidence.p.size != other.p.size:
        return "Their prompts differ in length, so that there is no distance between the two profiles."
    away = normalised_wasserstein(evidence.p, other.p)
    if evidence.resampled is None:
        return f"The profiles are {away:.3f} of the length apart."
    low, high = hull_interval(away, wasserstein_to(evidence.resampled, other.p), least=0.0)
    return (
        f"The profiles are {away:.3f} of the length apart ({low:.3f} to {high:.3f}, this model's prompts drawn again)."
    )


def data_section(evidence: Evidence) -> str:
    """Return the data as files to save."""
    known = [evidence.own_standing, *known_models()]
    links = [
        page.download(
            "profile.csv", tabulated.profile_csv(evidence), "profile.csv: measured and predicted, by position"
        ),
        page.download("layers.csv", tabulated.layer_csv(evidence), "layers.csv: λ and content, by layer"),
        page.download("tests.csv", tabulated.tests_csv(evidence), "tests.csv: distances and paired tests"),
        page.download("models.csv", tabulated.standing_csv(known), "models.csv: this model and those that are known"),
    ]
    body = f"<ul>{''.join(f'<li>{link}</li>' for link in links)}</ul>"
    return page.section("The data", page.paragraph("This page holds them; nothing is fetched."), body)


def again_section(subject: Subject) -> str:
    """Return provenance, and the commands to do it again."""
    attrs = subject.results.attrs
    skipped = {"posbias_schema", "summary", "format_error"}
    known = [(name, value) for name, value in attrs.items() if name not in skipped and _plain(value)]
    words = "Names of directories and files are kept without the folders they were in; give them as they are for you."
    return page.section(
        "Where the numbers come from",
        page.facts(known),
        "<h3>To do it again</h3>",
        page.commands(wording.again(subject)),
        page.paragraph(words, "quiet"),
    )


def _plain(value: object) -> bool:
    return isinstance(value, str | int | float | np.integer | np.floating)
