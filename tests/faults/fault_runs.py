"""Small real runs on a simulated server that misbehaves, and what the harness said of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from bench.analysis.verdicts.measure import measure_all
from bench.errors import BenchError
from bench.journal import read_entries, read_info
from bench.plan.suite import parse_suite
from bench.records import Exchange, Measurement
from bench.run.progress import Progress
from bench.run.study import Order, start
from bench.servers import simulator
from bench.servers.simulator import RequestTruth

TOKENIZER = Path(simulator.__file__).with_name("tokenizer.json")
COUNTS = ("prompt_tokens", "output_tokens", "cached_tokens", "drafts", "draft_tokens", "accepted_tokens")
LATE_S = 10.0
"""How late a stamp may be on a crowded machine. It can never be early."""
PATIENT = (60.0, 60.0)
"""Seconds until the first token, and between two reads: more than any machine pauses for."""


def suite_text(
    base_url: str,
    *,
    tier: int,
    k: int,
    conditions: str,
    replays: int,
    output: int,
    retries: int = 0,
    timeouts: tuple[float, float] = PATIENT,
) -> str:
    """One route, one tier, one repeat."""
    speculation = f'[route.speculation]\nmethod = "mtp"\nnum_speculative_tokens = {k}' if k else ""
    return f"""
[suite]
name = "faults"
tiers = [{tier}]
conditions = [{conditions}]
output_tokens = {output}
repeats = 1
replays = {replays}
retry_invalid = {retries}
warmup = "none"
[prompt]
corpus = "synthetic"
tokenizer = '{TOKENIZER}'
[request.timeouts]
first_token_s = {timeouts[0]}
idle_s = {timeouts[1]}
[[route]]
name = "r"
base_url = "{base_url}"
{speculation}
"""


class Ran(Struct, frozen=True, kw_only=True):
    """One run: how it ended, what was measured, and what really happened."""

    error: BenchError | None
    """What ended the run before its time."""
    k: int = 0
    """Tokens drafted per step."""
    exchanges: tuple[Exchange, ...] = ()
    measured: tuple[Measurement, ...] = ()
    truths: tuple[RequestTruth, ...] = ()
    """One for each exchange."""
    notes: tuple[str, ...] = ()
    log: tuple[str, ...] = ()
    """The server's log."""


def run_on(
    profile: str,
    faults: Sequence[str],
    results: Path,
    *,
    tier: int = 256,
    conditions: tuple[str, ...] = ("cold", "replay", "salted"),
    replays: int = 1,
    output: int = 16,
    retries: int = 0,
    force: bool = True,
    speed: float = 1.0,
    timeouts: tuple[float, float] = PATIENT,
) -> Ran:
    """A whole run, preflight first, on a server with these faults. The preflight is the server's first
    request, so `name@2-` begins with the first measured one; `force` goes on whatever it says."""
    with simulator.start(profile, faults=faults, speed=speed) as server:
        speculation = server.profile.speculation
        text = suite_text(
            server.base_url,
            tier=tier,
            k=speculation.num_speculative_tokens if speculation else 0,
            conditions=", ".join(f'"{name}"' for name in conditions),
            replays=replays,
            output=output,
            retries=retries,
            timeouts=timeouts,
        )
        order = Order(suite=parse_suite(text), suite_text=text, results=results, force=force)
        progress, error = Progress(), None
        try:
            asyncio.run(start(order, progress))
        except BenchError as stopped:
            error = stopped
        truths, log = server.truth().requests, tuple(server.log_lines)
    if progress.path is None:
        return Ran(error=error, log=log)
    info = read_info(progress.path)
    sent = tuple(entry for entry in read_entries(progress.path) if isinstance(entry, Exchange))
    return Ran(
        error=error,
        k=speculation.num_speculative_tokens if speculation else 0,
        exchanges=sent,
        measured=tuple(measure_all(info, sent)),
        truths=tuple(truth for truth in truths if truth.number > 1),
        notes=info.notes,
        log=log,
    )


def wrong_numbers(
    exchange: Exchange, measured: Measurement, truth: RequestTruth, *, speculation_seen: bool
) -> Iterator[str]:
    """Every figure of a valid measurement that is not the true one, in words. Counts of speculation may
    be absent, and must be where nothing shows it."""
    for field in COUNTS:
        value, true = getattr(measured, field), getattr(truth, field)
        if field in COUNTS[3:] and not speculation_seen:
            true = None
        if value != true:
            yield f"{field} {value}, truly {true}"
    if measured.first_chunk_tokens != truth.chunk_tokens[0]:
        yield f"c0 {measured.first_chunk_tokens}, truly {truth.chunk_tokens[0]}"
    for name, measured_s, sent_ns in (
        ("first text", measured.ttft_s, truth.chunk_sent_ns[0]),
        ("last text", exchange.chunks.at_ns[-1] / 1e9, truth.chunk_sent_ns[-1]),
    ):
        late_s = (measured_s or 0.0) - (sent_ns - exchange.sent_ns) / 1e9
        if not 0 <= late_s < LATE_S:
            yield f"{name} {late_s:.3f} s after it was sent"
    if measured.ttft_s is None or truth.ttft_s is None or measured.ttft_s < truth.ttft_s:
        yield f"TTFT {measured.ttft_s}, truly {truth.ttft_s}"
    span_s = (truth.chunk_sent_ns[-1] - truth.chunk_sent_ns[0]) / 1e9
    tokens = truth.output_tokens - truth.chunk_tokens[0]
    if measured.decode_tok_s and abs(tokens / measured.decode_tok_s - span_s) > LATE_S:
        yield f"{measured.decode_tok_s} tok/s for {tokens} tokens in {span_s} s"
