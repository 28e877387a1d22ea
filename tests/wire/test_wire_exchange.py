"""Measured exchanges against a raw-socket server: success, every failure, and nothing left open."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop
from certificates import self_signed
from handled import Handled
from wire_stub import OK_HEAD, Conversation, Handler, serve

from bench.records import Endpoint, Exchange, PromptRecipe, Timeouts, Trial
from bench.wire.broken import ConnectTimeout
from bench.wire.client import Client, Prepared, Raw, finish

TRIAL = Trial(id="r/512/cold/1", route="r", tier=512, condition="cold", repeat=1)
RECIPE = PromptRecipe(
    sha256="0", tokens=512, endpoint="chat", corpus="x", corpus_sha256="0", task="continue", start=0
)
BODY = b'{"messages": []}'
SOON = 0.05
WHILE = 0.4  # longer than a busy machine keeps a process waiting


def sse(*objects: object) -> bytes:
    return b"".join(
        b"data: " + (o.encode() if isinstance(o, str) else json.dumps(o).encode()) + b"\n\n" for o in objects
    )


def delta(finish_reason: str | None = None, **fields: object) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish_reason}]}


USAGE = {"choices": [], "usage": {"prompt_tokens": 512, "completion_tokens": 2}}
ROLE = sse(delta(role="assistant", content=""))
TEXT = sse(delta(content="hi"))
END = sse(delta("length"), USAGE, "[DONE]")


def prepare(client: Client, body: bytes = BODY, endpoint: Endpoint = "chat", **limits: float) -> Prepared:
    return client.prepare(
        "/chat/completions", body, timeouts=Timeouts(**limits), prompt_tokens=512, endpoint=endpoint
    )


async def record(raw: Raw, prepared: Prepared) -> Exchange:
    return await finish(raw, prepared, trial=TRIAL, prompt=RECIPE, request={"temperature": 0})


async def perform(post: Handler, *, reads: bool = True, body: bytes = BODY, **limits: float) -> Exchange:
    """One exchange against `post`; waits until the server has seen its connection closed."""
    async with serve(post, reads=reads) as stub:
        async with Client(stub.base_url()) as client:
            prepared = prepare(client, body, **limits)
            exchange = await record(await client.exchange(prepared), prepared)
        await stub.all_closed.wait()
        return exchange


def run(work: Awaitable[Exchange]) -> Exchange:
    async def main() -> Exchange:
        async with asyncio.timeout(20):
            return await work

    return asyncio.run(main())


def failed(exchange: Exchange) -> str | None:
    return exchange.failure.kind if exchange.failure else None


@pytest.fixture(autouse=True, params=["asyncio", "uvloop"])
def event_loop_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every exchange on the standard loop and on the one that is used where it is installed."""
    if request.param == "uvloop":

        def run_on_uvloop(main: Any) -> Any:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                return runner.run(main)

        monkeypatch.setattr(asyncio, "run", run_on_uvloop)


# --- success


def test_an_exchange_holds_every_time_in_order_and_the_whole_answer() -> None:
    async def post(talk: Conversation) -> None:
        await talk.stream(ROLE, TEXT, END)

    exchange = run(perform(post))
    assert exchange.failure is None
    assert (exchange.text, exchange.finish_reason, exchange.done) == ("hi", "length", True)
    assert exchange.chunks.kinds == "ece"
    assert exchange.usage is not None
    assert exchange.usage.completion_tokens == 2
    times = (0, exchange.uploaded_ns, exchange.headers_ns, *exchange.read_ns, exchange.ended_ns)
    assert list(times) == sorted(times)  # type: ignore[type-var]
    assert sum(exchange.read_bytes) == len(ROLE + TEXT + END)
    assert exchange.connect_ns is not None
    assert exchange.connect_ns > 0
    assert exchange.headers == {"content-type": "text/event-stream"}
    assert exchange.request == {"temperature": 0}


def test_the_request_says_what_we_mean_and_a_connection_serves_many() -> None:
    async def post(talk: Conversation) -> None:
        await talk.stream(TEXT, END)

    async def main() -> tuple[int, list[bytes]]:
        async with serve(post) as stub, Client(stub.base_url(), api_key="secret-key") as client:
            await client.warm()
            for _ in range(3):
                await client.exchange(prepare(client))
            return stub.connections, stub.requests

    connections, requests = asyncio.run(main())
    assert connections == 1
    assert requests[0].startswith(b"GET /v1/models HTTP/1.1\r\n")
    head, _, body = requests[1].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert body == BODY
    lines = {line.lower() for line in head.split(b"\r\n")}
    assert {
        b"accept: text/event-stream",
        b"accept-encoding: identity",
        b"content-type: application/json",
        b"content-length: %d" % len(BODY),
        b"authorization: bearer secret-key",
    } <= lines
    assert requests[1] == requests[2] == requests[3]


def test_exchanges_released_together_find_a_warm_connection_each() -> None:
    together = 8
    arrived = 0
    all_there = asyncio.Event()

    async def post(talk: Conversation) -> None:
        nonlocal arrived
        arrived += 1
        if arrived == together:
            all_there.set()
        await all_there.wait()  # answered only when all of them are under way
        await talk.stream(TEXT, END)

    async def main() -> tuple[int, int, list[str | None]]:
        async with serve(post) as stub, Client(stub.base_url()) as client:
            await client.warm(connections=together)
            opened = stub.connections
            prepared = [prepare(client) for _ in range(together)]
            raws = await asyncio.gather(*(client.exchange(one) for one in prepared))
            records = [await record(raw, one) for raw, one in zip(raws, prepared, strict=True)]
            return opened, stub.connections, [failed(one) for one in records]

    assert asyncio.run(main()) == (together, together, [None] * together)


@pytest.mark.parametrize(
    ("fresh_ns", "connections", "asked"),
    [
        (10**18, 2, 2),  # both were answered a moment ago: no need to ask again
        (10**18, 3, 5),  # one more is wanted than there are: all are asked
        (0, 2, 4),  # too long ago
    ],
)
def test_connections_used_a_moment_ago_are_warm_without_a_request(
    monkeypatch: pytest.MonkeyPatch, fresh_ns: int, connections: int, asked: int
) -> None:
    monkeypatch.setattr("bench.wire.connection._FRESH_NS", fresh_ns)

    async def post(talk: Conversation) -> None:
        await talk.stream(TEXT, END)

    async def main() -> list[bytes]:
        async with serve(post) as stub, Client(stub.base_url()) as client:
            await client.warm(connections=2)
            await client.warm(connections=connections)
            return stub.requests

    assert len(asyncio.run(main())) == asked


def test_a_connection_the_server_has_closed_is_never_used_again() -> None:
    async def post(talk: Conversation) -> None:
        await talk.stream(TEXT, END)
        talk.writer.close()
        await talk.writer.wait_closed()

    async def main() -> list[str | None]:
        kinds = []
        async with serve(post) as stub, Client(stub.base_url()) as client:
            for _ in range(3):
                prepared = prepare(client)
                kinds.append(failed(await record(await client.exchange(prepared), prepared)))
                await stub.all_closed.wait()
        return kinds

    assert asyncio.run(main()) == [None, None, None]


def test_a_connection_that_was_closed_while_the_loop_was_busy_is_not_used_again() -> None:
    closed = threading.Semaphore(0)

    def answer_once_each(listener: socket.socket) -> None:
        for _ in range(3):
            connection, _ = listener.accept()
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
            connection.close()
            closed.release()

    async def main(port: int) -> list[object]:
        answers = []
        async with Client(f"http://127.0.0.1:{port}/v1") as client:
            for _ in range(3):
                answers.append(await client.get_json("/models"))
                assert closed.acquire(timeout=10)  # the loop sees nothing of it
        return answers

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=answer_once_each, args=(listener,), daemon=True)
        server.start()
        assert asyncio.run(main(listener.getsockname()[1])) == [{}, {}, {}]
        server.join()


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx-size: %d\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nx-size: %d\r\n\r\n",
    ],
)
def test_every_framing_of_a_body_is_understood(head: bytes) -> None:
    answer = head % len(TEXT + END) + TEXT + END

    async def post(talk: Conversation) -> None:
        for i in range(0, len(answer), 7):
            await talk.say(answer[i : i + 7])
        talk.writer.close()

    exchange = run(perform(post))
    assert (failed(exchange), exchange.text) == (None, "hi")


def test_a_stream_cut_at_every_byte_is_the_same_answer() -> None:
    stream = ROLE + sse(delta(content="\u2028猫🐈")) + END.replace(b"\n", b"\r\n")
    answer = OK_HEAD + b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(stream), stream)

    async def post(talk: Conversation) -> None:
        for i in range(len(answer)):
            talk.writer.write(answer[i : i + 1])
            await asyncio.sleep(0)

    exchange = run(perform(post))
    assert (failed(exchange), exchange.text, exchange.done) == (None, "\u2028猫🐈", True)


def test_ten_megabytes_in_one_line_arrive_whole() -> None:
    async def post(talk: Conversation) -> None:
        await talk.stream(sse(delta(content="x" * 10_000_000)), END)

    exchange = run(perform(post))
    assert (failed(exchange), len(exchange.text)) == (None, 10_000_000)


def test_a_large_body_arrives_whole_and_its_upload_is_stamped() -> None:
    body = bytes(range(256)) * 20_000

    async def post(talk: Conversation) -> None:
        await talk.stream(TEXT if talk.body == body else sse(delta(content="damaged")), END)

    exchange = run(perform(post, body=body))
    assert (failed(exchange), exchange.text) == (None, "hi")
    assert exchange.uploaded_ns is not None
    assert exchange.headers_ns is not None
    assert 0 < exchange.uploaded_ns <= exchange.headers_ns


def test_a_long_stream_is_decoded_while_it_runs() -> None:
    count = 12_000

    async def post(talk: Conversation) -> None:
        await talk.say(OK_HEAD + b"transfer-encoding: chunked\r\n\r\n")
        for i in range(count):
            await talk.chunk(sse(delta(content=f"{i:0100d}")))
            if i % 2000 == 0:
                await asyncio.sleep(SOON)
        await talk.chunk(END)
        await talk.say(b"0\r\n\r\n")

    exchange = run(perform(post))
    assert failed(exchange) is None
    assert exchange.text == "".join(f"{i:0100d}" for i in range(count))
    assert len(exchange.chunks.at_ns) == count + 1
    assert len(exchange.read_ns) == len(exchange.read_bytes)


# --- failures


def test_an_onlooker_is_told_when_text_comes_and_how_much_has_come() -> None:
    told: list[tuple[bool, int]] = []
    seen = asyncio.Event()

    def look(has_text: bool, size: int) -> None:
        told.append((has_text, size))
        if has_text:
            seen.set()

    async def post(talk: Conversation) -> None:
        await talk.stream(ROLE, end=False)
        while not told:  # nothing but the role has come when the first look is taken
            await asyncio.sleep(0.005)
        await talk.chunk(TEXT)
        await seen.wait()
        await talk.chunk(END)
        await talk.say(b"0\r\n\r\n")

    async def work() -> Exchange:
        async with serve(post) as stub, Client(stub.base_url()) as client:
            prepared = prepare(client, first_token_s=4)  # looks are taken at that pace at least
            return await record(await client.exchange(prepared, onlooker=look), prepared)

    assert run(work()).text == "hi"
    assert not told[0][0] and told[-1][0]
    assert [size for _, size in told] == sorted(size for _, size in told)


def test_nobody_listening_is_refused() -> None:
    async def main() -> Exchange:
        async with serve(lambda talk: talk.gone()) as stub:
            address = stub.base_url()
        async with Client(address) as client:
            prepared = prepare(client)
            return await record(await client.exchange(prepared), prepared)

    exchange = asyncio.run(main())
    assert failed(exchange) == "refused"
    assert exchange.failure is not None
    assert "nobody listens at 127.0.0.1:" in exchange.failure.message
    assert (exchange.status, exchange.uploaded_ns, exchange.read_ns) == (None, None, ())
    assert exchange.sent_ns > 0


def test_a_server_that_does_not_speak_tls_is_refused() -> None:
    async def post(talk: Conversation) -> None:
        await talk.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async def main() -> Exchange:
        async with serve(post, reads=False) as stub, Client(stub.base_url("https")) as client:
            prepared = prepare(client)
            return await record(await client.exchange(prepared), prepared)

    exchange = asyncio.run(main())
    assert failed(exchange) == "refused"
    assert "http or https?" in exchange.failure.message  # type: ignore[union-attr]


@pytest.mark.parametrize("where", ["before the head", "within the head"])
def test_a_connection_that_breaks_before_the_answer_is_reset(where: str) -> None:
    async def post(talk: Conversation) -> None:
        if where == "within the head":
            await talk.say(b"HTTP/1.1 200 OK\r\ncontent-")
        talk.reset()

    exchange = run(perform(post))
    assert failed(exchange) == "reset"
    assert exchange.status is None


def test_a_server_that_hangs_up_without_a_word_is_reset() -> None:
    async def post(talk: Conversation) -> None:
        talk.writer.close()

    assert failed(run(perform(post))) == "reset"


@pytest.mark.parametrize("rude", [True, False])
def test_a_stream_that_breaks_off_is_truncated_and_kept(rude: bool) -> None:
    async def post(talk: Conversation) -> None:
        await talk.stream(ROLE, TEXT, end=False)
        await asyncio.sleep(WHILE)
        talk.reset() if rude else talk.writer.close()

    exchange = run(perform(post))
    assert failed(exchange) == "truncated"
    assert (exchange.text, exchange.status) == ("hi", 200)


def test_a_body_without_length_that_ends_early_is_truncated() -> None:
    async def post(talk: Conversation) -> None:
        await talk.say(OK_HEAD + b"\r\n" + TEXT)
        talk.writer.close()

    assert failed(run(perform(post))) == "truncated"


def test_a_connection_that_breaks_after_done_has_failed_nobody() -> None:
    async def post(talk: Conversation) -> None:
        await talk.stream(TEXT, END, end=False)
        talk.writer.close()

    assert failed(run(perform(post))) is None


def test_a_server_that_keeps_the_stream_open_after_done_has_failed_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bench.wire.exchange._AFTER_DONE_NS", 10_000_000)
    monkeypatch.setattr("bench.wire.exchange._TICK_S", 0.02)

    async def post(talk: Conversation) -> None:
        await talk.stream(TEXT, END, end=False)
        await talk.gone()

    exchange = run(perform(post))
    assert (failed(exchange), exchange.done) == (None, True)


def test_silence_in_the_middle_is_an_idle_timeout() -> None:
    async def post(talk: Conversation) -> None:
        await talk.stream(ROLE, TEXT, end=False)
        await talk.gone()

    exchange = run(perform(post, idle_s=WHILE))
    assert failed(exchange) == "idle_timeout"
    assert exchange.text == "hi"


PINGS = {
    "comments": b": ping\n\n",
    "events of another type": b"event: ping\ndata: {}\n\n",
    "events without a choice": sse({"choices": [], "usage": {"completion_tokens": 1}}),
}


async def ping_until_gone(talk: Conversation, ping: bytes) -> None:
    while not talk.writer.transport.is_closing():
        await talk.chunk(ping)
        await asyncio.sleep(SOON / 10)


@pytest.mark.parametrize("ping", PINGS.values(), ids=PINGS)
def test_pings_in_the_middle_do_not_put_off_the_idle_timeout(ping: bytes) -> None:
    async def post(talk: Conversation) -> None:
        await talk.stream(ROLE, TEXT, end=False)
        await ping_until_gone(talk, ping)

    exchange = run(perform(post, idle_s=WHILE))
    assert failed(exchange) == "idle_timeout"
    assert exchange.text == "hi"


def test_a_flood_of_pings_does_not_put_off_the_idle_timeout() -> None:
    async def post(talk: Conversation) -> None:
        await talk.stream(TEXT, end=False)
        while not talk.writer.transport.is_closing():  # something new waits at every look
            await talk.chunk(b": ping\n\n" * 20)
            await asyncio.sleep(0)

    assert failed(run(perform(post, idle_s=WHILE))) == "idle_timeout"


def test_pings_through_a_long_prefill_are_waited_through_until_the_first_token() -> None:
    async def post(talk: Conversation) -> None:
        await talk.stream(ROLE, end=False)
        for _ in range(20):  # four times what may pass between two events of the answer
            await talk.chunk(b": ping\n\n")
            await asyncio.sleep(SOON)
        await talk.chunk(TEXT + END)
        await talk.say(b"0\r\n\r\n")

    assert failed(run(perform(post, first_token_s=15, idle_s=5 * SOON))) is None


def test_pings_after_done_do_not_keep_an_exchange_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.wire.exchange._AFTER_DONE_NS", 10_000_000)

    async def post(talk: Conversation) -> None:
        await talk.stream(TEXT, END, end=False)
        await ping_until_gone(talk, b": ping\n\n")

    exchange = run(perform(post, idle_s=WHILE))
    assert (failed(exchange), exchange.done) == (None, True)


def test_pings_and_role_chunks_do_not_put_off_the_first_token_timeout() -> None:
    async def post(talk: Conversation) -> None:
        await talk.stream(ROLE, end=False)
        while not talk.writer.transport.is_closing():
            await talk.chunk(b": ping\n\n")
            await asyncio.sleep(SOON / 10)

    exchange = run(perform(post, first_token_s=2 * WHILE, idle_s=60))
    assert failed(exchange) == "first_token_timeout"
    assert "bytes without text had come" in exchange.failure.message  # type: ignore[union-attr]


def test_silence_before_the_head_is_a_first_token_timeout() -> None:
    async def post(talk: Conversation) -> None:
        await talk.gone()

    exchange = run(perform(post, first_token_s=SOON))
    assert failed(exchange) == "first_token_timeout"
    assert exchange.status is None


def test_a_slow_but_steady_stream_meets_no_deadline() -> None:
    """It lasts longer than the idle limit, and is too small to be decoded before its deadline passes."""

    async def post(talk: Conversation) -> None:
        await talk.stream(TEXT, end=False)
        for _ in range(24):
            await asyncio.sleep(2 * SOON)
            await talk.chunk(TEXT)
        await talk.chunk(END)
        await talk.say(b"0\r\n\r\n")

    assert failed(run(perform(post, first_token_s=2, idle_s=2))) is None


def test_a_server_that_does_not_take_the_body_is_an_upload_timeout() -> None:
    async def post(talk: Conversation) -> None:
        await asyncio.sleep(3600)

    async def main() -> Exchange:
        async with serve(post, reads=False) as stub, Client(stub.base_url()) as client:
            prepared = prepare(client, b"x" * 64_000_000, upload_s=SOON)
            return await record(await client.exchange(prepared), prepared)

    exchange = asyncio.run(main())
    assert failed(exchange) == "upload_timeout"
    assert exchange.uploaded_ns is None


def test_a_server_that_accepts_no_connection_is_a_connect_timeout() -> None:
    def silent(request: httpx.Request) -> httpx.Response:
        raise ConnectTimeout from TimeoutError()

    async def main() -> Exchange:
        async with Client("http://host:1/v1", transport=mock(silent)) as client:
            prepared = prepare(client)
            return await record(await client.exchange(prepared), prepared)

    assert failed(asyncio.run(main())) == "connect_timeout"


@pytest.mark.parametrize("status", [400, 401, 404, 413, 429, 500, 503])
def test_a_status_is_a_failure_with_its_body(status: int) -> None:
    async def post(talk: Conversation) -> None:
        await talk.answer(status, b'{"error": {"message": "too long by 3 tokens"}}')

    exchange = run(perform(post))
    assert exchange.failure is not None
    assert (exchange.failure.kind, exchange.failure.status, exchange.status) == ("status", status, status)
    assert exchange.failure.message == f"HTTP {status}: too long by 3 tokens"
    assert exchange.failure.body == '{"error": {"message": "too long by 3 tokens"}}'


def test_an_answer_before_the_body_was_read_is_that_answer() -> None:
    async def post(talk: Conversation) -> None:
        await talk.reader.read(1024)
        await talk.answer(413, b"too large")
        await talk.gone()

    exchange = run(perform(post, reads=False, body=b"x" * 32_000_000))
    assert exchange.failure is not None
    assert (exchange.failure.kind, exchange.failure.message) == ("status", "HTTP 413: too large")


def test_an_error_event_wins_over_what_follows_it() -> None:
    async def post(talk: Conversation) -> None:
        await talk.stream(TEXT, sse({"error": {"message": "engine died"}}), end=False)
        talk.writer.close()

    exchange = run(perform(post))
    assert failed(exchange) == "error_event"
    assert exchange.failure is not None
    assert "engine died" in exchange.failure.message
    assert exchange.failure.status == 200


def test_an_answer_without_tokens_has_failed() -> None:
    async def post(talk: Conversation) -> None:
        await talk.stream(ROLE, sse(delta("stop"), "[DONE]"))

    assert failed(run(perform(post))) == "no_tokens"


@pytest.mark.parametrize(
    "answer",
    [
        OK_HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"zz\r\n",
        OK_HEAD + b"transfer-encoding: chunked\r\n\r\n3\r\ntoo long\r\n\r\n",
        b"SSH-2.0-OpenSSH_9\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nbroken\r\n\r\n",
        b"x" * 70_000,
        OK_HEAD + b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (18, b"data: {nonsense}\n\n"),
        OK_HEAD + b"content-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc",
    ],
)
def test_what_is_no_http_or_no_stream_is_malformed(answer: bytes) -> None:
    async def post(talk: Conversation) -> None:
        await talk.say(answer)
        await talk.gone()

    assert failed(run(perform(post))) == "malformed"


def test_chunks_without_sense_are_malformed_however_well_the_stream_ends() -> None:
    async def post(talk: Conversation) -> None:
        await talk.stream(TEXT, end=False)
        await asyncio.sleep(SOON)
        end = sse("[DONE]")
        await talk.say(b"zz\r\n" + END + b"\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(end), end))

    exchange = run(perform(post))
    assert (failed(exchange), exchange.text) == ("malformed", "hi")
    assert exchange.failure is not None and "not a chunk header: b'zz'" in exchange.failure.message


def test_an_endless_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.wire.client.STREAM_LIMIT", 1_000_000)

    async def post(talk: Conversation) -> None:
        await talk.stream(TEXT, end=False)
        while not talk.writer.transport.is_closing():
            await talk.chunk(TEXT * 100)

    assert failed(run(perform(post))) == "too_large"


# --- cancellation


@pytest.mark.parametrize("keep", [True, False])
def test_cancelling_closes_the_connection_and_keeps_what_was_read_if_asked(keep: bool) -> None:
    async def main() -> Exchange | None:
        reading = asyncio.Event()

        async def post(talk: Conversation) -> None:
            await talk.stream(TEXT, end=False)
            reading.set()
            await talk.gone()

        async with serve(post) as stub, Client(stub.base_url()) as client:
            prepared = prepare(client)

            async def exchange() -> Raw:
                raw = await client.exchange(prepared, keep_cancelled=keep)
                task = asyncio.current_task()
                assert task is not None and not task.cancelling()  # it may go on as if never cancelled
                return raw

            task = asyncio.create_task(exchange())
            await reading.wait()
            await asyncio.sleep(WHILE)
            task.cancel()
            await asyncio.wait({task})
            await stub.all_closed.wait()
            return None if task.cancelled() else await record(task.result(), prepared)

    exchange = asyncio.run(main())
    assert (exchange is not None) == keep
    if exchange is not None:
        assert (failed(exchange), exchange.text) == ("cancelled", "hi")


def test_cancelling_twenty_exchanges_leaves_no_connection() -> None:
    async def main() -> int:
        async def post(talk: Conversation) -> None:
            await talk.stream(TEXT, end=False)
            await talk.gone()

        async with serve(post) as stub, Client(stub.base_url()) as client:
            tasks = [asyncio.create_task(client.exchange(prepare(client))) for _ in range(20)]
            while len(stub.requests) < len(tasks):
                await asyncio.sleep(SOON)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await stub.all_closed.wait()
            return stub.connections

    assert asyncio.run(main()) == 20


def test_an_exchange_that_ends_after_its_client_leaves_no_connection() -> None:
    async def main() -> str | None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def post(talk: Conversation) -> None:
            begun.set()
            await go_on.wait()
            await talk.stream(TEXT, END)

        async with serve(post) as stub:
            async with Client(stub.base_url()) as client:
                prepared = prepare(client)
                task = asyncio.create_task(client.exchange(prepared))
                await begun.wait()
            go_on.set()
            exchange = await record(await task, prepared)
            async with asyncio.timeout(10):
                await stub.all_closed.wait()
            return failed(exchange)

    assert asyncio.run(main()) is None


# --- TLS, secrets, other transports


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1, with its key in the same file."""
    return self_signed(tmp_path_factory.mktemp("tls"), "IP:127.0.0.1")


@pytest.mark.parametrize("trust", ["nothing", "ca_file", "insecure"])
def test_tls_is_verified_unless_told_otherwise(certificate: Path, trust: str) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)

    async def post(talk: Conversation) -> None:
        await talk.stream(TEXT, END)

    async def main() -> Exchange:
        options: dict[str, Any] = {
            "ca_file": {"ca_file": str(certificate)},
            "insecure": {"insecure": True},
        }
        async with (
            serve(post, tls=server) as stub,
            Client(stub.base_url("https"), **options.get(trust, {})) as client,
        ):
            prepared = prepare(client)
            return await record(await client.exchange(prepared), prepared)

    exchange = asyncio.run(main())
    if trust == "nothing":
        assert failed(exchange) == "refused"
        assert "ca_file" in exchange.failure.message  # type: ignore[union-attr]
    else:
        assert (failed(exchange), exchange.text) == (None, "hi")


def test_the_key_is_in_nothing_that_is_kept() -> None:
    key = "sk-very-secret"

    async def post(talk: Conversation) -> None:
        head = f"HTTP/1.1 401 X\r\nx-echo: {key}\r\ncontent-length: {len(key) + 10}\r\n\r\n"
        await talk.say(head.encode() + b"wrong key " + key.encode())

    async def main() -> tuple[Exchange, Prepared]:
        async with serve(post) as stub:
            address = stub.base_url().replace("http://", f"http://user:{key}@")
            async with Client(address, api_key=key) as client:
                prepared = prepare(client)
                return await record(await client.exchange(prepared), prepared), prepared

    exchange, prepared = asyncio.run(main())
    assert failed(exchange) == "status"
    assert key not in repr(exchange)
    assert key not in repr(prepared)


def mock(handler: Callable[[httpx.Request], httpx.Response]) -> Handled:
    return Handled(handler)


@pytest.mark.parametrize(
    ("handler", "kind"),
    [
        (lambda r: httpx.Response(200, content=TEXT + END), None),
        (lambda r: httpx.Response(500, content=b"oops"), "status"),
        (lambda r: httpx.Response(200, content=TEXT), "truncated"),
        (lambda r: httpx.Response(200, content=b""), "truncated"),
    ],
)
def test_any_transport_serves(handler: Callable[[httpx.Request], httpx.Response], kind: str | None) -> None:
    async def main() -> Exchange:
        async with Client("http://host/v1", transport=mock(handler)) as client:
            prepared = prepare(client)
            return await record(await client.exchange(prepared), prepared)

    assert failed(asyncio.run(main())) == kind


async def through_a_proxy(post: Callable[[Conversation], Awaitable[None]]) -> Exchange:
    """One exchange with a server that only the stub, as a proxy, can reach."""
    async with serve(post) as stub:
        proxy = f"http://127.0.0.1:{stub.port}"
        async with Client("http://127.far.invalid/v1", proxy=proxy) as client:
            prepared = prepare(client)
            return await record(await client.exchange(prepared), prepared)


@pytest.mark.parametrize(("said", "kind"), [((TEXT, END), None), ((TEXT,), "truncated"), ((), "truncated")])
def test_a_stream_through_a_proxy_is_recorded_and_judged_alike(
    said: tuple[bytes, ...], kind: str | None
) -> None:
    async def post(talk: Conversation) -> None:
        await talk.stream(*said)

    exchange = asyncio.run(through_a_proxy(post))
    assert failed(exchange) == kind
    assert exchange.status == 200
    assert exchange.uploaded_ns is None
    assert exchange.headers_ns is not None


def test_a_proxy_that_hangs_up_is_no_connect_timeout() -> None:
    async def post(talk: Conversation) -> None:
        talk.writer.transport.abort()

    assert failed(asyncio.run(through_a_proxy(post))) == "reset"


def test_a_proxy_is_used_when_named_and_never_for_loopback() -> None:
    async def post(talk: Conversation) -> None:
        await talk.stream(TEXT, END)

    async def main() -> tuple[list[bytes], Exchange]:
        async with serve(post) as stub:
            proxy = f"http://127.0.0.1:{stub.port}"
            async with Client("http://127.far.invalid/v1", proxy=proxy) as client:
                prepared = prepare(client)
                far = await record(await client.exchange(prepared), prepared)
            async with Client(stub.base_url(), proxy="http://proxy.invalid:1") as client:
                await client.exchange(prepare(client))
            return stub.requests, far

    requests, far = asyncio.run(main())
    assert (failed(far), far.text) == (None, "hi")
    assert requests[0].startswith(b"POST http://127.far.invalid/v1/chat/completions HTTP/1.1\r\n")
    assert requests[1].startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
