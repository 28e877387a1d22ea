"""Metrics pages: fetched or explained, waited on with a clock of our own, sampled without disturbing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import httpx
import pytest
from handled import Handled

from bench import engines
from bench.engines.base import Dialect
from bench.engines.metrics import read_page
from bench.records import Samples, Scrape, Usage
from bench.wire.client import Client
from bench.wire.sampler import Sampler
from bench.wire.scrape import Look, Wait, scrape, wait_idle, wait_settled, wait_still

PAGE = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0"} 1.0
vllm:num_requests_waiting{engine="0"} 0.0
vllm:generation_tokens_total{engine="0"} 96.0
"""


def dialect() -> Dialect:
    return engines.get("vllm")


def fetch(handler: Callable[[httpx.Request], httpx.Response]) -> tuple[Scrape, str | None]:
    async def main() -> tuple[Scrape, str | None]:
        async with Client("http://host/v1", transport=Handled(handler)) as client:
            return await scrape(client, "http://host/metrics", dialect(), timeout_s=1.0)

    return asyncio.run(main())


@pytest.mark.parametrize("padding", [0, 100_000])
def test_a_page_is_read_through_its_dialect_and_its_text_kept(padding: int) -> None:
    text = PAGE + "# " + "x" * padding + "\n"
    page, raw = fetch(lambda r: httpx.Response(200, text=text))
    assert raw == text
    assert (page.status, page.problem) == (200, None)
    assert (page.values["running"], page.values["waiting"], page.values["generation_tokens"]) == (1, 0, 96)
    assert page.took_ns > 0


@pytest.mark.parametrize(
    ("answer", "status", "problem"),
    [
        (httpx.Response(404, text=""), 404, "GET http://host/metrics: HTTP 404"),
        (httpx.Response(200, text="<html>"), 200, "no metrics page"),
    ],
)
def test_a_page_that_cannot_be_had_says_why(answer: httpx.Response, status: int, problem: str) -> None:
    page, _ = fetch(lambda r: answer)
    assert page.status == status
    assert problem in (page.problem or "")
    assert page.values == {}


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def page(**values: float) -> Scrape:
    return Scrape(at_ns=0, took_ns=0, status=200, values=values)


GONE = Scrape(at_ns=0, took_ns=0, problem="no answer")
NO_METRICS = Scrape(at_ns=0, took_ns=0, status=404, problem="HTTP 404")


def looks(*pages: Scrape) -> Look:
    """Shows these pages one after the other, the last one for ever."""
    shown: Iterator[Scrape] = iter(pages)
    last = pages[-1]

    async def look() -> Scrape:
        return next(shown, last)

    return look


def idle(*pages: Scrape, limit_s: float = 10.0, engine: str = "vllm") -> tuple[Wait, Time]:
    time = Time()
    wait = asyncio.run(
        wait_idle(
            looks(*pages),
            engines.get(engine),
            limit_s=limit_s,
            period_s=1.0,
            clock=time.clock,
            sleep=time.sleep,
        )
    )
    return wait, time


def test_an_idle_server_is_not_waited_for() -> None:
    wait, time = idle(page(running=0, waiting=0))
    assert (wait.reached, wait.waited_s, time.pauses) == (True, 0, [])


def test_a_busy_server_is_looked_at_until_it_is_idle() -> None:
    wait, time = idle(
        page(running=1, waiting=0), GONE, page(running=0, waiting=1), page(running=0, waiting=0)
    )
    assert (wait.reached, time.pauses) == (True, [1, 1, 1])


def test_waiting_for_idle_is_bounded() -> None:
    wait, time = idle(page(running=1, waiting=0), limit_s=3.5)
    assert (wait.reached, wait.waited_s, time.pauses) == (False, 3.5, [1, 1, 1, 0.5])
    assert wait.last == page(running=1, waiting=0)


@pytest.mark.parametrize("silent", [page(generation_tokens=1), NO_METRICS])
def test_a_page_that_cannot_tell_ends_the_wait(silent: Scrape) -> None:
    wait, time = idle(silent)
    assert (wait.reached, time.pauses) == (None, [])


def test_a_server_that_refuses_at_once_again_and_again_is_gone_and_not_waited_for() -> None:
    wait, time = idle(GONE, page(running=1, waiting=0), GONE, GONE, GONE, limit_s=900.0)
    assert (wait.reached, time.pauses) == (None, [1, 1, 1, 1])


def test_a_server_that_is_too_busy_to_answer_is_looked_at_for_as_long_as_the_limit_says() -> None:
    late = Scrape(at_ns=0, took_ns=30_000_000_000, problem="no answer within 30 s")
    wait, _ = idle(*[late] * 8, page(running=0, waiting=0))
    assert wait.reached is True


def sglang_page(running: int, waiting: int, begun: int, ended: int, used: int) -> Scrape:
    labels = 'model_name="m",engine_type="unified"'
    text = f"""sglang:num_running_reqs{{{labels},tp_rank="0"}} {running}.0
sglang:num_queue_reqs{{{labels},tp_rank="0"}} {waiting}.0
sglang:num_used_tokens{{{labels},tp_rank="0"}} {used}.0
sglang:time_to_first_token_seconds_sum{{{labels}}} 7.5
sglang:time_to_first_token_seconds_count{{{labels}}} {begun}.0
sglang:num_requests_total{{{labels}}} {ended}.0
"""
    page = read_page(text, engines.get("sglang"))
    assert page.problem is None
    return Scrape(at_ns=0, took_ns=0, status=200, values=page.values)


def test_a_gauge_that_lags_is_not_believed_when_all_that_began_has_ended() -> None:
    stale = sglang_page(running=1, waiting=0, begun=5, ended=5, used=800)
    wait, _ = idle(stale, engine="sglang", limit_s=900.0)
    assert (wait.reached, wait.waited_s) == (True, 1.0)
    same = page(**stale.values)
    assert idle(same, engine="vllm")[0].reached is False  # whose gauges tell of now


def test_a_gauge_that_lags_is_not_believed_when_the_page_stands_still_for_long() -> None:
    """Requests that were given up are counted twice, or never."""
    for ended in (4, 6):
        stale = sglang_page(running=1, waiting=0, begun=5, ended=ended, used=800)
        wait, _ = idle(stale, engine="sglang")
        assert wait.reached is True and 5.0 <= wait.waited_s < 7.0


@pytest.mark.parametrize("ended", [4, 5])
def test_gauges_that_lag_are_believed_while_the_cache_fills_or_requests_queue(ended: int) -> None:
    decoding = [sglang_page(1, 0, begun=5, ended=ended, used=800 + 40 * look) for look in range(20)]
    assert idle(*decoding, engine="sglang")[0].reached is False
    queued = sglang_page(running=1, waiting=1, begun=5, ended=ended, used=800)
    assert idle(queued, engine="sglang")[0].reached is False
    renewed = sglang_page(running=0, waiting=0, begun=5, ended=ended, used=0)
    wait, _ = idle(queued, renewed, engine="sglang")
    assert (wait.reached, wait.waited_s) == (True, 1.0)


def still(*pages: Scrape, limit_s: float = 10.0) -> Wait:
    time = Time()
    return asyncio.run(
        wait_still(
            looks(*pages), still_s=2.0, limit_s=limit_s, period_s=1.0, clock=time.clock, sleep=time.sleep
        )
    )


def test_a_page_stands_still_when_it_has_not_changed_for_that_long() -> None:
    one, two = page(generation_tokens=1), page(generation_tokens=2)
    assert (still(one).reached, still(one).waited_s) == (True, 2.0)
    assert (still(one, two, one).reached, still(one, two, one).waited_s) == (True, 4.0)


def test_a_page_that_never_stands_still_or_never_comes_is_given_up() -> None:
    moving = [page(generation_tokens=count) for count in range(20)]
    assert (still(*moving, limit_s=5.0).reached, still(*moving, limit_s=5.0).waited_s) == (False, 5.0)
    assert (still(NO_METRICS).reached, still(NO_METRICS).waited_s) == (None, 0.0)


def settle(before: Scrape, *pages: Scrape, failed: bool = False) -> tuple[Wait, Time]:
    time = Time()
    wait = asyncio.run(
        wait_settled(
            looks(*pages),
            dialect(),
            before,
            Usage(prompt_tokens=100, completion_tokens=8),
            failed=failed,
            limit_s=1.0,
            period_s=0.1,
            clock=time.clock,
            sleep=time.sleep,
        )
    )
    return wait, time


BEFORE = page(prompt_tokens=1000, generation_tokens=50, requests_finished=3, running=0, waiting=0)
PARTLY = page(prompt_tokens=1100, generation_tokens=57, requests_finished=3, running=1, waiting=0)
DONE = page(prompt_tokens=1100, generation_tokens=58, requests_finished=4, running=0, waiting=0)


def test_settled_is_when_all_of_our_tokens_and_our_end_are_counted() -> None:
    wait, time = settle(BEFORE, BEFORE, PARTLY, DONE)
    assert (wait.reached, wait.last, len(time.pauses)) == (True, DONE, 2)


def test_a_counter_that_could_not_be_read_before_is_not_taken_for_one_that_started_at_zero() -> None:
    left = {name: value for name, value in BEFORE.values.items() if name != "requests_finished"}
    before = Scrape(at_ns=0, took_ns=0, status=200, values=left, unknown=("requests_finished",))
    early = page(**BEFORE.values | {"requests_finished": BEFORE.values["requests_finished"] + 1})
    wait, _ = settle(before, early, DONE)
    assert (wait.reached, wait.last) == (True, DONE)


def test_a_page_with_a_torn_line_says_which_name_is_unknown() -> None:
    torn = PAGE.replace('generation_tokens_total{engine="0"} 96.0', "generation_tokens_total{eng")
    page, _ = fetch(lambda r: httpx.Response(200, text=torn))
    assert (page.values, page.unknown) == ({"running": 1, "waiting": 0}, ("generation_tokens",))


def test_what_never_settles_is_given_up() -> None:
    wait, _ = settle(BEFORE, PARTLY)
    assert (wait.reached, wait.waited_s) == (False, 1.0)


def test_after_a_failure_two_equal_pages_of_an_idle_server_are_the_sign() -> None:
    stale = page(prompt_tokens=1100, generation_tokens=54, requests_finished=3, running=0, waiting=0)
    wait, time = settle(BEFORE, PARTLY, PARTLY, stale, stale, failed=True)
    assert (wait.reached, wait.last, len(time.pauses)) == (True, stale, 3)


def test_counters_that_fell_and_stay_down_end_the_wait_without_being_settled() -> None:
    fresh = page(prompt_tokens=0, generation_tokens=3, requests_finished=0, running=1, waiting=0)
    ended = page(prompt_tokens=0, generation_tokens=4, requests_finished=1, running=0, waiting=0)
    wait, time = settle(BEFORE, BEFORE, fresh, fresh, ended, ended)
    assert (wait.reached, wait.last, len(time.pauses)) == (None, ended, 4)


# --- sampler


def sample(*pages: Scrape, cost_s: float, period_s: float = 1.0) -> tuple[Samples, list[float]]:
    """Runs a sampler over these pages; each look costs `cost_s`."""
    time = Time()
    shown = iter(pages)

    async def main() -> Samples:
        ended = asyncio.Event()

        async def look() -> Scrape:
            time.now += cost_s
            found = next(shown, None)
            if found is None:
                ended.set()
                await asyncio.Event().wait()
            assert found is not None
            now_ns = round(time.now * 1e9)
            return Scrape(at_ns=now_ns, took_ns=round(cost_s * 1e9), status=200, values=found.values)

        sampler = Sampler(look, period_s=period_s, clock_ns=lambda: round(time.now * 1e9), sleep=time.sleep)
        async with sampler:
            await ended.wait()
        return sampler.samples(sent_ns=1_000_000_000, ended_ns=4_000_000_000)

    return asyncio.run(main()), [round(pause, 9) for pause in time.pauses]


def test_samples_stand_in_columns_with_times_after_sent() -> None:
    samples, pauses = sample(
        page(kv_usage=0.1, running=1), page(), page(kv_usage=0.5, waiting=2, drafts=7), cost_s=0.01
    )
    assert pauses == [0.02, 0.99, 0.99, 0.99]
    assert samples == Samples(
        at_ns=(-970_000_000, 1_030_000_000),
        took_ns=(10_000_000, 10_000_000),
        kv_usage=(0.1, 0.5),
        running=(1, None),
        waiting=(None, 2),
        drafts=(None, 7),
        accepted_tokens=(None, None),
    )


def test_a_slow_page_is_asked_for_less_often() -> None:
    _, pauses = sample(page(running=1), page(running=1), cost_s=0.2)
    assert pauses == [0.02, 4.0, 4.0]


def test_samples_after_the_end_are_left_out() -> None:
    samples, _ = sample(*[page(running=1)] * 6, cost_s=0.0)
    assert samples.at_ns == tuple((i - 1) * 1_000_000_000 + 20_000_000 for i in range(4))


def test_a_sampler_that_breaks_is_heard_of() -> None:
    async def broken() -> Scrape:
        raise RuntimeError("boom")

    async def main() -> None:
        async def at_once(_: float) -> None:
            return None

        async with Sampler(broken, sleep=at_once):
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="boom"):
        asyncio.run(main())


def test_after_a_failure_a_server_that_refuses_again_and_again_went_down_with_it() -> None:
    before = page(generation_tokens=1)
    assert settle(before, GONE, GONE, GONE, failed=True)[0].reached is None
    assert settle(before, *[GONE] * 40)[0].reached is False
