"""What a server's log adds to a watched request: llama.cpp's TTFT, which no metric of it tells, and exact
counts and times where its counters, of six digits, have grown too large to give them.

The log's figures count only where the log shows exactly one request, too, and tells the same of it as
the counters do. Where they contradict each other that is said, and nothing is taken from the log.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from bench.analysis.logs.llamacpp import Alone, alone, logged
from bench.analysis.watch.described import COUNTS_OFF, Watched

TIMINGS = "log: timings of the request"
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
    fields = {
        "server_ttft_s": (found.ttft_s, SOURCE),
        "server_total_s": (found.total_s, SOURCE),
        **_instead(watched, found),
    }
    exact = "output_tokens" in fields
    notes = (note for note in watched.notes if not (exact and note.startswith(COUNTS_OFF)))
    return structs.replace(
        watched,
        **{name: value for name, (value, _) in fields.items()},
        slack_tokens=0.0 if exact else watched.slack_tokens,
        notes=tuple(notes),
        sources={**watched.sources, **{name: source for name, (_, source) in fields.items()}},
        absent={name: why for name, why in watched.absent.items() if name not in fields},
    )


def _instead(watched: Watched, found: Alone) -> dict[str, tuple[float, str]]:
    """What the log tells exactly and the counters do not, by field, with its source."""
    told: dict[str, float] = {}
    if watched.slack_tokens and found.prompt_tokens:
        cached = found.prompt_tokens - found.computed_tokens
        told |= {"prompt_tokens": found.prompt_tokens, "cached_tokens": cached}
        told |= {"output_tokens": found.output_tokens, "prefix_reuse": cached / found.prompt_tokens}
    for name, value in (("prefill_s", found.prefill_s), ("server_decode_s", found.decode_s)):
        if getattr(watched, name) is None:
            told[name] = value
    decode_s = told.get("server_decode_s") or watched.server_decode_s
    if told and decode_s and found.output_tokens > 1:
        told["decode_tok_s"] = (found.output_tokens - 1) / decode_s
    return {name: (value, TIMINGS) for name, value in told.items()}


def _without(watched: Watched, why: str) -> Watched:
    names = dict.fromkeys(("server_ttft_s", "server_total_s"), f"{why}, and no metric of llama.cpp tells it")
    return structs.replace(watched, absent={**watched.absent, **names})


def _differences(watched: Watched, found: Alone) -> Iterator[str]:
    """Each figure of which log and counters tell differently."""
    prompt, cached, output = watched.prompt_tokens, watched.cached_tokens, watched.output_tokens
    computed = prompt - cached if prompt is not None and cached is not None else None
    for name, logs, counted in (
        ("prompt tokens", found.prompt_tokens, prompt),
        ("computed prompt tokens", found.computed_tokens, computed),
        ("output tokens", found.output_tokens, output),
    ):
        if None not in (logs, counted) and abs((logs or 0) - (counted or 0)) > watched.slack_tokens:
            yield f"{logs:,} {name} in the log, {counted:,} counted"
    for name, logs_s, counted_s in (
        ("prefill", found.prefill_s, watched.prefill_s),
        ("decode", found.decode_s, watched.server_decode_s),
    ):
        if counted_s is not None and abs(logs_s - counted_s) > max(_APART_S, _APART * counted_s):
            yield f"{name} {logs_s:.3f} s in the log, {counted_s:.3f} s counted"
