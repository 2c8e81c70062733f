"""Liu et al.'s key-value task as they published it: 75 pairs of UUIDs, one of the keys asked for.

Each dictionary is asked for the same key with its pair first, in the middle and last. The file is
theirs (``kv-retrieval-75_keys.jsonl.gz``, MIT licence); the words of the prompt say the same as
theirs. No threshold was set: it says whether SmolLM2 finds a value at all in so long a prompt.
"""

from __future__ import annotations

import gzip
import json
from typing import Any

import numpy as np
import torch
import xarray as xr

from posbias import errors
from posbias.engines.local import LocalEngine
from posbias.files import data_folder, digest
from posbias.lookup.answers import UNTIL
from posbias.prompts import Prompt
from posbias.settings import Settings
from studies.making import go_on

FILE = "lost_in_the_middle/kv-retrieval-75_keys.jsonl.gz"
"""Below ``POSBIAS_DATA``."""
SHA256 = "eb6d61fc3473349f2b86df76757c6ab659cc929d907d24caf1c69928e03f6203"
AT = (0, 37, 74)
"""Places of the pair that is asked for."""
MOST, BEGUN = 60, 8
"""Tokens of an answer at most, more than a UUID has; and letters of the value up to its first hyphen."""
Pairs = list[tuple[str, str]]


def read_dictionaries(count: int) -> list[tuple[Pairs, str, str]]:
    """Return dictionaries with the key that is asked for and its value."""
    file = data_folder() / FILE
    if not file.is_file() or digest(file) != SHA256:
        expected = f"{FILE} of github.com/nelson-liu/lost-in-the-middle below POSBIAS_DATA"
        raise errors.invalid("keys", expected, f"none, or another one, at {file}")
    found = []
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for line, _ in zip(lines, range(count), strict=False):
            row = json.loads(line)
            pairs = [(str(key), str(value)) for key, value in row["ordered_kv_records"]]
            found.append((pairs, str(row["key"]), str(row["value"])))
    return found


def moved(pairs: Pairs, key: str, place: int) -> Pairs:
    """Return the pairs with that of a key at a place, the others in their order.

    >>> moved([("a", "1"), ("b", "2"), ("c", "3")], "c", 0)
    [('c', '3'), ('a', '1'), ('b', '2')]
    """
    own = next(pair for pair in pairs if pair[0] == key)
    others = [pair for pair in pairs if pair[0] != key]
    return [*others[:place], own, *others[place:]]


def write_message(pairs: Pairs, key: str) -> str:
    """Return what a user writes."""
    lines = ",\n ".join(f'"{one}": "{value}"' for one, value in pairs)
    return (
        f'Find the value of the given key in this JSON object.\n\nJSON data:\n{{{lines}}}\n\nKey: "{key}"\nIts value:'
    )


def measure_keys(settings: Settings) -> xr.Dataset:
    """Return whether the value is found (dictionary, place), in 16 bits."""
    source: Any = settings.source
    tokenizer = source.load_tokenizer()
    engine = LocalEngine(source.load_model(torch.bfloat16, "cpu", None, "sdpa"), tokenizer)
    rows = read_dictionaries(settings.prompts)

    def read(k: int) -> dict[str, np.ndarray]:
        pairs, key, value = rows[k]
        found: dict[str, list[int]] = {"correct": [], "begun": [], "tokens": []}
        for place in AT:
            message = [{"role": "user", "content": write_message(moved(pairs, key, place), key)}]
            text = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            [given] = engine.generate([Prompt(text, "", tuple(ids))], MOST, UNTIL)
            found["correct"].append(int(value in given.text))
            found["begun"].append(int(value[:BEGUN] in given.text))
            found["tokens"].append(len(ids))
        return {name: np.array(x) for name, x in found.items()}

    path = data_folder() / "unfinished" / f"questions-keys-{source.version()[-16:]}.npz"
    found = go_on(len(rows), read, path, "dictionaries")
    meanings = {
        "correct": "1 where the answer has the value in it, else 0",
        "begun": f"1 where it has the value's first {BEGUN} letters",
        "tokens": "tokens of the prompt",
    }
    arrays = {}
    for name, x in found.items():
        arrays[name] = (("dictionary", "place"), x.astype(np.int16), {"long_name": meanings[name]})
    about = {
        "model": source.name(),
        "revision": source.version(),
        "dataset": "kv-retrieval-75_keys, Liu et al. 2023",
        "sha256": SHA256,
        "prompts": len(rows),
        "seed": settings.seed,
        "dtype": "bfloat16",
    }
    return xr.Dataset(arrays, {"place": list(AT)}, about)
