"""Single paths of the gradient, against their sum and against passes in which all other ways are cut."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from measuring import CONFIGS, make, prompts

from posbias.measure.instrument import Instrument
from studies.ladder.gradients import gradient_by_hops
from studies.ladder.paths import POWERS, Pathways, read_pathways, single_hops

EVERY = sorted(set(CONFIGS) - {"gpt2-inverse-layer"})  # which wants 32 bits; the way through it is gpt2's


def instrument(name):
    return Instrument(make(name, dtype=torch.float64))


@pytest.mark.parametrize("name", EVERY)
def test_paths_add_up_to_the_gradient_by_hops(name):
    ours, ids = instrument(name), prompts(B=1)
    hops = gradient_by_hops(ours, ids)[:, 0]
    paths = Pathways(ours, ids[0])
    first = paths.one_hop()
    each = torch.stack([torch.einsum("id,ide->ie", first[s], paths.home[s]) for s in range(ours.T)])
    one, alone = each.sum(0), single_hops(ours, ids)[:, 0]
    assert (alone - each).norm() < 1e-5 * each.norm()
    two = sum(paths.two_hops(s, t, first[s], 5).sum(0) for s in range(ours.T) for t in range(s))
    none = torch.einsum("id,ide->ie", paths.start, paths.home[-1] if ours.T == 0 else paths.around[-1] @ paths.home[-1])
    for ours_, theirs in ((none, hops[0]), (one, hops[1]), (two, hops[2])):
        assert (ours_ - theirs).norm() < 1e-5 * theirs.norm()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in ours.model.modules())


def open_only(ours, ids, open_at):
    """Return the gradient with attention branches open only in some layers, and there only at some positions."""
    handles = []

    def keep(positions):
        def hook(module, args, output):
            a = output[0] if isinstance(output, tuple) else output
            mask = torch.zeros(a.shape[1], 1, dtype=a.dtype)
            mask[positions] = 1
            a = mask * a + (1 - mask) * a.detach()
            return (a, *output[1:]) if isinstance(output, tuple) else a

        return hook

    for t, layer in enumerate(ours.layers):
        handles.append(ours.family.output_of(layer).register_forward_hook(keep(open_at.get(t, []))))
    e = ours.embeddings(ids).requires_grad_(True)
    (gradient,) = torch.autograd.grad(ours.logits(e).softmax(-1).amax(-1).sum(), e)
    for handle in handles:
        handle.remove()
    return gradient[0]


@pytest.mark.parametrize("name", ["bloom", "falcon-rotary", "gpt2", "gemma2"])
def test_one_path_is_what_only_both_hops_together_let_through(name):
    ours, ids = instrument(name), prompts(B=1)
    everywhere = list(range(ids.shape[1]))
    paths = Pathways(ours, ids[0])
    first = paths.one_hop()
    for (s, t), m in itertools.product([(1, 0), (2, 0), (2, 1)], [0, 4, ids.shape[1] - 1]):
        both = open_only(ours, ids, {s: everywhere, t: [m]})
        alone = open_only(ours, ids, {s: everywhere}), open_only(ours, ids, {t: [m]}), open_only(ours, ids, {})
        oracle = both - alone[0] - alone[1] + alone[2]
        u = paths.two_hops(s, t, first[s])[m]
        assert (u - oracle).norm() < 1e-5 * both.norm()
        assert not u[m + 1 :].any()


def test_the_reading_adds_what_the_paths_are():
    ours, ids = instrument("bloom"), prompts(B=1)
    paths, reading = Pathways(ours, ids[0]), read_pathways(ours, ids[0], together=5)
    first = paths.one_hop()
    u = torch.stack([paths.two_hops(s, t, first[s]) for s in range(ours.T) for t in range(s)])
    sizes = u.norm(dim=-1).flatten(0, 1)
    for k, r in enumerate(POWERS):
        assert np.allclose(reading.sizes[1, k], sizes.pow(r).sum(0).pow(1 / r))
    assert np.allclose(reading.total[1], u.sum((0, 1)).norm(dim=-1))
    assert np.allclose(reading.middle, u.sum(1).norm(dim=-1).sum(0))
    assert np.allclose(reading.middle_random, u.square().sum((1, 3)).sqrt().sum(0))
    assert (reading.total <= reading.sizes[:, 0] * (1 + 1e-9)).all()
    assert (np.diff(reading.sizes, axis=1) <= 1e-12).all()
    assert np.allclose(reading.total[0], gradient_by_hops(ours, ids)[1, 0].norm(dim=-1), rtol=1e-5)
