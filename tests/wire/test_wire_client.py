"""Control requests: answers, and one clear sentence for everything that goes wrong."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from handled import Handled
from wire_stub import Conversation, serve

from bench.errors import EngineError, SuiteError
from bench.wire.client import Client, StatusError

KEY = "sk-very-secret"


def ask(handler: Callable[[httpx.Request], httpx.Response], path: str = "/models", **options: Any) -> Any:
    async def main() -> Any:
        async with Client("http://host:8000/v1", transport=Handled(handler), **options) as client:
            return await client.get_json(path)

    return asyncio.run(main())


def test_a_path_counts_from_base_url_and_an_address_stands_for_itself() -> None:
    seen = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(str(request.url))
        return httpx.Response(200, json={"a": [1]})

    assert ask(handler, "/models") == {"a": [1]}
    ask(handler, "models")
    ask(handler, "http://other:9/metrics?x=1")
    assert seen == ["http://host:8000/v1/models", "http://host:8000/v1/models", "http://other:9/metrics?x=1"]


def test_key_and_headers_go_to_this_server_alone() -> None:
    seen = {}

    def handler(request: httpx.Request) -> httpx.Response:
        names = ("authorization", "x-rank")
        seen[request.url.netloc.decode()] = [request.headers.get(name) for name in names]
        return httpx.Response(200, json={})

    own = {"api_key": KEY, "headers": {"X-Rank": "0"}}
    ask(handler, "/models", **own)
    ask(handler, "http://other:8000/metrics", **own)
    ask(handler, "http://host:9090/metrics", **own)
    nothing = [None, None]
    assert seen == {"host:8000": [f"Bearer {KEY}", "0"], "other:8000": nothing, "host:9090": nothing}


def test_the_key_goes_to_the_server_by_any_name_of_it_but_never_without_tls_where_the_server_has_it() -> None:
    seen = {}

    def handler(request: httpx.Request) -> httpx.Response:
        seen[str(request.url)] = "authorization" in request.headers
        return httpx.Response(200, json={})

    async def main(base_url: str, *urls: str) -> None:
        async with Client(base_url, api_key=KEY, transport=Handled(handler)) as client:
            for url in urls:
                await client.get_json(url)

    asyncio.run(main("http://localhost:8000/v1", "http://127.0.0.1:8000/metrics"))
    asyncio.run(main("https://h:8000/v1", "https://H:8000/metrics", "http://h:8000/metrics"))
    assert list(seen.values()) == [True, True, False]


def test_a_post_sends_json() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        assert request.headers["content-type"] == "application/json"
        return httpx.Response(200, json={"got": json.loads(request.content)})

    async def main() -> Any:
        async with Client("http://host/v1", transport=Handled(handler)) as client:
            return await client.post_json("http://host/tokenize", {"prompt": "a\u2028"})

    assert asyncio.run(main()) == {"got": {"prompt": "a\u2028"}}


def test_it_works_over_a_real_socket_with_headers_and_times() -> None:
    async def get(talk: Conversation) -> None:
        head = b"HTTP/1.1 200 OK\r\nprocess-start-time-unix: 7\r\ncontent-length: 3\r\n\r\n"
        await talk.say(head + b"a 1")

    async def post(talk: Conversation) -> None:
        await talk.answer(200, talk.body)

    async def main() -> None:
        async with serve(post, get=get) as stub, Client(stub.base_url()) as client:
            reply = await client.get_reply(client.origin + "/metrics")
            assert (reply.text, reply.headers["process-start-time-unix"]) == ("a 1", "7")
            assert 0 < reply.took_ns <= reply.at_ns
            assert await client.get_text("/metrics") == "a 1"
            assert await client.post_json("/tokenize", {"a": 1}) == {"a": 1}
            assert stub.requests[0].startswith(b"GET /metrics HTTP/1.1\r\n")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("status", "body", "sentence"),
    [
        (
            401,
            f'{{"error": "bad key {KEY}"}}',
            "GET http://host:8000/v1/models: HTTP 401: bad key ***; the key is missing or wrong: "
            "name its environment variable with api_key_env",
        ),
        (
            404,
            '{"detail": "Not Found"}',
            "GET http://host:8000/v1/models: HTTP 404: Not Found; there is no such path: "
            "does base_url end in the version part, such as /v1?",
        ),
        (503, "", "GET http://host:8000/v1/models: HTTP 503 without a word"),
        (
            301,
            "",
            "GET http://host:8000/v1/models: HTTP 301 without a word; it redirects: "
            "put the final address into base_url",
        ),
    ],
)
def test_a_status_becomes_one_sentence_that_says_what_to_do(status: int, body: str, sentence: str) -> None:
    with pytest.raises(StatusError) as caught:
        ask(lambda r: httpx.Response(status, text=body), api_key=KEY)
    assert (str(caught.value), caught.value.status) == (sentence, status)


def test_of_an_address_base_url_is_not_asked() -> None:
    for status, end in ((404, "without a word"), (301, "it redirects: give the final address")):
        with pytest.raises(StatusError, match=f"/v1/encode: HTTP {status} .*{end}$"):
            ask(lambda r, status=status: httpx.Response(status), "http://host:8000/v1/encode")  # type: ignore[misc]


def test_an_answer_that_is_no_json_is_shown() -> None:
    with pytest.raises(EngineError, match=r"models: the answer is no JSON but begins with '<html>"):
        ask(lambda r: httpx.Response(200, text="<html>hello</html>"))


def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.wire.client.CONTROL_LIMIT", 1000)
    with pytest.raises(EngineError, match="the answer is larger than 1000 bytes"):
        ask(lambda r: httpx.Response(200, content=b"x" * 1001))


def test_an_answer_compressed_unasked_is_named() -> None:
    with pytest.raises(EngineError, match=r"models: the answer is compressed \(br\) though identity"):
        ask(lambda r: httpx.Response(200, headers={"Content-Encoding": "br"}))


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def test_secrets_leave_nothing_of_themselves_and_settings_stay_in_messages() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        return httpx.Response(401, text="10 requests of abcdef123456 refused")

    with pytest.raises(EngineError, match=r"HTTP 401: 10 requests of [*]{3} refused"):
        ask(refuse, api_key="abcdef", secrets=("1", "abcdef123456"))


def test_nobody_listening_is_one_sentence() -> None:
    port = closed_port()

    async def main() -> None:
        async with Client(f"http://127.0.0.1:{port}/v1", api_key=KEY) as client:
            for request in (client.get_json("/models"), client.warm(), client.warm(connections=3)):
                with pytest.raises(EngineError) as caught:
                    await request
                assert (
                    str(caught.value)
                    == f"GET http://127.0.0.1:{port}/v1/models: nobody listens at 127.0.0.1:{port}"
                )

    asyncio.run(main())


@pytest.mark.parametrize("second", [("127.0.0.1", 2), ("255.255.255.255", 1)])
def test_nobody_listening_at_any_address_of_a_host_is_one_sentence(
    second: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def several(host: str, port: int, *_: object, **__: object) -> list[object]:
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*kind, ("127.0.0.1", port)), (*kind, second)]

    monkeypatch.setattr(socket, "getaddrinfo", several)

    async def main() -> str:
        async with Client("http://several:1/v1") as client:
            with pytest.raises(EngineError) as caught:
                await client.get_json("/models")
            return str(caught.value)

    said = asyncio.run(main()).removeprefix("GET http://several:1/v1/models: ")
    if second == ("127.0.0.1", 2):
        assert said == "nobody listens at several:1"
    else:  # it is not one reason, so all are told
        assert said.startswith("several:1 cannot be reached: Multiple exceptions: ")


def test_a_host_nobody_knows_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)

    async def main() -> None:
        async with Client("http://no-such-host/v1") as client:
            for request in (client.get_json("/models"), client.warm()):
                with pytest.raises(EngineError, match=r"the host of no-such-host:80 is not known \(DNS\)"):
                    await request

    asyncio.run(main())


@pytest.mark.parametrize("host", ["http://a..b:8000", "https://.example.com"])
def test_a_host_that_nobody_can_be_asked_for_is_one_sentence(host: str) -> None:
    async def main() -> None:
        async with Client(f"{host}/v1") as client:
            for request in (client.get_json("/models"), client.warm()):
                with pytest.raises(EngineError, match="cannot be reached"):
                    await request

    asyncio.run(main())


def test_another_address_that_is_none_is_one_sentence() -> None:
    async def main() -> None:
        async with Client("http://host/v1") as client:
            with pytest.raises(SuiteError, match="is no address"):
                await client.get_text("http://host:x/metrics")

    asyncio.run(main())


def test_a_server_that_does_not_answer_is_given_up() -> None:
    async def silent(talk: Conversation) -> None:
        await talk.gone()

    async def main() -> None:
        async with serve(silent, get=silent) as stub:
            async with Client(stub.base_url()) as client:
                with pytest.raises(
                    EngineError, match=r"no answer within 0\.05 s; is the server busy or stuck\?"
                ):
                    await client.get_json("/models", timeout_s=0.05)
                with pytest.raises(EngineError, match=r"no answer within 0\.05 s"):
                    await client.warm(timeout_s=0.05)
            await stub.all_closed.wait()

    asyncio.run(main())


def test_a_server_that_hangs_up_is_one_sentence() -> None:
    async def rude(talk: Conversation) -> None:
        talk.reset()

    async def main() -> None:
        async with serve(rude, get=rude) as stub, Client(stub.base_url()) as client:
            for request in (client.get_json("/models"), client.warm()):
                with pytest.raises(EngineError, match="the connection broke before the answer began"):
                    await request

    asyncio.run(main())


@pytest.mark.parametrize("address", ["", "host:8000", "ftp://host/v1", "http://", "http://h:99999999/v1"])
def test_an_address_that_is_none_is_refused_at_once(address: str) -> None:
    with pytest.raises(SuiteError, match="base_url"):
        Client(address)


def test_user_and_password_in_the_address_go_no_further() -> None:
    client = Client(f"http://user:{KEY}@host:8000/v1/")
    assert (client.base_url, client.origin) == ("http://host:8000/v1", "http://host:8000")


@pytest.mark.parametrize("key", ["", " ", "a\nb", "é"])
def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(SuiteError) as caught:
        Client("http://host/v1", api_key=key)
    assert key.strip() == "" or key not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("X-Rank", "1\r\nX-Evil: 2"), ("X-Rank", "\u0436"), ("X\nY", "1"), ("X:", "1"), ("", "1")],
)
def test_a_header_that_no_request_can_carry_is_refused_without_its_value(name: str, value: str) -> None:
    with pytest.raises(SuiteError, match="no HTTP header can carry") as caught:
        Client("http://host/v1", headers={name: value})
    assert value == "1" or value not in str(caught.value)


@pytest.mark.parametrize("address", ["http://me:se/cret@h/v1", "http://me:secret@h:port/v1"])
def test_an_address_that_is_none_is_refused_without_its_password(address: str) -> None:
    with pytest.raises(SuiteError, match=r"base_url \*\*\* is no address") as caught:
        Client(address)
    assert "se" not in str(caught.value).removeprefix("base_url")


def test_an_address_in_capital_letters_is_one() -> None:
    seen = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(str(request.url))
        return httpx.Response(200, json={})

    ask(handler, "HTTP://other:9/metrics")
    assert seen == ["http://other:9/metrics"]


def test_a_ca_file_that_is_none_is_refused(tmp_path: Any) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("no certificate")

    async def main() -> None:
        async with Client("https://host/v1", ca_file=str(path)):
            pass

    with pytest.raises(SuiteError, match=r"ca\.pem cannot be read as certificates"):
        asyncio.run(main())


def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    async def post(talk: Conversation) -> None:
        await talk.answer(200, b"{}")

    async def main() -> Any:
        async with serve(post) as stub, Client(stub.base_url()) as client:
            await client.warm()
            return await client.get_json("/models")

    assert asyncio.run(main()) == {}
