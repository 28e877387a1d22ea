"""A run that looks at the machine: kept beside each exchange, never in its way, and no key goes there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import msgspec
import pytest
from run_helpers import exchanges, suite_text

from bench.analysis.statistics.machine import phase_uses
from bench.errors import SuiteError
from bench.plan.suite import parse_suite
from bench.records import Exchange
from bench.run.forecast.outline import outline
from bench.run.order import Order
from bench.run.preflight.checks import Check
from bench.run.preflight.whole import preflight
from bench.run.progress import Progress
from bench.run.study import start
from bench.servers.simulator import start as simulate

PAGE = b"""# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0"} 75
DCGM_FI_DEV_FB_USED{gpu="0"} 1000
DCGM_FI_DEV_POWER_USAGE{gpu="0"} 250
"""


class Exporter:
    """A loopback server that says one page to everybody, and what it was asked."""

    def __init__(self, page: bytes) -> None:
        self.page = page
        self.asked: list[str] = []
        self.url = ""


@contextmanager
def exporter(page: bytes = PAGE) -> Iterator[Exporter]:
    told = Exporter(page)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told.asked.append(f"{self.path} {self.headers}")
            self.send_response(200)
            self.send_header("Content-Length", str(len(told.page)))
            self.end_headers()
            self.wfile.write(told.page)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    told.url = f"http://127.0.0.1:{server.server_port}/metrics"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield told
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def order_of(base_url: str, route: str, folder: Path) -> Order:
    text = suite_text({"a": base_url}, route=route).replace("repeats = 2", "repeats = 1")
    text = text.replace("output_tokens = 16", "output_tokens = 256")  # a second to look in
    text = text.replace("[256, 512]", "[256]").replace("[prompt]", 'conditions = ["cold"]\n[prompt]')
    return Order(suite=parse_suite(text), suite_text=text, results=folder / "results", folder=folder)


def measured(base_url: str, route: str, folder: Path) -> list[Exchange]:
    return exchanges(asyncio.run(start(order_of(base_url, route, folder), Progress())))


def checked(base_url: str, route: str, folder: Path) -> list[Check]:
    found = asyncio.run(preflight(order_of(base_url, route, folder)))
    return [one for one in found if one.name == "machine"]


def test_an_exporter_is_looked_at_during_an_exchange_and_gets_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROUTE_KEY", "sk-not-for-exporters")
    with exporter() as told, simulate("toy-target-only") as server:
        route = f'exporters = ["{told.url}"]\napi_key_env = "ROUTE_KEY"'
        found = measured(server.base_url, route, tmp_path)
    (machine,) = found[-1].machine
    assert machine.source == told.url and machine.problem is None
    assert machine.values.keys() == {"gpu_utilisation.0", "gpu_memory_used.0", "gpu_power.0"}
    assert set(machine.values["gpu_power.0"]) == {250.0}
    assert all(len(column) == len(machine.at_ns) for column in machine.values.values())
    assert {(use.gauge, use.mean, use.peak) for use in phase_uses(found[-1]) if use.gauge == "gpu_power"} <= {
        ("gpu_power", 250.0, 250.0)
    }
    assert told.asked and not [
        words for words in told.asked if "sk-not-for" in words or "uthorization" in words
    ]
    kept = b"".join(path.read_bytes() for path in (tmp_path / "results").rglob("*") if path.is_file())
    assert b"sk-not-for" not in kept


@pytest.mark.parametrize("page", [b"<html>", b"x 1\n" * 200_000 + b"\xff"])
def test_an_exporter_that_tells_nothing_stops_no_run_and_the_check_says_so(
    page: bytes, tmp_path: Path
) -> None:
    with exporter(page) as told, simulate("toy-target-only") as server:
        route = f'exporters = ["{told.url}"]'
        (line,) = checked(server.base_url, route, tmp_path)
        assert line.state == "warn" and line.text.startswith(f"{told.url}: ")
        (one,) = measured(server.base_url, route, tmp_path)
    assert one.failure is None and one.machine[0].values == {}


def test_the_check_says_what_an_exporter_tells_and_what_is_absent(tmp_path: Path) -> None:
    with exporter() as told, simulate("toy-target-only") as server:
        route = f'exporters = ["{told.url}", "http://127.0.0.1:1/metrics"]'
        there, absent = checked(server.base_url, route, tmp_path)
    assert (there.state, there.text) == (
        "ok",
        f"{told.url}: tells gpu_utilisation, gpu_memory_used, gpu_power",
    )
    assert absent.state == "warn"
    assert absent.text == "http://127.0.0.1:1/metrics: nobody listens at 127.0.0.1:1"


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("http://user:secret@h:9400/metrics", "holds a user or password"),
        ("http://h:9400/metrics?token=secret", "holds a query"),
        ("ftp://h/metrics", "an http:// or https:// address"),
    ],
)
def test_an_exporters_address_holds_no_secret(address: str, problem: str) -> None:
    with pytest.raises(SuiteError, match="exporters") as refused:
        parse_suite(suite_text({"a": "http://h/v1"}, route=f'exporters = ["{address}"]'))
    assert problem in str(refused.value)
    assert "secret" not in str(refused.value)


def test_too_many_or_repeated_exporters_are_refused() -> None:
    for listed in (["http://h/m"] * 2, [f"http://h{n}/m" for n in range(17)]):
        route = f"exporters = {msgspec.json.encode(listed).decode()}"
        with pytest.raises(SuiteError, match="at most 16 addresses, each of them once"):
            parse_suite(suite_text({"a": "http://h/v1"}, route=route))


def test_a_dry_run_names_the_exporters(tmp_path: Path) -> None:
    lines = outline(order_of("http://h/v1", 'exporters = ["http://gpu:9400/metrics"]', tmp_path))
    assert "  looks at the machine: http://gpu:9400/metrics" in lines
