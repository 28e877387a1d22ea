"""The rule verdict, case by case: who may be served, who is refused, and why."""

from __future__ import annotations

import copy
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.engines.context import judge
from bench.records import Speculation

NATIVE = 262_144
CEILING = 1_048_576
MTP4 = Speculation(method="mtp", num_speculative_tokens=4)
EAGLE = Speculation(method="eagle", num_speculative_tokens=4)
NGRAM = Speculation(method="ngram", num_speculative_tokens=4)
MISSING = object()


def yarn(**changes: object) -> dict[str, object]:
    rope: dict[str, object] = {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": NATIVE,
        "rope_theta": 1e7,
    }
    rope.update(changes)
    return {key: value for key, value in rope.items() if value is not MISSING}


def model(rope: object = MISSING, **changes: object) -> dict[str, object]:
    config: dict[str, object] = {"max_position_embeddings": NATIVE, "num_nextn_predict_layers": 1}
    if rope is not MISSING:
        config["rope_parameters"] = rope
    config.update(changes)
    return {key: value for key, value in config.items() if value is not MISSING}


def legacy(**changes: object) -> dict[str, object]:
    return model(
        rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": NATIVE, **changes}
    )


def nested(rope: object) -> dict[str, object]:
    text = {"max_position_embeddings": NATIVE, "mtp_num_hidden_layers": 1, "rope_parameters": rope}
    return {"model_type": "multimodal", "text_config": text}


def per_layer(full: object, sliding: object = MISSING, **others: object) -> dict[str, object]:
    layers = {"full_attention": full, "sliding_attention": sliding, **others}
    return model({name: value for name, value in layers.items() if value is not MISSING})


DEFAULT = {"rope_type": "default", "rope_theta": 1e6}

# name: (config, served, speculation, draft config, code of the decision)
CASES: dict[str, tuple[object, object, Speculation | None, object, str]] = {
    # --- valid ---
    "yarn x 4 at a million": (model(yarn()), 1_000_000, MTP4, None, "extended"),
    "exactly the ceiling": (model(yarn()), CEILING, MTP4, None, "extended"),
    "one below the ceiling": (model(yarn()), CEILING - 1, MTP4, None, "extended"),
    "just over native": (model(yarn()), NATIVE + 1, MTP4, None, "extended"),
    "no limit given: the target's": (model(yarn()), None, MTP4, None, "extended"),
    "whole numbers written as floats": (
        model(yarn(original_max_position_embeddings=262144.0)), 1_000_000, MTP4, None, "extended"),
    "factor as an integer": (model(yarn(factor=4)), 1_000_000, MTP4, None, "extended"),
    "fractional factor within": (model(yarn(factor=1.5)), 393_216, MTP4, None, "extended"),
    "legacy rope_scaling with type": (legacy(), 1_000_000, MTP4, None, "extended"),
    "legacy rope_scaling with rope_type": (
        model(rope_scaling=yarn()), 1_000_000, MTP4, None, "extended"),
    "rope_type and type agree": (model(yarn(type="yarn")), 1_000_000, MTP4, None, "extended"),
    "both keys, equal": (model(yarn(), rope_scaling=yarn()), 1_000_000, MTP4, None, "extended"),
    "rope_scaling null beside it": (model(yarn(), rope_scaling=None), 1_000_000, MTP4, None, "extended"),
    "nested text_config": (nested(yarn()), 1_000_000, MTP4, None, "extended"),
    "per layer, sliding keeps its own": (
        per_layer(yarn(), DEFAULT), 1_000_000, MTP4, None, "extended"),
    "per layer, a layer without positions": (per_layer(yarn(), None), 1_000_000, MTP4, None, "extended"),
    "per layer, all alike": (per_layer(yarn(), yarn()), 1_000_000, MTP4, None, "extended"),
    "method named after the model": (
        model(yarn()), 1_000_000, Speculation(method="qwen3_next_mtp", num_speculative_tokens=2), None,
        "extended"),
    # --- nothing to extend ---
    "native covers": (model(), NATIVE, MTP4, None, "drafter_covers"),
    "native covers, one below": (model(), NATIVE - 1, MTP4, None, "drafter_covers"),
    "drafter covers, whatever its rope": (
        model({"rope_type": "dynamic", "factor": 4.0}), NATIVE, MTP4, None, "drafter_covers"),
    "separate drafter that covers": (
        model(yarn()), 1_000_000, EAGLE, {"max_position_embeddings": CEILING}, "drafter_covers"),
    "n-gram has no drafter model": (model(yarn()), 1_000_000, NGRAM, None, "no_drafter_model"),
    "target-only with yarn": (model(yarn()), CEILING, None, None, "target_covers"),
    "target-only, native": (model(), NATIVE, None, None, "target_covers"),
    "target-only with an older length key": ({"n_positions": 2048}, 2048, None, None, "target_covers"),
    # --- rope missing or of another kind (rule 3) ---
    "no rope at all": (model(), NATIVE + 1, MTP4, None, "rope_missing"),
    "rope null": (model(None), 1_000_000, MTP4, None, "rope_missing"),
    "rope a list": (model([4.0]), 1_000_000, MTP4, None, "rope_invalid"),
    "rope a string": (model("yarn"), 1_000_000, MTP4, None, "rope_invalid"),
    "rope an empty object": (model({}), 1_000_000, MTP4, None, "rope_type_missing"),
    "type missing": (model(yarn(rope_type=MISSING)), 1_000_000, MTP4, None, "rope_type_missing"),
    "default": (model(yarn(rope_type="default")), 1_000_000, MTP4, None, "rope_type_unsupported"),
    "dynamic": (model(yarn(rope_type="dynamic")), 1_000_000, MTP4, None, "rope_type_unsupported"),
    "linear": (model(yarn(rope_type="linear")), 1_000_000, MTP4, None, "rope_type_unsupported"),
    "llama3": (model(yarn(rope_type="llama3")), 1_000_000, MTP4, None, "rope_type_unsupported"),
    "longrope": (model(yarn(rope_type="longrope")), 1_000_000, MTP4, None, "rope_type_unsupported"),
    "YARN in capitals": (model(yarn(rope_type="YARN")), 1_000_000, MTP4, None, "rope_type_unsupported"),
    "type a number": (model(yarn(rope_type=4)), 1_000_000, MTP4, None, "rope_type_unsupported"),
    "rope_type and type differ": (model(yarn(type="linear")), 1_000_000, MTP4, None, "rope_ambiguous"),
    "both keys, different": (
        model(yarn(), rope_scaling=yarn(factor=2.0)), 1_000_000, MTP4, None, "rope_ambiguous"),
    "full attention not extended": (
        per_layer(DEFAULT, yarn()), 1_000_000, MTP4, None, "rope_type_unsupported"),
    "an unknown layer type not extended": (
        per_layer(yarn(), MISSING, chunked_attention=DEFAULT), 1_000_000, MTP4, None,
        "rope_type_unsupported"),
    "layers disagree": (per_layer(yarn(), yarn(factor=8.0)), 1_000_000, MTP4, None, "layers_disagree"),
    "only windowed layers": (per_layer(None, DEFAULT), 1_000_000, MTP4, None, "rope_type_unsupported"),
    # --- factor and original (rule 4) ---
    "factor missing": (model(yarn(factor=MISSING)), 1_000_000, MTP4, None, "factor_missing"),
    "factor null": (model(yarn(factor=None)), 1_000_000, MTP4, None, "factor_missing"),
    "factor 1": (model(yarn(factor=1.0)), 1_000_000, MTP4, None, "factor_too_small"),
    "factor below 1": (model(yarn(factor=0.25)), 1_000_000, MTP4, None, "factor_too_small"),
    "factor 0": (model(yarn(factor=0)), 1_000_000, MTP4, None, "factor_too_small"),
    "factor negative": (model(yarn(factor=-4.0)), 1_000_000, MTP4, None, "factor_too_small"),
    "factor NaN": (model(yarn(factor=math.nan)), 1_000_000, MTP4, None, "factor_invalid"),
    "factor inf": (model(yarn(factor=math.inf)), 1_000_000, MTP4, None, "factor_invalid"),
    "factor true": (model(yarn(factor=True)), 1_000_000, MTP4, None, "factor_invalid"),
    "factor a string": (model(yarn(factor="4.0")), 1_000_000, MTP4, None, "factor_invalid"),
    "factor a list": (model(yarn(factor=[4.0])), 1_000_000, MTP4, None, "factor_invalid"),
    "factor absurdly large": (model(yarn(factor=10**400)), 1_000_000, MTP4, None, "factor_invalid"),
    "original missing": (
        model(yarn(original_max_position_embeddings=MISSING)), 1_000_000, MTP4, None, "original_missing"),
    "original true": (
        model(yarn(original_max_position_embeddings=True)), 1_000_000, MTP4, None, "original_invalid"),
    "original a string": (
        model(yarn(original_max_position_embeddings="262144")), 1_000_000, MTP4, None, "original_invalid"),
    "original NaN": (
        model(yarn(original_max_position_embeddings=math.nan)), 1_000_000, MTP4, None, "original_invalid"),
    "original not whole": (
        model(yarn(original_max_position_embeddings=262144.5)), 1_000_000, MTP4, None, "original_invalid"),
    "original 0": (
        model(yarn(original_max_position_embeddings=0)), 1_000_000, MTP4, None, "original_invalid"),
    "original one less than native": (
        model(yarn(original_max_position_embeddings=NATIVE - 1)), 1_000_000, MTP4, None,
        "original_mismatch"),
    "original one more than native": (
        model(yarn(original_max_position_embeddings=NATIVE + 1)), 1_000_000, MTP4, None,
        "original_mismatch"),
    # --- limits (rule 5) ---
    "one over the ceiling": (model(yarn()), CEILING + 1, MTP4, None, "over_ceiling"),
    "fractional factor, one over": (model(yarn(factor=1.5)), 393_217, MTP4, None, "over_ceiling"),
    "target-only, one over the ceiling": (model(yarn()), CEILING + 1, None, None, "over_target_limit"),
    "target-only, one over native": (model(), NATIVE + 1, None, None, "over_target_limit"),
    "target-only, broken yarn says why": (
        model(yarn(factor=math.nan)), 1_000_000, None, None, "factor_invalid"),
    "n-gram, one over the ceiling": (model(yarn()), CEILING + 1, NGRAM, None, "over_target_limit"),
    "served 0": (model(yarn()), 0, MTP4, None, "served_invalid"),
    "served negative": (model(yarn()), -1, MTP4, None, "served_invalid"),
    "served true": (model(yarn()), True, MTP4, None, "served_invalid"),
    "served a string": (model(yarn()), "1000000", MTP4, None, "served_invalid"),
    # --- drafters (rules 1 and 2) ---
    "separate drafter too short": (
        model(yarn()), 1_000_000, EAGLE, {"max_position_embeddings": NATIVE}, "separate_drafter"),
    "separate drafter one short": (
        model(yarn()), 1_000_000, EAGLE, {"max_position_embeddings": 999_999}, "separate_drafter"),
    "another checkpoint's MTP is separate": (
        model(yarn()), 1_000_000, MTP4, model(yarn()), "separate_drafter"),
    "separate drafter unknown": (model(yarn()), 1_000_000, EAGLE, None, "draft_config_missing"),
    "separate drafter without a length": (model(yarn()), 1_000_000, EAGLE, {}, "native_missing"),
    "no MTP layers": (
        model(yarn(), num_nextn_predict_layers=0), 1_000_000, MTP4, None, "mtp_head_missing"),
    "MTP layers not stated": (
        model(yarn(), num_nextn_predict_layers=MISSING), 1_000_000, MTP4, None, "mtp_head_missing"),
    "k = 0": (
        model(yarn()), 1_000_000, Speculation(method="mtp", num_speculative_tokens=0), None,
        "speculation_invalid"),
    # --- native length ---
    "native missing": (model(yarn(), max_position_embeddings=MISSING), 1_000_000, MTP4, None,
        "native_missing"),
    "native a string": (model(yarn(), max_position_embeddings="262144"), 1_000_000, MTP4, None,
        "native_invalid"),
    "native true": (model(yarn(), max_position_embeddings=True), 1_000_000, MTP4, None, "native_invalid"),
    "native negative": (model(yarn(), max_position_embeddings=-1), 1_000_000, MTP4, None,
        "native_invalid"),
    "config a list": ([], 1_000_000, MTP4, None, "config_invalid"),
    "draft config a number": (model(yarn()), 1_000_000, EAGLE, 7, "draft_config_invalid"),
    "text_config without a length": (
        {"max_position_embeddings": NATIVE, "text_config": {"mtp_num_hidden_layers": 1}}, NATIVE, MTP4,
        None, "native_missing"),
}  # fmt: skip


def test_the_table_is_large_enough_to_mean_something() -> None:
    assert len(CASES) >= 60


@pytest.mark.parametrize("name", CASES)
def test_the_rules_decide_each_case_and_leave_their_input_alone(name: str) -> None:
    config, served, speculation, draft, code = CASES[name]
    before = copy.deepcopy((config, draft))
    verdict = judge(config, served=served, speculation=speculation, draft_config=draft, version="0.29")  # type: ignore[arg-type]
    assert verdict.rule.code == code, verdict.rule.findings
    refused = code not in {"extended", "drafter_covers", "no_drafter_model", "target_covers"}
    assert verdict.rule.ok is not refused
    assert any(f.severity == "fail" for f in verdict.rule.findings) is refused
    assert repr((config, draft)) == repr(before)


def test_the_arithmetic_of_the_published_setting_comes_out() -> None:
    a = judge(model(yarn()), served=1_000_000, speculation=MTP4, version="0.29").rule.arithmetic
    assert (a.native, a.factor, a.original) == (262_144, 4.0, 262_144)
    assert (a.ceiling, a.target_limit, a.served, a.margin) == (1_048_576, 1_048_576, 1_000_000, 48_576)


def test_the_margin_is_negative_over_the_ceiling() -> None:
    a = judge(model(yarn()), served=CEILING + 1, speculation=MTP4, version="0.29").rule.arithmetic
    assert a.margin == -1


@pytest.mark.parametrize(
    ("stated", "limit"),
    [(1_000_000, 1_000_000), (2_000_000, CEILING), (NATIVE, CEILING), (NATIVE - 1, NATIVE - 1)],
)
def test_an_extended_length_in_the_config_binds_beside_the_ceiling(stated: int, limit: int) -> None:
    config = model(yarn(), max_position_embeddings=stated)
    assert judge(config, version="0.32").rule.arithmetic.target_limit == limit
    assert judge(config, served=limit, version="0.32").rule.ok
    assert not judge(config, served=limit + 1, version="0.32").rule.ok


@pytest.mark.parametrize(
    ("served", "code"), [(999_999, "extended"), (1_000_000, "extended"), (1_000_001, "over_target_limit")]
)
def test_the_target_limit_binds_one_below_at_and_one_above(served: int, code: str) -> None:
    overrides = {"max_position_embeddings": 1_000_000}
    verdict = judge(model(yarn()), served=served, speculation=MTP4, hf_overrides=overrides, version="0.32")
    assert verdict.rule.code == code


def test_a_target_lowered_by_override_refuses_even_where_the_drafter_covers() -> None:
    verdict = judge(model(), served=NATIVE, speculation=MTP4, hf_overrides={"max_position_embeddings": 8192})
    assert verdict.rule.code == "over_target_limit"


def test_overrides_reach_the_target_and_not_the_drafter() -> None:
    overrides = {"rope_parameters": yarn(), "max_position_embeddings": CEILING}
    rule = judge(model(), served=1_000_000, speculation=MTP4, hf_overrides=overrides, version="0.32").rule
    assert rule.outcome == "extended"
    assert rule.arithmetic.native == NATIVE  # of the file, not of the override


def test_an_override_replaces_rope_parameters_whole_and_the_lost_keys_are_named() -> None:
    config = model({**DEFAULT, "mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25})
    rule = judge(config, served=1_000_000, hf_overrides={"rope_parameters": yarn()}, version="0.29").rule
    lost = next(f for f in rule.findings if f.code == "override_drops_keys")
    assert "mrope_section, partial_rotary_factor" in lost.message
    assert "rope_theta" not in lost.message  # repeated in the override
    assert lost.severity == "warn"


def test_overrides_of_a_multimodal_model_must_be_nested() -> None:
    config = nested(DEFAULT)
    flat = judge(config, served=1_000_000, hf_overrides={"rope_parameters": yarn()}, version="0.29")
    assert not flat.rule.ok
    assert "outside_text_config" in {f.code for f in flat.rule.findings}
    inner = {"text_config": {"rope_parameters": yarn()}}
    assert judge(config, served=1_000_000, hf_overrides=inner, version="0.29").rule.ok


def test_the_drafter_gets_a_copy_that_shares_nothing_with_the_config() -> None:
    config = model(yarn(mrope_section=[11, 11, 10]))
    rope = judge(config, served=1_000_000, speculation=MTP4, version="0.29").rule.drafter_rope
    assert rope == config["rope_parameters"]
    assert rope is not None
    rope["factor"] = 8.0
    section = rope["mrope_section"]
    assert isinstance(section, list)
    section.append(99)
    assert config["rope_parameters"] == yarn(mrope_section=[11, 11, 10])


def deep(levels: int) -> dict[str, object]:
    inner: dict[str, object] = {}
    for _ in range(levels):
        inner = {"text_config": inner, "rope_parameters": inner, "x": inner}
    return inner


def test_deep_nesting_and_huge_values_are_bounded() -> None:
    for config in (
        deep(50_000),
        model(yarn(extra=deep(10_000))),
        model(yarn(extra=list(range(100_000)))),
        model({f"layer{i}": {} for i in range(10_000)}),
        model(yarn(), max_position_embeddings=10**5000),
        model(yarn(rope_type="y" * 1_000_000)),
    ):
        verdict = judge(config, served=1_000_000, speculation=MTP4, hf_overrides=deep(10_000), version="0.32")
        assert not verdict.ok
        assert all(len(f.message) < 600 for f in verdict.findings)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = (
    "max_position_embeddings", "rope_parameters", "rope_scaling", "text_config", "num_nextn_predict_layers",
    "factor", "rope_type", "type", "original_max_position_embeddings", "full_attention",
)  # fmt: skip
PLAUSIBLE = st.sampled_from([NATIVE, CEILING, 4.0, 1, "yarn", "default", True, math.nan, yarn(), DEFAULT])
CONFIGS = st.dictionaries(
    st.sampled_from(KEYS),
    PLAUSIBLE | JSON | st.dictionaries(st.sampled_from(KEYS), PLAUSIBLE | JSON, max_size=5),
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(CONFIGS, CONFIGS, JSON, st.sampled_from([None, "0.10", "0.29", "0.32", "0.33"]))
def test_no_config_makes_the_rules_raise_or_allow_more_than_the_ceiling(
    config: dict[str, object], overrides: dict[str, object], served: object, version: str | None
) -> None:
    for speculation in (None, MTP4, NGRAM, EAGLE):
        verdict = judge(
            config,
            served=served,  # type: ignore[arg-type]
            speculation=speculation,
            hf_overrides=overrides,
            version=version,
            tiers=(6316, 564_577),
            output_tokens=512,
        )
        a = verdict.rule.arithmetic
        if verdict.rule.outcome == "extended":
            assert a.served is not None and a.ceiling is not None and a.native is not None
            assert a.native < a.served <= a.ceiling
            assert a.original == a.native
