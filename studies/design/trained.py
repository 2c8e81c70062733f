"""What networks with designed biases do, untrained and trained: numbers, checks and figures of the page ``design``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from posbias.report.scoring import sample_of
from studies.checks import Check
from studies.design import tables
from studies.results import load

MODELS = {"bloom-12": "BLOOM", "llama-12": "Llama"}
SHOWN = {"rollout": "rollout to uniform", "flatness": "influence to uniform"}
SHOWN |= {"to rollout": "influence to rollout", "to squares": "influence to law"}
LIMIT = 0.05
"""What a design for squares may be missed by."""


@dataclass(frozen=True)
class Designed:
    """Hold the entries of ``results/design.nc``."""

    kept: Mapping[str, xr.Dataset]

    @cached_property
    def seeds(self) -> tables.Seeds:
        """Trained networks by model and seed."""
        return tables.read_designed(self.kept, "designed")

    @cached_property
    def found(self) -> pd.DataFrame:
        """What each trained network listens to."""
        return tables.reached(self.seeds)

    @property
    def means(self) -> pd.DataFrame:
        """Means over seeds, by body and kind."""
        numbers = ["tau", *SHOWN]
        return self.found.groupby(["body", "kind"], sort=False)[numbers].mean()

    @cached_property
    def price(self) -> pd.DataFrame:
        """Losses above those of the same architecture with its own positions."""
        return tables.prices(tables.losses(self.seeds))

    @cached_property
    def births(self) -> pd.DataFrame:
        """Untrained networks with designed biases: distances of influence to both laws."""
        frames = []
        for name, entry in self.kept.items():
            if name.startswith("untrained-"):
                part, kind = name.split("-", 1)[1].rsplit(".", 1)
                frames.append(tables.design_table(entry).assign(body=part.split("-")[0], weights=kind))
        return pd.concat(frames, ignore_index=True)

    @property
    def gated(self) -> pd.DataFrame:
        """Untrained networks with designs for the law, as drawn: means by body and design."""
        frames = []
        for name, entry in self.kept.items():
            if name.startswith("gates-"):
                frames.append(tables.gated_table(entry).assign(body=name.split("-")[1]))
        every = pd.concat(frames, ignore_index=True)
        drawn = every[every["content"] == "as drawn"]
        return drawn.groupby(["body", "design"])[["measured", "to promise"]].mean()


def load_designed() -> Designed:
    """Return what is kept of designed networks."""
    return Designed(load("design"))


def trained_numbers(seen: Designed) -> dict[str, Any]:
    """Return what trained networks with designed biases do."""
    means, points = seen.means, tables.map_points(seen.kept).set_index(["body", "name"])
    llama, bloom = means.loc["llama-12"], means.loc["bloom-12"]
    dear = points.loc[(list(MODELS), ["log", "no encoding"]), :]
    added = points.loc["llama-12"].query("way == 'remedy'")
    every, half = added.loc["flat logits added"], added.loc["flat logits in half of the heads"]
    near = seen.price.set_index(["body", "kind"]).loc[[(b, k) for b in MODELS for k in ("none", "log")]]
    assert (near["price_low"] > 0).sum() == 3  # "in three of four"
    assert (seen.found["to squares"] < seen.found["to rollout"]).all()  # "in all trained networks"
    assert 0.28 < bloom.loc["flat", "rollout"] / bloom.loc["alibi", "rollout"] < 0.36  # "about a third"
    assert not llama.loc["flat", "flatness"] < llama.loc["rotary", "flatness"]
    return {
        "design_llama_tau": llama.loc["flat", "tau"],
        "design_llama_meant": llama.loc["rotary", "tau"],
        "design_price_least": dear["y"].min(),
        "design_price_most": dear["y"].max(),
        "design_even_least": dear["x"].min(),
        "design_even_most": dear["x"].max(),
        "designed_bloom_own": bloom.loc["alibi", "flatness"],
        "designed_bloom_influence": bloom.loc["flat", "flatness"],
        "designed_bloom_rollout": bloom.loc["flat", "rollout"],
        "designed_bloom_price": cost(seen, "bloom-12-flat"),
        "designed_price": cost(seen, "llama-12-flat"),
        "designed_llama_own": llama.loc["rotary", "flatness"],
        "designed_added_times": np.exp(every["y"]),
        "designed_added_all": every["x"], "designed_added_all_price": with_interval(every, "y"),
        "designed_added_half": half["x"], "designed_added_half_price": with_interval(half, "y"),
        "designed_hole_short": level(seen, "llama-12-flat").min(),
        "designed_networks": len(seen.found),
        "designed_kinds": len(means),
    }  # fmt: skip


def untrained_numbers(seen: Designed) -> dict[str, float]:
    """Return what untrained networks with designed biases do."""
    births, gated = seen.births, seen.gated
    off = births.groupby(["body", "weights", "bias"])["to_untrained"].mean().groupby("weights").max()
    unit = births[births["weights"] == "unit"].groupby(["body", "bias"])["measured"].mean()
    return {
        "designed_birth_share": (births["to_untrained"] < births["to_b"]).mean(),
        "design_law_small": off["default"],
        "design_law_large": off["unit"],
        "designed_gated": gated["to promise"].groupby("design").max()["gates"],
        "designed_gated_bloom": gated["measured"]["bloom", "gates"],
        "designed_plain_bloom": unit["bloom", "none"],
        "designed_gated_even": gated["measured"]["llama", "gates"],
        "designed_plain_even": unit["llama", "none"],
    }


def cost(seen: Designed, model: str, beyond: int = 0) -> str:
    """Return a price with its interval; ``beyond`` is how many tokens of 1,024 are left out."""
    table = seen.price
    if beyond:
        long = tables.read_designed(seen.kept, "designed-1024")
        table = tables.prices(tables.losses(long, beyond=beyond))
    return with_interval(table.loc[model], "price")


def with_interval(row: pd.Series, name: str) -> str:
    """Return a number of a row of a table with its interval."""
    return f"{row[name]:+.2f} [{row[f'{name}_low']:+.2f}, {row[f'{name}_high']:+.2f}]"


def shown(seen: Designed) -> pd.DataFrame:
    """Return the page's table of trained networks, with the price of each kind."""
    found = seen.means[[*SHOWN]].rename(columns=SHOWN)
    by_kind = seen.price.reset_index().set_index(["body", "kind"])
    prices = {key: cost(seen, by_kind.loc[key, "model"]) for key in found.index}
    own = {key: "own encoding" for key in found.index if by_kind.loc[key, "price"] == 0}
    found["price, nats per token"] = pd.Series(prices | own)
    found = found.loc[[*MODELS]].rename(MODELS, level=0).rename(tables.LABELS, level=1)
    return found.rename_axis(["network", "encoding"])


def level(seen: Designed, model: str, rollout: bool = False) -> np.ndarray:
    """Return influence n p_j, or the rollout, a running mean over 9 tokens without the last; a mean over seeds."""
    entries = list(seen.seeds[model].values())
    if rollout:
        profiles = [x["rollout"].sel(variant="b").values for x in entries]
    else:
        profiles = [sample_of(x).profile for x in entries]
    p = np.mean(profiles, axis=0)[:-1]
    return np.asarray((p.size + 1) * np.convolve(p, np.ones(9) / 9, mode="valid"))


def squares_win(table: pd.DataFrame) -> bool:
    """Say whether influence is closer to the law than to the rollout in more than 9 of 10 networks."""
    return bool((table["to_untrained"] < table["to_b"]).mean() > 0.9)


def exchanged(table: pd.DataFrame, chosen: Any) -> pd.DataFrame:
    """Return the table with the two distances exchanged where they are chosen."""
    left, right = table["to_untrained"], table["to_b"]
    return table.assign(to_untrained=right.where(chosen, left), to_b=left.where(chosen, right))


def untrained_check(seen: Designed) -> Check:
    """Return the check that untrained networks follow the law."""
    births, gap = seen.births, seen.gated["to promise"].groupby("design").max()
    rng = np.random.default_rng(0)
    coins = [exchanged(births, rng.random(len(births)) < 0.5) for _ in range(50)]
    swapped = exchanged(births, np.ones(len(births), bool))
    share = (births["to_untrained"] < births["to_b"]).mean()
    return Check(
        "DS-birth", "",
        "Influence in untrained networks with designed encodings follows the law of untrained networks.",
        squares_win(births) and bool(gap["gates"] < LIMIT),
        f"in {len(births)} networks influence is at most {births['to_untrained'].max():.3f} (W1) from the law and up "
        f"to {births['to_b'].max():.3f} from the rollout; the law is closer in {share:.0%}; encodings designed for it, "
        f"gates included, keep their promise within {gap['gates']:.3f}",
        "squares are closer than sizes in 9 of 10 networks or fewer, or a design for squares is missed by .05 or more",
        {"the two predictions exchanged": [squares_win(swapped)],
         "exchanged by a coin in each network": list(map(squares_win, coins)),
         "a design that knows no gates": [bool(gap["gains"] < LIMIT)]},
        "sizes are closer in some", {"post_hoc": True},
    )  # fmt: skip


def no_flatter(table: pd.DataFrame) -> bool:
    """Say whether influence of networks with flat heads is far from uniform, and closer to the law."""
    flat = table[table["kind"] == "flat"]
    closer = (flat["to squares"] < flat["to rollout"]).all()
    return bool(closer and (flat["flatness"] > 2 * flat["rollout"]).all())


def trained_check(seen: Designed) -> Check:
    """Return the check that a flat rollout does not make the influence of trained BLOOMs flat.

    The Llamas do not count: training gave them more mixing than their encoding was made for.
    """
    found, llamas = (seen.found[seen.found["body"] == body] for body in ("bloom-12", "llama-12"))
    flat, others = (x[x["kind"] == "flat"] for x in (found, llamas))
    swapped = {"to squares": found["to rollout"], "to rollout": found["to squares"]}
    model = "llama-12-flat"
    return Check(
        "DS-trained", "",
        "In BLOOMs trained with the flat encoding, influence is at least twice as far from uniform as the rollout.",
        no_flatter(found),
        f"in {len(flat)} BLOOMs with flat heads the rollout is on average {flat['rollout'].mean():.3f} from uniform "
        f"and influence {flat['flatness'].mean():.3f}, price {cost(seen, 'bloom-12-flat')} nats per token; "
        f"{len(others)} Llamas, not counted: {others['rollout'].mean():.3f} and {others['flatness'].mean():.3f}, "
        f"{cost(seen, model)}, at 4n {cost(seen, model, beyond=256)}",
        "influence of a BLOOM with flat heads is less than twice as far from uniform as its rollout, or closer to "
        "the rollout than to the law before training",
        {"influence as uniform as the rollout": [no_flatter(found.assign(flatness=found["rollout"]))],
         "influence where the rollout is": [no_flatter(found.assign(**swapped))]},
        "influence is as uniform as the rollout", {"post_hoc": True},
    )  # fmt: skip
