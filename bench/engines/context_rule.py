"""The rule verdict: DESIGN section 9, rules 1 to 6. Pure, and closed to whatever is not plainly right."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Literal

from msgspec import Struct

from bench.engines.context_config import (
    LENGTH_KEYS,
    Rope,
    Ropes,
    fail,
    isolated_copy,
    mtp_layers,
    read_ropes,
    real,
    shown,
    text_config,
    tokens,
    warn,
)
from bench.engines.context_records import Arithmetic, Finding, RuleVerdict
from bench.records import Speculation

MODEL_FREE = frozenset({"ngram", "ngram_gpu", "suffix", "prompt_lookup", "lookup"})
"""Speculation that drafts from the text itself: no drafter model, so no drafter limit."""
SPECULATIVE_TOKENS_MAX = 1024
_WINDOWED = frozenset({"sliding_attention"})
"""Layer types that never look further back than their window and may keep their own rope."""

Drafter = Literal["none", "model-free", "native", "separate"]


class Case(Struct, frozen=True, kw_only=True):
    """One setup to be judged: configs as read, and what was asked for."""

    target: Mapping[str, object]
    """The target's config with overrides applied."""
    file: Mapping[str, object]
    """The target's config as the file states it."""
    drafter: Drafter
    drafter_file: Mapping[str, object] | None
    """The drafter's config file; the target's own file for native MTP; `None` without a drafter model."""
    served: object
    speculation: Speculation | None


class _Refused(Exception):
    """Carries the finding that ends the rules early; never leaves this module."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.finding = fail(code, message)


def drafter_kind(speculation: Speculation | None, draft_config: object) -> Drafter:
    """Whether the speculation setting needs a drafter model, and whether it is the checkpoint's own.

    A draft config given beside MTP means another checkpoint: separate, even when it looks the same.
    """
    if speculation is None:
        return "none"
    method = speculation.method.lower()
    if method in MODEL_FREE:
        return "model-free"
    native = method == "mtp" or method.endswith("_mtp") or method == "nextn"
    return "native" if native and draft_config is None else "separate"


def rule_verdict(case: Case) -> RuleVerdict:
    """Rules 1 to 6 over one case; never raises for what a config may hold."""
    warnings: list[Finding] = []
    figures: dict[str, int | float | None] = {}
    try:
        outcome, rope = _rules(case, figures, warnings)
    except _Refused as refusal:
        return RuleVerdict(
            outcome="refused", findings=(refusal.finding, *warnings), arithmetic=_arithmetic(figures)
        )
    return RuleVerdict(
        outcome=outcome, findings=tuple(warnings), arithmetic=_arithmetic(figures), drafter_rope=rope
    )


def _rules(
    case: Case, figures: dict[str, int | float | None], warnings: list[Finding]
) -> tuple[
    Literal["target covers", "no drafter model", "drafter covers", "extended"], dict[str, object] | None
]:
    _check_speculation(case)
    target = text_config(case.target)
    warnings += _misplaced(case.target, target)
    native = _native(case, target)
    figures["native"] = native
    ropes = read_ropes(target)
    figures.update(_yarn_figures(ropes))
    limit = _target_limit(target, ropes, figures)
    figures["target_limit"] = limit
    served = _served(case.served, limit)
    figures["served"] = served

    if case.drafter not in ("native", "separate") or served <= native:
        # Rule 1: the drafter's own limit covers it, or there is no drafter model to cover anything.
        if served > limit:
            if any(rope.kind == "yarn" for rope in ropes.layers):
                _validated_yarn(ropes, None)  # what is wrong with the YaRN says more than the limit
            raise _Refused("over_target_limit", _over(served, "the target's limit", limit))
        if case.drafter in ("native", "separate"):
            return "drafter covers", None
        return ("no drafter model" if case.drafter == "model-free" else "target covers"), None

    if case.drafter == "separate":  # Rule 2
        message = (
            f"the separate draft model ends at {native:,} tokens, the limit is {served:,}: "
            "it is left as it is, so serve a shorter context or another drafter"
        )
        raise _Refused("separate_drafter", message)
    yarn = _validated_yarn(ropes, native)  # Rules 3 and 4
    ceiling = math.floor(yarn[0] * yarn[1])
    if served > ceiling:  # Rule 5
        raise _Refused("over_ceiling", _over(served, f"original x factor = {ceiling:,}", ceiling))
    if served > limit:
        raise _Refused("over_target_limit", _over(served, "the target's limit", limit))
    return "extended", _copy_for_drafter(ropes)  # Rule 6


def _check_speculation(case: Case) -> None:
    if case.speculation is not None:
        k = case.speculation.num_speculative_tokens
        if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= SPECULATIVE_TOKENS_MAX:
            raise _Refused("speculation_invalid", f"num_speculative_tokens is {shown(k)}: give 1 to 1,024")
    if case.drafter == "separate" and case.drafter_file is None:
        message = (
            "this speculation has a draft model of its own: give its config, its limit cannot be guessed"
        )
        raise _Refused("draft_config_missing", message)
    if case.drafter == "native" and not mtp_layers(case.file):
        message = (
            "the config names no MTP layers (num_nextn_predict_layers, mtp_num_hidden_layers): no native MTP"
        )
        raise _Refused("mtp_head_missing", message)


def _misplaced(config: Mapping[str, object], text: Mapping[str, object]) -> list[Finding]:
    if text is config:
        return []
    keys = ("rope_parameters", "rope_scaling", "max_position_embeddings")
    wrong = [k for k in keys if config.get(k) is not None and text.get(k) is None]
    if not wrong:
        return []
    message = (
        f"{', '.join(wrong)} stands beside text_config, where engines do not look: move it into text_config"
    )
    return [warn("outside_text_config", message)]


def _native(case: Case, target: Mapping[str, object]) -> int:
    """The un-extended length: of the drafter's file, or of the target where there is no drafter model."""
    if case.drafter_file is not None:
        source, who = text_config(case.drafter_file), "the drafter's config"
        keys: tuple[str, ...] = ("max_position_embeddings",)
    else:
        source, who, keys = target, "the config", LENGTH_KEYS
    stated = {key: source[key] for key in keys if source.get(key) is not None}
    if not stated:
        raise _Refused("native_missing", f"{who} states no max_position_embeddings")
    lengths = []
    for key, value in stated.items():
        length = tokens(value)
        if length is None:
            raise _Refused("native_invalid", f"{who}: {key} is {shown(value)}, not a positive whole number")
        lengths.append(length)
    return min(lengths)


def _target_limit(
    target: Mapping[str, object], ropes: Ropes, figures: Mapping[str, int | float | None]
) -> int:
    """What the target's config covers, whatever the engine: see `Arithmetic.target_limit`."""
    stated = [target[key] for key in LENGTH_KEYS if target.get(key) is not None]
    lengths = [tokens(value) for value in stated]
    known = [length for length in lengths if length is not None]
    if not known or len(known) < len(lengths):
        raise _Refused("native_invalid", "the target's config states no usable max_position_embeddings")
    plain = min(known)
    original, ceiling = figures.get("original"), figures.get("ceiling")
    if original is None or ceiling is None:
        return plain
    # Above the original it is the extended value and binds too; the original itself is no limit under YaRN.
    return int(ceiling) if plain == original else min(plain, int(ceiling))


def _served(value: object, limit: int) -> int:
    if value is None:
        return limit
    served = tokens(value)
    if served is None:
        raise _Refused("served_invalid", f"the served limit is {shown(value)}, not a positive whole number")
    return served


def _yarn_figures(ropes: Ropes) -> dict[str, int | float | None]:
    """Factor, original and ceiling where valid; the full rules judge them later."""
    try:
        factor, original = _validated_yarn(ropes, None)
    except _Refused:
        return {}
    return {
        "factor": float(factor),
        "original": original.numerator,
        "ceiling": math.floor(original * factor),
    }


def _validated_yarn(ropes: Ropes, native: int | None) -> tuple[Fraction, Fraction]:
    """Rules 3 and 4: (factor, original) of explicit YaRN on every layer that needs it, all agreeing."""
    if ropes.problem is not None:
        raise _Refused(ropes.problem.code, ropes.problem.message)
    pairs: set[tuple[Fraction, Fraction]] = set()
    for rope in ropes.layers:
        if rope.layer in _WINDOWED and rope.kind in ("default", None):
            continue
        pairs.add(_yarn_pair(rope, native))
    if not pairs:
        raise _Refused("rope_type_unsupported", "no layer with full attention states YaRN")
    if len(pairs) > 1:
        raise _Refused("layers_disagree", "layer types state different YaRN factors or original lengths")
    return next(iter(pairs))


def _yarn_pair(rope: Rope, native: int | None) -> tuple[Fraction, Fraction]:
    if rope.kind is None:
        raise _Refused("rope_type_missing", f"{rope.where} states no rope_type (or type)")
    if rope.kind != "yarn":
        message = f"{rope.where}: rope_type is {shown(rope.kind)}, only 'yarn' can be extended to a drafter"
        raise _Refused("rope_type_unsupported", message)
    factor = _stated(rope, "factor")
    if factor <= 1:
        raise _Refused(
            "factor_too_small", f"{rope.where}: factor {shown(rope.values['factor'])} extends nothing"
        )
    original = _stated(rope, "original_max_position_embeddings")
    if original.denominator != 1 or original <= 0:
        message = f"{rope.where}: original_max_position_embeddings is not a positive whole number"
        raise _Refused("original_invalid", message)
    if native is not None and original != native:
        message = (
            f"{rope.where}: original_max_position_embeddings {original.numerator:,} is not the drafter's "
            f"native {native:,}: the extension would not start where the drafter ends"
        )
        raise _Refused("original_mismatch", message)
    return factor, original


def _stated(rope: Rope, key: str) -> Fraction:
    short = "factor" if key == "factor" else "original"
    if rope.values.get(key) is None:
        raise _Refused(f"{short}_missing", f"{rope.where}: {key} is missing; it must be stated")
    number = real(rope.values[key])
    if number is None:
        message = f"{rope.where}: {key} is {shown(rope.values[key])}, not a finite real number of tokens"
        raise _Refused(f"{short}_invalid", message)
    return number


def _copy_for_drafter(ropes: Ropes) -> dict[str, object]:
    try:
        copied = isolated_copy(ropes.stated)
    except ValueError as error:
        raise _Refused("rope_invalid", f"the rope parameters cannot be copied: {error}") from None
    assert isinstance(copied, dict)  # noqa: S101 - a mapping is copied as a dict
    return copied


def _over(served: int, what: str, limit: int) -> str:
    return f"the served limit {served:,} is over {what} by {served - limit:,} tokens: serve at most {limit:,}"


def _arithmetic(figures: Mapping[str, int | float | None]) -> Arithmetic:
    known = {key: value for key, value in figures.items() if value is not None}
    served, end = known.get("served"), known.get("ceiling", known.get("native"))
    margin = int(end - served) if served is not None and end is not None else None
    whole = {key: int(value) for key, value in known.items() if key != "factor"}
    factor = known.get("factor")
    return Arithmetic(factor=None if factor is None else float(factor), margin=margin, **whole)
