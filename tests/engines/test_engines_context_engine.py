"""The engine verdict and the tiers: what each engine version does, as measured or as its source says."""

from __future__ import annotations

import pytest

from bench.engines.context import ContextVerdict, judge
from bench.engines.context_engine import VLLM_ERAS, parse_version
from bench.records import Speculation

MTP2 = Speculation(method="mtp", num_speculative_tokens=2)
MTP4 = Speculation(method="mtp", num_speculative_tokens=4)
NGRAM4 = Speculation(method="ngram", num_speculative_tokens=4)
NATIVE, CEILING = 262_144, 1_048_576

# --- the toy model of the laboratory: MiMo, native 4,096, YaRN x 4, served at 16,384 with mtp:2 ----


def toy(*, length: int = 4096, yarn: bool = True) -> dict[str, object]:
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096, "rope_theta": 1e4}
    stated = rope if yarn else {"rope_type": "default", "rope_theta": 1e4}
    return {"max_position_embeddings": length, "num_nextn_predict_layers": 1, "rope_parameters": stated}


YARN_OVERRIDE = {"rope_parameters": toy()["rope_parameters"], "max_position_embeddings": 16_384}
LAB_TIERS = (1_000, 3_900, 4_000, 4_090, 4_100, 12_000)
LAB_KINDS = [
    "speculative",
    "speculative",
    "crosses while decoding",
    "crosses while decoding",
    "fallback",
    "fallback",
]


def lab(config: dict[str, object], **changes: object) -> ContextVerdict:
    setup: dict[str, object] = {
        "served": 16_384,
        "speculation": MTP2,
        "version": "0.32.0",
        "runner": "v1",
        "tiers": LAB_TIERS,
        "output_tokens": 128,
    }
    return judge(config, **{**setup, **changes})  # type: ignore[arg-type]


def codes(verdict: ContextVerdict) -> set[str]:
    return {finding.code for finding in verdict.engine.findings}


def kinds(verdict: ContextVerdict) -> list[str]:
    return [tier.kind for tier in verdict.tiers]


def test_lab_yarn_in_the_config_with_native_length_is_refused_by_032() -> None:
    verdict = lab(toy())
    assert verdict.engine.starts is False
    assert verdict.engine.derived == 4096
    assert verdict.engine.multiplies is False
    assert "refuses_length" in codes(verdict)
    assert set(kinds(verdict)) == {"refused"}
    assert verdict.rule.ok and not verdict.ok  # the setup is right, this version does not do it


def test_lab_yarn_in_the_config_with_the_extended_length_serves_and_speculates_throughout() -> None:
    verdict = lab(toy(length=16_384))
    assert (verdict.engine.starts, verdict.engine.served, verdict.engine.drafter_limit) == (
        True,
        16_384,
        16_384,
    )
    assert set(kinds(verdict)) == {"speculative"}
    assert verdict.ok
    assert verdict.rule.outcome == "drafter covers"


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        (toy(), {"hf_overrides": {"max_position_embeddings": 16_384}}),
        (toy(yarn=False), {"hf_overrides": YARN_OVERRIDE}),
        (toy(), {"allow_long": True}),
    ],
    ids=["length by override", "yarn by override", "long-length switch"],
)
def test_lab_overrides_and_the_switch_reach_the_target_but_not_the_drafter(
    config: dict[str, object], changes: dict[str, object]
) -> None:
    verdict = lab(config, **changes)
    assert (verdict.engine.starts, verdict.engine.served) == (True, 16_384)
    assert verdict.engine.drafter_limit == 4096
    assert verdict.engine.extends_drafter is False
    assert verdict.engine.past_limit == ("drafts without acceptance",)
    assert kinds(verdict) == LAB_KINDS
    assert "drafter_short" in codes(verdict) and not verdict.ok
    assert verdict.rule.outcome == "extended"  # the rules would have extended it


def test_lab_a_target_only_route_has_no_drafter_limit() -> None:
    verdict = lab(toy(length=16_384), speculation=None)
    assert verdict.engine.drafter_limit is None
    assert set(kinds(verdict)) == {"target-only"}
    assert verdict.ok


def test_a_short_drafter_does_no_harm_when_every_tier_stays_under_it() -> None:
    verdict = lab(toy(), allow_long=True, tiers=(1_000, 3_900))
    short = next(f for f in verdict.engine.findings if f.code == "drafter_short")
    assert short.severity == "warn"
    assert verdict.ok
    assert not lab(toy(), allow_long=True, tiers=()).ok  # without tiers the whole context counts


@pytest.mark.parametrize(
    ("tier", "output", "kind"),
    [
        (3_966, 128, "speculative"),  # 4,094 - 2 + 2 x 2 = 4,096: the last draft just fits
        (3_967, 128, "crosses while decoding"),
        (4_094, 128, "crosses while decoding"),  # 4,094 + 2: one draft
        (4_095, 128, "fallback"),
        (4_094, 1, "speculative"),  # one token needs no draft
        (16_256, 128, "fallback"),
        (16_257, 128, "refused"),
        (0, 128, "refused"),
    ],
)
def test_tiers_change_kind_exactly_at_their_limits(tier: int, output: int, kind: str) -> None:
    verdict = lab(toy(), allow_long=True, tiers=(tier,), output_tokens=output)
    assert kinds(verdict) == [kind], verdict.tiers


@pytest.mark.parametrize(("tier", "kind"), [(3_962, "speculative"), (3_963, "crosses while decoding")])
def test_more_tokens_a_draft_end_speculation_earlier(tier: int, kind: str) -> None:
    verdict = lab(toy(), speculation=MTP4, allow_long=True, tiers=(tier,))  # 3,962 + 128 - 2 + 2 x 4 = 4,096
    assert kinds(verdict) == [kind]


def test_a_refused_tier_names_tier_limit_and_what_set_it_and_fails() -> None:
    verdict = lab(toy(length=16_384), tiers=(16_300,))
    (tier,) = verdict.tiers
    assert "16,300 + 128 = 16,428 is over 16,384 (the requested limit 16,384)" in tier.detail
    assert not verdict.ok
    assert "16,300" in verdict.summary
    lowered = judge(toy(), speculation=None, version="0.32", tiers=(5_000,))
    assert "4,096 (derived from the config)" in lowered.tiers[0].detail


# --- versions --------------------------------------------------------------------------------------


def study(length: int = NATIVE) -> dict[str, object]:
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": NATIVE}
    text = {"max_position_embeddings": length, "mtp_num_hidden_layers": 1, "rope_parameters": rope}
    return {"text_config": text}


@pytest.mark.parametrize("version", ["0.8.5", "0.10.2", "0.13.0", "0.29.0", "v0.29.3rc1"])
def test_before_030_yarn_is_multiplied_for_target_and_drafter_alike(version: str) -> None:
    engine = judge(study(), served=1_000_000, speculation=MTP4, version=version).engine
    assert (engine.starts, engine.derived, engine.drafter_limit) == (True, CEILING, 1_000_000)
    assert engine.multiplies is True


@pytest.mark.parametrize("version", ["0.30.0", "0.32", "0.33.0.dev12+gabcdef"])
def test_from_030_the_same_config_is_refused(version: str) -> None:
    engine = judge(study(), served=1_000_000, speculation=MTP4, version=version).engine
    assert (engine.starts, engine.derived, engine.served) == (False, NATIVE, None)


def test_before_030_an_extended_length_is_ignored_in_favour_of_the_product() -> None:
    assert judge(study(CEILING * 2), served=CEILING, version="0.29").engine.derived == CEILING
    assert judge(study(CEILING * 2), served=CEILING, version="0.30").engine.derived == CEILING * 2


@pytest.mark.parametrize(
    ("version", "runner", "past"),
    [
        ("0.10.2", None, ("no gate",)),
        ("0.11.0", None, ("no drafts",)),
        ("0.13.9", None, ("no drafts",)),
        ("0.14.0", None, ("drafts without acceptance", "no drafts")),
        ("0.22.0", None, ("drafts without acceptance",)),
        ("0.32.0", None, ("drafts without acceptance", "no gate")),
        ("0.32.0", "v2", ("no gate",)),
        ("0.33.0", "v1", ("drafts without acceptance",)),
        ("0.33.0", "v2", ("context reduced",)),
        ("0.33.0", None, ("context reduced",)),
    ],
)
def test_what_happens_past_the_limit_depends_on_version_and_runner(
    version: str, runner: str | None, past: tuple[str, ...]
) -> None:
    engine = lab(toy(), allow_long=True, version=version, runner=runner).engine
    assert engine.past_limit == past


def test_033_cuts_the_served_context_to_the_drafter_and_refuses_the_tiers_above() -> None:
    verdict = lab(toy(), hf_overrides={"max_position_embeddings": 16_384}, version="0.33", runner="v2")
    assert verdict.engine.served == 4096
    assert kinds(verdict) == ["speculative", *["speculative"], *["refused"] * 4]
    assert "cut from 16,384 to the drafter's limit" in verdict.tiers[-1].detail
    assert "context_reduced" in codes(verdict) and not verdict.ok


def test_an_unknown_version_is_judged_as_the_worst_of_all_and_says_so() -> None:
    verdict = judge(study(), served=1_000_000, speculation=MTP4)
    assert verdict.engine.starts is False
    assert "depends_on_version" in codes(verdict)
    agreed = judge({"max_position_embeddings": NATIVE}, served=NATIVE)
    assert agreed.ok and "depends_on_version" not in codes(agreed)


def test_the_eras_are_in_order() -> None:
    starts = [era.since for era in VLLM_ERAS]
    assert starts == sorted(starts) and starts[0] == (0, 0, 0)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0.32", (0, 32, 0)),
        ("v0.8.5.post1", (0, 8, 5)),
        ("1.2.3", (1, 2, 3)),
        ("main", None),
        ("", None),
        (None, None),
    ],
)
def test_versions_are_read_as_they_are_written(text: str | None, version: object) -> None:
    assert parse_version(text) == version


# --- other rope types, drafters and engines --------------------------------------------------------


@pytest.mark.parametrize(
    ("rope", "derived"),
    [
        ({"rope_type": "linear", "factor": 2.0}, 8192),
        ({"rope_type": "dynamic", "factor": 2.0}, 8192),
        ({"rope_type": "llama3", "factor": 8.0}, 4096),
        ({"type": "longrope", "factor": 8.0}, 4096),
        ({"rope_type": "default"}, 4096),
    ],
)
def test_vllm_multiplies_other_rope_types_but_longrope_and_llama3(
    rope: dict[str, object], derived: int
) -> None:
    config = {"max_position_embeddings": 4096, "rope_parameters": rope}
    assert judge(config, version="0.32").engine.derived == derived


def test_the_smallest_of_several_lengths_counts() -> None:
    assert judge({"max_position_embeddings": 4096, "seq_length": 2048}, version="0.32").engine.derived == 2048


@pytest.mark.parametrize(("layers", "k", "ok"), [(1, 4, True), (2, 4, True), (3, 4, False), (5, 4, True)])
def test_k_must_be_a_multiple_of_the_mtp_layers_it_exceeds(layers: int, k: int, ok: bool) -> None:
    config = {"max_position_embeddings": NATIVE, "num_nextn_predict_layers": layers}
    speculation = Speculation(method="mtp", num_speculative_tokens=k)
    verdict = judge(config, served=NATIVE, speculation=speculation, version="0.32")
    assert ("k_not_divisible" not in codes(verdict)) is ok
    assert verdict.ok is ok


def test_n_gram_speculates_at_any_length() -> None:
    verdict = judge(study(CEILING), served=1_000_000, speculation=NGRAM4, version="0.32", tiers=(900_000,))
    assert verdict.engine.drafter_limit is None
    assert kinds(verdict) == ["speculative"]


def test_the_fork_extends_the_native_drafter_by_the_rules_and_only_then() -> None:
    overrides = {"text_config": {"rope_parameters": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": NATIVE}}}  # fmt: skip
    plain = {"text_config": {"max_position_embeddings": NATIVE, "mtp_num_hidden_layers": 1}}
    tiers = (6_316, 564_577)
    verdict = judge(
        plain,
        served=1_000_000,
        speculation=MTP4,
        engine="1cat-vllm",
        hf_overrides=overrides,
        tiers=tiers,
        output_tokens=512,
    )
    assert verdict.engine.drafter_limit == 1_000_000
    assert kinds(verdict) == ["speculative", "speculative"]
    assert verdict.ok
    upstream = judge(
        plain, served=1_000_000, speculation=MTP4, version="0.29", hf_overrides=overrides, tiers=tiers
    )
    assert upstream.engine.drafter_limit == NATIVE
    assert kinds(upstream) == ["speculative", "fallback"]


def test_sglang_does_not_multiply_where_an_original_length_is_stated() -> None:
    assert judge(study(), served=1_000_000, engine="sglang").engine.starts is False
    linear = {"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 2.0}}
    assert judge(linear, served=8192, engine="sglang").engine.starts is True
    extended = judge(study(), served=1_000_000, speculation=MTP4, engine="sglang", allow_long=True)
    assert (extended.engine.drafter_limit, extended.engine.extends_drafter) == (1_000_000, True)


def test_llamacpp_caps_a_slot_at_the_training_context() -> None:
    verdict = judge(study(), served=1_000_000, engine="llama.cpp", tiers=(300_000,))
    assert verdict.engine.served == NATIVE
    assert "capped" in codes(verdict) and not verdict.ok
    assert kinds(verdict) == ["refused"]


def test_an_engine_without_rules_is_unknown_and_the_config_rules_still_decide() -> None:
    good = judge(study(), served=1_000_000, speculation=MTP4, engine="nanoserve", tiers=(6_316, 1_000_001))
    assert good.engine.status == "fail"  # because of the second tier
    assert kinds(good) == ["unknown", "refused"]
    assert judge(study(), served=1_000_000, engine="nanoserve").ok
    assert not judge(study(), served=CEILING + 1, engine="nanoserve").ok
