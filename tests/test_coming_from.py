"""The Python of the page for users of other tools, on a tiny model; a tool that is not installed is skipped."""

import importlib
import re
from types import SimpleNamespace

import pandas as pd
import pytest
import transformers
from conftest import ROOT

import posbias
from posbias import shipped

BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "book" / "coming_from.md").read_text("utf-8"), re.M | re.S)
SETUP, *EXAMPLES = BLOCKS
TOOLS = ("inseq", "captum", "context_cite", "transformer_lens", "haystack")
NEEDS = {"theirs": ("inseq", "explained")}
"""What an example uses of others: the words by which they are found."""
TEMPLATE = "{% for m in messages %}{{ m.content }}\n{% endfor %}"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Return a folder with a tiny network and a tokenizer with a chat template."""
    folder = tmp_path_factory.mktemp("tiny")
    tokenizer = transformers.AutoTokenizer.from_pretrained(shipped.reference_folder("bloom-8"))
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    transformers.set_seed(0)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=2048, **size)).save_pretrained(folder)
    return folder


def tools_of(block):
    return [tool for tool in TOOLS if re.search(rf"^(import|from) {tool}\b", block, re.M)]


def test_each_tool_has_an_example():
    assert sorted(tool for block in EXAMPLES for tool in tools_of(block)) == sorted({*TOOLS})


@pytest.mark.parametrize("block", EXAMPLES, ids=lambda block: block.split("\n")[0][:40])
def test_examples_run_as_printed(block, tiny):
    needed = [
        other for word in NEEDS.get(block.split()[0], ()) for other in EXAMPLES if word in other.split("\n", 1)[0]
    ]
    names = {}
    for tool in (tool for one in (*needed, block) for tool in tools_of(one)):
        pytest.importorskip(tool, exc_type=ImportError)
        if tool == "context_cite":  # its splitter of sentences fetches this
            try:
                importlib.import_module("nltk").data.find("tokenizers/punkt_tab")
            except LookupError:
                pytest.skip("nltk's punkt_tab is not at hand")
    for one in (SETUP, *needed, block):
        exec(one.replace('"path/or/hub-id"', repr(str(tiny))), names)
    if "ordered" in names:  # again with places that are found unlike often: the second best, the third next
        frame = pd.DataFrame({"correct": [0.1, 0.9, 0.5]}, pd.MultiIndex.from_product([["competing"], range(3)]))
        names["found"] = SimpleNamespace(to_pandas=lambda: frame)
        exec("\n".join(block.splitlines()[-2:]), names)
        first, second, third = names["documents"]
        assert names["ordered"] == [third, first, second]
    if "by_document" in names:
        assert names["by_document"].shape == (len(names["documents"]),)


def test_page_has_the_table_of_the_benchmark_and_what_compare_prints():  # but does not compare deletion with itself
    page, table = ((ROOT / folder / "coming_from.md").read_text("utf-8") for folder in ("book", "benchmarks"))
    assert re.sub(r"(\| deletion \|.*\|) \+1\.00 \|", r"\1 – |", table, count=1) in page
    assert repr(posbias.compare([0.1, 0.1, 0.2, 0.6], [0.2, 0.1, 0.1, 0.6])).split("\n", 2)[2] in page
