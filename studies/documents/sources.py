"""Which document an answer came from: ways of naming it, limits of a fall, and the page's numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Bool, Float, Int

from posbias.comparison.resampling import t_interval
from posbias.lookup.contexts import make_contexts
from posbias.lookup.tasks import Task
from studies.documents import tables
from studies.documents.evidence import WAYS
from studies.results import load

ATTENDED, UNCONVERGED = "attention, answer's tokens (inseq)", "integrated gradients"
LAST, DIVIDED = "*always the last document*", "influence, place divided out"
HEADS, READERS = "three heads that fetch", "the head that reads best"
INVENTED = [21, 27, 33]
"""Prompts without a source whose answer is an invented name (Kolnond, Kollunell, Linumson): we read them."""
SET, ASKED = 1, 2
"""The example: the third question of the second set."""
SHOWN = 12
"""The set of which all eight questions are shown, of the half that chose no head."""
Named = Float[np.ndarray, "C P D"]


@dataclass(frozen=True, eq=False)
class Sources:
    """Hold the entries of ``results/documents.nc`` by part; a source of -1 is none."""

    kept: Mapping[str, xr.Dataset]

    @cached_property
    def source(self) -> Int[np.ndarray, "C P"]:
        """The document that states the answer given."""
        return self.kept["used"]["source"].values.astype(int)

    @property
    def right(self) -> Float[np.ndarray, "C P"]:
        """Whether the answer given is right."""
        return self.kept["used"]["correct"].values

    @property
    def known(self) -> Bool[np.ndarray, "C P"]:
        """Whether one document states the answer given."""
        return self.source >= 0

    @property
    def removed(self) -> Named:
        """Change of the answer's log-probability without each document."""
        return self.kept["used"]["removed"].values.astype(float)

    @cached_property
    def named(self) -> dict[str, Named]:
        """What each way gives each document."""
        used = self.kept["used"]
        found = {"deletion": -used["removed"].values} | {way: used[way].values for way in WAYS}
        return found | {DIVIDED: tables.divide_place(used["influence"].values)}

    @cached_property
    def tools(self) -> dict[str, Named]:
        """What two other tools give."""
        others = self.kept["others"]
        return {
            ATTENDED: others["attention, inseq"].values,
            UNCONVERGED: others[UNCONVERGED].values,
            f"{UNCONVERGED}, signed": others[f"{UNCONVERGED}, signed"].values,
        }

    @property
    def last(self) -> Named:
        """The guess that the last document is the source."""
        shape = self.removed.shape
        return np.broadcast_to(np.arange(shape[-1]), shape)

    @cached_property
    def table(self) -> pd.DataFrame:
        """How often each way names the source, all but heads."""
        return tables.source_table(self.named | self.tools | {LAST: self.last}, self.source, self.right)

    @cached_property
    def counted(self) -> pd.DataFrame:
        """The same in answers."""
        told = int((self.known & (self.right == 1)).sum())
        counts = {"all": self.known.sum(), "right": told, "wrong": self.known.sum() - told}
        counts |= {"low": counts["all"], "high": counts["all"]}
        return (self.table[[*counts]] * pd.Series(counts)).round().astype(int)

    @cached_property
    def pointed(self) -> dict[str, Int[np.ndarray, "C P T H"]]:
        """The document that each head points at, from the question and from the answer."""
        entry = self.kept["pointing"]
        return {name: entry[name].values.astype(int) for name in ("question", "answer")}

    @cached_property
    def fair(self) -> dict[str, Named]:
        """Every rival with its place divided out, and heads that were chosen on other sets."""
        found = {"deletion": self.named["deletion"]}
        rivals = {way: self.named[way] for way in WAYS} | self.tools
        rivals.pop(f"{UNCONVERGED}, signed")
        found |= {way: tables.divide_place(x) for way, x in rivals.items()}
        found[HEADS] = as_marks(np.stack([self.pointed["question"][:, :, t, h] for t, h in FETCH]))
        (t, h), where = self.reader
        return found | {READERS: as_marks(self.pointed[where][None, :, :, t, h])}

    @cached_property
    def reader(self) -> tuple[tuple[int, int], str]:
        """The head that points at most sources of the first half of the sets, and from where it does."""
        half, best = len(self.source) // 2, []
        for where, pointed in self.pointed.items():
            hits = (pointed == self.source[:, :, None, None])[:half][self.known[:half]].mean(0)
            at = np.unravel_index(hits.argmax(), hits.shape)
            best.append((float(hits.max()), (int(at[0]), int(at[1])), where))
        _, head, where = max(best)
        return head, where

    @cached_property
    def fair_table(self) -> pd.DataFrame:
        """How often each rival names the source in the second half of the sets, which chose nothing."""
        half = len(self.source) // 2
        ways = {name: x[half:] for name, x in self.fair.items()}
        return tables.source_table(ways, self.source[half:], self.right[half:])


FETCH = ((17, 3), (17, 4), (18, 6))
"""Heads that point at the document asked for, chosen on eight other sets (:mod:`studies.remedies`)."""


def as_marks(pointed: Int[np.ndarray, "K C P"], documents: int = 8) -> Named:
    """Return for each document how many heads point at it; the first head decides between equals.

    >>> as_marks(np.array([[[1]], [[0]]]), 2).round(1).tolist()
    [[[1.0, 1.1]]]
    """
    hits = pointed[..., None] == np.arange(documents)
    return np.asarray(hits.sum(0) + 0.1 * hits[0])


def load_sources() -> Sources:
    """Return what is kept."""
    return Sources({name.removeprefix("smollm2."): x for name, x in load("documents").items()})


def gain_over(seen: Sources, way: Named, other: Named) -> tuple[float, float, float]:
    """Return by how much more often the source is named, with its interval over sets."""
    hits = [(tables.named(x) == seen.source).astype(float) for x in (way, other)]
    each = tables.mean_by_context(hits[0] - hits[1], seen.known)
    return (float(each.mean()), *t_interval(each))


@dataclass(frozen=True, eq=False)
class Falls:
    """Hold largest falls by kind of prompt, in nats: of a first run, and of a second without the document named."""

    first: dict[str, Float[np.ndarray, "N"]]
    second: dict[str, Float[np.ndarray, "N"]]
    others: float
    """The largest fall of a document that is no source."""
    resembled: int
    """Prompts whose answer no document states, and in which one costs more than any that is no source."""


KINDS = {
    "one source": "the source",
    "two sources": "one of the two",
    "no source": "any",
    "made-up answer": "some document",
}
"""Kinds of prompts, and the document that deletion names."""
COPIES = [0, 4]


def of_sources(seen: Sources) -> Float[np.ndarray, "N"]:
    """Return the fall of each source that is the only one, set by set."""
    return np.asarray(-np.take_along_axis(seen.removed, seen.source[..., None].clip(0), 2)[seen.known, 0])


def read_falls(seen: Sources) -> Falls:
    """Return the largest falls of every kind of prompt."""
    known, removed, special = seen.known, seen.removed, seen.kept["exceptions"].astype(float)
    P = removed.shape[-1]
    of_others = -np.where(np.arange(P) == seen.source[..., None], np.nan, removed)[known]
    twice = special.sel(context=special["given"].values == 1)
    either = -twice["twice"].values[:, COPIES]
    again = {x: -special[f"{x}_again"].values for x in ("one", "none")}
    by_name = -special["none"].values[INVENTED].min(1)
    has_one = special["source"].values >= 0
    first = {
        "one source": of_sources(seen),
        "two sources": either.max(1),
        "no source": -np.delete(special["none"].values, INVENTED, axis=0).min(1),
        "made-up answer": np.concatenate([-removed[~known].min(-1), by_name]),
    }
    second = {
        "one source": again["one"][has_one].max(1),
        "two sources": -twice["twice_again"].values[:, COPIES].min(1),
        "no source": np.delete(again["none"], INVENTED, axis=0).max(1),
        "made-up answer": np.append(again["one"][~has_one].max(1), again["none"][INVENTED].max(1)),
    }
    limit = surely_of(first)
    resembled = int((-removed[~known].min(-1) > limit).sum()) + len(by_name)
    return Falls(first, second, float(np.nanmax(of_others)), resembled)


def up(x: float) -> float:
    """Return a number rounded up to one digit."""
    return float(np.ceil(10 * x) / 10)


def surely_of(falls: Mapping[str, Float[np.ndarray, "N"]]) -> float:
    """Return the fall above which there is one source, or a made-up answer."""
    return up(max(falls["two sources"].max(), falls["no source"].max()))


def from_to(falls: Float[np.ndarray, "N"]) -> str:
    """Return least and largest of falls."""
    least, most = np.round([np.min(falls), np.max(falls)], 2) + 0.0  # no -0.00
    return f"{least:.2f} to {most:.2f}"


def falls_shown(falls: Falls) -> pd.DataFrame:
    """Return prompts and falls of every kind."""
    rows = {}
    for kind, named in KINDS.items():
        again = falls.second[kind]
        first = falls.first[kind]
        rows[kind] = [len(first), from_to(first), named, f"{from_to(again)} ({len(again)})"]
    columns = ["prompts", "largest fall (nats)", "document named", "second run (nats; prompts)"]
    return pd.DataFrame(rows, columns).T.rename_axis("kind of prompt")


def judged_limit(falls: Falls) -> dict[str, float]:
    """Return a limit that the first half of the prompts sets, and how often the second half is above it."""
    first, second = {}, {}
    for kind, x in falls.first.items():
        half = len(x) // 2
        first[kind] = x[:half]
        second[kind] = x[half:]
    limit = surely_of(first)
    other = np.concatenate([second["two sources"], second["no source"]])
    return {
        "source_half_limit": limit,
        "source_half_found": float((second["one source"] > limit).mean()),
        "source_half_of": len(second["one source"]),
        "source_half_false": int((other > limit).sum()),
        "source_half_others": len(other),
        "source_half_none": int((second["no source"] > limit).sum()),
        "source_half_none_of": len(second["no source"]),
    }


def example(seen: Sources) -> pd.DataFrame:
    """Return the falls of one answer, beside what each document states."""
    P = seen.removed.shape[-1]
    asks = make_contexts(Task("documents", P), SET + 1, 0)[SET].asks["competing"]
    columns = {
        "states": [f"{ask.begin} {ask.answer}" for ask in asks],
        "fall (nats)": -seen.removed[SET, ASKED],
    }
    return pd.DataFrame(columns, pd.RangeIndex(1, P + 1, name="document"))


def rates_shown(seen: Sources) -> pd.DataFrame:
    """Return sources named, with intervals, for right and for wrong answers."""
    counted = seen.counted
    whole = counted.loc["deletion"]
    columns = {
        f"of {whole['all']} answers": counted["all"],
        "95% interval": [f"{x.low} to {x.high}" for x in counted.itertuples()],
        f"of {whole['right']} right": counted["right"],
        f"of {whole['wrong']} wrong": counted["wrong"],
    }
    shown = pd.DataFrame(columns).drop([*seen.tools][1:]).rename(index=PLAIN)
    return shown.sort_values(shown.columns[0], ascending=False).rename_axis("named by")


PLAIN = {
    "attention": "attention, last token",
    ATTENDED: "attention, answer's tokens",
    LAST: "always the last document",
}
"""How tables and figures call them."""


def fair_shown(seen: Sources) -> pd.DataFrame:
    """Return the share of sources that each rival names in the second half of the sets."""
    half = len(seen.source) // 2
    as_they_are = {name: (seen.named | seen.tools).get(name, x)[half:] for name, x in seen.fair.items()}
    undivided = tables.source_table(as_they_are, seen.source[half:], seen.right[half:])["all"]
    table = seen.fair_table.assign(undivided=undivided).rename(index=PLAIN)
    shown = table.drop(UNCONVERGED)[["all", "undivided", "right", "wrong"]]
    columns = {"all": "all answers", "undivided": "the same, not divided", "right": "right ones", "wrong": "wrong ones"}
    return shown.sort_values("all", ascending=False, kind="stable").rename(columns=columns)


def counted_numbers(seen: Sources) -> dict[str, Any]:
    """Return how many sources each way names."""
    counted = seen.counted
    whole = counted.loc["deletion"]
    _, low, high = gain_over(seen, seen.named[DIVIDED], seen.named["influence"])
    _, *ahead = gain_over(seen, seen.tools[ATTENDED], seen.last)
    found = {
        "prompts": int(whole["all"]), "wrong": int(whole["wrong"]), "told": int(whole["right"]),
        "influence_told": counted.loc["influence", "right"], "influence_right": counted.loc["influence", "all"],
        "influence_wrong": counted.loc["influence", "wrong"], "divided": counted.loc[DIVIDED, "all"],
        "divided_low": whole["all"] * low, "divided_high": whole["all"] * high,
        "contributions_right": counted.loc["contributions", "all"],
        "attention_right": counted.loc["attention", "all"], "inseq": counted.loc[ATTENDED, "all"],
        "attended_low": whole["all"] * ahead[0], "attended_high": whole["all"] * ahead[1],
        "last": counted.loc[LAST, "all"], "integrated": counted.loc[UNCONVERGED, "all"],
        "integrated_signed": counted.loc[f"{UNCONVERGED}, signed", "all"],
    }  # fmt: skip
    for way in ("influence", "attention", "contributions"):
        logs = np.log(seen.named[way])
        found[f"place_{way}"] = logs.mean((0, 1)).var() / logs.var()
    others = seen.kept["others"]
    found |= {
        "integrated_missing": float(np.abs(others["missing"]).mean()),
        "integrated_change": float(others["change"].mean()),
        "captum": others.attrs["captum"],
        "inseq_version": others.attrs["inseq"],
        "steps": int(others.attrs["steps"]),
    }
    return {f"source_{name}": x for name, x in found.items()}


def fall_numbers(seen: Sources) -> dict[str, Any]:
    """Return limits of a fall, and how many prompts each kind has."""
    falls = read_falls(seen)
    first, second, surely = falls.first, falls.second, surely_of(falls.first)
    least = up(float(first["no source"].max()))
    found = {
        "surely": surely, "others_most": falls.others, "small": int((first["one source"] <= surely).sum()),
        "unknown": int((~seen.known).sum()),
        "all_answers": seen.known.size, "sets": len(seen.source),
        "contexts": seen.kept["exceptions"].sizes["context"], "alike": len(first["made-up answer"]),
        "resembled": falls.resembled, "twice": len(second["two sources"]), "twice_rest": second["two sources"].min(),
        "none_named": len(INVENTED), "again_none": up(second["no source"].max()), "no_source": least,
        "stated": len(first["one source"]) + len(first["two sources"]),
        "twice_below": int((first["two sources"] <= least).sum()),
        "alike_small": int((first["made-up answer"] <= surely).sum()), "alike_least": first["made-up answer"].min(),
        "none_prompts": len(first["no source"]), "again_alike": second["made-up answer"].max(),
        "again_one_least": second["one source"].min(), "again_one_most": second["one source"].max(),
        "again_one": len(second["one source"]),
    }  # fmt: skip
    return {f"source_{name}": x for name, x in found.items()} | judged_limit(falls)


def fair_numbers(seen: Sources) -> dict[str, Any]:
    """Return how rivals do once place is divided out, and heads are among them."""
    table, (head, where) = seen.fair_table, seen.reader
    rivals, half = table.drop("deletion"), len(seen.source) // 2
    hits = [(tables.named(seen.fair[name]) == seen.source)[half:] for name in (READERS, "deletion")]
    each = tables.mean_by_context(hits[0].astype(float) - hits[1], seen.known[half:])
    low, high = t_interval(each)
    falls = of_sources(seen)[seen.known[:half].sum() :]
    return {
        "source_reader_named": int(hits[0][seen.known[half:]].sum()),
        "source_reader_low": table.loc[READERS, "low"],
        "source_reader_high": table.loc[READERS, "high"],
        "source_reader_gap": f"{each.mean():+.2f} ({low:+.2f} to {high:+.2f})",
        "source_sets_found": float((falls > judged_limit(read_falls(seen))["source_half_limit"]).mean()),
        "source_fair_prompts": int(table["prompts"].iloc[0]),
        "source_fair_deletion": table.loc["deletion", "all"],
        "source_fair_best": rivals["all"].max(),
        "source_fair_best_name": str(rivals["all"].idxmax()),
        "source_fair_fetch": table.loc[HEADS, "all"],
        "source_fair_fetch_right": table.loc[HEADS, "right"],
        "source_fair_fetch_wrong": table.loc[HEADS, "wrong"],
        "source_fair_reader": table.loc[READERS, "all"],
        "source_fair_reader_wrong": table.loc[READERS, "wrong"],
        "source_reader_head": f"head {head[1]} of layer {head[0]}",
        "source_reader_where": {"question": "the question", "answer": "the answer"}[where],
    }


def numbers(seen: Sources) -> dict[str, Any]:
    """Return all numbers of the page."""
    return counted_numbers(seen) | fall_numbers(seen) | fair_numbers(seen)
