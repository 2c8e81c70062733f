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
    """Check what figures 2, 4 and 5 say of depth, encodings and the residual, without bias in the data.

    Parameters
    ----------
    runs
        Settings of ``figure4`` and ``figure5`` (or 9 and 10) → results; depths that lack an encoding are left out.

    Raises
    ------
    ValueError
        If fewer than two depths without a residual are complete; what needs three with one is left out otherwise.

    Source: Wu et al. 2025, section 5.1, K.1, K.2 and the captions of figures 2, 4, 5, 9 and 10.
    """
    encodings: tuple[Encoding, ...] = ("none", "decay", "rope")
    found = {residual: _by_depth(runs, residual, encodings) for residual in (False, True)}
    plain, with_residual = found[False], found[True]
    depths, with_residual_depths = (_complete(found[residual], encodings) for residual in (False, True))
    if len(depths) < 2:
        raise checks.refuse("runs", "two depths with every encoding, without a residual", len(depths))
    out = []
    for e in encodings:
        series = [plain[e, T][:, FL].mean() for T in depths]
        rising = all(b - a > LEAST for a, b in zip(series, series[1:], strict=False))
        out.append(
            _verdict(
                f"no residual, {NAMES[e]}: the deeper, the more the first is favoured over the last",
                rising,
                _signed(series),
            )
        )
    for e in ("decay", "rope"):
        lower = [plain["none", T][:, FL].mean() - plain[e, T][:, FL].mean() for T in depths]
        out.append(
            _verdict(
                f"no residual: {NAMES[e]} lowers the gap of first and last",
                min(lower) > LEAST,
                _signed(-np.array(lower)),
            )
        )
    more = [plain["rope", T][:, FL].mean() - plain["decay", T][:, FL].mean() for T in depths]
    out.append(
        _verdict("no residual: the decay mask lowers it more than RoPE", min(more) > LEAST, _signed(-np.array(more)))
    )
    judged = [plain[e, T] for T in depths for e in encodings]
    small = [abs(g[:, ML].mean()) < min(abs(g[:, k].mean()) for k in (FM, FL)) for g in judged]
    out.append(
        _verdict("no residual: the gap of middle and last is smaller than those with the first", all(small), _of(small))
    )
    if len(with_residual_depths) > 2:
        lines = [[with_residual[e, T][:, FL].mean() for T in with_residual_depths] for e in encodings]
        turns = [bool((np.diff(x) > LEAST).any() and (np.diff(x) < -LEAST).any()) for x in lines]
        out.append(_verdict("with a residual depth is not monotonic", any(turns), "; ".join(map(_signed, lines))))
    return out


def bias_claims(runs: Mapping[Setting, xr.Dataset]) -> list[Verdict]:
    """Check what figures 3 and 6 say of networks trained on data with the answer at chosen places.

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
    g = {(s.task.bias, s.network.mask.kind, s.network.encoding): gaps(x) for s, x in alike.items()}
    biases: tuple[Bias, ...] = ("ends", "first", "middle", "last")
    wanted_runs = {(b, m, e) for b in biases for m in ("full", "causal") for e in ("none", "sinusoidal", "rope")}
    if missing := (wanted_runs | {("none", "causal", "none")}) - set(g):
        raise checks.refuse(
            "runs", "every mask, encoding and bias of figures 3 and 6, and one without bias", f"{len(missing)} less"
        )
    silent = [np.abs(g[b, "full", "none"]).max() < LEAST for b in biases]
    out = [_verdict("no mask, no encoding: no position bias", all(silent), _of(silent))]
    for b in biases:
        one = g[b, "causal", "none"]
        towards = sign(one[:, FM]) > 0 and sign(one[:, FL]) > 0
        out.append(
            _verdict(f"causal mask, no encoding, trained on {b}: the first is favoured", towards, _signed(one.mean(0)))
        )
    last, without = (g[b, "causal", "none"][:, ML].mean() for b in ("ends", "none"))
    out.append(
        _verdict(
            "causal mask, no encoding, trained on ends: the last gains nothing on the middle over data without bias",
            last > without - LEAST,
            f"{last:+.2f}, without bias {without:+.2f}",
        )
    )
    wanted = {"ends": (1, None, -1), "first": (1, 1, None), "middle": (-1, None, 1), "last": (None, -1, -1)}
    for b in biases:
        captured = []
        for mask in ("full", "causal"):
            for e in ("sinusoidal", "rope"):
                signs = [sign(g[b, mask, e][:, k]) for k in range(3)]
                captured.append(all(w is None or w == s for w, s in zip(wanted[b], signs, strict=True)))
        out.append(
            _verdict(
                f"sinusoidal and RoPE, trained on {b}: the bias is captured, with and without mask",
                all(captured),
                _of(captured),
            )
        )
    slightly = [0 <= g["ends", m, e][:, FL].mean() < 0.1 for m in ("full", "causal") for e in ("sinusoidal", "rope")]
    figure = _signed([g["ends", m, e][:, FL].mean() for m in ("full", "causal") for e in ("sinusoidal", "rope")])
    out.append(_verdict("trained on ends: the first is slightly better than the last", all(slightly), figure))
    lost = [
        key
        for key, x in g.items()
        if key[0] != "none" and key[2] != "none" and sign(x[:, FM]) > 0 and sign(x[:, ML]) < 0
    ]
    elsewhere = [key for key in lost if key[0] != "ends"]
    out.append(
        _verdict(
            "the middle is lost only when trained on ends",
            len(lost) > 0 and not elsewhere,
            f"{len(lost) - len(elsewhere)} of 4 there, {len(elsewhere)} elsewhere",
        )
    )
    return out


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
    runs: Mapping[Setting, xr.Dataset], residual: bool, encodings: Iterable[Encoding]
) -> dict[tuple[str, int], np.ndarray]:
    return {
        (s.network.encoding, s.network.layers): gaps(x)
        for s, x in runs.items()
        if s.network.residual == residual and s.network.encoding in encodings and s.network.mask.kind == "causal"
    }


def _complete(found: Mapping[tuple[str, int], np.ndarray], encodings: Sequence[Encoding]) -> list[int]:
    """Return the depths for which every encoding is there."""
    return [T for T in sorted({T for _, T in found}) if all((e, T) in found for e in encodings)]


def _signed(values: Iterable[float]) -> str:
    return ", ".join(f"{x:+.2f}" for x in values)


def _of(found: Sequence[object]) -> str:
    return f"{sum(map(bool, found))} of {len(found)}"


def _tops(sinks: np.ndarray) -> str:
    """Return the three tokens with most of the metric, the query left out, counted from 1."""
    order = np.argsort(-sinks[:-1])[:3]
    return "tokens " + ", ".join(f"{k + 1} ({sinks[k]:.2f})" for k in order)
