"""The command that tries a row: agreement for rows that are right, a line that names what is wrong for others."""

from dataclasses import replace

import pytest
from measuring import LLAMA, make, prompts, save, settings
from transformers import AutoConfig

from posbias.measure.instrument import Instrument
from posbias.models import register
from posbias.models.check import comparisons, main
from posbias.models.families import FAMILIES, _head_by_head, _one_after_another

PERSIMMON = replace(FAMILIES["llama"], name="persimmon", projections=("query_key_value",), groups=_head_by_head)
WRONG = [
    ("granite", {"multiplier": lambda layer: 1.0}, "x + a"),
    ("gemma2", {"output": "self_attn"}, "x + a"),
    ("gptj", {"parallel": False}, "x + a"),
    ("llama", {"parallel": True}, "x + a"),
    ("llama", {"output": "mlp"}, "x + a"),
    ("llama", {"scale": lambda attention: 0.1}, "scale"),
    ("gpt2", {"groups": _head_by_head}, "values"),
    ("llama", {"projections": ("q_proj", "v_proj", "k_proj")}, "values"),
    ("llama", {"norm": ("post_attention_layernorm",)}, "values"),
    ("llama", {"norm": ()}, "values"),
    ("olmo2", {"norm": ("post_attention_layernorm",)}, "values"),
    ("deepseek_v3", {"latent": ("q_a_layernorm", "kv_a_proj_with_mqa", "kv_b_proj")}, "values"),
    ("bloom", {"bias": None}, "attention, against a softmax"),
    ("mpt", {"scale": lambda attention: 0.1}, "attention, against a softmax"),
]
"""Family, what is changed in its row, and the first line that disagrees."""


@pytest.fixture
def table(monkeypatch):
    """Return the table of families, which is as it was after the test."""
    monkeypatch.setattr("posbias.models.families.FAMILIES", changed := dict(FAMILIES))
    return changed


@pytest.mark.parametrize(
    "name", ["bloom", "falcon-alibi", "mpt", "gemma2", "granite", "gpt_oss", "olmo2", "gptj", "opt-projected", "gemma3"]
)
def test_rows_of_the_table_agree(name, tmp_path, capsys):
    changes = {"apply_residual_connection_post_layernorm": True} if name == "bloom" else {}  # x_t is normed
    settings(name, **changes).save_pretrained(tmp_path)
    assert main([str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 5 and lines[-1] == "the row agrees with the model" and all("ok" in line for line in lines[:-1])


def test_weights_that_are_there_are_read(tmp_path, capsys):
    save(tmp_path)
    assert main([str(tmp_path)]) == 0
    broken = next(tmp_path.glob("*.safetensors"))
    broken.write_bytes(broken.read_bytes()[:100])
    assert main([str(tmp_path)]) == 2 and "files that transformers reads" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "changes", "line"), WRONG, ids=[f"{name}-{[*x][0]}" for name, x, _ in WRONG])
def test_a_wrong_row_is_found_out_by_the_line_of_its_field(name, changes, line):
    instrument, ids = Instrument(make(name)), prompts(1, 12)
    assert all(one.holds for one in comparisons(instrument, ids))
    instrument.family = replace(instrument.family, **changes)
    off = [one for one in comparisons(instrument, ids) if not one.holds]
    assert off and any(one.what.startswith(line) for one in off), off
    assert any({*one.fields.split(", ")} & {*changes} for one in off), off


def test_a_row_that_is_registered_is_tried(table, tmp_path, capsys):
    AutoConfig.for_model("persimmon", **LLAMA).save_pretrained(tmp_path)
    assert main([str(tmp_path)]) == 2 and "persimmon, which has none" in capsys.readouterr().err
    register(PERSIMMON)
    assert main([str(tmp_path)]) == 0 and capsys.readouterr().out.endswith("the row agrees with the model\n")
    table["persimmon"] = replace(PERSIMMON, groups=_one_after_another)
    assert main([str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "OFF, look at norm, projections, groups, latent" in out and out.endswith(
        "the row DISAGREES with the model\n"
    )


def test_a_path_that_is_not_there_is_named(table, tmp_path, capsys):
    AutoConfig.for_model("persimmon", **LLAMA).save_pretrained(tmp_path)
    table["persimmon"] = replace(PERSIMMON, attention="attn")
    assert main([str(tmp_path)]) == 2 and "has no attribute `attn`" in capsys.readouterr().err
