"""What remedies for position bias do to a rollout, to influence and to the loss of a given model.

Each acts on a model that was trained without it (:mod:`studies.design.remedy_hooks`). Those with a setting are
searched with equally many evaluations on a few prompts, for the distance of the rollout of measured kernels and
measured λ to uniform; then all are measured on other prompts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor, nn

from posbias import errors
from posbias.comparison.resampling import resample_weights
from posbias.design.choice import Attended, Description
from posbias.measure.attention import AttentionReading
from posbias.measure.corpus import document_units
from posbias.measure.instrument import Instrument
from posbias.measure.study import Settings, Study
from posbias.measure.summary import shaved
from posbias.networks.added_biases import added_biases, divided_logits
from posbias.networks.families import family_of
from posbias.networks.hooks import After, Before, given, hooked, returned
from posbias.provenance import versions
from posbias.rollout.position_bias import FlatBias, LogBias, NoBias, described
from studies.design.bias_proposals import Setting, proposed
from studies.design.copy_gains import copy_gains
from studies.design.remedy_hooks import (
    LEAST,
    MOST,
    added_logits,
    bezier_curve,
    calibration_logits,
    distance_ratios,
    head_awareness,
    head_scales,
    key_heads,
    positional_channels,
    scaled_channel,
    scaled_rope,
)
from studies.design.remedy_tables import (
    ADDED,
    CHOICES,
    KNOWN,
    LAST,
    REMEDIES,
    RESAMPLES,
    SEED,
    STATISTICS,
    TOLERATED,
    VARIANTS,
    statistics_of,
)

EVALUATIONS = 32
"""Settings that are tried of every remedy with a search."""
GENERATIONS = 4
"""Of the genetic search."""
SEARCH_PROMPTS, SEARCH_LENGTH = 6, 256
"""Prompts, and their tokens at most, on which settings are tried."""
CALIBRATION_PROMPTS = 16
"""Prompts on which attention is averaged for calibration, and channels are looked for."""
LARGEST = 4.0
"""Largest rotary scale that is tried."""
CONTROL_POINTS = 4
"""Of the Bézier curve over depth."""
CHANNELS = 3
"""Channels that are tried, the most monotone ones."""
ALPHA, TAU = (-0.95, 3.0), (0.25, 8.0)
"""Ranges of the exponents and of the cut-offs that are tried."""

TEMPERATURES = (1 / 16, 4.0)
"""Range of one temperature."""
CURVES = {"layers": (1.0, LARGEST), "temperatures": (-4.0, 2.0)}
"""Ranges of the control points of curves over depth."""

LARGE = 40_000
"""Arrays of more numbers are kept with few bits of each."""

Score = Callable[[nn.Module], Float[np.ndarray, "place"]]
"""Returns what a model does by place, such as accuracy in retrieval; called inside a remedy's context."""


@dataclass(frozen=True)
class ForwardReading:
    """Hold what a forward pass shows of N prompts.

    Parameters
    ----------
    kernels
        Attention averaged over heads.
    mixing
        λ = ‖a‖ / (‖x‖ + ‖a‖) with Frobenius norms.
    loss
        Mean loss of the next token, nats.
    """

    kernels: Float[np.ndarray, "N T n n"]
    mixing: Float[np.ndarray, "N T"]
    loss: Float[np.ndarray, "N"]


@dataclass(frozen=True)
class Attempt:
    """Hold a setting that was tried, on the prompts that are searched: what is minimised, and the loss.

    Here that is W₁ of the rollout to uniform.
    """

    setting: Setting
    distance: float
    loss: float


def read_forward(instrument: Instrument, ids: Int[Tensor, "N n"], batch_size: int = 8) -> ForwardReading:
    """Return kernels, λ and loss of prompts by forward passes alone, for the model as it is or inside a context.

    Parameters
    ----------
    instrument
        Of a model with eager attention.
    ids
        Token ids.
    batch_size
        Prompts at a time.
    """
    T, n = instrument.T, ids.shape[1]
    kernels = np.empty((len(ids), T, n, n), dtype=np.float32)
    mixing, loss = np.empty((len(ids), T)), np.empty(len(ids))
    for start in range(0, len(ids), batch_size):
        rows = slice(start, start + batch_size)

        def see(reading: AttentionReading, rows: slice = rows) -> None:
            kernels[rows, reading.layer] = reading.probabilities.float().mean(1).cpu().numpy()

        norms: tuple[list[Tensor], list[Tensor]] = ([], [])
        with hooked(*_norm_hooks(instrument, *norms)):
            loss[rows] = instrument.losses(ids[rows], see).double().mean(-1).numpy()
        mixing[rows] = _shares(*norms)
    return ForwardReading(kernels / kernels.sum(-1, keepdims=True), mixing, loss)


def _add_heads(total: Float[np.ndarray, "T H n n"], reading: AttentionReading) -> None:
    total[reading.layer] += reading.probabilities.double().sum(0).cpu().numpy()


def _shares(entering: list[Tensor], added: list[Tensor]) -> Float[np.ndarray, "B T"]:
    """Return λ of the norms that the hooks have appended."""
    x, a = (torch.stack(sizes, dim=1).double().cpu().numpy() for sizes in (entering, added))
    return np.asarray(a / (x + a))


def _norm_hooks(
    instrument: Instrument, entering: list[Tensor], added: list[Tensor]
) -> tuple[list[tuple[nn.Module, Before]], list[tuple[nn.Module, After]]]:
    """Return hooks that append each layer's ‖x‖ and ‖a‖, Frobenius norms of each prompt."""

    def size(x: Tensor) -> Tensor:
        return torch.linalg.vector_norm(x.float(), dim=(-2, -1))

    before: list[tuple[nn.Module, Before]] = []
    after: list[tuple[nn.Module, After]] = []
    for layer in instrument.layers:
        stream = instrument.family.stream_of(layer)
        if stream is None:
            before.append((layer, lambda module, args, kwargs: entering.append(size(given(args, kwargs)))))
        else:
            after.append((stream, lambda module, args, output: entering.append(size(returned(output)))))
        output = instrument.family.output_of(layer)
        after.append((output, lambda module, args, output: added.append(size(returned(output)))))
    return before, after


def read_influence(instrument: Instrument, ids: Int[Tensor, "N n"], batch_size: int = 8) -> Float[np.ndarray, "N n"]:
    """Return each prompt's input-token influence, for the model as it is or inside a context."""
    batches = range(0, len(ids), batch_size)
    return torch.cat([instrument.measure(ids[k : k + batch_size]).influence for k in batches]).numpy()


def rolled_out(
    kernels: Float[np.ndarray, "N T n n"], mixing: Float[np.ndarray, "N T"], weights: Float[np.ndarray, "B N"]
) -> Float[np.ndarray, "B n"]:
    """Return the influence profiles of rollouts of weighted means over prompts, of kernels and of λ.

    A row of ones gives the rollout of mean kernels, a row of the identity matrix a prompt's own, and resampled
    weights those of resampled prompts; no mean of matrices is formed.

    Parameters
    ----------
    kernels, mixing
        Of :func:`read_forward`.
    weights
        Of prompts, at least 0, one above 0 in each row.
    """
    B, n = len(weights), kernels.shape[-1]
    shares = weights / weights.sum(1, keepdims=True)
    lambda_ = shares @ mixing
    v = np.zeros((B, n))
    v[:, -1] = 1.0
    for t in reversed(range(kernels.shape[1])):
        moved = np.zeros((B, n))
        for k, A in enumerate(kernels[:, t]):
            drawn = shares[:, k] > 0
            moved[drawn] += (v[drawn] * shares[drawn, k, None]) @ A.astype(np.float64)
        v = (1 - lambda_[:, t, None]) * v + lambda_[:, t, None] * moved
    return v


def distance_to_uniform(reading: ForwardReading) -> float:
    """Return the normalised W₁ of the rollout of mean kernels and mean λ to uniform: what is searched for."""
    p = rolled_out(reading.kernels, reading.mixing, np.ones((1, len(reading.loss))))
    return float(statistics_of(p)["W1"][0])


class Remedies:
    """Remedies for one model: what they have to know of it, read once, and their contexts by setting.

    Parameters
    ----------
    instrument
        Of a model with eager attention; rotary scales, channels and calibration ask for more.
    ids
        Prompts on which awareness of heads, channels and mean attention are read.
    batch_size
        Prompts at a time.
    names
        Keys of :data:`~studies.design.remedy_tables.REMEDIES`.

    Raises
    ------
    ValueError
        For a model that one of the remedies cannot act on.
    """

    def __init__(
        self, instrument: Instrument, ids: Int[Tensor, "N n"], batch_size: int = 8, names: Sequence[str] = KNOWN
    ) -> None:
        self.instrument, self.names = instrument, names
        self.ids, self.batch_size = ids, batch_size
        T, H, n = instrument.T, instrument.H, ids.shape[1]
        self.middle = range(T // 4, max(T // 4 + 1, 3 * T // 4))
        self.proposals: dict[Setting, Description] = {}
        if "layers" in names:
            with scaled_rope(instrument, np.ones(T)):  # refuses what cannot be scaled
                pass
        if "channel" in names:
            self.channels, self.monotone = positional_channels(instrument, ids, self.middle)
        if not {"heads", "calibration"} & set(names):
            return
        total, rows = np.zeros((T, H, n, n), dtype=np.float32), np.zeros((T, H))

        def see(reading: AttentionReading) -> None:
            weights = reading.probabilities.float().cpu().numpy()
            total[reading.layer] += weights.sum(0)
            rows[reading.layer] += head_awareness(weights[:, :, -1]).sum(0)

        for start in range(0, len(ids), batch_size):
            instrument.forward(ids[start : start + batch_size], see)
        self.awareness = rows / len(ids)
        self.near, self.first = distance_ratios(total, len(ids))

    def scales(self, remedy: str, setting: Setting) -> Float[np.ndarray, "T H"]:
        """Return by what positions are divided in each layer and head; 1 where a remedy leaves them."""
        T, H = self.instrument.T, self.instrument.H
        found = np.ones((T, H))
        if remedy == "layers":
            found *= bezier_curve(setting, T)[:, None]
        elif remedy == "one scale":
            found *= setting[0]
        elif remedy == "heads":
            after = min(2, T - 1)
            found[after:] = head_scales(self.awareness[after:], key_heads(self.instrument), *setting)
        return found

    def temperatures(self, remedy: str, setting: Setting) -> Float[np.ndarray, "T"]:
        """Return by what content logits are divided in each layer; 1 where a remedy leaves them."""
        T = self.instrument.T
        if remedy == "temperatures":
            return np.asarray(2 ** bezier_curve(setting, T))
        return np.full(T, setting[0] if remedy == "temperature" else 1.0)

    def bias(self, remedy: str, setting: Setting) -> Description:
        """Return the description of the bias that a remedy adds; that of none for a remedy that adds none."""
        none = described(NoBias())
        if remedy == "chosen":
            return self.proposals[setting]
        if remedy == "log":
            return described(LogBias(setting[0]))
        if remedy == "flat":
            return described(FlatBias(setting[0]))
        if remedy == "mixed flat":
            few = self.instrument.H // 2
            return [none] * few + [described(FlatBias(setting[0]))] * (self.instrument.H - few)
        return none

    def context(self, remedy: str, setting: Setting, n: int) -> AbstractContextManager[None]:
        """Return the context in which a remedy acts.

        Parameters
        ----------
        remedy
            A key of :data:`~studies.design.remedy_tables.REMEDIES`.
        setting
            Numbers for its parameters.
        n
            Tokens of the prompts.

        Raises
        ------
        ValueError
            For an unknown remedy, another number of parameters, and prompts longer than those of the calibration.
        """
        if remedy not in REMEDIES:
            raise errors.invalid("remedy", f"one of {', '.join(REMEDIES)}", remedy)
        names = REMEDIES[remedy].parameters
        if len(setting) != len(names):
            raise errors.invalid(f"setting of {remedy}", f"{len(names)} numbers", len(setting))
        if remedy == "intact":
            return nullcontext()
        if remedy in ("layers", "one scale", "heads"):
            return scaled_rope(self.instrument, self.scales(remedy, setting))
        if remedy in ("temperatures", "temperature"):
            return divided_logits(self.instrument.model, self.temperatures(remedy, setting))
        if remedy == "channel":
            return scaled_channel(self.instrument, int(setting[0]), setting[1], self.middle)
        if remedy == "calibration":
            if n > self.near.shape[-1]:
                raise errors.invalid("n", f"at most {self.near.shape[-1]} tokens, as calibrated", n)
            return added_logits(self.instrument, calibration_logits(self.near[..., :n], self.first[..., :n]))
        return added_biases(self.instrument.model, self.bias(remedy, setting))

    def tried(self, remedy: str, evaluations: int, attempt: Callable[[Setting], Attempt]) -> list[Attempt]:
        """Return what a search tries: a genetic one for curves over depth, a grid for all others.

        Parameters
        ----------
        remedy
            One that is searched.
        evaluations
            How many settings, exactly.
        attempt
            Measures a setting.
        """
        if remedy in CURVES:
            low, high = CURVES[remedy]
            return genetic_search(attempt, np.full(CONTROL_POINTS, low), np.full(CONTROL_POINTS, high), evaluations)
        if remedy == "chosen" and not self.proposals:
            self.proposals = proposed(self.attended, evaluations)
        return [attempt(setting) for setting in self._grid(remedy, evaluations)]

    @cached_property
    def attended(self) -> Attended:
        """What the model does on the prompts: attention of each head, and λ, up to the length of a search."""
        ids = self.ids[:, :SEARCH_LENGTH]
        total = np.zeros((self.instrument.T, self.instrument.H, ids.shape[1], ids.shape[1]))
        mixing = []
        for start in range(0, len(ids), self.batch_size):
            norms: tuple[list[Tensor], list[Tensor]] = ([], [])
            with hooked(*_norm_hooks(self.instrument, *norms)):
                self.instrument.forward(ids[start : start + self.batch_size], lambda x: _add_heads(total, x))
            mixing.append(_shares(*norms))
        return Attended(total / total.sum(-1, keepdims=True), np.concatenate(mixing).mean(0), self.instrument.H)

    def _grid(self, remedy: str, evaluations: int) -> Iterator[Setting]:
        if remedy == "chosen":
            yield from self.proposals
            return
        if remedy == "channel":
            channels = self.channels[:CHANNELS]
            for k, few in enumerate(np.array_split(np.arange(evaluations), len(channels))):
                for factor in np.linspace(-1, 1, few.size, endpoint=False):
                    yield float(channels[k]), float(factor)
            return
        values = {
            "one scale": np.linspace(1, LARGEST, evaluations),
            "log": np.linspace(*ALPHA, evaluations),
            "flat": np.geomspace(*TAU, evaluations),
            "mixed flat": np.geomspace(*TAU, evaluations),
            "temperature": np.geomspace(*TEMPERATURES, evaluations),
        }
        for value in values[remedy]:
            yield (float(value),)


def genetic_search(
    attempt: Callable[[Setting], Attempt],
    low: Float[np.ndarray, "d"],
    high: Float[np.ndarray, "d"],
    evaluations: int,
    seed: int = SEED,
) -> list[Attempt]:
    """Return all that a small genetic search tries, in the order of trial: exactly as many settings as it is given.

    The first of :data:`GENERATIONS` generations is ``low`` and uniform draws; each later one mixes pairs of the best
    third of all before, coordinate by coordinate, and adds a normal step of a tenth of the range.

    Parameters
    ----------
    attempt
        Measures a setting; the distance is what is minimised.
    low, high
        Range of each coordinate.
    evaluations
        How many.
    seed
        Of the draws.
    """
    rng = np.random.default_rng(seed)
    size = -(-errors.positive_integer("evaluations", evaluations) // GENERATIONS)
    found = [attempt(tuple(low.tolist()))]
    while len(found) < min(size, evaluations):
        found.append(attempt(tuple(rng.uniform(low, high).tolist())))
    while len(found) < evaluations:
        best = sorted(found, key=lambda x: x.distance)[: max(2, len(found) // 3)]
        for _ in range(min(size, evaluations - len(found))):
            mother, father = (np.array(best[k].setting) for k in rng.integers(len(best), size=2))
            child = (
                mother + rng.uniform(size=low.size) * (father - mother) + rng.normal(0, 0.1, low.size) * (high - low)
            )
            found.append(attempt(tuple(np.clip(child, low, high).tolist())))
    return found


def chosen(attempts: list[Attempt], intact: Attempt) -> dict[str, Setting]:
    """Return the setting nearest to uniform, and the nearest cheap one, if it is nearer than the intact model.

    Parameters
    ----------
    attempts
        All of one remedy.
    intact
        The model as it is; a cheap setting has at most :data:`~studies.design.remedy_tables.TOLERATED` nats
        more.

    >>> few = [Attempt((1.0,), 0.3, 2.0), Attempt((2.0,), 0.1, 5.0)]
    >>> chosen(few, Attempt((), 0.4, 1.95)), chosen(few, Attempt((), 0.3, 1.95))
    ({'nearest': (2.0,), 'cheap': (1.0,)}, {'nearest': (2.0,)})
    """
    cheap = [x for x in attempts if x.loss <= intact.loss + TOLERATED and x.distance < intact.distance]
    found = {"nearest": min(attempts, key=lambda x: x.distance).setting}
    return found | ({"cheap": min(cheap, key=lambda x: x.distance).setting} if cheap else {})


def prompts_aside(study: Study, prompts: int, length: int) -> Int[Tensor, "N n"]:
    """Return other prompts of the study's corpus, from no module or document that the study's own are from.

    Parameters
    ----------
    study
        Of a model.
    prompts, length
        How many, and of how many tokens.

    Raises
    ------
    ValueError
        If the corpus has not as many.
    """
    own, dataset = study.prompts.origins, str(study.provenance()["dataset"])
    total = len(own) + prompts
    while True:
        more = study.with_prompts(prompts=total, length=length).prompts
        if study.settings.rule == "random":
            return torch.from_numpy(more.ids[len(own) :])
        units = document_units(np.concatenate([own, more.origins]), dataset)
        free = ~np.isin(units[len(own) :], units[: len(own)])
        if free.sum() >= prompts:
            return torch.from_numpy(more.ids[free][:prompts])
        total += max(prompts, total // 4)  # make_prompts says when the corpus has no more


def measure_added_biases(settings: Settings) -> xr.Dataset:
    """Measure a bias that the engine chooses beside simple rivals of the same number of evaluations.

    Rivals are a rotary scale for each layer, or a temperature for each where a model has none that can be scaled, and
    one temperature. The score is how much the model copies from each part of a prompt. Arguments, results and errors
    are those of :func:`measure_remedies`; errors also those of
    :func:`~studies.design.copy_gains.copy_gains`, for prompts of less than about 50 tokens.
    """
    config = settings.source.config()
    family = family_of(config)
    scalable = family.position_of(config) == "rotary" and family.unrotated is not None
    without = "temperatures" if scalable else "layers"
    return measure_remedies(settings, [name for name in ADDED if name != without], copy_gains(settings))


def measure_remedies(settings: Settings, names: Sequence[str] = KNOWN, score: Score | None = None) -> xr.Dataset:
    """Search the remedies' settings on a few prompts, and measure all of them on the settings' prompts.

    Parameters
    ----------
    settings
        As for :func:`~posbias.measure.run.measure`, with eager attention.
    names
        Remedies, ``intact`` first.
    score
        What else is measured of the model in each condition, by place; nothing unless given.

    Returns
    -------
    rollout : condition, variant, position
        Profiles of the rollout of mean kernels and mean λ, and the mean of the prompts' own.
    rollout_resampled : condition, variant, statistic, resample
        What is said of them in resamples of the documents' modules, the same in all conditions.
    influence_prompts, loss_prompts, lambda_frobenius
        Of each prompt, and the mean mixing of each layer.
    rope_scale, setting
        What each condition is.
    search_W1, search_loss, search_setting : searched, evaluation
        Every setting that was tried.
    score : condition, place
        What ``score`` returned.

    Raises
    ------
    ValueError, OSError
        As :func:`~posbias.measure.run.measure` does, and for a model that the remedies cannot act on.
    """
    study = Study(settings)
    study.check()
    n, size = settings.length, settings.batch_size
    calibration = prompts_aside(study, CALIBRATION_PROMPTS, n)
    few = prompts_aside(study, SEARCH_PROMPTS, min(n, SEARCH_LENGTH))
    remedies = Remedies(study.instrument, calibration, size, names)
    intact, tried = _search(remedies, few)
    rows = _conditions(names, tried, intact)
    units = document_units(study.prompts.origins, str(study.provenance()["dataset"]))
    weights = resample_weights(units, RESAMPLES, seed=SEED)
    seen: dict[tuple[str, Setting], dict[str, np.ndarray]] = {}
    for remedy, _, setting in rows:
        if (remedy, setting) not in seen:
            with remedies.context(remedy, setting, n):
                seen[remedy, setting] = _condition(study, weights)
                if score is not None:
                    seen[remedy, setting]["score"] = np.asarray(score(study.instrument.model), dtype=np.float64)
    found = [seen[remedy, setting] for remedy, _, setting in rows]
    fields = {name: (dims, np.stack([x[name] for x in found])) for name, dims in DIMENSIONS.items() if name in found[0]}
    searched = [name for name in names if name in tried]
    own = {
        "awareness": ("layer", "head"),
        "monotone": ("channel",),
        "near": ("layer", "head", "position"),
        "first": ("layer", "head", "position"),
    }
    fields |= {name: (dims, getattr(remedies, name)) for name, dims in own.items() if hasattr(remedies, name)}
    if "temperature" in names:
        each = np.stack([remedies.temperatures(r, s) for r, _, s in rows])
        fields["temperature"] = ("condition", "layer"), each
    fields |= {
        "rope_scale": (("condition", "layer", "head"), np.stack([remedies.scales(r, s) for r, _, s in rows])),
        "setting": (("condition", "parameter"), np.stack([_padded(setting) for _, _, setting in rows])),
        "search_W1": (("searched", "evaluation"), np.array([[x.distance for x in tried[r]] for r in searched])),
        "search_loss": (("searched", "evaluation"), np.array([[x.loss for x in tried[r]] for r in searched])),
        "search_setting": (
            ("searched", "evaluation", "parameter"),
            np.array([[_padded(x.setting) for x in tried[r]] for r in searched]),
        ),
        "document": (("prompt",), study.prompts.origins),
        "unit": (("prompt",), units),
    }
    arrays = {name: (dims, _short(x), {"long_name": MEANINGS[name]}) for name, (dims, x) in fields.items()}
    coords = {
        "remedy": ("condition", [remedy for remedy, _, _ in rows]),
        "choice": ("condition", [choice for _, choice, _ in rows]),
        "variant": list(VARIANTS),
        "statistic": list(STATISTICS),
        "searched": searched,
    }
    if "chosen" in names:
        coords["added_bias"] = ("condition", [json.dumps(remedies.bias(r, s)) for r, _, s in rows])
    about = {
        "evaluations": EVALUATIONS,
        "search_prompts": len(few),
        "search_length": few.shape[1],
        "search_W1_intact": intact.distance,
        "search_loss_intact": intact.loss,
        "calibration_prompts": len(calibration),
        "tolerated": TOLERATED,
        "last_tokens": LAST,
        "resamples": RESAMPLES,
        "middle_layers": f"{remedies.middle.start} to {remedies.middle.stop - 1}",
        "remedies": "; ".join(f"{x} ({REMEDIES[x].source}): {REMEDIES[x].reading}" for x in names),
        "choices": "; ".join(f"{name}: {what}" for name, what in CHOICES.items()),
    }
    return xr.Dataset(arrays, coords=coords, attrs={**study.provenance(), **about, **versions("scipy")})


DIMENSIONS: dict[str, tuple[str, ...]] = {
    "rollout": ("condition", "variant", "position"),
    "rollout_resampled": ("condition", "variant", "statistic", "resample"),
    "influence_prompts": ("condition", "prompt", "position"),
    "loss_prompts": ("condition", "prompt"),
    "lambda_frobenius": ("condition", "layer"),
    "score": ("condition", "place"),
}
"""What is measured of each condition."""
MEANINGS = {
    "rollout": "influence profile by rollout",
    "rollout_resampled": "what is said of the rollouts in resamples of modules",
    "influence_prompts": "‖∂p/∂e‖ of each prompt",
    "loss_prompts": "mean loss of the next token, nats",
    "lambda_frobenius": "mean of ‖a‖/(‖x‖+‖a‖), Frobenius norms",
    "score": "what else was measured, by place",
    "temperature": "what content logits are divided by",
    "rope_scale": "what rotary positions are divided by",
    "setting": "numbers for the remedy's parameters",
    "search_W1": "W₁ of the rollout to uniform on the prompts that are searched",
    "search_loss": "loss on them, nats",
    "search_setting": "numbers for the remedy's parameters",
    "awareness": "share of keys that stand out for the last query",
    "monotone": "mean of |Spearman's correlation| with position, middle layers",
    "near": "mean weight at a distance, key 0 aside, in multiples of the uniform one",
    "first": "mean weight of key 0 by query, in multiples of the uniform one",
    "document": "where each prompt is from",
    "unit": "the document's module: what is resampled",
}


def _search(remedies: Remedies, ids: Int[Tensor, "N n"]) -> tuple[Attempt, dict[str, list[Attempt]]]:
    """Return the intact model on the prompts that are searched, and all settings that were tried, by remedy."""

    def attempt(remedy: str, setting: Setting) -> Attempt:
        with remedies.context(remedy, setting, ids.shape[1]):
            reading = read_forward(remedies.instrument, ids)
        return Attempt(setting, distance_to_uniform(reading), float(reading.loss.mean()))

    names = [name for name in remedies.names if REMEDIES[name].searched]
    tried = {
        name: remedies.tried(name, EVALUATIONS, lambda setting, name=name: attempt(name, setting))  # type: ignore[misc]
        for name in names
    }
    return attempt("intact", ()), tried


def _conditions(
    names: Sequence[str], tried: dict[str, list[Attempt]], intact: Attempt
) -> list[tuple[str, str, Setting]]:
    """Return remedy, choice and setting of all that is measured."""
    rows: list[tuple[str, str, Setting]] = []
    for name in names:
        if name in tried:
            rows += [(name, choice, setting) for choice, setting in chosen(tried[name], intact).items()]
        else:
            rows.append((name, "given", (LEAST, MOST) if REMEDIES[name].parameters else ()))
    return rows


def _condition(study: Study, weights: Float[np.ndarray, "B N"]) -> dict[str, np.ndarray]:
    """Measure one condition, inside its context."""
    instrument, size, N = study.instrument, study.settings.batch_size, len(study.ids)
    reading = read_forward(instrument, study.ids, size)
    ways = np.concatenate([np.ones((1, N)), np.eye(N), weights])
    profiles = rolled_out(reading.kernels, reading.mixing, ways)
    own = profiles[1 : N + 1]
    resampled = profiles[N + 1 :], weights @ own / weights.sum(1, keepdims=True)
    said = [[statistics_of(p)[name] for name in STATISTICS] for p in resampled]
    return {
        "rollout": np.stack([profiles[0], own.mean(0)]),
        "rollout_resampled": np.array(said),
        "influence_prompts": read_influence(instrument, study.ids, size),
        "loss_prompts": reading.loss,
        "lambda_frobenius": reading.mixing.mean(0),
    }


def _padded(setting: Setting) -> np.ndarray:
    """Return a setting with NaN up to the longest."""
    return np.array([*setting, *[np.nan] * (max(len(x.parameters) for x in REMEDIES.values()) - len(setting))])


def _short(x: np.ndarray) -> Any:
    """Return numbers in 32 bits, large arrays with few of them."""
    if x.dtype.kind != "f":
        return x
    return shaved(x.astype(np.float32)) if x.size > LARGE else x.astype(np.float32)
