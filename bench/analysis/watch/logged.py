"""What a server's log adds to a watched request: llama.cpp's TTFT, which no metric of it tells.

The log's figures count only where the log shows exactly one request, too, and tells the same of it as
the counters do. Where they contradict each other that is said, and nothing is taken from the log.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from bench.analysis.logs.llamacpp import Alone, alone, logged
from bench.analysis.watch.described import Watched

SOURCE = "log: request read, before tokenising, to its first token"
_APART_S = 0.002
"""How far a counter of seconds may lie from the log's milliseconds without meaning anything: it is
printed with six digits."""
_APART = 0.025
"""A counter so coarse that its last digit is 2% of the time is not given at all."""


def with_log(watched: Watched, data: bytes, *, omitted: int = 0) -> Watched:
    """A request of a llama.cpp server, with its TTFT by the log of its time (`data`).

    `omitted`: bytes of the log that were left out. Windows of several are handed back as they are, and
    so is a request whose log does not tell it: `absent` says why.
    """
    if watched.kind != "request" or watched.server_ttft_s is not None:
        return watched
    found = alone(logged(data))
    if omitted:
        return _without(watched, "too much was logged meanwhile to be read whole")
    if isinstance(found, str):
        return _without(watched, found)
    differing = list(_differences(watched, found))
    if differing:
        why = f"log and counters contradict each other: {'; '.join(differing)}"
        return structs.replace(_without(watched, why), notes=(*watched.notes, why))
    absent = {k: v for k, v in watched.absent.items() if k not in ("server_ttft_s", "server_total_s")}
    names = dict.fromkeys(("server_ttft_s", "server_total_s"), SOURCE)
    return structs.replace(
        watched,
        server_ttft_s=found.ttft_s,
        server_total_s=found.total_s,
        sources={**watched.sources, **names},
        absent=absent,
    )


def _without(watched: Watched, why: str) -> Watched:
    names = dict.fromkeys(("server_ttft_s", "server_total_s"), f"{why}, and no metric of llama.cpp tells it")
    return structs.replace(watched, absent={**watched.absent, **names})


def _differences(watched: Watched, found: Alone) -> Iterator[str]:
    """Each figure of which log and counters tell differently."""
    prompt, cached, output = watched.prompt_tokens, watched.cached_tokens, watched.output_tokens
    computed = prompt - cached if prompt is not None and cached is not None else None
    for name, logs, counted in (
        ("computed prompt tokens", found.computed_tokens, computed),
        ("output tokens", found.output_tokens, output),
    ):
        if counted is not None and abs(logs - counted) > watched.slack_tokens:
            yield f"{logs:,} {name} in the log, {counted:,} counted"
    for name, logs_s, counted_s in (
        ("prefill", found.prefill_s, watched.prefill_s),
        ("decode", found.decode_s, watched.server_decode_s),
    ):
        if counted_s is not None and abs(logs_s - counted_s) > max(_APART_S, _APART * counted_s):
            yield f"{name} {logs_s:.3f} s in the log, {counted_s:.3f} s counted"
