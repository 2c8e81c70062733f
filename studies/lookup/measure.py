"""What networks that look values up attend to, before and after training, and what can be done for finished ones.

Profiles are over all tokens of a prompt; answers stand at each place equally often. Of remedies, the bias that the
engine chooses from attention alone stands beside rivals of one budget, which see the answers of the prompts that they
are searched on: each is searched with equally many evaluations for the log-probability of the worst part of the places,
and what is not better there than nothing is not used. Then all are tested on other prompts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import torch
import xarray as xr
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel

from posbias.design import Description, choose_bias
from posbias.measure.instrument import Instrument
from posbias.models.biases import added_biases
from posbias.provenance import versions
from posbias.rollout.influence import influence_profile
from posbias.rollout.position_bias import NoBias, describe
from studies.additions import EVALUATIONS, Additions, Attempt, strengthened
from studies.additions import Setting as Numbers
from studies.biased import about
from studies.interventions import read_layers
from studies.lookup.network import load, untrained
from studies.lookup.prompts import prompts
from studies.lookup.settings import Setting
from studies.lookup.tables import CONDITIONS, PARTS, SEARCHES
from studies.lookup.training import AT_THE_END, LENGTHS, Found, found_by_place
from studies.untrained_profiles import read_untrained

PROMPTS, SEED = 64, 77
"""Prompts of profiles, at least; as many as there are places where these are more. Their seed."""
BATCH = 8
REMEDIED = (1, 4)
"""Lengths of the prompts for remedies, in pairs, as multiples of those of training."""
SEEN, SEARCHED = 64, 256
"""Prompts on which attention is read, and on which settings are tried; at least one for each place."""
SEARCH_SEED = 770_000_000
"""Of the prompts that are searched; of those of the test it is one more."""

PROFILES: dict[str, tuple[tuple[str, ...], str]] = {
    "rollout_born": (("seed", "position"), "before training: rollout of measured λ and of the network's biases"),
    "squares_born": (("seed", "position"), "before training: the law of squares with the weights' own gains"),
    "influence_born": (("seed", "position"), "before training: ‖∂p/∂embedding‖ over its sum, mean over prompts"),
    "lambda_born": (("seed", "layer"), "before training: ‖a‖/(‖x‖+‖a‖), mean over prompts"),
    "rollout_trained": (("seed", "position"), "after training: rollout of measured λ and of mean kernels"),
    "influence_trained": (("seed", "position"), "after training: ‖∂p/∂embedding‖ over its sum, mean over prompts"),
    "lambda_trained": (("seed", "layer"), "after training: ‖a‖/(‖x‖+‖a‖), mean over prompts"),
    **{
        f"{name}_trained_{times}": (
            ("seed", f"position_{times}"),
            f"the same {name} for prompts of {times} times the pairs",
        )
        for times in LENGTHS[1:]
        for name in ("rollout", "influence")
    },
}
REMEDIES: dict[str, tuple[tuple[str, ...], str]] = {
    "accuracy": (("seed", "times", "condition", "part"), "share of prompts whose value is found"),
    "log_probability": (("seed", "times", "condition", "part"), "mean log-probability of the value, nats"),
    "applied": (("seed", "times", "condition"), "what was applied, as JSON: numbers of a remedy, or a bias"),
}
"""Name → dimensions and meaning of everything an entry holds."""


def measure_profiles(setting: Setting, seeds: Sequence[int], folder: Path) -> xr.Dataset:
    """Measure the networks of a setting before training, and after it as they are in folder/NAME.seedK."""
    drawn = {times: _asking(setting, times * setting.pairs, PROMPTS, SEED + times) for times in LENGTHS}
    found = []
    for seed in seeds:
        trained = load(folder / f"{setting.name}.seed{seed}")
        found.append({**_born(setting, seed, drawn[1]), **_trained(trained, drawn)})
    return xr.Dataset(
        {
            name: (dims, np.stack([x[name] for x in found]), {"long_name": what})
            for name, (dims, what) in PROFILES.items()
        },
        coords={"seed": list(seeds)},
        attrs={"setting": setting.name, "prompts": PROMPTS, **versions("torch", "transformers")},
    )


def _asking(setting: Setting, n: int, least: int, seed: int) -> Int[Tensor, "N n"]:
    """Return prompts of n pairs, as many for each place."""
    generator = torch.Generator().manual_seed(seed)
    return prompts(setting, -(-least // n) * n, generator, pairs=n, each_place=True).ids


def _born(setting: Setting, seed: int, ids: Int[Tensor, "N n"]) -> dict[str, np.ndarray]:
    model = untrained(setting, seed, attention="eager")
    seen = read_untrained(Instrument(model), ids, {"length": ids.shape[1], **about(model.config)})
    return {
        "rollout_born": seen["profile"].sel(prediction="b").values,
        "squares_born": seen["profile"].sel(prediction="untrained").values,
        "influence_born": seen["influence_prompts"].values.astype(np.float64).mean(0),
        "lambda_born": seen["lambda_frobenius"].values,
    }


def _trained(model: PreTrainedModel, drawn: dict[int, Int[Tensor, "N n"]]) -> dict[str, np.ndarray]:
    instrument, out = Instrument(model), {}
    for times, ids in drawn.items():
        n, end = ids.shape[1], "" if times == 1 else f"_{times}"
        kernels, readings = np.zeros((instrument.T, n, n)), []
        for batch in ids.split(BATCH):
            kernels += read_layers(instrument, batch, lambda x: x.probabilities.double().mean(1).sum(0)).numpy()
            readings.append(instrument.measure(batch))
        influence = torch.cat([x.influence for x in readings]).double()
        mixing = torch.cat([x.lambda_frobenius for x in readings]).double().mean(0).numpy()
        out[f"rollout_trained{end}"] = influence_profile(kernels / kernels.sum(-1, keepdims=True), mixing, n)
        out[f"influence_trained{end}"] = (influence / influence.sum(1, keepdim=True)).mean(0).numpy()
        out[f"lambda_trained{end}"] = mixing
    return out


def measure_lookup_remedies(
    setting: Setting, seeds: Sequence[int], folder: Path, *, evaluations: int = EVALUATIONS
) -> xr.Dataset:
    """Search and test remedies on the networks of a setting, which are in folder/NAME.seedK."""
    found: dict[str, list[list[list[object]]]] = {name: [] for name in REMEDIES}
    for seed in seeds:
        model = load(folder / f"{setting.name}.seed{seed}")
        rows = [_tested(model, setting, times * setting.pairs, seed, evaluations) for times in REMEDIED]
        for name, values in found.items():
            values.append([[condition[name] for condition in row] for row in rows])
    return xr.Dataset(
        {name: (dims, np.array(found[name]), {"long_name": what}) for name, (dims, what) in REMEDIES.items()},
        coords={"seed": list(seeds), "times": list(REMEDIED), "condition": list(CONDITIONS)},
        attrs={
            "setting": setting.name,
            "evaluations": evaluations,
            "search_prompts": SEARCHED,
            "test_prompts": AT_THE_END,
            **versions("torch", "transformers", "scipy"),
        },
    )


def _tested(model: PreTrainedModel, setting: Setting, n: int, seed: int, evaluations: int) -> list[dict[str, object]]:
    """Return what every condition does on prompts of n pairs."""
    added = Additions(Instrument(model), _asking(setting, n, SEEN, SEARCH_SEED - seed))
    given: dict[str, Description] = {
        "engine": choose_bias(added.attended).description,
        "removed": taken_back(setting),
    }

    def context(condition: str, numbers: Numbers) -> AbstractContextManager[None]:
        if condition == "intact":
            return nullcontext()
        return added_biases(model, given[condition]) if condition in given else added.context(condition, numbers)

    def attempt(condition: str, numbers: Numbers) -> Attempt:
        with context(condition, numbers):
            found = found_by_place(model, setting, SEARCHED, SEARCH_SEED + 2 * seed, pairs=n)
        log_p = in_parts(found)["log_probability"]
        return Attempt(numbers, -float(log_p.min()), -float(log_p.mean()))

    intact, rows = attempt("intact", ()), []
    for condition in CONDITIONS:
        used, numbers = condition, Numbers()
        if condition in SEARCHES:
            best = min(added.tried(condition, evaluations, partial(attempt, condition)), key=lambda x: x.distance)
            used, numbers = (condition, best.setting) if best.distance < intact.distance else ("intact", ())
        with context(used, numbers):
            found = found_by_place(model, setting, AT_THE_END, SEARCH_SEED + 2 * seed + 1, pairs=n)
        said = added.bias(used, numbers) if used == "chosen" else given.get(used, list(numbers))
        rows.append({**in_parts(found), "applied": json.dumps(said)})
    return rows


def taken_back(setting: Setting) -> Description:
    """Return the bias that cancels a setting's own; that of none where it has none, hides keys, or has local heads.

    >>> taken_back(Setting("early", heads=1))
    [{'kind': 'log', 'alpha': 0.5}]
    """
    if setting.position_bias is None or setting.encoding == "flat" or setting.tokens > 1:
        return describe(NoBias())
    found: Description = strengthened(setting.position_bias, -1.0)
    return found


def in_parts(found: Found) -> dict[str, np.ndarray]:
    """Return accuracy and log-probability by part of the places."""
    return {name: np.array([part.mean() for part in np.array_split(x, PARTS)]) for name, x in vars(found).items()}
