"""The result of a lookup: its numbers by place, one labelled netCDF file of them, and what they say in words."""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias import errors, netcdf
from posbias.conditions import AS_IS
from posbias.files import check_output, check_path
from posbias.lookup import conditioned
from posbias.lookup.reading import Reading
from posbias.lookup.scores import LEAST_RIGHT, LEVEL, SMALL, difference_p_value, judge, mean_with_interval
from posbias.lookup.sources import draw_sources, law_if_any, law_text, read_law
from posbias.lookup.tasks import ARMS, FLOORS, LAYOUT, NOUNS, SCHEMA, TASKS, WAYS, scores_of

READ = ("prompt", "answer", "twice", "correct")
"""Variables of every file."""
ATTRIBUTES = ("model", "revision", "task", "dataset", "rows", "form", "tokens")
"""Provenance that is read; the file has more."""
MOST_KNOWN = 0.2
"""Share of answers that are right without documents from which on a lookup says so."""
SHORT = {"correct": "accuracy", "log_probability": "log-probability"}
"""What each score is called in a line."""
COLOURS = {"competing": "#000000", "not_competing": "#0072B2", "closed_book": "#7f7f7f", "oracle": "#009E73"}
"""One colour an arm; that in which no place can matter is a dashed line, the same at each place."""


@dataclass(frozen=True, eq=False, repr=False)
class Found:
    """Hold what a model finds at each place of its prompts; printed, what that says.

    Parameters
    ----------
    results
        Every number by arm, context and place, with prompts and answers as text, and with where it came from in its
        attributes: what ``posbias lookup`` writes.
    """

    results: xr.Dataset

    @property
    def verdict(self) -> str:
        """Whether the middle is lost, in one sentence."""
        return verdict(self.results)

    @property
    def reading(self) -> Reading:
        """The law of where answers are from, if documents compete, with its intervals."""
        return read_law(self.results)

    def to_pandas(self) -> pd.DataFrame:
        """Return the scores of each arm and place, a mean with the ends of its 95% interval, ``low`` and ``high``.

        Places count from 0.
        """
        tables = []
        for arm in self.results["arm"].values:
            columns: dict[str, Any] = {}
            for score in scores_of(self.results.attrs):
                ends = by_place(self.results, score, str(arm))
                columns |= dict(zip((score, f"{score}_low", f"{score}_high"), ends, strict=True))
            tables.append(pd.DataFrame(columns).assign(arm=str(arm)).rename_axis("place"))
        return pd.concat(tables).set_index("arm", append=True).swaplevel()

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the file that ``posbias lookup`` writes, and return its path; :func:`load_lookup` reads it."""
        netcdf.write(file := check_path(path, ".nc"), self.results)
        return file

    def figure(self, path: str | PathLike[str]) -> Path:
        """Draw right answers by place and arm with 95% intervals, and where answers are from; return the image's path.

        Parameters
        ----------
        path
            The .png or .svg file to write; one that is there is replaced.
        """
        import matplotlib.pyplot as plt

        from posbias.plotting import STYLE

        results, file = self.results, check_output(path, (".png", ".svg"), "path")
        with plt.style.context(str(STYLE)), plt.rc_context({"svg.fonttype": "none"}):
            law = law_if_any(results)
            width, columns = (6.4, 1) if law is None else (9.6, 2)
            drawing, axes = plt.subplots(1, columns, figsize=(width, 4.0), squeeze=False, layout="constrained")
            ax = axes[0, 0]
            places, noun = np.arange(1, results.sizes["place"] + 1), NOUNS[str(results.attrs["task"])]
            for arm in map(str, results["arm"].values):
                if arm in FLOORS:
                    share = of_arm(results, "correct", arm).mean()
                    ax.axhline(share, color=COLOURS[arm], linestyle="--", label=ARMS[arm])
                    continue
                mean, low, high = by_place(results, "correct", arm)
                label = ARMS[arm] if noun == "document" else f"with all {noun}s"
                ax.vlines(places, low, high, color=COLOURS[arm], linewidth=3, alpha=0.35)
                ax.plot(places, mean, "o-", color=COLOURS[arm], markersize=4, label=label)
            ax.set(xlabel=f"place of the {noun} that answers", ylabel="share of right answers", ylim=(-0.03, 1.05))
            ax.set_xticks(places[:: max(1, len(places) // 16)])
            for name in [str(x) for x in results["condition"].values[1:]] if "condition" in results.dims else []:
                mean = results["correct"].sel(arm="competing", condition=name).mean("context").values
                ax.plot(places, mean, "--", linewidth=1, label=name)
            ax.legend(labelcolor="linecolor", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize=8)
            if law is not None:
                draw_sources(axes[0, 1], law)
            drawing.suptitle(fill(f"{title(results)}. {describe(results)}. Bars: 95% intervals.", 95), fontsize=9)
            drawing.supxlabel(fill(verdict(results), 95), fontsize=9)
            drawing.savefig(file, dpi=200, bbox_inches="tight")
            plt.close(drawing)
        return file

    def __repr__(self) -> str:
        results = self.results
        lines = [f"{title(results)}: {describe(results)}", verdict(results)]
        for arm in results["arm"].values:
            told = []
            for score in scores_of(results.attrs):
                mean = of_arm(results, score, str(arm)).mean(0)
                mean = mean.mean(keepdims=True) if arm in FLOORS else mean
                told.append(f"{SHORT[score]} {' '.join(f'{x:.2f}' for x in mean)}")
            lines.append(f"{ARMS[str(arm)].capitalize()}: {'; '.join(told)}")
        lines += [*said_of_answers(results), *said_of_heads(results)]
        if results.sizes["place"] > 1:
            lines += [ends_text(results), *law_text(results).splitlines()]
        if "closed_book" in results["arm"] and of_arm(results, "correct", "closed_book").mean() >= MOST_KNOWN:
            lines.append("Many answers are known without documents: where they stand matters less than it could")
        if twice := int(results["twice"].sum()):
            of = f"{twice} of {results.sizes['context']} {unit(results)}"
            lines.append(f"Another document holds the answer too, so that its source cannot be told, in {of}")
        if "condition" in results.dims:
            lines += conditioned.table_lines(results)
        return "\n".join(lines)

    def compare_conditions(self) -> pd.DataFrame:
        """Return what each condition changes, paired over rows, and what it costs.

        ``right`` is the mean share of right answers with all documents, ``worst`` that of the worst place; ``gain`` is
        over ``order:best-first`` if asked, else over all places alike, with a 95% interval; ``p`` is Holm's; a gain of
        ``visible`` is seen by four in five such lookups.
        """
        if "condition" not in self.results.dims:
            raise errors.invalid("conditions", "a lookup under conditions", "one without")
        return conditioned.compare_conditions(self.results)


def load_lookup(path: str | PathLike[str]) -> Found:
    """Read what :meth:`Found.save` or ``posbias lookup`` wrote.

    Parameters
    ----------
    path
        A .nc file.
    """
    results = netcdf.load_layout(check_path(path, ".nc"), LAYOUT, SCHEMA, "a lookup")
    if missing := [name for name in (*READ, *ATTRIBUTES) if name not in {*results, *results.attrs}]:
        raise errors.invalid(str(path), "a complete lookup", f"none of {', '.join(missing)}")
    if (task := str(results.attrs["task"])) not in TASKS:
        raise errors.invalid(f"{path}: task", f"one of {', '.join(TASKS)}", task)
    for name in scores_of(results.attrs):
        if name not in results:
            raise errors.invalid(str(path), "a complete lookup", f"none of {name}")
        errors.finite_array(f"{path}: {name}", results[name].values, ndim=(3, 4))
    return Found(results)


def title(results: xr.Dataset) -> str:
    """Return model and task in a few words."""
    return f"{str(results.attrs['model']).removeprefix('reference/')}, {TASKS[str(results.attrs['task'])]}"


def describe(results: xr.Dataset) -> str:
    """Return what was asked: documents, rows or sets, tokens and the prompts' form."""
    attrs = results.attrs
    made = "rows given" if attrs["rows"] == "given" else attrs["dataset"]
    size, noun = results.sizes, NOUNS[str(attrs["task"])]
    many = size["place"] if size["place"] > 1 else "the row's"
    return (
        f"{many} {noun}s in a prompt of {attrs['tokens']} tokens ({made}, {attrs['form']}), "
        f"{size['context']} {unit(results)}"
    )


def unit(results: xr.Dataset) -> str:
    """Return what contexts are called: rows of a user, or sets that are made up."""
    return "rows" if results.attrs["rows"] == "given" else "sets"


def of_arm(results: xr.Dataset, score: str, arm: str = "competing") -> Float[np.ndarray, "C P"]:
    """Return a score of one arm by context and place, as it is without a condition."""
    found = results[score].sel(arm=arm)
    if "condition" in found.dims:
        found = found.sel(condition=AS_IS)
    return np.asarray(found.values, dtype=np.float64)


def by_place(results: xr.Dataset, score: str, arm: str = "competing") -> Float[np.ndarray, "3 P"]:
    """Return mean, low and high of each place."""
    return mean_with_interval(of_arm(results, score, arm), is_share=score == "correct")


def verdict(results: xr.Dataset) -> str:
    """Return in one sentence whether the middle is lost, with interval, test, and the least that would be seen."""
    correct = of_arm(results, "correct")
    (C, P), many = correct.shape, unit(results)
    found = judge(correct)
    if found is None:
        if P < 3:
            asked = f"{P} places, which have none" if P > 1 else "rows that are asked once, as they are"
            return f"The middle is lost: cannot tell from {asked}."
        right = f"{correct.mean():.0%} of the answers are right, fewer than {LEAST_RIGHT:.0%}"
        if bare := int(results.attrs.get("without_begin", 0)):
            right += f"; {bare} rows lack `begin`, the first words of an answer"
        return f"The middle is lost: cannot tell, since {right}."
    d, middle = found.weaker, f"at places 2 to {P - 1}" if P > 3 else "at place 2"
    spread = f"{d.mean:.2f} ({d.low:.2f} to {d.high:.2f}; p {found.p:.2g}, paired over {C} {many})"
    unseen = f"a difference below {d.visible:.2f} would hardly be seen"
    said = {
        "yes": f"yes, by {spread}",
        "no": f"no, at most by {max(d.high, 0):.2f}: the weaker end less the middle is {spread}; {unseen}",
        "open": f"cannot tell with {C} {many}: {unseen}; the weaker end less the middle is {spread}",
    }[found.lost]
    if found.lost == "open" and d.mean > SMALL:
        said += f"; to see such a difference takes about {max(C + 1, round(C * (d.visible / d.mean) ** 2))} {many}"
    right = f"{found.first:.2f} at the first place, {found.middle:.2f} {middle}, {found.last:.2f} at the last"
    return f"The middle is lost: {said}. Right are {right}."


def ends_text(results: xr.Dataset) -> str:
    """Return the best and the worst place by accuracy and by log-probability, each with a test of all places at once.

    That test sees less than the one of the ends, which may have found a loss in the middle that it does not.
    """
    noun, found, verdict = NOUNS[str(results.attrs["task"])], [], judge(of_arm(results, "correct"))
    for score in scores_of(results.attrs):
        mean, p = by_place(results, score)[0], difference_p_value(of_arm(results, score))
        best, worst = int(mean.argmax()), int(mean.argmin())
        apart = "differ" if p <= LEVEL else "are not told apart"
        if p > LEVEL and verdict is not None and verdict.lost == "yes":
            apart = "differ at the ends alone, not all at once"
        said = f"best {noun} {best + 1} ({mean[best]:.2f}), worst {noun} {worst + 1} ({mean[worst]:.2f})"
        found.append(f"By {SHORT[score]} places {apart} (p {p:.2g}): {said}.")
    return " ".join(found)


def said_of_answers(results: xr.Dataset) -> list[str]:
    """Return when an answer is right and how many were cut, of a model's own answers."""
    if results.attrs.get("score") != "contains":
        return []
    return [f"Right is: {WAYS['contains']}; {results.attrs['cut']} were cut there"]


def said_of_heads(results: xr.Dataset) -> list[str]:
    """Return for how many answers, wrong ones and right ones, heads look at another document than they are from."""
    if "looked_at" not in results:
        return []
    looked, source, right = results["looked_at"], results["source"].values, of_arm(results, "correct") == 1
    rings, unknown = (looked.values != source) & (source >= 0), source < 0
    wrong, fine = (f"{(rings & some).sum()} of {(some & ~unknown).sum()}" for some in (~right, right))
    hit = (looked.values == np.arange(source.shape[1])).sum()
    said = f"Heads {looked.attrs['heads']} look at the document that answers in {hit} of {source.size} prompts, and at "
    said += f"another one than the answer is from for {wrong} wrong answers and {fine} right ones"
    return [said + (f"; {unknown.sum()} answers are in no document alone" if unknown.any() else "")]
