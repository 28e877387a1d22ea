"""A simulated server with known truth: vLLM's dialect, any speed, every fault by name.

::

    with start("toy", speed=20, faults=["reset-stream@2"]) as server:
        ...                       # server.base_url is http://127.0.0.1:PORT/v1
        server.truth().requests   # what really happened

It shares no code with the client: only `bench.errors` is imported, so that a mistake made in both
would have to be made twice.
"""

from __future__ import annotations

from .faults import FAULTS, Fault
from .profiles import Profile, load_profile, profile_names
from .server import Simulator, serve_forever, start
from .truth import RequestTruth, TokenizeTruth, Truth

__all__ = [
    "FAULTS",
    "Fault",
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
