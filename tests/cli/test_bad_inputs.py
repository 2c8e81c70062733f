"""A table of bad inputs: each is refused in one line that names the field or the file, and nothing is written.

A row is a command line and what the line must say; ``P`` in both is the folder of files that are not as they should be.
Rows are made by option and wrong kind where options are alike, and written out where they are not. A new option or file
adds its rows to the list of its command; what a call of the front door refuses is in the last table.
"""

import errno
import gzip
import json
import os
import shlex

import numpy as np
import pytest
import yaml
from rollout_config import changed

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
h5py = pytest.importorskip("h5py", reason="h5py is not installed")

import xarray as xr
from lookup_worlds import save_network, word_tokenizer
from measuring import save, write_documents

import posbias
from posbias.cli import main
from studies.lookup import results as lookup_results
from studies.lookup.settings import Setting, Training, described

HUGE = 10**13
"""Of anything: more than fits into the memory of a machine."""


def wrong(command, option, *kinds, named=None):
    """Return a row for each wrong kind of an option's value, whose name the line must have."""
    said = named or option.strip("-").replace("-", "_")
    return [
        (f"{command} {option}={shlex.quote(str(kind))}", (said if kind not in PARSED else option,)) for kind in kinds
    ]


PARSED = ("x", "1.5", "", "one two", "0x10")
"""Values that are no numbers: the command line itself refuses them, by the option."""
MODEL = "-m P/bloom -d P/d.jsonl -N 2 -n 8"
MEASURE = f"measure -o m.nc {MODEL}"
TEXT = "measure -o m.nc -m P/bloom -N 2 -n 8"
ICL = "train-icl -o out"
REFERENCE = "train-reference bloom-8 -o out"

COMMAND_LINES = [
    ("nix", ("No such command 'nix'",)),
    ("--nix", ("--nix",)),
    *(
        (f"{command} --nix", ("--nix",))
        for command in (
            "measure",
            "report P/m.nc",
            "rollout P/c.yaml",
            "compare P/p.csv P/p.csv",
            "study",
            "train-reference bloom-8",
            "train-icl",
            "train-retrieval",
            "run rollout",
            "chapters",
            "book",
            "portable",
            "format",
            "explorer-data",
            "design",
            "lookup",
        )
    ),
    *(
        (command, ("Missing", missing))
        for command, missing in (
            ("measure -m P/bloom", "--output"),
            ("report P/m.nc", "--output"),
            ("rollout P/c.yaml", "--output"),
            ("compare P/p.csv", "second"),
            ("train-reference -o out", "names"),
            ("train-reference bloom-8", "--output"),
            ("train-icl", "--output"),
            ("train-retrieval", "--output"),
            ("lookup -m P/bloom", "--output"),
            ("run", "chapter"),
            ("design --depth 2 --lambda 0.2 --heads 2 -n 8", "--output"),
        )
    ),
    *(
        (f"{command} P/other", ("other",))
        for command in (
            "measure -o m.nc",
            "compare P/p.csv P/p.csv",
            "chapters",
            "study gap",
            "explorer-data",
        )
    ),
    *((f"{MEASURE} --{flag}=yes", (flag,)) for flag in ("resume", "heads", "allow-pickle", "trust-remote-code")),
    ("study --list=yes", ("--list",)),
    ("train-icl -o out --residual=yes", ("--residual",)),
]

NUMBERS_OF_MEASURE = [
    *wrong(MEASURE, "--prompts", "1.5", 0, HUGE),
    *wrong(MEASURE, "--length", 1, HUGE),
    *wrong(MEASURE, "--batch-size", 0, -1),
    *wrong(MEASURE, "--kernel-size", 0),
    *wrong(MEASURE, "--seed", -1, 2**32),
    *wrong(MEASURE, "--per-document", 0),
]

CHOICES_OF_MEASURE = [
    *wrong(MEASURE, "--rule", "last"),
    *wrong(MEASURE, "--dtype", "int8", "FLOAT32", "bf16"),
    (f"{MEASURE} --dtype=", ("dtype", "an empty name")),
    *wrong(MEASURE, "--device", "meta", "gpu", "cuda:x", "disk"),
    (f"{MEASURE} --device=", ("device", "''")),
    *wrong(MEASURE, "--attention", "flash", "auto"),
    *wrong(MEASURE, "--quantities", "kernels,gravity", "heads", "logits", "kernels;content"),
    *wrong(MEASURE, "--separator", "(", "*"),
    (f"{MEASURE} --rule random", ("dataset", "none with the rule random", "P/d.jsonl")),
    ("measure -o m.nc -d P/d.jsonl", ("model", "--model, or --untrained")),
    ("measure -o m.nc -d P/d.jsonl -m P/bloom --untrained gpt2", ("untrained", "no --model beside it")),
    ("measure -o m.nc --untrained gpt2 --revision main", ("revision", "main")),
    ("measure -o m.nc --untrained gpt2 --device-map auto", ("device_map", "auto")),
    ("measure -o m.nc --untrained gpt2 --allow-pickle", ("allow_pickle",)),
    ("measure -o m.nc --untrained gpt2 --trust-remote-code", ("trust_remote_code",)),
]

OUTPUTS = [
    *(
        (f"measure {MODEL} -o {out}", said)
        for out, said in (
            ("m.csv", ("output", "m.csv")),
            ("m", ("output", ".nc")),
            ("m.nc.gz", ("output", "m.nc.gz")),
            ("''", ("output", ".nc")),
            ("no/m.nc", ("no/m.nc", "No such file or directory")),
            ("P/folder.nc", ("folder.nc", "a directory")),
            ("P/pipe.nc", ("pipe.nc", "a device or a pipe")),
            ("P/kept.nc", ("kept.nc", "read-only")),
            ("P/d.jsonl/m.nc", ("m.nc", "Not a directory")),
            ("P/circle.nc", ("circle.nc",)),
            (f"{'m' * 300}.nc", ("mmm", os.strerror(errno.ENAMETOOLONG))),
            ("P/begun.nc", ("begun.nc.rank0.checkpoint", "give --resume")),
            ("P/folded.nc", ("folded.nc.rank0.checkpoint", "a directory")),
            ("P/folded.nc --resume", ("folded.nc.rank0.checkpoint", "a directory")),
            ("P/begun.nc --resume", ("begun.nc.rank0.checkpoint", "an intact checkpoint")),
            ("m.nc --report r.txt", ("report", "r.txt")),
            ("m.nc --report no/r.html", ("no/r.html",)),
            ("m.nc --report P/folder.html", ("folder.html", "a directory")),
        )
    ),
    *(
        (f"report P/good.nc -o {out}", said)
        for out, said in (
            ("r.txt", ("output", "r.txt")),
            ("no/r.html", ("no/r.html",)),
            ("P/folder.html", ("folder.html", "a directory")),
        )
    ),
    *(
        (f"rollout P/c.yaml -o {out}", said)
        for out, said in (
            ("no/p.csv", ("no/p.csv",)),
            ("P/folder.nc", ("folder.nc", "a directory")),
            ("P/pipe.nc", ("pipe.nc", "a device or a pipe")),
            ("P/c.yaml", ("output", "another file")),
            ("P/kept.nc", ("kept.nc", "read-only")),
        )
    ),
    *(
        (f"{command} -o {out}", said)
        for command in ("train-reference bloom-8", "train-icl", "train-retrieval")
        for out, said in (
            ("P/d.jsonl", ("output", "d.jsonl")),
            ("P/d.jsonl/in", ("output", "d.jsonl")),
            ("P/pipe.nc", ("output", "pipe.nc")),
        )
    ),
    ("study gap --only bloom-8 -o P/d.jsonl", ("output", "d.jsonl")),
    ("rollout --published bloom -o no/c.yaml", ("no/c.yaml",)),
    ("rollout --published measured -o P/folder.nc", ("folder.nc", "a directory")),
    ("explorer-data -o no/x.js", ("no/x.js",)),
]

MODELS = [
    *(
        (f"measure -o m.nc -d P/d.jsonl -N 2 -n 8 -m {model}", said)
        for model, said in (
            ("P/empty", ("P/empty", "a directory with a config.json")),
            ("P/not-json", ("config.json", "JSON")),
            ("P/binary", ("config.json", "JSON")),
            ("P/deep", ("config.json", "JSON")),
            ("P/list", ("config.json", "a JSON object", "[")),
            ("P/no-type", ("architecture", "no model_type")),
            ("P/bert", ("architecture", "bert")),
            ("P/number", ("architecture", "7")),
            ("P/folded", ("P/folded", "a directory with a config.json")),
            ("P/d.jsonl", ("model", "a file")),
            ("P/pipe.nc", ("model", "a file")),
            ("no/such/folder", ("model no/such/folder",)),
            ("/no/such", ("model /no/such",)),
            ("'two words'", ("model two words",)),
            ("''", ("model", "--model, or --untrained")),
            ("' '", ("model", "an empty name")),
            ("a/b/c", ("model a/b/c",)),
            ("../none", ("model ../none",)),
            ("reference/none", ("model", "reference/ and one of")),
            ("reference/", ("model", "reference/ and one of")),
            ("bloom-8", ("model", "reference/bloom-8")),
        )
    ),
    *(
        (f"measure -o m.nc -N 2 -n 8 --untrained {name}", said)
        for name, said in (
            ("gpt9", ("untrained", "gpt9")),
            ("''", ("untrained", "an empty name")),
            ("P/empty", ("untrained", "a directory with a config.json")),
            ("P/not-json", ("config.json", "JSON")),
            ("P/list", ("config.json", "a JSON object")),
            ("P/no-type", ("config.json", "no model_type")),
            ("P/bert/config.json", ("config.json", "bert")),
            ("P/d.jsonl", ("d.jsonl", "JSON")),
            ("reference/none", ("untrained", "reference/none")),
            ("P/no-layers", ("num_hidden_layers", "at least 1")),
            ("P/no-heads", ("num_attention_heads", "at least 1")),
            ("P/words", ("n_layer",)),
            ("P/many-layers", ("num_hidden_layers", "10000000")),
            ("P/odd", ("num_attention_heads", "a divisor")),
        )
    ),
    ("measure -o m.nc -N 2 -n 8 --untrained gpt2 -d P/d.jsonl", ("tokenizer",)),
    ("measure -o m.nc -N 2 -n 2000 --untrained gpt2", ("length", "1024")),
]

CORPORA = [
    *(
        (f"{TEXT} -d {dataset}", said)
        for dataset, said in (
            ("nowhere", ("dataset", "nowhere")),
            ("''", ("dataset", "an empty text")),
            ("' '", ("dataset", "an empty text")),
            (f"{'x' * 5000}", ("dataset", "xxx")),
            ("P/pipe.nc", ("pipe.nc", "a device or a pipe")),
            ("/dev/null", ("/dev/null", "a device or a pipe")),
            ("P/empty", ("P/empty", "an empty folder")),
            ("P/others", ("P/others", "one of a.md, b.csv")),
            ("P/folder.jsonl", ("P/folder.jsonl", "a folder of .txt files")),
            ("P/latin", ("b.txt", "text in UTF-8", "0xe9")),
            ("P/latin.txt", ("latin.txt", "text in UTF-8", "0xe9")),
            ("P/binary.jsonl", ("binary.jsonl", "text in UTF-8")),
            ("P/zeros.jsonl", ("zeros.jsonl: line 1", "a JSON object")),
            ("P/broken.jsonl", ("broken.jsonl: line 2", "a JSON object", "not json")),
            ("P/deep.jsonl", ("deep.jsonl: line 1", "a JSON object")),
            ("P/list.jsonl", ("list.jsonl: line 1", "a record with a text in 'text'")),
            ("P/number.jsonl", ("number.jsonl: line 1", "a record with a text in 'text'")),
            ("P/null.jsonl", ("null.jsonl: line 1", "a record with a text in 'text'")),
            ("P/d.jsonl --field body", ("d.jsonl: line 1", "'body'")),
            ("P/d.jsonl --field ''", ("d.jsonl: line 1", "''")),
            ("P/zero.txt", ("zero.txt", "0 from 1 document", "--separator")),
            ("P/one.txt", ("one.txt", "1 from 1 document", "--separator", "--rule cut")),
            ("P/one.txt --rule cut", ("one.txt", "--separator")),
            ("P/zero.jsonl", ("zero.jsonl", "0 from 0 documents")),
            ("P/zero.csv", ("zero.csv", "an intact csv file")),
            ("P/d.csv --field body", ("d.csv: row 1", "'body'")),
            ("P/short.csv", ("short.csv",)),
            ("P/quote.csv", ("quote.csv",)),
            ("P/latin.csv", ("latin.csv", "an intact csv file", "utf-8")),
            ("P/plain.jsonl.gz", ("plain.jsonl.gz", "a whole .gz file")),
            ("P/cut.jsonl.gz", ("cut.jsonl.gz", "a whole .gz file")),
            ("P/broken.csv.gz", ("broken.csv.gz",)),
            ("P/d.parquet", ("d.parquet", "an intact parquet file")),
            ("P/cut.parquet", ("cut.parquet", "an intact parquet file")),
            ("P/damaged.parquet", ("damaged.parquet", "an intact parquet file")),
            ("P/numbers.parquet", ("numbers.parquet: row 1", "'text'")),
            ("P/lists.parquet", ("lists.parquet: row 1", "'text'")),
            ("P/null.parquet", ("null.parquet: row 2", "'text'")),
            ("P/packed.parquet.gz", ("packed.parquet.gz", "an intact parquet file")),
            *(
                (f"P/x{s}", (f"x{s}", "expected text, a folder"))
                for s in (".zip", ".tar.gz", ".xz", ".tsv", ".pdf", ".arrow")
            ),
            ("P/d.jsonl -N 13", ("d.jsonl", "13 prompts of 8 tokens, received 12 from 12 documents")),
            ("P/d.jsonl -n 60", ("d.jsonl", "0 from 12 documents")),
            ("P/d.jsonl --tokenizer P/empty", ("tokenizer", "P/empty")),
        )
    ),
]

NETCDF = [
    *(
        (command.format(file), said)
        for command in ("report P/{} -o r.html", "rollout P/{} --variant a -o p.csv")
        for file, said in (
            ("none.nc", ("none.nc", "No such file")),
            ("folder.nc", ("folder.nc",)),
            ("pipe.nc", ("pipe.nc", "a device or a pipe")),
            ("zero.nc", ("zero.nc", "an empty file")),
            ("text.nc", ("text.nc", "another format")),
            ("cut.nc", ("cut.nc", "an intact netCDF file")),
            ("plain.nc", ("plain.nc",)),
            ("foreign.nc", ("foreign.nc", "no layout number")),
            ("schema-text.nc", ("schema-text.nc: posbias_schema", "an integer", "'one'")),
            ("schema-list.nc", ("schema-list.nc: posbias_schema", "an integer")),
            ("schema-half.nc", ("schema-half.nc: posbias_schema", "an integer", "1.5")),
            ("schema-nan.nc", ("schema-nan.nc: posbias_schema", "an integer", "nan")),
            ("schema-2.nc", ("schema-2.nc", "layout 1", "layout 2")),
            ("bare.nc", ("bare.nc", "a complete measurement")),
        )
    ),
    *(
        (command, said)
        for command, said in (
            ("report P/c.yaml -o r.html", ("model", "c.yaml")),
            ("rollout P/c.yaml --variant a -o p.csv", ("--variant", "c.yaml")),
            ("rollout P/zero.nc -o p.csv", ("--variant", "zero.nc")),
            ("rollout P/zero.nc --variant d -o p.csv", ("--variant", "'d'")),
            ("rollout P/zero.nc --variant a --norm max -o p.csv", ("--norm", "'max'")),
            ("rollout P/zero.nc --variant a --head-dim 4 -o p.csv", ("--head-dim", "none for P/zero.nc")),
            ("report P/summary-text.nc -o r.html", ("summary-text.nc: posbias_schema", "an integer")),
        )
    ),
]

CONFIGURATIONS = {
    "sequence_length": ("x", -1, 0, 1.5, None, [6], HUGE, True),
    "num_layers": ("x", -1, 0, 1.5, None, [2], HUGE),
    "mask_config__mask_type": ("random", 3),
    "mask_config__window_size": ("x", 0, -1, 1.5),
    "attention_config__num_heads": ("x", 0, 1.5, None, HUGE),
    "attention_config__alibi_slopes": (
        "x",
        0.5,
        [0.5],
        [[0.5, "x"]],
        [[0.0, 1.0]],
        [[-1.0, 1.0]],
        [[float("nan"), 1.0]],
        [],
    ),
    "attention_config__head_weights": ("x", [[1.0, -1.0]], [[float("inf"), 1.0]], [[1.0] * 3]),
    "attention_config__softmax_temperature": ("x", 0, -1.0, float("inf"), None),
    "content_config__diagonal_scores": ("x", [[1.0], [2.0], [3.0]], [[float("nan")]], [[1.0], [1.0, 2.0]], None),
    "content_config__base_scores": (3, [[float("-inf")]], [[1.0, 2.0, 3.0]]),
    "lambda_schedule_config__schedule_type": ("linear", None),
    "lambda_schedule_config__lambdas_custom": ("x", [0.3], [0.3, 1.5], [0.3, -0.1], [0.3, float("nan")], [0.3, "x"]),
    "attention_config": (..., 3),
    "content_config": (..., []),
    "lambda_schedule_config": (..., {"schedule_type": "constant", "lambda_const": 2}, {"schedule_type": "power_decay"}),
    "unknown_field": (1,),
}
"""Field of a rollout configuration → values that it cannot have; ``...`` takes it out."""
BIASES = (
    ({"kind": "flat", "tau": 0.0}, ("position_bias.tau", "a number above 0", "0.0")),
    ({"kind": "flat", "tau": -1.0}, ("position_bias.tau", "a number above 0")),
    ({"kind": "flat", "tau": float("nan")}, ("position_bias.tau", "finite")),
    ({"kind": "log", "alpha": -1.0}, ("position_bias.alpha", "a number above -1", "-1.0")),
    ({"kind": "alibi", "slope": 0.0}, ("position_bias.slope", "a number other than 0")),
    ({"kind": "linear"}, ("position_bias.kind", "log, flat", "linear")),
    ({"kind": "log"}, ("position_bias", "kind and alpha")),
    ("flat", ("position_bias", "a mapping", "flat")),
    ([[{"kind": "none"}]] * 3, ("position_bias", "lists for 1 or 2 layers", "3 entries")),
    ([[{"kind": "none"}], [{"kind": "none"}] * 2], ("position_bias",)),
)
"""Position biases of two layers that are none, and what the line says."""
ONE = {"positions": [1], "attention": [[0.5], [0.5]]}
BRANCHES = (
    ("x", ("branches", "x")),
    ({"positions": [1]}, ("branches.attention", "received nothing")),
    ({**ONE, "gates": 1}, ("branches.gates", "no such field")),
    ({**ONE, "positions": [0.5]}, ("branches.positions", "increasing numbers from 1 on", "0.5")),
    ({**ONE, "positions": [1, 1]}, ("branches.positions", "increasing numbers from 1 on")),
    ({**ONE, "attention": [[0.5]]}, ("branches.attention", "2 rows, one for each layer", "received 1")),
    ({**ONE, "attention": [[0.5], [-0.5]]}, ("branches.attention", "numbers from 0 to", "-0.5")),
    ({**ONE, "attention": [[0.5], [float("inf")]]}, ("branches.attention", "finite")),
    ({**ONE, "attention": [[0.5], [0.5, 0.5]]}, ("branches.attention", "a rectangular array")),
    ({**ONE, "attention": [[0.0], [0.0]]}, ("branches.attention", "at least one gain above 0")),
    ({**ONE, "steps": [[1.0], ["x"]]}, ("branches.steps", "a valid number", "x")),
    ({**ONE, "steps": [[-1.0], [1.0]]}, ("branches.steps", "numbers from 0 to", "-1")),
    ({**ONE, "outputs": [[1.0]]}, ("branches.outputs", "(2, 1) numbers", "(1, 1)")),
    ({**ONE, "overlaps": [[[1.5]], [[1.0]]]}, ("branches.overlaps", "symmetric numbers in [-1, 1]", "1.5")),
    ({**ONE, "overlaps": [[[-0.5]], [[1.0]]]}, ("branches.overlaps", "positive semidefinite", "-0.5")),
    ({**ONE, "overlaps": [[1.0], [1.0]]}, ("branches.overlaps",)),
    ({**ONE, "parallel": "yes"}, ("branches.parallel", "yes")),
)
"""Gains of two layers that are none, and what the line says."""
YAML = {
    "empty": "",
    "list": "- 1\n",
    "text": "text",
    "number": "3",
    "broken": "a: [1",
    "nested": "a: " + "[" * 50_000,
    "indented": "\n".join(" " * k + "a:" for k in range(2000)),
    "itself": "a: &a [*a]",
    "bomb": "a: &a [1, 1, 1, 1, 1, 1, 1, 1]\n"
    + "\n".join(f"{y}: &{y} [{', '.join([f'*{x}'] * 8)}]" for x, y in zip("abcdefgh", "bcdefghi", strict=True)),
    "alias": "a: *b",
    "code": "!!python/object/apply:os.system [ls]",
    "date": "a: 2020-13-45",
    "two": "a: 1\n---\nb: 2\n",
    "bytes": b"\xff\xfe\x00a",
    "control": "a: \x00",
}
"""Texts that are no configuration."""
CONFIGS = [
    *(
        (f"rollout P/{field}-{k}.yaml -o p.csv", (f"{field}-{k}.yaml", field.split("__")[-1]))
        for field, values in CONFIGURATIONS.items()
        for k in range(len(values))
        if field not in ("lambda_schedule_config",)
    ),
    *((f"rollout P/lambda_schedule_config-{k}.yaml -o p.csv", ("lambda",)) for k in range(3)),
    *((f"rollout P/bias-{k}.yaml -o p.csv", (f"bias-{k}.yaml", *said)) for k, (_, said) in enumerate(BIASES)),
    *((f"rollout P/gains-{k}.yaml -o p.csv", (f"gains-{k}.yaml", *said)) for k, (_, said) in enumerate(BRANCHES)),
    *((f"rollout P/yaml-{name}.yaml -o p.csv", (f"yaml-{name}.yaml",)) for name in YAML),
    ("rollout P/none.yaml -o p.csv", ("none.yaml",)),
    ("rollout P/empty -o p.csv", ("P/empty",)),
    ("rollout P/pipe.yaml -o p.csv", ("pipe.yaml", "a device or a pipe")),
    *wrong("rollout P/c.yaml -o p.csv", "--length", "x", "1.5", named="--length"),
    *wrong("rollout P/c.yaml -o p.csv", "--law", "x", "", named="--law"),
    ("rollout P/good.nc --variant a --law birth -o p.csv", ("--law", "none for P/good.nc")),
    ("rollout P/aligned.yaml --law birth -o p.csv", ("aligned.yaml: lambda", "values below 1", "1.0")),
    ("rollout P/resting.yaml --law birth -o p.csv", ("resting.yaml: lambda", "at least one value above 0")),
    ("rollout P/gated.yaml --law birth -n 5000000 -o p.csv", ("gated.yaml: n", "fits into", "5000000")),
    *wrong("rollout P/c.yaml -o p.csv", "--length", 0, -1, HUGE, named="sequence_length"),
    ("rollout P/c.yaml -o p.csv --architecture gpt --head-dim 4", ("architecture", "gpt")),
    ("rollout P/c.yaml -o p.csv --architecture bloom", ("--head-dim", "both or neither")),
    ("rollout P/c.yaml -o p.csv --head-dim 4", ("--architecture", "both or neither")),
    *wrong("rollout P/c.yaml -o p.csv --architecture bloom", "--head-dim", "x", 0, -1, named="head"),
    *wrong("rollout P/c.yaml -o p.csv", "--scalar-content", "none", named="--scalar-content"),
]

PROFILES = {
    "header": "position,probability\n0,1\n",
    "empty": "",
    "text": "text",
    "order": "token_position,probability\n1,0.5\n0,0.5\n",
    "gap": "token_position,probability\n0,0.5\n2,0.5\n",
    "word": "token_position,probability\n0,half\n",
    "columns": "token_position,probability\n0,0.5,1\n",
    "negative": "token_position,probability\n0,1.5\n1,-0.5\n",
    "sum": "token_position,probability\n0,0.5\n1,0.4\n",
    "nan": "token_position,probability\n0,nan\n",
    "infinite": "token_position,probability\n0,inf\n",
    "no-rows": "token_position,probability\n",
    "bytes": b"\x89HDF\r\n\x1a\n\xff",
    "nul": b"token_position,probability\n0,\x00\n",
}
"""Texts that are no profile."""
COMPARISONS = [
    *((f"compare P/p.csv P/profile-{name}.csv", (f"profile-{name}.csv",)) for name in PROFILES),
    ("compare P/p.csv P/none.csv", ("none.csv",)),
    ("compare P/empty P/p.csv", ("P/empty",)),
    ("compare P/p.csv P/q.csv", ("same number of positions",)),
]

PUBLISHED = [
    ("rollout --published gpt-2 -o p.csv", ("model", "falcon-rw-7b, mpt-7b, mpt-30b, bloom-7b1, bloom", "gpt-2")),
    ("rollout --published '' -o p.csv", ("model",)),
    ("rollout --published bloom --content some -o p.csv", ("content", "none, mean, all", "some")),
    ("rollout --published bloom --corpus c4 -o p.csv", ("corpus", "fineweb-edu, dclm, wikipedia", "c4")),
    ("rollout --published bloom --content mean --corpus dclm -o p.csv", ("expected fineweb-edu", "dclm")),
    ("rollout --published figure/nine -o p.csv", ("measured, bloom, bloom_content, no_residual", "nine")),
    ("rollout --published bloom", ("Missing", "--output")),
    ("rollout -o p.csv", ("source and --published", "neither")),
    ("rollout P/c.yaml --published bloom -o p.csv", ("source and --published", "both")),
    ("rollout P/c.yaml --content mean -o p.csv", ("--content", "none for P/c.yaml")),
    ("rollout P/c.yaml --no-residual -o p.csv", ("--no-residual", "none for P/c.yaml")),
    ("rollout --published measured --corpus dclm -o p.csv", ("--corpus", "none for measured")),
    ("rollout --published measured -n 9 -o p.csv", ("--length", "none for measured")),
    ("rollout --published bloom --variant a -o p.csv", ("--variant", "none for bloom")),
    ("rollout --published bloom --law birth -n 0 -o p.csv", ("sequence_length", "at least 1")),
]

FORMER = [
    (f"{word} P/other --nix", (f"{word} is now", now))
    for word, now in (
        ("published", "posbias rollout --published"),
        ("bias", "posbias design --measured"),
        ("retrieval", "posbias lookup"),
        ("run", "python -m bookkit run"),
        ("train-icl", "python -m studies.icl"),
    )
]

STUDIES = [
    ("study", ("study", "--list")),
    ("study ''", ("study", "an empty name")),
    ("study gravity", ("study", "gravity")),
    *wrong("study gap", "--prompts", "x", 0, -1, HUGE),
    *wrong("study gap", "--length", "x", 1, -1, HUGE),
    ("study seeds", ("seeds", "--trained")),
    ("study snapshots", ("snapshots", "--trained")),
    ("study corpora --part nothing -o out", ("--part", "nothing")),
    ("study corpora --part wikitext-2 -o out", ("--part wikitext-2", "--wikitext")),
    ("study absolute --part seed-1 -o out", ("--part seed-1", "--trained")),
    ("study between --part step-30 -o out", ("--part step-30", "--trained")),
    ("study gap --only nothing -o out", ("--only", "nothing")),
    ("study gap --only '' -o out", ("--only",)),
    ("study families --only bert -o out", ("--only", "bert")),
    ("study gap --wikitext P/none.txt", ("--wikitext",)),
    ("study gap --wikitext P/empty", ("--wikitext",)),
    ("study gap --trained P/none", ("--trained",)),
    ("study gap --trained P/one.txt", ("--trained",)),
    ("study seeds --trained P/empty -o out", ("seeds", "models")),
    ("study corpora --part builtin-1024 --length 100 --part random -o out", ("--length",)),
]

TRAINED = [
    ("train-reference bloom-9 -o out", ("reference model", "bloom-9")),
    ("train-reference '' -o out", ("reference model",)),
    ("train-reference reference/bloom-8 -o out", ("reference model", "reference/bloom-8")),
    ("train-reference all bloom-8 -o out", ("reference model", "all")),
    *wrong(REFERENCE, "--seed", "x", "1.5", -1, 2**32),
    *wrong(REFERENCE, "--steps", "x", "1.5", -1, HUGE),
    *wrong(REFERENCE, "--snapshots", "a", "1;2", "-1", "1.0"),
    *wrong(REFERENCE, "--checkpoint-every", "x", "nan", -1),
    *wrong(REFERENCE, "--init", "zero", named="--init"),
]

TINY = f"{ICL} --iterations 2 --seeds 1"
NETWORKS = [
    *(
        row
        for option, least in (
            ("--seeds", 1),
            ("--iterations", 1),
            ("--batch-size", 1),
            ("--processes", 1),
            ("--tested", 1),
            ("--layers", 1),
            ("--items", 2),
            ("--classes", 1),
            ("--labels", 2),
            ("--burstiness", 1),
            ("--dimension", 1),
        )
        for row in wrong(ICL, option, "x", "1.5", least - 1)
    ),
    *(
        row
        for option in ("--seeds", "--batch-size", "--tested", "--layers", "--classes", "--dimension")
        for row in wrong(ICL, option, HUGE)
    ),
    (f"{ICL} --items {4 * HUGE}", ("classes",)),
    (f"{ICL} --labels {HUGE} --classes {HUGE}", ("classes",)),
    *(
        row
        for option in ("--precision", "--mask", "--encoding", "--bias", "--vocabulary", "--spread")
        for row in wrong(ICL, option, "other", named=option)
    ),
    *wrong(ICL, "--preset", "figure1", "deep2"),
    (f"{ICL} --preset=", ("preset", "an empty name")),
    *wrong(ICL, "--checkpoint-every", "x", "nan", -1),
    *wrong(ICL, "--device", "meta", "gpu", "cuda:x"),
    (f"{ICL} --burstiness 3", ("burstiness", "a divisor of the 8 items")),
    (f"{ICL} --classes 1", ("classes", "items / burstiness")),
    (f"{ICL} --labels 4", ("labels", "at least 8")),
    (f"{ICL} --labels 4000", ("labels", "at most the 2048 classes")),
    (f"{ICL} --encoding rope --dimension 5", ("dimension", "an even number")),
    (f"{ICL} --mask window", ("width",)),
    (f"{ICL} --width 3", ("width",)),
    (f"{ICL} --mask window --width 0", ("window",)),
    (f"{ICL} --mask prefix --width 99", ("prefix", "1 to 17")),
    (f"{ICL} --mask window --width -2", ("window",)),
    ("train-icl -o P/networks", ("mixture-none-causal-none-2-plain.nc", "no earlier results")),
    ("train-icl -o P/begun", ("seed0.checkpoint", "give --resume")),
    (
        "train-icl -o P/begun --resume --seeds 1 --iterations 2 --tested 10",
        ("seed0.checkpoint", "an intact checkpoint"),
    ),
    ("train-icl -o P/networks --resume", ("mixture-none-causal-none-2-plain.nc", "netCDF")),
]

BOOK = [
    ("run nix", ("chapter", "nix")),
    ("run ''", ("chapter",)),
    ("run rollout -p nix 1 -o x.ipynb", ("parameter", "nix")),
    ("run rollout -o x.ipynb -p nix", ("-p", "a name and a value")),
    ("run models -p prompts x -o x.ipynb", ("prompts", "'x'")),
    ("run models -p n_prompts 3 -o x.ipynb", ("n_prompts",)),
    ("run rollout -o no/x.ipynb", ("no: no such folder",)),
    ("run comparison -p measurement P/text.nc -o x.ipynb", ("text.nc",)),
    ("book --jobs 0", ("jobs", "at least 1")),
    ("book --jobs x", ("--jobs",)),
    ("format nix", ("chapter", "nix")),
    ("portable nix", ("chapter", "nix")),
    ("portable --world nix", ("world", "nix")),
    ("portable rollout --jobs 0", ("jobs",)),
]

QUANTITIES = [
    *(
        (f"measure -o m.nc -m P/bloom -d P/d.jsonl -N 2 -n 8 {words}", expected)
        for words, expected in (
            ("-q gravity", ("quantities", "gravity")),
            ("-q kernels;content", ("quantities", "kernels;content")),
            ("-q heads", ("quantities", "kernels beside heads")),
            ("-q mixing,influence,logits", ("quantities", "content beside logits")),
            ("--quantities", ("quantities",)),
            ("--kernel-size 0", ("kernel_size", "at least 1", "0")),
            ("--kernel-size -5", ("kernel_size", "-5")),
            ("--kernel-size 7", ("kernel_size", "at least 8", "7")),
            ("--kernel-size big", ("--kernel-size", "integer")),
            ("--attention flash", ("attention", "flash")),
            ("--attention sdpa", ("attention", "eager for bloom", "sdpa")),
            ("--overwrite=maybe", ("--overwrite",)),
            ("--strip-prefix module.", ("strip_prefix", "module.")),
            ("--dry-run --dtype float8", ("dtype", "float8")),
        )
    ),
]

REPORTS = [
    ("report -o r.html", ("Missing argument", "MODEL_OR_FILE")),
    ("report nowhere/at/all -o r.html", ("nowhere/at/all",)),
    ("report P/empty -o r.html", ("P/empty", "config.json")),
    ("report P/bert -o r.html", ("architecture", "bert")),
    ("report P/bloom -o r.pdf", ("output", "r.pdf")),
    ("report P/bloom -o no/r.html", ("no/r.html",)),
    ("report P/bloom -o r.html --prompts 0", ("prompts", "0")),
    ("report P/bloom -o r.html --length 1", ("length", "1")),
    ("report P/bloom -o r.html --dataset nix", ("dataset", "nix")),
    ("report P/bloom -o r.html --dtype float32", ("--dtype",)),
    ("report P/bloom -o r.html --compare P/zero.nc", ("zero.nc",)),
    ("report P/bloom -o r.html --compare P/c.yaml", ("c.yaml",)),
    ("report P/bloom -o r.html --keep k.txt", ("keep", "k.txt")),
    ("report P/bloom -o r.html --keep P/good.nc", ("good.nc", "not there yet, or --overwrite")),
    ("report P/zero.nc -o r.html --prompts 3", ("zero.nc",)),
]

BIASED = "measure -o m.nc -N 2 -n 8 --untrained"
DESIGNED = [
    *(
        (f"{BIASED} P/biased-{name}", (f"biased-{name}", *said))
        for name, said in (
            ("text", ("position_bias", "a mapping", "log")),
            ("kind", ("position_bias.kind", "one of none, alibi, log, flat, ratio", "lag")),
            ("tau", ("position_bias.tau", "a number above 0", "-1")),
            ("alpha", ("position_bias.alpha", "a number above -1", "-1")),
            ("heads", ("position_bias", "one for each of 12 heads", "2")),
            ("layers", ("position_bias", "lists for 1 or 12 layers", "2 entries")),
            ("mixed", ("position_bias", "lists for 1 or 12 layers")),
            ("empty", ("position_bias", "a mapping")),
        )
    ),
    ("measure -o m.nc -d P/d.jsonl -N 2 -n 8 -m P/biased-heads", ("position_bias", "one for each of 12 heads", "2")),
    (f"{BIASED} bloom-12x256 --position-bias P/none.yaml", ("none.yaml",)),
    (f"{BIASED} bloom-12x256 --position-bias P/yaml-list.yaml", ("yaml-list.yaml", "a mapping")),
    (f"{BIASED} bloom-12x256 --position-bias P/c.yaml", ("c.yaml: position_bias", "none")),
    (f"{BIASED} bloom-12x256 --position-bias P/shallow.yaml", ("shallow.yaml: num_layers", "12", "received 3")),
    (f"{BIASED} bloom-12x256 --position-bias P/narrow.yaml", ("narrow.yaml: num_heads", "8", "received 2")),
    (f"{BIASED} gpt2 --position-bias P/even.yaml", ("position_bias", "bloom, mpt, llama", "gpt2")),
    (f"{BIASED} opt-125m --position-bias P/even.yaml", ("position_bias", "opt")),
    (f"{MEASURE} --position-bias P/even.yaml", ("position_bias", "--untrained", "bloom")),
    (f"{REFERENCE} --position-bias P/none.yaml", ("none.yaml",)),
    (f"{REFERENCE} --position-bias P/even.yaml", ("even.yaml: num_layers", "8, as bloom-8 has", "12")),
    ("train-reference bloom-12 -o out --position-bias P/narrow.yaml", ("narrow.yaml: num_heads", "received 2")),
    ("train-reference gpt2-12 -o out --position-bias P/even.yaml", ("position_bias", "gpt2")),
    ("train-reference all -o out --position-bias P/even.yaml", ("even.yaml: num_layers", "as bloom-8 has")),
    ("study design-birth --only gpt2 -o out", ("--only", "bloom-12x256; llama-12x256", "gpt2")),
    ("study design-birth --part zero -o out", ("--part", "default, unit", "zero")),
    ("study design-gates --only gpt2 -o out", ("--only", "bloom-12x256; llama-12x256", "gpt2")),
]

ADDED = f"{MEASURE} --bias"
ADDED_BIASES = [
    *(
        (f"{ADDED}={word}", ("bias", "log:NUMBER", word))
        for word in ("lag:1", "log", "ratio:1", "none:1", "1.4", "LOG:1")
    ),
    (f"{ADDED}=", ("bias", "log:NUMBER", "''")),
    *(
        (f"{ADDED}={word}", ("bias log", "a number after the colon"))
        for word in ("log:", "log:x", "log:1:2", "log:1,4")
    ),
    *((f"{ADDED}={word}", ("bias.", "finite numbers")) for word in ("log:nan", "flat:inf", "alibi:-inf", "log:1e999")),
    (f"{ADDED} flat:0", ("tau", "a number above 0", "0.0")),
    (f"{ADDED} log:-1", ("alpha", "a number above -1", "-1.0")),
    (f"{ADDED} alibi:0", ("slope", "a number other than 0", "0.0")),
    (f"{ADDED} alibi:-1e38", ("position_bias", "logits of at most", "inf")),
    (f"{ADDED} P/none.yaml", ("none.yaml",)),
    (f"{ADDED} P", ("bias", "a file that ends in .yaml")),
    (f"{ADDED} P/c.yaml", ("c.yaml: position_bias", "a description", "none")),
    (f"{ADDED} P/yaml-empty.yaml", ("yaml-empty.yaml",)),
    (f"{ADDED} P/added-heads.yaml", ("added-heads.yaml: position_bias", "one for each of 4 heads", "2")),
    (f"{ADDED} P/added-layers.json", ("added-layers.json", "lists for 1 or 3 layers", "2 entries")),
    (f"{ADDED} P/added-future.yaml", ("added-future.yaml: mask_config.mask_type", "causal", "full")),
    (f"{ADDED} P/added-kind.yaml", ("added-kind.yaml: position_bias[1].kind", "one of none", "lag")),
    (f"{ADDED} P/added-nan.json", ("added-nan.json", "finite numbers", "nan")),
    (f"{ADDED} P/added-word.yaml", ("added-word.yaml", "a mapping", "3")),
    (f"{ADDED} P/even.yaml", ("even.yaml: num_layers", "3, as", "12")),
]

CHOICE = "design --measured P/m.nc -o b.yaml"
CHOSEN = [
    ("design --measured P/m.nc", ("Missing", "--output")),
    (f"{CHOICE} --depth 2", ("--depth", "none beside --measured")),
    (f"{CHOICE} --profile p.csv", ("--profile", "none beside --measured")),
    *wrong(CHOICE, "--kind", "lag", "", named="--kind"),
    *wrong(CHOICE, "--criterion", "good", named="--criterion"),
    ("design --measured P/none.nc -o b.yaml", ("none.nc",)),
    ("design --measured P/c.yaml -o b.yaml", ("path", "c.yaml")),
    ("design --measured P/m.nc -o b.nc", ("output", ".yaml", "b.nc")),
    ("design --measured P/m.nc -o no/b.yaml", ("no/b.yaml",)),
]

DEPTH, LAYERS, LENGTH = "--depth 2", "--lambda 0.2 --heads 2", "-n 2"
DESIGN = f"design -o c.yaml {DEPTH} {LAYERS} {LENGTH}"
"""A design that could be had; an option given again takes the place of what stands here."""
DESIGNS = [
    *(
        (f"design -o c.yaml {given}", (f"--{missing}", "a number, or --measured"))
        for given, missing in (
            (f"{DEPTH} {LAYERS}", "length"),
            (f"{DEPTH} --lambda 0.2 {LENGTH}", "heads"),
            (f"{LAYERS} {LENGTH}", "depth"),
        )
    ),
    (f"{DESIGN} --kind log", ("--kind", "none without --measured")),
    (f"design -o P/even.yaml {DEPTH} {LAYERS} {LENGTH}", ("even.yaml", "or --overwrite")),
    *wrong(f"design -o c.yaml {LAYERS} {LENGTH}", "--depth", "x", "1.5", "", 0, -1, HUGE),
    *wrong(f"design -o c.yaml {DEPTH} --lambda 0.2 {LENGTH}", "--heads", "x", "1.5", "", 0, -1, HUGE),
    *wrong(f"design -o c.yaml {DEPTH} {LAYERS}", "--length", "x", "1.5", "", 0, 1, -1, HUGE),
    *wrong(DESIGN, "--local", "x", "1.5", "", -1, 3),
    *wrong(DESIGN, "--seed", "x", "1.5", -1, 2**32),
    *wrong(DESIGN, "--law", "squares", "", named="--law"),
    *(
        (f"design -o c.yaml {DEPTH} --heads 2 {LENGTH} --lambda={value}", ("lambda", *said))
        for value, said in (
            ("x", ("finite numbers", "'x'")),
            ("''", ("finite numbers",)),
            ("nan", ("finite numbers", "nan")),
            ("0.2,inf", ("finite numbers", "inf")),
            ("0.2,", ("finite numbers",)),
            ("0.1,0.2,0.3", ("1 number or 2", "received 3")),
            ("1.5", ("values in [0, 1]", "1.5")),
            ("0.2,-0.1", ("values in [0, 1]", "-0.1 at layer 1")),
            ("0", ("at least one value above 0",)),
            ("1 --law birth", ("values below 1",)),
        )
    ),
    (f"design -o c.yaml {DEPTH} --heads 2 {LENGTH}", ("--lambda and --gains", "one of both", "received neither")),
    *(
        (f"design -o c.yaml {DEPTH} --heads 2 {LENGTH} --law birth --gains {file}", said)
        for file, said in (
            ("P/c.yaml", ("gains", "ends in .nc", "c.yaml")),
            ("P/none.nc", ("none.nc", "No such file")),
            ("P/folder.nc", ("folder.nc",)),
            ("P/text.nc", ("text.nc", "another format")),
            ("P/plain.nc", ("plain.nc",)),
            ("P/bare.nc", ("bare.nc",)),
            ("P/none.nc --lambda 0.2", ("--lambda and --gains", "one of both", "received both")),
            ("P/bare.nc --law aligned", ("--gains", "--law birth", "received aligned")),
        )
    ),
    *(
        (f"{DESIGN} --local 1 --local-slopes={value}", ("local_slopes", *said))
        for value, said in (
            ("x", ("finite numbers", "'x'")),
            ("0", ("1 numbers above 0",)),
            ("-0.5", ("1 numbers above 0",)),
            ("0.5,0.25", ("1 numbers above 0", "[0.5, 0.25]")),
        )
    ),
    *(
        (f"{DESIGN} --target {target}", said)
        for target, said in (
            ("flat", ("target", "uniform, or a file", "'flat'")),
            ("''", ("target", "uniform, or a file")),
            ("P/c.yaml", ("target", "c.yaml")),
            ("P/none.csv", ("none.csv", "No such file")),
            ("P/folder.csv", ("folder.csv",)),
            ("P/q.csv", ("q.csv", "2 positions, as --length says", "received 3")),
            *((f"P/profile-{name}.csv", (f"profile-{name}.csv",)) for name in PROFILES),
        )
    ),
    *(
        (f"design {DEPTH} {LAYERS} {LENGTH} {outputs}", said)
        for outputs, said in (
            ("-o c.csv", ("output", ".yaml", "c.csv")),
            ("-o c", ("output", ".yaml")),
            ("-o no/c.yaml", ("no/c.yaml", "No such file or directory")),
            ("-o P/pipe.yaml", ("pipe.yaml", "a device or a pipe")),
            ("-o c.yaml --plot p.pdf", ("plot", ".png or .svg", "p.pdf")),
            ("-o c.yaml --plot no/p.png", ("no/p.png",)),
            ("-o c.yaml --profile p.txt", ("profile", ".csv", "p.txt")),
            ("-o c.yaml --profile no/p.csv", ("no/p.csv",)),
            ("-o c.yaml --target P/p.csv --profile P/p.csv", ("output", "another file")),
        )
    ),
]

ASKED = "lookup -o r.nc -m P/bloom"
COPY = f"{ASKED} -t copy -d P/d.jsonl"
BY_PLACE = [
    *wrong(ASKED, "--pairs", "x", 0),
    *wrong(ASKED, "--prompts", "1.5", 0),
    *wrong(ASKED, "--batch-size", "", 0),
    *wrong(ASKED, "--profile-prompts", "x", -1, 201),
    *wrong(ASKED, "--seed", "x", -1),
    *wrong(ASKED, "--task", "find", "KV", "kv,copy"),
    *wrong(ASKED, "--dtype", "float64"),
    *wrong(ASKED, "--device", "gpu"),
    *wrong(COPY, "--length", "x", 0, 39),
    *wrong(COPY, "--segment", "1.5", 0, 1000),
    *wrong(COPY, "--cue", "x", 0),
    *wrong(ASKED, "--temperature", "x", 0, "nan"),
    (f"{ASKED} --temperature 0.5 --bias alibi:1", ("temperature", "1 with --bias")),
    (f"{ASKED} --bias log", ("bias", "log:NUMBER", "log")),
    (f"{ASKED} --bias P/added-heads.yaml", ("added-heads.yaml: position_bias", "one for each of 4 heads", "2")),
    (f"{ASKED} --task=", ("task", "one of kv, copy", "an empty name")),
    (f"{COPY} --segment 10000", ("length", "at least 20008", "256")),
    (f"{COPY} --prompts 1", ("prompts", "at least 2", "1")),
    (f"{COPY} --pairs 8", ("pairs", "none with the task copy", "8")),
    (f"{ASKED} --length 64", ("length", "none with the task kv", "64")),
    (f"{ASKED} -d P/d.jsonl", ("dataset", "none with the task kv", "P/d.jsonl")),
    (f"{ASKED} -t copy -d nowhere", ("dataset", "nowhere")),
    (f"{ASKED} -t copy -d P/d.jsonl", ("d.jsonl", "200 prompts of 236 tokens, received 0 from 12 documents")),
    (f"{COPY} -n 41 -N 13", ("d.jsonl", "13 prompts of 21 tokens, received 12 from 12 documents")),
    (f"{ASKED} --tokenizer P/empty", ("tokenizer P/empty", "none")),
    ("lookup -o r.nc -m P/small", ("pairs", "at most 14, of 4 tokens each", "context of 64 tokens", "received 64")),
    ("lookup -o r.nc -m P/small -t copy", ("length", "at most 64 tokens", "256")),
    ("lookup -o r.nc -m P/mute --pairs 3", ("tokenizer", "words for 3 distinct keys", "1 token that can be used")),
    ("lookup -o r.nc -m P/mute --pairs 1", ("tokenizer", "1 distinct keys and as many values of at most 8 tokens")),
    (f"{ASKED} --pairs 3 --seed 9223372036854775808", ("seed: expected an integer from 0 to", "9223372036854775808")),
    (f"{ASKED} --pairs 3 --bias log:1e308", ("position_bias: expected logits of at most", "received inf")),
    (f"{ASKED} --bias P/mask-word.yaml", ("mask-word.yaml: mask_config.mask_type: expected causal", "prefix")),
    *(
        (f"lookup -o r.nc -m {model}", said)
        for model, said in (
            ("P/empty", ("P/empty", "a directory with a config.json")),
            ("P/bert", ("architecture", "bert")),
            ("''", ("model", "neither")),
            ("bloom-8", ("model", "reference/bloom-8")),
        )
    ),
    *(
        (f"lookup -m P/bloom -o {out}", said)
        for out, said in (
            ("r.csv", ("output", ".nc", "r.csv")),
            ("no/r.nc", ("no/r.nc", "No such file or directory")),
            ("P/folder.nc", ("folder.nc", "a directory")),
            ("P/pipe.nc", ("pipe.nc", "a device or a pipe")),
            ("P/zero.nc", ("zero.nc", "a file that is not there yet, or --overwrite")),
            ("P/begun.nc", ("begun.nc.rank0.checkpoint", "give --resume")),
            ("P/good.nc --resume", ("good.nc", "a lookup of layout 1", "no layout number")),
            ("r.nc --report r.pdf", ("report", ".html", "r.pdf")),
            ("r.nc --report no/r.html", ("no/r.html",)),
        )
    ),
    ("report P/lookup.nc -o r.html", ("lookup.nc", "a lookup of layout 1", "layout 7")),
    ("report P/lookup.nc -o r.html --prompts 3", ("prompts", "measured already")),
]

LOOKUP = "train-retrieval -o out"
FOUND = "train-retrieval -o P/found --layers 1 --pairs 2 --iterations 4 --seeds 1"
LOOKUPS = [
    *(
        row
        for option in ("--layers", "--pairs", "--tokens", "--iterations", "--batch-size", "--seeds", "--processes")
        for row in wrong(LOOKUP, option, "x", "1.5", "", -1)
    ),
    *wrong(LOOKUP, "--checkpoint-every", "x", "nan", -1),
    *(
        (f"{LOOKUP} --{field.replace('_', '-')} {value}", (f"{field}: expected {expected}", f"received {value}"))
        for field, value, expected in (
            ("encoding", "sin", "one of none, alibi, steep, rope, log, early, flat,"),
            ("encoding", "ALIBI", "one of none, alibi"),
            ("tokens", "3", "one of 1, 2,"),
            ("places", "middle", "one of even, ends,"),
            ("pairs", "1", "an integer of at least 2,"),
            *((field, "0", "an integer of at least 1,") for field in ("layers", "iterations", "batch_size", "seeds")),
        )
    ),
    (f"{LOOKUP} -e flat -e up", ("encoding: expected one of none", "received up")),
    (f"{LOOKUP} -e flat --layers 2 --layers 0", ("layers: expected an integer of at least 1", "received 0")),
    (f"{LOOKUP} --remedies --pairs 32 --pairs 7", ("pairs: expected at least 8 with --remedies", "received 7")),
    (
        f"{LOOKUP} --iterations 9223372036854775808",
        ("iterations: expected an integer from 1 to", "received 9223372036854775808"),
    ),
    (f"{LOOKUP} --chapter --layers 2", ("layers: expected none with --chapter", "received [2]")),
    (f"{LOOKUP} --chapter --batch-size 8", ("batch_size: expected none with --chapter", "received 8")),
    (f"{LOOKUP} --remedies --pairs 1", ("pairs: expected an integer of at least 2", "received 1")),
    ("train-retrieval -o P/networks", ("none-T4-n32-one-even.nc: expected no earlier results", "give --resume")),
    ("train-retrieval -o P/networks --resume", ("none-T4-n32-one-even.nc: expected a netCDF file", "another format")),
    ("train-retrieval -o P/begun", ("none-T4-n32-one-even.seed0.checkpoint: expected no checkpoint", "give --resume")),
    ("train-retrieval -o P/begun --resume --seeds 1", ("seed0.checkpoint: expected an intact checkpoint", "received")),
    (FOUND, ("none-T1-n2-one-even.nc: expected no earlier results", "received a file; give --resume")),
    *(
        (f"{FOUND} --resume {more}", (f"none-T1-n2-one-even.nc: {said}",))
        for more, said in (
            ("--iterations 5", "iterations: expected 5, received 4"),
            ("--batch-size 8", "batch_size: expected 8, received 64"),
            ("--seeds 2", "seeds: expected [0, 1], received [0]"),
        )
    ),
]

TABLE = [
    *COMMAND_LINES, *NUMBERS_OF_MEASURE, *CHOICES_OF_MEASURE, *OUTPUTS, *MODELS, *CORPORA, *NETCDF, *CONFIGS,
    *COMPARISONS, *PUBLISHED, *FORMER, *STUDIES, *TRAINED, *NETWORKS, *BOOK, *QUANTITIES, *REPORTS,
    *DESIGNED, *ADDED_BIASES, *CHOSEN, *DESIGNS, *BY_PLACE, *LOOKUPS,
]  # fmt: skip


def write_models(root):
    """Write directories that are no models, beside one that is."""
    gpt2 = {"model_type": "gpt2"}
    contents = {
        "not-json": "not json",
        "binary": b"\xff\xfe\x00",
        "deep": "[" * 50_000,
        "list": "[]",
        "no-type": "{}",
        "bert": json.dumps({"model_type": "bert"}),
        "number": json.dumps({"model_type": 7}),
        "no-layers": json.dumps(gpt2 | {"n_layer": 0}),
        "no-heads": json.dumps(gpt2 | {"n_head": 0}),
        "words": json.dumps(gpt2 | {"n_layer": "two"}),
        "many-layers": json.dumps(gpt2 | {"n_layer": 10**7}),
        "odd": json.dumps(gpt2 | {"n_embd": 30, "n_head": 4}),
    }
    one, log = {"kind": "none"}, {"kind": "log", "alpha": 1.0}
    biases = {
        "text": "log",
        "kind": {"kind": "lag"},
        "tau": {"kind": "flat", "tau": -1},
        "alpha": [{"kind": "log", "alpha": -1}] * 12,
        "heads": [one, log],
        "layers": [[one] * 12] * 2,
        "mixed": [[one] * 12, log],
        "empty": [],
    }
    sizes = {"n_layer": 12, "n_head": 12}
    contents |= {f"biased-{name}": json.dumps(gpt2 | sizes | {"position_bias": bias}) for name, bias in biases.items()}
    for name, content in contents.items():
        (root / name).mkdir()
        (root / name / "config.json").write_bytes(content.encode() if isinstance(content, str) else content)
    (root / "empty").mkdir()
    (root / "folded" / "config.json").mkdir(parents=True)
    save(root / "bloom", "bloom")
    save(root / "small", "llama")
    save_network(root / "mute", word_tokenizer(["ban"]))


def write_corpora(root):
    """Write files and folders that are no documents, beside one that is."""
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    write_documents(root / "d.jsonl", [40] * 12)
    texts = {
        "others/a.md": "a",
        "others/b.csv": "b",
        "latin/a.txt": "fine",
        "latin/b.txt": b"caf\xe9 at noon",
        "latin.txt": b"caf\xe9 at noon",
        "binary.jsonl": bytes(range(256)),
        "zeros.jsonl": bytes(100),
        "broken.jsonl": '{"text": "a"}\nnot json\n',
        "deep.jsonl": "[" * 50_000,
        "list.jsonl": '["a"]',
        "number.jsonl": '{"text": 3}',
        "null.jsonl": '{"text": null}',
        "zero.txt": "",
        "one.txt": "ban bar bam ben ber bem bin bir",
        "zero.jsonl": "",
        "zero.csv": "",
        "d.csv": "text,id\na,1\n",
        "short.csv": "id,text\n1,a\n2\n",
        "quote.csv": 'id,text\n1,"a" b\n',
        "latin.csv": b"text\ncaf\xe9\n",
        "plain.jsonl.gz": '{"text": "a"}',
        "cut.jsonl.gz": gzip.compress(b'{"text": "a"}' * 1000)[:-20],
        "broken.csv.gz": gzip.compress(b"a,b\n1,2\n"),
        "d.parquet": "PAR1",
        "packed.parquet.gz": gzip.compress(b"PAR1"),
        **{f"x{suffix}": "x" for suffix in (".zip", ".tar.gz", ".xz", ".tsv", ".pdf", ".arrow")},
    }
    for name, content in texts.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(content.encode() if isinstance(content, str) else content)
    (root / "folder.jsonl").mkdir()
    tables = {"numbers": [1, 2], "lists": [["a"], ["b"]], "null": ["a b", None], "damaged": ["word " * 500] * 300}
    for name, column in tables.items():
        parquet.write_table(pa.table({"text": column}), root / f"{name}.parquet", use_dictionary=False)
    whole = (root / "damaged.parquet").read_bytes()
    (root / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    (root / "damaged.parquet").write_bytes(whole[:4] + b"\xff" * 200 + whole[204:])


def write_results(root):
    """Write files that are no measurements."""
    attributes = {
        "foreign": {},
        "schema-text": {"posbias_schema": "one"},
        "schema-list": {"posbias_schema": np.array([1, 1])},
        "schema-half": {"posbias_schema": 1.5},
        "schema-nan": {"posbias_schema": np.nan},
        "schema-2": {"posbias_schema": 2},
        "bare": {"posbias_schema": 1},
        "summary-text": {"summary": 1, "posbias_schema": "one"},
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
    (root / "kept.nc").write_text("")
    (root / "kept.nc").chmod(0o444)
    for name in ("folder.nc", "folder.html", "folder.csv", "folded.nc.rank0.checkpoint"):
        (root / name).mkdir()
    for name in ("pipe.nc", "pipe.yaml"):
        os.mkfifo(root / name)
    (root / "circle.nc").symlink_to("circle.nc")
    (root / "begun.nc.rank0.checkpoint").write_text("no checkpoint")
    for folder, ending in (("networks", "nc"), ("begun", "seed0.checkpoint")):
        (root / folder).mkdir()
        for network in ("mixture-none-causal-none-2-plain", Setting().name):
            (root / folder / f"{network}.{ending}").write_text("text")
    looked_up = Setting(layers=1, pairs=2)
    sizes = {"seed": 1, "tested": 4, "place": 2, "place_2": 4, "place_4": 8}
    arrays = {name: np.zeros([sizes[dim] for dim in dims]) for name, (dims, _) in lookup_results.VARIABLES.items()}
    made = lookup_results.make_results(arrays, [0], 4, described(looked_up, Training(iterations=4)))
    (root / "found").mkdir()
    lookup_results.write_results(root / "found" / f"{looked_up.name}.nc", made)


def write_configurations(root):
    """Write configurations and profiles that are not as they should be."""
    (root / "c.yaml").write_text(yaml.safe_dump(changed()))
    for field, values in CONFIGURATIONS.items():
        for k, value in enumerate(values):
            (root / f"{field}-{k}.yaml").write_text(yaml.safe_dump(changed(**{field: value})))
    constant = {"schedule_type": "constant", "lambda_const": 0.1}
    designs = {
        "even": (12, {"kind": "flat", "tau": 1.2}),
        "shallow": (3, {"kind": "none"}),
        "narrow": (12, [{"kind": "none"}] * 2),
    }
    for name, (layers, bias) in designs.items():
        fields = {"sequence_length": 8, "num_layers": layers, "position_bias": bias}
        (root / f"{name}.yaml").write_text(yaml.safe_dump({**fields, "lambda_schedule_config": constant}))
    none, log = {"kind": "none"}, {"kind": "log", "alpha": 1.0}
    added = {
        "added-heads.yaml": {"position_bias": [none, log]},
        "added-layers.json": [[log] * 4] * 2,
        "added-future.yaml": {"position_bias": log, "mask_config": {"mask_type": "full"}},
        "added-kind.yaml": {"position_bias": [none, {"kind": "lag"}]},
        "added-nan.json": {"kind": "log", "alpha": float("nan")},
        "added-word.yaml": 3,
    }
    for name, content in added.items():
        (root / name).write_text(json.dumps(content))  # which is YAML too
    laws = {"aligned": {"lambdas_custom": [0.5, 1.0]}, "resting": {"lambdas_custom": [0.0, 0.0]}}
    for name, mixing in laws.items():
        schedule = {"schedule_type": "custom", **mixing}
        (root / f"{name}.yaml").write_text(yaml.safe_dump(changed(lambda_schedule_config=schedule)))
    word = {"position_bias": {"kind": "log", "alpha": 1.0}, "mask_config": "prefix"}
    (root / "mask-word.yaml").write_text(yaml.safe_dump(word))
    gated = {**ONE, "steps": [[1.0], [1.0]], "overlaps": [[[0.5]], [[0.5]]]}
    (root / "gated.yaml").write_text(yaml.safe_dump(changed(branches=gated)))
    for k, (branches, _) in enumerate(BRANCHES):
        (root / f"gains-{k}.yaml").write_text(yaml.safe_dump(changed(branches=branches)))
    for k, (bias, _) in enumerate(BIASES):
        biased = changed(position_bias=bias, attention_config=..., content_config=...)
        (root / f"bias-{k}.yaml").write_text(yaml.safe_dump(biased))
    for kind, texts in (("yaml", YAML), ("profile", PROFILES)):
        for name, text in texts.items():
            path = root / f"{kind}-{name}.{'yaml' if kind == 'yaml' else 'csv'}"
            path.write_bytes(text.encode() if isinstance(text, str) else text)
    (root / "p.csv").write_text("token_position,probability\n0,0.5\n1,0.5\n")
    (root / "q.csv").write_text("token_position,probability\n0,0.5\n1,0.25\n2,0.25\n")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return the folder of files that are not as they should be."""
    root = tmp_path_factory.mktemp("place")
    for write in (write_models, write_corpora, write_results, write_configurations):
        write(root)
    return root


@pytest.fixture(scope="module")
def listed(place):
    """Return what is in the folder before the first row."""
    return {path: path.lstat().st_mtime_ns for path in place.rglob("*")}


@pytest.mark.parametrize("row", range(len(TABLE)), ids=[f"{k}-{words[:60]}" for k, (words, _) in enumerate(TABLE)])
def test_bad_input_is_one_line(place, listed, tmp_path, monkeypatch, capsys, row):
    words, expected = TABLE[row]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    given = [word.replace("P/", f"{place}/") if "P/" in word else word for word in shlex.split(words)]
    with pytest.raises(SystemExit) as ended:
        main(given)
    out, err = capsys.readouterr()
    assert ended.value.code == 2 and out == "", (ended.value.code, out, err)
    assert err.startswith("posbias: ") and err.count("\n") == 1 and "Traceback" not in err, err
    for part in expected:
        assert part.replace("P/", f"{place}/") in err, (part, err)
    assert len(err) < 1000, err
    assert list(tmp_path.iterdir()) == []
    assert {path: path.lstat().st_mtime_ns for path in place.rglob("*")} == listed


def test_the_table_is_long_and_no_row_stands_twice():
    lines = [words for words, _ in TABLE]
    assert len(lines) >= 300 and len(set(lines)) == len(lines)


FRONT = {
    "open nothing": (lambda place: posbias.open(), "model: expected --model, or --untrained"),
    "open both": (lambda place: posbias.open("reference/bloom-8", untrained="gpt2"), "untrained: expected no --model"),
    "open a file": (lambda place: posbias.open(place / "d.jsonl"), "model: expected the directory of a model"),
    "open no configuration": (lambda place: posbias.open(place / "empty"), "a directory with a config.json"),
    "open a seed below 0": (lambda place: posbias.open(untrained="gpt2", seed=-1), "seed: expected an integer from 0"),
    "load nothing": (lambda place: posbias.load(place / "zero.nc"), "zero.nc: expected a netCDF file"),
    "load a text": (lambda place: posbias.load(place / "schema-text.nc"), "posbias_schema: expected an integer"),
    "no profile": (lambda place: posbias.compare([0.5, 0.4], [0.5, 0.5]), "sum to 1"),
    "profiles of two lengths": (lambda place: posbias.compare([1.0], [0.5, 0.5]), "same number of positions"),
    "a mixing above 1": (lambda place: posbias.influence_profile([[1.0]], [1.5]), "values in [0, 1]"),
    "a kernel of no rows": (lambda place: posbias.influence_profile([], [0.5]), "dimension"),
    "no layer": (lambda place: posbias.structured_kernels(0, slope=1.0), "at least 1"),
    "a slope below 0": (lambda place: posbias.structured_kernels(2, slope=-1.0), "slope"),
    "no heads": (lambda place: posbias.alibi_slopes(0), "at least 1"),
    "a mean of text": (lambda place: posbias.mean_position("text"), "array of numbers"),
    "a window of 0": (lambda place: posbias.masks.sliding_window(0), "at least 1"),
    "a schedule of no layers": (lambda place: posbias.schedules.constant(0, 0.5), "at least 1"),
}
"""Calls of the front door, and what the error says."""


@pytest.mark.parametrize("name", FRONT)
def test_the_front_door_says_what_was_expected(place, name):
    call, expected = FRONT[name]
    with pytest.raises(ValueError) as refused:
        call(place)
    assert expected in str(refused.value) and "\n" not in str(refused.value)
    assert "received" in str(refused.value)
