"""Try the row of a model's family: ``python -m posbias.models.check DIR`` prints how far each comparison is off.

Each is of one thing that the row says, by means that do not use what it says, so that a line which disagrees names the
fields to look at.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import set_seed

from posbias.measure.check import Comparison, compare_model
from posbias.measure.instrument import Instrument
from posbias.measure.plain import FAILS
from posbias.models.attention import Reading
from posbias.models.families import causal_class, family_of, text_config
from posbias.models.loading import Source
from posbias.models.mixers import Given

WITHIN = 1e-4
"""How far off what measuring does not compare may be, of its size."""
TOKENS = 12


def main(words: list[str] | None = None) -> int:
    """Try a row, print what agrees and what does not, and return 1 if something does not, 2 for what is refused."""
    parser = argparse.ArgumentParser(prog="python -m posbias.models.check", description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path, metavar="DIR", help="directory of a model, or of a config.json alone")
    try:
        model = _opened(parser.parse_args(words).folder)
        vocabulary = text_config(model.config).vocab_size
        ids = torch.randint(1, vocabulary, (1, TOKENS), generator=torch.Generator().manual_seed(0))
        agree = True
        for one in comparisons(Instrument(model), ids):
            agree = agree and one.holds
            print(one, flush=True)
    except FAILS as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2
    print("the row agrees with the model" if agree else "the row DISAGREES with the model")
    return 0 if agree else 1


def _opened(folder: Path) -> Any:
    """Return the model in a directory, in 32 bits and eager attention; random weights where there are none.

    Random weights are larger than those of a network before training, so that its attention is far from uniform.
    """
    source = Source(str(folder))
    config = source.config()
    family_of(config)  # raises without a row
    if any(folder.glob("*.safetensors")):
        return source.load_model(torch.float32, "cpu", None, "eager").eval().requires_grad_(False)
    set_seed(0)
    model = causal_class(config).from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    with torch.no_grad():
        for x in model.parameters():
            x.add_(torch.randn_like(x) * (1.5 * x.shape[-1] ** -0.5 if x.dim() > 1 else 0.3))
    return model.requires_grad_(False)


def comparisons(instrument: Instrument, ids: Int[Tensor, "1 n"]) -> Iterator[Comparison]:
    """Yield all that is compared of a row, on a few tokens in 32 bits, with eager attention."""
    row = instrument.family
    yield from compare_model(instrument, ids, 32)[1]
    seen: list[Reading] = []
    softmax: list[float] = []

    def observe(reading: Reading | Given) -> None:
        if isinstance(reading, Given):
            return
        again = replace(reading, logits_qk=None, weights=None)
        softmax.append(_apart(again.probabilities, reading.probabilities))
        seen.append(reading)

    instrument.forward(ids, observe)
    if not seen:
        return
    yield Comparison("attention, against a softmax of content and bias", max(softmax), WITHIN, "bias, scale, calls")
    stated = row.scale(instrument.attentions[0])
    scale = 0.0 if seen[0].scale == 1 else abs(seen[0].scale / stated - 1)  # 1: queries are multiplied before
    yield Comparison(f"scale of q·k, {seen[0].scale:.6g}, against {stated:.6g} as the row says", scale, WITHIN, "scale")
    try:
        off = _values_apart(instrument, ids)
    except (*FAILS, StopIteration):
        off = torch.inf
    what = "values, against what norm and projections make of x_t"
    yield Comparison(what, off, WITHIN, "norm, projections, groups, latent")


def _values_apart(instrument: Instrument, ids: Int[Tensor, "1 n"]) -> float:
    """Compare the values that attention is given with what the row's norm and projections make of x_t."""
    row, off = instrument.family, []

    def observe(reading: Reading | Given) -> None:
        if isinstance(reading, Given):
            return
        layer = instrument.layers[reading.layer]
        attention = row.attention_of(layer)
        read, size = reading.stream, reading.value.shape[-1]
        if row.norm and getattr(layer, "do_layer_norm_before", True) and row.stream_of(layer) is None:
            read = row.norm_of(layer)(read)
        if row.latent is None:
            made = [(k, one(read)) for k, one in enumerate(row.projections_of(attention))]
            values = [x[..., torch.from_numpy(row.columns(attention, k, x.shape[-1]) == "v")] for k, x in made]
            V = torch.cat(values, dim=-1).unflatten(-1, (-1, size))
        else:
            parts: Any = [attention.get_submodule(path) for path in row.latent]
            norm, into, out_of = parts
            short = norm(into(read)[..., : out_of.weight.shape[-1]])
            V = out_of(short).unflatten(-1, (instrument.H, -1))[..., -size:]
        V = V.transpose(1, 2).repeat_interleave(instrument.H // V.shape[2], dim=1)
        off.append(_apart(V, reading.values))

    instrument.measure(ids, observe)
    return max(off)


def _apart(one: Float[Tensor, "..."], own: Float[Tensor, "..."]) -> float:
    """Return the largest difference of two tensors, of the size of the largest number."""
    if one.shape != own.shape:
        return torch.inf
    return float((one.double() - own.double()).abs().max() / own.double().abs().max())


if __name__ == "__main__":
    sys.exit(main())
