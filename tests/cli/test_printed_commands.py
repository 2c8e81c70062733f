"""Every command of the README and of the page on measuring a model, and their Python, as printed, on a tiny model."""

import json
import re
import shlex
import shutil

import pytest
from conftest import ROOT

from posbias import cli, shipped

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
plt = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")

PAGES = ("README.md", "book/your_model.md")
REFERENCE = ("studies/reference/models/llama-12", "studies/reference/models/bloom-12")
NAMES = ("path/or/hub-id", "path/to/checkpoint", "DIR_OR_ID", *REFERENCE)
"""What stands for a user's model, and models for which the tiny one is quicker."""
FEW = ("--prompts", "8")
"""Added to commands on a model that name no number of prompts: the default takes minutes."""
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Return a folder with a tiny network and a tokenizer of words and pieces, that has a chat template."""
    folder = tmp_path_factory.mktemp("tiny") / "model"
    tokenizer = transformers.AutoTokenizer.from_pretrained(shipped.reference_folder("bloom-8"))
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.LlamaConfig(vocab_size=2048, max_position_embeddings=2048, **size)
    transformers.set_seed(0)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def blocks(page, language):
    """Return the blocks of a page in a language, with lines that go on joined."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [one.replace("\\\n", " ") for one in re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)]


def commands(page):
    """Return the command lines of ``posbias`` on a page."""
    lines = (line for block in blocks(page, "bash") for line in block.splitlines())
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("posbias ")]


@pytest.mark.parametrize("page", PAGES)
def test_commands_work_as_printed(page, tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    said = [[{"role": "user", "content": "Where is it, and who has seen it?"}]] * 2
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps({"messages": one}) + "\n" for one in said))
    (tmp_path / "prompt.txt").write_text("Some passage.\n\nAnother one.\n\nWhat do they say?\n")
    assert len(commands(page)) >= 6
    for words in commands(page):
        if "other.csv" in words:
            shutil.copy("profile.csv", "other.csv")
        few = FEW if any(name in words for name in NAMES) and "--prompts" not in words else ()
        with pytest.raises(SystemExit) as ended:
            cli.main([*(str(tiny) if word in NAMES else word for word in words), *few])
        assert ended.value.code == 0, (words, capsys.readouterr().err)
        for option in ("-o", "--output"):
            if option in words and "--dry-run" not in words:
                assert (tmp_path / words[words.index(option) + 1]).stat().st_size > 0, words


@pytest.mark.parametrize("page", PAGES)
def test_python_works_as_printed(page, tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in blocks(page, "python"):
        for name in NAMES:
            block = block.replace(f'"{name}"', repr(str(tiny)))
        exec(block, names)
    assert names["m"].prompts == 200 and names["m"].length == 256
    plt.close("all")
