"""What is added up of the prompts of a measurement, and the arrays of the result that come of it.

Sums do not depend on how prompts were grouped into batches. A layer's live on the layer's own device until the end, in
64 bits. A number per prompt (λ, influence) is kept as it is, so that means, deviations and bands can be had later.
"""

from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from posbias import errors
from posbias.measure.instrument import NotFinite
from posbias.measure.ladder import Rungs, ring
from posbias.measure.positions import Positions
from posbias.measure.progress import progress as told
from posbias.measure.quantities import Quantity, kinds_of
from posbias.measure.results import VARIABLES, is_wide
from posbias.measure.session import Session
from posbias.models.attention import Reading, blocks
from posbias.models.mixers import Given
from posbias.rollout.masks import sliding_window
from posbias.settings import ATTENDED, RUNGS

ASKED = ("rollout_own", "ladder_prompts")
"""What is kept of each prompt where it was asked for."""


class LayerSums:
    """Sum one layer's attention and content logits over prompts, and carry each prompt's rollout through the layer."""

    def __init__(
        self, H: int, n: int, device: torch.device, quantities: Collection[str], *, matrices: bool = True
    ) -> None:
        wide = torch.float32 if device.type == "mps" else torch.float64  # Apple's devices have no 64 bits
        self.n, self.device, self.quantities = n, device, frozenset(quantities)
        shapes: dict[str, tuple[int, ...]] = {}
        if "kernels" in quantities and matrices:
            shapes["attention"] = (n, n)
        if "heads" in quantities:
            shapes["attention_heads"] = (H, n, n)
        if "content" in quantities:
            shapes |= {"diagonal": (H,), "everything": (H,)}
        if "logits" in quantities:
            shapes["content"] = (H, n, n)
        self.sums = {name: torch.zeros(shape, dtype=wide, device=device) for name, shape in shapes.items()}

    def add(self, reading: Reading, carried: Float[Tensor, "B n"] | None = None) -> Float[Tensor, "B n"] | None:
        """Add the prompts of a batch, and return their rollouts carried through the layer."""
        weights, content = "kernels" in self.quantities, "content" in self.quantities
        hopped = None if carried is None else torch.zeros_like(carried)
        for prompts, queries in blocks(reading, self.device) if weights or content else ():
            z, p = reading.block(prompts, queries, content=content, weights=weights)
            if p is not None:
                mean = self._add_weights(p, queries)
                if hopped is not None and carried is not None:
                    rows = carried[prompts, None, queries].to(mean.dtype)
                    hopped[prompts, : queries.stop] += (rows @ mean)[:, 0].to(hopped.dtype)
            if z is not None:
                self._add_content(z, reading.visible(queries), queries)
        if hopped is None or carried is None:
            return None
        assert reading.mixing is not None
        share = reading.mixing.to(carried)[:, None]
        return (1 - share) * carried + share * hopped

    def means(self, prompts: int, reach: int) -> dict[str, np.ndarray]:
        """Return means over prompts, and over positions where a name says so."""
        sums = {name: x.cpu().numpy() for name, x in self.sums.items()}
        n, both = self.n, ("attention", "attention_heads")
        out: dict[str, np.ndarray] = {name: sums[name] / prompts for name in both if name in sums}
        if "content" not in self.quantities:
            return out
        earlier = (reach - 1) * (2 * n - reach) // 2  # pairs of a query and a key before it, in a window of ``reach``
        out["content_diagonal"] = sums["diagonal"] / (prompts * n)
        with np.errstate(invalid="ignore"):  # a window of one token shows none
            out["content_offdiagonal"] = (sums["everything"] - sums["diagonal"]) / (prompts * earlier)
        if "content" in sums:
            out["content_logits"] = np.where(sliding_window(reach).matrix(n), sums["content"] / prompts, np.nan)
        return out

    def _add_weights(self, p: Float[Tensor, "b H q k"], queries: slice) -> Float[Tensor, "b q k"]:
        """Add weights of some queries, and return their means over heads."""
        mean = p.mean(1, dtype=torch.promote_types(p.dtype, torch.float32))
        if "attention" in self.sums:
            self.sums["attention"][queries, : queries.stop] += mean.sum(0)
        if "attention_heads" in self.sums:
            self.sums["attention_heads"][:, queries, : queries.stop] += p.sum(0, dtype=mean.dtype)
        return mean

    def _add_content(self, z: Float[Tensor, "b H q k"], visible: Tensor, queries: slice) -> None:
        """Add content logits of some queries."""
        total = (z[0] if len(z) == 1 else z.sum(0)).masked_fill(~visible, 0.0)
        own = total.diagonal(queries.start, dim1=-2, dim2=-1)
        self.sums["diagonal"] += own.sum(-1, dtype=self.sums["diagonal"].dtype)
        self.sums["everything"] += total.sum((-2, -1), dtype=self.sums["everything"].dtype)
        if "content" in self.sums:
            self.sums["content"][:, queries, : queries.stop] += total


class Traces:
    """Hold the sums over a session's batches."""

    def __init__(self, session: Session) -> None:
        settings = self.settings = session.settings
        self.session, self.ids = session, session.ids
        instrument = self.instrument = session.instrument
        self.batches = list(session.batches())
        N, n, T = len(self.ids), settings.length, instrument.T
        self.lacking: dict[str, str] = {}
        """Quantities that the model has none of, and why."""
        if (why := instrument.no_attention) is not None:
            self.lacking = {name: why for name in session.quantities if name in ATTENDED}
        quantities = [name for name in session.quantities if name not in self.lacking]
        kept: Any = {"quantities": quantities, "matrices": session.matrices}
        self.layers = [LayerSums(instrument.H, n, where, **kept) for where in instrument.devices()]
        shapes: dict[str, tuple[int, ...]] = {"probability": (), "influence": (n,), "influence_signed": (n,)}
        if "mixing" in quantities:
            shapes |= {"lambda_frobenius": (T,), "lambda_token": (T,), "norm_ratio": (T,)}
        self.carries = "kernels" in quantities
        if self.carries:
            shapes["rollout_own"] = (n,)
        if "ladder" in quantities:
            shapes["ladder_prompts"] = (len(RUNGS), 1, n)  # one pairing
        self.rows = {name: torch.zeros(N, *sizes, dtype=torch.float64) for name, sizes in shapes.items()}
        kinds = kinds_of(session.quantities)
        reasons = {name: kind.lacking(instrument) for name, kind in kinds.items()}
        self.lacking |= {name: why for name, why in reasons.items() if why is not None}
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
        out: dict[str, np.ndarray] = {}
        for name in list(layers[0]) if layers else ():
            out[name] = np.stack([means.pop(name) for means in layers])
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
        named = ("slopes", "scale", "window", "reach")
        return out | {name: getattr(positions, name) for name in named} | {"position_bias": positions.bias}

    def read_batch(self, k: int) -> None:
        """Measure the k-th batch and add to the sums; raise ValueError for a NaN or Inf."""
        batch, ids = self.batches[k]
        end = torch.zeros(ids.shape)
        end[:, -1] = 1.0
        carried = end if self.carries else None
        most = self.settings.ladder_prompts
        few = most is None or batch.start < most

        def observe(seen: Reading | Given) -> None:
            nonlocal carried
            layer = self.layers[seen.layer]
            if isinstance(seen, Reading):
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
