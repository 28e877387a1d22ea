"""What is to be watched, for how long, and the directory that keeps it."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from bench.address import exporter_problems, is_address
from bench.analysis.watch.windows import BUSY_S
from bench.engines import DIALECTS
from bench.errors import SuiteError
from bench.journal import SCHEMA, Journal
from bench.records import PromptSettings, Route, RunInfo, ServerFacts, Suite
from bench.run.exchange import utc_now
from bench.wire.host import environment


class WatchOrder(Struct, frozen=True, kw_only=True):
    """What to watch, how often, until when, and where to keep it."""

    url: str
    """The server, its `/v1`, or its metrics page."""
    every_s: float = 1.0
    for_s: float | None = None
    """`None`: until interrupted."""
    requests: int | None = None
    """End after so many finished requests."""
    busy_s: float = BUSY_S
    """While requests overlap without end, their sums are told after so long."""
    log: str | None = None
    """A log source as `ctxbench logs` takes it, but not standard input."""
    out: Path | None = None
    """A new run directory; `None`: nothing is kept."""
    engine: str | None = None
    api_key_env: str | None = None
    ca_file: str | None = None
    insecure: bool = False
    exporters: tuple[str, ...] = ()
    """Prometheus pages that tell of the machine under the server; without any, local GPUs by NVML."""


def metrics_address(url: str, engine: str | None = None) -> str:
    """`http://h:8000`, `http://h:8000/v1` or a metrics page's own address -> the metrics page's, which
    is where `engine` has it.

    Raises `SuiteError` for what is no address.
    """
    if not is_address(url):
        raise SuiteError(f"{url[:200]!r} is neither like http://host:port nor the directory of a watch")
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if not path.endswith("/metrics"):
        known = DIALECTS.get(engine or "", DIALECTS["generic"])
        path = path.removesuffix("/v1") + known.metrics_path
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{path}"


def exporters_of(addresses: tuple[str, ...]) -> tuple[str, ...]:
    """The addresses as they are given. Raises `SuiteError` for what is none, and for what may hold a
    secret: they are kept in the run directory and shown."""
    for problem in exporter_problems("--exporter", addresses):
        raise SuiteError(problem)
    return addresses


def key_of(order: WatchOrder) -> str | None:
    """The key for the metrics page, from its environment variable; `SuiteError` when it is not set."""
    if order.api_key_env is None:
        return None
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", order.api_key_env):
        raise SuiteError("--api-key-env: give the name of an environment variable, never the key itself")
    key = os.environ.get(order.api_key_env)
    if not key:
        raise SuiteError(f"--api-key-env: the environment variable {order.api_key_env} is not set")
    return key


def watched_route(order: WatchOrder, address: str, engine: str) -> Route:
    """The server as a route, whose metrics page is at `address`."""
    return Route(
        name="watched",
        base_url=f"{address.removesuffix(DIALECTS[engine].metrics_path)}/v1",
        metrics_url=address,
        api_key_env=order.api_key_env,
        engine=engine,
        ca_file=order.ca_file,
        insecure=order.insecure,
        exporters=order.exporters,
    )


@contextlib.contextmanager
def kept(route: Route, order: WatchOrder, facts: ServerFacts) -> Iterator[Journal | None]:
    """The run directory of a watch: a run without a plan. `None` where nothing is to be kept."""
    if order.out is None:
        yield None
        return
    suite = Suite(
        name="watch",
        tiers=(),
        conditions=(),
        output_tokens=0,
        repeats=0,
        replays=0,
        seed=0,
        warmup="none",
        retry_invalid=0,
        interleave=False,
        prompt=PromptSettings(),
        routes=(route,),
    )
    info = RunInfo(
        schema=SCHEMA,
        id=order.out.name,
        created_at=utc_now(),
        nonce=secrets.token_hex(8),
        suite=suite,
        suite_text="",
        plan=(),
        facts={route.name: facts},
        environment=environment(),
        notes=(f"watched {route.metrics_url} every {order.every_s:g} s; no request was sent",),
    )
    with Journal.create(order.out, info) as journal:
        yield journal
