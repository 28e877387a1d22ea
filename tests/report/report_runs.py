"""Run directories of a made-up server whose every number is known: for tests that read from disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from bench.journal import Journal
from bench.records import (
    Chunks,
    ClientHealth,
    Event,
    Exchange,
    Failure,
    PromptRecipe,
    PromptSettings,
    Route,
    RunInfo,
    Samples,
    Scrape,
    ServerFacts,
    Speculation,
    Suite,
    Trial,
    Usage,
)

BLOCK = 16
K = {"mtp4": 4, "mtp2": 2, "target-only": 0}
RATE = {"mtp4": 0.011, "mtp2": 0.016, "target-only": 0.030}
"""Seconds per token."""
ACCEPTED = {"mtp4": 3, "mtp2": 2, "target-only": 0}
"""Draft tokens accepted at every step."""


def suite(tiers: tuple[int, ...], repeats: int, output_tokens: int) -> Suite:
    return Suite(
        name="small",
        tiers=tiers,
        conditions=("cold", "salted", "replay"),
        output_tokens=output_tokens,
        repeats=repeats,
        replays=1,
        seed=1,
        warmup="short",
        retry_invalid=1,
        interleave=False,
        prompt=PromptSettings(),
        routes=tuple(
            Route(
                name=name,
                base_url="http://127.0.0.1:8000/v1",
                model="tiny",
                speculation=Speculation(method="mtp", num_speculative_tokens=k) if k else None,
                setting={"hardware": "made up"},
            )
            for name, k in K.items()
        ),
    )


def plan(given: Suite) -> list[Trial]:
    """Cold, its replay, then salted: for each repeat, tier and route."""
    return [
        Trial(
            id=f"{route.name}/{tier}/{condition}/{repeat}" + (".1" if condition == "replay" else ""),
            route=route.name,
            tier=tier,
            condition=condition,
            repeat=repeat,
            replay=1 if condition == "replay" else 0,
            output_tokens=given.output_tokens,
        )
        for route in given.routes
        for tier in given.tiers
        for repeat in range(1, given.repeats + 1)
        for condition in ("cold", "replay", "salted")
    ]


class Server:
    """Counters that move by exactly what a request is, and a clock that only requests advance."""

    def __init__(self, route: str) -> None:
        self.k = K[route]
        self.route = route
        self.now_ns = 1_000_000_000
        self.counters: dict[str, float] = {
            name: 0.0
            for name in (
                "prompt_tokens", "generation_tokens", "requests_finished", "prefix_queries", "prefix_hits",
                *(("drafts", "draft_tokens", "accepted_tokens") if self.k else ()),
                *(f"accepted_tokens_per_pos.{i}" for i in range(self.k)),
            )
        }  # fmt: skip

    def page(self) -> Scrape:
        values = {**self.counters, "running": 0.0, "waiting": 0.0, "kv_usage": 0.1, "process_start": 1.7e9}
        return Scrape(at_ns=self.now_ns, took_ns=2_000_000, status=200, values=values)

    def serve(self, trial: Trial, wobble: float, samples: int) -> Exchange:
        cached = (trial.tier - 1) // BLOCK * BLOCK if trial.condition == "replay" else 0
        if cached and self.k:
            cached -= BLOCK  # the drafter loses the last block on this version
        before = self.page()
        self.now_ns += 5_000_000
        sent = self.now_ns
        ttft = (0.02 + 0.0008 * (trial.tier - cached)) * (1.25 if self.k else 1.0) * wobble
        step = 1 + ACCEPTED[self.route]
        arrived = [1]
        while arrived[-1] < trial.output_tokens:
            arrived.append(min(trial.output_tokens, arrived[-1] + step))
        at = [round((ttft + (n - 1) * RATE[self.route] * wobble) * 1e9) for n in arrived]
        ended = at[-1] + 1_000_000
        self._count(trial, cached, len(arrived) - 1)
        self.now_ns += ended + 8_000_000
        words = "".join("a prompt is read once and then remembered "[i % 42] for i in range(arrived[-1]))
        return Exchange(
            trial=trial,
            engine="vllm",
            prompt=PromptRecipe(
                sha256=f"{trial.tier}-{trial.repeat}-{trial.condition == 'salted'}",
                tokens=trial.tier,
                endpoint="chat",
                corpus="python",
                corpus_sha256="c0",
                task="continue",
                start=1_000 * trial.repeat,
                salt=f"Amber seven {trial.repeat}",
            ),
            url="http://127.0.0.1:8000/v1/chat/completions",
            request={
                "model": "tiny",
                "temperature": 0,
                "ignore_eos": True,
                "max_tokens": trial.output_tokens,
            },
            started_at="2026-11-29T10:00:00Z",
            sent_ns=sent,
            connect_ns=400_000,
            uploaded_ns=300_000,
            headers_ns=2_000_000,
            ended_ns=ended,
            status=200,
            read_ns=tuple(at),
            read_bytes=(300,) * len(at),
            chunks=Chunks(
                at_ns=tuple(at),
                chars=tuple(b - a for a, b in zip([0, *arrived], arrived, strict=False)),
                kinds="c" * len(at),
                tokens=tuple(arrived),
            ),
            text=words,
            finish_reason="length",
            done=True,
            usage=Usage(
                prompt_tokens=trial.tier, completion_tokens=trial.output_tokens, cached_tokens=cached
            ),
            before=before,
            after=self.page(),
            samples=_samples(samples, ended, trial.tier),
            idle_wait_s=0.001,
            settle_s=0.002,
            settled=True,
            client=ClientHealth(
                loop_lag_p50_ms=0.1, loop_lag_p99_ms=0.4, loop_lag_max_ms=1.0, cpu_share=0.05
            ),
        )

    def _count(self, trial: Trial, cached: int, drafts: int) -> None:
        moved = {
            "prompt_tokens": trial.tier,
            "generation_tokens": trial.output_tokens,
            "requests_finished": 1,
            "prefix_queries": trial.tier,
            "prefix_hits": cached,
        }
        if self.k:
            accepted = trial.output_tokens - 1 - drafts
            moved |= {"drafts": drafts, "draft_tokens": drafts * self.k, "accepted_tokens": accepted}
            full, rest = divmod(accepted, ACCEPTED[self.route])
            moved |= {
                f"accepted_tokens_per_pos.{i}": full + (1 if i < rest else 0)
                for i in range(ACCEPTED[self.route])
            }
        for name, rise in moved.items():
            self.counters[name] += rise


def _samples(count: int, ended_ns: int, tier: int) -> Samples:
    return Samples(
        at_ns=tuple(round(ended_ns * i / max(1, count - 1)) for i in range(count)),
        took_ns=(1_000_000,) * count,
        kv_usage=tuple(min(0.9, tier / 8_192 * (0.2 + 0.8 * i / max(1, count - 1))) for i in range(count)),
        running=(1.0,) * count,
        waiting=(0.0,) * count,
        drafts=(None,) * count,
        accepted_tokens=(None,) * count,
    )


def make_run(
    path: Path,
    *,
    tiers: tuple[int, ...] = (256, 1_024, 4_096),
    repeats: int = 2,
    output_tokens: int = 65,
    samples: int = 9,
    only: int | None = None,
    fail: bool = False,
    metrics: bool = True,
) -> Path:
    """A finished run; `only` stops after so many trials, `fail` refuses every request."""
    given = suite(tiers, repeats, output_tokens)
    trials = plan(given)
    facts = {
        name: ServerFacts(
            engine="vllm",
            version="0.32.0",
            model="tiny",
            max_model_len=8_192,
            block_size=BLOCK if metrics else None,
            kv_capacity_tokens=65_536,
            num_speculative_tokens=k or None,
            prefix_caching=True,
            reports_cached_tokens=True,
        )
        for name, k in K.items()
    }
    info = RunInfo(
        schema=1,
        id=path.name,
        created_at="2026-11-29T10:00:00Z",
        nonce="n0nce",
        suite=given,
        suite_text=f'[suite]\nname = "small"\ntiers = {list(tiers)}\n',
        plan=tuple(trials),
        facts=facts,
        environment={"python": "3.11"},
    )
    with Journal.create(path, info) as journal:
        journal.append(Event(name="session", at="2026-11-29T10:00:00Z"))
        for exchange in exchanges(trials[:only], samples, fail, metrics):
            journal.append(exchange)
        if only is None:
            journal.append(Event(name="finished", at="2026-11-29T11:00:00Z"))
    return path


def exchanges(trials: list[Trial], samples: int, fail: bool, metrics: bool) -> list[Exchange]:
    servers = {name: Server(name) for name in K}
    found = []
    for number, trial in enumerate(trials):
        wobble = 1 + 0.004 * ((number * 7) % 5 - 2)
        exchange = servers[trial.route].serve(trial, wobble, samples)
        changes: dict[str, Any] = {}
        if not metrics:
            changes = {"before": None, "after": None, "samples": Samples(), "usage": Usage(
                prompt_tokens=trial.tier, completion_tokens=trial.output_tokens)}  # fmt: skip
        if fail:
            changes = {
                "chunks": Chunks(), "text": "", "usage": None, "done": False, "finish_reason": None,
                "read_ns": (), "read_bytes": (), "status": None,
                "failure": Failure(kind="refused", message="nobody listens"),
            }  # fmt: skip
        found.append(msgspec.structs.replace(exchange, **changes))
    return found
