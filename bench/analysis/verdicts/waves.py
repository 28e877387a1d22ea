"""Waves: requests that were released together, put back together from the journal's lines.

Counters moved by all of them at once. So a wave is measured when its last request is in: what the
client saw belongs to each request, what the server counted to the whole wave.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bench.analysis.verdicts.counters import Deltas, SpeculationCount
from bench.analysis.verdicts.timing import decode_span_s
from bench.analysis.verdicts.uncertainty import watched_or_floor_s
from bench.records import Exchange, Measurement, Samples, Usage, Window


class WaveBook:
    """Collects the requests of a wave, line by line."""

    def __init__(self) -> None:
        self._open: list[Exchange] = []

    def take(self, exchange: Exchange) -> list[Exchange]:
        """The wave that this request completes; empty while some are missing."""
        assert exchange.wave is not None  # noqa: S101 - callers ask before
        self._open.append(exchange)
        return self.close() if len(self._open) >= exchange.wave.size else []

    def torn_by(self, exchange: Exchange) -> list[Exchange]:
        """What there is of a wave that this line shows to be over: its rest never came."""
        wave = self._open[0].wave if self._open else None
        same = wave is not None and exchange.wave is not None and exchange.wave.id == wave.id
        return [] if same else self.close()

    def close(self) -> list[Exchange]:
        """All that is there of the wave at hand."""
        found, self._open = self._open, []
        return found


def usage_of(members: Sequence[Exchange]) -> Usage:
    """The sums of what the replies say; a field that one of them lacks is `None`."""
    usages = [member.usage or Usage() for member in members]
    columns = {field: [getattr(usage, field) for usage in usages] for field in Usage.__struct_fields__}
    return Usage(**{field: sum_of(values) for field, values in columns.items()})


def sum_of(values: Sequence[int | None]) -> int | None:
    """The sum, or `None` where a value is missing."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def as_one(members: Sequence[Exchange]) -> Exchange:
    """The wave as if it were one exchange: pages and samples of its first, all usage together."""
    return msgspec.structs.replace(members[0], usage=usage_of(members), reported={})


def completed(whole: Exchange, members: Sequence[Measurement]) -> Exchange:
    """The wave as one exchange, with what its replies tell elsewhere than in their usage."""
    usage = whole.usage or Usage()
    told = {
        "prompt_tokens": sum_of([one.prompt_tokens for one in members]),
        "completion_tokens": sum_of([one.output_tokens for one in members]),
        "cached_tokens": sum_of([one.cached_tokens for one in members]),
    }
    missing = {field: value for field, value in told.items() if getattr(usage, field) is None}
    return msgspec.structs.replace(whole, usage=msgspec.structs.replace(usage, **missing))


def drafted_in(counts: Sequence[SpeculationCount]) -> SpeculationCount | None:
    """The sums of what the replies say of their drafts; `None` where one of them does not."""
    if any(one.source != "reply" for one in counts):
        return None
    return SpeculationCount(
        drafts=sum_of([one.drafts for one in counts]),
        draft_tokens=sum_of([one.draft_tokens for one in counts]),
        accepted_tokens=sum_of([one.accepted_tokens for one in counts]),
        source="reply",
        drafts_source="reply",
    )


def on_its_own(member: Exchange) -> Exchange:
    """A request without what belongs to the whole wave."""
    return msgspec.structs.replace(member, before=None, after=None, samples=Samples(), machine=(), log=None)


def not_split(size: int) -> Deltas:
    """The counters of one request of a wave: there are none."""
    return Deltas(why=f"counted for the wave of {size}")


def served_in(deltas: Deltas, members: Sequence[Exchange]) -> list[float | None]:
    """The longest that the server can have decoded each request of a wave, as far as its sum over them tells.

    What this client saw of all of them may lack something of that sum, beyond what its clocks are uncertain
    by: one request lacks at most as much. And one that decodes no faster than the wave lacks nothing: where
    prefills are staggered the last decodes alone, so a fast one is a sign only where enough is lacking.
    """
    output = [(member.usage or Usage()).completion_tokens for member in members]
    tokens = sum_of(output)
    total_s = deltas.get("decode_sum") if deltas.count("decode_count") == len(members) else None
    if total_s is None or tokens is None or tokens <= len(members):
        return [None] * len(members)
    pace_s = total_s / (tokens - len(members))
    spans_s = [decode_span_s(*one) for one in zip(members, output, strict=True)]
    lacking_s = max(0.0, total_s - sum(spans_s) - sum(watched_or_floor_s(one.client) for one in members))
    return [
        None if own is None else min(pace_s * (own - 1), span_s + lacking_s)
        for own, span_s in zip(output, spans_s, strict=True)
    ]


def longest_of(members: Sequence[Measurement]) -> tuple[int, int] | None:
    """Prompt and output tokens of the longest sequence, by what the server counted."""
    known = [
        (one.prompt_tokens, one.output_tokens)
        for one in members
        if one.prompt_tokens is not None and one.output_tokens is not None
    ]
    return max(known, key=sum, default=None)


def expected_of(expected: Sequence[tuple[int, int] | None]) -> tuple[int, int] | None:
    """Least and most tokens that all replays of a wave reuse together."""
    known = [one for one in expected if one is not None]
    if not known or len(known) < len(expected):
        return None
    return sum(least for least, _ in known), sum(most for _, most in known)


def window_of(
    whole: Measurement, deltas: Deltas, members: Sequence[Exchange], measured: Sequence[Measurement]
) -> Window:
    """The numbers of a wave: `whole` is what its pages and summed usage say."""
    wave = members[0].wave
    assert wave is not None  # noqa: S101 - it is a wave
    waiting = [value for value in members[0].samples.waiting if value is not None]
    queued = deltas.get("queue_sum") if deltas.count("queue_count") == wave.size else None
    return Window(
        id=wave.id,
        size=wave.size,
        span_s=_span_s(members, measured),
        prompt_tokens=whole.prompt_tokens,
        output_tokens=whole.output_tokens,
        cached_tokens=whole.cached_tokens,
        cached_source=whole.sources.get("cached_tokens", ""),
        expected_cached=whole.expected_cached,
        drafts=whole.drafts,
        draft_tokens=whole.draft_tokens,
        accepted_tokens=whole.accepted_tokens,
        queue_s=queued / wave.size if queued is not None else None,
        preemptions=whole.preemptions,
        kv_usage_peak=whole.kv_usage_peak,
        running_peak=whole.running_peak,
        waiting_peak=whole.waiting_peak,
        waiting_mean=sum(waiting) / len(waiting) if waiting else None,
    )


def _span_s(members: Sequence[Exchange], measured: Sequence[Measurement]) -> float:
    """From the release to the end of the last request: of its answer, or of the wait for one."""
    return max(
        (member.sent_ns - member.wave.released_ns) / 1e9 + _over_s(member, one)
        for member, one in zip(members, measured, strict=True)
        if member.wave is not None
    )


def _over_s(member: Exchange, one: Measurement) -> float:
    if one.total_s is None or member.failure is not None:
        return member.ended_ns / 1e9
    return one.total_s
