"""Holds what was measured against what a simulated server says really happened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from bench.errors import EngineError
from bench.records import Exchange, Measurement, Route
from bench.run.openroute import root_of
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
    arrived_ns: int
    ttft_s: float | None = None
    total_s: float | None = None
    chunk_sent_ns: tuple[int, ...] = ()
    chunk_tokens: tuple[int, ...] = ()
    overrun_max_s: float = 0.0


class TruthPage(Struct, frozen=True, kw_only=True):
    """`GET /truth` of a simulated server."""

    speed: float
    requests: tuple[TrueRequest, ...]


class Figure(Struct, frozen=True, kw_only=True):
    """One time of one exchange, in seconds: as measured, as it really was, as it should have been."""

    trial_id: str
    name: str
    """`first token`, `decode` (first text to last) or `total`."""
    measured_s: float
    happened_s: float
    """From the request's arrival to the moments at which chunks were handed to the socket."""
    planned_s: float
    """What the server's laws say: the scaled truth."""

    @property
    def tolerance_s(self) -> float:
        """The larger of 1% of the scaled truth and 1 ms."""
        return max(0.01 * self.planned_s, 0.001)

    @property
    def error_s(self) -> float:
        """Measured minus the scaled truth: the sum of the next two."""
        return self.measured_s - self.planned_s

    @property
    def ruler_s(self) -> float:
        """The client's part of it: the way there and back, and its clock."""
        return self.measured_s - self.happened_s

    @property
    def plan_s(self) -> float:
        """The simulator's part of it: how late it was itself."""
        return self.happened_s - self.planned_s

    @property
    def share(self) -> float:
        """Size of the error in tolerances; above 1 it is too large."""
        return abs(self.error_s) / self.tolerance_s


class Compared(Struct, frozen=True, kw_only=True):
    """One measurement beside its truth."""

    measured: Measurement
    true: Measurement
    """The same record with the true numbers in it."""
    figures: tuple[Figure, ...]
    """None where either side has no times: the request failed."""
    overrun_s: float
    """How late the simulator itself was at worst."""

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

    Exchange and request are one where the request arrived while the exchange lasted: client and
    server read the same clock, and one request is under way at a time (waves are not told apart).
    Raises `EngineError` where a server has no truth for an exchange.
    """
    truths = {
        (exchange.trial.id, exchange.attempt): _truth_of(exchange, pages[exchange.trial.route])
        for exchange in exchanges
        if exchange.purpose == "trial"
    }
    return [_compared(one, truths[one.trial_id, one.attempt]) for one in measurements]


def _truth_of(exchange: Exchange, page: TruthPage) -> TrueRequest:
    for request in page.requests:
        if 0 <= request.arrived_ns - exchange.sent_ns <= exchange.ended_ns:
            return request
    raise EngineError(
        f"route {exchange.trial.route}: its server's /truth has no request for trial {exchange.trial.id}; "
        "did the request fail before it arrived, or is this another server?"
    )


def _compared(measured: Measurement, truth: TrueRequest) -> Compared:
    return Compared(
        measured=measured,
        true=_true(measured, truth),
        figures=tuple(_figures(measured, truth)),
        overrun_s=truth.overrun_max_s,
    )


def _figures(measured: Measurement, truth: TrueRequest) -> Iterator[Figure]:
    sent = truth.chunk_sent_ns
    if measured.ttft_s is None or measured.total_s is None or not sent:
        return
    if truth.ttft_s is None or truth.total_s is None:
        return
    first_s, last_s = ((at_ns - truth.arrived_ns) / 1e9 for at_ns in (sent[0], sent[-1]))
    rows = (
        ("first token", measured.ttft_s, first_s, truth.ttft_s),
        ("decode", measured.total_s - measured.ttft_s, last_s - first_s, truth.total_s - truth.ttft_s),
        ("total", measured.total_s, last_s, truth.total_s),
    )
    for name, measured_s, happened_s, planned_s in rows:
        yield Figure(
            trial_id=measured.trial_id,
            name=name,
            measured_s=measured_s,
            happened_s=happened_s,
            planned_s=planned_s,
        )


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
