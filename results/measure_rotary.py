"""Kernels of rotary models from mean queries and keys, beside others, for the prompts of results/11_models.

    python results/measure_rotary.py [NAME …]

What is there already is kept.
"""

import platform
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import scipy
import torch
import transformers
import xarray as xr
from measure_all import settings

import posbias
from posbias.measure.instrument import AttentionReading, Instrument
from posbias.measure.loading import DTYPES, Source
from posbias.measure.rollouts import layer_masks
from posbias.measure.studies.rotary_kernels import read_rotary_means
from posbias.measure.summary import read_summary, shaved, write_summary
from posbias.rollout.influence import influence_profile
from posbias.rollout.kernels import attention_kernel, mix_heads
from posbias.rollout.rotary import distance_kernels
from posbias.rollout.surrogate import kernel_variation, nearest_slope

HERE = Path(__file__).parent
MODELS = ("llama-12", "llama-ntk-12", "mistral-12")
CORPORA = ("builtin", "builtin-1024")
MOST = 128  # prompts of each kept measurement that are read
KERNELS = {
    "uniform": "within the mask",
    "mean": "mean query and mean key",
    "rest": "the same without position 0 in the means",
    "first": "the same, and position 0 has its own mean key",
    "keys": "rest, and half the variance of the logits over keys",
    "both": "rest, and half the variance of the logits over queries and keys",
    "logits": "softmax of the mean logits of every pair",
    "slopes": "nearest ALiBi slope of every head's measured kernel",
    "measured": "mean attention",
}


class Means:
    """Add up the attention and the content logits of every head, (T, H, n, n)."""

    def __init__(self, T: int, H: int, n: int) -> None:
        self.attention, self.logits = np.zeros((2, T, H, n, n))

    def __call__(self, reading: AttentionReading) -> None:
        self.attention[reading.layer] += reading.probabilities.sum(0).numpy()
        self.logits[reading.layer] += torch.where(reading.allowed, reading.logits, 0.0).sum(0).numpy()


def study(name: str, corpus: str) -> xr.Dataset:
    """Return every kernel's rollout and its distance to the measured kernel."""
    kept = read_summary(HERE / "11_models" / f"{name}.{corpus}.nc")
    wanted = settings(Source(f"reference/{name}"), corpus, None)
    prompts = wanted.cut(wanted.source.load_tokenizer())
    if prompts.sha256 != kept.attrs["prompts_sha256"]:
        raise RuntimeError(f"expected the prompts of the kept measurement of {name}, received others")
    instrument = Instrument(wanted.source.load_model(DTYPES["float32"], "cpu", None))
    n, T = wanted.length, instrument.T
    seen = Means(T, instrument.H, n)
    ids = prompts.ids[:MOST]
    rest = read_rotary_means(instrument, ids, wanted.batch_size, skip=1, observe=seen)
    every = replace(rest, **dict(zip(("query", "key"), rest.with_first(n), strict=True)))
    A, content = seen.attention / seen.attention.sum(-1, keepdims=True), seen.logits / len(ids)
    logits = {"uniform": 0 * every.logits(n), "mean": every.logits(n), "rest": rest.logits(n)}
    variances = {"keys": rest.variances(n, queries=False), "both": rest.variances(n)}
    logits |= {which: logits["rest"] + variances[which] / 2 for which in variances}
    own, x = rest.first_logits(n), np.subtract.outer(np.arange(n), np.arange(n)).astype(float)
    kernels: dict[str, list[np.ndarray]] = {which: [] for which in KERNELS}
    slopes = np.zeros((T, instrument.H))
    for t, mask in enumerate(layer_masks(kept)):
        for which, found in logits.items():
            kernels[which].append(mix_heads(distance_kernels(found[t], mask)))
        slopes[t] = [nearest_slope(head, mask) for head in A[t]]
        kernels["first"].append(mix_heads(distance_kernels(logits["rest"][t], mask, own[t])))
        kernels["logits"].append(mix_heads(attention_kernel(content[t], mask)))
        kernels["slopes"].append(mix_heads(attention_kernel(-slopes[t, :, None, None] * x, mask)))
        kernels["measured"].append(mix_heads(A[t]))
    dense = {which: np.stack(found) for which, found in kernels.items()}
    lambda_, sees = kept["lambda_frobenius"].values, [slice(1, int(w) or None) for w in kept["window"].values]
    row = ("kernel", "layer")
    data = xr.Dataset(
        {
            "profile": (("kernel", "position"), np.stack([influence_profile(B, lambda_) for B in dense.values()])),
            "variation": (row, np.stack([kernel_variation(B, dense["measured"]) for B in dense.values()]),
                          {"long_name": "mean total variation to the measured kernel, queries from the second on"}),
            "first": (row, np.stack([[b[s, 0].mean() for b, s in zip(B, sees, strict=True)] for B in dense.values()]),
                      {"long_name": "mean weight on position 0 of the later queries that see it"}),
            "variance": (("source", "layer", "position"), np.stack([v.mean(1) for v in variances.values()]),
                         {"long_name": "variance of logits at a distance, mean over heads", "units": "nats²"}),
            "slopes": (("layer", "head"), slopes, {"long_name": "nearest ALiBi slopes", "units": "nats a token"}),
            "query": (("layer", "head", "feature"), every.query, {"long_name": "mean query before the rotation"}),
            "key": (("layer", "head", "feature"), every.key, {"long_name": "mean key before the rotation"}),
            "theta": (("pair",), every.theta, {"units": "radians a token"}),
            "scale": (("layer",), every.scale),
        },
        coords={"kernel": list(KERNELS), "source": list(variances)},
        attrs=kept.attrs | {"kernels": "; ".join(f"{which}: {what}" for which, what in KERNELS.items())},
    )  # fmt: skip
    if n <= 256:
        rows = np.stack([B[:, -1] for B in dense.values()]).astype(np.float32)
        data["last_row"] = (("kernel", "layer", "position"), shaved(rows), {"long_name": "the last query's weights"})
    return data.assign_attrs(
        prompts_read=len(ids), device="cpu", dtype="float32", posbias=posbias.__version__, torch=str(torch.__version__),
        transformers=transformers.__version__, numpy=np.__version__, scipy=scipy.__version__,
        python=platform.python_version(),
    )  # fmt: skip


if __name__ == "__main__":
    for corpus in CORPORA:
        for name in sys.argv[1:] or MODELS:
            path = HERE / "31_comparison" / f"{name}.rotary{corpus.removeprefix('builtin')}.nc"
            if not path.exists():
                write_summary(path, study(name, corpus))
                print(f"{path.name}: {path.stat().st_size / 1024:.0f} KiB", flush=True)
