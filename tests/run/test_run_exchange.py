"""What is timed around a request, and what is not."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest

from bench.engines import get
from bench.errors import EngineError
from bench.records import Route, ServerFacts
from bench.run.exchange import Exchanger
from bench.run.openroute import OpenRoute
from bench.run.progress import Progress
from bench.wire.client import Client


class Clock:
    """Stands still, but for what is said to take time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("bench.run.exchange.time.monotonic", lambda: self.now)


class Tokenizing:
    """A server whose /tokenize takes two seconds."""

    def __init__(self, clock: Clock, answer: str | EngineError) -> None:
        self.clock, self.answer = clock, answer

    async def post_text(self, url: str, body: object, *, timeout_s: float) -> str:
        self.clock.now += 2.0
        if isinstance(self.answer, EngineError):
            raise self.answer
        return self.answer


def timed(clock: Clock, answer: str | EngineError) -> tuple[dict[str, float] | None, float]:
    """What `time_tokenizer` finds, and the time it has charged to the server."""
    vllm = get("vllm")

    def slowly(found: object) -> list[int]:
        clock.now += 30.0
        return vllm.read_tokens(found)

    async def nothing(name: str, page: str) -> str:
        return name

    opened = OpenRoute(
        route=Route(name="a", base_url="http://host/v1"),
        client=cast(Client, cast(Any, Tokenizing(clock, answer))),
        dialect=msgspec.structs.replace(vllm, read_tokens=slowly),
        facts=ServerFacts(),
        model="m",
        metrics_url=None,
    )
    exchanger = Exchanger(nothing, Progress())
    return asyncio.run(exchanger.time_tokenizer(opened, "text")), exchanger.server_s


def test_reading_the_ids_is_no_time_of_the_servers_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    found, charged = timed(Clock(monkeypatch), '{"count": 3, "tokens": [7, 8, 9]}')
    assert found == {"tokens": 3, "seconds": 2.0}
    assert charged == 2.0


@pytest.mark.parametrize("answer", ["{", "[" * 5000, '{"tokens": "7"}', EngineError("gone")])
def test_a_tokenizer_that_gives_no_ids_is_not_timed(
    answer: str | EngineError, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, charged = timed(Clock(monkeypatch), answer)
    assert found is None
    assert charged == 2.0
