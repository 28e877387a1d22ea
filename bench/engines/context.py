"""The context rules: is a model config fit to be served at this length, with this speculation?

Pure: configs in, a verdict out. Two verdicts stand side by side. The *rule verdict* says whether
the setup is right (DESIGN section 9, rules 1 to 6, closed to whatever is not plainly right); the
*engine verdict* says what the given engine version will do with it, right or not. Each tier is then
classified with its output. The worse of the two decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import structs

from bench.engines.context_config import fail, overridden, read_ropes, shown, text_config, tokens, warn
from bench.engines.context_engine import Setup, engine_verdict
from bench.engines.context_records import (
    Arithmetic,
    ContextVerdict,
    EngineVerdict,
    Finding,
    RuleVerdict,
    TierKind,
    TierVerdict,
)
from bench.engines.context_rule import Case, drafter_kind, rule_verdict
from bench.records import Speculation

__all__ = [
    "Arithmetic",
    "ContextVerdict",
    "EngineVerdict",
    "Finding",
    "RuleVerdict",
    "TierVerdict",
    "classify",
    "judge",
]


def judge(
    config: Mapping[str, object],
    *,
    served: int | None = None,
    speculation: Speculation | None = None,
    draft_config: Mapping[str, object] | None = None,
    engine: str = "vllm",
    version: str | None = None,
    runner: str | None = None,
    hf_overrides: Mapping[str, object] | None = None,
    allow_long: bool = False,
    tiers: Sequence[int] = (),
    output_tokens: int = 0,
) -> ContextVerdict:
    """Judge one setup. Never raises for what a config holds, and never changes it.

    `config` is the model's config.json, `draft_config` that of a separate drafter, `served` the
    requested limit in tokens (`None`: the engine's own choice), `runner` vLLM's model runner (`v1`,
    `v2`), `allow_long` the engine's switch for longer lengths than it derives. `tiers` are prompt
    lengths, each with `output_tokens` of output.
    """
    problem = _unusable(config, draft_config, hf_overrides)
    if problem is not None:
        rule = RuleVerdict(outcome="refused", findings=(problem,))
        return ContextVerdict(
            rule=rule, engine=EngineVerdict(engine=engine[:40], version=version, status="unknown")
        )
    target = overridden(config, hf_overrides) if hf_overrides else config
    drafter = drafter_kind(speculation, draft_config)
    drafter_file = {"native": config, "separate": draft_config}.get(drafter)
    case = Case(
        target=target,
        file=config,
        drafter=drafter,
        drafter_file=drafter_file,
        served=served,
        speculation=speculation,
    )
    rule = rule_verdict(case)
    rule = structs.replace(rule, findings=rule.findings + _lost_keys(config, hf_overrides))
    setup = Setup(engine=engine, version=version, runner=runner, allow_long=allow_long)
    verdict = engine_verdict(case, setup, rule_ok=rule.ok)
    classified = tuple(classify(tier, output_tokens, verdict, rule, speculation) for tier in tiers)
    return ContextVerdict(rule=rule, engine=_with_tiers(verdict, classified), tiers=classified)


def classify(
    tier: int,
    output_tokens: int,
    engine: EngineVerdict,
    rule: RuleVerdict,
    speculation: Speculation | None,
) -> TierVerdict:
    """What becomes of a prompt of `tier` tokens with `output_tokens` of output.

    A draft is made while (longest sequence of the step + k) is within the drafter limit, and a step
    that verifies k drafted tokens holds them already. So the last draft needs
    end - 2 + 2 k <= limit, the first one tier + k <= limit (measured on vLLM 0.32; dialects C3).
    """
    end = tier + output_tokens
    served = engine.served if engine.served is not None else rule.arithmetic.served
    source = engine.served_source or "the requested limit"
    limit = engine.drafter_limit
    k = speculation.num_speculative_tokens if speculation else 0

    def verdict(kind: TierKind, detail: str) -> TierVerdict:
        return TierVerdict(tier=tier, output_tokens=output_tokens, end=end, kind=kind, detail=detail)

    if tokens(tier) is None or tokens(output_tokens + 1) is None:
        return verdict("refused", "tier and output must be whole numbers of tokens")
    if engine.starts is False:
        return verdict("refused", "the engine does not start with this setup")
    if served is None:
        return verdict("unknown", "the served limit is not known")
    if end > served:
        return verdict("refused", f"{tier:,} + {output_tokens:,} = {end:,} is over {served:,} ({source})")
    if speculation is None:
        return verdict("target-only", f"{served - end:,} tokens under the served limit {served:,}")
    if limit is None:
        if engine.status == "unknown" and rule.outcome != "no drafter model":
            return verdict("unknown", "this engine's drafter limit is not known")
        return verdict("speculative", "no drafter model, so no drafter limit")
    kind = past_drafter_limit(tier, output_tokens, k, limit) if limit < served else None
    if kind == "fallback":
        return verdict(kind, f"{tier:,} + {k} is over the drafter limit {limit:,}: {_past(engine)}")
    if kind is not None:
        return verdict(kind, f"passes the drafter limit {limit:,}: then {_past(engine)}")
    return verdict("speculative", f"{limit - end:,} tokens under the drafter limit {limit:,}")


def past_drafter_limit(
    tier: int, output_tokens: int, k: int, limit: int
) -> Literal["fallback", "crosses while decoding"] | None:
    """Whether a drafter of that limit takes no part at all, or drops out on the way; `None`: neither."""
    if tier + k > limit:
        return "fallback"
    end = tier + output_tokens
    return "crosses while decoding" if end - 2 + 2 * k > limit and output_tokens > 1 else None


def _past(engine: EngineVerdict) -> str:
    return " or ".join(engine.past_limit) or "what follows is not known"


def _unusable(config: object, draft: object, overrides: object) -> Finding | None:
    if not isinstance(config, Mapping):
        return fail("config_invalid", f"the config is {shown(config)}, not an object")
    if draft is not None and not isinstance(draft, Mapping):
        return fail("draft_config_invalid", f"the draft config is {shown(draft)}, not an object")
    if overrides is not None and not isinstance(overrides, Mapping):
        return fail("overrides_invalid", f"the overrides are {shown(overrides)}, not an object")
    return None


def _lost_keys(config: Mapping[str, object], overrides: Mapping[str, object] | None) -> tuple[Finding, ...]:
    """Rope keys of the file that an override drops: a dict-valued attribute is replaced whole."""
    if not overrides:
        return ()
    before, after = text_config(config), text_config(overridden(config, overrides))
    findings: list[Finding] = []
    for key in ("rope_parameters", "rope_scaling"):
        old, new = before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping) and old is not new:
            lost = sorted(
                str(name)[:40] for name in old if name not in new and name not in ("type", "rope_type")
            )
            if lost:
                message = (
                    f"the override replaces {key} whole and drops {', '.join(lost[:8])}: repeat them in it"
                )
                findings.append(warn("override_drops_keys", message))
    if text_config(config) is not config and read_ropes(overrides).stated is not None:
        message = (
            "the override states rope parameters beside text_config: nest them as {'text_config': {...}}"
        )
        findings.append(warn("outside_text_config", message))
    return tuple(findings)


def _with_tiers(engine: EngineVerdict, tiers: tuple[TierVerdict, ...]) -> EngineVerdict:
    """A drafter that is too short for the server does no harm when every tier stays under it."""
    findings = engine.findings
    if tiers and all(tier.kind == "speculative" for tier in tiers):
        findings = tuple(
            structs.replace(f, severity="warn") if f.code in ("drafter_short", "context_reduced") else f
            for f in findings
        )
    refused = [tier for tier in tiers if tier.kind == "refused"]
    if refused and engine.starts is not False:
        lengths = ", ".join(f"{tier.tier:,}" for tier in refused[:8])
        findings = (*findings, fail("tier_refused", f"not to be sent: tier {lengths} ({refused[0].detail})"))
    if engine.status == "unknown" and not any(f.severity == "fail" for f in findings):
        return structs.replace(engine, findings=findings)
    severities = {f.severity for f in findings}
    status = "fail" if "fail" in severities else "warn" if "warn" in severities else "ok"
    return structs.replace(engine, findings=findings, status=status)
