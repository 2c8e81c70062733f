"""What stands behind the name of a condition reaches the model, and is checked against it."""

import pytest
import torch
import yaml
from lookup_worlds import byte_tokenizer
from measuring import make

from posbias import conditions
from posbias.conditions import arguments, read_condition
from posbias.conditions.each.bias import read_bias
from posbias.prompts import Ask, Prompt, write_prompt

IDS = torch.arange(3, 15)[None]


@pytest.fixture(scope="module")
def model():
    return make("llama")


def logits(model, changed):
    with torch.no_grad(), changed:
        return model(IDS).logits


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("sharper:3,heads=1.1+0.2", lambda model: conditions.sharper(model, 3.0, [(1, 1), (0, 2)])),
        ("sharper:heads=2.0", lambda model: conditions.sharper(model, 1.5, [(2, 0)])),
        ("sharper:factor=0.5", lambda model: conditions.sharper(model, [0.5, 0.5, 0.5])),
        ("sharper:4,heads=1.0+1.1+1.2+1.3", lambda model: conditions.sharper(model, [1.0, 4.0, 1.0])),
        ("sink-off:layers=0+2", lambda model: conditions.sink_off(model, [0, 2])),
        ("sink-off", lambda model: conditions.sink_off(model, [0, 1, 2])),
    ],
)
def test_arguments_are_those_of_the_function(model, name, same):
    found = logits(model, read_condition(name)[1].changed(model, None))
    assert torch.equal(found, logits(model, same(model)))
    for other in ("sharper:2.5", "sink-off:layers=1", "numbered"):
        assert not torch.equal(found, logits(model, read_condition(other)[1].changed(model, None)))


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("sink-off:layers=3", "llama", "layers: expected layers from 0 to 2, received 3"),
        ("sink-off:layers=1+-1", "llama", "layers: expected layers from 0 to 2, received -1"),
        ("sink-off", "deepseek_v2", "model: expected a family with a projection of values, received deepseek_v2"),
        ("sharper:heads=3.0", "llama", "heads: expected layers from 0 to 2 and heads from 0 to 3, received 3.0"),
        ("sharper:heads=0.4", "llama", "heads: expected layers from 0 to 2 and heads from 0 to 3, received 0.4"),
    ],
)
def test_what_a_model_has_not_is_refused_from_its_configuration(text, name, expected):
    with pytest.raises(ValueError, match=expected):
        read_condition(text)[1].check(make(name).config)


@pytest.mark.parametrize("documents", [(), ("one is 1",)])
def test_windows_of_fewer_than_two_documents_change_nothing(documents):
    tokenizer = byte_tokenizer()
    model = make("llama", vocab_size=len(tokenizer), max_position_embeddings=2048)
    condition = read_condition("parallel-windows")[1]
    prompt = write_prompt(tokenizer, "documents", condition.rewrite(Ask(documents, "which?", "1")), False, True)
    assert torch.equal(logits(model, condition.changed(model, prompt)), logits(model, condition.changed(model, None)))


def test_windows_have_documents_without_numbers_whose_tokens_are_known(model):
    condition = read_condition("parallel-windows")[1]
    text = write_prompt(byte_tokenizer(), "documents", condition.rewrite(Ask(("a", "b"), "q", "1")), False, True).text
    assert "Document: a\n\nDocument: b\n\n" in text
    with pytest.raises(ValueError, match="condition: expected documents whose tokens are known"):
        logits(model, condition.changed(model, Prompt(text, "", tuple(IDS[0].tolist()))))


def test_a_bare_value_is_the_first_of_the_arguments():
    known = {"factor": float, "heads": str}
    assert arguments(" 2 , heads = 1.0", **known) == {"factor": 2.0, "heads": "1.0"}
    assert arguments("", **known) == {} and arguments("heads=a", **known) == {"heads": "a"}


NONE, LOG = {"kind": "none"}, {"kind": "log", "alpha": 1.5}
NETWORK = {
    "sequence_length": 6,
    "num_layers": 2,
    "lambda_schedule_config": {"schedule_type": "constant", "lambda_const": 0.4},
    "position_bias": [LOG, NONE],
}


@pytest.mark.parametrize(
    ("weights", "is_equal"), [(None, True), ([[1.0, 1.0], [2.0, 2.0]], True), ([[1.0, 1.0], [2.0, 1.0]], False)]
)
def test_a_design_gives_its_biases_where_heads_weigh_the_same(tmp_path, weights, is_equal):
    file = tmp_path / "design.yml"
    file.write_text(yaml.safe_dump(NETWORK | {"attention_config": {"num_heads": 2, "head_weights": weights}}))
    if is_equal:
        assert read_bias(str(file)) == [LOG, NONE]
    else:
        with pytest.raises(ValueError, match="design.yml: attention_config.head_weights: expected equal weights"):
            read_bias(str(file))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"position_bias": None}, "b.yaml: position_bias: expected a description of position biases, received none"),
        ({"sequence_length": 6}, "b.yaml: position_bias: expected a description of position biases, received none"),
        ([LOG], "b.yaml: position_bias: expected a description of position biases, received none"),
        ({"position_bias": {"kind": "steep"}}, "b.yaml: position_bias.kind: expected"),
        (
            {"position_bias": [[LOG], [{"kind": "log"}]]},
            r"b.yaml: position_bias\[1\]\[0\]: expected kind and alpha for log",
        ),
        ({"position_bias": LOG, "num_layers": 0}, "b.yaml: "),
    ],
)
def test_a_file_without_biases_that_can_be_read_is_refused(tmp_path, content, expected):
    (file := tmp_path / "b.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(ValueError, match=expected) as error:
        read_condition(f"bias:{file}")
    assert "\n" not in str(error.value)
