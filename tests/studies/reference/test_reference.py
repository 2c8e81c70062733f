"""The texts that every Python carries, their tokens, the table of reference models, and training."""

import json
import shutil
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import tiny_reference
import torch
from tiny_reference import SAYINGS, TINY
from transformers import AutoModelForCausalLM, AutoTokenizer

from posbias.cli import main
from posbias.models.families import FAMILIES, longest_of
from posbias.shipped import HELD_OUT
from studies.reference import commands, pretraining, tokens
from studies.reference import texts as module
from studies.reference.models import REFERENCES, Reference, reference
from studies.reference.pretraining import initial_model, load_start, save_model, train
from studies.reference.tokens import Texts, stream, train_tokenizer, whole_prefixes, wrapped


@pytest.fixture(scope="module")
def tiny_texts():
    tokenizer = train_tokenizer(SAYINGS, size=300)
    return Texts(tokenizer, stream(tokenizer, SAYINGS), whole_prefixes(tokenizer, SAYINGS[:9], most=30, least=12))


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Return a folder with a part of the library of this Python, and a test that is not read."""
    folder, whole = tmp_path_factory.mktemp("library"), Path(sysconfig.get_paths()["stdlib"])
    for name in ("asyncio", "email", "http", "json", "logging", "multiprocessing", "unittest", "xml"):
        shutil.copytree(whole / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(folder / "json", folder / "test")
    return folder


@pytest.fixture(scope="module")
def parts(library):
    """Return the texts that the library carries, by part."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.sysconfig, "get_paths", lambda: {"stdlib": library})
        return {part: list(module.documents(part)) for part in ("train", "held-out")}


def test_parts_share_no_module_and_hold_everything(parts, library):
    names = {part: {document.name for document in found} for part, found in parts.items()}
    assert not names["train"] & names["held-out"] and "asyncio/queues.py" in names["train"] | names["held-out"]
    written = {path.relative_to(library).as_posix() for path in library.rglob("*.py") if path.read_text().strip()}
    found = {name for name in names["train"] | names["held-out"] if not name.startswith("topic/")}
    assert found == {name for name in written if "test" not in name.split("/")}
    characters = {part: sum(len(document.text) for document in found) for part, found in parts.items()}
    assert 0.1 < characters["held-out"] / characters["train"] < 0.6


def test_tokens_give_any_text_back(tiny_texts):
    tokenizer = tiny_texts.tokenizer
    odd = "tabs\tand\r\nlines, ünïcödé 漢字 🙂\x00"
    assert tokenizer.decode(tokenizer.encode(odd).ids, skip_special_tokens=False) == odd
    assert (tiny_texts.train == 0).sum() == len(SAYINGS) and tiny_texts.train[-1] == 0
    assert wrapped(tokenizer, start=True)("x")["input_ids"][0] == 1
    assert wrapped(tokenizer, start=False)("x")["input_ids"] == tokenizer.encode("x").ids


def test_prefixes_are_such_that_their_text_gives_them_again(tiny_texts):
    tokenizer = tiny_texts.tokenizer
    odd = [s + "漢字漢字漢字" * 3 for s in SAYINGS[:9]]
    for most in range(12, 40):
        for ids in whole_prefixes(tokenizer, odd, most=most, least=12):
            text = tokenizer.decode(ids.tolist(), skip_special_tokens=False)
            assert tokenizer.encode(text).ids == ids.tolist() and 12 <= ids.size <= most


def test_held_out_documents_come_back_as_they_were(tmp_path, tiny_texts):
    commands._write_held_out(tmp_path, tiny_texts.held_out)
    with np.load(tmp_path / HELD_OUT) as file:
        parts = np.split(file["ids"], np.cumsum(file["lengths"])[:-1].astype(int))
    texts = tiny_texts.tokenizer.decode_batch([x.tolist() for x in parts], skip_special_tokens=False)
    assert [tiny_texts.tokenizer.encode(text).ids for text in texts] == [x.tolist() for x in tiny_texts.held_out]


def test_every_row_is_of_a_family_that_can_be_measured():
    for name, row in REFERENCES.items():
        config = row.config()
        assert name.startswith(row.family.removesuffix("2")) or not row.positions, name
        assert config.model_type in FAMILIES and config.num_hidden_layers == row.T == int(name.split("-")[-1])
        assert config.hidden_size == row.D and config.num_attention_heads == row.H and row.D % row.H == 0
        assert longest_of(config) in (256, 1024)
        assert row.continues is None or row.continues in REFERENCES
    assert reference("mistral-12").config().sliding_window == 64
    assert reference("bloom-8").H & (reference("bloom-8").H - 1)  # no power of two
    wide, narrow = (reference(f"llama-{x}12").config().rope_parameters["rope_theta"] for x in ("ntk-", ""))
    # the slowest of 16 waves becomes 4 times as long, the fastest stays
    assert wide ** (30 / 32) == pytest.approx(4 * narrow ** (30 / 32))
    with pytest.raises(ValueError, match="reference model: expected one of bloom-8, .*, received gpt-5"):
        reference("gpt-5")


@pytest.mark.parametrize("name", ["bloom-12", "falcon-12", "nope-12", "llama-12"])
def test_twins_have_the_spread_they_say(name):
    row = reference(name)
    for init, std in (("default", 0.02), ("unit", row.D**-0.5)):
        model = initial_model(row, seed=3, init=init)
        assert float(model.get_input_embeddings().weight.detach().std()) == pytest.approx(std, rel=0.05)
    if not row.positions:
        assert not model.transformer.wpe.weight.any() and not model.transformer.wpe.weight.requires_grad


def tiny(family="llama", **options):
    return Reference("tiny", family, 2, 16, 2, **{"steps": 30, "batch_size": 4, "length": 12, "rate": 1e-2} | options)


def test_training_lowers_the_loss_and_the_seed_decides(tmp_path, tiny_texts):
    logs = [train(tiny(start_token=seed == 5), tiny_texts, tmp_path / str(seed), seed=seed) for seed in (5, 6)]
    assert logs[0][-5:, 0].mean() < logs[0][:5, 0].mean() - 0.3 and (logs[0][1:, 0] != logs[1][1:, 0]).any()
    tokenizers = [AutoTokenizer.from_pretrained(tmp_path / name) for name in ("5", "6")]
    assert [tokenizer("x")["input_ids"][0] == 1 for tokenizer in tokenizers] == [True, False]
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "5")
    assert next(model.parameters()).dtype == torch.float16
    kept = json.loads((tmp_path / "5" / "training.json").read_text())
    assert kept["seed"] == 5 and kept["steps"] == 30 and kept["seconds"] > 0
    lines = (tmp_path / "5" / "training.csv").read_text().splitlines()
    assert len(lines) == 31 and lines[0] == "step,training_loss,held_out_loss" and lines[1].endswith(",")
    assert lines[-1] == f"30,{logs[0][-1, 0]:.5f},{logs[0][-1, 1]:.5f}" and not list(tmp_path.rglob("*.checkpoint"))


def test_the_held_out_loss_is_that_of_documents_that_are_long_enough(tmp_path, tiny_texts):
    row = tiny("bloom", autocast=False, steps=1, rate=1e-9)
    (log,) = train(row, tiny_texts, tmp_path / "m")
    model = initial_model(row, 0)
    ids = torch.from_numpy(np.stack([x[:12] for x in tiny_texts.held_out if x.size >= 12]).astype(np.int64))
    assert log[1] == pytest.approx(model(ids, labels=ids).loss.item(), rel=1e-5)
    with pytest.raises(ValueError, match="held-out documents: expected one of at least 12 tokens, received none"):
        train(row, Texts(tiny_texts.tokenizer, tiny_texts.train, []), tmp_path / "n")


def test_snapshots_are_the_model_after_their_steps(tmp_path, tiny_texts):
    train(tiny(steps=4), tiny_texts, tmp_path / "m", snapshots=[0, 2, 4])
    read = {k: AutoModelForCausalLM.from_pretrained(tmp_path / "m" / f"step-{k:06d}").state_dict() for k in (0, 2, 4)}
    first, last = initial_model(tiny(), 0), AutoModelForCausalLM.from_pretrained(tmp_path / "m")
    first, last = first.state_dict(), last.state_dict()
    name = "model.layers.0.self_attn.q_proj.weight"
    assert torch.equal(read[0][name], first[name].half()) and torch.equal(read[4][name], last[name])
    assert not torch.equal(read[2][name], read[0][name]) and not torch.equal(read[2][name], read[4][name])


def test_a_model_that_goes_on_starts_from_the_other(tmp_path, tiny_texts):
    row = Reference("long", "bloom", 2, 16, 2, continues="tiny", steps=1, batch_size=2, length=12, rate=1e-12)
    with pytest.raises(ValueError, match="long: start: expected the model tiny, received none"):
        train(row, tiny_texts, tmp_path / "long")
    with pytest.raises(ValueError, match="expected the trained model to continue from"):
        load_start(tmp_path / "tiny")
    first = initial_model(TINY, seed=9)
    save_model(first, TINY, tiny_texts.tokenizer, tmp_path / "tiny")
    train(row, tiny_texts, tmp_path / "long", start=load_start(tmp_path / "tiny"), seed=1)
    ended = AutoModelForCausalLM.from_pretrained(tmp_path / "long", dtype=torch.float32).state_dict()
    for name, x in first.state_dict().items():
        assert torch.allclose(x, ended[name], atol=2e-3), name


@pytest.fixture
def command(capsys):
    """Return a function that runs ``python -m studies.reference train``: words → (status, stdout, stderr)."""

    def run(*words):
        with pytest.raises(SystemExit) as ended:
            main(["train", *map(str, words)], ["studies.reference.commands"], "python -m studies.reference")
        return (ended.value.code, *capsys.readouterr())

    return run


def test_the_command_goes_on_where_it_was_and_keeps_what_is_there(tmp_path, command, monkeypatch):
    tiny_reference.install(monkeypatch)
    whole, part = tmp_path / "whole", tmp_path / "part"
    assert command("tiny", "-o", whole, "--snapshots", "4")[0] == 0
    real = pretraining.learning_rate

    def killed(step, row):
        if step == 3:
            raise KeyboardInterrupt
        return real(step, row)

    monkeypatch.setattr(pretraining, "learning_rate", killed)
    status, _, err = command("tiny", "-o", part, "--checkpoint-every", 0)
    left = part / "tiny" / "training.checkpoint"
    assert status == 130 and "interrupted" in err and left.is_file()
    monkeypatch.setattr(pretraining, "learning_rate", real)
    status, out, err = command("tiny", "-o", part, "--snapshots", "4")
    assert status == 0 and "6 steps, training loss" in out and (part / "held-out.npz").is_file(), err
    for name in ("tiny/model.safetensors", "tiny/step-000004/model.safetensors", "tiny/training.csv"):
        assert (whole / name).read_bytes() == (part / name).read_bytes()
    assert command("tiny", "-o", part)[:2] == (0, f"{part}: nothing to do, every model is complete\n")
    status, _, err = command("tiny", "-o", part, "--seed", 1)
    assert status == 2 and "part/tiny: seed: expected 1, or another --output, received 0" in err


def test_the_command_writes_untrained_twins_also_of_a_model_that_goes_on(tmp_path, command, parts, monkeypatch):
    monkeypatch.setattr(tokens, "documents", lambda part: parts[part][::2])  # enough for all the tokens
    status, out, err = command("llama-ntk-12", "-o", tmp_path, "--steps", 0)
    assert status == 0, err
    assert out.strip() == f"{tmp_path / 'llama-ntk-12'}: 0 steps, untrained"
    assert len(AutoTokenizer.from_pretrained(tmp_path / "llama-ntk-12")) == tokens.VOCABULARY
    with np.load(tmp_path / HELD_OUT) as file:
        assert file["lengths"].size > 20 and file["ids"].size == file["lengths"].sum()
