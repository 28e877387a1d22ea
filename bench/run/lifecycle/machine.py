"""The machine under a route's server: its exporters, and the GPUs here where the server is here too."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from urllib.parse import urlsplit

from bench.address import is_here
from bench.records import Route
from bench.run.openroute import proxy_of
from bench.wire.client import Client
from bench.wire.machine import MachineLook, look_at
from bench.wire.nvml import open_nvml

NVML = "nvml"
"""Source of what the client's own machine says of its GPUs."""


@contextlib.asynccontextmanager
async def machine_looks(route: Route) -> AsyncIterator[dict[str, MachineLook]]:
    """How to look at each exporter of the route; without any, at the GPUs here if its server is here.

    Exporters get no API key: they are other servers. Nothing is asked yet.
    """
    async with contextlib.AsyncExitStack() as stack:
        looks: dict[str, MachineLook] = {}
        for url in route.exporters:
            client = Client(
                url,
                ca_file=route.ca_file,
                insecure=route.insecure,
                proxy=proxy_of(route),
                connect_s=route.request.timeouts.connect_s,
            )
            looks[url] = partial(look_at, await stack.enter_async_context(client), url)
        gpus = stack.enter_context(open_nvml()) if _is_here(route) and not route.exporters else None
        if gpus is not None:
            looks[NVML] = partial(asyncio.to_thread, gpus.read)
        yield looks


def _is_here(route: Route) -> bool:
    return is_here(urlsplit(route.base_url).hostname or "")
