"""Reads lengths and rope parameters out of a model config that nobody has checked.

A config is untrusted: any value may have any type, any size and any depth. Nothing here recurses
deeper than a fixed bound, changes its input, or prints a value it has not bounded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from msgspec import Struct

from bench.engines.context_records import Finding

TOKENS_MAX = 10**12
"""No length beyond this is believed."""
_COPY_DEPTH = 6
_COPY_VALUES = 4096
_OVERRIDE_DEPTH = 4

LENGTH_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_sequence_length",
    "max_seq_length",
)
"""Names under which engines look for a model's length; they take the smallest (dialects C2)."""

MTP_KEYS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers", "n_predict")
"""Names of the number of MTP layers in a checkpoint (dialects C1)."""


def fail(code: str, message: str) -> Finding:
    return Finding(code=code, severity="fail", message=message)


def warn(code: str, message: str) -> Finding:
    return Finding(code=code, severity="warn", message=message)


def note(code: str, message: str) -> Finding:
    return Finding(code=code, severity="note", message=message)


def shown(value: object) -> str:
    """A value of the config, short enough and safe to print; containers by their type alone."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return f"{value:,}" if abs(value) <= 10**30 else "an absurdly large integer"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return repr(value[:40] + ("..." if len(value) > 40 else ""))
    return f"a value of type {type(value).__name__}"


def real(value: object) -> Fraction | None:
    """A finite real number of believable size, exactly; `None` for bool, string, NaN, inf, anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return Fraction(value) if abs(value) <= TOKENS_MAX else None


def tokens(value: object) -> int | None:
    """A positive whole number of tokens; `262144.0` counts, `True` and `"262144"` do not."""
    number = real(value)
    if number is None or number.denominator != 1 or number <= 0:
        return None
    return number.numerator


def text_config(config: Mapping[str, object]) -> Mapping[str, object]:
    """The part of a config that describes the language model: `text_config` where there is one."""
    nested = config.get("text_config")
    return nested if isinstance(nested, Mapping) else config


def overridden(
    config: Mapping[str, object], overrides: Mapping[str, object], depth: int = _OVERRIDE_DEPTH
) -> dict[str, object]:
    """The config as an engine sees it after dict overrides: sub-configs merge, all else is replaced whole."""
    merged = dict(config)
    for key, value in overrides.items():
        old = merged.get(key)
        is_config = isinstance(key, str) and key.endswith("_config")
        if is_config and isinstance(old, Mapping) and isinstance(value, Mapping) and depth > 0:
            merged[key] = overridden(old, value, depth - 1)
        else:
            merged[key] = value
    return merged


def isolated_copy(value: object) -> object:
    """A deep copy of plain JSON values; raises `ValueError` when too deep, too large or no JSON."""
    budget = [_COPY_VALUES]

    def copy(item: object, depth: int) -> object:
        budget[0] -= 1
        if depth < 0 or budget[0] < 0:
            raise ValueError("nested too deeply, or too many values")
        if item is None or isinstance(item, (bool, int, float, str)):
            return item
        if isinstance(item, Mapping):
            if not all(isinstance(key, str) for key in item):
                raise ValueError("a key is no string")
            return {key: copy(inner, depth - 1) for key, inner in item.items()}
        if isinstance(item, Sequence) and not isinstance(item, (bytes, bytearray)):
            return [copy(inner, depth - 1) for inner in item]
        raise ValueError(f"holds {shown(item)}")

    return copy(value, _COPY_DEPTH)


class Rope(Struct, frozen=True, kw_only=True):
    """Rope parameters of a config (or of one layer type) as they stand, not validated."""

    kind: object
    """`rope_type` or the older `type`; `None` when missing."""
    values: Mapping[str, object]
    where: str
    """Key path, for messages."""
    layer: str | None = None
    """Layer type, where the config states parameters per layer type."""


class Ropes(Struct, frozen=True, kw_only=True):
    """All rope parameters of a text config, or why they cannot be read."""

    stated: Mapping[str, object] | None = None
    """The whole value under `rope_parameters` or `rope_scaling`."""
    layers: tuple[Rope, ...] = ()
    """One entry, or one for each layer type that has parameters."""
    problem: Finding | None = None


def read_ropes(text: Mapping[str, object]) -> Ropes:
    """Rope parameters from `rope_parameters` or `rope_scaling`, flat or per layer type."""
    found = {k: text[k] for k in ("rope_parameters", "rope_scaling") if text.get(k) is not None}
    if not found:
        return Ropes(problem=fail("rope_missing", "the config states no rope_parameters (or rope_scaling)"))
    for key, value in found.items():
        if not isinstance(value, Mapping):
            return Ropes(problem=fail("rope_invalid", f"{key} is {shown(value)}, not an object"))
    key, stated = next(iter(found.items()))
    assert isinstance(stated, Mapping)  # noqa: S101 - just checked; tells the type checker
    if len(found) == 2 and not _same(found["rope_parameters"], found["rope_scaling"]):
        message = "rope_parameters and rope_scaling are both stated and differ: keep one of them"
        return Ropes(problem=fail("rope_ambiguous", message))
    if _is_per_layer(stated):
        layers = tuple(
            _rope(value, f"{key}.{layer!s:.40}", str(layer)[:40])
            for layer, value in stated.items()
            if isinstance(value, Mapping)
        )
    else:
        layers = (_rope(stated, key, None),)
    for rope in layers:
        kinds = [rope.values[k] for k in ("rope_type", "type") if rope.values.get(k) is not None]
        if len(kinds) == 2 and kinds[0] != kinds[1]:
            return Ropes(problem=fail("rope_ambiguous", f"{rope.where}: rope_type and type differ"))
    return Ropes(stated=stated, layers=layers)


def derived_limit(text: Mapping[str, object], *, multiplies_yarn: bool) -> int | None:
    """The length vLLM derives from a config (dialects C2), or `None` when it states no usable one.

    The smallest of the length keys; times `factor` for rope types other than longrope, su and llama3;
    for YaRN `original_max_position_embeddings` x factor before 0.30, no multiplication from 0.30.
    """
    lengths = [tokens(text[key]) for key in LENGTH_KEYS if text.get(key) is not None]
    known = [length for length in lengths if length is not None]
    if not known or len(known) < len(lengths):
        return None
    limit = Fraction(min(known))
    ropes = read_ropes(text)
    gemma = str(text.get("model_type"))[:20].startswith("gemma3")
    for rope in () if ropes.problem or gemma else ropes.layers:
        factor = real(rope.values.get("factor"))
        if rope.kind in ("yarn", "deepseek_yarn"):
            original = tokens(rope.values.get("original_max_position_embeddings"))
            if multiplies_yarn and factor is not None:
                limit = (Fraction(original) if original is not None else limit) * factor
        elif rope.kind not in ("longrope", "su", "llama3") and factor is not None:
            limit *= factor
    return math.floor(limit) if 1 <= limit <= TOKENS_MAX else None


def mtp_layers(config: Mapping[str, object]) -> int | None:
    """Number of MTP layers the checkpoint states (0 is 0); `None` when it states none."""
    for part in (text_config(config), config):
        for key in MTP_KEYS:
            value = part.get(key)
            if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 1024:
                return value
    return None


def _rope(values: Mapping[str, object], where: str, layer: str | None) -> Rope:
    kind = values.get("rope_type")
    return Rope(kind=values.get("type") if kind is None else kind, values=values, where=where, layer=layer)


def _is_per_layer(stated: Mapping[str, object]) -> bool:
    """A dict per layer type holds only objects (and null for layers without positions)."""
    values = list(stated.values())
    return any(isinstance(v, Mapping) for v in values) and all(
        v is None or isinstance(v, Mapping) for v in values
    )


def _same(left: object, right: object) -> bool:
    try:
        return isolated_copy(left) == isolated_copy(right)
    except ValueError:
        return False  # unreadable: treated as different, hence refused
