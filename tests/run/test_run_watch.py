"""Watching servers that somebody else uses: a simulated one, a real one, and odd ones."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from bench.analysis.watch.described import Watched
from bench.analysis.watch.journal import LogLine, Seen
from bench.analysis.watch.totals import Totals, total
from bench.cli.watch import watch as watch_command
from bench.engines import get
from bench.engines.metrics import read_page
from bench.errors import EngineError, JournalError, SuiteError
from bench.journal import Journal, read_entries, read_info
from bench.records import Event, RunInfo, Scrape, ServerFacts
from bench.report.watch.lines import line, log_head, totals_line
from bench.run.watch.kept import tell_again
from bench.run.watch.log import LogWatch
from bench.run.watch.order import WatchOrder, metrics_address
from bench.run.watch.watcher import Hearer, Keeper, Watcher, watch
from bench.servers.child import serving
from bench.servers.simulator import start as simulate
from bench.servers.simulator.profiles import Profile, load_profile

CLIENT = Path(__file__).with_name("watch_client.py")
RUN = Path(__file__).parent.parent / "data" / "run-small"
PAGES = Path(__file__).parent.parent / "recordings" / "pages"
PROMPT = "The quick brown fox jumps over the lazy dog, and then it walks home again. "


class Told:
    """What a watch told."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.notes: list[str] = []
        self.totals = Totals()
        self.began = asyncio.Event()
        self.saw = threading.Event()
        self.watched_s: list[float] = []
        self.hearer = Hearer(seen=self._see, note=self._note, ended=self.watched_s.append)

    def _see(self, seen: Seen) -> None:
        self.seen.append(seen)
        self.saw.set()

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self.began.set()

    @property
    def watched(self) -> list[Watched]:
        return [one.watched for one in self.seen]


def client(base_url: str, prompt: str, *, at_once: int, tokens: int) -> subprocess.Popen[str]:
    """The other process, on its way."""
    command = [sys.executable, str(CLIENT), base_url, *map(str, (at_once, tokens))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin
    process.stdin.write(prompt)
    process.stdin.close()
    return process


def answers(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    assert process.stdout
    text = process.stdout.read()
    process.stdout.close()
    assert process.wait(timeout=300) == 0
    return [json.loads(one) for one in text.splitlines()]


def twice(base_url: str, prompt: str, *, tokens: int) -> Callable[[Told], list[dict[str, Any]]]:
    """Another process sends a prompt, and another one sends it again once the first was seen."""

    def act(told: Told) -> list[dict[str, Any]]:
        said = answers(client(base_url, prompt, at_once=1, tokens=tokens))
        assert told.saw.wait(60)
        return said + answers(client(base_url, prompt, at_once=1, tokens=tokens))

    return act


def observe(
    order: WatchOrder, act: Callable[[Told], list[dict[str, Any]]]
) -> tuple[Told, list[dict[str, Any]]]:
    """Watches while somebody else acts, from before to after."""
    told = Told()

    async def both() -> list[dict[str, Any]]:
        watching = asyncio.create_task(watch(order, told.hearer, told.totals))
        await asyncio.wait_for(told.began.wait(), 60)
        said = await asyncio.to_thread(act, told)
        await asyncio.wait_for(watching, 120)
        return said

    return told, asyncio.run(both())


# --- Simulated vLLM -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def slow() -> Profile:
    """Two seconds for a thousand cold tokens, one for a replay: far above what a client's clock adds."""
    toy = load_profile("toy")
    timing = msgspec.structs.replace(toy.timing, start_s=0.0, token_s=1e-3, cached_token_s=5e-4)
    return msgspec.structs.replace(toy, timing=timing)


def test_a_cold_and_a_replayed_chat_of_another_process_are_both_derived(
    slow: Profile, tmp_path: Path
) -> None:
    with simulate(slow) as server:
        order = WatchOrder(url=server.base_url, every_s=0.1, requests=2, out=tmp_path / "w")
        told, said = observe(order, twice(server.base_url, PROMPT * 100, tokens=24))
        truth = server.truth().requests
    assert len(truth) == 2  # the client's: none is ours
    assert [one.kind for one in told.watched] == ["request", "request"]
    for one, reply, real in zip(told.watched, said, truth, strict=True):
        usage = reply["usage"]
        assert one.prompt_tokens == usage["prompt_tokens"] == real.prompt_tokens
        assert one.output_tokens == usage["completion_tokens"] == 24
        assert one.cached_tokens == usage["prompt_tokens_details"]["cached_tokens"] == real.cached_tokens
        assert (one.drafts, one.accepted_tokens) == (real.drafts, real.accepted_tokens)
        # The server's is never the longer one; how much later the client is says how busy both are.
        assert one.server_ttft_s is not None and real.ttft_s is not None
        assert one.server_ttft_s == pytest.approx(real.ttft_s, abs=0.1 + real.overrun_max_s)
        assert one.server_ttft_s <= reply["ttft_s"] + 0.001
        assert one.queue_s == 0.0 and one.kv_usage_peak is not None
    assert told.watched[0].cached_tokens == 0 and (told.watched[1].prefix_reuse or 0) > 0.9
    check_kept(tmp_path / "w", told)


def check_kept(path: Path, told: Told) -> None:
    """The run directory gives the same again, and its raw pages the same counts."""
    info, again = read_info(path), Told()
    tell_again(path, again.hearer, again.totals)
    assert info.plan == () and info.suite.name == "watch" and "no request was sent" in info.notes[0]
    assert (again.seen, again.totals, again.watched_s) == (told.seen, told.totals, told.watched_s)
    for one in again.seen:
        values = []
        for name in (one.before, one.after):
            assert name is not None
            text = gzip.decompress((path / name).read_bytes()).decode()
            values.append(read_page(text, get("vllm")).values["prompt_tokens"])
        assert values[1] - values[0] == one.watched.prompt_tokens
    last = list(read_entries(path))[-1]
    assert isinstance(last, Event) and last.name == "watch ended"


def test_overlapping_requests_are_said_to_overlap_and_not_split() -> None:
    with simulate("toy", speed=0.05) as server:
        order = WatchOrder(url=server.origin, every_s=0.05, requests=2)
        told, said = observe(
            order, lambda _: answers(client(server.base_url, PROMPT * 30, at_once=2, tokens=24))
        )
    (window,) = told.watched
    assert (window.kind, window.requests, window.output_tokens) == ("window", 2, 48)
    assert "2 requests overlapped" in window.why
    assert window.prompt_tokens == sum(reply["usage"]["prompt_tokens"] for reply in said)
    assert line(window).startswith("2 requests overlapped (not split")


# --- Real llama.cpp -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def llama() -> Iterator[str]:
    with serving(["llama", "--context", "512"]) as child:
        yield child.base_url


def test_llamacpp_gives_exact_tokens_and_its_seconds_of_prefill(llama: str) -> None:
    """It offers no TTFT: its seconds of computing are a lower bound of the client's."""
    order = WatchOrder(url=llama, every_s=0.1, requests=2)
    told, said = observe(order, twice(llama, PROMPT * 2, tokens=8))
    assert [one.kind for one in told.watched] == ["request", "request"]
    for one, reply in zip(told.watched, said, strict=True):
        usage = reply["usage"]
        assert one.prompt_tokens == usage["prompt_tokens"]
        assert one.cached_tokens == usage["prompt_tokens_details"]["cached_tokens"]
        assert one.output_tokens == usage["completion_tokens"] == 8
        assert one.proof.startswith("/slots")
        assert one.server_ttft_s is None and "no histogram" in one.absent["server_ttft_s"]
        assert one.prefill_s is not None and 0 < one.prefill_s < reply["ttft_s"]
        assert one.server_decode_s is not None and one.server_decode_s < reply["total_s"]
        assert one.acceptance is None and one.absent["acceptance"] == "nothing was drafted"
    cold, replay = told.watched
    assert (cold.cached_tokens or 0) <= 5
    assert replay.cached_tokens == (replay.prompt_tokens or 0) - 1


def test_llamacpp_with_overlapping_requests_is_not_split(llama: str) -> None:
    order = WatchOrder(url=llama, every_s=0.05, requests=1)
    told, said = observe(order, lambda _: answers(client(llama, PROMPT * 3, at_once=2, tokens=12)))
    (window,) = told.watched
    assert (window.kind, window.why, window.output_tokens) == ("window", "2 requests overlapped", 24)
    assert window.prompt_tokens == sum(reply["usage"]["prompt_tokens"] for reply in said)
    assert window.prefill_s is None and "slots together" in window.absent["prefill_s"]


class Chatter:
    """One process that holds a chat while others watch, and what was watched of it."""

    def __init__(self, base_url: str, told: Told) -> None:
        command = [sys.executable, str(CLIENT), base_url, "chat", "3"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._told = told
        self._asked = 0

    def ask(self, messages: list[dict[str, str]]) -> tuple[dict[str, Any], Watched]:
        """The client's own account of a request, and the watch's."""
        assert self._process.stdin and self._process.stdout
        self._told.saw.clear()
        self._process.stdin.write(json.dumps(messages) + "\n")
        self._process.stdin.flush()
        reply = json.loads(self._process.stdout.readline())
        assert self._told.saw.wait(120)
        self._asked += 1
        assert len(self._told.watched) == self._asked
        return reply, self._told.watched[-1]

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        assert self._process.wait(timeout=60) == 0


def check_counts(reply: dict[str, Any], one: Watched) -> None:
    usage = reply["usage"]
    assert (one.kind, one.prompt_tokens, one.output_tokens) == ("request", usage["prompt_tokens"], 3)
    assert one.cached_tokens == usage["prompt_tokens_details"]["cached_tokens"]
    assert one.sources["server_ttft_s"].startswith("log: ") and one.notes == ()


def is_near(reply: dict[str, Any], one: Watched) -> bool:
    """Within 5% of the client's TTFT and the 2 ms that only the client sees: of the request's way in
    (HTTP, JSON, template) and of the first chunk's way out. A replay takes 20 to 40 ms in all here."""
    client_s, server_s = reply["ttft_s"], one.server_ttft_s or 0.0
    return bool(abs(client_s - server_s) <= 0.05 * client_s + 0.002)


def test_llamacpp_tells_the_ttft_of_cold_turn_and_replay_by_its_log(tmp_path: Path) -> None:
    log, told = tmp_path / "server.log", Told()

    def held(base_url: str) -> set[str]:
        """Asks until each kind of request was near once; the counts are right every time."""
        chatter, near = Chatter(base_url, told), set[str]()

        def ask(kind: str, messages: list[dict[str, str]]) -> tuple[str, Watched]:
            reply, one = chatter.ask(messages)
            check_counts(reply, one)
            near.update({kind} if is_near(reply, one) else set())
            return reply["text"], one

        for number in range(20):
            if not near >= {"cold", "next turn"}:
                begun = [{"role": "user", "content": f"{number}. {PROMPT * 12}"}]
                said, cold = ask("cold", begun)
                answer = {"role": "assistant", "content": said}
                chat = [*begun, answer, {"role": "user", "content": PROMPT * 4}]
                _, turn = ask("next turn", chat)
                whole = turn.prompt_tokens or 0
                assert (cold.cached_tokens or 0) < 50 < (turn.cached_tokens or 0) < whole - 20
            for _ in range(5):
                _, replay = ask("replay", chat)
                assert replay.cached_tokens == (replay.prompt_tokens or 0) - 1
                if len(near) == 3:
                    chatter.close()
                    return near
        return near

    async def both() -> set[str]:
        with serving(["llama", "--context", "1024"], log=log) as child:
            order = WatchOrder(url=child.base_url, every_s=0.05, log=str(log))
            watching = asyncio.create_task(watch(order, told.hearer, told.totals))
            await asyncio.wait_for(told.began.wait(), 60)
            near = await asyncio.to_thread(held, child.base_url)
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        return near

    assert asyncio.run(both()) == {"cold", "next turn", "replay"}


# --- A server that remembers what it was asked ----------------------------------------------------


@contextmanager
def served(answer: Callable[[], str], asked: list[str] | None = None) -> Iterator[str]:
    """An HTTP server that gives this answer to every request; its address. `asked` takes all requests."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = answer().encode()
            if asked is not None:
                asked.append(f"{self.command} {self.path}")
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_PUT = do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def stub(*pages: str) -> Iterator[tuple[str, list[str]]]:
    """An HTTP server with these pages, the last one for ever; its address, and all requests it got."""
    asked: list[str] = []
    with served(lambda: pages[min(asked.count("GET /metrics"), len(pages) - 1)], asked) as url:
        yield url, asked


@pytest.mark.parametrize(
    "name", ["vllm-0.32-mtp4/metrics_1_after_cold.prom", "others/sglang_0.5.23_mtp_after_cold.prom"]
)
def test_a_watched_server_gets_no_request_but_for_its_metrics_page(name: str) -> None:
    told = Told()
    with stub((PAGES / name).read_text()) as (url, asked):
        asyncio.run(watch(WatchOrder(url=f"{url}/v1", every_s=0.02, for_s=0.2), told.hearer, told.totals))
    assert len(asked) > 2
    assert set(asked) == {"GET /metrics"}
    assert told.seen == []


def test_llamacpp_is_asked_for_its_slots_once_after_a_request_and_may_refuse() -> None:
    told = Told()
    folder = PAGES / "llamacpp-11549-target-only"
    before, after = ((folder / f"metrics_{n}.prom").read_text() for n in ("1_after_cold", "2_after_salted"))
    with stub(before, before, after) as (url, asked):
        asyncio.run(watch(WatchOrder(url=url, every_s=0.02, for_s=0.2), told.hearer, told.totals))
    assert asked.count("GET /slots") == 1 and set(asked) == {"GET /metrics", "GET /slots"}
    (window,) = told.watched  # what /slots answered is no JSON, and no page showed it running
    assert window.kind == "window" and "no page fell into this window" in window.why


@pytest.mark.parametrize("page", ["", "hello", "{}", "up 1\n", "# nothing\n"])
def test_a_page_of_no_engine_is_refused_in_one_line(page: str) -> None:
    told = Told()
    with stub(page) as (url, _), pytest.raises(EngineError, match="cannot be watched") as error:
        asyncio.run(watch(WatchOrder(url=url), told.hearer, told.totals))
    assert "\n" not in str(error.value)


def test_nobody_there_is_one_clear_error() -> None:
    told = Told()
    with pytest.raises(EngineError, match=r"127\.0\.0\.1:9"):
        asyncio.run(watch(WatchOrder(url="http://127.0.0.1:9"), told.hearer, told.totals))


def test_addresses_of_servers_and_of_pages_lead_to_the_metrics_page() -> None:
    for url in ("http://h:8000", "http://h:8000/", "http://h:8000/v1", "http://me:secret@h:8000/metrics"):
        assert metrics_address(url) == "http://h:8000/metrics"
    assert metrics_address("https://h/models/a/v1") == "https://h/models/a/metrics"
    with pytest.raises(SuiteError, match="neither like"):
        metrics_address("h:8000")


# --- The machine under the server -------------------------------------------------------------------

DCGM = """\
DCGM_FI_DEV_GPU_UTIL{gpu="0"} 80
DCGM_FI_DEV_GPU_UTIL{gpu="1"} 60
DCGM_FI_DEV_POWER_USAGE{gpu="0"} 300.5
DCGM_FI_DEV_POWER_USAGE{gpu="1"} 250
"""


def engine_page(*, finished: int, running: int) -> str:
    label = '{model_name="m"}'
    return (
        f"vllm:request_success_total{label} {finished}\nvllm:prompt_tokens_total{label} {100 * finished}\n"
        f"vllm:generation_tokens_total{label} {10 * finished}\n"
        f"vllm:num_requests_running{label} {running}\nvllm:num_requests_waiting{label} 0\n"
    )


def test_what_the_machine_did_meanwhile_is_told_with_a_request_and_kept(tmp_path: Path) -> None:
    """The exporter is looked at once a request has begun, which ends twenty pages after that."""
    began, looked = threading.Event(), threading.Event()
    quiet, left = iter([engine_page(finished=0, running=0)] * 2), iter(range(20))

    def engine() -> str:
        if (before := next(quiet, None)) is not None:
            return before
        began.set()
        runs = not looked.is_set() or next(left, None) is not None
        return engine_page(finished=int(not runs), running=int(runs))

    def exporter() -> str:
        assert began.wait(60)
        looked.set()
        return DCGM

    told = Told()
    with served(engine) as url, served(exporter) as gpus:
        exporters = (f"{gpus}/metrics",)
        order = WatchOrder(url=url, every_s=0.02, requests=1, out=tmp_path / "w", exporters=exporters)
        asyncio.run(watch(order, told.hearer, told.totals))
    (one,) = told.watched
    busy, power = one.machine
    assert (busy.gauge, busy.devices) == ("gpu_utilisation", 2) and busy.mean == pytest.approx(0.7)
    assert (power.gauge, power.mean, power.peak) == ("gpu_power", 550.5, 550.5)
    assert line(one).endswith("GPU busy 70% (peak 70%); GPU power 550 W (peak 550 W)")
    assert read_info(tmp_path / "w").suite.routes[0].exporters == exporters
    again = Told()
    tell_again(tmp_path / "w", again.hearer, again.totals)
    assert again.seen == told.seen


def test_an_exporter_that_tells_nothing_is_noted_once_and_stops_no_watch() -> None:
    looked, finished = threading.Event(), iter(range(1, 1_000_000))

    def engine() -> str:
        return engine_page(finished=next(finished) if looked.is_set() else 0, running=0)

    def exporter() -> str:
        looked.set()
        return "something_else 1\n"

    told = Told()
    with served(engine) as url, served(exporter) as gpus:
        order = WatchOrder(url=url, every_s=0.02, requests=20, exporters=(gpus,))
        asyncio.run(watch(order, told.hearer, told.totals))
    assert all(one.machine == () for one in told.watched)
    (note,) = [note for note in told.notes if note.startswith("the machine, by ")]
    assert gpus in note


def test_a_dead_exporter_is_noted_at_the_start_though_nobody_asks_the_server_anything() -> None:
    told = Told()

    def engine() -> str:
        return engine_page(finished=0, running=0)

    async def until_noted(url: str) -> None:
        order = WatchOrder(url=url, every_s=3600.0, exporters=("http://127.0.0.1:1/metrics",))
        watching = asyncio.create_task(watch(order, told.hearer, told.totals))
        async with asyncio.timeout(60):
            while not any(note.startswith("the machine, by ") for note in told.notes):
                await asyncio.sleep(0.01)
        watching.cancel()
        await asyncio.wait([watching])

    with served(engine) as url:
        asyncio.run(until_noted(url))
    assert "nobody listens at 127.0.0.1:1" in told.notes[-1]


@pytest.mark.parametrize(
    "addresses",
    [("h:9400",), ("http://me:secret@h/m",), ("http://h/m?key=secret",), ("http://h/m", "http://h/m")],
)
def test_an_exporters_address_that_is_none_or_holds_a_secret_is_refused(addresses: tuple[str, ...]) -> None:
    told = Told()
    order = WatchOrder(url="http://127.0.0.1:9", exporters=addresses)
    with pytest.raises(SuiteError, match="--exporter") as caught:
        asyncio.run(watch(order, told.hearer, told.totals))
    assert "secret" not in str(caught.value)


# --- The loop, with a clock of its own ------------------------------------------------------------


class Scripted:
    """Pages in order, and a clock that only sleeping moves."""

    def __init__(self, pages: list[dict[str, float] | None]) -> None:
        self._pages = pages
        self.looks = 0
        self.now = 0.0
        self.slept: list[float] = []

    async def look(self) -> tuple[Scrape, str | None]:
        if self.looks == len(self._pages):
            raise asyncio.CancelledError
        values = self._pages[self.looks]
        self.looks += 1
        at_ns = round(self.now * 1e9)
        if values is None:
            return Scrape(at_ns=at_ns, took_ns=0, problem="connection refused"), None
        return Scrape(at_ns=at_ns, took_ns=0, status=200, values=values), "page"

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    async def run(self, told: Told, **order: Any) -> Watcher:
        keeper = Keeper(None, told.hearer, told.totals, None)
        watcher = Watcher(get("vllm"), ServerFacts(engine="vllm"), keeper)
        full = WatchOrder(url="http://h", **order)
        await watcher.run(self.look, full, clock=lambda: self.now, sleep=self.sleep)
        return watcher


def page(finished: int, running: int = 0) -> dict[str, float]:
    return {
        "requests_finished": finished,
        "prompt_tokens": 100 * finished,
        "generation_tokens": 10 * finished,
        "running": running,
        "waiting": 0,
    }


def test_interrupting_tells_what_is_still_open() -> None:
    told = Told()
    script = Scripted([page(0), page(0, 1), page(1), page(1, 1)])
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(script.run(told))
    assert [(one.kind, one.why) for one in told.watched] == [
        ("request", ""),
        ("window", "still running when watching ended"),
    ]
    assert (told.totals.requests, told.totals.alone) == (1, 1)


def test_watching_ends_after_its_time_or_its_requests() -> None:
    script = Scripted([page(0)] * 100)
    asyncio.run(script.run(Told(), for_s=3.0, every_s=0.5))
    assert script.looks == 7  # at 0, 0.5, ... 3.0
    script = Scripted([page(n // 3, n % 3 == 1) for n in range(100)])
    told = Told()
    asyncio.run(script.run(told, requests=4))
    assert told.totals.requests == 4


def test_an_outage_is_told_once_and_its_end_too() -> None:
    told = Told()
    asyncio.run(Scripted([page(0), None, None, None, page(0), page(0)]).run(told, for_s=5.0))
    assert told.notes == ["no metrics page: connection refused", "the metrics page is back after 3 s"]


def test_memory_does_not_grow_with_the_time_watched() -> None:
    told = Told()
    pages: list[dict[str, float] | None] = [page(0), *[page(0, 1)] * 3000]
    watcher = asyncio.run(Scripted(pages).run(told, for_s=3000.0))
    assert len(watcher._texts) <= 2
    (window,) = told.watched
    assert window.pages == 3000
    assert len(msgspec.json.encode(window)) < 4000


# --- The command ----------------------------------------------------------------------------------


def test_control_c_prints_the_totals_and_leaves_with_130(tmp_path: Path) -> None:
    code = "from bench.cli.main import main; main()"
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with simulate("toy", speed=5) as server:
        arguments = ["watch", server.base_url, "--every", "0.05", "--out", str(tmp_path / "w")]
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        while server.core.pages < 2:
            assert process.poll() is None
            threading.Event().wait(0.02)
        answers(client(server.base_url, PROMPT, at_once=1, tokens=24))
        assert process.stdout
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        process.stdout.close()
        assert process.wait(timeout=120) == 130
    assert "1 request alone" in first and "24 output tokens" in first
    assert "\ntotal: 1 request in" in rest
    assert read_info(tmp_path / "w").suite.routes[0].engine == "vllm"


def again(*arguments: str) -> Result:
    """The command in this process."""
    return CliRunner().invoke(watch_command, list(arguments))


def keep(path: Path, info: RunInfo, *events: Event) -> None:
    with Journal.create(path, info) as journal:
        for event in events:
            journal.append(event)


def seen_at(at: str) -> Event:
    """A request that took two seconds, as a watch keeps it."""
    one = Watched(kind="request", span_s=2.0, pages=3, requests=1, prompt_tokens=10, output_tokens=3)
    seen = Seen(at=at, watched=one, log=(LogLine(count=2, level="ERROR", text="no"),))
    return Event(name="watched", at=at, data=msgspec.to_builtins(seen))


def test_what_was_kept_is_shown_again_as_lines_and_as_json(tmp_path: Path) -> None:
    path, at = tmp_path / "w", "2026-11-01T10:00:00.000Z"
    note = Event(name="note", at=at, message="the log is left out")
    ended = Event(name="watch ended", at=at, data={"watched_s": 3600.4, "pages": 3600, "missed": 0})
    keep(path, run_info(tmp_path), seen_at(at), note, ended)
    found = again(str(path))
    said = found.stdout.splitlines()
    assert said[0] == "10:00:00  1 request alone; 10 prompt tokens; 3 output tokens"
    assert said[1].strip() == "log, 2 x ERROR: no"
    assert said[2].startswith("total: 1 request in 3600 s")
    assert found.stderr == "the log is left out\n"
    lines = [json.loads(text) for text in again(str(path), "--json").stdout.splitlines()]
    assert lines[0]["watched"]["prompt_tokens"] == 10
    assert lines[1]["totals"]["sums"] == {"prompt_tokens": 10, "output_tokens": 3}
    assert lines[1]["watched_s"] == 3600.4


def test_a_watch_that_was_killed_lasted_until_what_it_kept_last(tmp_path: Path) -> None:
    info = msgspec.structs.replace(run_info(tmp_path), created_at="2026-11-01T10:00:00.000Z")
    keep(tmp_path / "w", info, seen_at("2026-11-01T10:00:07.000Z"), seen_at("2026-11-01T10:01:30.000Z"))
    assert "total: 2 requests in 90 s" in again(str(tmp_path / "w")).stdout


def test_a_run_is_no_watch_and_says_what_shows_it() -> None:
    found = again(str(RUN))
    assert isinstance(found.exception, JournalError) and found.stdout == ""
    assert "this is a run, not a watch: ctxbench report" in str(found.exception)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ("http://127.0.0.1:9", "--engine", "generic"),
            "'generic': one of llamacpp, sglang, trtllm, lmdeploy, vllm",
        ),
        (("http://127.0.0.1:9", "--engine", "foo"), "'foo': one of llamacpp, sglang, trtllm, lmdeploy, vllm"),
        (("http://127.0.0.1:9", "--for", "0"), "--for '0' is no time at all"),
        (("http://127.0.0.1:9", "--for", "soon"), "--for 'soon' is no duration: write it like '4h'"),
        (("", "--for", "1h 30m"), "'' is neither like http://host:port nor the directory of a watch"),
    ],
)
def test_an_order_that_is_wrong_is_refused_by_what_is_wrong(arguments: tuple[str, ...], says: str) -> None:
    found = again(*arguments)
    assert isinstance(found.exception, SuiteError) and says in str(found.exception)
    assert "generic" not in str(found.exception).removeprefix("--engine 'generic'")


def run_info(folder: Path) -> RunInfo:
    """A watch that found nothing."""
    told = Told()
    page = (PAGES / "vllm-0.32-mtp4/metrics_0_before.prom").read_text()
    with stub(page) as (url, _):
        order = WatchOrder(url=url, for_s=0.01, out=folder / "empty")
        asyncio.run(watch(order, told.hearer, told.totals))
    return read_info(folder / "empty")


def test_an_existing_directory_is_not_written_over_and_nobody_is_asked(tmp_path: Path) -> None:
    told = Told()
    order = WatchOrder(url="http://127.0.0.1:9", out=tmp_path)
    with pytest.raises(JournalError, match=r"it exists already; give --out"):
        asyncio.run(watch(order, told.hearer, told.totals))


def test_a_damaged_entry_is_named(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "w", run_info(tmp_path)) as journal:
        journal.append(Event(name="watched", at="2026-11-01T10:00:00.000Z", data={"watched": 3}))
    told = Told()
    with pytest.raises(JournalError, match=r"an entry of 2026-11-01T10:00:00\.000Z is damaged"):
        tell_again(tmp_path / "w", told.hearer, told.totals)


@pytest.mark.parametrize("given", ["0", "-1", "x", "1h 30", "1e3"])
def test_a_time_that_is_none_is_refused(given: str) -> None:
    found = again("http://127.0.0.1:9", "--for", given)
    assert found.exit_code == 2 or isinstance(found.exception, SuiteError)


def test_a_key_that_is_not_set_is_refused_before_anything_is_sent() -> None:
    told = Told()
    order = WatchOrder(url="http://127.0.0.1:9", api_key_env="NO_SUCH_KEY")
    with pytest.raises(SuiteError, match="NO_SUCH_KEY is not set"):
        asyncio.run(watch(order, told.hearer, told.totals))


def test_a_key_in_place_of_its_variable_is_refused_and_not_said_again() -> None:
    told = Told()
    order = WatchOrder(url="http://127.0.0.1:9", api_key_env="sk-1234567890")
    with pytest.raises(SuiteError, match="never the key itself") as caught:
        asyncio.run(watch(order, told.hearer, told.totals))
    assert "1234567890" not in str(caught.value)


def test_the_log_tells_what_it_complained_of_since_the_last_time(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("ERROR 11-01 09:00:00 [old.py:1] before watching\n")
    watching = LogWatch(str(log))
    watching.begin("vllm")
    one = Watched(kind="window", span_s=1.0, pages=1, requests=1, output_tokens=16)
    assert watching.told_of(one) == (one, ())
    with log.open("a") as file:
        file.write("INFO 11-01 10:00:00 [a.py:1] all is well\n")
        file.write("ERROR 11-01 10:00:01 [a.py:2] disk full, api_key=sk-1234567890abcdef1234\n" * 3)
    _, (bad,) = watching.told_of(one)
    assert (bad.count, bad.level) == (3, "ERROR")
    assert "disk full" in bad.text and "1234567890" not in bad.text
    assert bad.why == ""  # it would only say the count again
    assert watching.told_of(one) == (one, ())
    with pytest.raises(SuiteError, match="standard input"):
        LogWatch("-")


def test_the_last_lines_of_a_request_are_waited_for(tmp_path: Path) -> None:
    """The server writes its log beside its work: here two looks late."""
    log = tmp_path / "server.log"
    log.write_text("")
    begin = (
        "0.01.000.000 I srv  server_strea: conv_id= (empty=1)\n"
        "0.01.010.000 I slot launch_slot_: id  0 | task 7 | processing task, is_child = 0\n"
    )
    end = (
        "0.02.000.000 I slot print_timing: id  0 | task 7 | prompt eval time = 490.00 ms / 9 tokens\n"
        "0.02.000.010 I slot print_timing: id  0 | task 7 |        eval time = 500.00 ms / 3 tokens\n"
        "0.02.000.020 I slot      release: id  0 | task 7 | stop processing: n_tokens = 11\n"
    )
    watching = LogWatch(str(log))
    watching.begin("llamacpp")
    log.write_text(begin)
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            log.write_text(begin + end)

    asyncio.run(watching.settled(sleep))
    assert len(waits) == 2
    request = Watched(kind="request", span_s=1.0, pages=1, requests=1, output_tokens=3)
    one, complaints = watching.told_of(request)
    assert one.server_ttft_s == pytest.approx(0.5) and complaints == ()
    assert line(one).startswith("1 request alone; 3 output tokens; server TTFT (log) 0.500 s")


def test_a_log_that_vanishes_costs_the_log_and_not_the_watch(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("all is well\n")
    told = Told()
    keeper = Keeper(None, told.hearer, told.totals, LogWatch(str(log)))
    log.unlink()
    one = Watched(kind="request", span_s=1.0, pages=1, requests=1)
    keeper.keep(one, (None, None))
    keeper.keep(one, (None, None))
    (note,) = told.notes
    assert note.startswith("the log is left out from now on") and "server.log" in note
    assert [seen.log for seen in told.seen] == [(), ()]


def test_a_line_of_the_log_has_its_level_and_its_count_once() -> None:
    said = LogLine(count=1200, level="ERROR", text="(EngineCore pid=7) ERROR 11-29 12:00:00 [core.py:1] no")
    assert log_head(said) == "log, 1,200 x"
    assert log_head(LogLine(count=2, level="ERROR", text="an allocation failed")) == "log, 2 x ERROR"
    assert log_head(LogLine(count=2, text="INFO a line")) == "log, 2 x line"


def test_foreign_text_is_harmless_in_a_line() -> None:
    one = Watched(kind="restart", why="\x1b[31mred\u202e", span_s=1.0, pages=1)
    assert line(one) == "restart: \\x1b[31mred\\u202e"


def test_the_totals_line_says_how_much_it_does_not_know() -> None:
    alone = Watched(kind="request", span_s=1.0, pages=1, requests=1, prompt_tokens=10, cached_tokens=5)
    alone = msgspec.structs.replace(alone, prefix_reuse=0.5, output_tokens=3, server_ttft_s=0.5)
    many = Watched(kind="window", why="?", span_s=1.0, pages=1, prompt_tokens=30, output_tokens=7)
    assert totals_line(total([alone, many]), 60.0) == (
        "total: 1 or more requests in 60 s; 1 of them alone; 40 prompt tokens (5 reused, 50.0%); "
        "10 output tokens; server TTFT 0.500 s"
    )
