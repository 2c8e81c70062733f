"""Batched networks against one network written out in numpy, and against what can be worked out by hand."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from posbias.rollout.logits import rope_logits  # noqa: E402
from posbias.rollout.masks import causal, full, prefix, sliding_window  # noqa: E402
from posbias.training.retrieval.evaluation import accuracies, look_inside  # noqa: E402
from posbias.training.retrieval.members import Members  # noqa: E402
from posbias.training.retrieval.settings import Network, Setting, Task  # noqa: E402
from posbias.training.retrieval.task import Stream  # noqa: E402

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


def two_members(setting, dtype=torch.float64):
    """Return two networks with biases, and attention far from uniform; their products have 64 bits."""
    torch.manual_seed(0)
    members = Members([setting, setting], [5, 6], dtype=dtype)
    for name, x in members.weights.items():
        if name.startswith("bias"):
            torch.nn.init.normal_(x)
        if name.startswith(("query", "key")):
            x.data *= 3
    return members


@pytest.mark.parametrize("setting", CASES, ids=lambda s: s.name)
def test_a_member_computes_what_the_printed_equations_say(setting):
    members = two_members(setting)
    tokens = torch.randn(2, 3, N, TASK.dimension)
    with torch.no_grad():
        logits, rounded = members(tokens), two_members(setting, torch.float32)(tokens)
        kernels, frobenius, token = members.inside(tokens)
    for m in range(2):
        weights = {name: x[m].detach().double().numpy() for name, x in members.weights.items()}
        for b in range(3):
            expected, A = network_ref(setting, weights, tokens[m, b].double().numpy())
            size = np.abs(expected).max()  # the softmax has 32 bits: up to 3e-6 of it, 3e-5 where the products have too
            np.testing.assert_allclose(logits[m, b], expected, rtol=0, atol=3e-5 * size)
            np.testing.assert_allclose(rounded[m, b], expected, rtol=0, atol=3e-4 * size)
            np.testing.assert_allclose(kernels[:, m, b], A, rtol=5e-4, atol=1e-6)
    assert ((frobenius > 0) & (frobenius < 1) & (token > 0)).all() == setting.network.residual


@pytest.mark.parametrize("setting", CASES, ids=lambda s: s.name)
def test_derivatives_are_those_of_the_printed_equations(setting):
    members, step = two_members(setting), 1e-6
    tokens = torch.randn(2, 1, N, TASK.dimension, requires_grad=True)
    coefficients = torch.randn(TASK.labels)
    (members(tokens)[:, 0] @ coefficients).sum().backward()
    weights = {name: x[1].detach().double().numpy() for name, x in members.weights.items()}
    slopes = {name: x.grad[1].numpy() for name, x in members.weights.items()} | {"tokens": tokens.grad[1, 0].numpy()}
    rng = np.random.default_rng(0)
    for name, slope in slopes.items():
        direction = rng.normal(size=slope.shape)
        ends = []
        for way in (step, -step):
            moved = dict(weights, tokens=tokens[1, 0].detach().double().numpy())
            moved[name] = moved[name] + way * direction
            ends.append(network_ref(setting, moved, moved["tokens"])[0] @ coefficients.double().numpy())
        expected = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose((slope * direction).sum(), expected, rtol=2e-3, atol=2e-4, err_msg=name)


def test_members_do_not_touch_one_another():
    settings = [CASES[0], Setting(TASK, Network(2, sliding_window(2), "decay"))]
    both, alone = Members(settings, [0, 1]), Members(settings[1:], [1])
    tokens = torch.randn(2, 4, N, TASK.dimension)
    assert torch.allclose(both(tokens)[1], alone(tokens[1:])[0], rtol=1e-4, atol=1e-5)
    both(tokens)[1].sum().backward()
    assert all((x.grad[0] == 0).all() for x in both.weights.values())
    assert all(x.grad[1].abs().sum() > 0 for x in both.weights.values())


def test_what_the_mask_forbids_has_no_influence():
    members = Members([Setting(TASK, Network(2, sliding_window(3)))], [0])
    tokens = torch.randn(1, 2, N, TASK.dimension, requires_grad=True)
    members(tokens).sum().backward()
    reached = tokens.grad.abs().sum((0, 1, 3)) > 0
    assert reached.tolist() == [j >= N - 1 - 2 * 2 for j in range(N)]


def test_products_in_16_bits_are_near_those_in_32():
    setting = Setting(network=Network(4, residual=True))
    tokens = Stream(setting.task, 0).batch(8)[0][None]
    exact, rough = (Members([setting], [0], dtype=dtype)(tokens) for dtype in (torch.float32, torch.bfloat16))
    assert 0 < (exact - rough).abs().max() < 0.05 * exact.abs().max()


def test_refused_are_members_of_different_shapes_and_too_few_seeds():
    with pytest.raises(ValueError, match="settings: expected networks of one shape, received 2 shapes"):
        Members([CASES[0], CASES[1]], [0, 1])
    with pytest.raises(ValueError, match="seeds: expected one for each of the 1 settings, received 2"):
        Members(CASES[:1], [0, 1])


def test_sinks_mixing_and_influence_of_networks_that_attend_evenly():
    settings = [
        Setting(TASK, Network(2, causal(), residual=True)),
        Setting(TASK, Network(2, sliding_window(2), residual=True)),
    ]
    members = Members(settings, [0, 0])
    for t in range(2):
        members.weights[f"query_{t}"].data.zero_()
        members.weights[f"value_{t}"].data = torch.eye(TASK.dimension).expand(2, -1, -1).clone()
    seen = look_inside(members, [Stream(TASK, 0), Stream(TASK, 0)], 600)
    i = np.arange(1, N + 1)
    np.testing.assert_allclose(seen.kernels[0, 0], np.tril(np.ones((N, N))) / i[:, None], rtol=1e-6)
    above = np.where(i <= 4, 4 - i + 1, 0) / (N - i + 1)  # 1/i > 0.2 for the first four queries
    np.testing.assert_allclose(seen.sinks[0], np.stack([above, above]), rtol=1e-6)
    np.testing.assert_allclose(seen.sinks[1], 1.0)  # two tokens, a half each
    assert (seen.lambda_frobenius < 0.5).all() and (
        seen.lambda_frobenius > 0.2
    ).all()  # a mean is no longer than its parts
    assert seen.influence.sum(1).numpy() == pytest.approx([1, 1])
    assert (seen.influence[1, : N - 3] == 0).all() and (seen.influence[0] > 0).all()


def test_a_network_that_is_sure_still_has_an_influence():
    members = Members([Setting(TASK, Network(1))], [0])
    tokens = Stream(TASK, 0)
    calm = look_inside(members, [tokens.apart(1)], 20).influence
    members.weights["hidden_2"].data *= 3e3  # many gradients are 0 in 32 bits, and the squares of most
    sure = look_inside(members, [tokens.apart(1)], 20)
    assert torch.isfinite(sure.influence).all() and sure.influence.sum().item() == pytest.approx(1)
    assert (sure.influence - calm).abs().max() < 0.5


class Oracle:
    """Networks that tell the label at one place, which the test knows from the vectors."""

    def __init__(self, streams, place):
        self.streams, self.place = streams, place

    def __call__(self, tokens):
        at = tokens[:, :, 2 * self.place + 1]
        return torch.stack([x @ s.label_vectors.T for x, s in zip(at, self.streams, strict=True)])


def test_a_network_that_always_copies_the_first_label_prefers_the_first_place():
    task = Task()
    streams = [Stream(task, seed) for seed in (0, 1)]
    for stream in streams:  # so that the nearest label vector is the vector itself
        stream.label_vectors = torch.nn.functional.normalize(stream.label_vectors, dim=1)
    found = accuracies(Oracle(streams, task.places["first"]), streams, 700)
    assert found.tolist() == [[[1, 0], [1, 0], [0, 0]]] * 2
    found = accuracies(Oracle(streams, task.places["last"]), streams, 10)
    assert found.tolist() == [[[0, 0], [0, 1], [0, 1]]] * 2
