"""When chunks leave: prepared before they are due where there is time, and never handed over early."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from simulator_client import simulator

from bench.servers.simulator.core import Passage
from bench.servers.simulator.driver import Driver
from bench.servers.simulator.engine import Engine
from bench.servers.simulator.profiles import load_profile
from bench.servers.simulator.reply import Outlet
from bench.servers.simulator.sequence import Emission, Job
from bench.servers.simulator.truth import RequestTruth


class Loop:
    """A clock, and an event loop with one timer: time passes only in `turn`."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.timer: tuple[int, Callable[..., None], tuple[float, ...]] | None = None

    def clock_ns(self) -> int:
        return self.now_ns

    def call_later(self, delay_s: float, callback: Callable[..., None], *arguments: float) -> Any:
        self.timer = (self.now_ns + round(delay_s * 1e9), callback, arguments)
        return SimpleNamespace(cancel=lambda: None)

    def turn(self) -> None:
        assert self.timer is not None
        (at_ns, callback, arguments), self.timer = self.timer, None
        self.now_ns = max(self.now_ns + 1, at_ns)  # a clock never stands still
        callback(*arguments)


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    fake = Loop()
    monkeypatch.setattr("bench.servers.simulator.driver.asyncio.get_running_loop", lambda: fake)
    return fake


def handed_out(loop: Loop, speed: float) -> list[int]:
    """How long before it was due each emission of a request came out of the driver, in ns."""
    driver = Driver(Engine(load_profile("toy")), speed, clock_ns=loop.clock_ns)
    prompt = np.arange(4000, dtype=np.uint32)
    job = Job(id="a", prompt=prompt, answer=prompt[:12], arrived_s=0.0)
    _, queue = driver.submit(job)
    early = []
    while loop.timer is not None:
        loop.turn()
        while not queue.empty():
            emission = queue.get_nowait()
            assert isinstance(emission, Emission)
            early.append(driver.wall_ns(emission.at_s) - loop.now_ns)
    return early


def test_a_chunk_that_is_far_off_is_made_two_milliseconds_before_it_is_due(loop: Loop) -> None:
    early = handed_out(loop, speed=0.1)  # steps of 50 ms
    assert len(early) > 3
    assert early == pytest.approx([2_000_000] * len(early), abs=2)


def test_decode_steps_close_to_each_other_end_when_they_are_due_and_first_tokens_are_made_early(
    loop: Loop,
) -> None:
    # 2,048 tokens are a step of 44.6 ms (2 ms to start, 20 us each, 0.4 ns x 2,048^2), the other 1,952
    # one of 43.8 ms, and a decode step takes 4.8 ms: a tenth of that each.
    first, *others = handed_out(loop, speed=10)
    assert first == pytest.approx(2_000_000, abs=2)
    assert others == pytest.approx([0] * len(others), abs=2)


def test_a_first_token_is_made_early_by_less_than_its_own_step(loop: Loop) -> None:
    first, *_ = handed_out(loop, speed=100)  # a step of 0.438 ms
    assert 0 < first < 438_000


def test_a_chunk_made_early_waits_for_its_time_and_a_late_one_does_not() -> None:
    looks = iter(range(0, 10_000_000, 400_000))
    driver = Driver(Engine(load_profile("toy")), 1.0, clock_ns=lambda: next(looks))  # looks at 0 first
    asyncio.run(driver.until(2_000_000))
    assert next(looks) == 2_400_000, "the look at 2.0 ms was the last"
    asyncio.run(driver.until(1_000_000))
    assert next(looks) == 3_200_000, "one look"


def test_the_role_leaves_in_one_write_with_the_first_text() -> None:
    sent: list[bytes] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message["body"])

    async def until(due_ns: int) -> None:
        sent.append(b"(waits)")

    truth = RequestTruth(id="a", number=1, endpoint="chat", prompt_tokens=9, max_tokens=4, arrived_ns=0)
    passage = SimpleNamespace(truth=truth, faults=frozenset(), driver=SimpleNamespace(until=until))
    outlet = Outlet(send, cast("Passage", passage))
    asyncio.run(outlet.events(b"{role}", b"{text}", due_ns=5, tokens=1))
    assert sent == [b"(waits)", b"data: {role}\n\ndata: {text}\n\n"]
    assert (truth.chunk_due_ns, truth.chunk_tokens) == ([5], [1])


@pytest.mark.parametrize(("speed", "tokens"), [(0.2, 1), (1, 40), (500, 40)])  # 0.2: a first token far off
@pytest.mark.parametrize("stream", [True, False])
def test_nothing_is_handed_over_before_it_is_due_and_every_overrun_is_told(
    speed: float, tokens: int, stream: bool
) -> None:
    with simulator(speed=speed) as client:
        reply = client.post("/v1/chat/completions", client.body(stream=stream, max_tokens=tokens))
        assert reply.status_code == 200
        truth = client.truth()
    late = [sent - due for due, sent in zip(truth.chunk_due_ns, truth.chunk_sent_ns, strict=True)]
    assert min(late) >= 0
    assert truth.overrun_max_s == max(late) / 1e9
