"""How much models gain from having seen a passage that is repeated, by where it stood, beside the prompts' profiles.

A prompt is a text, then a stretch from somewhere in it: a cue, and the segment that is the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from scipy.stats import rankdata
from torch import Tensor, nn

from posbias import errors
from posbias.comparison.resampling import hull_interval, interval, resample_weights
from posbias.measure.corpus import Corpus, Prompts, document_units, make_prompts, start_tokens
from posbias.measure.instrument import Instrument
from posbias.measure.run import measure
from posbias.measure.session import Session
from posbias.predict import PREDICTORS, available, predict
from posbias.settings import Settings

SEGMENT, CUE = 16, 4
"""Tokens of the segment that is scored, and of the cue before it."""
GROUPS, PROFILED, RESAMPLES = 16, 32, 2000
"""Groups of neighbouring places, prompts that give a profile, and resamples."""
ENDS = ["mean", "low", "high"]
PARTS, COPIES = 8, 128
"""Equal parts of the places from which a model copies, and prompts for that."""

Score = Callable[[nn.Module], Float[np.ndarray, "place"]]
"""Returns what a model does by place, such as how much it copies; called inside a remedy's context."""


@dataclass(frozen=True)
class CopyPrompts:
    """Hold N prompts of n tokens, of which the answer's last is missing; each answer stands at one of P places.

    ``controls`` are the same prompts with other text where the answer stands; ``units`` are equal for prompts of one
    document.
    """

    ids: Int[np.ndarray, "N n"]
    answers: Int[np.ndarray, "N L"]
    places: Int[np.ndarray, "N"]
    starts: Int[np.ndarray, "P"]
    units: Int[np.ndarray, "N"]
    controls: Int[np.ndarray, "N n"]

    def gains(self, instrument: Instrument, rows: slice) -> Float[Tensor, "B"]:
        """Return what the first occurrence is worth, nats a token: the loss without it less the loss with it."""
        answers = torch.from_numpy(self.answers[rows])
        logits = (instrument.tail(torch.from_numpy(x[rows]), SEGMENT).cpu() for x in (self.ids, self.controls))
        seen, without = (x.double().log_softmax(-1).gather(-1, answers[..., None])[..., 0].mean(-1) for x in logits)
        return seen - without

    def by_place(self, profile: Float[np.ndarray, "... m"]) -> Float[np.ndarray, "... P"]:
        """Return what a profile over tokens has at each place: the sum over the stretch's tokens."""
        total = np.concatenate([np.zeros((*profile.shape[:-1], 1)), np.cumsum(profile, axis=-1)], axis=-1)
        return np.asarray(total[..., self.starts + CUE + SEGMENT] - total[..., self.starts])


def evenly(count: int, size: int) -> Int[np.ndarray, "count"]:
    """Return ``count`` numbers below ``size``, as evenly spaced as can be; repeated if there are more."""
    return ((np.arange(count) + 0.5) * size / max(count, 1)).astype(np.int64)


def copy_prompts(settings: Settings, prompts: int, seed: int = 0) -> CopyPrompts:
    """Return texts followed by a stretch of their own; all places where it fits are swept, evenly."""
    corpus: Corpus = settings.corpus
    tokenizer, special = settings.source.load_tokenizer(), settings.special_tokens
    width, n = CUE + SEGMENT, settings.length - CUE - SEGMENT
    front = len(start_tokens(tokenizer)) if special else 0
    if n < front + width:
        raise errors.invalid("length", f"at least {2 * width + front}", settings.length)
    texts = make_prompts(corpus, tokenizer, prompts, n, special_tokens=special)
    starts = np.arange(front, n - width + 1)
    rounds, rest = divmod(prompts, len(starts))
    places = np.concatenate([np.tile(np.arange(len(starts)), rounds), evenly(rest, len(starts))])
    places = np.random.default_rng(seed).permutation(places)
    row, within = np.arange(prompts)[:, None], starts[places][:, None] + np.arange(width)
    stretch, others = texts.ids[row, within], texts.ids.copy()
    others[row, within] = texts.ids[(row + max(prompts // 2, 1)) % prompts, within]
    ids, controls = (np.hstack([x, stretch[:, :-1]]) for x in (texts.ids, others))
    units = document_units(texts.origins, corpus.reader)
    return CopyPrompts(ids, stretch[:, CUE:], places, starts, units, controls)


def copy_gains(settings: Settings, prompts: int = COPIES) -> Score:
    """Return what measures how much a model gains from the first occurrence of a segment, nats a token, by part."""
    placed = copy_prompts(settings, prompts)
    if (few := PARTS - len(placed.starts)) > 0:
        raise errors.invalid("length", f"at least {settings.length + few}, for {PARTS} places", settings.length)
    part = placed.places * PARTS // len(placed.starts)

    def gains(model: nn.Module) -> Float[np.ndarray, "part"]:
        instrument, found = Instrument(model), np.empty(prompts)
        for start in range(0, prompts, settings.batch_size):
            rows = slice(start, min(start + settings.batch_size, prompts))
            found[rows] = placed.gains(instrument, rows).numpy()
        return np.array([found[part == k].mean() for k in range(PARTS)])

    return gains


@dataclass(frozen=True)
class _Grouped:
    """Hold what N prompts gain, in which of G groups of neighbouring places each is, and B resamples of documents."""

    gain: Float[np.ndarray, "N"]
    edges: Int[np.ndarray, "edges"]
    inside: Float[np.ndarray, "N G"]
    weights: Float[np.ndarray, "B N"]

    def means(self) -> tuple[Float[np.ndarray, "G"], Float[np.ndarray, "B G"]]:
        """Return each group's mean gain, and the same in every resample."""
        inside, weights = self.inside, self.weights
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.gain @ inside / inside.sum(0), (weights * self.gain) @ inside / (weights @ inside)

    def of_places(self, profile: Float[np.ndarray, "... P"]) -> Float[np.ndarray, "... G"]:
        """Return a profile's means over the places of each group."""
        return np.asarray(np.add.reduceat(profile, self.edges[:-1], axis=-1) / np.diff(self.edges))


def _group(prompts: CopyPrompts, gain: Float[np.ndarray, "N"]) -> _Grouped:
    """Return the gains of prompts with the groups of their places."""
    edges = np.linspace(0, len(prompts.starts), GROUPS + 1).round().astype(np.int64)
    inside = np.eye(GROUPS)[np.searchsorted(edges, prompts.places, side="right") - 1]
    return _Grouped(gain, edges, inside, resample_weights(prompts.units, RESAMPLES))


def _open_few(settings: Settings, prompts: CopyPrompts) -> tuple[Int[np.ndarray, "few"], Session]:
    """Return which prompts give a profile, evenly over places, and a session of them up to where answers begin."""
    order = np.argsort(prompts.places, kind="stable")
    few = np.sort(order[evenly(min(PROFILED, len(order)), len(order))])
    asked = prompts.ids[few, : prompts.ids.shape[1] - SEGMENT + 1]
    quantities = ("mixing", "influence", "kernels", "content")
    profiling = replace(settings, prompts=len(few), length=asked.shape[1], quantities=quantities)
    return few, Session(profiling, Prompts(asked, prompts.units[few]))


def _rank_profiles(
    prompts: CopyPrompts, grouped: _Grouped, profiled: xr.Dataset, few: Int[np.ndarray, "few"]
) -> dict[str, tuple[float, float, float]]:
    """Return the rank correlation of gains with what was measured and what is predicted, with its interval."""
    mean, drawn = grouped.means()
    influence, weights = profiled["influence_prompts"].values, grouped.weights[:, few]
    with np.errstate(invalid="ignore", divide="ignore"):
        totals = weights @ influence.sum(1)
        again = weights @ grouped.of_places(prompts.by_place(influence)) / totals[:, None]
    whole = {"measured": profiled["influence"].values.astype(np.float64)}
    whole |= {PREDICTORS[name].kept_as: predict(profiled, name) for name in available(profiled)}
    places = {name: grouped.of_places(prompts.by_place(p / p.sum())) for name, p in whole.items()}
    return {name: rank_correlation(mean, drawn, p, again if name == "measured" else None) for name, p in places.items()}


def measure_copies(settings: Settings) -> xr.Dataset:
    """Return gains by group of neighbouring places, and their rank correlation with measured and predicted profiles.

    A rank correlation's interval resamples documents, and for measured influence the profile's prompts with them.
    """
    prompts = copy_prompts(settings, settings.prompts)
    few, session = _open_few(settings, prompts)
    step, N = settings.batch_size, len(prompts.ids)
    rows = (slice(k, min(k + step, N)) for k in range(0, N, step))
    gain = torch.cat([prompts.gains(session.instrument, row) for row in rows]).numpy()
    grouped = _group(prompts, gain)
    ranks = _rank_profiles(prompts, grouped, measure(session.settings, session.prompts), few)
    (mean, drawn), weights, edges = grouped.means(), grouped.weights, grouped.edges
    ends = [interval(column[np.isfinite(column)]) for column in (*drawn.T, weights @ gain / weights.sum(1))]
    data = {
        "gain": ("prompt", gain),
        "place": ("prompt", prompts.places),
        "unit": ("prompt", prompts.units),
        "place_start": ("place_index", prompts.starts),
        "group_first": ("group", edges[:-1]),
        "group_last": ("group", edges[1:] - 1),
        "gain_mean": ("group", mean),
        "gain_low": ("group", np.array([low for low, _ in ends[:-1]])),
        "gain_high": ("group", np.array([high for _, high in ends[:-1]])),
        "overall": (("score", "end"), np.array([[gain.mean(), *ends[-1]]])),
        "difference_p_value": ("score", np.array([difference_p_value(gain, grouped.inside)])),
        "rank_correlation": (("profile_name", "score", "end"), np.array([*ranks.values()])[:, None]),
    }
    names = {"score": ["gain"], "end": ENDS, "profile_name": list(ranks)}
    return xr.Dataset(data, names, session.provenance() | {"prompts": N, "length": settings.length})


def difference_p_value(values: Float[np.ndarray, "N"], inside: Float[np.ndarray, "N G"]) -> float:
    """Return how often prompts in random places differ between groups as much or more, by the variance between them."""
    centred = values - values.mean()
    shuffled = np.random.default_rng(0).permuted(np.tile(centred, (RESAMPLES, 1)), axis=1)
    between = ((np.vstack([centred, shuffled]) @ inside) ** 2 / np.maximum(inside.sum(0), 1)).sum(1)
    return float((1 + (between[1:] >= between[0] * (1 - 1e-12)).sum()) / (RESAMPLES + 1))


def rank_correlation(
    mean: Float[np.ndarray, "G"],
    drawn: Float[np.ndarray, "B G"],
    profile: Float[np.ndarray, "G"],
    again: Float[np.ndarray, "B G"] | None = None,
) -> tuple[float, float, float]:
    """Return Spearman's correlation of gains and a profile over groups, and its 95% interval over resamples.

    Noise moves a correlation towards 0, in a resample once more than in the sample: the interval is the hull of the
    percentile and the basic one.
    """
    estimate = float(_correlation(mean[None], profile[None])[0])
    others = np.broadcast_to(profile, drawn.shape) if again is None else again
    known = np.isfinite(drawn).all(1) & np.isfinite(others).all(1)
    found = _correlation(drawn[known], others[known])
    low, high = hull_interval(estimate, found[np.isfinite(found)], least=-1.0)
    return estimate, low, min(high, 1.0)


def _correlation(x: Float[np.ndarray, "B G"], y: Float[np.ndarray, "B G"]) -> Float[np.ndarray, "B"]:
    """Return the rank correlation of each row of two arrays, NaN for constant rows."""
    a, b = (rankdata(values, axis=-1) - (values.shape[-1] + 1) / 2 for values in (x, y))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((a * b).sum(-1) / np.sqrt((a**2).sum(-1) * (b**2).sum(-1)))
