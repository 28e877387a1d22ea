"""Did the condition hold? Three witnesses (usage, counters, TTFT) against the rule of the engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from bench.analysis.verdicts.case import Case
from bench.records import Reason

SALT_TOKENS = 8
"""Length of the salt line: what two prompts may share beyond the template, at the very most."""
_LARGEST_TWO_BLOCKS = 8_192
"""No known hybrid model needs more tokens than this for two cache blocks."""
_LEAST_TTFT_S = 0.25
"""A cold TTFT below this is too short to tell reuse from a pause of either machine."""

_ASKING_TOKENS = 16
"""What a template puts behind the last message to ask for an answer, and may put otherwise before one."""

State = Literal["held", "missed", "unprovable", "disagree", "unknown"]
TimeSays = Literal["reused", "computed"]


class Finding(NamedTuple):
    """State of the condition and the reasons that go with it."""

    state: State
    reasons: tuple[Reason, ...] = ()


def judge_reuse(case: Case, *, counters_ours: bool = True) -> Finding:
    """State of the condition of one exchange that succeeded.

    `counters_ours`: the counters moved by this exchange alone, so that they may contradict usage.
    """
    disagreement = _counts_disagree(case) if counters_ours else None
    if disagreement:
        return Finding("disagree", (Reason(id="witnesses_disagree", detail=disagreement),))
    if not case.exchange.trial.follows:
        return _cold(case)
    found = _replay(case)
    return found._replace(reasons=(*found.reasons, *_rewritten(case)))


def judge_wave_reuse(whole: Case, members: Sequence[Case], *, counters_ours: bool = True) -> list[Finding]:
    """State of the condition of each request of a wave that succeeded.

    Usage tells of every request, counters of all of them together; TTFT tells nothing under load.
    Where usage does not tell, all of the wave is judged by its sums.
    """
    disagreement = _counts_disagree(whole) if counters_ours else None
    if disagreement:
        reason = Reason(id="witnesses_disagree", detail=disagreement)
        return [Finding("disagree", (reason,)) for _ in members]
    if all(case.numbers.cached_tokens is not None for case in members):
        return [judge_reuse(case, counters_ours=False) for case in members]
    return [judge_reuse(whole, counters_ours=False)] * len(members)


def _counts_disagree(case: Case) -> str | None:
    usage, counter = case.numbers.cached_usage, case.numbers.cached_counter
    if usage is None or counter is None or abs(usage - counter) <= case.cached.slack:
        return None
    return f"usage says {usage:,} cached tokens, {case.cached.source} says {counter:,}"


def _replay(case: Case) -> Finding:
    cached, time = case.numbers.cached_tokens, _time_of_replay(case)
    if case.expected is not None and case.expected[1] == 0 and not cached:
        return Finding("unprovable", (Reason(id="reuse_unprovable", detail=_rule(case)),))
    if cached is None:
        return _by_time(time, _missed(case), hit_is_good=True)
    least, most = case.expected if case.expected is not None else (case.prompt_tokens // 2, None)
    if cached < least or (least == 0 and cached == 0):
        if least == 0 or (case.expected is None and case.prompt_tokens < _LARGEST_TWO_BLOCKS):
            return Finding("unprovable", (Reason(id="reuse_unprovable", detail=_rule(case)),))
        if time == "reused" and not _counted_twice(case):
            return _time_disagrees(case, cached)
        detail = f"{cached:,} of {case.prompt_tokens:,} tokens cached, {_rule(case)}"
        return Finding("missed", (Reason(id=_missed(case), detail=detail),))
    if time == "computed":
        return _time_disagrees(case, cached)
    doubts = []
    if most is not None and cached > most + case.cached.slack:
        doubts.append(Reason(id="reuse_above_rule", detail=f"{cached:,} cached, {_rule(case)}"))
    if time is None and _part_of_cold(case) is not None:
        doubts.append(Reason(id="reuse_not_faster", detail=_count_and_time(case, cached)))
    return Finding("held", tuple(doubts))


def _missed(case: Case) -> str:
    return "turn_missed" if case.exchange.trial.turn else "replay_missed"


def _rewritten(case: Case) -> Iterator[Reason]:
    """Of a turn of a chat: its template does not repeat the turn before as it was. What is left of it is all
    that can be reused, and what this turn is judged by."""
    shared, before = case.exchange.prompt.shared, case.history.before_tokens
    if shared is not None and before is not None and before - shared[0] > _ASKING_TOKENS:
        detail = f"{shared[0]:,} of the {before:,} tokens of the turn before stand at its front"
        yield Reason(id="history_rewritten", detail=detail)


def _cold(case: Case) -> Finding:
    """Template and salt at most: what lies behind the salt must be computed."""
    cached, time = case.numbers.cached_tokens, _time_of_cold(case)
    if cached is None:
        return _by_time(time, "cold_hit", hit_is_good=False)
    template, block = case.requests * case.exchange.prompt.fixed_prefix, case.facts.block_size or 1
    under_a_block = block == 1 or cached < block
    if cached > template and not (cached <= template + case.requests * SALT_TOKENS and under_a_block):
        external = f", {case.cached.external:,} of them external" if case.cached.external else ""
        detail = f"{cached:,} of {case.prompt_tokens:,} tokens cached{external}"
        return Finding("missed", (Reason(id="cold_hit", detail=detail),))
    if time == "reused" and not (_counted_twice(case) and _first_may_be_slow(case)):
        return _time_disagrees(case, cached)
    doubts = [Reason(id="cold_faster", detail=_count_and_time(case, cached))] if time == "reused" else []
    return Finding("held", tuple(doubts))


def _counted_twice(case: Case) -> bool:
    """Reply and counters agree on a miss: then a short TTFT is the machine's mood, not reuse."""
    return case.numbers.cached_usage is not None and case.numbers.cached_counter is not None


def _first_may_be_slow(case: Case) -> bool:
    """One cold prompt alone is known of the tier: it may have made the server compile or load something. And
    this one is not so fast beside it that nothing can have been computed."""
    ttft, first = case.numbers.ttft_s, case.history.tier_ttft_s
    return case.history.tier_colds == 1 and ttft is not None and first is not None and ttft >= 0.1 * first


def _by_time(time: TimeSays | None, missed: str, *, hit_is_good: bool) -> Finding:
    """No count at all: TTFT alone."""
    if time is None:
        return Finding("unknown", (Reason(id="reuse_unknown"),))
    if (time == "reused") == hit_is_good:
        return Finding("held", (Reason(id="reuse_by_time_only"),))
    return Finding("missed", (Reason(id=missed, detail="by TTFT alone"),))


def _time_disagrees(case: Case, cached: int) -> Finding:
    return Finding("disagree", (Reason(id="witnesses_disagree", detail=_count_and_time(case, cached)),))


def _count_and_time(case: Case, cached: int) -> str:
    reference = case.history.cold_ttft_s or case.history.tier_ttft_s or 0.0
    return (
        f"{cached:,} of {case.prompt_tokens:,} tokens cached by count, but TTFT is "
        f"{case.numbers.ttft_s:.3f} s against {reference:.3f} s cold"
    )


def _time_of_replay(case: Case) -> TimeSays | None:
    """What its TTFT says; between half and four fifths of the cold one, neither."""
    part = _part_of_cold(case)
    if part is None:
        return None
    if part < 0.5:
        return "reused"
    return "computed" if part > 0.8 else None


def _part_of_cold(case: Case) -> float | None:
    """TTFT of a replay / that of the cold of the same prompt (else the tier's); `None` where the cold one
    is too short to tell, or less than most of the prompt should have been reused."""
    ttft, cold = case.numbers.ttft_s, case.history.cold_ttft_s or case.history.tier_ttft_s
    share = 1.0 if case.expected is None else case.expected[0] / max(1, case.prompt_tokens)
    if ttft is None or cold is None or cold < _LEAST_TTFT_S or share < 0.75:
        return None
    return ttft / cold


def _time_of_cold(case: Case) -> TimeSays | None:
    """Against earlier colds of the tier; the first of them may have been slow by itself."""
    ttft, usual = case.numbers.ttft_s, case.history.tier_ttft_s
    if ttft is None or usual is None or usual < _LEAST_TTFT_S:
        return None
    if ttft < 0.25 * usual:
        return "reused"
    return "computed" if ttft > 0.5 * usual else None


def _rule(case: Case) -> str:
    if case.expected is None:
        return "block size unknown"
    least, most = case.expected
    block = f"block {case.facts.block_size:,}" if case.facts.block_size else "block unknown"
    wanted = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    return f"{wanted} expected ({block})"
