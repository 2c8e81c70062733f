"""The key-value task as published: what is written, and what is counted."""

import gzip
import json

import numpy as np
import pytest
import xarray as xr

from studies.documents.evidence import Evidence
from studies.documents.questions import key_numbers
from studies.questions import keys

PAIRS = [("k1", "v1"), ("k2", "v2"), ("k3", "v3")]


@pytest.mark.parametrize("place", range(3))
def test_the_pair_that_is_asked_for_is_at_its_place_and_the_others_keep_their_order(place):
    found = keys.moved(PAIRS, "k2", place)
    assert found.index(("k2", "v2")) == place and [x for x in found if x[0] != "k2"] == [PAIRS[0], PAIRS[2]]
    said = keys.write_message(found, "k2")
    assert json.loads(said[said.index("{") : said.index("}") + 1]) == dict(PAIRS)
    assert said.endswith('Key: "k2"\nIts value:') and said.index(found[0][0]) < said.index(found[1][0])


def test_a_file_that_is_another_is_refused_and_the_right_one_read(tmp_path, monkeypatch):
    monkeypatch.setenv("POSBIAS_DATA", str(tmp_path))
    with pytest.raises(ValueError, match="keys: expected lost_in_the_middle/kv-retrieval"):
        keys.read_dictionaries(1)
    file = tmp_path / keys.FILE
    file.parent.mkdir()
    row = json.dumps({"ordered_kv_records": PAIRS, "key": "k3", "value": "v3"})
    file.write_bytes(gzip.compress(f"{row}\n{row}\n".encode()))
    monkeypatch.setattr(keys, "digest", lambda path: keys.SHA256)
    assert keys.read_dictionaries(1) == [(PAIRS, "k3", "v3")]


def test_values_are_counted_by_place():
    rows = {"correct": [[0, 0, 1], [0, 0, 1]], "begun": [[1, 0, 1], [0, 0, 1]], "tokens": [[5, 5, 5], [7, 7, 7]]}
    entry = xr.Dataset({name: (("dictionary", "place"), np.array(x)) for name, x in rows.items()})
    found = key_numbers(Evidence({}, {"keys": entry}))
    assert found == {"keys_asked": 2, "keys_tokens": "6", "keys_right": "0, 0, 2", "keys_begun": "1, 0, 2"}
