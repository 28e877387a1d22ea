"""Waves built by hand: requests that ran together, with the pages around them in the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from analysis_cases import exchange, page, run

from bench.analysis.verdicts.measure import Measurer
from bench.records import Exchange, Measurement, RunInfo, Scrape, Wave

SEC = 1_000_000_000


def wave(
    size: int = 2,
    *,
    before: Scrape | None = None,
    after: Scrape | None = None,
    condition: str = "cold",
    name: str = "w1",
    members: Sequence[dict[str, Any]] = (),
    **more: Any,
) -> list[Exchange]:
    """A wave of the route `r`, released at second 10; each member is sent a millisecond after the last.

    `members`: what one of them has besides what all have (`more`); prompts are p1, p2, ...
    """
    found = []
    for stream in range(1, size + 1):
        own = members[stream - 1] if members else {}
        one = exchange(condition, **{"sha": f"p{stream}", **more, **own})
        trial = msgspec.structs.replace(
            one.trial, id=f"{one.trial.id}@{size}.{stream}", concurrency=size, stream=stream
        )
        one = msgspec.structs.replace(
            one,
            trial=trial,
            wave=Wave(id=name, size=size, released_ns=10 * SEC),
            sent_ns=10 * SEC + stream * 1_000_000,
            settled=stream == 1,
        )
        found.append(one)
    found[0] = msgspec.structs.replace(found[0], before=before, after=after)
    return found


def pages(
    size: int,
    *,
    since: Scrape | None = None,
    prompt: float = 1000,
    output: float = 64,
    cached: float = 0,
    **more: float,
) -> tuple[Scrape, Scrape]:
    """Pages around a wave of equal requests that nobody disturbed; `since`: the page it begins with."""
    rises = {
        "requests_finished": size,
        "prompt_tokens": size * prompt,
        "generation_tokens": size * output,
        "prefix_hits": cached,
        "running": 0,
        "waiting": 0,
        **more,
    }
    before = since if since is not None else page(**{name: 0.0 for name in rises})
    return before, page(**{name: before.values.get(name, 0.0) + rise for name, rise in rises.items()})


def with_start(scrape: Scrape, process_start: float) -> Scrape:
    """The page of a server process that started then."""
    return msgspec.structs.replace(scrape, values={**scrape.values, "process_start": process_start})


def measured(*waves: Sequence[Exchange], info: RunInfo | None = None) -> list[Measurement]:
    """Measurements of the last of several waves of one run."""
    measurer = Measurer(run() if info is None else info)
    found: list[Measurement] = []
    for one in waves:
        found = [m for member in one for m in measurer.take(member)]
    return found or measurer.end()
