"""What llama.cpp's log says of each request, by its own clock.

A request's lines, with what `llama-server` writes in front of every one (minutes.seconds.ms.us since its
start):

```text
1.51.303.534 I srv  server_strea: conv_id= (empty=1)                                        from level 4 on
1.51.305.942 I slot get_availabl: id  0 | task -1 | selected slot by LRU, t_last = -1
1.51.306.025 I slot launch_slot_: id  0 | task 255 | processing task, is_child = 0
1.51.331.825 I slot   operator(): id  0 | task 255 | new prompt, ..., task.n_tokens = 347       the same
1.58.577.257 I slot print_timing: id  0 | task 255 | prompt eval time =    6033.90 ms /   347 tokens (...)
1.58.577.269 I slot print_timing: id  0 | task 255 |        eval time =    1211.43 ms /     4 tokens (...)
1.58.577.349 I slot      release: id  0 | task 255 | stop processing: n_tokens = 350, truncated = 0
```

The first is written once the request is read and its chat template applied, and before its prompt is
tokenised; the slot is chosen after that. The first token's own time is not written. It lies `prompt eval
time` behind the line of the new prompt, and `eval time` before the line that tells the timings, and no
later than either says: a line may be written late, on a busy machine by milliseconds, but never early.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from msgspec import Struct

from bench.analysis.logs.lines import clean

_LINE = re.compile(
    r"(?:^|[ |])(?:(?P<m>\d{1,9})\.(?P<s>\d\d)\.(?P<ms>\d{3})\.(?P<us>\d{3}) )?(?:[IWED] )?"
    r"(?:srv|slot) +(?P<who>[a-z_() ]{1,20}): (?P<text>.*)"
)
_TASK = re.compile(r"id +(?P<slot>-?\d{1,9}) \| task (?P<task>-?\d{1,15}) \| +(?P<text>.*)")
_TIMED = re.compile(
    r"(?P<of>prompt eval|eval) time = +(?P<ms>\d{1,15}\.\d+) ms / +(?P<tokens>\d{1,12}) tokens"
)
_RELEASED = re.compile(r"stop processing: n_tokens = (?P<tokens>\d{1,12})")
_BEGUN = re.compile(r"new prompt, .*task\.n_tokens = (?P<tokens>\d{1,12})")
_LINE_CHARS = 400
REQUESTS_MAX = 1_000
"""Requests of one portion that are held; of more, none is told apart anyway."""


class LoggedRequest(Struct, frozen=True, kw_only=True):
    """One task of the server. Times are seconds since the server's start; `None`: not written."""

    task: int
    launched_s: float | None
    """It was given to a slot, tokenised."""
    begun_s: float | None = None
    """Its prompt began to be processed: written from log level 4 on."""
    prompt_tokens: int | None = None
    """The whole prompt: written with its begin."""
    computed_tokens: int | None = None
    """Prompt tokens that were not in the cache."""
    prefill_s: float | None = None
    output_tokens: int | None = None
    decode_s: float | None = None
    """From the first token to the last."""
    told_s: float | None = None
    """When its timings were written: right after its last token."""
    length: int | None = None
    """Tokens of its sequence when its slot was released."""

    @property
    def first_token_s(self) -> float | None:
        """When it had its first token: the earlier of what its begin and its end say."""
        pairs = ((self.begun_s, self.prefill_s, 1), (self.told_s, self.decode_s, -1))
        found = [at + sign * took for at, took, sign in pairs if at is not None and took is not None]
        return min(found, default=None)


class LoggedTime(Struct, frozen=True, kw_only=True):
    """The requests of one portion of a log."""

    arrivals: tuple[float | None, ...]
    """When a request was read, before it was tokenised: written from log level 4 on."""
    requests: tuple[LoggedRequest, ...]
    """In the order of their launch."""
    strangers: int
    """Ends of requests whose launch is not in this portion."""

    @property
    def unfinished(self) -> bool:
        """Whether a request was launched whose end is not here (yet)."""
        return any(one.length is None for one in self.requests)


class Alone(Struct, frozen=True, kw_only=True):
    """The one request of a portion of a log, from its arrival to its end."""

    ttft_s: float
    """From the request being read, before tokenising, to its first token."""
    total_s: float
    """From the same to the last token."""
    prefill_s: float
    decode_s: float
    prompt_tokens: int | None
    computed_tokens: int
    output_tokens: int


Why = Literal[
    "the log holds no request",
    "the log has no time stamps: start llama-server with --log-prefix --log-timestamps",
    "the log does not say when the request came in: start llama-server with --verbosity 4",
    "the log shows several requests",
    "the log shows a request without its begin or end",
    "the log's time stamps are not in order",
]


def logged(data: bytes) -> LoggedTime:
    """The requests of a portion of a log; any bytes will do, other lines are left out."""
    arrivals: list[float | None] = []
    requests: dict[int, dict[str, Any]] = {}
    strangers = 0
    for raw in data.splitlines():
        found = _LINE.search(clean(raw[:_LINE_CHARS].decode("utf-8", errors="replace")))
        if found is None:
            continue
        who, text, at = found["who"].strip(), found["text"], _seconds(found)
        if who == "server_strea" and text.startswith("conv_id=") and len(arrivals) < REQUESTS_MAX:
            arrivals.append(at)
        task = _TASK.match(text)
        if task is None:
            continue
        number = int(task["task"])
        if task["text"].startswith("processing task") and len(requests) < REQUESTS_MAX:
            requests[number] = {"task": number, "launched_s": at}
        elif number in requests:
            requests[number] |= _said(task["text"], at)
        else:
            strangers += bool(_RELEASED.match(task["text"]))
    found_requests = tuple(LoggedRequest(**fields) for fields in requests.values())
    return LoggedTime(arrivals=tuple(arrivals), requests=found_requests, strangers=strangers)


def alone(portion: LoggedTime) -> Alone | Why:
    """The request of a portion that holds exactly one, or why there is none to tell of."""
    if not portion.requests and not portion.strangers:
        return "the log holds no request"
    if max(len(portion.requests), len(portion.arrivals)) > 1:
        return "the log shows several requests"
    if portion.strangers or portion.unfinished:
        return "the log shows a request without its begin or end"
    (one,) = portion.requests
    if one.launched_s is None:
        return "the log has no time stamps: start llama-server with --log-prefix --log-timestamps"
    if not portion.arrivals:
        return "the log does not say when the request came in: start llama-server with --verbosity 4"
    (arrived,), first = portion.arrivals, one.first_token_s
    complete = None not in (one.prefill_s, one.computed_tokens, one.output_tokens)
    if arrived is None or first is None or one.told_s is None or not complete:
        return "the log shows a request without its begin or end"
    if not arrived <= one.launched_s <= first <= one.told_s:
        return "the log's time stamps are not in order"
    return Alone(
        ttft_s=first - arrived,
        total_s=one.told_s - arrived,
        prefill_s=one.prefill_s or 0.0,
        decode_s=one.decode_s or 0.0,
        prompt_tokens=one.prompt_tokens,
        computed_tokens=one.computed_tokens or 0,
        output_tokens=one.output_tokens or 0,
    )


def _said(text: str, at: float | None) -> dict[str, Any]:
    """What a later line of a request tells, as fields of `LoggedRequest`."""
    timed, released, begun = _TIMED.match(text), _RELEASED.match(text), _BEGUN.match(text)
    if timed and timed["of"] == "prompt eval":
        return {"prefill_s": float(timed["ms"]) / 1e3, "computed_tokens": int(timed["tokens"]), "told_s": at}
    if timed:
        return {"decode_s": float(timed["ms"]) / 1e3, "output_tokens": int(timed["tokens"])}
    if begun:
        return {"begun_s": at, "prompt_tokens": int(begun["tokens"])}
    return {"length": int(released["tokens"])} if released else {}


def _seconds(found: re.Match[str]) -> float | None:
    if found["m"] is None:
        return None
    return int(found["m"]) * 60 + int(found["s"]) + int(found["ms"]) / 1e3 + int(found["us"]) / 1e6
