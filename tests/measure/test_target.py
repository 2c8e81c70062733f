"""What influence is a derivative of: tokens, the text's next one, contrasts; probabilities, logits, logarithms."""

import json

import pytest
import torch
from measuring import WORDS

import posbias
from posbias.report import text

N, LENGTH = 5, 12
ONE, OTHER = WORDS[3], WORDS[7]


def measured(place, **asked):
    asked = {"quantities": "mixing,influence", "batch_size": 2} | asked
    return posbias.open(place / "llama").measure(N, LENGTH, place / "d.jsonl", **asked)


def own_influence(place, value):
    """Return the gradient norms of a function of (logits, next tokens), by autograd over the whole model."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(place / "llama", attn_implementation="eager").eval()
    tokenizer = AutoTokenizer.from_pretrained(place / "llama")
    texts = [json.loads(line)["text"] for line in (place / "d.jsonl").read_text().splitlines()[:N]]
    ids = torch.tensor([tokenizer(x)["input_ids"][: LENGTH + 1] for x in texts])
    x = model.get_input_embeddings()(ids[:, :-1]).detach().requires_grad_(True)
    z = model(inputs_embeds=x).logits[:, -1]
    one, other = tokenizer.convert_tokens_to_ids([ONE, OTHER])
    y = value(z, ids[:, -1], one, other)
    (g,) = torch.autograd.grad(y.sum(), x)
    return g.norm(dim=-1).detach().double().numpy(), y.detach().double().numpy()


CASES = {
    "top": ({}, lambda z, after, a, b: z.softmax(-1).amax(-1)),
    "top logit": ({"of": "logit"}, lambda z, after, a, b: z.amax(-1)),
    "next": ({"target": "next"}, lambda z, after, a, b: z.softmax(-1)[range(N), after]),
    "next log": (
        {"target": "next", "of": "log-probability"},
        lambda z, after, a, b: z.log_softmax(-1)[range(N), after],
    ),
    "one": ({"target": ONE}, lambda z, after, a, b: z.softmax(-1)[:, a]),
    "contrast": ({"target": ONE, "against": OTHER, "of": "logit"}, lambda z, after, a, b: z[:, a] - z[:, b]),
}


@pytest.mark.parametrize("case", CASES)
def test_influence_is_that_of_the_target(place, case):
    asked, value = CASES[case]
    found, (expected, y) = measured(place, **asked).results, own_influence(place, value)
    torch.testing.assert_close(
        torch.tensor(found["influence_prompts"].values), torch.tensor(expected), rtol=1e-4, atol=1e-9
    )
    if case == "top":
        assert "target_value" not in found and found.attrs["target"] == "top"
    else:
        torch.testing.assert_close(torch.tensor(found["target_value"].values), torch.tensor(y), rtol=1e-4, atol=1e-7)


def test_a_logit_and_its_contrast_have_other_influence_than_a_probability(place):
    """Else the cases above would be one."""
    seen = [measured(place, **asked).results["influence_prompts"].values for asked, _ in CASES.values()]
    assert all(abs(a / a.sum() - b / b.sum()).max() > 1e-4 for k, a in enumerate(seen) for b in seen[:k])


def test_texts_are_read_up_to_their_last_token(place):
    found = posbias.open(place / "llama").measure(texts=[" ".join(WORDS[:9]), " ".join(WORDS[:6])], target="next")
    assert found.length == 6 and found.results["target_value"].size == 2


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            {"target": f"{ONE} {OTHER}"},
            f"target: expected a text of one token, received '{ONE} {OTHER}', of 2: '{ONE}', '{OTHER}'",
        ),
        ({"target": "nosuchword"}, "target: expected a token that the model has, received 'nosuchword'"),
        ({"target": ONE, "against": ONE}, "against: expected another token than the target"),
        ({"against": ONE}, "against: expected none with the target top"),
        ({"of": "odds"}, "of: expected probability, logit or log-probability, received 'odds'"),
        ({"target": ONE, "dataset": None, "rule": "random"}, None),
        ({"target": ""}, "target: expected a text of one token"),
    ],
)
def test_what_is_no_target_is_refused(place, asked, said):
    model = posbias.open(place / "llama")
    options = {"prompts": N, "length": LENGTH, "dataset": place / "d.jsonl", "quantities": "mixing,influence"} | asked
    if said is None:
        assert model.measure(**options).results["target_value"].size == N
        return
    with pytest.raises(ValueError) as error:
        model.measure(**options)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_files_and_reports_say_what_the_target_is(place):
    m = measured(place, target=ONE, against=OTHER, of="logit", quantities="mixing,influence,kernels")
    asked = dict(text.list_settings(m._subject()))
    assert asked["influence of"] == f"the logit of '{ONE}' less that of '{OTHER}'"
