"""What this client's own delays may add to a time that it measured.

A stamp is never early; it is late by as long as the event loop was busy with something else, or as
Python's garbage collector held everything up. A time is a difference of two stamps, so that delay goes
in with either sign: the time is known to plus or minus that much.
"""

from __future__ import annotations

from collections.abc import Mapping

from bench.records import ClientHealth

FLOOR_S = 0.0003
"""What remains on an idle machine: the way from the kernel through the event loop to the stamp, as
`benchmarks/clock.py` finds it on loopback (median error of a chunk: 0.1 to 0.25 ms)."""


def client_uncertainty_s(client: ClientHealth | None) -> float | None:
    """The largest of three: the floor, the 99th percentile of the loop's lag during the exchange, and
    the longest pause of the garbage collector. `None` when the client was not watched.

    The lag is that of knocks that come as reads do (`wire/lag.py`), so it holds the way through the loop.
    A rank of 99% leaves out single worse moments; `loop_lag_max_ms` keeps the worst.
    """
    if client is None:
        return None
    return max(FLOOR_S, client.loop_lag_p99_ms / 1000, (client.gc_pause_max_ms or 0.0) / 1000)


def watched_or_floor_s(client: ClientHealth | None) -> float:
    """The same, with the floor for a client that was not watched: an exchange may be too short for it."""
    known = client_uncertainty_s(client)
    return FLOOR_S if known is None else known


def not_longer(uncertainty_s: float | None, times_s: Mapping[str, float | None]) -> tuple[str, ...]:
    """Names of the times that are no longer than the uncertainty: these say nothing about the server."""
    if uncertainty_s is None:
        return ()
    return tuple(name for name, time_s in times_s.items() if time_s is not None and time_s <= uncertainty_s)
