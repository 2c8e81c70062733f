"""A table of bad inputs: each is refused in one line that names the field or the file, and nothing is written.

A row is a command line and what the line must say; ``P`` in both is the folder of files that are not as they should be.
There is a row for each door and kind of refusal. A new option or file adds its rows to the list of its command; what a
call of the front door refuses is in the last table.
"""

import errno
import gzip
import json
import os
import shlex
from functools import cache

import h5py
import numpy as np
import pytest
import typer.main
import xarray as xr
import yaml
from measuring import save, write_documents
from rollout_config import changed

import posbias
from posbias import cli
from studies import results
from studies.lookup.settings import Setting, Training, described

PROGRAMS = ("bookkit", "studies.icl", "studies.lookup", "studies.published", "studies.reference")
"""First words of a row that run ``python -m PROGRAM``; other rows are of ``posbias``."""


def rows(command, said):
    """Return a row for each ending of a command line, with what the line must say: a text, or several."""
    return [(f"{command} {words}", (parts,) if isinstance(parts, str) else parts) for words, parts in said.items()]


MODEL = "P/bloom -d P/d.jsonl -N 2 -n 8"
MEASURE = f"measure -o m.nc {MODEL}"

COMMAND_LINES = [("nix", ("No such command 'nix'",)), ("measure P/bloom", ("Missing", "--output"))]

OPTIONS_OF_MEASURE = rows(
    MEASURE,
    {
        "--prompts 0": "prompts",
        "--length 1": "length",
        "--seed -1": "seed",
        "--rule random": ("dataset", "none with the rule random", "P/d.jsonl"),
        "--dtype int8": "dtype",
        "--device meta": "device",
        "--attention flash": ("attention", "flash"),
        "--attention sdpa": ("attention", "eager for bloom", "sdpa"),
        "--rule whole": ("rule", "first, cut, last or random", "whole"),
        "-q kernels,gravity": ("quantities", "gravity"),
        "-q heads": ("quantities", "kernels beside heads"),
        "-N 13": ("d.jsonl", "13 prompts of 8 tokens, received 12 from 12 documents"),
        "--tokenizer P/empty": ("tokenizer", "P/empty"),
    },
)

OUTPUTS = [
    *rows(
        f"measure {MODEL} -o",
        {
            "m.csv": ("output", "m.csv"),
            "''": ("output", ".nc"),
            "no/m.nc": ("no/m.nc", "No such file or directory"),
            "P/folder.nc": ("folder.nc", "a directory"),
            f"{'m' * 300}.nc": ("mmm", os.strerror(errno.ENAMETOOLONG)),
            "P/begun.nc": ("begun.nc.partial", "give --resume"),
            "P/begun.nc --resume": ("begun.nc.partial", "intact partial sums"),
        },
    ),
    *rows("report P/good.nc -o", {"r.txt": ("output", "r.txt"), "no/r.html": "no/r.html"}),
    *rows("rollout P/c.yaml -o", {"no/p.csv": "no/p.csv", "P/c.yaml": ("output", ".csv")}),
    *(
        (f"{command} -o P/d.jsonl", ("d.jsonl: File exists",))
        for command in ("studies.reference train bloom-8", "studies.icl train -p figure7", "studies.lookup train")
    ),
    ("studies.published write bloom -o no/c.yaml", ("no/c.yaml",)),
    ("bookkit explorer-data -o no/x.js", ("no/x.js",)),
]

MODELS = [
    ("measure -o m.nc -d P/d.jsonl", ("Missing", "MODEL")),
    *rows(
        "measure -o m.nc -d P/d.jsonl -N 2 -n 8",
        {
            "P/empty": ("P/empty", "config.json"),
            "P/not-json": ("P/not-json", "files that transformers reads"),
            "P/no-type": ("P/no-type", "model_type"),
            "P/words": "n_layer",
            "P/bert": ("architecture", "bert"),
            "P/d.jsonl": ("model", "a file"),
            "'two words'": ("model two words",),
            "' '": ("model", "an empty name"),
            "reference/none": ("model", "reference/ and one of"),
            "bloom-8": ("model", "reference/bloom-8"),
            "P/bloon": ("P/bloon", "no such directory"),
        },
    ),
    ("lookup ./bloom -o f.nc", ("model ./bloom", "a directory, or an id that the hub answers for")),
    ("report ./bloom -o r.html", ("model ./bloom", "a directory, or an id that the hub answers for")),
]

CORPORA = rows(
    "measure -o m.nc P/bloom -N 2 -n 8 -d",
    {
        "nowhere": ("dataset", "nowhere"),
        "x" * 5000: ("dataset", "xxx"),
        "P/pipe.nc": ("dataset", "pipe.nc"),
        "P/empty": ("P/empty", "a folder of .txt files"),
        "P/latin": ("P/latin", "an intact text file", "0xe9"),
        "P/broken.jsonl": ("broken.jsonl", "an intact json file"),
        "P/number.jsonl": ("number.jsonl: row 1", "a record with a text in 'text'"),
        "P/zero.txt": ("zero.txt", "0 from 1 document"),
        "P/one.txt": ("one.txt", "1 from 1 document", "a folder has", "--rule cut"),
        "P/one.txt --rule cut": ("one.txt", "a document in each .txt file"),
        "P/d.csv --field body": ("d.csv: row 1", "'body'"),
        "P/cut.jsonl.gz": ("cut.jsonl.gz", "an intact json file"),
        "P/damaged.parquet": ("damaged.parquet", "an intact parquet file"),
        "P/null.parquet": ("null.parquet: row 2", "'text'"),
    },
)

MEASUREMENTS = [
    *(
        (f"report P/{file} -o r.html", (file, *said))
        for file, said in {
            "none.nc": ("No such file",),
            "folder.nc": (),
            "zero.nc": ("an empty file",),
            "text.nc": ("another format",),
            "cut.nc": ("an intact netCDF file",),
            "plain.nc": (),
            "foreign.nc": ("no layout number",),
            "schema-text.nc": ("layout 1", "layout one"),
            "schema-2.nc": ("layout 1", "layout 2"),
            "bare.nc": ("a complete measurement",),
        }.items()
    ),
    *rows(
        "rollout -o p.csv",
        {
            "P/text.nc --variant a": ("text.nc", "another format"),
            "P/c.yaml --variant a": ("--variant", "none for P/c.yaml, a configuration", "a"),
            "P/zero.nc": ("--variant", "zero.nc"),
        },
    ),
    *rows(
        "report -o r.html",
        {
            "P/c.yaml": ("model", "c.yaml"),
            "P/empty": ("P/empty", "config.json"),
            "P/bert": ("architecture", "bert"),
            "P/bloom --prompts 0": ("prompts", "0"),
            "P/bloom --keep k.txt": ("keep", "k.txt"),
            "P/bloom --keep P/good.nc": ("good.nc", "not there yet, or --overwrite"),
            "P/good.nc --prompts 3": ("prompts", "measured already"),
            "P/good.nc --no-cache": ("cache", "measured already"),
            "P/lookup.nc": ("lookup.nc", "a measurement", "a lookup, which posbias.load_lookup and --lookup read"),
            "P/good.nc --lookup P/lookup.nc": ("lookup.nc", "a lookup of layout 2", "layout 7"),
        },
    ),
]

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
CONFIGS = [
    *(
        (f"rollout P/{field}-{k}.yaml -o p.csv", (f"{field}-{k}.yaml", field.split("__")[-1].split("_schedule")[0]))
        for field, values in CONFIGURATIONS.items()
        for k in range(len(values))
    ),
    *((f"rollout P/bias-{k}.yaml -o p.csv", (f"bias-{k}.yaml", *said)) for k, (_, said) in enumerate(BIASES)),
    *((f"rollout P/yaml-{name}.yaml -o p.csv", (f"yaml-{name}.yaml",)) for name in YAML),
    *rows(
        "rollout -o p.csv",
        {
            "P/none.yaml": "none.yaml",
            "P/empty": "P/empty",
            "P/branches.yaml": ("branches.yaml: branches", "no such field"),
        },
    ),
    *rows(
        "studies.published write -o c.yaml",
        {
            "gpt-2": ("model", "falcon-rw-7b, mpt-7b, mpt-30b, bloom-7b1, bloom", "gpt-2"),
            "bloom --content some": ("content", "none, mean, all", "some"),
            "bloom --content mean --corpus dclm": ("expected fineweb-edu", "dclm"),
            "nine -o m.csv": ("measured, bloom, bloom_content, no_residual", "nine"),
        },
    ),
]

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
COMPARISONS = [
    *((f"compare P/p.csv P/profile-{name}.csv", (f"profile-{name}.csv",)) for name in PROFILES),
    ("compare P/p.csv P/none.csv", ("none.csv",)),
    ("compare P/empty P/p.csv", ("P/empty",)),
    ("compare P/p.csv P/q.csv", ("same number of positions",)),
]

ADDED_BIASES = [
    *rows(
        "measure -o m.nc -N 2 -n 8",
        {"P/biased": ("biased: position_bias", "none; a bias is given beside a model, as --condition")},
    ),
    *rows(
        MEASURE,
        {
            "--condition bias:log:1": ("bias", "a description in JSON, or a file", "log:1"),
            '--condition \'bias:{"kind": "flat", "tau": -1}\'': ("tau", "a number above 0", "-1"),
            '--condition \'bias:{"kind": "alibi", "slope": -1e38}\'': ("bias", "logits of at most", "inf"),
            "--condition bias:P": ("bias", "a file that ends in .yaml"),
            "--condition bias:P/c.yaml": ("c.yaml: position_bias", "a description", "none"),
            "--condition bias:P/added-heads.yaml": ("bias", "one for each of 4 heads", "2"),
            "--condition bias:P/added-future.yaml": ("added-future.yaml: mask_config.mask_type", "causal", "full"),
            "--condition bias:P/added-word.yaml": ("added-word.yaml: position_bias", "none"),
            "--condition 'bias:[{'": ("bias", "a description in JSON"),
            "--condition 'bias: [3]'": ("bias[0]: expected a mapping", "3"),
            "--condition bias:P/added-kind.yaml": ("added-kind.yaml: position_bias.kind", "lag"),
        },
    ),
]

DEPTH, LAYERS, LENGTH = "--depth 2", "--lambda 0.2 --heads 2", "-n 2"
DESIGN = f"design -o c.yaml {DEPTH} {LAYERS} {LENGTH}"
"""A design that could be had; an option given again takes the place of what stands here."""
DESIGNS = [
    *rows(
        "design --measured P/m.nc -o b.yaml",
        {
            "--depth 2": ("--depth", "none beside --measured"),
            "-o b.nc": ("output", ".yaml", "b.nc"),
            "--measured P/none.nc": "none.nc",
            "--measured P/text.nc": ("text.nc", "another format"),
        },
    ),
    *rows(
        "design -o c.yaml",
        {
            f"{DEPTH} {LAYERS}": ("--length", "a number, or --measured"),
            f"{DEPTH} --lambda 0.2 {LENGTH}": ("--heads", "a number, or --measured"),
            f"{LAYERS} {LENGTH}": ("--depth", "a number, or --measured"),
            f"{DEPTH} --heads 2 {LENGTH}": ("--lambda", "a number, or --measured"),
        },
    ),
    *rows(
        DESIGN,
        {
            "--depth 0": "depth",
            "--heads 0": "heads",
            "--length 1": "length",
            "--lambda x": ("lambda", "numbers with commas between", "'x'"),
            "--lambda 0.2,inf": ("lambda", "inf"),
            "--lambda 0.1,0.2,0.3": ("lambda", "1 number or 2", "0.1,0.2,0.3"),
            "--lambda=0.2,-0.1": ("lambda", "values in [0, 1]", "-0.1 at layer 1"),
            "--lambda 0": ("lambda", "at least one above 0"),
            "-o P/even.yaml": ("even.yaml", "or --overwrite"),
        },
    ),
]

LOOKUPS = [
    *rows(
        "lookup -o r.nc P/bloom",
        {
            "--prompts 0": "prompts",
            "--seed -1": "seed",
            "--seed 9223372036854775808": ("seed: expected an integer below", "9223372036854775808"),
            "--condition bias:P/added-heads.yaml": ("bias", "one for each of 4 heads", "2"),
            "P/d.jsonl": ("d.jsonl: row 1: documents", "a list of two or more", "None"),
            "P/text.nc": ("rows", "a .jsonl, .csv or .parquet file"),
            "": ("answer", "tokens that the model has"),
            "--tokenizer P/empty": ("tokenizer P/empty", "none"),
        },
    ),
    *rows(
        "lookup -o r.nc",
        {
            "P/small": ("answer", "tokens that the model has"),
            "P/empty": ("P/empty", "config.json"),
            "P/bert": ("architecture", "bert"),
            "''": ("model", "an empty name"),
        },
    ),
    *rows(
        "lookup P/bloom -o",
        {
            "r.csv": ("output", ".nc", "r.csv"),
            "P/folder.nc": ("folder.nc", "a directory"),
            "P/zero.nc": ("zero.nc", "a file that is not there yet, or --overwrite"),
            "r.nc --figure P/there.png": ("there.png", "or --overwrite"),
        },
    ),
]

BOOK = rows(
    "bookkit",
    {
        "run nix": ("chapter", "nix"),
        "run absolute -p prompts=x -o x.ipynb": ("prompts", "'x'"),
        "run rollout -o no/x.ipynb": "no/x.ipynb: No such file",
    },
)

TRAINED = [
    *rows(
        "studies.reference train -o out",
        {
            "bloom-9": ("reference model", "bloom-9"),
            "bloom-8 --seed -1": "seed",
            "bloom-8 --steps -1": "steps",
            "bloom-8 --snapshots=1;2": "snapshots",
            "bloom-8 --checkpoint-every -1": "checkpoint-every",
        },
    ),
    *rows(
        "studies.icl train -o out -p figure7",
        {
            **{
                f"--{field.replace('_', '-')} 0": f"{field}: expected an integer of at least 1"
                for field in ("seeds", "iterations", "batch_size", "tested")
            },
            "--preset figure1": "preset",
            "--device meta": "device",
        },
    ),
    ("studies.icl train -o out", ("Missing", "--preset")),
    ("studies.lookup train -o out --seeds 0", ("seeds: expected an integer of at least 1",)),
    (
        "studies.lookup train -o P/found --seeds 1",
        "lookup.nc: none-T4-n16-one-even: iterations: expected 300, received 4",
    ),
    ("studies.lookup train -o P/networks", ("lookup.nc", "netCDF")),
    ("studies.lookup train -o P/begun --seeds 1", ("seed0.checkpoint: expected an intact checkpoint", "received")),
    ("studies.icl train -o P/networks -p figure7", ("icl.nc", "netCDF")),
    (
        "studies.icl train -o P/begun -p figure7 --seeds 1 --iterations 2 --tested 10",
        ("seed0.checkpoint", "an intact checkpoint"),
    ),
]

TABLE = [
    *COMMAND_LINES, *OPTIONS_OF_MEASURE, *OUTPUTS, *MODELS, *CORPORA, *MEASUREMENTS, *CONFIGS, *COMPARISONS,
    *ADDED_BIASES, *DESIGNS, *LOOKUPS, *BOOK, *TRAINED,
]  # fmt: skip


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


@pytest.fixture(scope="module", autouse=True)
def read_once():
    """Let typer read the signature of each command once, and not again for each row: a third of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_params_from_function", cache(typer.main.get_params_from_function))
        yield


@pytest.mark.parametrize("row", range(len(TABLE)), ids=[f"{k}-{words[:60]}" for k, (words, _) in enumerate(TABLE)])
def test_bad_input_is_one_line(place, listed, tmp_path, monkeypatch, capsys, row):
    words, expected = TABLE[row]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    given = [word.replace("P/", f"{place}/") for word in shlex.split(words)]
    program = given[0] if given[0] in PROGRAMS else ""
    name = f"python -m {program}" if program else "posbias"
    with pytest.raises(SystemExit) as ended:
        cli.main(given[1:], groups=[f"{program}.commands"], name=name) if program else cli.main(given)
    out, err = capsys.readouterr()
    assert ended.value.code == 2 and out == "", (ended.value.code, out, err)
    assert err.startswith(f"{name}: ") and err.count("\n") == 1 and "Traceback" not in err, err
    for part in expected:
        assert part.replace("P/", f"{place}/") in err, (part, err)
    assert len(err) < 1000, err
    assert list(tmp_path.iterdir()) == []
    assert {path: path.lstat().st_mtime_ns for path in place.rglob("*")} == listed


FRONT = {
    "open nothing": (lambda place: posbias.open(None), "model: expected a path, a name, or a model in memory"),
    "a kernel of no rows": (lambda place: posbias.influence_profile([], [0.5]), "dimension"),
    "no layer": (lambda place: posbias.structured_kernels(0, slope=1.0), "at least 1"),
    "a mean of text": (lambda place: posbias.mean_position("text"), "array of numbers"),
}
"""Calls of the front door, and what the error says."""


@pytest.mark.parametrize("name", FRONT)
def test_the_front_door_says_what_was_expected(place, name):
    call, expected = FRONT[name]
    with pytest.raises(ValueError) as refused:
        call(place)
    assert expected in str(refused.value) and "\n" not in str(refused.value)
    assert "received" in str(refused.value)
