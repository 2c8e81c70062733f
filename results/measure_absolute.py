"""Measure absolute position with more prompts than the chapter's default run: results/15_absolute/*.nc.

python results/measure_absolute.py [PROMPTS] [LENGTH]
"""

import hashlib
import platform
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import scipy
import torch
import transformers
import xarray as xr

import posbias
from posbias.measure.corpus import Corpus, make_prompts
from posbias.measure.instrument import Instrument
from posbias.measure.interventions import bidirectional, replaced_embeddings, replaced_rope
from posbias.measure.loading import Source
from posbias.measure.studies.absolute import PairReading, read_heads, read_pairs
from posbias.shipped import model_folder
from posbias.theory.leakage import leakage, permutation_p_values, position_basis, sample_pairs

PARTS = ("total", "denominators", "logits", "residual")
EARLY, WINDOW, RESAMPLES = 32, 64, 400


def parts(causal: PairReading, free: PairReading, keep: np.ndarray, pairs: np.ndarray) -> xr.Dataset:
    """Return the leakage of each part at the pairs that are kept."""
    basis = position_basis(pairs[:, keep])
    values = (causal.log_probabilities, causal.log_z, causal.logits, free.logits)
    found = [leakage(basis.both, y[..., keep]) for y in values]
    layers = [x.pooled(1) for x in found]
    return xr.Dataset(
        {
            "variance": (("part", "layer", "head"), np.stack([x.variance for x in found]), {"units": "nats²"}),
            "spread": (("part", "layer", "head"), np.stack([x.spread.mean(-1) for x in found]), {"units": "nats²"}),
            "p_value": (("part", "layer", "head"), np.stack([permutation_p_values(x.gram) for x in found])),
            "resampled": (
                ("part", "resample", "layer"),
                np.stack([x.resampled_variance(RESAMPLES) for x in layers]).astype(np.float32),
                {"long_name": "variance of resampled prompts, heads added", "units": "nats²"},
            ),
            "resampled_share": (
                ("part", "resample"),
                np.stack([x.pooled((0, 1)).resampled_share(RESAMPLES) for x in found]).astype(np.float32),
            ),
        },
        coords={"part": list(PARTS)},
    )


def control(N: int = 128, n: int = 256, draws: int = 8) -> None:
    """Keep p-values where there is nothing to leak: first-layer logits of random tokens, the first key left out."""
    source = Source("reference/llama-12")
    model = source.load_model(torch.float32, "cpu", None)
    model.model.layers = model.model.layers[:1]
    model.config.num_hidden_layers = 1
    instrument, tokenizer = Instrument(model), source.load_tokenizer()
    basis = position_basis(sample_pairs(n, 48))
    found = []
    for seed in range(draws):
        ids = make_prompts(Corpus("builtin"), tokenizer, N, n, rule="random", seed=seed).ids
        found.append(leakage(basis.both, read_pairs(instrument, ids, basis.pairs).logits[:, 0]))
    data = xr.Dataset(
        {
            "p_value": (("draw", "head"), np.stack([x.p_values() for x in found])),
            "share": (("draw", "head"), np.stack([x.share for x in found])),
        },
        attrs={"model": "llama-12", "prompts": N, "length": n, "dataset": "random tokens", "seed": f"0 to {draws - 1}",
               "device": "cpu", "dtype": "float32", "posbias": posbias.__version__, "torch": str(torch.__version__)},
    )  # fmt: skip
    data.to_netcdf(Path(__file__).parent / "15_absolute" / "control.nc", engine="h5netcdf")


def main(N: int = 128, n: int = 256) -> None:
    """Run everything, a condition after another."""
    found: dict[str, xr.Dataset] = {}
    heads: dict[str, np.ndarray] = {}
    revisions: list[str] = []
    pairs = sample_pairs(n, 48, first_key=0)
    i, j = pairs
    near, rest, soon = i - j < WINDOW, j > 0, i < EARLY  # rest: the first token is left out as a key
    for name in ("llama-12", "llama-ntk-12", "mistral-12"):
        source = Source(f"reference/{name}")
        instrument = Instrument(source.load_model(torch.float32, "cpu", None))
        tokenizer = source.load_tokenizer()
        text = make_prompts(Corpus("builtin"), tokenizer, N, n, rule="cut", per_document=16).ids
        chance = make_prompts(Corpus("builtin"), tokenizer, N, n, rule="random").ids
        weights = (Path(model_folder(source.model)) / "model.safetensors").read_bytes()
        revisions.append(f"{name} {hashlib.sha256(weights).hexdigest()[:16]}")
        heads[name] = read_heads(instrument, text[:64]).first.mean(0)
        conditions = {"text": (text, nullcontext)}
        if name == "llama-12":
            conditions |= {
                "random": (chance, nullcontext),
                "identity": (text, lambda x=instrument: replaced_rope(x, "identity")),
                "scrambled": (text, lambda x=instrument: replaced_rope(x, "scrambled")),
                "first": (text, lambda x=instrument: replaced_embeddings(x, "first")),
                "all": (text, lambda x=instrument: replaced_embeddings(x, "all")),
            }
        for condition, (ids, context) in conditions.items():
            read = pairs[:, near] if name == "mistral-12" else pairs
            with context():
                causal = read_pairs(instrument, ids, read)
            with bidirectional(instrument), context():
                free = read_pairs(instrument, ids, read)
            keeps = {"near": near, "near-rest": near & rest} if condition == "text" else {}
            if name == "llama-12":
                keeps |= {"all": near | True, "rest": rest, "early": soon, "early-rest": soon & rest}
            for which, keep in keeps.items():
                keep = keep[near] if name == "mistral-12" else keep
                found[f"{name} {condition} {which}"] = parts(causal, free, keep, read)
            print(name, condition, flush=True)
    data = xr.concat(list(found.values()), "condition").assign_coords(condition=list(found))
    data["first"] = (
        ("model", "layer", "head"),
        np.stack(list(heads.values())),
        {"long_name": "attention to position 0"},
    )
    data = data.assign_coords(model=list(heads)).assign_attrs(
        weights=", ".join(revisions), prompts=N, length=n, dataset="builtin", rule="cut, 16 a document",
        early=EARLY, window=WINDOW, seed=0, per_stratum=48, permutations=999, device="cpu", dtype="float32",
        posbias=posbias.__version__, torch=str(torch.__version__), transformers=transformers.__version__,
        numpy=np.__version__, scipy=scipy.__version__, python=platform.python_version(),
    )  # fmt: skip
    folder = Path(__file__).parent / "15_absolute"
    folder.mkdir(exist_ok=True)
    data.to_netcdf(folder / "components.nc", engine="h5netcdf", encoding={x: {"zlib": True} for x in data.data_vars})


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
    control(*map(int, sys.argv[1:]))
