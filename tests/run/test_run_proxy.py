"""A proxy with a password: used, and in no file and no message."""

from __future__ import annotations

import asyncio
import base64
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import msgspec
import pytest
from run_helpers import ctxbench_here, suite_text

from bench.errors import EngineError, SuiteError
from bench.plan.suite import parse_suite
from bench.records import FromEnv, Suite
from bench.run.finish import secrets_of
from bench.run.openroute import proxy_of
from bench.wire.client import Client

PROXY = 'proxy = { from_env = "CTX_TEST_PROXY" }'
SECRET = "hush-hush-secret"


def suite() -> Suite:
    return parse_suite(suite_text({"a": "http://far.invalid/v1"}, route=PROXY))


def test_a_proxy_out_of_a_variable_is_given_its_password_which_is_masked_where_it_comes_back(
    tmp_path: Path,
) -> None:
    seen: list[tuple[str, str | None]] = []

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers.get("proxy-authorization")))
            self.send_response(407)
            self.end_headers()
            self.wfile.write(f"not with {SECRET}".encode())

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    (tmp_path / "s.toml").write_text(suite_text({"a": "http://far.invalid/v1"}, route=PROXY))
    with HTTPServer(("127.0.0.1", 0), Proxy) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        address = f"http://me:{SECRET}@127.0.0.1:{server.server_port}"
        done = ctxbench_here(["check", "s.toml"], tmp_path, CTX_TEST_PROXY=address)
        server.shutdown()
        thread.join()
    credentials = base64.b64encode(f"me:{SECRET}".encode()).decode()
    assert set(seen) == {("http://far.invalid/v1/models", f"Basic {credentials}")}
    told = " ".join((done.stdout + done.stderr).split())
    assert "the proxy wants a user and password" in told and SECRET not in told
    assert "(HTTP 407: not with ***)" in told


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_is_down_is_not_taken_for_the_server(scheme: str, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(suite_text({"a": f"{scheme}://far.invalid/v1"}, route=PROXY))
    with socket.socket() as nobody:  # bound, so that nobody else is there, and never listening
        nobody.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{nobody.getsockname()[1]}"
        done = ctxbench_here(["check", "s.toml"], tmp_path, CTX_TEST_PROXY=f"http://me:{SECRET}@{place}")
    told = " ".join((done.stdout + done.stderr).split())
    assert f"the proxy {place} does not answer" in told
    assert "nobody listens" not in told and SECRET not in told


@pytest.mark.parametrize(
    ("status", "said"), [(407, "wants a user and password"), (502, "does not connect: it answers HTTP 502")]
)
def test_a_proxy_that_opens_no_tunnel_says_why(status: int, said: str) -> None:
    class Proxy(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    async def ask(proxy: str) -> None:
        async with Client("https://far.invalid/v1", proxy=proxy) as client:
            await client.get_json("/models")

    with HTTPServer(("127.0.0.1", 0), Proxy) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        place = f"127.0.0.1:{server.server_port}"
        with pytest.raises(EngineError, match=f"models: the proxy {place} {said}") as caught:
            asyncio.run(ask(f"http://me:{SECRET}@{place}"))
        server.shutdown()
        thread.join()
    assert SECRET not in str(caught.value)


def test_a_run_keeps_the_name_of_the_variable_and_a_finish_command_shows_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CTX_TEST_PROXY", f"http://me:{SECRET}@h:3128")
    kept = msgspec.json.decode(msgspec.json.encode(suite()), type=Suite)
    assert kept.routes[0].proxy == FromEnv(from_env="CTX_TEST_PROXY")
    assert proxy_of(kept.routes[0]) == f"http://me:{SECRET}@h:3128"
    assert f"http://me:{SECRET}@h:3128" in secrets_of(kept)
    assert SECRET in secrets_of(kept)


@pytest.mark.parametrize(
    "value", ["", f"me:{SECRET}@h:3128", f"http://me:{SECRET}@h:x", f"http://{SECRET}\n@h"]
)
def test_a_variable_without_an_address_is_named_and_not_repeated(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CTX_TEST_PROXY", value)
    with pytest.raises(SuiteError, match="route a: the environment variable CTX_TEST_PROXY") as caught:
        proxy_of(suite().routes[0])
    assert SECRET not in str(caught.value)
