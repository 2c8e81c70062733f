"""A table of bad inputs, for ``tests/cli/test_bad_inputs.py``: command lines and what is said of each.

A row is a command line and what the line must say; ``P`` in both is the folder of files that are not as they should be.
There is a row for each door and kind of refusal. A new option or file adds its rows to the list of its command.
"""

import errno
import os

from bad_files import BIASES, CONFIGURATIONS, PROFILES, YAML


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
