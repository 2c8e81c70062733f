"""What remedies for position bias do to the rollout, the influence and the loss of a finished model.

Each acts on a model that was trained without it, inside a context. Those with a setting are searched with equally many
evaluations on a few prompts, for the distance of the rollout of measured kernels and measured λ to uniform; then all
are measured on other prompts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from posbias.comparison.resampling import resample_weights
from posbias.design import Description
from posbias.measure.corpus import document_units
from posbias.measure.instrument import Instrument
from posbias.measure.session import Session, cut_prompts
from posbias.models.attention import Reading
from posbias.models.families import family_of
from posbias.provenance import versions
from posbias.rollout.position_bias import FlatBias, LogBias, NoBias, describe
from posbias.settings import Settings
from studies.additions import EVALUATIONS, Additions, Attempt, Setting, bezier_curve, genetic_search
from studies.design.copying import Score, copy_gains
from studies.design.forward import read_forward, rolled_out
from studies.design.hooks import (
    LEAST,
    MOST,
    added_logits,
    calibration_logits,
    distance_ratios,
    head_awareness,
    head_scales,
    key_heads,
    positional_channels,
    scaled_channel,
    scaled_rope,
)
from studies.design.known import ADDED, KNOWN, REMEDIES, RESAMPLES, SEED, distances_to_even
from studies.interventions import unrotated
from studies.summaries import shave

SEARCH_PROMPTS, SEARCH_LENGTH = 6, 256
"""Prompts, and their tokens at most, on which settings are tried."""
CALIBRATION_PROMPTS = 16
"""Prompts on which attention is averaged for calibration, and channels are looked for."""
LARGEST = 4.0
"""Largest rotary scale that is tried."""
CHANNELS = 3
"""Channels that are tried, the most monotone ones."""
GRIDS: dict[str, tuple[Callable[..., np.ndarray], tuple[float, float]]] = {
    "one scale": (np.linspace, (1.0, LARGEST)),
    "log": (np.linspace, (-0.95, 3.0)),
    "flat": (np.geomspace, (0.25, 8.0)),
    "mixed flat": (np.geomspace, (0.25, 8.0)),
}
"""Scales, exponents and cut-offs that are tried."""
TOLERATED = 0.1
"""Nats a token that a cheap setting may cost at most, on the prompts that are searched."""
LARGE = 40_000
"""Arrays of more numbers are kept with few bits of each."""

CHOICES = {
    "given": "not searched",
    "nearest": "the rollout nearest to uniform",
    "cheap": f"the nearest of those that cost at most {TOLERATED:g} nats a token, if nearer than the intact model",
}
"""Which setting of a remedy a row has."""
VARIABLES: dict[str, tuple[tuple[str, ...], str]] = {
    "rollout": (("condition", "variant", "position"), "influence profile by rollout"),
    "rollout_resampled": (
        ("condition", "variant", "statistic", "resample"),
        "W₁ to uniform of the rollouts in resamples of modules",
    ),
    "influence_prompts": (("condition", "prompt", "position"), "‖∂p/∂e‖ of each prompt"),
    "loss_prompts": (("condition", "prompt"), "mean loss of the next token, nats"),
    "lambda_frobenius": (("condition", "layer"), "mean of ‖a‖/(‖x‖+‖a‖), Frobenius norms"),
    "score": (("condition", "place"), "what else was measured, by place"),
    "setting": (("condition", "parameter"), "numbers for the remedy's parameters"),
    "unit": (("prompt",), "the document's module: what is resampled"),
}
"""Name → dimensions and meaning of what is measured; settings are padded with NaN."""

Row = tuple[str, str, Setting]
"""A remedy, which of :data:`CHOICES` its setting is, and the setting."""


class Remedies(Additions):
    """Remedies for one model: what they have to know of it, read once on prompts, and their contexts by setting."""

    def __init__(
        self, instrument: Instrument, ids: Int[Tensor, "N n"], batch_size: int = 8, names: Sequence[str] = KNOWN
    ) -> None:
        super().__init__(instrument, ids, batch_size)
        self.names = names
        T, H, n = instrument.T, instrument.H, ids.shape[1]
        self.middle = range(T // 4, max(T // 4 + 1, 3 * T // 4))
        if "layers" in names:
            with scaled_rope(instrument, np.ones((T, H))):  # refuses what cannot be scaled
                pass
        if "channel" in names:
            self.channels, _ = positional_channels(instrument, ids, self.middle)
        if not {"heads", "calibration"} & set(names):
            return
        total, rows = np.zeros((T, H, n, n), dtype=np.float32), np.zeros((T, H))

        def see(reading: Reading) -> None:
            weights = reading.probabilities.float().cpu().numpy()
            total[reading.layer] += weights.sum(0)
            rows[reading.layer] += head_awareness(weights[:, :, -1]).sum(0)

        for batch in ids.split(batch_size):
            instrument.forward(batch, see)
        self.awareness = rows / len(ids)
        self.near, self.first = distance_ratios(total, len(ids))

    def scales(self, name: str, setting: Setting) -> Float[np.ndarray, "T H"]:
        """Return by what positions are divided in each layer and head."""
        T, H = self.instrument.T, self.instrument.H
        found = np.ones((T, H))
        if name == "layers":
            found *= bezier_curve(setting, T)[:, None]
        elif name == "one scale":
            found *= setting[0]
        else:
            after = min(2, T - 1)
            found[after:] = head_scales(self.awareness[after:], key_heads(self.instrument), *setting)
        return found

    def bias(self, name: str, setting: Setting) -> Description:
        """Return the description of the bias that a remedy adds; that of none for a remedy that adds none."""
        if name == "log":
            return describe(LogBias(setting[0]))
        if name == "flat":
            return describe(FlatBias(setting[0]))
        if name == "mixed flat":
            few = self.instrument.H // 2
            return [describe(NoBias())] * few + [describe(FlatBias(setting[0]))] * (self.instrument.H - few)
        return super().bias(name, setting)

    def context(self, name: str, setting: Setting) -> AbstractContextManager[None]:
        """Return the context in which a remedy acts; calibration takes prompts of the length that it was read on."""
        if name == "intact":
            return nullcontext()
        if name in ("layers", "one scale", "heads"):
            return scaled_rope(self.instrument, self.scales(name, setting))
        if name == "channel":
            return scaled_channel(self.instrument, int(setting[0]), setting[1], self.middle)
        if name == "calibration":
            return added_logits(self.instrument, calibration_logits(self.near, self.first))
        return super().context(name, setting)

    def tried(self, name: str, evaluations: int, attempt: Callable[[Setting], Attempt]) -> list[Attempt]:
        """Return what a search tries: a genetic one for curves over depth, a grid for all others."""
        if name == "layers":
            return genetic_search(attempt, np.full(4, 1.0), np.full(4, LARGEST), evaluations, SEED)
        if name == "channel":
            factors = np.array_split(np.arange(evaluations), CHANNELS)
            grid: list[Setting] = [
                (float(channel), float(factor))
                for channel, few in zip(self.channels, factors, strict=False)
                for factor in np.linspace(-1, 1, few.size, endpoint=False)
            ]
        elif name in GRIDS:
            spaced, ends = GRIDS[name]
            grid = [(float(value),) for value in spaced(*ends, evaluations)]
        else:
            return super().tried(name, evaluations, attempt)
        return [attempt(setting) for setting in grid]


def chosen(attempts: list[Attempt], intact: Attempt) -> dict[str, Setting]:
    """Return the setting nearest to uniform, and the nearest cheap one, if it is nearer than the intact model.

    >>> few = [Attempt((1.0,), 0.3, 2.0), Attempt((2.0,), 0.1, 5.0)]
    >>> chosen(few, Attempt((), 0.4, 1.95)), chosen(few, Attempt((), 0.3, 1.95))
    ({'nearest': (2.0,), 'cheap': (1.0,)}, {'nearest': (2.0,)})
    """
    cheap = [x for x in attempts if x.loss <= intact.loss + TOLERATED and x.distance < intact.distance]
    found = {"nearest": min(attempts, key=lambda x: x.distance).setting}
    return found | ({"cheap": min(cheap, key=lambda x: x.distance).setting} if cheap else {})


def prompts_aside(study: Session, prompts: int, length: int) -> Int[Tensor, "N n"]:
    """Return other prompts of the study's corpus, from no module or document that the study's own are from."""
    own, dataset = study.prompts.origins, str(study.provenance()["dataset"])
    total = len(own) + prompts
    while True:
        more = cut_prompts(replace(study.settings, prompts=total, length=length))
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
    one temperature. The score is how much the model copies from each part of a prompt.
    """
    config = settings.source.config()
    family = family_of(config)
    scalable = family.position_of(config) == "rotary" and unrotated(family) is not None
    without = "temperatures" if scalable else "layers"
    return measure_remedies(settings, [name for name in ADDED if name != without], copy_gains(settings))


def measure_remedies(settings: Settings, names: Sequence[str] = KNOWN, score: Score | None = None) -> xr.Dataset:
    """Search the remedies' settings on a few prompts, and return what all of them do on the settings' prompts.

    The first of the names is ``intact``. A score is measured of the model in each condition. What a data set holds is
    in :data:`VARIABLES`; resamples are of the documents' modules, the same in all conditions.
    """
    study = Session(settings)
    few = prompts_aside(study, SEARCH_PROMPTS, min(settings.length, SEARCH_LENGTH))
    calibration = prompts_aside(study, CALIBRATION_PROMPTS, settings.length)
    remedies = Remedies(study.instrument, calibration, settings.batch_size, names)
    rows = _rows(names, *_search(remedies, few))
    units = document_units(study.prompts.origins, str(study.provenance()["dataset"]))
    found = _measure_rows(study, remedies, rows, resample_weights(units, RESAMPLES, seed=SEED), score)
    arrays = {name: np.stack([x[name] for x in found]) for name in found[0]} | {
        "setting": np.stack([_padded(setting) for _, _, setting in rows]),
        "unit": units,
    }
    coords: dict[str, Any] = {
        "remedy": ("condition", [name for name, _, _ in rows]),
        "choice": ("condition", [choice for _, choice, _ in rows]),
        "variant": ["kernels"],
        "statistic": ["W1"],
    }
    if "chosen" in names:
        coords["added_bias"] = ("condition", [json.dumps(remedies.bias(name, setting)) for name, _, setting in rows])
    about = {
        "evaluations": EVALUATIONS,
        "search_prompts": len(few),
        "search_length": few.shape[1],
        "calibration_prompts": len(calibration),
    }
    return xr.Dataset(
        {name: (VARIABLES[name][0], _short(x), {"long_name": VARIABLES[name][1]}) for name, x in arrays.items()},
        coords=coords,
        attrs={**study.provenance(), **about, **_describe(remedies), **versions("scipy")},
    )


def _rows(names: Sequence[str], intact: Attempt, tried: dict[str, list[Attempt]]) -> list[Row]:
    """Return the remedies with every choice of a setting that they have."""
    rows: list[Row] = []
    for name in names:
        own = chosen(tried[name], intact) if name in tried else {"given": (LEAST, MOST) if name == "heads" else ()}
        rows += [(name, choice, setting) for choice, setting in own.items()]
    return rows


def _measure_rows(
    study: Session, remedies: Remedies, rows: list[Row], weights: Float[np.ndarray, "B N"], score: Score | None
) -> list[dict[str, np.ndarray]]:
    """Return what each row gives; what is the same remedy with the same setting is measured once."""
    seen: dict[tuple[str, Setting], dict[str, np.ndarray]] = {}
    for name, _, setting in rows:
        if (name, setting) not in seen:
            with remedies.context(name, setting):
                seen[name, setting] = _condition(study, weights)
                if score is not None:
                    seen[name, setting]["score"] = np.asarray(score(study.instrument.model), dtype=np.float64)
    return [seen[name, setting] for name, _, setting in rows]


def _describe(remedies: Remedies) -> dict[str, Any]:
    """Return what an entry says of its remedies and of how their settings were chosen."""
    return {
        "tolerated": TOLERATED,
        "resamples": RESAMPLES,
        "middle_layers": f"{remedies.middle.start} to {remedies.middle.stop - 1}",
        "remedies": "; ".join(f"{x} ({REMEDIES[x].source}): {REMEDIES[x].reading}" for x in remedies.names),
        "choices": "; ".join(f"{name}: {what}" for name, what in CHOICES.items()),
    }


def _search(remedies: Remedies, ids: Int[Tensor, "N n"]) -> tuple[Attempt, dict[str, list[Attempt]]]:
    """Return the intact model on the prompts that are searched, and all settings that were tried, by remedy."""

    def attempt(name: str, setting: Setting) -> Attempt:
        with remedies.context(name, setting):
            reading = read_forward(remedies.instrument, ids)
        p = rolled_out(reading.kernels, reading.mixing, np.ones((1, len(ids))))
        return Attempt(setting, float(distances_to_even(p)[0]), float(reading.loss.mean()))

    tried = {
        name: remedies.tried(name, EVALUATIONS, lambda setting, name=name: attempt(name, setting))  # type: ignore[misc]
        for name in remedies.names
        if REMEDIES[name].searched
    }
    return attempt("intact", ()), tried


def _condition(study: Session, weights: Float[np.ndarray, "B N"]) -> dict[str, np.ndarray]:
    """Measure one condition, inside its context."""
    instrument, size, N = study.instrument, study.settings.batch_size, len(study.ids)
    reading = read_forward(instrument, study.ids, size)
    profiles = rolled_out(reading.kernels, reading.mixing, np.concatenate([np.ones((1, N)), weights]))
    return {
        "rollout": profiles[:1],
        "rollout_resampled": distances_to_even(profiles[1:])[None, None],
        "influence_prompts": torch.cat([instrument.measure(x).influence for x in study.ids.split(size)]).numpy(),
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
    return shave(x.astype(np.float32)) if x.size > LARGE else x.astype(np.float32)
