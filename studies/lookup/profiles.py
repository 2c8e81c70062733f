"""Profiles of retrieval networks on their own prompts, before and after training: predicted and measured.

They stand beside the results of training (:mod:`studies.lookup.results`) in a file of the same name
with ``profiles`` at its end. Profiles are over all tokens of a prompt; answers stand at each place equally often.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import xarray as xr
from transformers import PreTrainedModel

from posbias import netcdf
from posbias.measure.instrument import Instrument
from posbias.measure.untrained_profiles import read_untrained
from posbias.netcdf import load_layout
from posbias.networks.description import description_text
from posbias.networks.given_biases import given_biases
from posbias.provenance import versions
from posbias.rollout.influence import influence_profile
from studies.design.remedies import read_forward, read_influence
from studies.lookup.network import load, untrained
from studies.lookup.prompts import prompts
from studies.lookup.settings import Setting
from studies.lookup.training import LENGTHS

SCHEMA = 1
"""Number of the layout; raised when a name or a meaning changes."""
PROMPTS = 64
"""Prompts at least; as many as there are places where these are more."""
SEED = 77
"""Of the prompts."""
SEEN = {"rollout_born": "b", "squares_born": "birth"}
"""Predictions for an untrained network, as :data:`~posbias.measure.untrained_profiles.PROFILES` names them."""

VARIABLES: dict[str, tuple[tuple[str, ...], str]] = {
    "rollout_born": (("seed", "position"), "before training: rollout of measured λ and of the network's biases"),
    "squares_born": (("seed", "position"), "before training: the law of squares with the weights' own gains"),
    "influence_born": (("seed", "position"), "before training: ‖∂p/∂embedding‖ over its sum, mean over prompts"),
    "lambda_born": (("seed", "layer"), "before training: ‖a‖/(‖x‖+‖a‖), mean over prompts"),
    "rollout_trained": (("seed", "position"), "after training: rollout of measured λ and of mean kernels"),
    "influence_trained": (("seed", "position"), "after training: ‖∂p/∂embedding‖ over its sum, mean over prompts"),
    "lambda_trained": (("seed", "layer"), "after training: ‖a‖/(‖x‖+‖a‖), mean over prompts"),
    "rollout_trained_2": (("seed", "position_2"), "the same rollout for prompts of 2 times the pairs"),
    "influence_trained_2": (("seed", "position_2"), "the same influence for prompts of 2 times the pairs"),
    "rollout_trained_4": (("seed", "position_4"), "the same rollout for prompts of 4 times the pairs"),
    "influence_trained_4": (("seed", "position_4"), "the same influence for prompts of 4 times the pairs"),
}
"""Name → dimensions and meaning of everything a file holds."""


def profiles_path(results: Path) -> Path:
    """Return the path of the profiles that stand beside results.

    >>> profiles_path(Path("runs/none-T4-n32-one-even.nc")).name
    'none-T4-n32-one-even.profiles.nc'
    """
    return results.with_name(f"{results.stem}.profiles.nc")


def measure_profiles(setting: Setting, seeds: list[int], folder: Path) -> xr.Dataset:
    """Measure the networks of a setting before and after training.

    Parameters
    ----------
    setting
        What was trained.
    seeds
        Of the networks.
    folder
        Holds NAME.seedK for each seed.
    """
    drawn = {times: _prompts(setting, times) for times in LENGTHS}
    networks = {seed: load(folder / f"{setting.name}.seed{seed}") for seed in seeds}
    found = [{**_born(setting, seed, drawn[1]), **_trained(networks[seed], drawn)} for seed in seeds]
    arrays = {name: (dims, np.stack([x[name] for x in found])) for name, (dims, _) in VARIABLES.items()}
    return xr.Dataset(
        {name: (dims, x, {"long_name": VARIABLES[name][1]}) for name, (dims, x) in arrays.items()},
        coords={"seed": seeds},
        attrs={
            "posbias_key_value_profiles_schema": SCHEMA,
            "setting": setting.name,
            "prompts": PROMPTS,
            **versions("torch", "transformers"),
        },
    )


def write_profiles(path: Path, profiles: xr.Dataset) -> None:
    """Write what :func:`measure_profiles` returns, in float32; an interrupted write leaves no file."""
    netcdf.write(path, profiles, {str(name): {"zlib": True, "dtype": "float32"} for name in profiles.data_vars})


def read_profiles(path: Path) -> xr.Dataset:
    """Read profiles into memory, or raise ValueError as :func:`~posbias.netcdf.load_layout` does."""
    return load_layout(path, "posbias_key_value_profiles_schema", SCHEMA, "profiles of retrieval networks")


def _born(setting: Setting, seed: int, ids: torch.Tensor) -> dict[str, np.ndarray]:
    model = untrained(setting, seed, attention="eager")
    biases = given_biases(model.config)
    attributes = {"length": ids.shape[1], **({} if biases is None else {"position_bias": description_text(biases)})}
    seen = read_untrained(Instrument(model), ids, attributes)
    profiles = {name: seen["profile"].sel(prediction=law).values for name, law in SEEN.items()}
    influence = seen["influence_prompts"].values.astype(np.float64).mean(0)
    return {**profiles, "influence_born": influence, "lambda_born": seen["lambda_frobenius"].values}


def _prompts(setting: Setting, times: int) -> torch.Tensor:
    """Return prompts of ``times`` as many pairs as in training."""
    n = times * setting.pairs
    generator = torch.Generator().manual_seed(SEED + times)
    return prompts(setting, -(-PROMPTS // n) * n, generator, pairs=n, each_place=True).ids


def _trained(model: PreTrainedModel, drawn: dict[int, torch.Tensor]) -> dict[str, np.ndarray]:
    instrument, out = Instrument(model), {}
    for times, ids in drawn.items():
        seen, influence = read_forward(instrument, ids), read_influence(instrument, ids)
        kernels, mixing = seen.kernels.astype(np.float64).mean(0), seen.mixing.mean(0)
        kernels /= kernels.sum(-1, keepdims=True)
        end = "" if times == 1 else f"_{times}"
        out[f"rollout_trained{end}"] = influence_profile(kernels, mixing, ids.shape[1])
        out[f"influence_trained{end}"] = (influence / influence.sum(1, keepdims=True)).mean(0)
        out[f"lambda_trained{end}"] = mixing
    return out
