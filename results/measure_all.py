"""Measure every reference model on every corpus, and keep the summaries that the chapters read.

    python results/measure_all.py [--trained FOLDER] [--wikitext FILE] [--only NAME …]

Files that are there already are kept. FILE is the text of WikiText-2 (test part). FOLDER is what
`posbias train-reference NAME … -o FOLDER --snapshots 0,10,30,100,300,600` wrote: models in the middle of training.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

from tokenizers import Tokenizer
from transformers.utils import logging

from posbias.measure.corpus import Corpus
from posbias.measure.loading import Source
from posbias.measure.run import Settings, measured
from posbias.measure.studies.hops import measure_hops
from posbias.measure.summary import summarise, write_summary
from posbias.shipped import FOLDER, reference_names
from posbias.training.reference.models import REFERENCES
from posbias.training.reference.pretraining import INITS, initial_model, save_model

HERE = Path(__file__).parent
LENGTHS = {"builtin": 256, "random": 256, "wikitext-2": 256, "builtin-1024": 1024}
PROMPTS = {"builtin": 256, "random": 128, "wikitext-2": 256, "builtin-1024": 24}
ARTICLE = r"^ = [^=].* = $"
SNAPSHOTS = 16  # prompts on which a model in training is measured
HOPS = 16  # prompts whose gradient is split by hops


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trained", type=Path)
    parser.add_argument("--wikitext", type=Path)
    parser.add_argument("--only", nargs="*", default=reference_names())
    arguments = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    for name in arguments.only:
        source = Source(f"reference/{name}")
        for corpus in LENGTHS:
            if corpus == "wikitext-2" and arguments.wikitext is None:
                continue
            if corpus == "builtin-1024" and REFERENCES[name].positions and REFERENCES[name].family == "gpt2":
                continue  # its table of positions ends before
            keep(HERE / "11_models" / f"{name}.{corpus}.nc", settings(source, corpus, arguments.wikitext))
        few = replace(settings(source, "builtin", None), prompts=SNAPSHOTS)
        for folder in sorted((arguments.trained or Path("none")).glob(f"{name}/step-*")):
            keep(
                HERE / "12_mixing" / f"{name}.{folder.name}.nc", replace(few, source=Source(str(folder))), prompts=False
            )
        path = HERE / "31_comparison" / f"{name}.hops.nc"
        if not path.exists():
            write_summary(path, measure_hops(replace(few, prompts=HOPS)))
            print(path.name, flush=True)
        for init in INITS:
            with tempfile.TemporaryDirectory() as folder:
                row = REFERENCES[name]
                twin = Path(folder) / f"{name}-untrained-{init}"
                tokenizer = Tokenizer.from_file(str(FOLDER / name / "tokenizer.json"))
                save_model(initial_model(row, 0, init), row, tokenizer, twin)
                path = HERE / "11_models" / f"{name}-untrained-{init}.builtin.nc"
                keep(path, replace(few, prompts=32, source=Source(str(twin))))


def settings(source: Source, corpus: str, wikitext: Path | None) -> Settings:
    what = Corpus(str(wikitext), separator=ARTICLE) if corpus == "wikitext-2" else Corpus("builtin")
    how = {"wikitext-2": {"rule": "cut", "per_document": 8}, "random": {"rule": "random"}}.get(corpus, {})
    n = LENGTHS[corpus]
    return Settings(source, what, prompts=PROMPTS[corpus], length=n, batch_size=8 if n == 256 else 2, **how)


def keep(path: Path, wanted: Settings, *, prompts: bool = True) -> None:
    if path.exists():
        return
    path.parent.mkdir(exist_ok=True)
    write_summary(path, summarise(measured(wanted), prompts=prompts))
    print(f"{path.name}: {path.stat().st_size / 1024:.0f} KiB", flush=True)


if __name__ == "__main__":
    main()
