"""The live decode rate: counted where the server counts, else reckoned from the size of earlier answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from run_helpers import suite_text

import bench.run.exchange as module
from bench.engines import get
from bench.plan.suite import parse_suite
from bench.records import Exchange, Route, ServerFacts
from bench.run.exchange import Exchanger, _counts_steps
from bench.run.openroute import OpenRoute
from bench.run.pace import Pace, bytes_per_token
from bench.run.progress import Progress
from bench.run.study import Order, start
from bench.run.wave import _onlooker
from bench.servers.simulator import load_profile
from bench.servers.simulator import start as simulate
from bench.wire.client import Client, Raw

SECOND = 1_000_000_000
SPECULATION = 'speculation = { method = "mtp", num_speculative_tokens = 2 }'


def test_the_servers_counter_goes_before_the_bytes() -> None:
    pace = Pace()
    pace.begin(200.0)
    pace.received(10 * SECOND, 1_000)
    pace.received(14 * SECOND, 1_000 + 4 * 30 * 200)  # 30 tokens a second
    assert (pace.tok_s, pace.is_estimate) == (30.0, True)
    pace.counted(11 * SECOND, 5_000)
    assert (pace.tok_s, pace.is_estimate) == (30.0, True)  # one page tells no rate
    pace.counted(13 * SECOND, 5_070)
    assert (pace.tok_s, pace.is_estimate) == (35.0, False)


def test_without_the_size_of_an_answer_bytes_tell_nothing() -> None:
    pace = Pace()
    pace.begin(None)
    pace.received(10 * SECOND, 1_000)
    pace.received(14 * SECOND, 9_000)
    assert pace.tok_s is None


def test_a_counter_that_stands_still_or_was_seen_a_moment_only_is_no_rate() -> None:
    pace = Pace()
    pace.begin(None)
    pace.counted(10 * SECOND, 500)
    pace.counted(12 * SECOND, 500)
    assert pace.tok_s is None
    pace.begin(None)
    pace.counted(10 * SECOND, 500)
    pace.counted(10 * SECOND + SECOND // 4, 600)
    assert pace.tok_s is None


def test_a_counter_that_fell_and_a_new_exchange_begin_anew() -> None:
    pace = Pace()
    pace.counted(10 * SECOND, 500)
    pace.counted(12 * SECOND, 20)  # another server
    pace.counted(14 * SECOND, 100)
    assert pace.tok_s == 40.0
    pace.begin(200.0)
    assert pace.tok_s is None


def test_a_short_answer_does_not_tell_what_a_token_takes() -> None:
    assert bytes_per_token(6_400, 32) == 200.0
    assert bytes_per_token(6_400, 31) is None
    assert bytes_per_token(6_400, None) is None


def opened(engine: str) -> OpenRoute:
    route = Route(name="a", base_url="http://127.0.0.1:1/v1")
    client = Client(route.base_url)
    return OpenRoute(
        route=route, client=client, dialect=get(engine), facts=ServerFacts(), model="m", metrics_url=None
    )


def test_only_a_counter_that_moves_with_every_step_is_a_witness() -> None:
    assert _counts_steps(opened("vllm"))
    assert not _counts_steps(opened("llamacpp"))  # all of an answer is counted at its end
    assert not _counts_steps(opened("sglang"))


async def _nowhere(name: str, page: str) -> str:
    return name


def test_bytes_count_from_the_first_text_on(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100 * SECOND]
    monkeypatch.setattr(module.time, "monotonic_ns", lambda: now[0])
    progress = Progress()
    progress.pace.begin(100.0)
    progress.enter("prefill", now[0])
    look = _onlooker(progress, [0], 0)
    look(False, 50_000)  # pings
    for second, size in ((101, 50_300), (102, 52_300), (103, 54_300)):
        now[0] = second * SECOND
        look(True, size)
    assert progress.phase == "decode" and progress.pace.tok_s == 20.0


def test_a_wave_counts_the_bytes_of_all_its_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100 * SECOND]
    monkeypatch.setattr(module.time, "monotonic_ns", lambda: now[0])
    progress = Progress(together=2)
    progress.pace.begin(100.0)
    progress.enter("prefill", now[0])
    sizes = [0, 0]
    first, second = (_onlooker(progress, sizes, place) for place in (0, 1))
    first(True, 1_000)
    second(False, 0)
    now[0] += 2 * SECOND
    first(True, 3_000)
    second(True, 2_000)
    assert progress.with_text == 2 and progress.pace.tok_s == 20.0


def test_each_answer_teaches_the_size_of_a_token_of_its_route(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[tuple[Exchanger, float | None, int, int | None]] = []
    learn = Exchanger._learn

    def learnt(self: Exchanger, one: OpenRoute, raws: list[Raw], found: list[Exchange]) -> None:
        usage = found[0].usage
        tokens = usage.completion_tokens if usage else None
        answers.append((self, self._progress.pace.bytes_per_token, raws[0].recorder.size, tokens))
        learn(self, one, raws, found)

    monkeypatch.setattr(Exchanger, "_learn", learnt)
    with simulate(load_profile("toy"), speed=50) as server:
        text = suite_text({"a": server.base_url}, suite='conditions = ["cold"]\n', route=SPECULATION)
        text = text.replace("output_tokens = 16", "output_tokens = 40").replace("[256, 512]", "[256]")
        asyncio.run(start(Order(suite=parse_suite(text), suite_text=text, results=tmp_path), Progress()))
    _, known, sizes, tokens = zip(*(one for one in answers if one[0] is answers[-1][0]), strict=True)
    assert tokens[:3] == (8, 40, 40)  # the warm-up is too short to tell
    assert known[:2] == (None, None)
    assert known[2:] == tuple(size / 40 for size in sizes[1:-1])
