"""Faults of the connection, as a socket sees them."""

from __future__ import annotations

import json
import socket

import httpx
import pytest
from simulator_client import Client, raw_request, simulator

from bench.servers.simulator import start


def everything(opened: socket.socket) -> bytes:
    """What comes until the end; raises `ConnectionResetError` on a reset."""
    got = b""
    with opened:
        while piece := opened.recv(65536):
            got += piece
    return got


def until_reset(opened: socket.socket) -> bytes:
    got = b""
    with opened, pytest.raises(ConnectionResetError):
        while piece := opened.recv(65536):
            got += piece
    return got


def silent(opened: socket.socket) -> bool:
    """Nothing comes for a while, and the connection stays."""
    opened.settimeout(0.2)
    try:
        with opened:
            opened.recv(65536)
    except TimeoutError:
        return True
    return False


def status(client: Client) -> httpx.Response:
    return client.post("/v1/chat/completions", client.body())


def test_refused__nobody_listens() -> None:
    with start("toy", faults=["refused"]) as server, pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=5)


def test_loading__three_503_and_then_ready() -> None:
    with simulator(faults=("loading",)) as client:
        assert [client.get("/health").status_code for _ in range(4)] == [503, 503, 503, 200]
        assert status(client).status_code == 200


def test_reset_upload__the_connection_breaks_before_the_headers() -> None:
    with simulator(faults=("reset-upload",)) as client:
        assert until_reset(raw_request(client)) == b""


def test_hang_headers__nothing_ever_comes() -> None:
    with simulator(faults=("hang-headers",)) as client:
        assert silent(raw_request(client))


def test_hang_stream__silence_after_half_of_the_tokens() -> None:
    with simulator(faults=("hang-stream",)) as client:
        with raw_request(client) as opened:
            got = opened.recv(65536)
            while sum(told := client.truth().chunk_tokens) < 20 or got.count(b"data: ") <= len(told):
                got += opened.recv(65536)
            assert silent(opened)
        assert b"200 OK" in got and b"[DONE]" not in got
        assert 20 <= sum(client.truth().chunk_tokens) <= 22


def test_reset_stream__broken_after_half_of_the_tokens() -> None:
    with simulator(faults=("reset-stream",)) as client:
        got = until_reset(raw_request(client))
        assert got.count(b"data: ") > 3 and b"[DONE]" not in got


def test_unauthorized__401() -> None:
    with simulator(faults=("unauthorized",)) as client:
        reply = status(client)
        assert (reply.status_code, reply.json()) == (401, {"error": "Unauthorized"})


def test_model_missing__404() -> None:
    with simulator(faults=("model-missing",)) as client:
        reply = status(client)
        assert (reply.status_code, reply.json()["error"]["type"]) == (404, "NotFoundError")


def test_too_large__413_with_html() -> None:
    with simulator(faults=("too-large",)) as client:
        got = everything(raw_request(client))
        assert got.startswith(b"HTTP/1.1 413") and b"text/html" in got


def test_rate_limited__429_with_retry_after() -> None:
    with simulator(faults=("rate-limited@1",)) as client:
        reply = status(client)
        assert (reply.status_code, reply.headers["retry-after"]) == (429, "1")
        assert status(client).status_code == 200


def test_server_error__500_with_a_body() -> None:
    with simulator(faults=("server-error",)) as client:
        reply = status(client)
        assert (reply.status_code, reply.json()["error"]["code"]) == (500, 500)
        assert client.truth().status == 500


def test_no_request_of_a_refused_kind_reaches_the_engine() -> None:
    with simulator(faults=("server-error",)) as client:
        status(client)
        assert client.counter("prompt_tokens_total") == 0
        assert json.loads(client.get("/truth").content)["requests"][0]["prompt_tokens"] == 0
