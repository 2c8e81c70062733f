"""Networks among rivals: what is drawn, and what is counted as found."""

import numpy as np
import torch

from studies.lookup import rivals
from studies.lookup.settings import Setting


class Oracle(torch.nn.Module):
    """Answer with the value of the first fact that has the kind asked for, or both kind and name."""

    def __init__(self, both):
        super().__init__()
        self.both = both

    def forward(self, kind, name, value):
        fits = kind[:, :-1] == kind[:, -1:]
        if self.both:
            fits &= name[:, :-1] == name[:, -1:]
        return torch.nn.functional.one_hot(value.gather(1, fits.int().argmax(1, keepdim=True))[:, 0], 17)


def test_among_rivals_the_kind_alone_does_not_tell():
    setting = Setting(pairs=4)
    assert (rivals.accuracy(Oracle(both=True), setting, 4, 50, seed=1) == 1).all()
    competing, others = rivals.accuracy(Oracle(both=False), setting, 4, 50, seed=1)
    assert competing[0] == 1 and competing[1:].max() < 0.2 and (others == 1).all()


def test_what_is_kept(monkeypatch):
    for name, few in {"STEPS": 2, "TESTS": 2, "EACH": 1, "AT_THE_END": 1, "FACTS": 3}.items():
        monkeypatch.setattr(rivals, name, few)
    found = rivals.train_rivals("alibi", 2)
    assert dict(found.sizes) == {"seed": 2, "tested": 2, "arm": 2, "place": 3, "place_2": 6, "place_4": 12}
    assert np.isfinite(found.to_array()).all() and found["tested"].values.tolist() == [1, 2]
