"""What the figures of Wu et al. (2025) are said to show, each sentence as a check on trained networks' results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import xarray as xr

from posbias import checks
from posbias.training.retrieval.outcomes import gaps
from posbias.training.retrieval.settings import SINK, Bias, Encoding, Setting

LEAST = 0.01
"""Differences in accuracy below this are not called a sign: on 10,000 sequences the standard error is below 0.007."""
FM, FL, ML = range(3)
"""Index of the pairs: first against middle, first against last, middle against last."""
NAMES = {"none": "no encoding", "decay": "decay mask", "sinusoidal": "sinusoidal", "rope": "RoPE"}
"""What encodings are called on pages."""
MASKS = {"full": "no mask", "causal": "causal"}
"""What masks are called there."""
SLIGHTLY = 0.1
"""A gap below this is called slight."""
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

    A quantity rises with depth if its difference from each depth to the next is positive in the sense of :func:`sign`.
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
        for e in DEPTH_ENCODINGS:
            sizes = [np.abs(with_residual[e, T]).mean(1) for T in depths]
            said = f"with a residual, {NAMES[e]}: the deeper, the larger the gaps"
            out.append(_verdict(said, _rises(sizes), ", ".join(f"{x.mean():.2f}" for x in sizes)))
        return out
    lines = {e: [with_residual[e, T][:, FL] for T in depths] for e in DEPTH_ENCODINGS}
    turns = [{sign(b - a) for a, b in pairwise(x)} >= {-1, 1} for x in lines.values()]
    figure = "; ".join(f"{NAMES[e]} {_signed(x)}" for e, x in lines.items())
    out.append(_verdict("with a residual depth is not monotonic, first against last", any(turns), figure))
    lost = {e: [T for T in depths if _loses_the_middle(with_residual[e, T])] for e in DEPTH_ENCODINGS}
    figure = "; ".join(f"{NAMES[e]} with {', '.join(map(str, found))} layers" for e, found in lost.items() if found)
    holds = depths[-1] in lost["rope"] and not lost["none"] and not lost["decay"]
    return [*out, _verdict("with a residual the middle is lost with deep RoPE alone", holds, figure or "by none")]


def _of_depth_alone(plain: Mapping[tuple[str, int], np.ndarray], depths: Sequence[int]) -> list[Verdict]:
    """Return what is said of networks without a residual."""
    out = []
    for e in DEPTH_ENCODINGS:
        middle, last = ([plain[e, T][:, k] for T in depths] for k in (FM, FL))
        said = f"no residual, {NAMES[e]}: the deeper, the more the first is favoured"
        figure = f"over the middle {_signed(middle)}; over the last {_signed(last)}"
        out.append(_verdict(said, _rises(middle) and _rises(last), figure))
    for one, other, said in (
        ("decay", "none", "no residual: the decay mask lowers the gap of first and last"),
        ("rope", "none", "no residual: RoPE lowers the gap of first and last"),
        ("decay", "rope", "no residual: the decay mask lowers it more than RoPE"),
    ):
        change = [plain[one, T][:, FL] - plain[other, T][:, FL] for T in depths]
        out.append(_verdict(said, all(sign(x) < 0 for x in change), _signed(change)))
    sizes = {(e, T): np.abs(plain[e, T]) for e in DEPTH_ENCODINGS for T in depths}
    small = {key: bool((g[:, ML] < g[:, [FM, FL]].min(1)).all()) for key, g in sizes.items()}
    others = sorted({NAMES[e] for (e, _), holds in small.items() if not holds})
    said = "no residual: the gap of middle and last is smaller than those with the first"
    figure = f"{sum(small.values())} of {len(small)}" + f"; not {', '.join(others)}" * bool(others)
    return [*out, _verdict(said, all(small.values()), figure)]


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
    lost = [key for key, x in g.items() if key[0] != "none" and _loses_the_middle(x)]
    elsewhere = [f"{MASKS[mask]} {NAMES[e]} on {b}" for b, mask, e in lost if b != "ends"]
    figure = f"{len(lost) - len(elsewhere)} of 6 there; elsewhere {', '.join(elsewhere) or 'none'}"
    said = "among biased data the middle is lost only when trained on ends"
    return [*_without_encoding(g), *_with_encoding(g), _verdict(said, 0 < len(lost) and not elsewhere, figure)]


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
    ahead = {(mask, e): g["ends", mask, e][:, FL].mean() for mask, e in ways}
    figure = ", ".join(f"{MASKS[mask]} {NAMES[e]} {x:+.2f}" for (mask, e), x in ahead.items())
    said = f"trained on ends: the first is better than the last, by less than {SLIGHTLY}"
    return [*out, _verdict(said, all(0 < x < SLIGHTLY for x in ahead.values()), figure)]


def sink_metrics(
    runs: Mapping[Setting, xr.Dataset], *, last_layer: bool = False, beyond_even: bool = False
) -> dict[Setting, np.ndarray]:
    """Return the sink metric of every token but the query, (2n,), mean over seeds.

    Parameters
    ----------
    runs
        Settings → results.
    last_layer
        The last layer alone, in place of the mean over layers.
    beyond_even
        Less what attention has that is spread evenly over what a query sees: a query of fewer than five tokens exceeds
        0.2 by counting alone.

    Source: Wu et al. 2025, appendix K.4.
    """
    out = {}
    for s, x in runs.items():
        by_layer = x["sinks"].values.mean(0)
        metric = by_layer[-1] if last_layer else by_layer.mean(0)
        out[s] = (metric - even_sinks(s) if beyond_even else metric)[:-1]
    return out


def even_sinks(setting: Setting) -> np.ndarray:
    """Return the sink metric of attention that is spread evenly over what each query sees, (2n + 1,).

    >>> even_sinks(Setting()).round(3)[:6]
    array([0.235, 0.188, 0.133, 0.071, 0.   , 0.   ])
    """
    seen = setting.network.mask.matrix(setting.task.tokens)
    even = seen / seen.sum(1, keepdims=True)
    return (even > SINK).sum(0) / seen.sum(0)


def sink_claims(metrics: Mapping[Setting, np.ndarray]) -> list[Verdict]:
    """Check what figures 7 and 8 say of attention sinks under causal, sliding-window and prefix masks.

    Parameters
    ----------
    metrics
        Settings of ``figure8`` (or 13) → the metric of every token but the query, from :func:`sink_metrics`.

    Raises
    ------
    ValueError
        If the causal mask, or all windows or all prefixes, are missing.

    Source: Wu et al. 2025, section K.4 and the captions of figures 7, 8, 12 and 13.
    """
    sinks = {(s.network.mask.kind, s.network.mask.width): x for s, x in metrics.items()}
    if not {"causal", "window", "prefix"} <= {kind for kind, _ in sinks}:
        raise checks.refuse("runs", "causal, window and prefix masks", ", ".join(kind for kind, _ in sinks) or "none")
    causal = sinks["causal", 0]
    out = [_verdict("causal mask: the first token is a sink", int(causal.argmax()) == 0, _tops(causal))]
    lead = {w: sinks[kind, w][0] - sinks[kind, w][1:].max() for kind, w in sorted(sinks) if kind == "window"}
    figure = ", ".join(f"ahead by {x:+.2f} at {w}" for w, x in lead.items())
    first, last = lead[min(lead)], lead[max(lead)]
    out.append(_verdict("wide windows make the first token a sink, narrow ones do not", first < 0 < last, figure))
    for K in sorted(w for kind, w in sinks if kind == "prefix"):
        x = sinks["prefix", K]
        said = f"prefix of {K}: every prefix token is more of a sink than any other"
        out.append(_verdict(said, x[:K].min() > x[K:].max(), _tops(x)))
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


def _rises(series: Sequence[np.ndarray]) -> bool:
    """Say whether a quantity, (seeds,) at each depth, rises from each depth to the next."""
    return all(sign(b - a) > 0 for a, b in pairwise(series))


def _signed(values: Iterable[np.ndarray | float]) -> str:
    """Return means over seeds, with their signs."""
    return ", ".join(f"{np.mean(x):+.2f}" for x in values)


def _of(found: Sequence[object]) -> str:
    return f"{sum(map(bool, found))} of {len(found)}"


def _tops(sinks: np.ndarray) -> str:
    """Return the three tokens with most of the metric, counted from 1."""
    order = np.argsort(-sinks)[:3]
    return "tokens " + ", ".join(f"{k + 1} ({sinks[k]:.2f})" for k in order)
