"""Measure what norms before attention divide by and what recency that makes: results/06_layernorm/*.norms.nc.

python results/measure_layernorm.py [PROMPTS] [MODEL …]

A file for each reference model; those that are there already are kept.
"""

import hashlib
import platform
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
import transformers
import xarray as xr
from tokenizers import Tokenizer

import posbias
from posbias.measure.corpus import Corpus, make_prompts
from posbias.measure.instrument import Instrument
from posbias.measure.interventions import replaced_denominators
from posbias.measure.loading import Source
from posbias.measure.studies.norms import PARTS, octave_slopes, read_sizes
from posbias.measure.studies.recency import read_recency
from posbias.shipped import FOLDER, model_folder
from posbias.training.reference.models import REFERENCES
from posbias.training.reference.pretraining import initial_model, save_model

MODELS = ("bloom-8", "bloom-12", "bloom-24", "mpt-12", "falcon-12", "llama-12", "llama-ntk-12", "mistral-12", "gpt2-12",
          "nope-12")  # fmt: skip
CONDITIONS = {  # which projections get other denominators, and whether tokens keep their departure from the course
    "intact": None, "keys": ("k", False), "queries": ("q", False), "both": ("qk", False), "all": ("qkv", False),
    "keys course": ("k", True), "both course": ("qk", True),
}  # fmt: skip
CONTROLS = ("intact", "keys", "keys course")  # what random tokens and untrained twins get
INFLUENCE = ("intact", "keys", "keys course", "all")  # where influence is measured, in text
LENGTH, QUERIES = 256, 16  # tokens; those that count as queries, equally spaced, the last one included


def measure(instrument: Instrument, ids: np.ndarray, conditions: tuple[str, ...], gradients: int) -> xr.Dataset:
    """Return sizes along the prompt, and recency in some conditions; influence of the first prompts."""
    N, n = ids.shape
    sizes = read_sizes(instrument, ids)
    typical = np.exp(np.log(sizes[:, :, PARTS.index("input")].astype(float)).mean(0))
    queries = np.arange(n // QUERIES, n + 1, n // QUERIES) - 1
    found, influence = [], np.full((len(conditions), N, n), np.nan)
    for c, name in enumerate(conditions):
        how = CONDITIONS[name]
        with replaced_denominators(instrument, typical, how[0], own=how[1]) if how else nullcontext():
            found.append(read_recency(instrument, ids, queries))
            for k in range(0, gradients if name in INFLUENCE else 0, 8):
                g = instrument.measure(torch.from_numpy(ids[k : min(k + 8, gradients)])).influence.numpy()
                influence[c, k : min(k + 8, gradients)] = g / g.sum(1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):  # nothing has been added before the first layer
        slopes = octave_slopes(sizes.astype(float))
        course = np.log(sizes.astype(float)).mean(0)
    course, slopes = (np.where(np.isfinite(x), x, np.nan) for x in (course, slopes))
    return xr.Dataset(
        {
            "slope": (("prompt", "part", "layer"), slopes.swapaxes(1, 2),
                      {"long_name": "exponent of the size along positions 1 to n-1, each octave counting alike"}),
            "course": (("part", "position", "layer"), np.moveaxis(course, 0, -1),
                       {"long_name": "mean over prompts of the logarithm of the size"}),
            "preference": (("condition", "prompt", "layer"), np.stack([x.preference for x in found]),
                           {"long_name": "recency probability of content logits"}),
            "positive": (("condition", "prompt", "layer"), np.stack([x.positive for x in found]),
                         {"long_name": "share of content logits above 0"}),
            "attended": (("condition", "prompt", "layer"), np.stack([x.position for x in found]),
                         {"long_name": "mean attended position, 0 first token, 1 the query"}),
            "influence_mean": (("condition", "prompt"), influence @ np.linspace(0, 1, n),
                               {"long_name": "mean position of influence, 0 first token, 1 last"}),
            "influence_last": (("condition", "prompt"), influence[..., -1], {"long_name": "influence of the last"}),
            "loss": (("condition", "prompt"), np.stack([x.loss for x in found]), {"units": "nats"}),
        },
        coords={"condition": list(conditions), "part": list(PARTS)},
    ).astype(np.float32)  # fmt: skip


def load(name: str, untrained: bool) -> Instrument:
    """Return a reference model or its untrained twin, of which every matrix keeps the size of its input."""
    if not untrained:
        return Instrument(Source(f"reference/{name}").load_model(torch.float32, "cpu", None))
    with tempfile.TemporaryDirectory() as folder:
        row, tokenizer = REFERENCES[name], Tokenizer.from_file(str(FOLDER / name / "tokenizer.json"))
        save_model(initial_model(row, 0, "unit"), row, tokenizer, Path(folder) / name)
        return Instrument(Source(str(Path(folder) / name)).load_model(torch.float32, "cpu", None))


def main(N: int = 48, *names: str) -> None:
    """Run everything, a model after another."""
    n = LENGTH
    for name in names or MODELS:
        path = Path(__file__).parent / "06_layernorm" / f"{name}.norms.nc"
        if path.exists():
            continue
        tokenizer = Source(f"reference/{name}").load_tokenizer()
        text = make_prompts(Corpus("builtin"), tokenizer, N, n, rule="cut").ids
        chance = make_prompts(Corpus("builtin"), tokenizer, N, n, rule="random").ids
        weights = (Path(model_folder(f"reference/{name}")) / "model.safetensors").read_bytes()
        sets, started = [], time.process_time()
        for label, ids, untrained in (("text", text, False), ("random", chance, False), ("untrained", text, True)):
            how = (tuple(CONDITIONS), N // 2) if label == "text" else (CONTROLS, 0)
            sets.append(measure(load(name, untrained), ids, *how).expand_dims(data=[label]))
        data = xr.concat(sets, "data", join="outer", coords="minimal")
        data = data.sel(condition=list(CONDITIONS)).assign_attrs(
            model=name, sha256=hashlib.sha256(weights).hexdigest(), prompts=N, length=n, gradients=N // 2,
            dataset="builtin", rule="cut, one a document; random tokens", seed=0, queries=QUERIES,
            untrained="first weights of seed 0, standard deviation 1/√D, the same text", device="cpu", dtype="float32",
            processor_seconds=round(time.process_time() - started), posbias=posbias.__version__,
            torch=str(torch.__version__), transformers=transformers.__version__, numpy=np.__version__,
            python=platform.python_version(),
        )  # fmt: skip
        data.to_netcdf(path, engine="h5netcdf", encoding={x: {"zlib": True, "complevel": 9} for x in data.data_vars})
        print(name, data.attrs["processor_seconds"], "seconds of a processor", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), *sys.argv[2:])
