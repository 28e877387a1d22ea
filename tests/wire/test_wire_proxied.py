"""Requests through a proxy: what it is told, what goes on to the server, and nothing left open."""

from __future__ import annotations

import asyncio
import base64
import gc
import ssl
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop
from certificates import self_signed
from wire_stub import Conversation, Stub, serve

from bench.errors import EngineError, SuiteError
from bench.records import Timeouts
from bench.wire.client import Client, Prepared, Raw

FAR = "http://far.invalid/v1"
SAID = b'data: {"choices": [{"index": 0, "delta": {"content": "hi"}}]}\n\n'


@pytest.fixture(autouse=True, params=[None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def quiet(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture, monkeypatch: Any) -> Any:
    """On both loops, and none of them has anything to complain about afterwards."""

    def run(main: Any) -> Any:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(asyncio.wait_for(main, 30))

    monkeypatch.setattr(asyncio, "run", run)
    yield
    gc.collect()
    assert [r.getMessage() for r in caplog.records if r.name == "asyncio"] == []


async def fine(talk: Conversation) -> None:
    await talk.answer(200, b"{}")


def line(request: bytes, name: bytes) -> bytes | None:
    """A header of a request, as it came."""
    found = [at for at in request.split(b"\r\n") if at.lower().startswith(name + b":")]
    return found[0].split(b":", 1)[1].strip() if found else None


def prepared(client: Client, body: bytes = b"{}", **limits: float) -> Prepared:
    return client.prepare("/chat", body, timeouts=Timeouts(**limits), prompt_tokens=1, endpoint="chat")


# --- who one is


@pytest.mark.parametrize(
    ("userinfo", "told"),
    [
        ("me:secret", "me:secret"),
        ("me:p%40ss%2Fw%3Ard", "me:p@ss/w:rd"),
        ("me:p@ssword", "me:p@ssword"),
        ("me:100%sure", "me:100%sure"),
        ("me:%D0%BF\u0430\u0440\u043e\u043b\u044c", "me:\u043f\u0430\u0440\u043e\u043b\u044c"),
        ("me%3Ayou:secret", "me:you:secret"),
        (":secret", ":secret"),
        ("me", "me:"),
    ],
)
def test_a_proxy_is_told_user_and_password_whatever_characters_they_have(userinfo: str, told: str) -> None:
    async def main() -> list[bytes]:
        async with (
            serve(fine) as stub,
            Client(FAR, proxy=f"http://{userinfo}@127.0.0.1:{stub.port}") as client,
        ):
            await client.get_json("/models")
            return stub.requests

    [request] = asyncio.run(main())
    assert line(request, b"proxy-authorization") == b"Basic " + base64.b64encode(told.encode())
    assert line(request, b"authorization") is None


def test_a_password_is_in_no_message_however_it_comes_back() -> None:
    token = base64.b64encode(b"me:p@ss w\xc3\xb6rd").decode()
    forms = ("p@ss w\u00f6rd", "p%40ss%20w%C3%B6rd", "p%40ss%20w%c3%b6rd", token)

    async def get(talk: Conversation) -> None:
        await talk.answer(403, " | ".join(forms).encode())

    async def main() -> str:
        async with serve(fine, get=get) as stub:
            proxy = f"http://me:p%40ss%20w%c3%b6rd@127.0.0.1:{stub.port}"
            async with Client(FAR, proxy=proxy) as client:
                with pytest.raises(EngineError) as caught:
                    await client.get_json("/models")
                return str(caught.value)

    assert "HTTP 403: *** | *** | *** | ***" in asyncio.run(main())


@pytest.mark.parametrize(
    "proxy",
    [
        "socks5://me:secret@h:1080",
        "h:1080",
        "http://me:sec/ret@h:1",
        "http://me:secret@h:99999",
        "http://me:secret@\u2100.de:1",
        "http://" + 62 * "\u00fc" + ".de:1",
    ],
)
def test_what_is_no_proxy_is_refused_without_a_word_of_its_password(proxy: str) -> None:
    with pytest.raises(SuiteError, match=r"^proxy .* is no address") as caught:
        Client(FAR, proxy=proxy)
    assert "sec" not in str(caught.value)
    assert "sec" not in repr(caught.value.__cause__)


def test_a_proxy_that_nobody_can_be_asked_for_is_one_sentence() -> None:
    async def main() -> None:
        async with Client(FAR, proxy="http://me:secret@a..b:3128") as client:
            with pytest.raises(
                EngineError, match=r"reached \(through the proxy a\.\.b:3128\): [^\n]*$"
            ) as caught:
                await client.get_json("/models")
            assert "secret" not in str(caught.value)
            assert kind(await client.exchange(prepared(client))) == "refused"

    asyncio.run(main())


def test_cookies_of_an_answer_are_not_sent_back() -> None:
    async def get(talk: Conversation) -> None:
        await talk.say(b"HTTP/1.1 200 OK\r\nset-cookie: replica=3; Path=/\r\ncontent-length: 2\r\n\r\n{}")

    async def main() -> list[bytes]:
        async with serve(fine, get=get) as stub, Client(FAR, proxy=f"http://127.0.0.1:{stub.port}") as client:
            await client.get_json("/models")
            await client.get_json("/models")
            return stub.requests

    assert [line(request, b"cookie") for request in asyncio.run(main())] == [None, None]


def test_this_machine_is_asked_directly_even_where_the_server_is_behind_a_proxy() -> None:
    async def main() -> tuple[list[bytes], str]:
        async with (
            serve(fine) as stub,
            Client(FAR, proxy=f"http://127.0.0.1:{stub.port}") as client,
        ):
            await client.get_json(f"http://127.0.0.1:{stub.port}/metrics")
            with pytest.raises(EngineError) as caught:
                await client.get_json("http://127.0.0.1:1/metrics")
            return stub.requests, str(caught.value)

    [request], said = asyncio.run(main())
    assert request.startswith(b"GET /metrics HTTP/1.1\r\n")
    assert said.endswith("nobody listens at 127.0.0.1:1")


# --- tunnels


@asynccontextmanager
async def tunnels(to: int, seen: list[bytes]) -> AsyncIterator[int]:
    """A proxy that opens tunnels, all of them to one port of this machine."""

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        inner, outer = await asyncio.open_connection("127.0.0.1", to)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pipe(reader, outer), pipe(inner, writer))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@pytest.mark.parametrize("trust", ["ca_file", "nothing"])
def test_through_a_tunnel_only_the_proxy_is_told_its_password_and_tls_is_the_server_s(
    trust: str, tmp_path: Path
) -> None:
    certificate = self_signed(tmp_path, "DNS:far.invalid")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    seen: list[bytes] = []

    async def main() -> tuple[str, list[bytes]]:
        async with serve(fine, tls=tls) as stub, tunnels(stub.port, seen) as port:
            options = {"ca_file": str(certificate)} if trust == "ca_file" else {}
            proxy = f"http://me:secret@127.0.0.1:{port}"
            async with Client("https://far.invalid/v1", proxy=proxy, **options) as client:  # type: ignore[arg-type]
                try:
                    said = str(await client.get_json("/models"))
                except EngineError as error:
                    said = str(error)
            if stub.connections:  # where the certificate is not believed there was none
                await stub.all_closed.wait()
            return said, stub.requests

    said, requests = asyncio.run(main())
    assert seen[0].startswith(b"CONNECT far.invalid:443 HTTP/1.1\r\n")
    assert line(seen[0], b"proxy-authorization") == b"Basic " + base64.b64encode(b"me:secret")
    if trust == "nothing":
        assert "the certificate of far.invalid:443 is not trusted" in said
    else:
        assert said == "{}"
        assert requests[0].startswith(b"GET /v1/models HTTP/1.1\r\n")
        assert line(requests[0], b"proxy-authorization") is None


# --- how it ends


async def through(
    post: Callable[[Conversation], Awaitable[None]], base: str = FAR, body: bytes = b"{}", **limits: float
) -> tuple[Raw, Stub]:
    """One exchange; afterwards the proxy has seen its connection closed."""
    async with serve(post) as stub:
        async with Client(base, proxy=f"http://127.0.0.1:{stub.port}") as client:
            raw = await client.exchange(prepared(client, body, **limits))
        await stub.all_closed.wait()
        return raw, stub


def kind(raw: Raw) -> str | None:
    return raw.failure.kind if raw.failure else None


def test_a_proxy_that_never_answers_is_a_connect_timeout_where_it_was_to_open_a_tunnel() -> None:
    async def main() -> tuple[str | None, str | None]:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        proxy = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        kinds = []
        for base in ("https://far.invalid/v1", FAR):
            async with Client(base, proxy=proxy) as client:
                kinds.append(kind(await client.exchange(prepared(client, connect_s=0.1, first_token_s=0.5))))
        server.close()
        return kinds[0], kinds[1]

    assert asyncio.run(main()) == ("connect_timeout", "first_token_timeout")


def test_silence_in_the_middle_is_an_idle_timeout_and_closes_the_connection() -> None:
    async def post(talk: Conversation) -> None:
        await talk.stream(SAID, end=False)
        await talk.gone()

    raw, _ = asyncio.run(through(post, idle_s=0.1))
    assert kind(raw) == "idle_timeout"


@pytest.mark.parametrize("rude", [True, False])
def test_a_proxy_that_dies_in_the_middle_has_truncated_the_stream(rude: bool) -> None:
    async def post(talk: Conversation) -> None:
        await talk.stream(SAID, end=False)
        talk.reset() if rude else talk.writer.close()

    raw, _ = asyncio.run(through(post))
    assert kind(raw) == "truncated"


def test_an_answer_before_the_body_was_read_is_that_answer() -> None:
    async def post(talk: Conversation) -> None:
        await talk.reader.readuntil(b"\r\n\r\n")
        await talk.answer(413, b"too large")
        await talk.gone()

    async def main() -> tuple[str | None, int]:
        async with serve(post, reads=False) as stub:
            async with Client(FAR, proxy=f"http://127.0.0.1:{stub.port}") as client:
                raws = [await client.exchange(prepared(client, b"x" * 20_000_000)) for _ in range(2)]
            await stub.all_closed.wait()
            assert {raw.status for raw in raws} == {413}
            return kind(raws[0]), stub.connections

    assert asyncio.run(main()) == (None, 2)


@pytest.mark.parametrize("where", ["uploading", "streaming"])
def test_a_cancelled_exchange_closes_its_connection_and_the_next_one_has_another(where: str) -> None:
    async def main() -> tuple[int, list[str | None]]:
        reading = asyncio.Event()

        async def post(talk: Conversation) -> None:
            if b"again" in talk.body:
                await talk.answer(500, b"fine")
                return
            if where == "streaming":
                await talk.stream(SAID, end=False)
            reading.set()
            await talk.gone()

        async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            talk = Conversation(reader, writer)
            await reader.readuntil(b"\r\n\r\n")
            body = await reader.read(5)
            if body.startswith(b"again"):
                await talk.answer(500, b"fine")
            else:
                reading.set()
                await talk.gone()
            closed.append(1)
            writer.close()

        closed: list[int] = []
        if where == "streaming":
            async with serve(post) as stub:
                kinds = await talk_twice(stub.port, reading, b"{}")
                await stub.all_closed.wait()
                return stub.connections, kinds
        server = await asyncio.start_server(half, "127.0.0.1", 0, limit=1024)
        kinds = await talk_twice(server.sockets[0].getsockname()[1], reading, b"x" * 30_000_000)
        while len(closed) < 2:
            await asyncio.sleep(0.01)
        server.close()
        return len(closed), kinds

    async def talk_twice(port: int, reading: asyncio.Event, body: bytes) -> list[str | None]:
        async with Client(FAR, proxy=f"http://127.0.0.1:{port}") as client:
            task = asyncio.create_task(client.exchange(prepared(client, body), keep_cancelled=True))
            await reading.wait()
            task.cancel()
            first = await task
            second = await client.exchange(prepared(client, b"again"))
            return [kind(first), kind(second) or str(second.status)]

    assert asyncio.run(main()) == (2, ["cancelled", "500"])


def test_a_large_body_is_not_copied_on_its_way() -> None:
    body = b"x" * 20_000_000
    sizes: list[int] = []

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        left = int(line(head, b"content-length") or 0)
        while left:
            left -= len(await reader.read(65536))
        sizes.append(left)
        await Conversation(reader, writer).answer(500, b"enough")
        writer.close()

    async def main() -> int:
        server = await asyncio.start_server(swallow, "127.0.0.1", 0)
        proxy = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with Client(FAR, proxy=proxy) as client:
            request = prepared(client, body)
            tracemalloc.start()
            try:
                await client.exchange(request)
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
                server.close()

    assert asyncio.run(main()) < 5_000_000
    assert sizes == [0]


def test_memory_that_was_read_into_is_used_again() -> None:
    async def main() -> int:
        async with serve(fine) as stub, Client(FAR, proxy=f"http://127.0.0.1:{stub.port}") as client:
            for _ in range(5):
                await client.get_json("/models")
            return len(client._blocks._spare)

    assert asyncio.run(main()) == 1
