"""What Python makes of the fields of a link to the explorer, and what the explorer's engine makes of them."""

from functools import cache

import numpy as np
from conftest import ROOT

from bookkit.explorer import REFERENCE, measured_presets, published_presets
from posbias.rollout import masks, schedules
from posbias.rollout.influence import influence_profile
from posbias.rollout.kernels import attention_kernel
from posbias.rollout.logits import alibi_slopes, geometric_slopes
from posbias.rollout.structured import biased_kernels, structured_kernels
from posbias.rollout.untrained import untrained_profile
from studies.published import numbers

DEFAULTS = {
    "depth": 12, "mixing": "constant", "lambda": 0.1, "lambda0": 0.6, "beta": 1.0, "encoding": "alibi", "heads": 8,
    "slopes": "rule", "scale": 1.0, "slope": 0.25, "mask": "causal", "width": 16, "content": "none", "diagonal": 2.0,
    "length": 256, "off": (), "law": "aligned", "alpha": 0.2, "tau": 1.2,
}  # fmt: skip
BIASES = {
    "log-position": lambda f: {"kind": "log", "alpha": f["alpha"]},
    "flat": lambda f: {"kind": "flat", "tau": f["tau"]},
}
"""Encodings that are functions of the ratio of positions, as the package describes them."""


@cache
def presets():
    return {preset["name"]: preset for preset in (*published_presets(), *measured_presets(ROOT))}


def predicted(**fields):
    """Compute the profile that a link's fields ask for with the package's own functions."""
    schedule, n, slopes, content, mask, f = what_is_asked(**fields)
    T = len(schedule)
    plain = f["encoding"] == "none" or "position" in f["off"]
    if f["encoding"] in BIASES and not plain:
        return influence_profile(biased(T, content, f), schedule, n)
    if plain or f["encoding"] != "log":
        kernels = structured_kernels(T, slope=None if plain else slopes, diagonal=content, mask=mask, H=f["heads"])
        return influence_profile(kernels, schedule, n)
    A = kernels_written_out(n, slopes, content, mask, f).mean(axis=1)
    return influence_profile(A[0] if len(A) == 1 else A, schedule)


def biased(T, content, f):
    return biased_kernels(T, BIASES[f["encoding"]](f), diagonal=content, H=f["heads"])


def predicted_untrained(**fields):
    """Compute the law of untrained networks of a link's fields from kernels that are written out."""
    schedule, n, slopes, content, mask, f = what_is_asked(**fields)
    A = kernels_written_out(n, slopes, content, mask, f)
    A = np.broadcast_to(A, (len(schedule), *A.shape[1:]))
    if (schedule < 1).all():
        return untrained_profile(A, schedule / (1 - schedule))
    G = np.diag(np.eye(n)[-1])  # without a residual a gain has no number, but its share of the layer has
    for heads, mixing in zip(A[::-1], schedule[::-1], strict=True):
        G = (1 - mixing) ** 2 * G + mixing**2 * np.mean([head.T @ G @ head for head in heads], axis=0)
        G /= np.trace(G)
    return np.sqrt(np.diag(G)) / np.sqrt(np.diag(G)).sum()


def kernels_written_out(n, slopes, content, mask, f):
    """Return the kernels of all heads, of one layer or of all: (1 or T, H, n, n)."""
    plain = f["encoding"] == "none" or "position" in f["off"]
    if f["encoding"] in BIASES and not plain:
        one = [[biased(1, d, f | {"heads": 1}).dense(0, n) for d in row] for row in content]
        return np.array(one)
    distance = np.subtract.outer(np.arange(n), np.arange(n))
    distance = np.log1p(np.abs(distance)) if f["encoding"] == "log" else distance
    logits = -(0 if plain else 1) * slopes[:, None, None] * distance
    return np.stack([attention_kernel(logits + d[:, None, None] * np.eye(n), mask) for d in content])


def what_is_asked(**fields):
    """Return λ, n, slopes, content by layer and head, the mask, and all fields."""
    f = DEFAULTS | fields
    T, H, n = f["depth"], f["heads"], f["length"]
    if "model" in f:
        preset = presets()[f["model"]]
        own, mean, diagonals = np.array(preset["lambda"]), preset["mean"], preset["diagonal"]
    schedule = {
        "constant": lambda: schedules.constant(T, float(f["lambda"])),
        "decay": lambda: schedules.power_decay(T, f["lambda0"], f["beta"]),
        "model": lambda: own[:T],
    }[f["mixing"]]()
    rules = {
        "rule": lambda: f["scale"] * alibi_slopes(H),
        "geometric": lambda: f["scale"] * geometric_slopes(H),
        "one": lambda: np.full(H, f["slope"]),
    }
    slopes = rules["one" if f["encoding"] == "decay" else f["slopes"]]()
    content = {
        "none": lambda: np.zeros((1, H)),
        "diagonal": lambda: np.full((1, H), f["diagonal"]),
        "mean": lambda: np.full((1, H), mean),
        "all": lambda: diagonals[:T],
    }[f["content"]]()
    mask = {
        "causal": masks.causal,
        "window": lambda: masks.sliding_window(f["width"]),
        "prefix": lambda: masks.prefix(f["width"]),
    }[f["mask"]]()
    mask = masks.full() if "mask" in f["off"] else mask
    schedule = np.ones(T) if "residual" in f["off"] else schedule
    content = np.zeros((1, H)) if "content" in f["off"] else content
    return schedule, n, slopes, content, mask, f


def hash_of(fields):
    parts = {name: ",".join(x) if isinstance(x, tuple) else x for name, x in fields.items()}
    return "#" + "&".join(f"{name}={value}" for name, value in parts.items())


def random_fields(rng, k):
    """Draw settings; the k-th has the k-th combination of encoding, mask and content, so that all occur."""
    encoding = ("none", "alibi", "decay", "log")[k % 4]
    mask = ("causal", "window", "prefix")[k // 4 % 3]
    content = ("none", "diagonal", "mean", "all")[k // 12 % 4]
    log = encoding == "log"
    small = [f"reference-{name}" for name in REFERENCE]
    fields = {}
    if content in ("mean", "all") or rng.random() < 0.4:
        fields["model"] = str(rng.choice(small if log and content == "all" else [*small, *numbers.MODELS]))
        T, H = presets()[fields["model"]]["diagonal"].shape
    else:
        T, H = 100, int(rng.integers(1, 33))
    H = H if content == "all" else int(rng.integers(1, 33))
    longest = 200 if log else 2048 if content != "all" else 400
    return fields | {
        "depth": int(rng.integers(1, min(T, 12 if log else T) + 1)),
        "mixing": str(rng.choice(["constant", "decay", "model"] if "model" in fields else ["constant", "decay"])),
        "lambda": float(rng.uniform().__round__(3)),
        "lambda0": float(rng.uniform(0.01, 1)),
        "beta": float(rng.uniform(0, 3)),
        "encoding": encoding,
        "heads": H,
        "slopes": str(rng.choice(["rule", "geometric", "one"])),
        "scale": float(np.exp(rng.uniform(np.log(0.05), np.log(4)))),
        "slope": float(np.exp(rng.uniform(np.log(0.001), np.log(4)))),
        "mask": mask,
        "width": int(np.exp(rng.uniform(0, np.log(longest)))) + 1,
        "content": content,
        "diagonal": float(rng.uniform(-10, 10)),
        "length": int(np.exp(rng.uniform(np.log(4), np.log(longest)))),
        "off": tuple(str(x) for x in ("mask", "residual", "position", "content") if rng.random() < 0.15),
    }


def random_biased_fields(rng, k):
    """Draw settings with logits by the ratio of positions, which are causal; content of all kinds occurs with both."""
    fields = random_fields(rng, 12 * (k // 2) + 1)  # content of the kind k // 2, and no logarithmic distance
    total = float(np.exp(rng.uniform(np.log(0.01), np.log(100))))
    off = tuple(x for x in fields["off"] if x != "mask")
    encoding = ("log-position", "flat")[k % 2]
    return fields | {"encoding": encoding, "alpha": total - 1, "tau": total, "mask": "causal", "off": off}


PROFILES = """
const scheme = PosbiasState, engine = PosbiasEngine, presets = PosbiasPresets;
return arguments[0].map(hash => {
  const { state, refused } = scheme.parse(hash, presets);
  if (refused.length) return refused;
  return Array.from(engine.influence(scheme.settingsOf(state, presets)));
});
"""


def profiles(driver, asked):
    found = driver.execute_script(PROFILES, [hash_of(fields) for fields in asked])
    assert all(isinstance(p[0], int | float) for p in found), found[:1]
    return [np.array(p, dtype=float) for p in found]
