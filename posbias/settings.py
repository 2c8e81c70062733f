"""What a measurement is asked for, in one place without torch: settings and quantities.

The fields of :class:`Opening`, :class:`~posbias.measure.corpus.Corpus` and :class:`Settings` that have a help text are
the options of the commands (:mod:`posbias.cli.options`) and the keywords of :func:`posbias.open` and of the methods of
:class:`~posbias.measure.model.Model`; a file has most of them as attributes. Their types say what is refused.
"""

from collections.abc import Callable, Iterable
from dataclasses import Field, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import pydantic
from pydantic import BeforeValidator
from pydantic.dataclasses import dataclass

from posbias import errors

Made = TypeVar("Made", bound=type)

OWN_FILE = {
    file.stem: file.read_text(encoding="utf-8").splitlines()[0].strip('".')
    for file in sorted((Path(__file__).parent / "measure" / "quantities").glob("[a-z]*.py"))
}
"""Quantities with a file of their own: name of the file → its first line."""
QUANTITIES = {
    "mixing": "λ of each layer and prompt",
    "influence": "input-token influence, by gradients",
    "kernels": "attention averaged over heads, and each prompt's own rollout",
    "content": "mean content logits of each head",
    "logits": "content logits as matrices for each head",
    "heads": "attention as matrices for each head",
    "branches": "what the law of untrained networks needs: gains, denominators, steps",
    "ladder": "influence by layers that are made simpler, a hypothesis at a time",
    **OWN_FILE,
}
"""Name → meaning, in the order in which files name them."""
ALWAYS = ("mixing", "influence")
ATTENDED = frozenset({"kernels", "content", "logits", "heads", "branches", "ladder"})
"""Quantities that are read of attention, which every layer has to have."""
MATRICES = frozenset({"kernels", "branches", "contributions"})
"""Quantities that are matrices of all pairs of tokens."""
ALONE = ("influence",)
"""What can be measured of a model whose family has no row."""
DEFAULT = ("mixing", "influence", "kernels", "content", "branches")
REPORTED: dict[str, Any] = {"quantities": (*DEFAULT, "contributions", "ladder"), "ladder_prompts": 32}
"""What a report measures unless it is said: the ladder takes most of the time, and little of it is noise."""
NEEDS = {"heads": "kernels", "logits": "content"}

RUNGS = ("independent", "fixed-attention", "vectors", "positions")
"""The rungs of the ladder as files name them, each with what the one before it assumes: layers of different prompts;
attention weights that nothing depends on; their means over prompts; the softmax of mask and position bias."""

DTYPES = ("float32", "bfloat16", "float16")
ATTENTION = ("eager", "sdpa")
"""How attention is computed: step by step, so that its weights are seen, or fused, so that they are never made."""

KERNEL_SIZE = 512
"""Most tokens of a prompt of which matrices are kept, unless another number is given."""


def setting(default: Any, text: str, *flags: str, kept: bool = False, doors: str = "", **more: Any) -> Any:
    """Return a field of a dataclass that is an option of commands too.

    ``flags`` are other spellings of the option; ``kept`` says that files have the setting as an attribute; ``doors``
    names what takes it beside a measurement: ``report``, ``explain`` or ``lookup``; ``kind`` is the option's type
    where it is not the field's.
    """
    return field(default=default, metadata={"help": text, "flags": flags, "kept": kept, "doors": doors.split(), **more})


def settings_of(*classes: type, door: str = "") -> dict[str, Field[Any]]:
    """Return the fields with a help text, by name; of a ``door`` beside a measurement those that it takes."""
    there = {one.name: one for cls in classes for one in fields(cls) if "help" in one.metadata}
    return {name: one for name, one in there.items() if not door or door in one.metadata["doors"]}


def checked(cls: Made) -> Made:
    """Have a dataclass of pydantic refuse its first wrong field in one line, as everything here is refused."""
    init: Callable[..., None] = cls.__init__  # type: ignore[misc]

    def one_line(self: Any, *values: Any, **named: Any) -> None:
        try:
            init(self, *values, **named)
        except pydantic.ValidationError as error:
            raise refusal(error, cls) from None

    cls.__init__ = one_line  # type: ignore[misc]
    return cls


def refusal(error: pydantic.ValidationError, cls: type) -> ValueError:
    """Return the first thing that pydantic found in the fields of a class, in the one form of a message."""
    first = error.errors()[0]
    field = first["loc"][0] if first["loc"] else ""
    name = fields(cls)[field].name if isinstance(field, int) else field  # by its place
    kind, context = first["type"], first.get("ctx", {})
    if kind == "value_error":
        return ValueError(context["error"])
    expected = {
        "greater_than_equal": f"an integer of at least {context.get('ge')}",
        "less_than": f"an integer below {context.get('lt')}",
        "int_type": "an integer",
        "bool_type": "True or False",
        "string_type": "a text",
        "literal_error": str(context.get("expected")).replace("'", ""),
    }.get(kind, first["msg"])
    return errors.invalid(name, expected, repr(first["input"]))


def as_text(value: Any) -> Any:
    """Return a torch.device or torch.dtype by its name, anything else as it is; torch need not be there."""
    is_torchs = type(value).__module__ == "torch" and type(value).__name__ in ("device", "dtype")
    return str(value).removeprefix("torch.") if is_torchs else value


def quantities_of(names: Any) -> tuple[str, ...]:
    """Return quantities in their order, from names in one text with commas between them, or one by one.

    Influence alone may be asked for, of a model whose family has no row.

    >>> quantities_of("kernels"), quantities_of("influence")
    (('mixing', 'influence', 'kernels'), ('influence',))
    """
    given = names.split(",") if isinstance(names, str) else list(names) if isinstance(names, Iterable) else [names]
    wanted = {name.strip() if isinstance(name, str) else name for name in given} - {""}
    if unknown := [name for name in wanted if name not in QUANTITIES]:
        raise errors.invalid("quantities", f"some of {', '.join(QUANTITIES)}", ", ".join(sorted(map(str, unknown))))
    for name, needed in NEEDS.items():
        if name in wanted and needed not in wanted:
            there = ",".join(one for one in QUANTITIES if one in wanted)
            raise errors.invalid("quantities", f"{needed} beside {name}", there)
    return ALONE if wanted == {*ALONE} else tuple(name for name in QUANTITIES if name in {*wanted, *ALWAYS})


Count = Annotated[int, pydantic.Field(ge=1, lt=2**63, strict=True)]
Flag = Annotated[bool, pydantic.Field(strict=True)]
Text = Annotated[str, pydantic.Field(strict=True)]
Dtype = Annotated[Literal["float32", "bfloat16", "float16"], BeforeValidator(as_text)]
Device = Annotated[Text, BeforeValidator(as_text)]
Quantities = Annotated[tuple[str, ...], BeforeValidator(quantities_of)]


@checked
@dataclass(frozen=True)
class Opening:
    """Say which model is wanted, and what it is allowed to do."""

    model: str = ""  # directory, GGUF file, id on the hub, or reference/NAME
    revision: str | None = setting(None, "Branch, tag or commit of the model on the hub.")
    tokenizer: str | None = setting(None, "Directory or id, if it is not the model's own.")
    trust_remote_code: Flag = setting(False, "Run code that comes with the model.")
    cache: Flag = setting(
        True, "Keep what a GGUF file is made into in the user's cache folder, and take it from there."
    )


def one_condition(given: Any) -> Any:
    """Return the condition of a list of one, as a command gives it: a file is of one."""
    if not isinstance(given, list | tuple):
        return given
    if len(given) != 1:
        raise errors.invalid("condition", "one, for a measurement is of one", len(given))
    return given[0]


@checked
@dataclass(frozen=True)
class Settings:
    """Hold everything that decides what a measurement finds: the model, the documents, and how they are read."""

    source: Any
    corpus: Any
    prompts: Count = setting(200, "Number of prompts; 200 unless given.", "-N", kept=True, doors="report")
    length: Annotated[Count, pydantic.Field(ge=2)] = setting(
        256, "Tokens in each; 256 unless given.", "-n", kept=True, doors="report"
    )
    batch_size: Count = setting(8, "Prompts at a time.", "-B", kept=True)
    dtype: Dtype | None = setting(
        None, "float32, bfloat16 or float16; 32 bits on a CPU, bfloat16 on a GPU unless given.", kept=True,
        doors="explain lookup", kind=str,
    )  # fmt: skip
    device: Device | None = setting(
        None, "cpu, cuda, cuda:1, …; a GPU if there is one.", kept=True, doors="explain lookup", kind=str
    )
    device_map: Literal["auto", "balanced", "balanced_low_0", "sequential"] | None = setting(
        None, "Spread the model by accelerate: auto, balanced, sequential.", doors="explain lookup", kind=str
    )
    rule: Text = setting(
        "first",
        "first (the first tokens of documents), cut (tokens from inside them), last (their last tokens) or random; "
        "first unless given.",
        kept=True,
    )
    seed: Annotated[int, pydantic.Field(ge=0, lt=2**32, strict=True)] = setting(
        0, "Of what is drawn: places and tokens.", kept=True, doors="lookup"
    )
    per_document: Count = setting(1, "Most prompts from one document, for the rule cut.")
    special_tokens: Flag = setting(
        True, "Put the tokenizer's start tokens in front.", kept=True, doors="explain lookup"
    )
    quantities: Quantities = setting(
        DEFAULT,
        f"What is measured, with commas between: {'; '.join(f'{name} ({text})' for name, text in QUANTITIES.items())}. "
        f"Mixing and influence always, influence alone where a family has no row; unless given {', '.join(DEFAULT)}.",
        "-q",
        kept=True,
        kind=str,
    )
    kernel_size: Count = setting(
        KERNEL_SIZE, "Most tokens of a prompt of which matrices are kept; of longer ones there are none.", kept=True
    )
    ladder_prompts: Count | None = setting(
        None, "Prompts for ladder, whole batches from the first on; all unless given.", kept=True
    )
    attention: Literal["eager", "sdpa"] | None = setting(
        "eager", "eager, or sdpa, torch's fused kernel; fused where the family has it unless given.", kept=True,
        doors="explain", kind=str,
    )  # fmt: skip
    condition: Annotated[str | None, BeforeValidator(one_condition)] = setting(
        None, "Change the model, of explain also what is asked, as bias:b.yaml; list: posbias lookup --condition list.",
        kept=True, doors="explain", kind=list[str],
    )  # fmt: skip
    tokens: Flag = setting(True, "Keep the prompts' token ids in the file.")

    def __post_init__(self) -> None:
        """Check batches that the ladder pairs; a lone last prompt is left out."""
        if "ladder" in self.quantities and min(self.prompts, self.batch_size) == 1:
            expected = "2 prompts or more in a batch, for ladder, which exchanges their layers"
            raise errors.invalid("batch_size", expected, 1)


UNLESS_GIVEN: dict[str, Any] = dict.fromkeys(("dataset", "rule", "attention", "prompts", "length", "quantities"))
"""Where the doors differ from the classes: what a user leaves open is chosen by the model."""
