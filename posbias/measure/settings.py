"""What a measurement is asked for, in one place without torch: settings, quantities, and what a rollout predicts.

The fields of :class:`Opening`, :class:`~posbias.measure.corpus.Corpus` and :class:`Settings` that have a help text are
the options of the commands (:mod:`posbias.cli.options`) and the keywords of :func:`posbias.open` and
:meth:`~posbias.measure.model.Model.measure`; a file has most of them as attributes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import Field, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from posbias import errors

if TYPE_CHECKING:
    import torch

    from posbias.measure.corpus import Corpus
    from posbias.measure.loading import Source

QUANTITIES = {
    "mixing": "λ of each layer and prompt",
    "influence": "input-token influence, by gradients",
    "kernels": "attention averaged over heads, and each prompt's own rollout",
    "content": "content logits: means and histograms of each head",
    "logits": "content logits as matrices for each head",
    "heads": "attention as matrices for each head",
    "branches": "what the law of untrained networks needs: gains, denominators, steps",
    "ladder": "influence by layers that are made simpler, a hypothesis at a time",
}
"""Name → meaning, in the order in which files name them."""
ALWAYS = ("mixing", "influence")
ALONE = ("influence",)
"""What can be measured of a model whose family has no row."""
DEFAULT = ("mixing", "influence", "kernels", "content", "branches")
NEEDS = {"heads": "kernels", "logits": "content"}

RUNGS = {
    "independent": "independent layers",
    "fixed-attention": "independent layers, no gradient through attention weights",
    "vectors": "mean attention, own value maps",
    "positions": "attention by positions alone, own value maps",
}
"""The rungs of the ladder, each with what the one before it assumes: layers of different prompts; attention weights
that nothing depends on; their means over prompts; the softmax of mask and position bias."""

VARIANTS = {
    "a": "attention only",
    "b": "with residual",
    "c": "with residual and content",
    "kernels": "with residual and measured attention",
    "own": "with residual and each prompt's attention",
    "untrained": "the law of untrained networks",
    **RUNGS,
}
"""What each rollout takes from a measurement, in a few words."""
LETTERS = {"attention": "a", "residual": "b", "content": "c"}
"""The paper's letters by the names that go beside them."""

SHARES = 10
"""Equal shares of a prompt that are the positions of prompts of different lengths, the rule ``whole``."""

DTYPES = ("float32", "bfloat16", "float16")
ATTENTION = ("eager", "sdpa")
"""How attention is computed: step by step, so that its weights are seen, or fused, so that they are never made."""

OF = ("probability", "logit", "log-probability")
"""Numbers of the next token's distribution that influence can belong to."""

KERNEL_SIZE = 512
"""Most tokens of which matrices are kept whole, unless another number is given."""
BYTES_PER_TOKEN = 24
"""What is kept in memory of each token of each prompt: its id, and its influence with and without sign."""


def setting(default: Any, text: str, *flags: str, kept: bool = False, **more: Any) -> Any:
    """Return a field of a dataclass that is an option of commands too.

    ``flags`` are other spellings of the option; ``kept`` says that files have the setting as an attribute; ``kind`` is
    the option's type where it is not the field's.
    """
    return field(default=default, metadata={"help": text, "flags": flags, "kept": kept, **more})


def as_text(value: Any) -> Any:
    """Return a torch.device or torch.dtype by its name, anything else as it is; torch need not be there."""
    is_torchs = type(value).__module__ == "torch" and type(value).__name__ in ("device", "dtype")
    return str(value).removeprefix("torch.") if is_torchs else value


def settings_of(*classes: type) -> dict[str, Field[Any]]:
    """Return the fields with a help text, by name."""
    return {one.name: one for cls in classes for one in fields(cls) if "help" in one.metadata}


@dataclass(frozen=True)
class Opening:
    """Say which model is wanted, and what it is allowed to do."""

    model: str = setting("", "Directory, GGUF file, id on the hub, or reference/NAME.", "-m")
    revision: str | None = setting(None, "Branch, tag or commit of the model on the hub.")
    tokenizer: str | None = setting(None, "Directory or id, if it is not the model's own.")
    trust_remote_code: bool = setting(False, "Run code that comes with the model.")
    allow_pickle: bool = setting(False, "Load weights that are not in safetensors; they can run code.")
    strip_prefix: str = setting("", "Leave away what stands in front of the weights' names: module., _orig_mod.")


@dataclass(frozen=True)
class Settings:
    """Hold everything that decides what a measurement finds: the model, the documents, and how they are read."""

    source: Source
    corpus: Corpus
    prompts: int = setting(200, "Number of prompts; 200 unless given.", "-N", kept=True)
    length: int = setting(256, "Tokens in each; 256 unless given.", "-n", kept=True)
    batch_size: int = setting(8, "Prompts at a time.", "-B", kept=True)
    dtype: str | None = setting(
        None, "float32, bfloat16 or float16; 32 bits on a CPU, bfloat16 on a GPU unless given.", kept=True
    )
    device: str | None = setting(None, "cpu, cuda, cuda:1, …; a GPU if there is one.", kept=True)
    device_map: str | None = setting(None, "Spread the model by accelerate: auto, balanced, sequential.")
    rule: str = setting(
        "first",
        "first (the first tokens of documents), cut (tokens from inside them), last (their last tokens), whole "
        "(documents as they are, of different lengths: influence by tenths of a prompt and from its end) or random; "
        "first unless given, random with --untrained and no --dataset.",
        kept=True,
    )
    seed: int = setting(0, "Of what is drawn: places, tokens, and the weights of --untrained.", kept=True)
    per_document: int = setting(1, "Most prompts from one document, for the rule cut.")
    special_tokens: bool = setting(True, "Put the tokenizer's start tokens in front.", kept=True)
    quantities: tuple[str, ...] = setting(
        DEFAULT,
        "What is measured, with commas between: mixing and influence always (influence alone where a family has no "
        "row); kernels, content, logits (content as matrices), heads (attention of each head), branches (for the law "
        "of untrained networks), ladder (influence by layers that are made simpler). All down to branches unless "
        "given; of whole prompts mixing and influence.",
        "-q",
        kept=True,
        kind=str,
    )
    kernel_size: int = setting(
        KERNEL_SIZE, "Most tokens of which matrices are kept whole; beyond, averaged over as many cells.", kept=True
    )
    pairings: int = setting(1, "Pairings of the prompts of a batch, for ladder; their spread is kept.", kept=True)
    target: str = setting(
        "top",
        "What influence belongs to: top (the likeliest next token), next (the one that follows in the text) or the "
        "text of a token, such as ' Paris'.",
        kept=True,
    )
    against: str | None = setting(None, "A second token, whose number is subtracted: a contrast.", kept=True)
    of: str = setting("probability", "probability, logit or log-probability of the target.", kept=True)
    attention: str | None = setting(
        "eager", "eager, or sdpa, torch's fused kernel; fused where the family has it unless given.", kept=True
    )
    tokens: bool = setting(True, "Keep the prompts' token ids in the file.")

    def place(self) -> torch.device:
        """Return the device, or raise ValueError if there is no such one."""
        from posbias.measure.processes import found_device

        return found_device(self.device)

    def precision(self) -> str:
        """Return the name of the number format."""
        return self.dtype or ("float32" if self.place().type == "cpu" else "bfloat16")

    def with_source(self, source: Source) -> Settings:
        """Return the same settings for another model."""
        return replace(self, source=source)


UNLESS_GIVEN: dict[str, Any] = dict.fromkeys(("dataset", "rule", "attention", "prompts", "length", "quantities"))
"""Where the doors differ from the classes: what a user leaves open is chosen by the model."""

EXPLAINED = (
    "prompts", "dataset", "separator", "field", "batch_size", "dtype", "device", "device_map", "attention",
    "special_tokens", "seed",
)  # fmt: skip
"""Settings that :meth:`~posbias.measure.model.Model.explain` takes beside those of the prompt."""


def check_settings(asked: dict[str, Any]) -> None:
    """Raise ValueError for a setting out of range, before anything heavy is loaded; ``asked`` may lack some.

    >>> check_settings({"prompts": 0})
    Traceback (most recent call last):
    ValueError: prompts: expected an integer of at least 1, received 0
    """
    for name, one in settings_of(Settings).items():
        if asked.get(name) is None:
            continue
        if one.type == "int" and name != "seed":
            errors.positive_integer(name, asked[name], minimum=2 if name == "length" else 1)
        elif one.type == "bool" and not isinstance(asked[name], bool):
            raise errors.invalid(name, "True or False", repr(asked[name]))
        elif one.type.startswith("str") and not isinstance(asked[name], str):
            raise errors.invalid(name, "a text", repr(asked[name]))
    if "seed" in asked:
        errors.seed("seed", asked["seed"])
    if {"prompts", "length"} <= asked.keys():
        check_prompts_fit(asked["prompts"], asked["length"])
    if {"quantities", "prompts", "batch_size"} <= asked.keys() and "ladder" in asked["quantities"]:
        check_batches(asked["prompts"], asked["batch_size"])
    if (dtype := asked.get("dtype")) is not None and dtype not in DTYPES:
        raise errors.invalid("dtype", f"one of {', '.join(DTYPES)}", dtype or "an empty name")
    if (device := asked.get("device")) is not None:
        errors.device("device", device)
    if (attention := asked.get("attention")) is not None and attention not in ATTENTION:
        raise errors.invalid("attention", " or ".join(ATTENTION), repr(attention))


def check_batches(prompts: int, batch_size: int) -> None:
    """Raise ValueError if a batch would have one prompt, and none to exchange layers with.

    >>> check_batches(9, 8)
    Traceback (most recent call last):
    ValueError: batch_size: expected one that leaves no prompt alone, for ladder, received 8 of 9 prompts
    >>> check_batches(1, 8)
    Traceback (most recent call last):
    ValueError: prompts: expected at least 2, for ladder, which exchanges layers between prompts, received 1
    """
    if prompts == 1:
        raise errors.invalid("prompts", "at least 2, for ladder, which exchanges layers between prompts", prompts)
    if batch_size == 1 or prompts % batch_size == 1:
        raise errors.invalid(
            "batch_size", "one that leaves no prompt alone, for ladder", f"{batch_size} of {prompts} prompts"
        )


def check_one_length(rule: str) -> None:
    """Raise ValueError for whole prompts, by the rule that a file names: a report is on tokens, not on tenths.

    >>> check_one_length("first")
    """
    if rule.startswith("whole"):
        received = "whole ones; cut them with a --length, or plot their tenths"
        raise errors.invalid("report", "prompts of one length", received)


def check_prompts_fit(prompts: int, length: int) -> None:
    """Raise ValueError if what is kept of each token of each prompt takes more than the machine's memory."""
    errors.fits("length", length, length * BYTES_PER_TOKEN)
    errors.fits("prompts", f"{prompts} of {length} tokens", prompts * length * BYTES_PER_TOKEN)


def quantities_of(names: Any) -> tuple[str, ...]:
    """Return quantities in their order, from names in one text with commas between them, or one by one.

    Influence alone may be asked for, of a model whose family has no row.

    >>> quantities_of("kernels"), quantities_of("influence")
    (('mixing', 'influence', 'kernels'), ('influence',))
    """
    if not isinstance(names, Iterable):
        raise errors.invalid("quantities", f"some of {', '.join(QUANTITIES)}", repr(names))
    given = names.split(",") if isinstance(names, str) else list(names)
    if not all(isinstance(name, str) for name in given):
        raise errors.invalid("quantities", f"some of {', '.join(QUANTITIES)}", repr(names))
    wanted = {name.strip() for name in given} - {""}
    if unknown := sorted(wanted - set(QUANTITIES)):
        raise errors.invalid("quantities", f"some of {', '.join(QUANTITIES)}", ", ".join(unknown))
    for name, needed in NEEDS.items():
        if name in wanted and needed not in wanted:
            there = ",".join(one for one in QUANTITIES if one in wanted)
            raise errors.invalid("quantities", f"{needed} beside {name}", there)
    return ALONE if wanted == {*ALONE} else tuple(name for name in QUANTITIES if name in {*wanted, *ALWAYS})


def labels() -> dict[str, str]:
    """Return what each variant is called in figures and tables."""
    return {name: f"({name}) {words}" if len(name) == 1 else words for name, words in VARIANTS.items()}
