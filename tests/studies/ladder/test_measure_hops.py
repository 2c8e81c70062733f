"""The split of the input gradient by attention branches."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from measuring import make, prompts, save, write_documents

from posbias.measure.corpus import Corpus
from posbias.measure.instrument import Instrument
from posbias.measure.loading import Source
from posbias.measure.run import measured
from posbias.measure.study import Settings
from studies.ladder.gradients import counted_branches, gradient_by_hops, measure_hops

NAMES = ["bloom", "mpt", "falcon-alibi", "falcon-rotary", "llama", "gpt2", "gpt_neox", "gemma2"]


def instrument(name):
    return Instrument(make(name, dtype=torch.float64))


@pytest.mark.parametrize("name", NAMES)
def test_parts_add_up_to_the_gradient(name):
    ours, ids = instrument(name), prompts(B=2)
    parts = gradient_by_hops(ours, ids)
    reading = ours.measure(ids)
    assert parts.shape[:3] == (4, 2, ids.shape[1])
    assert torch.allclose(parts.sum(0).norm(dim=-1), reading.influence, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_no_hop_reaches_the_last_token_only(name):
    parts = gradient_by_hops(instrument(name), prompts(B=2))
    size = parts.norm(dim=-1)
    assert not size[0, :, :-1].any() and size[0, :, -1].min() > 1e-6 * size.max()
    assert size[1:, :, :-1].amax(dim=(1, 2)).min() > 0


def test_one_branch_alone_is_the_part_of_one_hop():
    """With the branches of all layers but one cut off, what is left beside no hop is that layer's share of one hop."""
    ours, ids = instrument("bloom"), prompts(B=1)
    parts = gradient_by_hops(ours, ids)
    total = torch.zeros_like(parts[1])
    for t in range(ours.T):
        cut = [o for k, o in enumerate(ours.family.output_of(layer) for layer in ours.layers) if k != t]
        handles = [o.register_forward_hook(lambda module, arguments, output: output.detach()) for o in cut]
        x = ours.embeddings(ids).requires_grad_(True)
        p = ours.model(inputs_embeds=x).logits[:, -1].softmax(-1).amax(-1).sum()
        (gradient,) = torch.autograd.grad(p, x)
        total += gradient - parts[0]
        for handle in handles:
            handle.remove()
    assert torch.allclose(total, parts[1], rtol=1e-4, atol=1e-8)


def test_the_model_is_left_as_it_was():
    ours, ids = instrument("llama"), prompts(B=1)
    before = ours.measure(ids).influence
    with counted_branches(ours, 1):
        inside = ours.model(ids).logits  # one copy: gradients into branches are lost, outputs are not
    assert torch.equal(inside, ours.model(ids).logits)
    assert torch.equal(ours.measure(ids).influence, before)
    assert not any(m._forward_hooks for m in ours.model.modules())


def test_deep_models_lose_nothing():
    ours = Instrument(make("bloom", n_layer=24))
    ids = prompts(B=1)
    parts = gradient_by_hops(ours, ids)
    assert torch.allclose(parts.sum(0).norm(dim=-1).double(), ours.measure(ids).influence, rtol=1e-3, atol=1e-8)
    assert not parts[0, :, :-1].any() and len(parts) == 25


def test_a_measurement_by_hops_adds_up(tmp_path):
    source, corpus = (
        Source(str(save(tmp_path / "model", "bloom"))),
        Corpus(str(write_documents(tmp_path / "d.jsonl", [40] * 3))),
    )
    settings = Settings(source, corpus, prompts=3, length=10, batch_size=2)
    hops, whole = measure_hops(settings), measured(settings)
    assert np.allclose(hops["influence"] / hops["influence"].sum(), whole["influence"], atol=1e-6)
    assert (hops["gradient_hops"].sum("hop").values >= hops["influence"].values * (1 - 1e-6)).all()
    assert np.allclose(hops["rollout_hops"].sum(("hop", "position")), 1)
    assert hops.attrs["model"] == "model" and hops.attrs["prompts"] == 3
