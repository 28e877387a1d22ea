"""Every fault of the simulated server, through the whole harness: a verdict, a failure or a warning, and
never a wrong number.

The table below is what the harness says; beside it stands nothing but the truth of the server.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

import pytest
from fault_runs import PATIENT, Ran, run_on, wrong_numbers

from bench.analysis.verdicts.reasons import REASONS, effect_of
from bench.records import Measurement, Reason
from bench.servers.simulator import FAULTS

MACHINE = {
    "server_time_differs",
    "queued",
    "client_slow",
    "below_uncertainty",
    "reuse_not_faster",
    "client_bottleneck",
    "buffered",
}
"""What may tell of the machine the tests run on: these answers take 60 ms, and it may pause for longer."""


@dataclass(frozen=True, kw_only=True)
class Says:
    """What the harness says of a server with one fault: reasons and warnings by id, `failed: kind` for
    a request that failed. Exchanges of which nothing invalid is said have exact numbers."""

    each: Set[str] = frozenset()
    """Of every exchange."""
    cold: Set[str] = frozenset()
    replay: Set[str] = frozenset()
    """Of the first replay; nothing is said of a second one."""
    salted: Set[str] = frozenset()
    stops: str | None = None
    """The run is refused with these words, before anything is measured."""
    use: str = "@2-"
    """When the fault strikes; the preflight is request 1, and reads some pages too."""
    profile: str = "toy"
    tier: int = 256
    conditions: tuple[str, ...] = ("cold", "replay", "salted")
    replays: int = 1
    timeouts: tuple[float, float] = PATIENT
    outage: bool = False
    """It is the server's fault: the run waits for it, then ends with all trials left."""


def fails(kind: str, *more: str, timeouts: tuple[float, float] = PATIENT) -> Says:
    """The cold prompt fails; without it nothing else is sent."""
    return Says(cold={f"failed: {kind}", *more}, timeouts=timeouts)


def outage(kind: str, *more: str, timeouts: tuple[float, float] = PATIENT) -> Says:
    """The same by the server's fault, and the tiny requests that look for it fail as well."""
    return Says(cold={f"failed: {kind}", *more}, timeouts=timeouts, outage=True)


def over_limit(said: str) -> Says:
    """A prompt past the 8,192 tokens to which the fault limits the drafter."""
    return Says(cold={said}, use="", tier=8200, conditions=("cold",))


EXACT = Says()
ALONE = "toy-target-only"

SAYS: dict[str, Says] = {
    # --- connection
    "refused": Says(stops="nobody listens at 127.0.0.1", use=""),
    "loading": Says(stops="HTTP 503: The model is still loading", use=""),
    "reset-upload": outage("reset"),
    "hang-headers": outage("first_token_timeout", timeouts=(2.0, 60.0)),
    "hang-stream": outage("idle_timeout", timeouts=(60.0, 2.0)),
    "reset-stream": outage("truncated"),
    "unauthorized": fails("status"),
    "model-missing": fails("status"),
    "too-large": fails("status"),
    "rate-limited": outage("status"),
    "server-error": outage("status"),
    # --- stream
    "role-early": EXACT,
    "wide-chunks": Says(each={"server_time_differs"}, profile=ALONE),
    "buffered": Says(each={"buffered", "server_time_differs"}, profile=ALONE),
    "comments": EXACT,
    "crlf": EXACT,
    "multi-line-data": EXACT,
    "utf8-split": EXACT,
    "line-separator": EXACT,
    "huge-line": EXACT,
    "malformed-json": fails("malformed"),
    "no-done": EXACT,
    "error-event": outage("error_event"),
    "empty-answer": fails("no_tokens"),
    "usage-missing": Says(each={"no_usage"}),
    "usage-null": Says(each={"no_usage"}),
    "usage-impossible": Says(
        cold={"impossible_usage", "witnesses_disagree", "not_settled", "unseen_tail"},
        conditions=("cold",),
        profile=ALONE,
    ),
    "reasoning": EXACT,
    "reasoning-content": EXACT,
    "tool-calls": EXACT,
    "early-stop": Says(each={"early_stop"}),
    "clamped-output": Says(each={"clamped_output"}),
    "truncated-prompt": Says(each={"truncated_prompt"}),
    "count-off": Says(cold={"prompt_too_long", "not_settled"}, conditions=("cold",)),
    # --- cache
    "salt-ignored": Says(salted={"cold_hit"}, use=""),
    "evicts": Says(replay={"replay_missed"}, use=""),
    "first-replay-misses": Says(replay={"first_replay_missed"}, use="", replays=2),
    "block-by-k": Says(replay={"replay_missed"}, use=""),
    "no-cached-tokens": Says(use=""),
    "counters-stuck": Says(replay={"witnesses_disagree"}, use=""),
    # --- speculation
    "speculation-off": Says(each={"speculation_off"}, use=""),
    "over-limit-no-drafts": over_limit("speculation_off"),
    "over-limit-zero-accepted": over_limit("drafts_rejected"),
    "warning-per-step": over_limit("speculation_off"),
    "two-engines": EXACT,
    "positions-incomplete": Says(each={"positions_differ"}),
    # --- metrics
    "metrics-404": Says(each={"no_metrics", "speculation_unseen"}),
    "metrics-slow": Says(conditions=("cold",)),
    "metrics-empty": Says(each={"no_metrics", "speculation_unseen"}),
    "metrics-nan": EXACT,
    "metrics-malformed": EXACT,
    "metrics-openmetrics": EXACT,
    "metrics-no-process": EXACT,
    "metrics-late": Says(use=""),
    "counter-reset": Says(cold={"restart"}, use="@2", replay={"cold_before_restart"}),
    "restart": outage("truncated", "restart"),
    "foreign-traffic": Says(each={"foreign_traffic"}),
}


def test_the_table_holds_every_fault_and_only_reasons_there_are() -> None:
    assert set(SAYS) == set(FAULTS)
    told = {name for one in SAYS.values() for name in one.each | one.cold | one.replay | one.salted}
    assert {name for name in told if not name.startswith("failed: ")} <= set(REASONS)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What never settles is given up sooner; nothing here publishes late but one fault."""
    monkeypatch.setattr("bench.run.exchange._SETTLE_LIMIT_S", 2.0)
    monkeypatch.setattr("bench.run.exchange._STILL_S", 0.0)
    monkeypatch.setattr("bench.run.lifecycle.care.RETURN_LIMIT_S", 0.2)
    monkeypatch.setattr("bench.servers.simulator.app._SLOW_S", 0.25)


def of_fault(name: str, results: Path) -> Ran:
    one = SAYS[name]
    return run_on(
        one.profile,
        [name + one.use],
        results,
        tier=one.tier,
        conditions=one.conditions,
        replays=one.replays,
        timeouts=one.timeouts,
    )


def heard(measured: Measurement) -> set[str]:
    """Ids of all that is said of one exchange."""
    verdict = measured.verdict
    ids = {reason.id for reason in (*verdict.reasons, *verdict.warnings)}
    if measured.failure is not None:
        ids = ids - {"failed"} | {f"failed: {measured.failure.kind}"}
    return ids


@pytest.mark.parametrize("name", [name for name in FAULTS if name not in ("metrics-late",)])
def test_a_fault_is_named_and_no_number_is_wrong(name: str, quick: None, tmp_path: Path) -> None:
    assert differences(name, of_fault(name, tmp_path)) == []


def test_pages_that_are_late_are_waited_for(tmp_path: Path) -> None:
    assert differences("metrics-late", of_fault("metrics-late", tmp_path)) == []


def test_what_is_counted_late_of_a_failed_request_is_not_taken_for_foreign_traffic(tmp_path: Path) -> None:
    faults = ["metrics-late", "reset-stream@2"]
    ran = run_on("toy", faults, tmp_path, conditions=("cold",), retries=1)
    failed, second = ran.measured
    assert heard(failed) == {"failed: truncated"}
    assert heard(second) <= machine(second)


def differences(name: str, ran: Ran) -> list[str]:
    """What the harness said other than the table does, and every wrong number of what it called valid."""
    one = SAYS[name]
    if one.stops is not None:
        stopped = ran.error is not None and one.stops in str(ran.error) and ran.exchanges == ()
        return [] if stopped else [f"ended with {ran.error!r} after {len(ran.exchanges)} exchanges"]
    if one.outage != ("3 of 3 trials are left" in str(ran.error)):
        return [f"ended with {ran.error!r}"]
    expected = {"cold": one.cold, "replay.1": one.replay, "replay.2": set(), "salted": one.salted}
    cold_fails = any(said.startswith("failed: ") for said in one.cold)
    wanted_count = 1 if cold_fails else len(one.conditions) + one.replays - 1
    found = [] if len(ran.exchanges) == wanted_count else [f"{len(ran.exchanges)} exchanges"]
    for exchange, measured, truth in zip(ran.exchanges, ran.measured, ran.truths, strict=not one.outage):
        place = f"replay.{measured.replay}" if measured.replay else measured.condition
        wanted = one.each | expected[place]
        said = heard(measured)
        if not wanted <= said <= wanted | machine(measured):
            found.append(f"{place}: {measured.verdict}")
        against = {reason for reason in wanted if reason.startswith("failed: ") or invalidates(reason)}
        if not against:
            seen = ran.k > 0 and "speculation_unseen" not in said
            wrong = wrong_numbers(exchange, measured, truth, speculation_seen=seen)
            found += [f"{place}: {text}" for text in wrong]
    return found


def machine(measured: Measurement) -> Set[str]:
    """What may be said of the machine: where this client was late, its TTFT speaks against a replay."""
    ttft_s, server_s = measured.ttft_s, measured.server_ttft_s
    late = ttft_s is not None and server_s is not None and ttft_s - server_s > 0.1
    return MACHINE | {"witnesses_disagree"} if late else MACHINE


def invalidates(reason: str) -> bool:
    return effect_of(Reason(id=reason)) == "invalidates"
