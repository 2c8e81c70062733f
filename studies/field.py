"""``python -m studies.field MODEL [MODEL ...]``: any models, of a hub or of this machine, in one table and its figure.

Each is measured on the same texts, as it is and with weights drawn anew. A model that is in the file is kept, one that
cannot be had is a line on stderr while the others go on, and a cell that nothing fills stays empty.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from posbias import errors
from posbias.comparison.distances import normalised_wasserstein, spearman, unit
from posbias.measure.run import measure
from posbias.models.families import row_of
from posbias.models.loading import Source, Untrained
from posbias.models.weights import shape_of
from posbias.plotting import use_style
from posbias.predict import predict
from posbias.settings import ALONE, Settings
from studies import results
from studies.making import Part

TRAINED = ("contributions", "measured-attention", "layer-shares", "even")
COLUMNS = {
    "first": "first token",
    "last": "last token",
    "rank contributions": "contributions",
    "rank measured-attention": "measured attention",
    "rank layer-shares": "layer shares",
    "W1 contributions": "contributions",
    "W1 measured-attention": "measured attention",
    "W1 layer-shares": "layer shares",
    "W1 even": "equal shares",
    "W1 halves": "halves (noise)",
    "untrained first": "first token",
    "untrained W1": "$W_1$ of the law",
}
"""Columns of the table → what the figure writes above them."""
GROUPS = {"influence,\n× average": 2, "rank correlation": 3, "$W_1$": 5, "before\ntraining": 2}


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


def field_table(kept: Mapping[str, xr.Dataset]) -> pd.DataFrame:
    """Return a row for each model, by encoding and size: :data:`COLUMNS`, nan where nothing is known."""
    rows: dict[str, dict[str, Any]] = {}
    for x in kept.values():
        n, p = x.sizes["position"], x["influence"].values
        row = {"position": x.attrs.get("position", "other"), "parameters": x.attrs["parameters"]}
        row |= {"first": n * p[0], "last": n * p[-1], "W1 halves": normalised_wasserstein(*x["halves"].values)}
        for name, q in zip(TRAINED, x["profile"].values if "profile" in x else (), strict=False):
            row |= {f"W1 {name}": normalised_wasserstein(q, p), f"rank {name}": spearman(q, p)}
        if "law" in x:
            row["untrained first"] = n * x["untrained"].values[0]
            row["untrained W1"] = normalised_wasserstein(x["law"].values, x["untrained"].values)
        rows[x.attrs["model"].removeprefix("reference/")] = row
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["position", "parameters", *COLUMNS])
    return table.sort_values(["position", "parameters"])


def draw_field(table: pd.DataFrame) -> Figure:
    """Draw the table, darker where influence is further from the average token, or a prediction from what it predicts.

    Shades are |log10| / 2 of multiples from 0.01 to 100, (1 - rank) / 2 of rank correlations, and twice W₁.
    """
    fig, ax = plt.subplots(figsize=(6.8, 1.7 + 0.24 * len(table)))
    for j, name in enumerate(COLUMNS):
        x = table[name].to_numpy(dtype=float)
        if name.endswith(("first", "last")):
            shade, said = abs(np.log10(x.clip(0.01, 100))) / 2, [f"{v:.2g}" if v >= 0.01 else "<0.01" for v in x]
        elif name.startswith("rank"):
            shade, said = (1 - x) / 2, [f"{v:+.2f}" for v in x]
        else:
            shade, said = 2 * x, [f"{v:.3f}" for v in x]
        ax.imshow(shade[:, None], "Blues", vmin=0, vmax=1.2, extent=(j, j + 1, len(x), 0), aspect="auto")
        for i in np.flatnonzero(np.isfinite(x)):
            colour = "white" if shade[i] > 0.7 else "black"
            ax.text(j + 0.5, i + 0.5, said[i], color=colour, fontsize=8, ha="center", va="center")
    ends = np.cumsum([0, *GROUPS.values()])
    labels = [f"{name} ({size / 1e6:.3g} M)" for name, size in table["parameters"].items()]
    ax.set(xlim=(0, ends[-1]), ylim=(len(table), 0))
    ax.set_yticks(np.arange(len(table)) + 0.5, labels)
    ax.set_xticks(np.arange(len(COLUMNS)) + 0.5, COLUMNS.values(), rotation=90)
    ax.xaxis.tick_top()
    ax.grid(visible=False)
    kinds = table["position"].to_numpy()
    ax.vlines(ends[1:-1], 0, len(table), color="black", linewidth=0.8)
    ax.hlines(np.flatnonzero(kinds[1:] != kinds[:-1]) + 1, 0, ends[-1], color="black", linewidth=0.8)
    for title, low, high in zip(GROUPS, ends, ends[1:], strict=False):
        ax.text((low + high) / 2, len(table) + 0.2, title, fontsize=8, ha="center", va="top")
    return fig


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
