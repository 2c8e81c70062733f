"""Tables of a report, as rows of plain text."""

from collections.abc import Iterator

from posbias.comparison.resampling import interval
from posbias.report.page import NONE, number, span
from posbias.report.stats import Evidence
from posbias.rollout.profiles import u_shape


def score_cells(evidence: Evidence) -> Iterator[tuple[str, ...]]:
    """Yield a row for each prediction by distance, one for halves of the prompts, and one for what was measured."""
    subject = evidence.subject
    measured_mean, yardsticks = subject.influence.mean_position, {*subject.predictions} - {*subject.of_model}
    for name, row in evidence.scores.sort_values("W1", kind="stable").iterrows():
        shape = None if evidence.shape is None else u_shape(evidence.profiles[str(name)])
        label = subject.label(str(name))
        yield (
            f"{label} (yardstick)" if name in yardsticks else label,
            number(row["W1"]),
            span(row[["low", "high"]]),
            number(row["total_variation"]),
            number(row["spearman"]),
            number(measured_mean + row["difference"]),
            NONE if shape is None else "yes" if shape.present else "no",
        )
    if (floor := evidence.floor) is not None:
        means = (number(floor[name].mean()) for name in ("W1", "total_variation", "spearman"))
        yield "one half of the prompts by the other", next(means), span(interval(floor["W1"])), *means, "", ""
    yield "measured", "", "", "", "", number(measured_mean), NONE if evidence.shape is None else evidence.has_u


def gain_cells(evidence: Evidence) -> Iterator[tuple[str, ...]]:
    """Yield a row for each pair of predictions that was tested."""
    verdicts = {1: "closer", -1: "further away", 0: "open"}
    for row in evidence.gains.to_dict("records"):
        pair = f"{evidence.subject.label(row['after'])} against {evidence.subject.label(row['before'])}"
        p = number(row["adjusted"])
        if row["p_value"] <= 2 / (1 + evidence.resamples):  # resamples give no less
            p = f"≤ {p}"
        yield pair, number(row["gain"], "+.3f"), span((row["low"], row["high"]), "+.3f"), p, verdicts[row["decided"]]
