"""A simulated server with known truth: vLLM's dialect, any speed, every fault by name.

::

    with start("toy", speed=20, faults=["reset-stream@2"]) as server:
        ...                       # server.base_url is http://127.0.0.1:PORT/v1
        server.truth().requests   # what really happened

It shares no code with the client: only `bench.errors` is imported, so that a mistake made in both
would have to be made twice.

How a request goes through it, and where to look::

    server     a socket on loopback, a loop, uvicorn's HTTP protocol
    app        paths and pages; a request's body in, refusals and resets out     dialect, faults
    core       one server without HTTP: prompts, jobs, pages, truth              store, tokens, metrics, logs
    driver     the engine against the clock
    engine     pure: queue, batches, blocks, drafts; what is emitted when        timing, cache, drafting,
                                                                                 sequence, stats, profiles
    reply      emissions as events into the socket, each when it is due          framing, dialect
    truth      what really happened
"""

from __future__ import annotations

from .faults import FAULTS, Fault
from .profiles import Profile, load_profile, profile_names
from .server import Simulator, serve_forever, start
from .truth import PageTruth, RequestTruth, TokenizeTruth, Truth

__all__ = [
    "FAULTS",
    "Fault",
    "PageTruth",
    "Profile",
    "RequestTruth",
    "Simulator",
    "TokenizeTruth",
    "Truth",
    "load_profile",
    "profile_names",
    "serve_forever",
    "start",
]
