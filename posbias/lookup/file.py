"""The result of a lookup: one labelled netCDF file with where its numbers came from, and what it says in words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import xarray as xr
from jaxtyping import Float

from posbias import errors, netcdf
from posbias.lookup.scores import LEAST_RIGHT, SMALL, difference_p_value, judge, mean_with_interval
from posbias.lookup.tasks import ARMS, NOUNS, SCORES, TASKS

LAYOUT, SCHEMA = "posbias_retrieval", 2
"""Name of the attribute that tells such a file, and the number of the layout; raised when a meaning changes."""
READ = ("prompt", "answer", "twice", *SCORES)
"""Variables of every file."""
ATTRIBUTES = ("model", "revision", "task", "dataset", "rows", "form", "tokens", "change")
"""Provenance that is read; the file has more."""
MOST_KNOWN = 0.2
"""Share of answers that are right without documents from which on a lookup says so."""


def read_lookup(path: Path | str) -> xr.Dataset:
    """Read the file of a lookup, or raise ValueError if it is none, of another layout, or incomplete."""
    results = netcdf.load_layout(Path(path), LAYOUT, SCHEMA, "a lookup")
    if missing := [name for name in (*READ, *ATTRIBUTES) if name not in {*results, *results.attrs}]:
        raise errors.invalid(str(path), "a complete lookup", f"none of {', '.join(missing)}")
    if (task := str(results.attrs["task"])) not in TASKS:
        raise errors.invalid(f"{path}: task", f"one of {', '.join(TASKS)}", task)
    for name in SCORES:
        errors.finite_array(f"{path}: {name}", results[name].values, ndim=(3,))
    return results


# What it says


def title(results: xr.Dataset) -> str:
    """Return model and task in a few words."""
    return f"{str(results.attrs['model']).removeprefix('reference/')}, {TASKS[str(results.attrs['task'])]}"


def describe(results: xr.Dataset) -> str:
    """Return what was asked: documents, contexts, tokens and the prompts' form."""
    attrs = results.attrs
    made = "rows given" if attrs["rows"] == "given" else attrs["dataset"]
    changed = "" if attrs["change"] == "none" else f", changed by {attrs['change']:.200}"
    size, noun = results.sizes, NOUNS[str(attrs["task"])]
    return (
        f"{size['place']} {noun}s in a prompt of {attrs['tokens']} tokens ({made}, {attrs['form']}), "
        f"{size['context']} contexts{changed}"
    )


def of_arm(results: xr.Dataset, score: str, arm: str = "competing") -> Float[np.ndarray, "C P"]:
    """Return a score of one arm by context and place."""
    return np.asarray(results[score].sel(arm=arm).values, dtype=np.float64)


def by_place(results: xr.Dataset, score: str, arm: str = "competing") -> Float[np.ndarray, "3 P"]:
    """Return mean, low and high of each place."""
    return mean_with_interval(of_arm(results, score, arm), is_share=score == "correct")


def verdict(results: xr.Dataset) -> str:
    """Return in one sentence whether the middle is lost, with interval, test, and the least that would be seen."""
    correct = of_arm(results, "correct")
    C, P = correct.shape
    found = judge(correct)
    if found is None:
        if P < 3:
            return f"The middle is lost: cannot tell from {P} places, which have none."
        right = f"{correct.mean():.0%} of the answers are right, fewer than {LEAST_RIGHT:.0%}"
        if results.attrs["rows"] == "given":
            right += "; rows may lack `begin`, the first words of an answer"
        return f"The middle is lost: cannot tell, since {right}."
    d, middle = found.weaker, f"at places 2 to {P - 1}" if P > 3 else "at place 2"
    spread = f"{d.mean:.2f} ({d.low:.2f} to {d.high:.2f}; p {found.p:.2g}, paired over {C} contexts)"
    unseen = f"a difference below {d.visible:.2f} would hardly be seen"
    said = {
        "yes": f"yes, by {spread}; {unseen}",
        "no": f"no, at most by {max(d.high, 0):.2f}: the weaker end less the middle is {spread}; {unseen}",
        "open": f"cannot tell with {C} contexts: {unseen}; the weaker end less the middle is {spread}",
    }[found.lost]
    if found.lost == "open" and d.mean > SMALL:
        said += f"; to see such a difference takes about {max(C + 1, round(C * (d.visible / d.mean) ** 2))} contexts"
    right = f"{found.first:.2f} at the first place, {found.middle:.2f} {middle}, {found.last:.2f} at the last"
    return f"The middle is lost: {said}. Right are {right}."


def ends_text(results: xr.Dataset) -> str:
    """Return the best and the worst place by accuracy, those by log-probability if they differ, and the tests."""
    noun, found = NOUNS[str(results.attrs["task"])], {}
    for score, name in (("correct", "accuracy"), ("log_probability", "log-probability")):
        mean, values = by_place(results, score)[0], of_arm(results, score)
        p = difference_p_value(values)
        best, worst = int(mean.argmax()), int(mean.argmin())
        apart = "differ" if p <= 0.05 else "are not told apart"
        said = f"best {noun} {best + 1} ({mean[best]:.2f}), worst {noun} {worst + 1} ({mean[worst]:.2f})"
        found[name] = (best, worst), f"By {name} places {apart} (p {p:.2g}): {said}"
    (one, first), (other, second) = found.values()
    return f"{first}. {second}{'' if one == other else ': the two do not name the same places'}."


def summary_lines(results: xr.Dataset) -> Iterator[str]:
    """Yield what was found: the verdict, scores by place, the other arms, and what to beware of."""
    yield f"{title(results)}: {describe(results)}"
    yield verdict(results)
    for arm in results["arm"].values:
        accuracy, log = (of_arm(results, score, str(arm)).mean(0) for score in SCORES)
        right, told = (" ".join(f"{x:.2f}" for x in mean) for mean in (accuracy, log))
        if arm == "closed_book":
            right, told = f"{accuracy.mean():.2f}", f"{log.mean():.2f}"
        yield f"{ARMS[str(arm)].capitalize()}: accuracy {right}; log-probability {told}"
    yield ends_text(results)
    if "closed_book" in results["arm"] and of_arm(results, "correct", "closed_book").mean() >= MOST_KNOWN:
        yield "Many answers are known without documents: where they stand matters less than it could"
    if twice := int(results["twice"].sum()):
        yield f"In {twice} contexts another document holds the answer too: its source cannot be told there"
