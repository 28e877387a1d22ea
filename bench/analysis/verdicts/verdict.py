"""The verdict on one exchange: DESIGN section 8, one question after the other.

Judges are pure functions of a `Case`; what a reason does (invalidates, warns, informs) stands in the
table of `reasons.py`, not here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import structs

from bench.analysis.verdicts.case import Case
from bench.analysis.verdicts.reasons import effect_of
from bench.analysis.verdicts.reuse import Finding as ReuseFinding
from bench.analysis.verdicts.reuse import judge_reuse, judge_wave_reuse
from bench.analysis.verdicts.speculated import Finding as SpeculationFinding
from bench.analysis.verdicts.speculated import judge_identities, judge_log, judge_speculation
from bench.analysis.verdicts.timing import repeats_one_piece
from bench.analysis.verdicts.uncertainty import not_longer
from bench.records import Reason, Verdict

COUNT_TOLERANCE = 0.001
"""Share of the tier by which the server's prompt count may differ (DESIGN section 5)."""
LAG_MS, CPU_SHARE = 5.0, 0.8
LAG_TOLERANCE, LAG_LIMIT = 0.01, 0.1
"""Share of TTFT or decode time from which on a loop lag is worth a warning, and spoils the number."""
TIME_TOLERANCE = 0.05
_LEAST_DIFFERENCE_S = 0.01
_LEAST_WATCHED_S = 0.5
"""The lag is asked for twenty times a second: of a shorter exchange its median says nothing."""
_LEAST_HELD_S = 0.05
"""An answer that took the server less than this may well be read in one go."""
_NOT_OURS = ("foreign_traffic", "restart", "replicas")
"""With these, counters are no witness of what ours reused."""
_MISSED = ("replay_missed", "turn_missed")
_NO_COLD = ("no_cold", "cold_before_restart")


def judge(case: Case) -> Verdict:
    """All reasons for and against one measurement."""
    if case.exchange.failure is not None:
        return verdict_of([*_failed(case), *_restart(case), *judge_log(case)])
    reasons = [
        *_answer(case),
        *_count(case),
        *_exclusive(case),
        *_restart(case),
        *_clocks(case),
        *judge_log(case),
    ]
    shared = any(reason.id in _NOT_OURS for reason in reasons)
    reuse = judge_reuse(case, counters_ours=not shared)
    if any(reason.id in _NO_COLD for reason in reasons):
        reuse = _without_miss(reuse)
    reasons += reuse.reasons
    speculation = SpeculationFinding("unknown")
    if case.history.change is None:  # counters that fell say nothing of what was drafted
        speculation = judge_speculation(case)
        reasons += [*judge_identities(case), *speculation.reasons]
    return verdict_of(reasons, reuse=reuse.state, speculation=speculation.state)


def judge_wave(whole: Case, members: Sequence[Case], *, complete: bool) -> list[Verdict]:
    """The verdicts on a wave's requests: what counters tell is judged once, for all of them.

    `complete`: none of them is missing. A wave is valid as a whole or not at all.
    """
    shared = [*_restart(whole), *judge_log(whole)]
    bad = [case for case in members if case.exchange.failure is not None]
    cut_off = not complete or any(_is_cut_off(case) for case in bad)
    if cut_off or bad:
        detail = f"{len(members) - len(bad)} of {whole.requests} answered"
        other = Reason(id="wave_incomplete" if cut_off else "wave_spoilt", detail=detail)
        return [verdict_of([*(list(_failed(case)) or [other]), *shared]) for case in members]
    shared += _exclusive(whole)
    ours = not any(reason.id in _NOT_OURS for reason in shared)
    speculation = SpeculationFinding("unknown")
    if whole.history.change is None:
        speculation = judge_speculation(whole)
        shared += [*judge_identities(whole), *speculation.reasons]
    verdicts = []
    for case, reuse in zip(members, judge_wave_reuse(whole, members, counters_ours=ours), strict=True):
        own = [*_answer(case), *_count(case), *_restart(case), *_clocks(case)]
        reuse = _without_miss(reuse) if any(reason.id in _NO_COLD for reason in own) else reuse
        reasons = [*own, *reuse.reasons, *shared]
        verdicts.append(verdict_of(reasons, reuse=reuse.state, speculation=speculation.state))
    return _all_or_none(members, verdicts)


def _is_cut_off(case: Case) -> bool:
    return case.exchange.failure is not None and case.exchange.failure.kind == "cancelled"


def _all_or_none(members: Sequence[Case], verdicts: list[Verdict]) -> list[Verdict]:
    """One request that is invalid spoils its wave."""
    at_fault = [(case, one) for case, one in zip(members, verdicts, strict=True) if not one.valid]
    if not at_fault:
        return verdicts
    case, first = at_fault[0]
    detail = f"{len(at_fault)} of {len(members)}, first {case.exchange.trial.id}: {first.reasons[0].id}"
    spoilt = (Reason(id="wave_spoilt", detail=detail),)
    return [structs.replace(one, valid=False, reasons=spoilt) if one.valid else one for one in verdicts]


def _without_miss(reuse: ReuseFinding) -> ReuseFinding:
    """A miss is no finding of its own where the cold prompt was not there."""
    return reuse._replace(reasons=tuple(r for r in reuse.reasons if r.id not in _MISSED))


def verdict_of(reasons: list[Reason], **states: str) -> Verdict:
    """Reasons sorted by what they do."""
    against = tuple(reason for reason in reasons if effect_of(reason) == "invalidates")
    warnings = tuple(reason for reason in reasons if effect_of(reason) != "invalidates")
    return Verdict(valid=not against, reasons=against, warnings=warnings, **states)  # type: ignore[arg-type]


def _failed(case: Case) -> Iterator[Reason]:
    failure = case.exchange.failure
    if _is_cut_off(case):
        yield Reason(id="cut_off")
    elif failure is not None:
        yield Reason(id="failed", detail=f"{failure.kind}: {failure.message}"[:300])


# --- The answer -----------------------------------------------------------------------------------


def _answer(case: Case) -> Iterator[Reason]:
    exchange, numbers = case.exchange, case.numbers
    if numbers.ttft_s is None:
        yield Reason(id="no_text")
        return
    asked, got = exchange.trial.output_tokens, numbers.output_tokens
    if asked and got is not None and got < asked:
        detail = f"{got:,} of {asked:,} tokens, finish reason {exchange.finish_reason}"
        if exchange.finish_reason == "length":
            yield Reason(id="clamped_output", detail=detail)
        else:
            forced = bool(exchange.request.get("ignore_eos"))
            yield Reason(id="early_stop" if forced else "short_answer", detail=detail)
    piece = repeats_one_piece(exchange.reasoning + exchange.text)
    if piece is not None:
        yield Reason(id="repeating_answer", detail=f"{piece!r}")
    yield from _replay_text(case)


def _replay_text(case: Case) -> Iterator[Reason]:
    exchange, cold = case.exchange, case.history.cold_text
    own = exchange.reasoning + exchange.text
    same_question = exchange.trial.condition == "replay" and exchange.request.get("temperature") == 0
    if not same_question or not cold or not own or own == cold:
        return
    place = next(
        (i for i, (a, b) in enumerate(zip(own, cold, strict=False)) if a != b), min(len(own), len(cold))
    )
    yield Reason(id="text_differs", detail=f"first at character {place:,} of {len(cold):,}")


# --- Counts and exclusivity -----------------------------------------------------------------------


def _count(case: Case) -> Iterator[Reason]:
    exchange = case.exchange
    usage, planned = exchange.usage, exchange.prompt.tokens or exchange.trial.tier
    if usage is None or usage.completion_tokens is None:
        yield Reason(id="no_usage")
    if impossible := _impossible(case):
        yield Reason(id="impossible_usage", detail=impossible)
    counted = case.numbers.prompt_tokens
    if counted is None or counted == planned or not planned:
        return
    detail = f"{counted:,} counted, {planned:,} planned"
    if abs(counted - planned) <= COUNT_TOLERANCE * planned:
        yield Reason(id="prompt_count_off", detail=detail)
    else:
        yield Reason(id="truncated_prompt" if counted < planned else "prompt_too_long", detail=detail)


def _impossible(case: Case) -> str | None:
    """What no server can have counted, whatever it did."""
    usage, asked = case.exchange.usage, case.exchange.trial.output_tokens
    if usage is None:
        return None
    completion, cached, prompt = usage.completion_tokens, usage.cached_tokens, usage.prompt_tokens
    if asked and completion is not None and completion > asked:
        return f"{completion:,} tokens out, {asked:,} asked for"
    if cached is not None and prompt is not None and cached > prompt:
        return f"{cached:,} of {prompt:,} prompt tokens cached"
    return None


def _exclusive(case: Case) -> Iterator[Reason]:
    exchange, deltas = case.exchange, case.deltas
    if deltas.why:
        yield Reason(id="no_metrics", detail=deltas.why)
    elif case.history.change is None:
        foreign, missing = _token_balance(case)
        if foreign:
            yield Reason(id="foreign_traffic", detail="; ".join(foreign))
        elif missing or (not exchange.settled and "requests_finished" not in deltas.values):
            yield Reason(id="not_settled", detail="; ".join(missing))
    yield from _busy_before(case)
    if case.numbers.preemptions:
        yield Reason(
            id="preempted" if case.requests == 1 else "wave_preempted",
            detail=f"{case.numbers.preemptions} times",
        )
    queue, ttft = case.numbers.queue_s, case.numbers.ttft_s
    if queue is not None and ttft is not None and queue > max(_LEAST_DIFFERENCE_S, TIME_TOLERANCE * ttft):
        yield Reason(id="queued", detail=f"{queue:.3f} s of {ttft:.3f} s")


def _token_balance(case: Case) -> tuple[list[str], list[str]]:
    """(signs of foreign requests, signs that ours is not all counted yet)."""
    foreign: list[str] = []
    missing: list[str] = []
    deltas, numbers = case.deltas, case.numbers
    checks = [
        ("requests finished", deltas.get("requests_finished"), case.requests, 0.0),
        (
            "generation tokens",
            deltas.get("generation_tokens"),
            numbers.output_tokens,
            _slack(case, "generation"),
        ),
        ("prompt tokens", _prompt_moved(case), numbers.prompt_tokens, _slack(case, "prompt", "cached")),
    ]
    for name, rise, ours, slack in checks:
        if rise is None or ours is None:
            continue
        if rise > ours + slack:
            foreign.append(f"{rise:,.0f} {name}, {ours:,} ours")
        elif rise < ours - slack:
            missing.append(f"{rise:,.0f} {name} of {ours:,}")
    if aborted := deltas.get("requests_aborted"):
        foreign.append(f"{aborted:.0f} requests aborted")
    for name, peak in (("running", numbers.running_peak), ("waiting", numbers.waiting_peak)):
        if peak is not None and peak > case.requests:
            foreign.append(f"{peak:.0f} {name} at once")
    return foreign, missing


def _slack(case: Case, *starts: str) -> float:
    return sum(off for name, off in case.deltas.slack.items() if name.startswith(starts))


def _prompt_moved(case: Case) -> float | None:
    """Rise of the prompt counter, cached tokens included as in usage."""
    rise = case.deltas.get("prompt_tokens")
    if rise is None or case.dialect.prompt_includes_cached:
        return rise
    cached = case.deltas.get("cached_tokens")
    if cached is None:
        own = case.numbers.cached_tokens
        return None if own is None else rise + own
    return rise + cached


def _busy_before(case: Case) -> Iterator[Reason]:
    before = case.exchange.before
    if before is None or case.dialect.lagging_gauges:
        return
    busy = {name: before.values.get(name, 0.0) for name in ("running", "waiting")}
    if any(busy.values()):
        yield Reason(id="busy_before", detail=f"{busy['running']:.0f} running, {busy['waiting']:.0f} waiting")


def _restart(case: Case) -> Iterator[Reason]:
    history = case.history
    if history.change is not None:
        yield Reason(id=history.change, detail=history.change_detail)
    if not case.exchange.trial.follows or case.exchange.failure is not None:
        return
    if history.cold_failed:
        yield Reason(id="no_cold")
    elif history.restarted_since_cold:
        yield Reason(id="cold_before_restart")


# --- Clocks ---------------------------------------------------------------------------------------


def _clocks(case: Case) -> Iterator[Reason]:
    times, numbers = case.times, case.numbers
    ttft, stalled = numbers.ttft_s, _client_stalled(case)
    if _all_at_once(case) and not stalled:
        output = numbers.output_tokens or 0
        detail = f"{times.text_chunks:,} chunks with {output:,} tokens in {times.arrivals} reads"
        yield Reason(id="buffered", detail=detail)
    if times.unseen_tail:
        yield Reason(id="unseen_tail")
    yield from _client(case, stalled)
    server = numbers.server_ttft_s
    if server is not None and ttft is not None:
        gap = abs(ttft - server)
        if gap > max(_LEAST_DIFFERENCE_S, TIME_TOLERANCE * ttft):
            yield Reason(id="server_time_differs", detail=f"client {ttft:.3f} s, server {server:.3f} s")


def _client(case: Case, stalled: bool) -> Iterator[Reason]:
    """Was this client prompt enough? A lag is judged beside what was measured: 6 ms are nothing in a
    TTFT of a minute, and much in one of 20 ms."""
    client, numbers = case.exchange.client, case.numbers
    ttft = numbers.ttft_s
    if ttft is None or numbers.total_s is None:
        return
    if client is None:
        yield from _hidden(case)
        return
    usual, worst = client.loop_lag_p50_ms, client.loop_lag_p99_ms
    shortest = min(ttft, numbers.total_s - ttft) if numbers.total_s > ttft else ttft
    gap = numbers.icl_p50_s or shortest
    detail = f"lag p50 {usual:.1f} ms, p99 {worst:.1f} ms, CPU {client.cpu_share:.0%}"
    always_late = (
        usual > LAG_MS
        and usual / 1000 > LAG_LIMIT * shortest
        and case.exchange.ended_ns / 1e9 >= _LEAST_WATCHED_S
    )
    if stalled or always_late:
        yield Reason(id="client_bottleneck", detail=detail)
    elif client.cpu_share > CPU_SHARE or (
        worst > LAG_MS and worst / 1000 > min(LAG_TOLERANCE * shortest, gap)
    ):
        yield Reason(id="client_slow", detail=detail)
    if not stalled and not always_late:
        yield from _hidden(case)


def _hidden(case: Case) -> Iterator[Reason]:
    """Times that are no longer than they are uncertain."""
    known_s, decode_s = case.numbers.client_uncertainty_s, case.times.hidden_s
    names = not_longer(known_s, {"TTFT": case.numbers.ttft_s})
    if decode_s is not None and not _all_at_once(case):
        names, known_s = (*names, "decode time"), decode_s
    if names and known_s is not None:
        yield Reason(id="below_uncertainty", detail=f"{', '.join(names)}; client ±{known_s * 1000:.1f} ms")


def _all_at_once(case: Case) -> bool:
    """Many chunks and next to no arrivals; few that came together although the server says that it
    took its time over them; or one chunk with a whole answer in it."""
    times, output = case.times, case.numbers.output_tokens or 0
    if times.text_chunks == 1:
        return output >= 32
    if times.arrivals == 1 and (case.numbers.server_decode_s or 0.0) > _LEAST_HELD_S:
        return True
    return times.text_chunks >= 8 and times.arrivals <= 1 + times.text_chunks // 32


def _client_stalled(case: Case) -> bool:
    """This client slept through most of a short answer: then it is no buffer that held it back."""
    client, decode = case.exchange.client, case.numbers.server_decode_s
    if client is None or decode is None or not _all_at_once(case):
        return False
    return client.loop_lag_max_ms / 1000 > 0.5 * decode
