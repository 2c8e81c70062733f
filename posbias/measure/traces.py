"""What is added up of the prompts of a measurement, and the arrays of the result that come of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from posbias import errors
from posbias.measure.accumulators import LayerSums
from posbias.measure.instrument import NotFinite
from posbias.measure.ladder import Rungs, ring
from posbias.measure.positions import Positions
from posbias.measure.progress import progress as told
from posbias.measure.quantities import Quantity, kinds_of
from posbias.measure.results import VARIABLES, is_wide
from posbias.measure.session import Session
from posbias.models.attention import Reading
from posbias.settings import RUNGS

ASKED = ("rollout_own", "ladder_prompts")
"""What is kept of each prompt where it was asked for."""


class Traces:
    """Hold the sums over a session's batches."""

    def __init__(self, session: Session) -> None:
        settings = self.settings = session.settings
        self.session, self.ids = session, session.ids
        instrument = self.instrument = session.instrument
        self.batches = list(session.batches())
        N, n, T = len(self.ids), settings.length, instrument.T
        kept: Any = {"quantities": session.quantities, "matrices": session.matrices}
        self.layers = [LayerSums(instrument.H, n, where, **kept) for where in instrument.devices()]
        shapes: dict[str, tuple[int, ...]] = {"probability": (), "influence": (n,), "influence_signed": (n,)}
        if "mixing" in session.quantities:
            shapes |= {"lambda_frobenius": (T,), "lambda_token": (T,), "norm_ratio": (T,)}
        self.carries = "kernels" in settings.quantities
        if self.carries:
            shapes["rollout_own"] = (n,)
        if "ladder" in settings.quantities:
            shapes["ladder_prompts"] = (len(RUNGS), 1, n)  # one pairing
        self.rows = {name: torch.zeros(N, *sizes, dtype=torch.float64) for name, sizes in shapes.items()}
        kinds = kinds_of(session.quantities)
        self.lacking = {name: why for name, kind in kinds.items() if (why := kind.lacking(instrument)) is not None}
        self.own: list[Quantity] = [kind(self) for name, kind in kinds.items() if name not in self.lacking]
        self.variables = {name: x for one in self.own for name, x in one.variables.items()}
        for one in self.own:
            self.rows |= one.rows

    def state(self) -> dict[str, Tensor]:
        """Return all that is added up, by name."""
        layers = {f"layer{t}.{name}": x for t, layer in enumerate(self.layers) for name, x in layer.sums.items()}
        return {**self.rows, **layers, **{name: x for one in self.own for name, x in one.sums.items()}}

    def arrays(self, positions: Positions | None, shown: bool) -> dict[str, np.ndarray]:
        """Return the arrays of the result; the sums are let go layer by layer."""
        N = len(self.ids)
        rows = {name: x.numpy() for name, x in self.rows.items()}
        layers = []
        with told(len(self.layers), "layers", "assembling", shown=shown) as bar:
            for t, layer in enumerate(self.layers):
                found = layer.means(N, int(positions.reach[t]) if positions is not None else 0)
                wide = [name for name in found if is_wide(name, VARIABLES[name][0])]
                layers.append(found | {name: found[name].astype(np.float32) for name in wide})
                layer.sums = {}
                bar.update()
        out = {name: np.stack([means.pop(name) for means in layers]) for name in list(layers[0] if layers else ())}
        for one in self.own:
            out |= {name: rows[name] for name in one.rows} | one.arrays(N)
        if "norm_ratio" in rows:
            out["norm_ratio"] = rows["norm_ratio"].mean(0)
        for norm in {"lambda_frobenius", "lambda_token"} & rows.keys():
            out[norm] = rows[norm].mean(0)
            out[f"{norm}_prompts"] = rows[norm]
        total = rows["influence"].sum()
        if total <= 0:
            low = self.session.precision
            advice = "" if low == "float32" else "; try --dtype float32"
            raise errors.invalid("influence", "gradients above 0", f"none in {low}{advice}")
        out |= {"influence": rows["influence"].sum(0) / total, "influence_prompts": rows["influence"]}
        out |= {"influence_signed": rows["influence_signed"].mean(0)}
        out |= {"influence_signed_prompts": rows["influence_signed"], "probability": rows["probability"]}
        for name in ASKED:
            out |= {name: rows[name]} if name in rows else {}
        if positions is not None and positions.sinks is not None:
            out["sinks"] = positions.sinks
            if "attention" in out:
                out["sink_share"] = 1 - out["attention"].astype(np.float64).sum(-1).mean(-1)
        out |= self.session.prompt_arrays()
        if positions is None:
            return out
        return out | {
            "slopes": positions.slopes,
            "position_bias": positions.bias,
            "scale": positions.scale,
            "window": positions.window,
            "reach": positions.reach,
        }

    def read_batch(self, k: int) -> None:
        """Measure the k-th batch and add to the sums; raise ValueError for a NaN or Inf."""
        batch, ids = self.batches[k]
        end = torch.zeros(ids.shape)
        end[:, -1] = 1.0
        carried = end if self.carries else None
        most = self.settings.ladder_prompts
        few = most is None or batch.start < most

        def observe(seen: Reading) -> None:
            nonlocal carried
            layer = self.layers[seen.layer]
            carried = layer.add(seen, None if carried is None else carried.to(layer.device))
            for one in self.own:
                one.observe(seen)

        rungs = None
        if "ladder_prompts" in self.rows and len(ids) > 1 and few:
            rungs = Rungs(ring(len(ids), (self.settings.seed, batch.start, 0))[None])
        for one in self.own:
            one.start(ids)
        try:
            reading = self.instrument.measure(ids, observe, rungs)
        except NotFinite as error:
            where = f"prompt {batch.start + error.prompt}, {error.where}"
            raise errors.invalid(where, "finite numbers", f"{error.number} in {self.session.precision}") from None
        own = None if carried is None else carried.double().cpu()
        ladder = torch.tensor(torch.nan) if reading.ladder is None else reading.ladder
        found: dict[str, Any] = {**vars(reading), "rollout_own": own, "ladder_prompts": ladder}
        for one in self.own:
            found |= one.read(batch, ids)
        for name, rows in self.rows.items():
            rows[batch] = found[name]
