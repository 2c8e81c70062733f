"""``python -m studies.field MODEL [MODEL ...]``: any models, of a hub or of this machine, in one table and its figure.

Each is measured on the same texts, as it is and with weights drawn anew. A model that is in the file is kept, one that
cannot be had is a line on stderr while the others go on, and a cell that nothing fills stays empty.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

from posbias import errors
from posbias.comparison.distances import unit
from posbias.measure.run import measure
from posbias.models.families import row_of
from posbias.models.loading import Source
from posbias.models.weights import shape_of
from posbias.plotting import use_style
from posbias.predict import predict
from posbias.settings import ALONE, Settings
from studies import results
from studies.field.tables import TRAINED, draw_field, field_table
from studies.making import Part
from studies.sizes import Untrained


def measure_cells(settings: Settings) -> xr.Dataset:
    """Measure a model, and one of its configuration with drawn weights; keep influence and what predicts it.

    By position: ``influence``, ``halves`` (of the prompts), ``profile`` (prediction); before training ``untrained`` and
    ``law``, the law of untrained networks. Of a family without a row there is influence alone.
    """
    source, config = settings.source, settings.source.config()
    row = row_of(config)
    found = measure(replace(settings, quantities=("mixing", "influence", "kernels", "contributions") if row else ALONE))
    each = found["influence_prompts"].values.astype(np.float64)
    arrays: dict[str, Any] = {"influence": (("position",), unit(each.sum(0)))}
    arrays["halves"] = (("half", "position"), np.stack([unit(each[k::2].sum(0)) for k in (0, 1)]))
    if row:
        arrays["profile"] = (("prediction", "position"), np.stack([predict(found, name) for name in TRAINED]))
        with TemporaryDirectory() as folder:
            config.save_pretrained(folder)
            drawn = Untrained(folder, tokenizer=source.tokenizer or source.model)
            before = measure(replace(settings, source=drawn, quantities=("mixing", "influence", "branches")))
        arrays["untrained"] = (("position",), unit(before["influence"].values))
        arrays["law"] = (("position",), predict(before, "head-gains-squared"))
    said = found.attrs | {"parameters": sum(x.numel() for x in shape_of(config).parameters())}
    return xr.Dataset({k: (dims, x.astype(np.float32)) for k, (dims, x) in arrays.items()}, attrs=said)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; status 1 if a model could not be had."""
    parser = argparse.ArgumentParser("python -m studies.field", description="Measure models for one table.")
    parser.add_argument("model", nargs="*", help="a directory, a GGUF file, an id on the hub, or reference/NAME")
    parser.add_argument("--output", "-o", type=Path, default=results.FOLDER / "field.nc", help="the file of entries")
    parser.add_argument("--figure", type=Path, help="a picture of all that the file has")
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--length", type=int, default=256)
    asked = parser.parse_args(words)
    if not (asked.model or asked.figure):
        parser.error("expected a model, or --figure, received neither")
    if not asked.output.resolve().parent.is_dir():
        parser.error(f"--output: expected a folder that is there, received {asked.output.parent}")
    try:
        there = results.Results(asked.output) if asked.output.is_file() or not asked.model else {}
    except ValueError as error:
        parser.error(errors.short(error))
    missed = 0
    for model in dict.fromkeys(asked.model):
        began = time.monotonic()
        try:
            source = Source(model)
            name, version = f"{source.name()}.field", source.version()
            if name not in there:
                settings = Part("field", measure_cells, asked.prompts, asked.length, 4).settings(source, None)
                command = f"python -m studies.field {source.name()} --prompts {asked.prompts} --length {asked.length}"
                results.save(asked.output, {name: measure_cells(settings).assign_attrs(command=command)})
            elif there[name].attrs["revision"] != version:
                raise errors.invalid(name, f"revision {there[name].attrs['revision']}, which is in the file", version)
            print(f"{asked.output}: {source.name()}, {time.monotonic() - began:.0f} s", flush=True)
        except (ValueError, OSError, MemoryError) as error:
            missed += 1
            print(f"{model}: {errors.short(error)}", file=sys.stderr, flush=True)
    if asked.figure and asked.output.is_file():
        with plt.rc_context():
            use_style()
            draw_field(field_table(results.Results(asked.output))).savefig(asked.figure)
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
