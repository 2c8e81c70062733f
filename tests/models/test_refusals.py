"""What is said of an architecture that cannot be measured: what it is, why not, and what can be done."""

from dataclasses import replace

import pytest

from posbias.models import families, register
from posbias.models.families import FAMILIES, check_family

NONE = "a causal language model that transformers knows, no encoder, received"
ROW = "which has none; influence alone can be measured: posbias measure -q influence; or add one, as the page"
OF_ONE_KIND = {
    NONE: ("bert", "modernbert", "xlm-roberta", "t5", "bart", "pegasus", "vit", "clip", "wav2vec2", "no-such"),
    ROW: ("persimmon", "xglm", "gpt-sw3", "mamba", "jamba"),
}
CASES = [({"model_type": name}, words) for words, names in OF_ONE_KIND.items() for name in names]
CASES += [
    ({"model_type": "t5", "is_encoder_decoder": True}, NONE),
    ({"model_type": "bert", "is_decoder": True}, ROW),
    ({"model_type": "bart", "is_encoder_decoder": False, "is_decoder": True}, ROW),
    ({"model_type": "mine", "auto_map": {"AutoModelForCausalLM": "mine.Mine"}}, ROW),
    ({}, NONE),
    ({"model_type": 3}, NONE),
]


@pytest.mark.parametrize(("fields", "words"), CASES, ids=lambda x: str(x)[:30])
def test_a_refusal_says_what_an_architecture_is(fields, words):
    with pytest.raises(ValueError, match="^architecture: expected ") as found:
        check_family(fields)
    assert words in str(found.value) and "\n" not in str(found.value) and len(str(found.value)) < 200
    if words == ROW:
        check_family(fields, row=False)
    else:
        with pytest.raises(ValueError, match="^architecture: "):
            check_family(fields, row=False)


def test_a_row_is_added_to_the_one_list(monkeypatch):
    monkeypatch.setattr(families, "FAMILIES", table := dict(FAMILIES))
    row = replace(FAMILIES["llama"], name="persimmon")
    register(row)
    assert table["persimmon"] is row
    check_family({"model_type": "persimmon"})
    with pytest.raises(ValueError, match="^name: expected one that has no row yet, received 'persimmon'$"):
        register(row)
    with pytest.raises(ValueError, match="^row: expected a Family, received str$"):
        register("llama")
