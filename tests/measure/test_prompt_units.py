"""The module or document that prompts are from, by files that are kept and by corpora whose documents are known."""

import numpy as np
import pytest
from conftest import ROOT

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
xr = pytest.importorskip("xarray", reason="xarray is not installed")

from transformers import AutoTokenizer

from posbias.measure.corpus import Corpus, document_units, in_order, make_prompts
from posbias.measure.prompt_units import prompt_units, unit_groups
from posbias.measure.summary import read_summary
from posbias.shipped import held_out_documents, held_out_modules, model_folder
from studies.reference.texts import documents, is_held_out

KEPT = ROOT / "results" / "models"


@pytest.mark.parametrize(
    ("stem", "units"), [("bloom-8.builtin", 85), ("llama-12.builtin", 85), ("bloom-8.random", 128)]
)
def test_prompts_of_kept_files(stem, units):
    kept = read_summary(KEPT / f"{stem}.nc")
    found = prompt_units(kept)
    assert found.size == kept.attrs["prompts"] and len(set(found)) == units == found.max() + 1
    if stem != "bloom-8.random":  # all documents are long enough, so that prompt k is of document k
        modules = held_out_modules()[: found.size]
        assert found.tolist() == in_order(np.array(modules)).tolist()


def test_modules_are_held_out_ones_and_their_texts_are_the_documents():
    modules, texts = held_out_modules(), held_out_documents()
    assert len(modules) == len(texts) and all(map(is_held_out, modules))
    named = {}
    for document in documents("held-out"):
        named.setdefault(document.name, []).append(document.text)
    here = [any(whole.startswith(text) for whole in named.get(name, ())) for name, text in zip(modules, texts)]  # noqa: B905
    elsewhere = [any(whole.startswith(text) for whole in sum(named.values(), [])) for text in texts[:40]]
    assert here[:40] == elsewhere  # another version of Python has other texts, but no other names for equal ones


def test_units_of_other_corpora(tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(model_folder("reference/bloom-8"))
    for k, words in enumerate((300, 20, 100)):
        (tmp_path / f"{k}.txt").write_text("one two three " * words)
    corpus = Corpus(str(tmp_path))
    prompts = make_prompts(corpus, tokenizer, 6, 40, rule="cut", per_document=4)
    attrs = {"prompts": 6, "length": 40, "rule": "cut, 4 a document", "seed": 0, "dataset": tmp_path.name}
    file = xr.Dataset(attrs=attrs | {"special_tokens": "True", "prompts_sha256": prompts.sha256})
    units = prompt_units(file, corpus=corpus)
    assert units.tolist() == in_order(prompts.origins).tolist() and np.bincount(units).max() == 4
    with pytest.raises(ValueError, match="corpus: expected the documents of .*, several prompts from each"):
        prompt_units(file)
    assert prompt_units(file.assign_attrs(rule="first")).tolist() == list(range(6))


def test_other_prompts_than_those_of_the_file_are_refused():
    kept = read_summary(KEPT / "bloom-8.builtin.nc")
    with pytest.raises(ValueError, match="prompts: expected those of the file, .*; give the tokenizer"):
        prompt_units(kept.assign_attrs(seed=1, rule="cut, 2 a document"))
    nameless = kept.copy()
    del nameless.attrs["prompts_sha256"]
    with pytest.raises(ValueError, match="tokenizer: expected the one that cut the prompts"):
        prompt_units(nameless)
    tokenizer = AutoTokenizer.from_pretrained(model_folder("reference/bloom-8"))
    assert prompt_units(nameless, tokenizer=tokenizer).tolist() == prompt_units(kept).tolist()


def test_groups_keep_units_together_and_are_about_equal():
    units = document_units(np.arange(64), "builtin")
    group = unit_groups(units, 8)
    assert all(len(set(group[units == u])) == 1 for u in set(units)) and np.bincount(group).tolist() == [8] * 8
    with pytest.raises(ValueError, match="groups: expected at most 2, the units, received 3"):
        unit_groups(np.array([0, 1, 1]), 3)
