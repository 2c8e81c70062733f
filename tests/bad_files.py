"""Files that are not as they should be, for the table of bad inputs: models, documents, results, configurations."""

import gzip
import json
import os

import h5py
import numpy as np
import xarray as xr
import yaml
from measuring import save, write_documents
from rollout_config import changed

from studies import results
from studies.lookup.settings import Setting, Training, described

CONFIGURATIONS = {
    "sequence_length": ("x", 0, 1.5, True),
    "num_layers": (0,),
    "mask_config": ({"mask_type": "sliding_window"},),
    "mask_config__mask_type": ("random",),
    "mask_config__window_size": (0,),
    "attention_config__num_heads": (0,),
    "attention_config__alibi_slopes": ("x", [0.5], [[0.0, 1.0]], [[float("nan"), 1.0]], []),
    "attention_config__head_weights": ([[1.0, -1.0]], [[float("inf"), 1.0]], [[1.0] * 3]),
    "attention_config__softmax_temperature": (0, float("inf")),
    "content_config__diagonal_scores": ([[1.0], [2.0], [3.0]], [[float("nan")]], [[1.0], [1.0, 2.0]]),
    "content_config__base_scores": ([[float("-inf")]], [[1.0, 2.0, 3.0]]),
    "lambda_schedule_config__schedule_type": ("linear",),
    "lambda_schedule_config__lambdas_custom": ([0.3], [0.3, 1.5], [0.3, float("nan")]),
    "attention_config": (..., 3),
    "content_config": ([],),
    "lambda_schedule_config": (..., {"schedule_type": "constant", "lambda_const": 2}, {"schedule_type": "power_decay"}),
    "unknown_field": (1,),
}
"""Field of a rollout configuration → values that it cannot have; ``...`` takes it out."""
BIASES = (
    ({"kind": "flat", "tau": 0.0}, ("position_bias.tau", "a number above 0", "0.0")),
    ({"kind": "log", "alpha": float("inf")}, ("position_bias.alpha", "finite numbers", "inf")),
    ({"kind": "alibi", "slope": 0.0}, ("position_bias.slope", "a number other than 0")),
    ({"kind": "linear"}, ("position_bias.kind", "log, flat", "linear")),
    ({"kind": "log"}, ("position_bias", "kind and alpha")),
    ("flat", ("position_bias", "a mapping", "flat")),
    ([[{"kind": "none"}]] * 3, ("position_bias", "lists for 1 or 2 layers", "3 entries")),
    ([[{"kind": "none"}], [{"kind": "none"}] * 2], ("position_bias",)),
)
"""Position biases of two layers that are none, and what the line says."""
YAML = {
    "empty": "",
    "list": "- 1\n",
    "broken": "a: [1",
    "code": "!!python/object/apply:os.system [ls]",
    "bytes": b"\xff\xfe\x00a",
}
"""Texts that are no configuration."""

PROFILES = {
    "header": "position,probability\n0,1\n",
    "empty": "",
    "skipped": "token_position,probability\n0,0.5\n2,0.5\n",
    "word": "token_position,probability\n0,half\n",
    "negative": "token_position,probability\n0,1.5\n1,-0.5\n",
    "sum": "token_position,probability\n0,0.5\n1,0.4\n",
    "nan": "token_position,probability\n0,nan\n",
    "no-rows": "token_position,probability\n",
    "bytes": b"\x89HDF\r\n\x1a\n\xff",
}
"""Texts that are no profile."""


def write_models(root):
    """Write directories that are no models, beside one that is."""
    gpt2 = {"model_type": "gpt2"}
    contents = {
        "not-json": "not json",
        "no-type": "{}",
        "bert": json.dumps({"model_type": "bert"}),
        "plain": json.dumps(gpt2),
        "words": json.dumps(gpt2 | {"n_layer": "two"}),
    }
    contents["biased"] = json.dumps(
        gpt2 | {"n_layer": 12, "n_head": 12, "position_bias": {"kind": "log", "alpha": 1.0}}
    )
    for name, content in contents.items():
        (root / name).mkdir()
        (root / name / "config.json").write_bytes(content.encode() if isinstance(content, str) else content)
    (root / "empty").mkdir()
    save(root / "bloom", "bloom")
    save(root / "small", "llama")


def write_corpora(root):
    """Write files and folders that are no documents, beside one that is."""
    import pyarrow as pa
    from pyarrow import parquet

    write_documents(root / "d.jsonl", [40] * 12)
    texts = {
        "latin/a.txt": "fine",
        "latin/b.txt": b"caf\xe9 at noon",
        "broken.jsonl": '{"text": "a"}\nnot json\n',
        "number.jsonl": '{"text": 3}',
        **dict.fromkeys(("zero.txt", "there.png"), ""),
        "one.txt": "ban bar bam ben ber bem bin bir",
        "d.csv": "text,id\na,1\n",
        "cut.jsonl.gz": gzip.compress(b'{"text": "a"}' * 1000)[:-20],
    }
    for name, content in texts.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(content.encode() if isinstance(content, str) else content)
    tables = {"null": ["a b", None], "damaged": ["word " * 500] * 300}
    for name, column in tables.items():
        parquet.write_table(pa.table({"text": column}), root / f"{name}.parquet", use_dictionary=False)
    whole = (root / "damaged.parquet").read_bytes()
    (root / "damaged.parquet").write_bytes(whole[:4] + b"\xff" * 200 + whole[204:])


def write_results(root):
    """Write files that are no measurements."""
    attributes = {
        "foreign": {},
        "schema-text": {"posbias_schema": "one"},
        "schema-2": {"posbias_schema": 2},
        "bare": {"posbias_schema": 1},
        "good": {"posbias_schema": 1},
        "lookup": {"posbias_retrieval": 7},
    }
    for name, attrs in attributes.items():
        xr.Dataset({"x": ("k", np.zeros(3))}, attrs=attrs).to_netcdf(root / f"{name}.nc", engine="h5netcdf")
    with h5py.File(root / "plain.nc", "w") as file:
        file["x"] = np.zeros(3)
    (root / "cut.nc").write_bytes((root / "bare.nc").read_bytes()[:300])
    (root / "zero.nc").write_bytes(b"")
    (root / "text.nc").write_text("text")
    for name in ("folder.nc", "folder.html"):
        (root / name).mkdir()
    os.mkfifo(root / "pipe.nc")
    (root / "begun.nc.partial").write_text("no checkpoint")
    found = setting = Setting(pairs=16)
    for folder in ("networks", "begun", "found"):
        (root / folder).mkdir()
    for file in ("networks/icl.nc", "networks/lookup.nc"):
        (root / file).write_text("text")
    for network in ("mixture-none-causal-none-2-plain", setting.name):
        (root / "begun" / f"{network}.seed0.checkpoint").write_text("text")
    made = xr.Dataset({"x": ("seed", [0.0])}, {"seed": [0]}, described(found, Training(iterations=4)))
    results.save(root / "found" / "lookup.nc", {found.name: made})


def write_configurations(root):
    """Write configurations and profiles that are not as they should be."""
    (root / "c.yaml").write_text(yaml.safe_dump(changed()))
    for field, values in CONFIGURATIONS.items():
        for k, value in enumerate(values):
            (root / f"{field}-{k}.yaml").write_text(yaml.safe_dump(changed(**{field: value})))
    constant = {"schedule_type": "constant", "lambda_const": 0.1}
    designs = {"even": (12, {"kind": "flat", "tau": 1.2}), "narrow": (12, [{"kind": "none"}] * 2)}
    for name, (layers, bias) in designs.items():
        fields = {"sequence_length": 8, "num_layers": layers, "position_bias": bias}
        (root / f"{name}.yaml").write_text(yaml.safe_dump({**fields, "lambda_schedule_config": constant}))
    none, log = {"kind": "none"}, {"kind": "log", "alpha": 1.0}
    future = {"sequence_length": 8, "num_layers": 3, "lambda_schedule_config": constant}
    future |= {"position_bias": log, "mask_config": {"mask_type": "full"}}
    for name, content in (
        ("heads", {"position_bias": [none, log]}),
        ("kind", {"position_bias": {"kind": "lag"}}),
        ("future", future),
        ("word", 3),
    ):
        (root / f"added-{name}.yaml").write_text(yaml.safe_dump(content))
    (root / "branches.yaml").write_text(yaml.safe_dump(changed(branches={"positions": [1]})))
    for k, (bias, _) in enumerate(BIASES):
        biased = changed(position_bias=bias, attention_config=..., content_config=...)
        (root / f"bias-{k}.yaml").write_text(yaml.safe_dump(biased))
    for kind, texts in (("yaml", YAML), ("profile", PROFILES)):
        for name, text in texts.items():
            path = root / f"{kind}-{name}.{'yaml' if kind == 'yaml' else 'csv'}"
            path.write_bytes(text.encode() if isinstance(text, str) else text)
    (root / "p.csv").write_text("token_position,probability\n0,0.5\n1,0.5\n")
    (root / "q.csv").write_text("token_position,probability\n0,0.5\n1,0.25\n2,0.25\n")
