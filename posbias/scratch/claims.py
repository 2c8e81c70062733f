"""What the figures of Wu et al. (2025) are said to show, each sentence as a check on trained networks' results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from posbias import checks
from posbias.scratch.results import gaps
from posbias.scratch.settings import Bias, Encoding, Setting

LEAST = 0.01
"""Differences in accuracy below this are not called a sign: on 10,000 sequences the standard error is below 0.007."""
FM, FL, ML = range(3)
"""Index of the pairs: first against middle, first against last, middle against last."""
NAMES = {"none": "no encoding", "decay": "decay mask", "sinusoidal": "sinusoidal", "rope": "RoPE"}
"""What encodings are called on pages."""
DEPTH_ENCODINGS: tuple[Encoding, ...] = ("none", "decay", "rope")
"""Encodings of the figures that go over depths."""
CAPTURED: dict[Bias, tuple[int | None, ...]] = {
    "ends": (1, None, -1), "first": (1, 1, None), "middle": (-1, None, 1), "last": (None, -1, -1)
}  # fmt: skip
"""Bias of the training data → the sign of each pair's gap by which it counts as captured; None: any."""
_Gaps = dict[tuple[str, str, str], np.ndarray]  # (bias, mask, encoding) → (seeds, pairs)


@dataclass(frozen=True)
class Verdict:
    """A claim, whether it holds here, and the figure that says so."""

    said: str
    holds: bool
    figure: str


def sign(values: np.ndarray) -> int:
    """Return the sign of a quantity over seeds: 0 if the mean is below :data:`LEAST`, or if a seed has another sign.

    >>> [sign(np.array(x)) for x in ([0.2, 0.1], [0.2, -0.1], [0.005, 0.004], [-0.3, -0.02])]
    [1, 0, 0, -1]
    """
    mean = values.mean()
    return int(np.sign(mean)) if abs(mean) > LEAST and (np.sign(values) == np.sign(mean)).all() else 0


def depth_claims(runs: Mapping[Setting, xr.Dataset]) -> list[Verdict]:
    """Check what figures 2, 4 and 5, or 9 and 10, say of depth, encodings and the residual, without bias in the data.

    The text has the two vocabularies differ with a residual alone: with mixtures depth is not monotonic, and deep
    networks with RoPE lose the middle; with a fixed vocabulary depth "consistently amplifies" the bias, which is read
    as the mean size of the three gaps.

    Parameters
    ----------
    runs
        Settings of ``figure4`` and ``figure5`` (or 9 and 10) → results; depths that lack an encoding are left out.

    Raises
    ------
    ValueError
        If fewer than two depths without a residual are complete; what needs three with one is left out otherwise.

    Source: Wu et al. 2025, section 5.1, K.1 to K.3, L and the captions of figures 2, 4, 5, 9 and 10.
    """
    plain, depths = _by_depth(runs, residual=False)
    if len(depths) < 2:
        raise checks.refuse("runs", "two depths with every encoding, without a residual", len(depths))
    out = _of_depth_alone(plain, depths)
    with_residual, depths = _by_depth(runs, residual=True)
    if len(depths) < 3:
        return out
    if any(s.task.vocabulary == "fixed" for s in runs):
        sizes = {e: [np.abs(with_residual[e, T].mean(0)).mean() for T in depths] for e in DEPTH_ENCODINGS}
        return out + [
            _verdict(f"with a residual, {NAMES[e]}: the deeper, the larger the gaps", _rises(x), _plain(x))
            for e, x in sizes.items()
        ]
    lines = [[with_residual[e, T][:, FL].mean() for T in depths] for e in DEPTH_ENCODINGS]
    turns = [bool((np.diff(x) > LEAST).any() and (np.diff(x) < -LEAST).any()) for x in lines]
    out.append(_verdict("with a residual depth is not monotonic", any(turns), "; ".join(map(_signed, lines))))
    lost = {e: [T for T in depths if _loses_the_middle(with_residual[e, T])] for e in DEPTH_ENCODINGS}
    figure = "; ".join(f"{NAMES[e]} with {', '.join(map(str, found))} layers" for e, found in lost.items() if found)
    holds = depths[-1] in lost["rope"] and not lost["none"] and not lost["decay"]
    return [*out, _verdict("with a residual the middle is lost with deep RoPE alone", holds, figure or "by none")]


def _of_depth_alone(plain: Mapping[tuple[str, int], np.ndarray], depths: Sequence[int]) -> list[Verdict]:
    """Return what is said of networks without a residual."""
    series = {e: np.array([plain[e, T][:, FL].mean() for T in depths]) for e in DEPTH_ENCODINGS}
    out = [
        _verdict(
            f"no residual, {NAMES[e]}: the deeper, the more the first is favoured over the last", _rises(x), _signed(x)
        )
        for e, x in series.items()
    ]
    for e in ("decay", "rope"):
        change = series[e] - series["none"]
        said = f"no residual: {NAMES[e]} lowers the gap of first and last"
        out.append(_verdict(said, max(change) < -LEAST, _signed(change)))
    change = series["decay"] - series["rope"]
    out.append(_verdict("no residual: the decay mask lowers it more than RoPE", max(change) < -LEAST, _signed(change)))
    means = [plain[e, T].mean(0) for T in depths for e in DEPTH_ENCODINGS]
    small = [abs(g[ML]) < min(abs(g[FM]), abs(g[FL])) for g in means]
    said = "no residual: the gap of middle and last is smaller than those with the first"
    return [*out, _verdict(said, all(small), _of(small))]


def bias_claims(runs: Mapping[Setting, xr.Dataset]) -> list[Verdict]:
    """Check what figures 3 and 6, or 11, say of networks trained on data with the answer at chosen places.

    Parameters
    ----------
    runs
        Settings of ``figure3`` and ``figure6`` (or of ``figure11``) → results, and of two causal layers with a residual
        and no encoding trained without bias (in ``figure5`` or ``figure10``), which "captured" is measured from.

    Raises
    ------
    ValueError
        If one is missing.

    Source: Wu et al. 2025, sections 5.2 and K.3, and the captions of figures 3, 6 and 11.
    """
    alike = {s: x for s, x in runs.items() if s.network.layers == 2 and s.network.residual}
    g: _Gaps = {(s.task.bias, s.network.mask.kind, s.network.encoding): gaps(x) for s, x in alike.items()}
    wanted = {(b, m, e) for b in CAPTURED for m in ("full", "causal") for e in ("none", "sinusoidal", "rope")}
    if missing := (wanted | {("none", "causal", "none")}) - set(g):
        what = "every mask, encoding and bias of figures 3 and 6, and one without bias"
        raise checks.refuse("runs", what, f"{len(missing)} less")
    return _without_encoding(g) + _with_encoding(g)


def _without_encoding(g: _Gaps) -> list[Verdict]:
    """Return what is said of no encoding: nothing without a mask, the first place with the causal one."""
    silent = [np.abs(g[b, "full", "none"]).max() < LEAST for b in CAPTURED]
    out = [_verdict("no mask, no encoding: no position bias", all(silent), _of(silent))]
    for b in CAPTURED:
        one = g[b, "causal", "none"]
        said = f"causal mask, no encoding, trained on {b}: the first is favoured"
        out.append(_verdict(said, sign(one[:, FM]) > 0 and sign(one[:, FL]) > 0, _signed(one.mean(0))))
    last, without = (g[b, "causal", "none"][:, ML].mean() for b in ("ends", "none"))
    said = "causal mask, no encoding, trained on ends: the last gains nothing on the middle over data without bias"
    return [*out, _verdict(said, last > without - LEAST, f"{last:+.2f}, without bias {without:+.2f}")]


def _with_encoding(g: _Gaps) -> list[Verdict]:
    """Return what is said of the sinusoidal encoding and RoPE: each bias is captured, at both ends as a U."""
    ways = [(mask, e) for mask in ("full", "causal") for e in ("sinusoidal", "rope")]
    out = []
    for b, wanted in CAPTURED.items():
        signs = [[sign(g[b, mask, e][:, k]) for k in range(3)] for mask, e in ways]
        captured = [all(w in (None, s) for w, s in zip(wanted, found, strict=True)) for found in signs]
        said = f"sinusoidal and RoPE, trained on {b}: the bias is captured, with and without mask"
        out.append(_verdict(said, all(captured), _of(captured)))
    ahead = [g["ends", mask, e][:, FL].mean() for mask, e in ways]
    slightly = all(0 <= x < 0.1 for x in ahead)
    out.append(_verdict("trained on ends: the first is slightly better than the last", slightly, _signed(ahead)))
    lost = [b for (b, _, e), x in g.items() if b != "none" and e != "none" and _loses_the_middle(x)]
    there = lost.count("ends")
    figure = f"{there} of 4 there, {len(lost) - there} elsewhere"
    return [*out, _verdict("the middle is lost only when trained on ends", 0 < there == len(lost), figure)]


def sink_claims(runs: Mapping[Setting, xr.Dataset]) -> list[Verdict]:
    """Check what figures 7 and 8 say of attention sinks under causal, sliding-window and prefix masks.

    Parameters
    ----------
    runs
        Settings of ``figure8`` (or 13) → results.

    Raises
    ------
    ValueError
        If the causal mask, or all windows or all prefixes, are missing.

    Source: Wu et al. 2025, section K.4 and the captions of figures 7, 8, 12 and 13.
    """
    sinks = {(s.network.mask.kind, s.network.mask.width): x["sinks"].values.mean((0, 1)) for s, x in runs.items()}
    if not {"causal", "window", "prefix"} <= {kind for kind, _ in sinks}:
        raise checks.refuse("runs", "causal, window and prefix masks", ", ".join(kind for kind, _ in sinks) or "none")
    causal = sinks["causal", 0]
    out = [_verdict("causal mask: the first token is a sink", int(causal[:-1].argmax()) == 0, _tops(causal))]
    widths = sorted(w for kind, w in sinks if kind == "window")
    first = [sinks["window", w][0] for w in widths]
    out.append(
        _verdict(
            "sliding window: the wider, the more the first token is a sink",
            bool((np.diff(first) > 0).all()),
            _signed(first),
        )
    )
    for K in sorted(w for kind, w in sinks if kind == "prefix"):
        x = sinks["prefix", K]
        out.append(
            _verdict(
                f"prefix of {K}: every prefix token is more of a sink than any other",
                x[:K].min() > x[K:-1].max(),
                _tops(x),
            )
        )
    return out


def _verdict(said: str, holds: object, figure: str) -> Verdict:
    return Verdict(said, bool(holds), figure)


def _by_depth(
    runs: Mapping[Setting, xr.Dataset], *, residual: bool
) -> tuple[dict[tuple[str, int], np.ndarray], list[int]]:
    """Return the gaps of causal networks by encoding and depth, and the depths for which every encoding is there."""
    found: dict[tuple[str, int], np.ndarray] = {
        (s.network.encoding, s.network.layers): gaps(x)
        for s, x in runs.items()
        if s.network.residual == residual and s.network.encoding in DEPTH_ENCODINGS and s.network.mask.kind == "causal"
    }
    return found, [T for T in sorted({T for _, T in found}) if all((e, T) in found for e in DEPTH_ENCODINGS)]


def _loses_the_middle(one: np.ndarray) -> bool:
    """Say whether both ends are favoured over the middle: gaps (seeds, pairs)."""
    return sign(one[:, FM]) > 0 and sign(one[:, ML]) < 0


def _rises(values: Sequence[float] | np.ndarray) -> bool:
    return bool((np.diff(values) > LEAST).all())


def _signed(values: Iterable[float]) -> str:
    return ", ".join(f"{x:+.2f}" for x in values)


def _plain(values: Iterable[float]) -> str:
    return ", ".join(f"{x:.2f}" for x in values)


def _of(found: Sequence[object]) -> str:
    return f"{sum(map(bool, found))} of {len(found)}"


def _tops(sinks: np.ndarray) -> str:
    """Return the three tokens with most of the metric, the query left out, counted from 1."""
    order = np.argsort(-sinks[:-1])[:3]
    return "tokens " + ", ".join(f"{k + 1} ({sinks[k]:.2f})" for k in order)
