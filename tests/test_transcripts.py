"""What whole commands print, draw and write, held word by word and number by number, as they were when last looked at.

POSBIAS_TRANSCRIPTS=write takes what is there now: read the difference (git diff tests/transcripts) before it is kept.
"""

import json
import os
import re
from pathlib import Path

import pytest
import torch
from conftest import ROOT
from lookup_worlds import TEMPLATE, byte_tokenizer, save_network
from matplotlib.figure import Figure
from measuring import LLAMA, WORDS, save, status, text, write_documents
from parsed import Parsed
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, set_seed

from bookkit.agreement import Tolerance, disagreement
from bookkit.figuretext import describe
from posbias import netcdf

KEPT = ROOT / "tests" / "transcripts"
PRINTED, DRAWN = (Tolerance(rtol=2e-3, atol=atol, places=1) for atol in (2e-6, 2e-3))
"""What numbers of 32 bits may differ by on other processors: as printed, and in parts of a figure (indented)."""
MACHINE = re.compile(r"\d[\d.,]*( (?:s|min|h|GiB|MB|KiB|bytes)\b)")
VERSIONS = {"posbias", "numpy", "torch", "transformers", "python", "device", "revision", "prompts_sha256", "self_check"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return the folder in which all commands run: tiny models of several kinds, texts, prompts and rows."""
    root = tmp_path_factory.mktemp("transcripts")
    for name in ("bloom", "llama", "mistral", "gpt2"):
        save(root / name, name)
    save(root / "sinks", "gpt_oss")
    save(root / "deep", "bloom", n_layer=14)
    save(root / "long")
    network = AutoModelForCausalLM.from_pretrained(root / "long")
    with torch.no_grad():
        network.get_input_embeddings().weight[0] *= 300  # the start token's state is far longer than others'
    network.save_pretrained(root / "long")
    set_seed(0)
    save(root / "rowless")
    AutoModelForCausalLM.from_config(AutoConfig.for_model("persimmon", **LLAMA)).save_pretrained(root / "rowless")
    tokenizer = AutoTokenizer.from_pretrained(root / "llama")
    tokenizer.chat_template = TEMPLATE
    save_network(root / "chat", tokenizer, "llama")
    save_network(root / "bytes", byte_tokenizer(), "bloom")
    write_documents(root / "d.jsonl", [40] * 12)
    (root / "p.txt").write_text("\n\n".join(text(n, k) for k, n in enumerate((9, 5, 7, 4))))
    rows = []
    for k in range(6):
        documents = [f"{WORDS[3 * k + j]} {WORDS[j]} {WORDS[40 + k]}" for j in range(4)]
        documents[1] += f" {WORDS[60 + k]}"
        rows.append({"documents": documents, "question": WORDS[30 + k], "answer": WORDS[60 + k], "begin": WORDS[20]})
    (root / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (root / "row.json").write_text(json.dumps(rows[0]))
    said = [("user", text(6, 1)), ("assistant", text(3, 2)), ("user", text(5, 3))]
    said = [{"role": role, "content": words} for role, words in said]
    (root / "chat.json").write_text(json.dumps(said))
    (root / "chats.jsonl").write_text((json.dumps({"messages": said[:2]}) + "\n") * 6)
    return root


class Lines(Parsed):
    """A page as its reader's lines: a paragraph or a row of a table each, and what pictures and marks are called."""

    INLINE = {"a", "abbr", "b", "code", "dt", "em", "i", "mark", "small", "span", "strong", "sub", "sup", "tspan"}
    CALLED = ("title", "aria-label", "alt")

    def handle_endtag(self, tag):
        super().handle_endtag(tag)
        if tag in ("td", "th", "dt"):
            self.words.append(" | ")
        elif tag not in self.INLINE:
            self.words.append("\n")

    @property
    def lines(self):
        """The lines, those that say with what the page was made aside."""
        rows = [" ".join(line.split()).strip("| ") for line in "".join(self.words).splitlines()]
        kept = [row for row in rows if row and row.partition(" |")[0] not in VERSIONS]
        given = [(tag, key, value) for tag, attributes in self.tags for key, value in attributes.items()]
        called = [f"{tag} {key}={value}" for tag, key, value in given if key in self.CALLED]
        return kept + called


def summary(path):
    """Return what a file holds: of a measurement its attributes and variables, of a page its words."""
    if path.suffix == ".nc":
        kept = netcdf.load(path)
        lines = [f"{name}: {x}" for name, x in sorted(kept.attrs.items()) if name not in VERSIONS]
        return "\n".join([*lines, f"variables: {', '.join(sorted(kept.variables))}"])
    if path.suffix == ".html":
        return "\n".join(Lines(path.read_text()).lines)
    return path.read_text() if path.suffix in (".csv", ".yaml") else ""


DESCRIBED = {"report", "explain", "lookup", "design"}
"""Transcripts that also hold what figures draw, one for each kind of figure; numbers.npz has those of measurements."""
COMMANDS = json.loads((KEPT / "commands.json").read_text())
"""Name → commands, run one after the other; each may use what those before it wrote."""


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_draws_and_writes_what_it_did(place, tmp_path, capsys, monkeypatch, name):
    drawn, real = [], Figure.savefig
    monkeypatch.chdir(tmp_path)
    for file in (*place.iterdir(), *(KEPT / "inputs").iterdir()):
        (tmp_path / file.name).symlink_to(file)

    def watched(figure, *words, **more):
        drawn.append(describe(figure))
        return real(figure, *words, **more)

    monkeypatch.setattr(Figure, "savefig", watched)
    there, told = {*tmp_path.iterdir()}, []
    for line in COMMANDS[name]:
        code, out, err = status(capsys, line.split())
        told += [f"$ posbias {line}", f"{out}{err}exit {code}", *(drawn if name in DESCRIBED else [])]
        drawn.clear()
        for path in sorted({*tmp_path.iterdir()} - there):
            told += [f"--- {path.name}", summary(path)]
        there = {*tmp_path.iterdir()}
    received = MACHINE.sub(r"N\1", "\n".join(told).replace(str(tmp_path), ".").replace(str(place), ".")) + "\n"
    kept = KEPT / f"{name}.txt"
    if os.environ.get("POSBIAS_TRANSCRIPTS") == "write":
        kept.write_text(received)
    for expected, found in zip(kept.read_text().splitlines(), received.splitlines(), strict=True):
        assert disagreement(expected, found, DRAWN if found.startswith("  ") else PRINTED) == ""


def test_every_transcript_has_its_commands():
    assert {*COMMANDS} == {Path(path).stem for path in KEPT.glob("*.txt")}
