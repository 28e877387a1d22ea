"""A bare client for the simulator's tests: httpx and sockets, nothing of ours."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from bench.servers.simulator import RequestTruth, Simulator, start

TEXT = "The quick brown fox jumps over the lazy dog, and then it walks home again. "
OUTPUT = 40
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # reading the system's certificates is slow


class Client:
    """Speaks to one simulator."""

    def __init__(self, server: Simulator) -> None:
        self.server = server
        self.http = httpx.Client(trust_env=False, timeout=20, verify=NO_TLS)

    def get(self, path: str) -> httpx.Response:
        return self.http.get(self.server.origin + path)

    def post(self, path: str, body: object) -> httpx.Response:
        return self.http.post(self.server.origin + path, json=body)

    def body(self, text: str = TEXT * 20, **more: object) -> dict[str, Any]:
        """A streaming chat request."""
        body: dict[str, Any] = {
            "model": self.server.profile.model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": OUTPUT,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return body | more

    def ask(self, text: str = TEXT * 20, **more: object) -> bytes:
        """The raw stream of a chat request."""
        reply = self.post("/v1/chat/completions", self.body(text, **more))
        assert reply.status_code == 200, reply.text
        return reply.content

    def reads(self, **more: object) -> Iterator[bytes]:
        """The stream as it arrives."""
        body = self.body(**more)
        with self.http.stream("POST", self.server.origin + "/v1/chat/completions", json=body) as reply:
            yield from reply.iter_raw()

    def page(self) -> str:
        return self.get("/metrics").text

    def counter(self, name: str) -> float:
        """Sum of a family's samples on the page."""
        found = [line for line in self.page().splitlines() if line.startswith(f"vllm:{name}{{")]
        assert found, f"{name} is not on the page"
        return sum(float(line.rsplit(" ", 1)[1]) for line in found)

    def truth(self) -> RequestTruth:
        """Of the last request."""
        return self.server.truth().requests[-1]


@contextmanager
def simulator(profile: str = "toy", *, speed: float = 500, faults: tuple[str, ...] = ()) -> Iterator[Client]:
    with start(profile, speed=speed, faults=faults) as server:
        client = Client(server)
        with client.http:
            yield client


def events(raw: bytes) -> list[Any]:
    """JSON of every event but `[DONE]`; for well-formed streams with LF."""
    lines = [line for line in raw.decode().split("\n") if line.startswith("data: ")]
    return [json.loads(line[6:]) for line in lines if line != "data: [DONE]"]


def chunks(raw: bytes) -> list[Any]:
    """The events that have a choice."""
    return [event for event in events(raw) if event.get("choices")]


def text(raw: bytes) -> str:
    """The answer in a chat stream's content."""
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks(raw))


def usage(raw: bytes) -> Any:
    return events(raw)[-1]["usage"]


def raw_request(client: Client, **more: object) -> socket.socket:
    """A socket on which a chat request was just sent."""
    body = json.dumps(client.body(**more)).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: simulator\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    opened = socket.create_connection(("127.0.0.1", client.server.port), timeout=10)
    opened.sendall(head.encode() + body)
    return opened
