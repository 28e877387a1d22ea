"""Holds what was measured against what a simulated server says really happened."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from bench.errors import EngineError
from bench.records import Exchange, Measurement, Route
from bench.run.session import root_of
from bench.run.study import client_for

_COUNTS = ("prompt_tokens", "output_tokens", "cached_tokens", "drafts", "draft_tokens", "accepted_tokens")


class TrueRequest(Struct, frozen=True, kw_only=True):
    """What `/truth` says of one generation request: the fields a client can be held against."""

    number: int
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    drafts: int
    draft_tokens: int
    accepted_tokens: int
    ttft_s: float | None = None
    total_s: float | None = None
    chunk_sent_ns: tuple[int, ...] = ()
    chunk_tokens: tuple[int, ...] = ()
    overrun_max_s: float = 0.0


class TruthPage(Struct, frozen=True, kw_only=True):
    """`GET /truth` of a simulated server."""

    speed: float
    requests: tuple[TrueRequest, ...]


class Compared(Struct, frozen=True, kw_only=True):
    """One measurement beside its truth."""

    measured: Measurement
    true: Measurement
    """The same record with the true numbers in it."""
    overrun_s: float
    """How late the simulator itself was at worst."""

    def errors(self) -> dict[str, float]:
        """Field -> measured minus true, in seconds; fields that one side lacks are left out."""
        pairs = {
            field: (getattr(self.measured, field), getattr(self.true, field))
            for field in ("ttft_s", "total_s")
        }
        return {field: m - t for field, (m, t) in pairs.items() if m is not None and t is not None}

    def wrong_counts(self) -> dict[str, tuple[int | None, int | None]]:
        """Counts that are not exactly the true ones: field -> (measured, true)."""
        found = {field: (getattr(self.measured, field), getattr(self.true, field)) for field in _COUNTS}
        return {field: pair for field, pair in found.items() if pair[0] != pair[1]}


async def fetch(route: Route) -> TruthPage:
    """The truth page of a route's server. Raises `EngineError` when it is no simulator."""
    async with client_for(route) as client:
        url = f"{root_of(route)}/truth"
        try:
            return msgspec.convert(await client.get_json(url), TruthPage)
        except msgspec.ValidationError as error:
            raise EngineError(f"GET {url}: this is no page of a simulated server: {error}") from error


def compare(
    exchanges: Iterable[Exchange],
    measurements: Sequence[Measurement],
    pages: Mapping[str, TruthPage],
) -> list[Compared]:
    """Measurements beside their truths.

    The n-th exchange of a route and prompt length was its server's n-th request of that length:
    requests of other lengths (the preflight's) are none of ours.
    """
    left: dict[tuple[str, int], deque[TrueRequest]] = defaultdict(deque)
    for name, page in pages.items():
        for request in sorted(page.requests, key=lambda request: request.number):
            left[name, request.prompt_tokens].append(request)
    truths = {
        (exchange.trial.id, exchange.attempt): left[exchange.trial.route, exchange.prompt.tokens].popleft()
        for exchange in exchanges
    }
    return [
        Compared(
            measured=measured,
            true=_true(measured, truths[measured.trial_id, measured.attempt]),
            overrun_s=truths[measured.trial_id, measured.attempt].overrun_max_s,
        )
        for measured in measurements
    ]


def _true(measured: Measurement, truth: TrueRequest) -> Measurement:
    """The measurement as a perfect client would have taken it.

    Counts without speculation are `None` in a measurement where the server does not count them.
    """
    first = truth.chunk_tokens[0] if truth.chunk_tokens else 1
    rest = truth.output_tokens - first
    decode_s = (truth.total_s or 0.0) - (truth.ttft_s or 0.0)
    tpot_s = decode_s / rest if rest > 0 and decode_s > 0 else None
    counts = {
        field: None if field in _COUNTS[3:] and getattr(measured, field) is None else getattr(truth, field)
        for field in _COUNTS
    }
    return msgspec.structs.replace(
        measured,
        ttft_s=truth.ttft_s,
        total_s=truth.total_s,
        first_chunk_tokens=first,
        tpot_s=tpot_s,
        decode_tok_s=1 / tpot_s if tpot_s else None,
        **counts,
    )
