"""The engine verdict: what each engine version does with a config, right or wrong.

Sources: dialects C2 (derived length), C3 (drafter limit and what lies past it) and, for vLLM 0.32,
the measurements on a toy model with native MTP. A version that is not given is judged as every
version at once, and the worst counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from msgspec import Struct, structs

from bench.engines.context_config import (
    derived_limit,
    fail,
    mtp_layers,
    note,
    read_ropes,
    text_config,
    tokens,
    warn,
)
from bench.engines.context_records import EngineVerdict, Finding, PastLimit
from bench.engines.context_rule import Case

Version = tuple[int, int, int]


class Era(Struct, frozen=True, kw_only=True):
    """A span of vLLM versions that behave alike, up to the next one."""

    since: Version
    multiplies_yarn: bool
    past_limit: tuple[PastLimit, ...]
    """First entry: the V1 model runner; last entry: the V2 model runner, where there are two."""


VLLM_ERAS = (
    Era(since=(0, 0, 0), multiplies_yarn=True, past_limit=("no gate",)),
    Era(since=(0, 11, 0), multiplies_yarn=True, past_limit=("no drafts",)),
    # Asynchronous scheduling (the automatic default) verifies empty drafts; synchronous skips them.
    Era(since=(0, 14, 0), multiplies_yarn=True, past_limit=("drafts without acceptance", "no drafts")),
    Era(since=(0, 22, 0), multiplies_yarn=True, past_limit=("drafts without acceptance",)),
    # The V2 model runner is the default on GPUs from here on; the V1 runner remains elsewhere.
    Era(since=(0, 30, 0), multiplies_yarn=False, past_limit=("drafts without acceptance", "no gate")),
    Era(since=(0, 33, 0), multiplies_yarn=False, past_limit=("drafts without acceptance", "context reduced")),
)
_TWO_RUNNERS: Version = (0, 30, 0)
_CLAMPS: Version = (0, 32, 0)

PAST_LIMIT_WORDS: dict[PastLimit, str] = {
    "no gate": "drafting goes on at positions the drafter does not know: acceptance decays, "
    "or the engine crashes",
    "no drafts": "drafting stops and the draft counters stand still, without a warning",
    "drafts without acceptance": "empty drafts are still verified and counted, nothing is accepted, "
    "no warning; slower than a target-only route",
    "context reduced": "the served limit is cut to the drafter's at start-up, with one warning",
}


class Setup(Struct, frozen=True, kw_only=True):
    """How the engine is started, beside the case itself."""

    engine: str
    version: str | None = None
    runner: str | None = None
    """vLLM's model runner, `v1` or `v2`; `None`: not known."""
    allow_long: bool = False
    """VLLM_ALLOW_LONG_MAX_MODEL_LEN, or SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN."""


def engine_verdict(case: Case, setup: Setup, *, rule_ok: bool) -> EngineVerdict:
    """What the engine does; `unknown` (never `ok`) for an engine without rules here."""
    judge = _ENGINES.get(setup.engine.lower())
    if judge is None:
        known = ", ".join(_ENGINES)
        message = (
            f"no context rules for engine {setup.engine[:40]!r} (known: {known}): only the config rules apply"
        )
        return EngineVerdict(
            engine=setup.engine[:40],
            version=setup.version,
            status="unknown",
            findings=(warn("unknown_engine", message),),
        )
    findings, verdict = _limits(case, judge(case, setup, rule_ok))
    return structs.replace(verdict, findings=findings, status=_status(findings))


def parse_version(text: str | None) -> Version | None:
    """(major, minor, patch) of `0.32`, `v0.32.0rc1`, `0.33.0.dev12+g0a1b2c`; `None` when unreadable."""
    match = re.match(r"v?(\d{1,5})\.(\d{1,5})(?:\.(\d{1,5}))?", text or "")
    if match is None:
        return None
    return int(match[1]), int(match[2]), int(match[3] or 0)


def _status(findings: tuple[Finding, ...]) -> str:
    severities = {finding.severity for finding in findings}
    return "fail" if "fail" in severities else "warn" if "warn" in severities else "ok"


def _limits(case: Case, verdict: EngineVerdict) -> tuple[tuple[Finding, ...], EngineVerdict]:
    """Adds what follows from a drafter that ends before the served limit."""
    findings = verdict.findings
    limit, served = verdict.drafter_limit, verdict.served
    if limit is not None and served is not None and limit < served:
        words = (
            "; or ".join(PAST_LIMIT_WORDS[p] for p in verdict.past_limit)
            or "what happens past it is not known"
        )
        message = f"the drafter ends at {limit:,} tokens, the server at {served:,}: past {limit:,} {words}"
        findings = (*findings, fail("drafter_short", message))
    layers, k = mtp_layers(case.file), case.speculation.num_speculative_tokens if case.speculation else 0
    if case.drafter == "native" and layers and isinstance(k, int) and k > layers:
        if k % layers:
            message = f"num_speculative_tokens {k} is no multiple of the checkpoint's {layers} MTP layers"
            findings = (*findings, fail("k_not_divisible", message))
            verdict = structs.replace(verdict, starts=False, served=None)
        else:
            message = (
                f"{k} tokens from {layers} MTP layer(s): the same layer runs several times, acceptance falls"
            )
            findings = (*findings, note("mtp_layer_reused", message))
    return findings, verdict


# --- vLLM ------------------------------------------------------------------------------------------


def _vllm(case: Case, setup: Setup, rule_ok: bool) -> EngineVerdict:
    version = parse_version(setup.version)
    if version is not None:
        era = max((era for era in VLLM_ERAS if era.since <= version), key=lambda era: era.since)
        return _vllm_era(case, setup, era, clamps=version >= _CLAMPS)
    verdicts = [_vllm_era(case, setup, era, clamps=era.since >= _CLAMPS) for era in VLLM_ERAS]
    worst = max(verdicts, key=lambda v: (v.starts is False, -(v.served or 0), -(v.drafter_limit or 0)))
    past = tuple(dict.fromkeys(p for verdict in verdicts for p in verdict.past_limit))
    findings = worst.findings
    if len({(v.starts, v.served, v.drafter_limit) for v in verdicts}) > 1:
        message = "vLLM versions differ on this config and the worst is shown: give the version (vllm:0.32)"
        findings = (*findings, warn("depends_on_version", message))
    return structs.replace(worst, past_limit=past if worst.past_limit else (), findings=findings)


def _vllm_era(case: Case, setup: Setup, era: Era, *, clamps: bool) -> EngineVerdict:
    target = text_config(case.target)
    derived = derived_limit(target, multiplies_yarn=era.multiplies_yarn)
    served, source, starts, findings = _served(case, setup, derived)
    findings += _yarn_notes(target, era)
    drafter_limit, extends = (None, None) if served is None else _vllm_drafter(case, era, served)
    past = _past_limit(era, setup.runner) if drafter_limit is not None else ()
    if (
        served is not None
        and drafter_limit is not None
        and drafter_limit < served
        and past == ("context reduced",)
    ):
        message = f"this version cuts the served limit from {served:,} to the drafter's {drafter_limit:,}"
        findings = (*findings, fail("context_reduced", message))
        served, source = drafter_limit, f"cut from {served:,} to the drafter's limit at start-up"
    if clamps and served is not None:
        message = "prompt + output over the limit does not fail: the output is cut silently"
        findings = (*findings, note("clamps_output", message))
    return EngineVerdict(
        engine="vllm",
        version=setup.version,
        status="ok",
        starts=starts,
        derived=derived,
        multiplies=era.multiplies_yarn,
        served=served,
        served_source=source,
        drafter_limit=drafter_limit,
        extends_drafter=extends,
        past_limit=past,
        findings=findings,
    )


def _served(
    case: Case, setup: Setup, derived: int | None
) -> tuple[int | None, str, bool | None, tuple[Finding, ...]]:
    """(served limit, its source, whether the engine starts, findings) of an engine that checks its limit."""
    if case.served is None:
        if derived is None:
            return (
                None,
                "",
                None,
                (fail("derived_unknown", "no context length can be derived from this config"),),
            )
        return derived, "derived from the config", True, ()
    served = tokens(case.served)
    if served is None:
        return None, "", False, (fail("served_invalid", "the served limit is no positive whole number"),)
    source = f"the requested limit {served:,}"
    if derived is None:
        return None, "", None, (fail("derived_unknown", "no context length can be derived from this config"),)
    if served <= derived:
        return served, source, True, ()
    over = f"the requested limit {served:,} is over the {derived:,} this version derives from the config"
    if not setup.allow_long:
        return None, "", False, (fail("refuses_length", f"refuses to start: {over}"),)
    message = (
        f"{over}; the long-length switch lets it start: positions beyond the rope table may give garbage"
    )
    return served, f"{source}, by the long-length switch", True, (warn("starts_beyond_derived", message),)


def _vllm_drafter(case: Case, era: Era, served: int) -> tuple[int | None, bool | None]:
    """(drafter limit, extended?): the drafter's file alone decides; dict overrides never reach it."""
    if case.drafter_file is None:
        return None, None
    own = derived_limit(text_config(case.drafter_file), multiplies_yarn=era.multiplies_yarn)
    if own is None:
        return None, None
    return min(own, served), None if own >= served else False


def _past_limit(era: Era, runner: str | None) -> tuple[PastLimit, ...]:
    if era.since < _TWO_RUNNERS or runner not in ("v1", "v2"):
        # An unknown runner past 0.33: the reduction is the worse case, and the default on GPUs.
        return era.past_limit if era.past_limit[-1] != "context reduced" else ("context reduced",)
    return era.past_limit[:1] if runner == "v1" else era.past_limit[-1:]


def _yarn_notes(target: Mapping[str, object], era: Era) -> tuple[Finding, ...]:
    if not any(rope.kind == "yarn" for rope in read_ropes(target).layers):
        return ()
    if era.multiplies_yarn:
        return (
            note("multiplies", "YaRN: the limit is original x factor; max_position_embeddings is ignored"),
        )
    message = (
        "YaRN is not multiplied from 0.30 on: max_position_embeddings must be the extended value already"
    )
    return (note("no_multiply", message),)


def _one_cat(case: Case, setup: Setup, rule_ok: bool) -> EngineVerdict:
    """The 1Cat-vLLM fork: the rules of this package are its rules; past the limit it returns no drafts."""
    era = Era(since=(0, 0, 0), multiplies_yarn=True, past_limit=("no drafts",))
    verdict = _vllm_era(case, setup, era, clamps=False)
    verdict = structs.replace(verdict, engine="1cat-vllm")
    served, limit = verdict.served, verdict.drafter_limit
    if rule_ok and case.drafter == "native" and served is not None and limit is not None and limit < served:
        message = f"the native MTP drafter takes over the target's YaRN and reaches {served:,}"
        extended = (*verdict.findings, note("drafter_extended", message))
        return structs.replace(verdict, drafter_limit=served, extends_drafter=True, findings=extended)
    return verdict


# --- others ----------------------------------------------------------------------------------------


def _sglang_derived(text: Mapping[str, object]) -> tuple[int | None, bool]:
    """(derived length, multiplied?): times the factor, unless an original length is stated (dialects C3)."""
    layers = read_ropes(text).layers
    stated = any(rope.values.get("original_max_position_embeddings") is not None for rope in layers)
    plain = {key: value for key, value in text.items() if key not in ("rope_parameters", "rope_scaling")}
    return derived_limit(plain if stated else text, multiplies_yarn=True), not stated


def _sglang(case: Case, setup: Setup, rule_ok: bool) -> EngineVerdict:
    derived, multiplies = _sglang_derived(text_config(case.target))
    served, source, starts, findings = _served(case, setup, derived)
    limit: int | None = None
    extends: bool | None = None
    if case.drafter_file is not None and served is not None:
        own, _ = _sglang_derived(text_config(case.drafter_file))
        limit, extends = served, None if own is not None and own >= served else True
        if extends:
            message = f"the draft model's max_position_embeddings is raised to {served:,}, its rope is not"
            findings = (
                *findings,
                warn("drafter_raised", message + ": acceptance past its native length may decay"),
            )
    return EngineVerdict(
        engine="sglang",
        version=setup.version,
        status="ok",
        starts=starts,
        derived=derived,
        multiplies=multiplies,
        served=served,
        served_source=source,
        drafter_limit=limit,
        extends_drafter=extends,
        findings=findings,
    )


def _llamacpp(case: Case, setup: Setup, rule_ok: bool) -> EngineVerdict:
    trained = derived_limit(
        {k: v for k, v in text_config(case.target).items() if "rope" not in k}, multiplies_yarn=False
    )
    findings: tuple[Finding, ...] = ()
    served, source = trained, "the model's training context"
    wanted = tokens(case.served) if case.served is not None else trained
    if trained is None:
        findings = (fail("derived_unknown", "no context length can be derived from this config"),)
    elif wanted is not None and wanted <= trained:
        served, source = wanted, f"the requested limit {wanted:,}"
    elif wanted is not None:
        message = (
            f"each slot is capped at the training context {trained:,}, not {wanted:,}: extension needs a "
            "metadata override and --rope-scaling yarn --rope-scale --yarn-orig-ctx"
        )
        findings = (fail("capped", message),)
        source = f"capped from {wanted:,} to the training context"
    return EngineVerdict(
        engine="llamacpp",
        version=setup.version,
        status="ok",
        starts=True,
        derived=trained,
        multiplies=False,
        served=served,
        served_source=source,
        findings=findings,
    )


_ENGINES: dict[str, Callable[[Case, Setup, bool], EngineVerdict]] = {
    "vllm": _vllm,
    "1cat-vllm": _one_cat,
    "sglang": _sglang,
    "llamacpp": _llamacpp,
    "llama.cpp": _llamacpp,
}
KNOWN_ENGINES = tuple(_ENGINES)
"""Names of the engines whose behaviour is known here."""
