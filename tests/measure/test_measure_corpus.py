"""Documents by path and name, and the prompts cut from them."""

import csv
import gzip
import json

import numpy as np
import pytest
from measuring import save, settings, write_documents
from transformers import AddedToken, AutoConfig, AutoModelForCausalLM, AutoTokenizer

import posbias
from posbias.measure.corpus import Corpus, Prompts, make_prompts
from posbias.models.loading import special_tokens
from posbias.models.opening import Vocabulary


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return AutoTokenizer.from_pretrained(save(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    return AutoTokenizer.from_pretrained(save(tmp_path_factory.mktemp("model"), start=False))


def test_the_first_tokens_of_documents_long_enough(tmp_path, tokenizer):
    path = write_documents(tmp_path / "d.jsonl", [20, 3, 9, 10, 30])
    prompts = make_prompts(Corpus(str(path)), tokenizer, 3, 10)
    documents = list(Corpus(str(path)).documents())
    expected = [tokenizer(documents[k])["input_ids"][:10] for k in (0, 2, 3)]
    assert prompts.ids.tolist() == expected and (prompts.ids[:, 0] == 0).all()
    assert prompts.origins.tolist() == [0, 2, 3]
    without = make_prompts(Corpus(str(path)), tokenizer, 3, 10, special_tokens=False)
    assert (without.ids[:, 0] != 0).all()
    assert len({prompts.sha256, without.sha256, make_prompts(Corpus(str(path)), tokenizer, 3, 10).sha256}) == 2


def test_a_folder_of_texts_and_a_parquet_file(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    (tmp_path / "b.txt").write_text("second")
    (tmp_path / "a.txt").write_text("first")
    assert list(Corpus(str(tmp_path)).documents()) == ["first", "second"]
    parquet.write_table(pa.table({"text": ["x", "y"], "id": [1, 2]}), tmp_path / "d.parquet")
    assert list(Corpus(str(tmp_path / "d.parquet")).documents()) == ["x", "y"]
    with pytest.raises(ValueError, match="row 1: expected a record with a text in 'body'"):
        list(Corpus(str(tmp_path / "d.parquet"), field="body").documents())


def test_cuts_come_from_inside_and_do_not_overlap(tmp_path, bare):
    path = write_documents(tmp_path / "d.jsonl", [100, 100, 7])
    prompts = make_prompts(Corpus(str(path)), bare, 6, 10, rule="cut", per_document=3, seed=5)
    assert prompts.origins.tolist() == [0, 0, 0, 1, 1, 1]
    documents = [bare(x)["input_ids"] for x in Corpus(str(path)).documents()]
    at = np.random.default_rng(5).integers(10)
    assert prompts.ids[:2].ravel().tolist() == documents[0][at : at + 20]
    again = make_prompts(Corpus(str(path)), bare, 6, 10, rule="cut", per_document=3, seed=5)
    other = make_prompts(Corpus(str(path)), bare, 6, 10, rule="cut", per_document=3, seed=6)
    assert (again.ids == prompts.ids).all() and (other.ids != prompts.ids).any()
    with pytest.raises(ValueError, match="6 prompts of 10 tokens, received 2 from 3 documents"):
        make_prompts(Corpus(str(path)), bare, 6, 10, rule="cut", seed=5)


def test_tables_and_packed_files_have_the_same_documents(tmp_path):
    texts = ["first, with a comma", 'second\nof two lines and a "quote"', "third"]
    lines = "".join(json.dumps({"text": x}) + "\n" for x in texts)
    with (tmp_path / "d.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerows([("id", "text"), *enumerate(texts)])
    (tmp_path / "d.jsonl").write_text(lines)
    (tmp_path / "marked.CSV").write_bytes(b"\xef\xbb\xbf" + b"text\nfirst\n")
    for name in ("d.csv", "d.jsonl"):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress((tmp_path / name).read_bytes()))
        assert list(Corpus(str(tmp_path / name)).documents()) == texts
        assert list(Corpus(str(tmp_path / f"{name}.gz")).documents()) == texts
    assert list(Corpus(str(tmp_path / "marked.CSV")).documents()) == ["first"]
    (tmp_path / "t.txt.gz").write_bytes(gzip.compress(b"= A\none\n= B\ntwo\n"))
    assert list(Corpus(str(tmp_path / "t.txt.gz")).documents()) == ["= A\none\n= B\ntwo\n"]


def test_messages_of_a_file_have_their_own_fields_alone(tmp_path):
    """A table gives each message the fields of all; a template may look at which there are."""
    said = [{"role": "user", "content": "a"}, {"role": "tool", "content": "b", "name": "c"}]
    (tmp_path / "d.jsonl").write_text(json.dumps({"text": said}) + "\n")
    assert list(Corpus(str(tmp_path / "d.jsonl")).documents()) == [said]


def test_random_tokens_leave_out_what_is_special(tokenizer):
    ids = make_prompts(Corpus("none"), Vocabulary(5), 50, 20, rule="random", excluded={0, 3}).ids
    assert set(np.unique(ids)) == {1, 2, 4}
    assert special_tokens(AutoConfig.for_model("llama", eos_token_id=[7, 8], pad_token_id=9)) == {1, 7, 8, 9}
    with pytest.raises(ValueError, match="tokens that are not special, received none of 2"):
        make_prompts(Corpus("none"), Vocabulary(2), 1, 4, rule="random", excluded={0, 1})
    before = make_prompts(Corpus("none"), tokenizer, 4, 30, rule="random").ids
    assert (before[:, 0] == 0).all() and (before[:, 1:] > 1).all() and len(np.unique(before)) > 20
    assert (make_prompts(Corpus("none"), tokenizer, 4, 30, rule="random", excluded=(0, 1)).ids == before).all()
    size, reserved = len(tokenizer), AutoTokenizer.from_pretrained(tokenizer.name_or_path)
    reserved.add_tokens([AddedToken(f"<|reserved-{k}|>", special=True) for k in range(200)])
    assert len(reserved) == size + 200 and not set(range(size, size + 200)) & set(reserved.all_special_ids)
    assert make_prompts(Corpus("none"), reserved, 8, 30, rule="random").ids.max() < size


def test_the_padding_token_of_opt_is_never_drawn():
    config = settings("opt", vocab_size=6, pad_token_id=1, bos_token_id=2, eos_token_id=2)
    study = posbias.open(AutoModelForCausalLM.from_config(config)).measure(3, 20, rule="random")
    assert np.isfinite(study.influence.values).all()
    ids = make_prompts(Corpus("none"), Vocabulary(6), 3, 20, rule="random", excluded=special_tokens(config)).ids
    assert study.provenance["prompts_sha256"] == Prompts(ids, np.arange(3)).sha256 and not np.isin(ids, [1, 2]).any()
