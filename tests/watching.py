"""What a tiny model computes and what the instrument hands out of it, kept to be compared."""

import torch
from measuring import make, prompts
from torch.overrides import TorchFunctionMode

from posbias.measure.instrument import Instrument


class Kept:
    """Copies of all that a measurement hands out."""

    def __init__(self, instrument, ids):
        self.readings = []
        self.batch = instrument.measure(ids, self.keep)

    def keep(self, reading):
        fields = ("logits", "probabilities", "bias", "allowed")
        copies = {f: getattr(reading, f).clone() for f in fields if getattr(reading, f) is not None}
        self.readings.append((reading.layer, copies, reading.content().clone()))

    def __iter__(self):
        return iter(sorted(self.readings, key=lambda seen: seen[0]))


class Readings(dict):
    """Names of tiny models → (model, instrument, readings), each made when it is first asked for."""

    def __missing__(self, name):
        model = make(name)
        self[name] = model, Instrument(model), Kept(Instrument(model), prompts())
        return self[name]


class Products(TorchFunctionMode):
    """Collect the operands of the products (B, H, n, d) × (B, H, d, n) that a model forms: q and k themselves."""

    def __init__(self, n):
        super().__init__()
        self.n, self.found = n, []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if func in (torch.Tensor.baddbmm, torch.baddbmm):
            operands = (kwargs["batch1"], kwargs["batch2"]) if "batch1" in kwargs else args[1:3]
        else:
            operands = args if func in (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__) else ()
        if len(operands) == 2 and operands[0].shape[-2] == self.n == operands[1].shape[-1] != operands[0].shape[-1]:
            self.found.append(tuple(x.detach().double() for x in operands))
        return out
