"""Rollout configurations in the authors' YAML format: read as published, checked field by field, and written."""

import json
import math
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import yaml
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from posbias import errors
from posbias.rollout import masks, schedules
from posbias.rollout.influence import influence_profile
from posbias.rollout.masks import Mask
from posbias.rollout.structured import StructuredKernels, biased_kernels, structured_kernels

Share = Annotated[FiniteFloat, Field(ge=0, le=1)]
Count = Annotated[int, Field(gt=0, strict=True)]
Positive = Annotated[FiniteFloat, Field(gt=0)]


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
    """Configure heads: ALiBi slopes > 0 as (1 or T) lists of (1 or H), weights, temperature > 0."""

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
        return errors.mixing_coefficients("lambdas_custom", self.lambdas_custom, T=T)


class RolloutConfig(_Part):
    """Configure one rollout; fields are named and mean what they do in the authors' files, but for one of ours.

    ``position_bias`` takes the place of ALiBi: a bias for all heads, such as ``{kind: log, alpha: 1.4}`` or
    ``{kind: flat, tau: 4.8}``, a list of them for heads, or a list of such lists for layers (see
    :mod:`posbias.rollout.position_bias`). Then ``attention_config`` and ``content_config`` may be left out.

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

    def kernels(self) -> StructuredKernels:
        """Return the kernels of the configuration: structured, or with the position biases that it has."""
        T, attention, content = self.num_layers, self.attention_config, self.content_config
        H, weights = attention.num_heads, attention.head_weights
        diagonal = _rectangle("content_config.diagonal_scores", content.diagonal_scores, T, H)
        _rectangle("content_config.base_scores", content.base_scores, T, H)  # the same for all keys: it cancels
        shares = None if weights is None else _rectangle("attention_config.head_weights", weights, T, H)
        parts: dict[str, Any] = {"diagonal": diagonal / attention.softmax_temperature, "weights": shares, "H": H}
        if self.position_bias is None:
            slopes = _rectangle("attention_config.alibi_slopes", attention.alibi_slopes, T, H)
            slopes /= attention.softmax_temperature
            return structured_kernels(T, slope=slopes, mask=self.mask_config.mask(), **parts)
        for field, expected, value in (
            ("mask_config.mask_type", "causal", self.mask_config.mask_type),
            ("attention_config.alibi_slopes", [], attention.alibi_slopes),
            ("attention_config.softmax_temperature", 1, attention.softmax_temperature),
        ):
            if value != expected:
                raise errors.invalid(field, f"{expected} beside a position_bias", value)
        return biased_kernels(T, self.position_bias, **parts)

    def lambdas(self) -> Float[np.ndarray, "T"]:
        """Return λ_1..λ_T."""
        return self.lambda_schedule_config.schedule(self.num_layers)

    def profile(self) -> Float[np.ndarray, "n"]:
        """Return the influence profile: the last row of the rollout that the configuration describes."""
        return influence_profile(self.kernels(), self.lambdas(), self.sequence_length)


def read_config(path: Path | str) -> RolloutConfig:
    """Read a rollout configuration; tabs, which some of the published files contain, count as spaces."""
    path = Path(path)
    content = read_content(path)
    if not isinstance(content, dict):
        received = "an empty file" if content is None else type(content).__name__
        raise errors.invalid(str(path), "a mapping of fields", received)
    try:
        config = RolloutConfig.model_validate(content)
        config.kernels(), config.lambdas()
    except ValidationError as error:
        raise ValueError(f"{path}: " + "; ".join(_complaint(e) for e in error.errors()[:5])) from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return config


def read_content(path: Path) -> Any:
    """Return what a file of YAML or JSON holds."""
    try:
        text = path.read_text(encoding="utf-8").replace("\t", " ")
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - safe either way
    except (yaml.YAMLError, ValueError) as error:  # ValueError: other bytes than UTF-8, dates that are none
        raise ValueError(f"{path}: expected YAML, received {' '.join(str(error).split())[:200]}") from None


def config_text(config: RolloutConfig) -> str:
    """Return ``config`` as YAML in the authors' format and order of fields; :func:`read_config` gives it back."""
    fields = config.model_dump()
    if config.position_bias is None:  # which the authors' format lacks
        del fields["position_bias"]
    return yaml_text(fields)


def yaml_text(fields: dict[str, Any]) -> str:
    """Return fields as YAML, each innermost list or mapping in one line.

    >>> yaml_text({"position_bias": [{"kind": "log", "alpha": 1.5}]}).split()
    ['position_bias:', '-', '{kind:', 'log,', 'alpha:', '1.5}']
    """
    plain = json.loads(json.dumps(fields))  # else what occurs twice would be an alias
    return str(yaml.safe_dump(plain, sort_keys=False, default_flow_style=None, width=math.inf, allow_unicode=True))


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
