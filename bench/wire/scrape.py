"""Metrics pages: fetched, read through a dialect, and waited on until they say what they must.

Nothing here raises for a server's sake: a page that cannot be had is a `Scrape` with a `problem`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from msgspec import Struct

from bench.engines.base import Dialect
from bench.engines.metrics import read_page, without
from bench.errors import EngineError
from bench.records import Scrape, Usage
from bench.wire.client import Client, Reply
from bench.wire.failures import StatusError

_LARGE_PAGE = 8 * 1024  # characters; reading a full page would hold up the loop for milliseconds
_AT_ONCE_NS = 1_000_000_000
_REFUSALS = 3
_STILL_S = 1.0
"""Gauges that lag and a page that stands still this long mean idle, where all that began has ended..."""
_LONG_STILL_S = 5.0
"""...and this long where the counters do not say so: work shows within 40 decode steps or one prefill
batch, in the tokens that the cache holds."""

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]
Look = Callable[[], Awaitable[Scrape]]
"""Takes one scrape; the caller decides whether its page is kept."""


class Wait(Struct, frozen=True, kw_only=True):
    """How a bounded wait ended."""

    reached: bool | None
    """What was waited for is so; `False`: not within the limit; `None`: the page cannot tell."""
    waited_s: float
    last: Scrape
    """The last page that was looked at."""


async def scrape(
    client: Client, url: str, dialect: Dialect, *, timeout_s: float
) -> tuple[Scrape, str | None]:
    """One page as the dialect reads it, and its text (`None` where there is none).

    `at_ns` is when the page had arrived; it tells of a moment up to `took_ns` earlier.
    """
    started_ns = time.monotonic_ns()
    try:
        reply = await client.get_reply(url, timeout_s=timeout_s)
    except EngineError as error:
        now_ns = time.monotonic_ns()
        status = error.status if isinstance(error, StatusError) else None
        return Scrape(at_ns=now_ns, took_ns=now_ns - started_ns, status=status, problem=str(error)), None
    if len(reply.text) > _LARGE_PAGE:
        read = await asyncio.to_thread(_read, reply, dialect)
    else:
        read = _read(reply, dialect)
    return read, reply.text


def _read(reply: Reply, dialect: Dialect) -> Scrape:
    page = read_page(reply.text, dialect, reply.headers)
    return Scrape(
        at_ns=reply.at_ns,
        took_ns=reply.took_ns,
        status=reply.status,
        values=page.values,
        unknown=page.unknown,
        info=page.info,
        problem=page.problem,
    )


async def wait_idle(
    look: Look,
    dialect: Dialect,
    *,
    limit_s: float,
    period_s: float = 0.25,
    clock: Clock = time.monotonic,
    sleep: Sleep = asyncio.sleep,
) -> Wait:
    """Wait until nothing runs or waits: after a timeout or Ctrl-C a server may still be prefilling.

    A page that does not tell ends the wait with `reached=None`; one that cannot be fetched just now
    (a server that answers between batches) is looked at again. A busy server answers late, one that
    is gone refuses at once: after a few such refusals the request itself shall meet them. Gauges that
    lag (`Dialect.lagging_gauges`) may show what ended half a minute ago: of a page that stands still
    they are not believed.
    """
    refusals = 0
    rest = _Rest(clock)

    def idle(page: Scrape) -> bool | None:
        nonlocal refusals
        if page.problem is not None and not page.values:
            if page.status is None and page.took_ns < _AT_ONCE_NS:
                refusals += 1
                return False if refusals < _REFUSALS else None
            # A page that came but holds nothing we know will not tell in a minute either.
            return False if page.status in (None, 503) else None
        refusals = 0
        return _is_idle(page, dialect, rest.seconds(page))

    return await _wait(look, idle, limit_s=limit_s, period_s=period_s, clock=clock, sleep=sleep)


async def wait_still(
    look: Look,
    *,
    still_s: float,
    limit_s: float,
    period_s: float = 0.1,
    clock: Clock = time.monotonic,
    sleep: Sleep = asyncio.sleep,
) -> Wait:
    """Wait until the page has not changed for `still_s`: some engines publish now and then, so that
    what was counted last may be about to show. A page without values is not waited for.
    """
    rest = _Rest(clock)

    def still(page: Scrape) -> bool | None:
        return rest.seconds(page) >= still_s if page.values else None

    return await _wait(look, still, limit_s=limit_s, period_s=period_s, clock=clock, sleep=sleep)


async def wait_settled(
    look: Look,
    dialect: Dialect,
    before: Scrape,
    usage: Usage | None,
    *,
    failed: bool = False,
    limit_s: float = 10.0,
    period_s: float = 0.05,
    clock: Clock = time.monotonic,
    sleep: Sleep = asyncio.sleep,
) -> Wait:
    """Wait until the counters hold all of our request: engines publish after the last chunk.

    Settled means that finished requests moved by ours and the token counters agree with `usage`.
    After a failed request (`failed`) the engine may count no end at all (vLLM does not count a
    client that hung up); then an idle server on two equal pages is the sign, for gauges go stale.
    The same pages end the wait, with `reached=None`, where counters fell: they will never hold ours.
    So does a server that refuses at once, again and again, after a failed request: it went down too.
    """
    refusals = 0
    rest = _Rest(clock)
    counters = {alias.name for alias in dialect.aliases if alias.kind == "counter"} & before.values.keys()

    def settled(page: Scrape) -> bool | None:
        nonlocal refusals
        refused = page.problem is not None and page.status is None and page.took_ns < _AT_ONCE_NS
        refusals = refusals + 1 if refused else 0
        if failed and refusals >= _REFUSALS:
            return None
        if not page.values:
            return False if page.status in (None, 503) else None
        fell = any(page.values.get(name, before.values[name]) < before.values[name] for name in counters)
        if not failed and not fell:
            return dialect.settled(before.values, without(page.values, before.unknown), usage)
        still_s = rest.seconds(page)
        if not still_s or _is_idle(page, dialect, still_s) is False:
            return False
        return None if fell else True

    return await _wait(look, settled, limit_s=limit_s, period_s=period_s, clock=clock, sleep=sleep)


class _Rest:
    """For how long a page has not changed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = 0.0
        self._values: dict[str, float] | None = None

    def seconds(self, page: Scrape) -> float:
        now = self._clock()
        if page.values != self._values:
            self._values, self._since = page.values, now
        return now - self._since


def _is_idle(page: Scrape, dialect: Dialect, still_s: float) -> bool | None:
    """`Dialect.is_idle`, and what a page that has stood still says against gauges that lag."""
    found, values = dialect.is_idle(page.values), page.values
    if found is not False or not dialect.lagging_gauges or values.get("waiting"):
        return found
    ended = values.get("requests_finished", 0.0) + values.get("requests_aborted", 0.0)
    return still_s >= (_STILL_S if values.get("ttft_count") == ended else _LONG_STILL_S)


async def _wait(
    look: Look,
    reached: Callable[[Scrape], bool | None],
    *,
    limit_s: float,
    period_s: float,
    clock: Clock,
    sleep: Sleep,
) -> Wait:
    started = clock()
    pause = period_s
    while True:
        page = await look()
        found = reached(page)
        waited = clock() - started
        if found is not False or waited >= limit_s:
            return Wait(reached=found, waited_s=waited, last=page)
        await sleep(min(pause, max(limit_s - waited, 0.0)))
        pause = min(pause * 1.5, max(1.0, period_s))  # a long prefill needs no ten looks a second
