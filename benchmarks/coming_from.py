"""Ask other tools which of eight documents an answer came from: seconds, memory, and the order beside deletion.

    python benchmarks/coming_from.py DIR    # prints a table in Markdown and writes it to benchmarks/coming_from.md

One prompt of ``posbias lookup``: eight invented documents about different things, a question about the fifth, and the
model's own answer to it. Each tool runs in a process of its own, on one thread; one that is not installed has no row.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from time import process_time

import numpy as np
import torch
from scipy.stats import spearmanr
from transformers import AutoModelForCausalLM, AutoTokenizer

import posbias
from posbias.explain.prompt import write
from posbias.lookup.contexts import make_contexts
from posbias.lookup.tasks import Task

GOLD = 4
"""The document that answers, from 0."""


Scores = Iterator[tuple[str, np.ndarray]]


class Case:
    """Hold the model, the prompt cut into parts of which eight are documents, and the model's answer."""

    def __init__(self, model: str) -> None:
        self.name, self.tokenizer = model, AutoTokenizer.from_pretrained(model)
        self.network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="eager")
        (context,) = make_contexts(Task("documents"), 1, 0)
        asks = context.asks["not_competing"]
        self.row = {"documents": [f"{a.begin} {a.answer}." for a in asks], "question": asks[GOLD].question}
        self.prompt = write(self.tokenizer, self.row, "?")
        self.text = self.prompt.text
        self.at = [self.prompt.texts.index(x) for x in self.prompt.texts if x.startswith("Document ")]
        ids = torch.tensor([self.prompt.ids])
        with torch.no_grad():
            out = self.network.generate(ids, max_new_tokens=24, do_sample=False)[0, ids.shape[1] :]
        self.answer = self.tokenizer.decode(out, skip_special_tokens=True)

    def by_document(self, scores: np.ndarray) -> np.ndarray:
        """Return the sum of tokens' scores over each document."""
        return np.array([scores[self.prompt.segment == k].sum() for k in self.at])


def ours(case: Case) -> Scores:
    opened = posbias.open(case.network, tokenizer=case.tokenizer)
    found = opened.explain({**case.row, "answer": case.answer}, progress=False).segments
    documents = found[found["label"].str.startswith("Document ")]
    yield "deletion", -documents["removed"].to_numpy()
    yield "gradient", documents["share"].to_numpy()
    yield "contributions", documents["contributed"].to_numpy()


def inseq(case: Case) -> Scores:
    import inseq

    for method in ("saliency", "attention"):
        model = inseq.load_model(case.network, method, tokenizer=case.tokenizer)
        out = model.attribute(case.text, case.text + case.answer, show_progress=False)
        scores = out[0].aggregate().target_attributions.numpy()[: len(case.prompt.ids)]
        yield method, case.by_document(scores.sum(1))


def captum(case: Case) -> Scores:
    from captum.attr import FeatureAblation, LLMAttribution, TextTemplateInput

    texts = case.prompt.texts
    template = "".join("{}" if k in case.at else text for k, text in enumerate(texts))
    parts = TextTemplateInput(template, [texts[k] for k in case.at])
    attribution = LLMAttribution(FeatureAblation(case.network), case.tokenizer)
    yield "FeatureAblation", attribution.attribute(parts, case.answer, forward_in_tokens=False).seq_attr.numpy()


def context_cite(case: Case) -> Scores:
    from context_cite import ContextCiter
    from context_cite.context_partitioner import BaseContextPartitioner

    class Documents(BaseContextPartitioner):
        parts = [case.prompt.texts[k] for k in case.at]
        num_sources = len(parts)

        def split_context(self) -> None:
            """Do nothing: the documents are the parts."""

        def get_source(self, index: int) -> str:
            return self.parts[index]

        def get_context(self, mask: np.ndarray | None = None) -> str:
            return "".join(x for k, x in enumerate(self.parts) if mask is None or mask[k])

    before, after = (case.prompt.texts[k] for k in (case.at[0] - 1, case.at[-1] + 1))
    user = before.rsplit("user\n", 1)[1] + "{context}" + after.split("<|im_end|>")[0]
    context = "".join(Documents.parts)
    how = {"num_ablations": 32, "prompt_template": user, "partitioner": Documents(context)}
    cite = ContextCiter(case.network, case.tokenizer, context, "", generate_kwargs={"max_new_tokens": 24}, **how)
    if not cite.response.startswith(case.answer):
        raise SystemExit(f"another answer: {cite.response!r}")
    yield "32 ablations", cite.get_attributions(0, len(case.answer), verbose=False)


def transformer_lens(case: Case) -> Scores:
    from transformer_lens.model_bridge import TransformerBridge

    bridge = TransformerBridge.boot_transformers(case.name, hf_model=case.network, tokenizer=case.tokenizer)
    n, ids = len(case.prompt.ids), case.tokenizer(case.text + case.answer, return_tensors="pt")["input_ids"]
    _, cache = bridge.run_with_cache(ids, names_filter=lambda name: name.endswith("hook_pattern"))
    rows = torch.stack([cache["pattern", k][0, :, n - 1 : -1, :n].mean((0, 1)) for k in range(bridge.cfg.n_layers)])
    yield "attention", case.by_document(rows.mean(0).detach().numpy())


TOOLS = {
    "posbias": (ours, "posbias", "posbias"),
    "captum": (captum, "captum", "captum"),
    "inseq": (inseq, "inseq", "inseq"),
    "context_cite": (context_cite, "ContextCite", "context-cite"),
    "transformer_lens": (transformer_lens, "TransformerLens", "transformer-lens"),
}
"""Package → what runs it, what the table calls it, and its name on the index."""


def ask_one(model: str, name: str) -> None:
    """Print as JSON what each method of a tool says, with its seconds, and the peak memory of this process."""
    case, found = Case(model), []
    start = process_time()
    for method, scores in TOOLS[name][0](case):
        found.append((method, process_time() - start, [float(x) for x in scores]))
        start = process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"answer": case.answer, "tokens": len(case.prompt.ids), "peak": peak, "found": found}))


def table(found: dict[str, dict]) -> str:
    """Return the table: for each method its cost, and where it puts the document that answers."""
    reference = np.array(dict((method, scores) for method, _, scores in found["posbias"]["found"])["deletion"])
    lines = [
        "| tool | method | processor seconds | peak memory | rank correlation with deletion | rank of document 5 |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in found.items():
        called = TOOLS[name][1] if name == "posbias" else f"{TOOLS[name][1]} {version(TOOLS[name][2])}"
        for method, seconds, scores in row["found"]:
            place = int((np.array(scores) > scores[GOLD]).sum()) + 1
            rank = spearmanr(reference, scores)
            order = f"{rank.statistic:+.2f}" + " †" * bool(rank.pvalue > 0.05)
            took = f"{seconds:.0f}" if seconds >= 0.5 else ""
            lines.append(f"| {called} | {method} | {took} | {row['peak']:.1f} GiB | {order} | {place} |")
    row = found["posbias"]
    return "\n".join([
        *lines, "",
        f"A prompt of {row['tokens']} tokens, one thread, {platform.machine()}, torch {version('torch')}, transformers "
        f"{version('transformers')}. The answer was “{row['answer']}” An empty cell means that its time is included in "
        "the row above. † not significant (5%, two-sided; eight documents).",
    ]) + "\n"  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a directory with SmolLM2-135M-Instruct")
    parser.add_argument("--only", choices=TOOLS, help="print what one tool says, and write nothing")
    arguments = parser.parse_args()
    if arguments.only:
        ask_one(arguments.model, arguments.only)
        return
    command = [sys.executable, __file__, arguments.model, "--only"]
    found = {}
    for name in filter(find_spec, TOOLS):
        done = subprocess.run([*command, name], stdout=subprocess.PIPE, text=True, check=True)
        found[name] = json.loads(done.stdout.splitlines()[-1])
    text = table(found)
    Path(__file__).with_suffix(".md").write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
