"""A route whose server has been asked who it is: address, dialect, facts and client in one hand."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from bench import engines
from bench.address import is_address
from bench.engines.base import Dialect
from bench.engines.context import ContextVerdict
from bench.engines.metrics import read_page
from bench.errors import EngineError, SuiteError
from bench.plan.headers import value_problem
from bench.records import FromEnv, Route, ServerFacts
from bench.wire.client import Client
from bench.wire.machine import MachineLook

_USUAL = "/metrics"
_PROBE_TIMEOUT_S = 15.0
_SHOWN_NAMES, _SHOWN_CHARS = 8, 100
_METRICS_TIMEOUT_S = 30.0  # llama.cpp answers between two batches of a long prefill


class OpenRoute(Struct, frozen=True, kw_only=True, eq=False):
    """One connected route."""

    route: Route
    client: Client
    dialect: Dialect
    facts: ServerFacts
    model: str
    metrics_url: str | None
    """`None`: the server has no metrics page; what needs one is absent."""
    notes: tuple[str, ...] = ()
    context: ContextVerdict | None = None
    """What the context rules say, where the route names a config."""
    machine: Mapping[str, MachineLook] = {}
    """How to look at the machine under the server: by exporter, and `nvml`."""
    log_problem: str | None = None
    """Why the server's log, where there is one, gave no facts."""

    @property
    def root(self) -> str:
        """The server's address without the version part."""
        return root_of(self.route)

    @property
    def whose(self) -> str:
        """What to ask where the server lacks an endpoint that its engine has."""
        return f"is this {self.dialect.title}?"


def root_of(route: Route) -> str:
    """`http://h:8000/v1` -> `http://h:8000`: where `/metrics`, `/tokenize` and the like are."""
    return route.base_url.removesuffix("/v1")


def api_key(route: Route) -> str | None:
    """The route's key out of its environment variable.

    Raises `SuiteError` when the variable is not set.
    """
    return None if route.api_key_env is None else _variable(route, route.api_key_env)


def headers_of(route: Route) -> tuple[dict[str, str], tuple[str, ...]]:
    """The route's headers with their values, and those of the values that are in no file.

    Raises `SuiteError` when a variable is not set, or holds what no header can carry.
    """
    headers, secrets = {}, []
    for name, value in route.headers.items():
        if isinstance(value, FromEnv):
            headers[name] = _variable(route, value.from_env)
            secrets.append(headers[name])
            if problem := value_problem(headers[name]):
                raise SuiteError(f"route {route.name}: the environment variable {value.from_env} {problem}")
        else:
            headers[name] = value
    return headers, tuple(secrets)


def proxy_of(route: Route) -> str | None:
    """The route's proxy, with user and password where a variable holds them.

    Raises `SuiteError` when the variable is not set or holds no address.
    """
    if not isinstance(route.proxy, FromEnv):
        return route.proxy
    proxy = _variable(route, route.proxy.from_env)
    if value_problem(proxy) or not is_address(proxy):
        raise SuiteError(
            f"route {route.name}: the environment variable {route.proxy.from_env} is to hold a proxy's "
            "address, http://user:password@host:port"
        )
    return proxy


def _variable(route: Route, name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise SuiteError(f"route {route.name}: the environment variable {name} is not set")
    return value


async def connect(route: Route, client: Client) -> OpenRoute:
    """Asks a route's server for its model, its engine and its limits; sends no generation request.

    Raises `EngineError` when it cannot be reached, refuses the key, or does not serve the model.
    """
    models = await client.get_json("/models", timeout_s=_PROBE_TIMEOUT_S)
    model = _choose_model(route, models)
    metrics = await _metrics(route, client)
    probes = await _probe(route, client)
    probes["/v1/models"] = _only(models, model)
    dialect = engines.get(route.engine) if route.engine else engines.detect(probes, metrics.page)
    if not dialect.aliases and re.search(r"^dynamo_frontend_", metrics.page or "", re.MULTILINE):
        metrics = _Metrics(
            None, why=f"{metrics.url} is a Dynamo frontend's: give its worker's as metrics_url"
        )
    read = read_page(metrics.page, dialect) if metrics.page is not None else None
    facts = dialect.facts(probes, read.values if read else {}, read.info if read else {})
    return OpenRoute(
        route=route,
        client=client,
        dialect=dialect,
        facts=facts,
        model=model,
        metrics_url=metrics.url,
        notes=(_no_metrics(metrics.why, dialect),) if metrics.url is None else (),
    )


def models_in(answer: object) -> list[Mapping[str, Any]]:
    """The entries of an answer of /v1/models that name a model; anything else in it is passed over."""
    data = answer.get("data") if isinstance(answer, Mapping) else None
    entries = data if isinstance(data, list) else []
    return [one for one in entries if isinstance(one, Mapping) and isinstance(one.get("id"), str)]


def names_in(answer: object) -> list[str]:
    """The names of the models that an answer of /v1/models lists."""
    return [str(one["id"]) for one in models_in(answer)]


def shown_names(names: Sequence[str]) -> str:
    """Some of the names, for a message of one line."""
    return ", ".join(name[:_SHOWN_CHARS] for name in names[:_SHOWN_NAMES])


def _choose_model(route: Route, models: object) -> str:
    served = names_in(models)
    if not served:
        raise EngineError(f"route {route.name}: {route.base_url}/models lists no model; is base_url right?")
    if route.model is None:
        if len(served) > 1:
            names = shown_names(served)
            raise EngineError(f"route {route.name}: several models are served ({names}); name one with model")
        return served[0]
    if route.model not in served:
        names = shown_names(served)
        raise EngineError(f"route {route.name}: model {route.model!r} is not served; served: {names}")
    return route.model


def _only(models: object, model: str) -> dict[str, Any]:
    """The answer of /v1/models reduced to the entry of our model."""
    return {"data": [entry for entry in models_in(models) if entry["id"] == model]}


class _Metrics(NamedTuple):
    """The metrics page and where it is, or why there is none."""

    url: str | None
    page: str | None = None
    why: str = ""


async def _metrics(route: Route, client: Client) -> _Metrics:
    """The page that the suite names, else the engine's own, else what is usual.

    Where no engine is named and `/metrics` answers with JSON, the page is looked for once where an
    engine has another place for it, and `/metrics` is never read again: reading may empty it.
    """
    if route.metrics_url is not None:  # asked for by name: its failure is one
        page = await client.get_text(
            route.metrics_url, timeout_s=_METRICS_TIMEOUT_S, if_missing="is metrics_url right?"
        )
        return _Metrics(route.metrics_url, page)
    own = engines.get(route.engine) if route.engine else None
    found = await _page_at(root_of(route) + (own.metrics_path if own else _USUAL), client)
    if own is not None or not _is_json(found.page):
        return found
    tried = [f"{found.url} is JSON, no metrics page"]
    for path in dict.fromkeys(dialect.metrics_path for dialect in engines.DIALECTS.values()):
        if path == _USUAL:
            continue
        other = await _page_at(root_of(route) + path, client)
        if other.url is not None and not _is_json(other.page):
            return other
        tried.append(other.why or f"{other.url} is JSON, too")
    return _Metrics(None, why="; ".join(tried))


async def _page_at(url: str, client: Client) -> _Metrics:
    try:
        return _Metrics(url, await client.get_text(url, timeout_s=_METRICS_TIMEOUT_S))
    except EngineError as error:
        return _Metrics(None, why=str(error))


def _is_json(page: str | None) -> bool:
    return (page or "").lstrip()[:1] in ("[", "{")


def _no_metrics(why: str, dialect: Dialect) -> str:
    """The note for the report; what is missing may be a matter of how the server was started."""
    advice = f"; {dialect.metrics_advice}" if dialect.metrics_advice else ""
    return f"no metrics ({why}{advice}): only the client's own numbers are proven"


async def _probe(route: Route, client: Client) -> dict[str, object]:
    """Answers of the endpoints in which engines describe themselves; `None` where there is none."""
    dialects = [engines.get(route.engine)] if route.engine else list(engines.DIALECTS.values())
    answers: dict[str, object] = {}
    for path in dict.fromkeys(path for dialect in dialects for path in dialect.probes):
        if path == "/v1/models":
            continue
        try:
            answers[path] = await client.get_json(root_of(route) + path, timeout_s=_PROBE_TIMEOUT_S)
        except EngineError:
            answers[path] = None  # this engine has no such endpoint: that is the answer
    return answers
