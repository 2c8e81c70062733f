"""What the study measures of a model, by brute force on tiny ones: a forward pass for each changed prompt."""

import numpy as np
import pytest
import torch
from measuring import VOCABULARY, make, prompts

from posbias.measure.instrument import Instrument
from studies import changes
from studies.real import measure

KINDS = ("llama", "gpt2", "bloom")
FRONTS = ((), (5, 7))


def whole(model, ids, front=()):
    with torch.no_grad():
        return model(torch.tensor([[*front, *ids]])).logits[0, -1].softmax(-1)


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("way", ["replaced", "deleted"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_change_is_a_prompt_of_its_own(kind, way, front):
    model, ids = make(kind), prompts(2, 11)[0].tolist()
    others = prompts(2, 11)[1].tolist()
    found = changes.measure_changes(model, torch.tensor(ids), torch.tensor(others), way, front)
    for i, (_, other) in enumerate(zip(ids, others, strict=True)):
        changed = [*ids[:i], *([other] if way == "replaced" else []), *ids[i + 1 :]]
        difference = whole(model, changed, front) - whole(model, ids, front)
        assert found[i] == pytest.approx(float(difference.abs().sum() / 2), abs=1e-5)
    assert found.min() > 1e-4
    some = changes.measure_changes(model, torch.tensor(ids), torch.tensor(others), way, front, places=(0, 3, 10))
    assert np.allclose(some[[0, 3, 10]], found[[0, 3, 10]], atol=1e-6) and np.isnan(some).sum() == 8


@pytest.mark.parametrize("front", FRONTS)
def test_a_hidden_key_is_seen_by_its_own_query_alone(front):
    model, ids = make("llama"), prompts(1, 11)[0].tolist()
    found = changes.measure_changes(model, torch.tensor(ids), torch.tensor(ids), "hidden", front)
    n, f = len(ids), len(front)
    for i in range(n):
        mask = torch.full((f + n, f + n), torch.finfo(torch.float32).min).triu(1)
        mask[f + i + 1 :, f + i] = torch.finfo(torch.float32).min
        with torch.no_grad():
            hidden = model(torch.tensor([[*front, *ids]]), attention_mask=mask[None, None]).logits[0, -1].softmax(-1)
        assert found[i] == pytest.approx(float((hidden - whole(model, ids, front)).abs().sum() / 2), abs=1e-5)
    assert found[-1] < 1e-6 and found[:-1].min() > 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_the_instruments(kind):
    model, ids = make(kind), prompts(1, 9)
    reading = Instrument(make(kind)).measure(ids)
    assert np.allclose(changes.measure_gradient(model, ids[0]), reading.influence[0], rtol=1e-4, atol=1e-7)


def test_a_step_is_what_the_gradient_expects_of_a_token_in_place_of_another():
    model, ids, others = make("gpt2"), prompts(1, 9)[0], torch.arange(9)
    found = changes.measure_steps(model, ids, others, [1])
    assert np.allclose(changes.measure_steps(model, ids, ids, [1])["step"], 0, atol=1e-7)
    whole = model.get_input_embeddings().weight
    far = (whole[others] - whole[ids]).norm(dim=-1).detach().numpy()
    assert np.allclose(found["reach"], changes.measure_gradient(model, ids, [1]) * far, rtol=1e-4, atol=1e-7)
    assert (found["step"] <= found["reach"] * 1.0001).all() and found["step"].max() > 0
    x = changes.embedded(model, ids, [1])
    near = x.clone()
    near[4] += 1e-3 * (whole[others[3]] - whole[ids[3]]).detach()
    with torch.no_grad():
        before, after = (changes.next_token(model, inputs_embeds=y[None])[0] for y in (x, near))
    k = int(before.argmax())
    assert abs(float(after[k] - before[k])) == pytest.approx(1e-3 * found["step"][3], rel=0.05)


def test_integrated_gradients_add_up_to_the_difference():
    model, ids = make("gpt2"), prompts(1, 9)[0]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)  # else the path has bends that sixteen points do not see
    found, missed = measure.measure_integrated(model, ids)
    assert abs(missed) < 0.02 * np.abs(found).sum()
    x = model.get_input_embeddings().weight.detach()
    base = torch.stack([x.mean(0)] * 9)
    with torch.no_grad():
        ends = [model(inputs_embeds=one[None]).logits[0, -1].softmax(-1) for one in (x[ids], base)]
    token = int(ends[0].argmax())
    assert found.sum() - missed == pytest.approx(float((ends[0] - ends[1])[token]), abs=1e-6)


def test_a_sink_is_found_where_one_is_made():
    model, ids = make("llama", vocab_size=VOCABULARY), prompts(1, 9)[0]
    plain = measure.measure_sink(model, ids, behind=4)
    with torch.no_grad():
        model.get_input_embeddings().weight[ids[0]] *= 50
    sink = measure.measure_sink(model, ids, behind=4)
    assert sink["norm"][0] == pytest.approx(50 * plain["norm"][0], rel=1e-4)
    assert sink["carried"][0] == pytest.approx(plain["carried"][0], rel=1e-3)  # its norm is divided out
    with torch.no_grad():
        out = model(ids[None], output_attentions=True)
    assert sink["attention"][1] == pytest.approx(float(out.attentions[1][0, :, 4:, 0].mean()))
    heads = measure.measure_heads(model, ids[None])
    assert heads.shape == (1, 3, 4) and heads[0, 1, 2] == pytest.approx(float(out.attentions[1][0, 2, :, 0].mean()))


def test_what_a_token_carries_is_what_attention_to_it_alone_gives():
    model, ids = make("llama"), prompts(1, 10)[0]  # nine others, whose median is one of them
    given = []
    attention = model.model.layers[0].self_attn
    hook = attention.register_forward_hook(lambda module, args, out: given.append(out[0][0]))
    with torch.no_grad():
        for j in range(10):
            mask = torch.full((1, 1, 10, 10), torch.finfo(torch.float32).min)
            mask[..., j] = 0
            model(ids[None], attention_mask=mask)
    hook.remove()
    sizes = np.array([float(x[5].norm()) for x in given])
    expected = sizes[0] / np.median(sizes[1:])
    assert measure.measure_sink(model, ids)["carried"][0] == pytest.approx(expected, rel=1e-4)
