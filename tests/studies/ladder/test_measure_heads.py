"""Values of every head, and head averages that weigh by them."""

import itertools

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from measuring import CONFIGS, make, prompts

from posbias.measure.instrument import Instrument
from posbias.networks.families import output_projection
from studies.ladder.heads import WEIGHTINGS, ValueReading, read_values

EVERY = sorted(set(CONFIGS) - {"gpt2-inverse-layer"})  # which wants 32 bits; the way through it is gpt2's


def readings(ours, ids):
    found = []
    read_values(ours, ids, found.append)
    return found


@pytest.mark.parametrize("name", EVERY)
def test_weighted_values_are_what_the_projection_gives(name):
    ours, ids, outputs = Instrument(make(name, dtype=torch.float64)), prompts(B=2), []
    projections = [output_projection(attention) for attention in ours.attentions]
    handles = [p.register_forward_hook(lambda module, args, output: outputs.append(output)) for p in projections]
    found = readings(ours, ids)
    for handle in handles:
        handle.remove()
    assert [reading.layer for reading in found] == list(range(ours.T))
    for reading, output, projection in zip(found, outputs, projections, strict=True):
        moved = torch.einsum("bhij,bhjd->bid", reading.weights, reading.projected)
        bias = 0 if projection.bias is None else projection.bias
        assert torch.allclose(moved + bias, output, rtol=1e-4, atol=1e-5 * output.abs().max().item())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in ours.model.modules())


@pytest.mark.parametrize("name", ["bloom", "llama", "gpt2"])
def test_kernels_written_out(name):
    ours, ids = Instrument(make(name, dtype=torch.float64)), prompts(B=1, n=5)
    for reading in readings(ours, ids):
        kernels = reading.kernels()[:, 0]
        written = torch.zeros_like(kernels)
        A, v, w = reading.weights[0].double(), reading.values[0], reading.projected[0]
        for i, j in itertools.product(range(5), repeat=2):
            for h in range(ours.H):
                written[0, i, j] += A[h, i, j]
                written[1, i, j] += A[h, i, j] * v[h, j].norm()
                written[2, i, j] += A[h, i, j] * w[h, j].norm()
            written[3, i, j] = sum(A[h, i, j] * w[h, j] for h in range(ours.H)).norm()
        assert torch.allclose(kernels, written / written.sum(-1, keepdim=True), rtol=1e-5, atol=1e-9)
        assert torch.allclose(kernels.sum(-1), torch.ones_like(kernels[..., 0]))
        assert not kernels.triu(1).any()


def test_by_hand():
    """Two heads on two tokens: the first looks back at a value of 3, the second at itself with a value of 1."""
    A = torch.tensor([[[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]]])
    v = torch.tensor([[[[3.0], [0.0]], [[1.0], [1.0]]]])
    directions = torch.tensor([[[1.0, 0.0]], [[0.0, 2.0]]])  # what each head's value becomes
    reading = ValueReading(0, A, v, torch.einsum("hde,bhnd->bhne", directions, v))
    last = dict(zip(WEIGHTINGS, reading.kernels()[:, 0, 1].tolist(), strict=True))
    assert last["uniform"] == [0.5, 0.5] and last["values"] == [0.75, 0.25]
    assert last["projected"] == pytest.approx([0.6, 0.4]) and last["vectors"] == pytest.approx([0.6, 0.4])


def test_refuses_attention_without_a_projection():
    with pytest.raises(ValueError, match="output projection o_proj"):
        output_projection(torch.nn.Linear(2, 2))


def test_a_layer_that_multiplies_nothing_is_noticed():
    ours = Instrument(make("llama"))
    ours.attentions.append(ours.attentions[0])  # one more than there are softmaxes in the layers counted
    ours.layers.append(ours.layers[0])
    with pytest.raises(RuntimeError):
        readings(ours, prompts(B=1))
