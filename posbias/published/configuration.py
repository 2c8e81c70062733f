"""Rollout configurations in the authors' YAML format: read as published, checked field by field, and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import yaml
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from posbias import errors
from posbias.rollout import masks, schedules
from posbias.rollout.biased import BiasedKernels, biased_kernels
from posbias.rollout.gains import Gains, gains, gains_of_mixing
from posbias.rollout.influence import influence_profile
from posbias.rollout.masks import Mask
from posbias.rollout.structured import StructuredKernels, structured_kernels

Share = Annotated[FiniteFloat, Field(ge=0, le=1)]
Count = Annotated[int, Field(gt=0, strict=True)]
Positive = Annotated[FiniteFloat, Field(gt=0)]
ScalarContent = Literal["every-head", "first-head"]
BRANCHES = "branches"
OURS = ("position_bias", BRANCHES)
"""Fields that the authors' format lacks: they are written only where they say something."""
MOST_BYTES, MOST_DEPTH, MOST_NODES = 2**26, 20, 5_000_000
"""A configuration's largest file, deepest nesting (its own is 4), and most values, aliases written out."""
BYTES_EACH = 100
"""What each token and each layer takes of memory, the text of a profile included."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MaskConfig(_Part):
    """Configure the mask: causal, full, or sliding_window with a window_size ≥ 1."""

    mask_type: Literal["causal", "full", "sliding_window"] = "causal"
    window_size: Count | None = None

    def mask(self) -> Mask:
        """Return the mask, or raise ValueError if a sliding window has no size."""
        if self.mask_type == "sliding_window":
            if self.window_size is None:
                raise errors.invalid("mask_config.window_size", "an integer of at least 1", "nothing")
            return masks.sliding_window(self.window_size)
        return masks.full() if self.mask_type == "full" else masks.causal()


class AttentionConfig(_Part):
    """Configure heads: ALiBi slopes > 0 as (1 or T) lists of (1 or H), weights, temperature > 0.

    Beside a ``position_bias`` there are no slopes, and the temperature is 1.
    """

    num_heads: Count
    alibi_slopes: list[list[Positive]]
    head_weights: list[list[Annotated[FiniteFloat, Field(ge=0)]]] | None = None
    softmax_temperature: Positive = 1.0


class ContentConfig(_Part):
    """Configure content logits: added on the diagonal, and everywhere; (1 or T) lists of (1 or H)."""

    diagonal_scores: list[list[FiniteFloat]]
    base_scores: list[list[FiniteFloat]]


class ConstantSchedule(_Part):
    """Configure λ_t = lambda_const."""

    schedule_type: Literal["constant"]
    lambda_const: Share

    def schedule(self, T: int) -> Float[np.ndarray, "T"]:
        """Return the T values."""
        return schedules.constant(T, self.lambda_const)


class PowerDecaySchedule(_Part):
    """Configure λ_t = lambda_0 · t^(-beta), t = 1..T."""

    schedule_type: Literal["power_decay"]
    lambda_0: Positive
    beta: Positive

    def schedule(self, T: int) -> Float[np.ndarray, "T"]:
        """Return the T values; ValueError if one exceeds 1."""
        return schedules.power_decay(T, self.lambda_0, self.beta)


class CustomSchedule(_Part):
    """Configure λ_t one by one."""

    schedule_type: Literal["custom"]
    lambdas_custom: list[Share]

    def schedule(self, T: int) -> Float[np.ndarray, "T"]:
        """Return the T values; ValueError if there are not T of them."""
        return schedules.custom(self.lambdas_custom, T)


class BranchConfig(_Part):
    """Configure gains for the law of untrained networks at g positions, by layer; see :mod:`posbias.rollout.gains`.

    ``positions`` count from 1, ``attention`` is c ≥ 0, ``outputs`` the factor of a norm after the attention (1 unless
    given), ``steps`` the gain m ≥ 0 of what follows (0 unless given), ``overlaps`` (g, g) correlations of what follows
    at two positions (1 unless given), ``parallel`` whether it stands beside the attention.
    """

    positions: list[Positive]
    attention: list[list[FiniteFloat]]
    outputs: list[list[FiniteFloat]] | None = None
    steps: list[list[FiniteFloat]] | None = None
    overlaps: list[list[list[FiniteFloat]]] | None = None
    parallel: Annotated[bool, Field(strict=True)] = False

    def gains(self, T: int) -> Gains:
        """Return the gains, or raise ValueError if they are not those of T layers."""
        found = gains(**self.model_dump(), field=BRANCHES)
        if found.T != T:
            raise errors.invalid(f"{BRANCHES}.attention", f"{T} rows, one for each layer", found.T)
        return found


class RolloutConfig(_Part):
    """Configure one rollout; fields are named and mean what they do in the authors' files, but for two of ours.

    ``position_bias`` takes the place of ALiBi: a bias for all heads, such as ``{kind: log, alpha: 1.4}`` or
    ``{kind: flat, tau: 4.8}``, a list of them for heads, or a list of such lists for layers (see
    :mod:`posbias.rollout.position_bias`). Then ``attention_config`` and ``content_config`` may be left out.
    ``branches`` are gains for the law of untrained networks, :class:`BranchConfig`; the rollout does not read them.

    Source: configuration files of the residual-aware paper's repository (config/rollout/example.yaml).
    """

    sequence_length: Count
    num_layers: Count
    mask_config: MaskConfig = MaskConfig()
    position_bias: Any = None
    attention_config: AttentionConfig
    content_config: ContentConfig
    lambda_schedule_config: Annotated[
        ConstantSchedule | PowerDecaySchedule | CustomSchedule, Field(discriminator="schedule_type")
    ]
    save_dir: str | None = None
    branches: BranchConfig | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_slopes(cls, fields: Any) -> Any:
        """Fill in what may be left out beside a position bias."""
        if not isinstance(fields, dict) or fields.get("position_bias") is None:
            return fields
        attention, bias = fields.get("attention_config", {}), fields["position_bias"]
        if isinstance(attention, dict):
            part = bias[0] if isinstance(bias, list) and bias and isinstance(bias[0], list) else bias
            heads = len(part) if isinstance(part, list) else 1
            attention = {"num_heads": heads, "alibi_slopes": [], **attention}
        nothing = {"diagonal_scores": [[0.0]], "base_scores": [[0.0]]}
        return {"content_config": nothing, **fields, "attention_config": attention}

    def kernels(self, scalar_content: ScalarContent = "every-head") -> StructuredKernels | BiasedKernels:
        """Return the kernels of the configuration: structured, or with the position biases that it has."""
        T, attention, biased = self.num_layers, self.attention_config, self.position_bias is not None
        H = attention.num_heads
        slopes = None if biased else _rectangle("attention_config.alibi_slopes", attention.alibi_slopes, T, H)
        diagonal = _rectangle("content_config.diagonal_scores", self.content_config.diagonal_scores, T, H)
        base = _rectangle("content_config.base_scores", self.content_config.base_scores, T, H)
        given = attention.head_weights
        weights = None if given is None else _rectangle("attention_config.head_weights", given, T, H)
        if scalar_content == "first-head" and diagonal.shape[1] == 1:
            diagonal = diagonal * (np.arange(H) == 0)
        parts: dict[str, Any] = {"diagonal": diagonal, "weights": weights, "H": H}
        if slopes is None:
            self._check_biased()
            return biased_kernels(T, self.position_bias, **parts)
        mask, temperature = self.mask_config.mask(), attention.softmax_temperature
        return structured_kernels(T, slope=slopes, base=base, mask=mask, temperature=temperature, **parts)

    def _check_biased(self) -> None:
        """Raise ValueError for what position biases do not go with."""
        if self.mask_config.mask_type != "causal":
            raise errors.invalid("mask_config.mask_type", "causal beside a position_bias", self.mask_config.mask_type)
        if self.attention_config.alibi_slopes:
            raise errors.invalid("attention_config.alibi_slopes", "none beside a position_bias", "slopes")
        if self.attention_config.softmax_temperature != 1:
            received = self.attention_config.softmax_temperature
            raise errors.invalid("attention_config.softmax_temperature", "1 beside a position_bias", received)

    def check_sizes(self) -> None:
        """Raise ValueError for a number of tokens, layers or heads that takes more than the machine's memory."""
        H = self.attention_config.num_heads
        errors.fits("sequence_length", self.sequence_length, self.sequence_length * BYTES_EACH)
        errors.fits("num_layers", self.num_layers, self.num_layers * BYTES_EACH)
        errors.fits("attention_config.num_heads", H, H * BYTES_EACH * 10)  # held for 512 tokens at a time

    def lambdas(self) -> Float[np.ndarray, "T"]:
        """Return λ_1..λ_T."""
        return self.lambda_schedule_config.schedule(self.num_layers)

    def gains(self) -> Gains:
        """Return the gains for the law of untrained networks: those of ``branches``, else c = λ/(1 - λ)."""
        return gains_of_mixing(self.lambdas()) if self.branches is None else self.branches.gains(self.num_layers)

    def profile(self, scalar_content: ScalarContent = "every-head") -> Float[np.ndarray, "n"]:
        """Return the influence profile: the last row of the rollout that the configuration describes."""
        return influence_profile(self.kernels(scalar_content), self.lambdas(), self.sequence_length)

    def without_residual(self) -> RolloutConfig:
        """Return the same configuration with λ = 1 in every layer: attention only."""
        schedule = ConstantSchedule(schedule_type="constant", lambda_const=1.0)
        return self.model_copy(update={"lambda_schedule_config": schedule})

    def without_content(self) -> RolloutConfig:
        """Return the same configuration with content logits 0."""
        content = ContentConfig(diagonal_scores=[[0.0]], base_scores=[[0.0]])
        return self.model_copy(update={"content_config": content})

    def at_length(self, n: int) -> RolloutConfig:
        """Return the same configuration for n tokens."""
        other = self.model_copy(update={"sequence_length": errors.positive_integer("sequence_length", n)})
        other.check_sizes()
        return other


def read_config(path: Path | str) -> RolloutConfig:
    """Read a rollout configuration; tabs, which some of the published files contain, count as spaces."""
    path = Path(path)
    content = read_content(path)
    if not isinstance(content, dict):
        received = "an empty file" if content is None else type(content).__name__
        raise errors.invalid(str(path), "a mapping of fields", received)
    try:
        config = RolloutConfig.model_validate(content)
    except ValidationError as error:
        raise ValueError(f"{path}: " + "; ".join(_complaint(e) for e in error.errors()[:5])) from None
    try:
        config.check_sizes()
        config.kernels(), config.lambdas()
        if config.branches is not None:
            config.gains()
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return config


def read_content(path: Path) -> Any:
    """Return what a file of YAML or JSON holds, of a size that can be looked through."""
    if path.exists() and not path.is_file() and not path.is_dir():  # reading a pipe would wait for ever
        raise errors.invalid(str(path), "a file with a configuration", "a device or a pipe")
    if path.is_file() and path.stat().st_size > MOST_BYTES:
        raise errors.invalid(str(path), f"a configuration of at most {MOST_BYTES} bytes", path.stat().st_size)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        received = f"the byte 0x{error.object[error.start]:02x}"
        raise errors.invalid(str(path), "YAML in UTF-8", received) from None
    text = text.replace("\t", " ")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_nodes(path, text, loader)
        return yaml.load(text, Loader=loader)  # noqa: S506 - a safe loader either way
    except (yaml.YAMLError, RecursionError, OverflowError, ValueError) as error:  # the last of dates that are none
        if str(error).startswith(str(path)):
            raise
        raise ValueError(f"{path}: expected YAML, received {' '.join(str(error).split())[:200]}") from None


def _check_nodes(path: Path, text: str, loader: Any) -> None:
    """Raise for YAML that is nested too deep, or too large once its aliases are written out.

    The parser that builds values calls itself for each level, and a deep file would end the interpreter; its events
    come one after another.
    """
    sizes: list[int] = [0]
    anchors: list[str | None] = [None]
    known: dict[str, int] = {}
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.CollectionStartEvent):
            sizes.append(1)
            anchors.append(event.anchor)
            if len(sizes) > MOST_DEPTH:
                raise errors.invalid(str(path), f"YAML of at most {MOST_DEPTH} levels", "more")
        elif isinstance(event, yaml.CollectionEndEvent):
            size, anchor = sizes.pop(), anchors.pop()
            sizes[-1] += size
            if anchor is not None:
                known[anchor] = size
        elif isinstance(event, yaml.AliasEvent):
            inside_itself = event.anchor in anchors  # without end
            sizes[-1] += MOST_NODES if inside_itself else known.get(event.anchor or "", 1)
        elif isinstance(event, yaml.ScalarEvent):
            sizes[-1] += 1
        if sizes[-1] > MOST_NODES:
            raise errors.invalid(str(path), f"at most {MOST_NODES} values, aliases written out", "more")


def config_text(config: RolloutConfig) -> str:
    """Return ``config`` as YAML in the authors' format and order of fields, one line for each field.

    Every number is written with as many digits as it takes to read the same number back:
    :func:`read_config` of a file with this text returns a configuration that equals ``config``.
    """
    fields = config.model_dump()
    return yaml_text({name: x for name, x in fields.items() if name not in OURS or x is not None})


def yaml_text(fields: dict[str, Any]) -> str:
    """Return fields as YAML, one line for each and for each part of one that is a mapping.

    >>> yaml_text({"position_bias": [{"kind": "log", "alpha": 1.5}]}).strip()
    'position_bias: [{kind: "log", alpha: 1.5}]'
    """
    lines = []
    for field, value in fields.items():
        if isinstance(value, dict):
            lines += [f"{field}:", *(f"  {name}: {_yaml(part)}" for name, part in value.items())]
        else:
            lines.append(f"{field}: {_yaml(value)}")
    return "\n".join(lines) + "\n"


def _yaml(value: Any) -> str:
    """Return a value in one line; YAML takes a number with an exponent for one only if it has a point too."""
    if isinstance(value, list):
        return f"[{', '.join(map(_yaml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {_yaml(part)}' for name, part in value.items())}}}"
    if isinstance(value, float):
        text = repr(value)
        return text if "." in text else text.replace("e", ".0e")
    return json.dumps(value, ensure_ascii=False)


def _complaint(error: Any) -> str:
    """Return one pydantic error as ``field: expected …, received …``."""
    field = ".".join(str(x) for x in error["loc"] if x not in ("constant", "power_decay", "custom"))
    if error["type"] == "missing":
        return f"{field}: expected a value, received nothing"
    expected = error["msg"].replace("Input should be ", "").replace("Extra inputs are not permitted", "no such field")
    return f"{field}: expected {expected}, received {str(error['input'])[:60]}"


def _rectangle(field: str, rows: list[list[float]], T: int, H: int) -> np.ndarray:
    """Return rows as a (1 or T, 1 or H) array, or raise naming the field."""
    x = errors.finite_array(field, rows, ndim=(2,))
    if x.shape[0] not in (1, T) or x.shape[1] not in (1, H):
        raise errors.invalid(field, f"1 or {T} lists of 1 or {H} values", f"{x.shape[0]} of {x.shape[1]}")
    return x
