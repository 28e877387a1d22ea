"""Faults of the simulated server give exactly the verdict of the table, seen through the real client."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from analysis_cases import run

from bench.analysis.verdicts.measure import Measurer
from bench.engines.base import Step
from bench.prompting.compose import Prompt
from bench.records import (
    Measurement,
    PromptRecipe,
    Route,
    RunInfo,
    Speculation,
    Trial,
)
from bench.run.exchange import Exchanger
from bench.run.openroute import OpenRoute, connect
from bench.run.progress import Progress
from bench.servers.simulator import start
from bench.wire.client import Client

MTP2 = Speculation(method="mtp", num_speculative_tokens=2)
OUTPUT = 24
SENTENCE = "The quick brown fox jumps over the lazy dog, and then it walks home again. "


def short(salt: str) -> str:
    return f"{salt}\n" + SENTENCE * 40


def long(salt: str) -> str:
    """Past the 8,192 tokens to which some faults limit the drafter."""
    return f"{salt}\n" + SENTENCE * 600


TRIALS = {
    "cold": ("cold", "amber"),
    "replay 1": ("replay", "amber"),
    "replay 2": ("replay", "amber"),
    "salted": ("salted", "birch"),
}


async def _prompt(opened: OpenRoute, text: str) -> Prompt:
    """A prompt whose length the server itself has counted."""
    messages = [{"role": "user", "content": text}]
    steps: tuple[Step, ...] | None = opened.dialect.tokenize_messages_request(messages, opened.model)
    assert steps is not None
    answer: object = None
    for step in steps:
        answer = await opened.client.post_json(opened.root + step.path, step.body_after(answer))
    recipe = PromptRecipe(
        sha256=str(hash(text)),
        tokens=len(opened.dialect.read_tokens(answer)),
        endpoint="chat",
        corpus="test",
        corpus_sha256="",
        task="",
        start=0,
        fixed_prefix=4,
    )
    return Prompt(recipe=recipe, rest=text, messages=tuple(messages))


async def _measure(
    fault: str | None,
    trials: tuple[str, ...],
    speculation: Speculation | None,
    drafter_limit: int | None,
    lengthy: bool,
) -> list[Measurement]:
    profile = "toy" if speculation else "toy-target-only"
    with start(profile, speed=1.5, faults=[fault] if fault else []) as server:
        route = Route(name="r", base_url=server.base_url, speculation=speculation)
        async with Client(route.base_url) as client:
            opened = await connect(route, client)
            info = _run(route, opened, drafter_limit)
            exchanger, measurer = Exchanger(_nowhere, Progress()), Measurer(info)
            measured = []
            for place, name in enumerate(trials):
                condition, salt = TRIALS[name]
                prompt = await _prompt(opened, long(salt) if lengthy else short(salt))
                trial = Trial(
                    id=f"r/{name}",
                    route="r",
                    tier=prompt.recipe.tokens,
                    condition=condition,  # type: ignore[arg-type]
                    repeat=1,
                    replay=int(condition == "replay"),
                    output_tokens=OUTPUT,
                )
                exchange = await exchanger.perform(opened, prompt, trial, place + 1, "trial")
                measured.append(measurer.add(exchange))
    return measured


async def _nowhere(name: str, page: str) -> str:
    return name


def _run(route: Route, opened: OpenRoute, drafter_limit: int | None) -> RunInfo:
    return run(route=route, facts=msgspec.structs.replace(opened.facts, drafter_limit=drafter_limit))


BUSY_MACHINE = {
    "server_time_differs",
    "queued",
    "client_slow",
    "below_uncertainty",
    "reuse_not_faster",
    "client_bottleneck",
    "buffered",
}
"""What may tell of the machine the tests run on: these answers take 30 ms, and it may pause for longer."""


def verdicts(
    fault: str | None,
    *trials: str,
    speculation: Speculation | None = MTP2,
    drafter_limit: int | None = None,
    lengthy: bool = False,
) -> list[tuple[list[str], list[str], str, str]]:
    """(reasons, warnings, reuse, speculation) of each trial."""
    noise = BUSY_MACHINE - {fault}
    measured = asyncio.run(_measure(fault, trials, speculation, drafter_limit, lengthy))
    return [
        (
            [reason.id for reason in m.verdict.reasons if reason.id not in noise],
            [reason.id for reason in m.verdict.warnings if reason.id not in noise],
            m.verdict.reuse,
            m.verdict.speculation,
        )
        for m in measured
    ]


# Prompts are so short that TTFT is no witness: a pause of the machine must not decide a test.
GOOD = ([], [], "held", "as declared")
MISSED = (["replay_missed"], [], "missed", "as declared")


def test_without_a_fault_everything_holds() -> None:
    assert verdicts(None, "cold", "replay 1", "replay 2", "salted") == [GOOD] * 4
    assert verdicts(None, "cold", "replay 1", speculation=None) == [([], [], "held", "none")] * 2


@pytest.mark.parametrize(
    ("fault", "trials", "expected"),
    [
        ("salt-ignored", ("cold", "salted"), [GOOD, (["cold_hit"], [], "missed", "as declared")]),
        ("evicts", ("cold", "replay 1"), [GOOD, MISSED]),
        ("first-replay-misses", ("cold", "replay 1", "replay 2"), [GOOD, MISSED, GOOD]),
        ("block-by-k", ("cold", "replay 1"), [GOOD, MISSED]),
        ("no-cached-tokens", ("cold", "replay 1"), [GOOD, GOOD]),
        (
            "counters-stuck",
            ("cold", "replay 1"),
            [GOOD, (["witnesses_disagree"], [], "disagree", "as declared")],
        ),
    ],
)
def test_cache_faults(fault: str, trials: tuple[str, ...], expected: list[object]) -> None:
    assert verdicts(fault, *trials) == expected


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("speculation-off", (["speculation_off"], [], "held", "off")),
        ("two-engines", GOOD),
        ("positions-incomplete", (["positions_differ"], [], "held", "as declared")),
    ],
)
def test_speculation_faults(fault: str, expected: object) -> None:
    assert verdicts(fault, "cold") == [expected]


@pytest.mark.parametrize(
    ("fault", "limit", "expected"),
    [
        ("over-limit-zero-accepted", None, ([], ["drafts_rejected"], "held", "fallback")),
        ("over-limit-zero-accepted", 8192, ([], ["speculation_fallback"], "held", "fallback")),
        ("over-limit-no-drafts", 8192, ([], ["speculation_fallback"], "held", "fallback")),
        ("over-limit-no-drafts", None, (["speculation_off"], [], "held", "off")),
    ],
)
def test_past_the_drafter_limit(fault: str, limit: int | None, expected: object) -> None:
    assert verdicts(fault, "cold", lengthy=True, drafter_limit=limit) == [expected]


NO_PAGE = ([], ["no_metrics", "speculation_unseen"], "held", "unknown")


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("metrics-404", NO_PAGE),
        ("metrics-nan", GOOD),
        ("metrics-malformed", GOOD),
        ("metrics-openmetrics", GOOD),
        ("metrics-no-process", GOOD),
        ("metrics-late", GOOD),
        ("foreign-traffic", (["foreign_traffic"], [], "held", "as declared")),
    ],
)
def test_metrics_faults(fault: str, expected: tuple[list[str], list[str], str, str]) -> None:
    (found,) = verdicts(fault, "cold")
    assert found == expected


def test_a_reset_or_restart_in_the_middle_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.run.exchange._SETTLE_LIMIT_S", 0.2)  # these counters never will
    _, reset = verdicts("counter-reset@2", "cold", "salted")
    assert reset[0] == ["restart"]
    _, restart = verdicts("restart@2", "cold", "salted")
    assert restart[0] == ["failed", "restart"]  # the connection breaks with the server


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("early-stop", "early_stop"),
        ("clamped-output", "clamped_output"),
        ("truncated-prompt", "truncated_prompt"),
        ("buffered", "buffered"),
        ("empty-answer", "failed"),
        ("error-event", "failed"),
    ],
)
def test_stream_faults(fault: str, reason: str) -> None:
    ((against, *_),) = verdicts(fault, "cold", speculation=None)
    assert against == [reason]
