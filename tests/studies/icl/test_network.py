"""A network against one that is written out in numpy, and against what can be worked out by hand."""

import numpy as np
import pytest
import torch

from posbias.rollout.masks import causal, full, prefix, sliding_window
from studies.icl.evaluation import accuracies, look_inside
from studies.icl.network import AttentionOnly
from studies.icl.settings import Network, Setting, Task
from studies.icl.task import Stream
from studies.rotation import rope_logits

TASK = Task(items=4, classes=40, labels=8, burstiness=2, dimension=6)
N = TASK.tokens


def network_ref(setting, weights, x):
    """Return the logits and the kernels of one network on one sequence, (N, d), step by step as printed."""
    k, d = setting.network, setting.task.dimension
    frequencies = 10000.0 ** (-2 * np.arange(d // 2) / d)
    if k.encoding == "sinusoidal":
        table = np.zeros((N, d))
        for p in range(N):
            for c in range(d):
                table[p, c] = (np.sin if c % 2 == 0 else np.cos)(p * frequencies[c // 2])
        x = x + table
    kernels = []
    for t in range(k.layers):
        q, key = x @ weights[f"query_{t}"], x @ weights[f"key_{t}"]
        if k.encoding == "rope":  # the components that are turned together lie half a vector apart
            order = np.arange(d).reshape(2, -1).T.flatten()
            logits = rope_logits(q[:, order], key[:, order], frequencies)
        else:
            logits = q @ key.T
        logits = logits / np.sqrt(d)
        for i in range(N):
            for j in range(N):
                if k.encoding == "decay":
                    logits[i, j] -= k.slope * max(i - j, 0)
                if not k.mask.matrix(N)[i, j]:
                    logits[i, j] = -np.inf
        A = np.exp(logits - logits.max(1, keepdims=True))
        A /= A.sum(1, keepdims=True)
        kernels.append(A)
        branch = A @ (x @ weights[f"value_{t}"])
        x = x + branch if k.residual else branch
    h = x[-1]
    for layer in range(3):
        h = h @ weights[f"hidden_{layer}"] + weights[f"bias_{layer}"]
        h = np.maximum(h, 0) if layer < 2 else h
    return h, np.stack(kernels)


CASES = [
    Setting(TASK, Network(2, causal(), "none", residual=False)),
    Setting(TASK, Network(3, causal(), "decay", residual=True)),
    Setting(TASK, Network(1, full(), "none", residual=True)),
    Setting(TASK, Network(2, full(), "sinusoidal", residual=True)),
    Setting(TASK, Network(2, causal(), "rope", residual=False)),
    Setting(TASK, Network(3, full(), "rope", residual=True)),
    Setting(TASK, Network(2, sliding_window(3), "none", residual=False)),
    Setting(TASK, Network(2, prefix(4), "decay", residual=True)),
]


def with_biases(setting, dtype=torch.float64):
    """Return a network with biases, and attention far from uniform; its products have 64 bits."""
    torch.manual_seed(0)
    network = AttentionOnly(setting, 5, dtype=dtype)
    for name, x in network.weights.items():
        if name.startswith("bias"):
            torch.nn.init.normal_(x)
        if name.startswith(("query", "key")):
            x.data *= 3
    return network


@pytest.mark.parametrize("setting", CASES, ids=lambda s: s.name)
def test_a_network_computes_what_the_printed_equations_say(setting):
    network = with_biases(setting)
    tokens = torch.randn(3, N, TASK.dimension)
    with torch.no_grad():
        logits, rounded, rough = (
            with_biases(setting, x)(tokens) for x in (torch.float64, torch.float32, torch.bfloat16)
        )
        kernels, frobenius, token = network.inside(tokens)
    weights = {name: x.detach().double().numpy() for name, x in network.weights.items()}
    for b in range(3):
        expected, A = network_ref(setting, weights, tokens[b].double().numpy())
        size = np.abs(expected).max()  # the softmax has 32 bits: up to 3e-6 of it, 3e-5 where the products have too
        np.testing.assert_allclose(logits[b], expected, rtol=0, atol=3e-5 * size)
        np.testing.assert_allclose(rounded[b], expected, rtol=0, atol=3e-4 * size)
        np.testing.assert_allclose(rough[b], expected, rtol=0, atol=0.3 * size)
        np.testing.assert_allclose(kernels[:, b], A, rtol=5e-4, atol=1e-6)
    assert ((frobenius > 0) & (frobenius < 1) & (token > 0)).all() == setting.network.residual


@pytest.mark.parametrize("setting", CASES, ids=lambda s: s.name)
def test_derivatives_are_those_of_the_printed_equations(setting):
    network, step = with_biases(setting), 1e-6
    tokens = torch.randn(1, N, TASK.dimension, requires_grad=True)
    coefficients = torch.randn(TASK.labels)
    (network(tokens)[0] @ coefficients).backward()
    weights = {name: x.detach().double().numpy() for name, x in network.weights.items()}
    slopes = {name: x.grad.numpy() for name, x in network.weights.items()} | {"tokens": tokens.grad[0].numpy()}
    rng = np.random.default_rng(0)
    for name, slope in slopes.items():
        direction = rng.normal(size=slope.shape)
        ends = []
        for way in (step, -step):
            moved = dict(weights, tokens=tokens[0].detach().double().numpy())
            moved[name] = moved[name] + way * direction
            ends.append(network_ref(setting, moved, moved["tokens"])[0] @ coefficients.double().numpy())
        expected = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose((slope * direction).sum(), expected, rtol=2e-3, atol=2e-4, err_msg=name)


@pytest.mark.parametrize("mask", [causal(), sliding_window(2)], ids=str)
def test_sinks_mixing_and_influence_of_a_network_that_attends_evenly(mask):
    network = AttentionOnly(Setting(TASK, Network(2, mask, residual=True)), 0)
    for t in range(2):
        network.weights[f"query_{t}"].data.zero_()
        network.weights[f"value_{t}"].data = torch.eye(TASK.dimension)
    seen = look_inside(network, Stream(TASK, 0), 600)
    i = np.arange(1, N + 1)
    A = mask.matrix(N) / mask.matrix(N).sum(1, keepdims=True)
    np.testing.assert_allclose(seen.kernels, [A, A], rtol=1e-6)
    if mask.kind == "causal":
        above = np.where(i <= 4, 4 - i + 1, 0) / (N - i + 1)  # 1/i > 0.2 for the first four queries
        np.testing.assert_allclose(seen.sinks, [above, above], rtol=1e-6)
        assert (seen.influence > 0).all()
    else:
        np.testing.assert_allclose(seen.sinks, 1.0)  # two tokens, a half each
        assert (seen.influence[: N - 3] == 0).all()
    assert ((seen.lambda_frobenius > 0.2) & (seen.lambda_frobenius < 0.5)).all()  # a mean is no longer than its parts
    assert seen.influence.sum().item() == pytest.approx(1)


@pytest.mark.parametrize(
    ("place", "expected"), [("first", [[1, 0], [1, 0], [0, 0]]), ("last", [[0, 0], [0, 1], [0, 1]])]
)
def test_a_network_that_always_copies_one_label_prefers_its_place(place, expected):
    stream = Stream(Task(), 0)  # so that the nearest label vector is the vector itself:
    stream.label_vectors = torch.nn.functional.normalize(stream.label_vectors, dim=1)
    at = 2 * Task().places[place] + 1
    found = accuracies(lambda tokens: tokens[:, at] @ stream.label_vectors.T, stream, 700)
    assert found.tolist() == expected


def test_initial_weights_have_the_variance_of_their_inputs():
    weights = AttentionOnly(Setting(Task(dimension=64), Network(hidden=128)), 0).weights
    variances = {"query_0": 1 / 64, "value_1": 1 / 64, "hidden_0": 2 / 64, "hidden_1": 2 / 128, "hidden_2": 1 / 128}
    for name, variance in variances.items():
        assert weights[name].var().item() == pytest.approx(variance, rel=0.1)
    assert not any(weights[f"bias_{k}"].any() for k in range(3))
