"""What one process adds up of the prompts of a measurement, and the arrays of the result that come of it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from posbias import errors
from posbias.measure.accumulators import LayerSums, entropy_similarity
from posbias.measure.attention import Reading
from posbias.measure.checkpoint import Batch
from posbias.measure.instrument import Instrument, NotFinite
from posbias.measure.ladder import Rungs, ring
from posbias.measure.positions import Positions
from posbias.measure.processes import Processes
from posbias.measure.progress import progress as told
from posbias.measure.results import WIDE
from posbias.measure.session import Session
from posbias.measure.settings import RUNGS


class Traces:
    """Hold one process's sums over its share of a session's batches; its checkpoint goes where nothing can go on."""

    def __init__(self, session: Session, instrument: Instrument, group: Processes, path: Path) -> None:
        settings = self.settings = session.settings
        self.session, self.ids, self.cells = session, session.ids, session.cells
        self.instrument, self.group, self.path = instrument, group, path
        self.shared = group.share([rows for rows, _ in session.batches()])
        self.layers = [
            LayerSums(instrument.H, self.cells, where, settings.quantities) for where in instrument.devices()
        ]
        (N, n), T = self.ids.shape, instrument.T
        shapes: dict[str, tuple[int, ...]] = {"lambda_frobenius": (T,), "lambda_token": (T,), "probability": ()}
        shapes |= {"influence": (n,), "influence_signed": (n,)}
        self.carries = "kernels" in settings.quantities
        if self.carries:
            shapes["rollout_own"] = (n,)
        if "ladder" in settings.quantities:
            shapes["ladder_prompts"] = (len(RUNGS), settings.pairings, n)
        self.rows = {name: torch.zeros(N, *sizes, dtype=torch.float64) for name, sizes in shapes.items()}

    @property
    def batches(self) -> list[Batch]:
        """Batches of this process, in order."""
        return [Batch(rows.stop - rows.start, partial(self.read, rows)) for rows in self.shared]

    def state(self) -> dict[str, Tensor]:
        """Return all that is added up, by name."""
        sums = {f"layer{t}.{name}": x for t, layer in enumerate(self.layers) for name, x in layer.sums.items()}
        return {**self.rows, **sums}

    def arrays(self, positions: Positions, shown: bool) -> dict[str, np.ndarray]:
        """Add up over all processes and return the arrays of the result; the sums are let go layer by layer."""
        N = len(self.ids)
        rows = {name: self.group.add_up(x).numpy() for name, x in self.rows.items()}
        layers = []
        with told(len(self.layers), "layers", "assembling", shown=shown) as bar:
            for t, layer in enumerate(self.layers):
                layer.sums = {name: self.group.add_up(x) for name, x in layer.sums.items()}
                found = layer.means(N, int(positions.reach[t]))
                layers.append({name: x.astype(np.float32) if name in WIDE else x for name, x in found.items()})
                layer.sums = {}
                bar.update()
        out = {name: np.stack([means.pop(name) for means in layers]) for name in list(layers[0])}
        for where in ("diagonal", "offdiagonal"):
            if f"histogram_{where}" in out:
                out[f"similarity_{where}"] = entropy_similarity(out[f"histogram_{where}"])
        for norm in ("lambda_frobenius", "lambda_token"):
            out[norm] = rows[norm].mean(0)
            out[f"{norm}_std"] = rows[norm].std(0, ddof=min(1, N - 1))
            out[f"{norm}_prompts"] = rows[norm]
        total = rows["influence"].sum()
        if total <= 0:
            self.path.unlink(missing_ok=True)  # nothing goes on from there
            low = self.settings.precision()
            advice = "" if low == "float32" else "; try --dtype float32"
            raise errors.invalid("influence", "gradients above 0", f"none in {low}{advice}")
        out |= {"influence": rows["influence"].sum(0) / total, "influence_prompts": rows["influence"]}
        out |= {"influence_signed": rows["influence_signed"].mean(0)}
        out |= {"influence_signed_prompts": rows["influence_signed"], "probability": rows["probability"]}
        out |= {name: rows[name] for name in ("rollout_own", "ladder_prompts") if name in rows}
        if len(self.cells.starts) < self.cells.n and {"kernels", "branches", "logits"} & set(self.settings.quantities):
            out["cell_start"] = self.cells.starts
        return out | self.session.prompt_arrays() | {
            "slopes": positions.slopes,
            "position_bias": positions.bias,
            "scale": positions.scale,
            "window": positions.window,
            "reach": positions.reach,
        }  # fmt: skip

    def read(self, batch: slice) -> None:
        """Measure a batch of prompts and add to the sums; raise ValueError for a NaN or Inf."""
        ids = self.ids[batch]
        carried = torch.zeros(ids.shape) if self.carries else None
        if carried is not None:
            carried[:, -1] = 1.0

        def observe(seen: Reading) -> None:
            nonlocal carried
            layer = self.layers[seen.layer]
            carried = layer.add(seen, None if carried is None else carried.to(layer.device))

        rungs = None
        if "ladder_prompts" in self.rows:
            seeds = [(self.settings.seed, batch.start, k) for k in range(self.settings.pairings)]
            rungs = Rungs(np.stack([ring(len(ids), seed) for seed in seeds]))
        try:
            reading = self.instrument.measure(ids, observe, rungs)
        except NotFinite as error:
            self.path.unlink(missing_ok=True)
            where = f"prompt {batch.start + error.prompt}, {error.where}"
            raise errors.invalid(where, "finite numbers", f"{error.number} in {self.settings.precision()}") from None
        own = None if carried is None else carried.double().cpu()
        found = {**vars(reading), "rollout_own": own, "ladder_prompts": reading.ladder}
        for name, rows in self.rows.items():
            rows[batch] = found[name]
