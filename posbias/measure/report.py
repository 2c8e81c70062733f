"""A report on one measurement: a single HTML file with its figures, scores and provenance, and how to read them."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.comparison.pairs import Comparison, compare
from posbias.files import write_whole
from posbias.plotting import inline_svg, plot_mixing, plot_prediction
from posbias.rollout.labelled import Profile

STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fff; --quiet: #5d5d5d; --line: #d0d0d0; --shade: #f4f4f4; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --paper: #16181c; --quiet: #a8a8a8; --line: #3d4147; --shade: #1f2228; }
}
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 46rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
figure { margin: 1.2rem 0; } figcaption, .quiet { color: var(--quiet); font-size: 0.92rem; }
svg { width: 100%; height: auto; color: var(--ink); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3rem 0.6rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; } thead th { border-bottom-width: 2px; }
tr.best { background: var(--shade); font-weight: 600; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.1rem 1rem; font-size: 0.88rem; }
dt { color: var(--quiet); } dd { margin: 0; overflow-wrap: anywhere; } li { margin: 0.25rem 0; }
"""

READING = (
    "The thick curve is measured: how strongly each input token moves the probability of the most likely next token "
    "(gradient norms, averaged over the prompts, normalised to sum 1).",
    "The other curves are predictions. Most are rollouts: the product of all layers' averaged attention, each mixed "
    "with the identity by λ. They know no token and no gradient.",
    "The influence axis is logarithmic, and the dashed line is an equal share, 1/n, for every token.",
    "(a) has no residual stream; (b) adds it, with the λ below; (c) adds mean content logits; the rollout with "
    "measured attention takes the measured mean instead of a formula for it.",
    "High on the left: the causal mask, which every hop of attention feeds. High on the right: the residual stream, "
    "which keeps each token's own state, and encodings that favour recent tokens.",
    "W₁ is how far influence has to be moved, on average, to turn one profile into the other, as a share of the "
    "length: 0 is equal, a shift of the whole profile by a tenth of the length is 0.1.",
    "The two baselines in italics know nothing of the model. A rollout that is no nearer than these predicts nothing.",
    "Intervals hold 95 % of the distances over prompts drawn again with replacement: they say what other prompts of "
    "the same kind could have given, not what another corpus or another training run would.",
    "Spearman compares the order of positions only; the mean is the average position, 0 first and 1 last.",
    "Small influence is not small use: gradients are local, and a token that is found when it matters can have little "
    "influence on average.",
)
AT_BIRTH = (
    "The law at birth is no rollout: it adds squares over sets of layers where a rollout adds sizes. In place of λ it "
    "takes the gains of the weights, what the norms divide by, and what the MLPs do to gradients. It is derived for "
    "weights drawn independently, as before training; of a trained model it says what such weights would give."
)
"""Stands below rollouts where the law at birth is among the predictions."""


def write_report(
    path: Path,
    *,
    title: str,
    described: str,
    influence: Profile,
    rollouts: Mapping[str, Profile],
    scores: Mapping[str, Comparison],
    mixing: Float[np.ndarray, "T"],
    provenance: Mapping[str, Any],
) -> Path:
    """Write a report and return its path.

    Parameters
    ----------
    path
        The file to write, whole or not at all.
    title, described
        The model, and what was measured of it in a few words.
    influence
        Measured.
    rollouts
        Label → prediction.
    scores
        Of the predictions, in their order, by variant.
    mixing
        λ of each layer.
    provenance
        Name → value.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    rows = dict(zip(rollouts, scores.values(), strict=True))
    best = min(rows, key=lambda label: rows[label].wasserstein)
    curves = f"Influence of {len(influence)} positions on a logarithmic axis, measured and by rollout. "
    curves += ". ".join(repr(influence).splitlines()[:2])
    layers = f"Mixing coefficient of {len(mixing)} layers: {', '.join(f'{x:.3f}' for x in mixing)}."
    most, least = int(mixing.argmax()), int(mixing.argmin())
    nearest = f"Measured influence (thick) and its predictions, of which {best} comes nearest."
    strongest = f"Attention adds most in layer {most + 1}, λ = {mixing[most]:.3f}, and least in layer {least + 1}, "
    strongest += f"λ = {mixing[least]:.3f}."
    reading = [*READING[:4], *([AT_BIRTH] if "birth" in scores else []), *READING[4:]]
    parts = [
        f"<h1>Position bias of {escape(title)}</h1>",
        f'<p class="quiet">{escape(described)}</p>',
        f"<p>{_finding(influence, best, rows[best])}</p>",
        _figure(plot_prediction(influence.values, {k: p.values for k, p in rollouts.items()}).figure, curves, nearest),
        f"<h2>How near each prediction comes</h2>{_table(influence, rows, best)}",
        "<h2>How to read it</h2>",
        f"<ol>{''.join(f'<li>{escape(line)}</li>' for line in reading)}</ol>",
        f"<h2>Mixing</h2><p>What attention adds, against what it is added to: λ = ‖a‖ / (‖x‖ + ‖a‖), layer by layer. "
        f"Their sum, the total mixing, is {mixing.sum():.2f}: the hops of attention on an average path.</p>",
        _figure(plot_mixing(mixing).figure, layers, strongest),
        "<h2>Where the numbers come from</h2>",
        f"<dl>{''.join(_fact(name, value) for name, value in provenance.items())}</dl>",
    ]
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    head += f"<title>Position bias of {escape(title)}</title><style>{STYLE}</style>"
    body = "\n".join(parts)
    write_whole(path, f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n')
    return path


def _finding(influence: Profile, best: str, score: Comparison) -> str:
    """Return the result in two sentences."""
    where = "the first half" if influence.mean_position < 0.5 else "the second half"
    beaten = score.wasserstein < min(score.even, score.last)
    verdict = "nearer than both baselines" if beaten else "<strong>no nearer than the better baseline</strong>"
    return (
        f"On average the next token draws on {where} of the prompt: mean position {influence.mean_position:.2f}, "
        f"{influence.first:.1%} of the influence on the first token and {influence.last:.1%} on the last. "
        f"The nearest rollout is <em>{escape(best)}</em>, {score.wasserstein:.3f} of the length "
        f"away: {verdict}."
    )


def _fact(name: str, value: Any) -> str:
    return f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>"


def _figure(figure: Any, description: str, caption: str) -> str:
    return f"<figure>{inline_svg(figure, description)}<figcaption>{escape(caption)}</figcaption></figure>"


def _table(influence: Profile, rows: Mapping[str, Comparison], best: str) -> str:
    """Return the scores of predictions and baselines as a table."""
    n = len(influence)
    blind = {"equal shares": np.full(n, 1 / n), "all on the last token": np.eye(n)[-1]}
    lines = [_row(label, score, best=label == best) for label, score in rows.items()]
    lines += [_row(label, compare(p, influence), italic=True) for label, p in blind.items()]
    lines.append(f"<tr><td>measured</td><td></td><td></td><td></td><td>{influence.mean_position:.3f}</td></tr>")
    titles = ("prediction", "W₁", "95 % interval", "Spearman", "mean")
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _row(label: str, score: Comparison, *, best: bool = False, italic: bool = False) -> str:
    name = f"<em>{escape(label)}</em>" if italic else escape(label)
    interval = "–" if score.interval is None else f"{score.interval[0]:.3f} to {score.interval[1]:.3f}"
    rank = "–" if np.isnan(score.spearman) else f"{score.spearman:.3f}"
    cells = (f"{score.wasserstein:.3f}", interval, rank, f"{score.means[0]:.3f}")
    mark = ' class="best"' if best else ""
    return f"<tr{mark}><td>{name}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
