"""Hand-made records for the report tests: a small study whose figures are those of the published one."""

from __future__ import annotations

from typing import Any

from bench.analysis.statistics.machine import PhaseUse
from bench.records import (
    Comparison,
    Crossover,
    Estimate,
    Event,
    Failure,
    Measurement,
    PromptSettings,
    Reason,
    Route,
    RunInfo,
    ServerFacts,
    Speculation,
    Suite,
    Summary,
    TokenizerIdentity,
    Trial,
    Verdict,
)
from bench.report.content import Content
from bench.report.cost import Cost
from bench.report.detail import Detail
from bench.report.run_pass import Run

ROUTES = ("mtp4", "mtp2", "target-only")
TIERS = (6_316, 564_580)
COLD_TTFT = {
    ("mtp4", 6_316): 2.954,
    ("mtp2", 6_316): 2.40,
    ("target-only", 6_316): 2.31,
    ("mtp4", 564_580): 690.966,
    ("mtp2", 564_580): 552.084,
    ("target-only", 564_580): 545.395,
}
DECODE = {
    ("mtp4", 6_316): 87.04,
    ("mtp2", 6_316): 66.1,
    ("target-only", 6_316): 31.0,
    ("mtp4", 564_580): 31.22,
    ("mtp2", 564_580): 22.88,
    ("target-only", 564_580): 8.772,
}


def suite() -> Suite:
    """Three routes, two tiers, three conditions."""
    return Suite(
        name="seed",
        tiers=TIERS,
        conditions=("cold", "salted", "replay"),
        output_tokens=512,
        repeats=2,
        replays=2,
        seed=1,
        warmup="short",
        retry_invalid=1,
        interleave=False,
        prompt=PromptSettings(),
        routes=tuple(
            Route(
                name=name,
                base_url="http://127.0.0.1:8000/v1",
                model="Qwen3.8-27B",
                speculation=Speculation(method="mtp", num_speculative_tokens=int(name[3:]))
                if name.startswith("mtp")
                else None,
                setting={"hardware": "4 x V100-SXM2-32GB", "kv_cache_dtype": "fp8_e5m2"},
            )
            for name in ROUTES
        ),
    )


def info(**changes: Any) -> RunInfo:
    """run.json of the study."""
    plan = tuple(
        Trial(id=m.trial_id, route=m.route, tier=m.tier, condition=m.condition, repeat=m.repeat)
        for m in measurements()
    )
    fields: dict[str, Any] = {
        "schema": 1,
        "id": "20261129T100000Z-seed",
        "created_at": "2026-11-29T10:00:00Z",
        "nonce": "n0nce",
        "suite": suite(),
        "suite_text": '[suite]\nname = "seed"\n',
        "plan": plan,
        "facts": {
            name: ServerFacts(
                engine="vllm",
                version="0.32.0",
                model="Qwen3.8-27B",
                max_model_len=1_000_000,
                block_size=1_616,
                kv_capacity_tokens=2_557_299,
                num_speculative_tokens=int(name[3:]) if name.startswith("mtp") else None,
                sources={"version": "/version", "max_model_len": "/v1/models"},
            )
            for name in ROUTES
        },
        "tokenizers": {
            name: TokenizerIdentity(kind="tiktoken", name="qwen", sha256="ab" * 32, vocabulary=151_936)
            for name in ROUTES
        },
        "environment": {"python": "3.11.7", "platform": "Linux", "ctxbench": "0.1.0"},
        "notes": ("Routes on one server follow one another: not interleaved.",),
    }
    return RunInfo(**{**fields, **changes})


def measurement(
    route: str, tier: int, condition: Any, repeat: int, order: int, **changes: Any
) -> Measurement:
    """One valid measurement of the study; replays hit all but the last block."""
    replay = 1 if condition == "replay" else 0
    speculates = route != "target-only"
    ttft = COLD_TTFT[route, tier] * (0.0134 if condition == "replay" and tier > 10_000 else 1)
    ttft *= 1 + 0.004 * (repeat - 1)
    decode = DECODE[route, tier] * (1 - 0.01 * (repeat - 1))
    cached = 562_368 if condition == "replay" and tier > 10_000 else 0
    k = int(route[3:]) if speculates else 0
    per_position = (0.92, 0.84, 0.76, 0.67)[:k]
    fields: dict[str, Any] = {
        "trial_id": f"{route}/{tier}/{condition}/{repeat}" + (".1" if replay else ""),
        "source": "20261129T100000Z-seed",
        "route": route,
        "tier": tier,
        "condition": condition,
        "repeat": repeat,
        "replay": replay,
        "order": order,
        "prompt_tokens": tier,
        "output_tokens": 512,
        "ttft_s": ttft,
        "first_response_s": ttft * 0.99,
        "total_s": ttft + 511 / decode,
        "text_chunks": 130,
        "decode_tok_s": decode,
        "tpot_s": 1 / decode,
        "icl_p50_s": 0.04,
        "icl_p99_s": 0.09,
        "icl_max_s": 0.2,
        "drafts": 122 if k else None,
        "draft_tokens": 122 * k if k else None,
        "accepted_tokens": round(122 * sum(per_position)) if k else None,
        "acceptance": round(122 * sum(per_position)) / (122 * k) if k else None,
        "acceptance_length": 1 + round(122 * sum(per_position)) / 122 if k else None,
        "acceptance_per_position": per_position or None,
        "cached_tokens": cached,
        "prefix_reuse": cached / tier,
        "kv_usage_peak": 0.351 if tier > 10_000 else 0.004,
        "finish_reason": "length",
        "sources": {
            "ttft_s": "client clock",
            "output_tokens": "usage.completion_tokens",
            "prefix_reuse": "vllm:prefix_cache_hits_total",
        },
        "absent": {}
        if k
        else {
            key: "no drafts were made"
            for key in ("acceptance", "acceptance_length", "acceptance_per_position")
        },
        "verdict": Verdict(valid=True, reuse="held", speculation="as declared" if k else "none"),
    }
    return Measurement(**{**fields, **changes})


def measurements() -> tuple[Measurement, ...]:
    """36 measurements, all valid but one replay that missed."""
    found = []
    for route in ROUTES:
        for tier in TIERS:
            for condition in ("cold", "replay", "salted"):
                for repeat in (1, 2):
                    changes: dict[str, Any] = {}
                    if (route, tier, condition, repeat) == ("mtp2", 564_580, "replay", 1):
                        changes = {
                            "ttft_s": 551.9,
                            "total_s": 574.2,
                            "prefix_reuse": 0.0,
                            "cached_tokens": 0,
                            "verdict": Verdict(
                                valid=False,
                                reasons=(Reason(id="replay_missed", detail="0 of 562,368 expected tokens"),),
                                reuse="missed",
                            ),
                        }
                    found.append(measurement(route, tier, condition, repeat, len(found), **changes))
    return tuple(found)


def failed(order: int = 99, message: str = "nobody listens on 127.0.0.1:8000") -> Measurement:
    """A refused request: no number at all."""
    return Measurement(
        trial_id="mtp4/6316/cold/3",
        source="20261129T100000Z-seed",
        route="mtp4",
        tier=6_316,
        condition="cold",
        repeat=3,
        order=order,
        failure=Failure(kind="refused", message=message),
        absent={"ttft_s": "no text arrived"},
        verdict=Verdict(valid=False, reasons=(Reason(id="failed", detail=message),)),
    )


def summaries(found: tuple[Measurement, ...]) -> tuple[Summary, ...]:
    """Medians of two trials with their range, computed here and not by the code under test."""
    grouped: dict[tuple[str, int, Any], list[Measurement]] = {}
    for one in found:
        grouped.setdefault((one.route, one.tier, one.condition), []).append(one)
    rows = []
    for (route, tier, condition), group in grouped.items():
        valid = [m for m in group if m.verdict.valid]
        estimates = {}
        for key in (
            "prompt_tokens", "output_tokens", "ttft_s", "total_s", "decode_tok_s", "tpot_s", "acceptance",
            "acceptance_length", "prefix_reuse", "kv_usage_peak",
        ):  # fmt: skip
            values = [getattr(m, key) for m in valid if getattr(m, key) is not None]
            if values:
                many = len(values) > 1
                estimates[key] = Estimate(
                    value=sum(values) / len(values),
                    low=min(values) if many else None,
                    high=max(values) if many else None,
                    spread="range" if many else None,
                    samples=len(values),
                )
        rows.append(
            Summary(
                route=route,
                tier=tier,
                condition=condition,
                first_replay=True if condition == "replay" else None,
                valid=len(valid),
                invalid=len(group) - len(valid),
                estimates=estimates,
            )
        )
    return tuple(rows)


CROSSOVERS = (
    Crossover(
        route="mtp4",
        base="target-only",
        tier=564_580,
        condition="cold",
        status="crosses",
        wins="above",
        output_tokens=1_766.4,
        low=1_756.0,
        high=1_777.0,
        spread="range",
        measured=512,
        extrapolation=3.45,
        samples=(4, 4),
    ),
    Crossover(
        route="mtp2",
        base="target-only",
        tier=6_316,
        condition="cold",
        status="always",
        samples=(2, 2),
    ),
    Crossover(
        route="mtp2",
        base="target-only",
        tier=564_580,
        condition="replay",
        status="undecided",
        samples=(1, 2),
    ),
)

COMPARISONS = (
    Comparison(
        route="mtp4",
        base="target-only",
        tier=564_580,
        condition="cold",
        quantity="decode_tok_s",
        ratio=Estimate(value=3.56, low=3.5, high=3.66, spread="range", samples=4),
        verdict="higher",
    ),
    Comparison(
        route="mtp4",
        base="target-only",
        tier=564_580,
        condition="cold",
        quantity="ttft_s",
        ratio=Estimate(value=1.267, low=1.26, high=1.27, spread="range", samples=4),
        difference=Estimate(value=145.57, low=139.0, high=146.0, spread="range", samples=4),
        verdict="higher",
    ),
)


def content(found: tuple[Measurement, ...] | None = None, **changes: Any) -> Content:
    """The study ready to be written, with statistics put together by hand."""
    found = measurements() if found is None else found
    run = Run(
        path="20261129T100000Z-seed",
        info=info(),
        events=(Event(name="end", at="2026-11-29T14:00:00Z"),),
        exchanges=len(found) + 3,
        warmups=3,
        harness_s=12.5,
        span_s=9_000.0,
    )
    fields: dict[str, Any] = {
        "runs": (run,),
        "measurements": found,
        "summaries": summaries(found),
        "comparisons": COMPARISONS,
        "crossovers": CROSSOVERS,
        "details": (),
        "gaps": {},
        "base": "target-only",
    }
    return Content(**{**fields, **changes})


def detail(name: str, *uses: PhaseUse, cost: Cost = Cost()) -> Detail:  # noqa: B008 - frozen
    """A trial of route `a` that lasted two seconds, and what machines and client did meanwhile."""
    return Detail(
        source="run",
        trial_id=name,
        attempt=1,
        route="a",
        started_at="",
        status=200,
        first_text_s=1.0,
        last_text_s=2.0,
        uploaded_s=None,
        headers_s=None,
        ended_s=2.0,
        connect_s=None,
        idle_wait_s=None,
        settle_s=None,
        curve_s=(),
        curve_count=(),
        curve_unit="chunks",
        sample_s=(),
        kv_usage=(),
        said="",
        prompt="",
        machine=uses,
        cost=cost,
    )
