"""The command that tries a row: agreement for rows that are right, a line that names what is wrong for others."""

import json
from dataclasses import replace

import pytest
import yaml
from measuring import LLAMA, make, prompts, save, settings
from transformers import AutoConfig

from posbias.measure.rowcheck import compared
from posbias.networks.check import main, tried
from posbias.networks.families import FAMILIES, GROUPS

ROW = {
    "blocks": "model.layers",
    "attention": "self_attn",
    "output": "self_attn",
    "position": "rotary",
    "scale": "scaling",
    "projections": ["query_key_value"],
    "groups": "head by head",
}
"""Persimmon's, which the table has not."""
WRONG = [
    ("granite", {"multiplier": lambda layer: 1.0}, "x_t + a_t"),
    ("gemma2", {"output": "self_attn"}, "x_t + a_t"),
    ("gptj", {"parallel": False}, "x_t + a_t"),
    ("llama", {"parallel": True}, "x_t + a_t"),
    ("llama", {"output": "mlp"}, "x_t + a_t"),
    ("llama", {"scale": lambda attention: 0.1}, "scale"),
    ("gpt2", {"groups": GROUPS["head by head"]}, "attention times values"),
    ("llama", {"projections": ("q_proj", "v_proj", "k_proj")}, "attention times values"),
    ("gemma2", {"fused": True}, "fused attention"),
    ("llama", {"norm": ("post_attention_layernorm",)}, "what attention reads"),
    ("llama", {"norm": ()}, "what attention reads"),
    ("olmo2", {"norm": ("post_attention_layernorm",)}, "what attention reads"),
    ("bloom", {"bias": None, "biased": None}, "content logits"),
]
"""Family, what is changed in its row, and the first line that disagrees."""


@pytest.fixture
def folder(tmp_path):
    """Return a directory with Persimmon's configuration alone."""
    AutoConfig.for_model("persimmon", **LLAMA).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize(
    "name", ["bloom", "falcon-alibi", "mpt", "gemma2", "granite", "gpt_oss", "olmo2", "gptj", "opt-projected", "gemma3"]
)
def test_rows_of_the_table_agree(name, tmp_path, capsys):
    settings(name).save_pretrained(tmp_path)
    assert main([str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 6 and lines[-1] == "the row agrees with the model" and all("ok" in line for line in lines[:-1])


def test_weights_that_are_there_are_read(tmp_path, capsys):
    save(tmp_path)
    assert main([str(tmp_path)]) == 0
    broken = next(tmp_path.glob("*.safetensors"))
    broken.write_bytes(broken.read_bytes()[:100])
    assert main([str(tmp_path)]) == 2 and "files that transformers reads" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "changes", "line"), WRONG, ids=[f"{name}-{[*x][0]}" for name, x, _ in WRONG])
def test_a_wrong_row_is_found_out_by_the_line_of_its_field(name, changes, line):
    model, ids = make(name), prompts(2, 12)
    with tried(replace(FAMILIES[name], **changes)):
        off = [one for one in compared(model, ids) if not one.holds]
    assert off and any(one.what.startswith(line) for one in off), off
    assert any({*one.fields.split(", ")} & {*changes} for one in off), off
    assert all(one.holds for one in compared(model, ids))  # the table has its own row again


@pytest.mark.parametrize(
    ("row", "code", "words"),
    [
        ({"colour": 1}, 2, "expected fields among name, blocks, attention"),
        ({"blocks": "transformer.h"}, 2, "row persimmon: blocks: expected a list of layers such as model.layers"),
        ({"attention": "attn"}, 2, "row persimmon: attention: expected what PersimmonDecoderLayer has (self_attn, mlp"),
        ({"output": "self_attn.o"}, 2, "row persimmon: output: expected what PersimmonDecoderLayer has"),
        ({"projections": ["qkv"]}, 2, "row persimmon: projections: expected what PersimmonAttention has"),
        ({"scale": "scal"}, 2, "row persimmon: scale: expected what PersimmonAttention has"),
        ({"groups": "by colour"}, 2, "groups: expected one of head by head, one after another"),
        ({"parallel": "yes"}, 2, "parallel: expected true or false, received 'yes'"),
        ({"name": "llama"}, 2, "name: expected persimmon, the model's model_type, received llama"),
        ({"blocks": None}, 2, "blocks: expected a name, received None"),
        ({"position": "rope"}, 2, "position: expected one of alibi, rotary, learned, received rope"),
        ({"norm": []}, 1, "look at norm, projections"),
        ({"scale": 0.1}, 1, "scale, against that multiple: "),
        ({"groups": "one after another"}, 1, "look at projections, groups"),
    ],
)
def test_a_row_in_a_file_is_refused_or_disagrees(row, code, words, folder, capsys):
    file = folder.parent / "row.yaml"
    file.write_text(yaml.safe_dump({**ROW, **row}))
    there = sorted(folder.parent.rglob("*"))
    assert main([str(folder), "--row", str(file)]) == code
    out, err = capsys.readouterr()
    said = [line for line in err.splitlines() if not line.startswith("[")]
    assert (words in said[-1] and len(said) == 1 and not out) if code == 2 else words in out
    assert sorted(folder.parent.rglob("*")) == there and "persimmon" not in FAMILIES


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (None, "expected a directory with a config.json"),
        ({"model_type": "bert"}, "received bert, an encoder"),
        ({"model_type": "mamba", "hidden_size": 32, "num_hidden_layers": 2}, "row: expected --row"),
    ],
)
def test_what_is_no_model_with_attention_is_refused(fields, words, tmp_path, capsys):
    if fields is not None:
        (tmp_path / "config.json").write_text(json.dumps(fields))
        if fields["model_type"] == "mamba":
            AutoConfig.for_model(**fields, vocab_size=97, state_size=4).save_pretrained(tmp_path)
    assert main([str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert words in err.splitlines()[-1] and not out
