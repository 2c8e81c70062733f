"""Whether ``explain`` names the pair that holds the answer, of trained networks that look values up.

What :meth:`~posbias.measure.model.Model.explain` measures of one prompt is measured here of many at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from posbias.comparison.multiplicity import decide, sign_p_value
from posbias.comparison.resampling import interval, resample_weights
from posbias.measure.instrument import Instrument
from posbias.provenance import versions
from studies.lookup.network import load, value_logits
from studies.lookup.prompts import Prompts, prompts
from studies.lookup.settings import Setting

ASKED, PROFILED, SEED = 200, 512, 880_000_000
"""Prompts that are explained, those that the profile is of, and the seed of both."""
TIMES = (1, 4)
"""Lengths of the prompts, in pairs, as multiples of those of training."""
BATCH = 128
WAYS = ("share", "without_position", "backwards", "removed")
"""Largest share of influence; largest once it is divided by the profile; by the profile of the places in reverse, which
should not help; largest loss when deleted."""
PARTS = 4
"""Equal parts of the places that tables have beside all of them."""
EXPLAINED = {
    "first": (("seed", "times", "prompt", "way"), "whether the pair that holds the answer is first"),
    "found": (("seed", "times", "prompt"), "whether the network finds the answer"),
    "place": (("times", "prompt"), "place of the answer, from 0"),
}
"""Name → dimensions and meaning of everything an entry holds."""


def measure_explained(
    setting: Setting, seeds: Sequence[int], folder: Path, *, asked: int = ASKED, profiled: int = PROFILED
) -> xr.Dataset:
    """Explain prompts of known answers with the networks of a setting, which are in folder/NAME.seedK.

    A pair is a segment; answers are at each place in turn, in the prompts of the profile at random ones.
    """
    drawn = {times: _drawn(setting, asked, times, 0) for times in TIMES}
    others = {times: _drawn(setting, profiled, times, 1) for times in TIMES}
    first, found = [], []
    for seed in seeds:
        network = load(folder / f"{setting.name}.seed{seed}")
        instrument = Instrument(network)
        ways, right = [], []
        for times, one in drawn.items():
            sizes = segment_sizes(instrument, one.ids, setting.tokens, shares(instrument, others[times].ids).mean(0))
            ways.append((sizes.argmax(-1) == one.places.numpy()).T)
            with torch.no_grad():
                right.append((value_logits(network, setting, one.ids).argmax(-1) == one.answers).numpy())
        first.append(ways)
        found.append(right)
    values = {"first": first, "found": found, "place": [one.places.numpy() for one in drawn.values()]}
    return xr.Dataset(
        {name: (dims, np.array(values[name]), {"long_name": what}) for name, (dims, what) in EXPLAINED.items()},
        coords={"seed": list(seeds), "times": list(TIMES), "way": list(WAYS)},
        attrs={
            "setting": setting.name, "prompts": asked, "profile_prompts": profiled, "pairs": setting.pairs,
            "device": "cpu", **versions("torch", "transformers"),
        },
    )  # fmt: skip


def _drawn(setting: Setting, size: int, times: int, which: int) -> Prompts:
    generator = torch.Generator().manual_seed(SEED + 2 * times + which)
    return prompts(setting, size, generator, pairs=times * setting.pairs, each_place=which == 0)


def shares(instrument: Instrument, ids: Int[Tensor, "N n"]) -> Float[np.ndarray, "N n"]:
    """Return each token's share of the influence on the likeliest token's probability."""
    found = torch.cat([instrument.measure(x).influence for x in ids.split(BATCH)]).numpy()
    return np.asarray(found / found.sum(1, keepdims=True))


def segment_sizes(
    instrument: Instrument, ids: Int[Tensor, "N n"], tokens: int, profile: Float[np.ndarray, "n"]
) -> Float[np.ndarray, "W N S"]:
    """Return the size of each segment by each of :data:`WAYS`; segments have ``tokens`` tokens, the question one.

    Of what is divided by the profile only the order counts, so that it is not normalised.
    """
    N, S = len(ids), (ids.shape[1] - 1) // tokens
    summed = [x[..., :-1].reshape(-1, S, tokens).sum(-1) for x in (shares(instrument, ids), profile)]
    kept = [np.delete(np.arange(ids.shape[1]), slice(tokens * k, tokens * k + tokens)) for k in range(S)]
    whole = _log_probabilities(instrument, ids)
    top = whole.argmax(-1, keepdim=True)
    left = torch.stack([_log_probabilities(instrument, ids[:, rows]).gather(-1, top)[:, 0] for rows in kept], -1)
    lost = whole.gather(-1, top) - left
    return np.stack([summed[0], summed[0] / summed[1], summed[0] / summed[1][:, ::-1], lost.numpy().reshape(N, S)])


def _log_probabilities(instrument: Instrument, ids: Int[Tensor, "N n"]) -> Float[Tensor, "N v"]:
    return torch.cat([instrument.tail(x, 1)[:, 0].log_softmax(-1) for x in ids.split(BATCH)])


def explained_table(
    entries: Mapping[str, xr.Dataset], way: str = "without_position", *, resamples: int = 2000
) -> pd.DataFrame:
    """Return how often the answer's pair is first, by setting, length and part of the places; part 0 is all of them.

    ``found`` is the share of answers that the networks find; ``gain`` the share of prompts in which the pair is first
    by ``way`` less that by its influence as it is, with its interval over prompts, which the seeds have in common;
    ``decided`` the sign that stands by Holm's rule among all of one part.
    """
    rows = []
    for setting, x in entries.items():
        weights = resample_weights(x.sizes["prompt"], resamples)
        for times in x["times"].values.tolist():
            own = x.sel(times=times)
            part = 1 + own["place"].values * PARTS // (times * int(x.attrs["pairs"]))
            first = own["first"].mean("seed").transpose("way", "prompt")
            gain = (first.sel(way=way) - first.sel(way="share")).values
            for k in range(PARTS + 1):
                inside = part == k if k else np.ones_like(part, dtype=bool)
                drawn = weights[:, inside] @ gain[inside] / weights[:, inside].sum(1)
                low, high = interval(drawn)
                rows.append({
                    "setting": setting, "times": times, "part": k,
                    "found": float(own["found"].values[:, inside].mean()),
                    **{name: float(first.sel(way=name).values[inside].mean()) for name in ("share", way, "removed")},
                    "gain": float(gain[inside].mean()), "low": float(low), "high": float(high),
                    "p_value": sign_p_value(drawn),
                })  # fmt: skip
    table = pd.DataFrame(rows)
    signs = pd.Series(0, index=table.index)
    for _, own in table.groupby("part"):
        signs[own.index] = decide(own["gain"].to_numpy(), own["p_value"].to_numpy())
    return table.assign(decided=signs)
