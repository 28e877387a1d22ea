"""Reads a suite file: TOML -> `Suite`, with errors that name file, key, value and what is allowed."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec import Struct

from bench.address import address_problem, exporter_problems, server_at
from bench.engines import DIALECTS
from bench.errors import SuiteError
from bench.plan.chats import chat_problems
from bench.plan.headers import header_problems
from bench.plan.hooks import command_problems, server_of, server_problems, together_problems
from bench.plan.trials import task_name
from bench.records import (
    ChatSettings,
    FromEnv,
    PromptSettings,
    RequestSettings,
    Route,
    RouteServer,
    Speculation,
    Suite,
    SuiteCondition,
)
from bench.resources import read_text

_MAX_BYTES = 1 << 20
MOST_TOGETHER = 1024
"""Requests of one wave at most: each has a connection and, while it runs, its prompt in memory."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME_MEANS = "letters, digits, '.', '_' and '-', at most 64"


class SuiteTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[suite]`: what is measured."""

    name: str
    tiers: tuple[int, ...]
    conditions: tuple[SuiteCondition, ...] = ("cold", "salted", "replay")
    output_tokens: int = 128
    repeats: int = 3
    replays: int = 2
    seed: int = 1
    warmup: Literal["short", "tier", "none"] = "short"
    retry_invalid: int = 1
    interleave: bool | None = None
    concurrency: tuple[int, ...] = (1,)
    budget: str | None = None
    on_finish: str | tuple[str, ...] | None = None


class RouteTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[route]]`: one way to serve the model."""

    name: str
    base_url: str
    model: str | None = None
    api_key_env: str | None = None
    headers: dict[str, str | int | FromEnv] = {}
    metrics_url: str | None = None
    engine: str | None = None
    speculation: Speculation | None = None
    setting: dict[str, str | int | float | bool] = {}
    request: RequestSettings = RequestSettings()
    config: str | None = None
    drafter_limit: int | None = None
    log: str | None = None
    exporters: tuple[str, ...] = ()
    reset: Literal["vllm", "sglang"] | None = None
    cache_group: str | None = None
    ca_file: str | None = None
    insecure: bool = False
    proxy: str | FromEnv | None = None
    server: RouteServer | None = None


class SuiteFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file, table by table; `[request]` has been merged into the routes."""

    suite: SuiteTable
    prompt: PromptSettings = PromptSettings()
    chats: ChatSettings | None = None
    route: tuple[RouteTable, ...]


def read_suite(path: Path) -> tuple[Suite, str]:
    """The suite in a file, and the file's text.

    Raises `SuiteError` with file, key, value and what is allowed.
    """
    text = read_text(path, _MAX_BYTES)
    return parse_suite(text, name=str(path)), text


def parse_suite(text: str, *, name: str = "suite") -> Suite:
    """The suite in a TOML text; `name` stands for the file in error messages."""
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOML errors, and integers of thousands of digits
        raise SuiteError(f"{name}: not valid TOML: {str(error)[:200]}") from error
    shared_request = tables.pop("request", {})
    _refuse_unknown_keys(name, "request", shared_request, RequestSettings)
    _refuse_unknown_keys(name, "", tables, SuiteFile, ("request",))
    tables = _with_shared_request(tables, shared_request)
    try:
        file = msgspec.convert(tables, SuiteFile)
    except msgspec.ValidationError as error:
        raise SuiteError(_explain(name, error, tables)) from error
    suite = _to_suite(file, _budget_s(name, file.suite.budget))
    for problem in _problems(suite):
        raise SuiteError(f"{name}: {problem}")
    return suite


def _with_shared_request(tables: dict[str, Any], shared: object) -> dict[str, Any]:
    """Each route's request settings: the file's `[request]`, overridden key by key by its own."""
    routes = tables.get("route")
    if not isinstance(routes, list) or not isinstance(shared, dict):
        return {**tables, **({} if isinstance(shared, dict) else {"request": shared})}
    merged = [
        {**route, "request": {**shared, **own}}
        if isinstance(route, dict) and isinstance(own := route.get("request", {}), dict)
        else route
        for route in routes
    ]
    return {**tables, "route": merged}


def _to_suite(file: SuiteFile, budget_s: float | None) -> Suite:
    table = file.suite
    routes = tuple(
        Route(
            **{
                **{field: getattr(route, field) for field in RouteTable.__struct_fields__},
                "base_url": route.base_url.rstrip("/"),
                "setting": {key: str(value) for key, value in route.setting.items()},
                "headers": {n: str(v) if isinstance(v, int) else v for n, v in route.headers.items()},
                "server": server_of(route.server),
            }
        )
        for route in file.route
    )
    separate = len({server_at(route.base_url) for route in routes}) == len(routes)
    return Suite(
        **{
            **{field: getattr(table, field) for field in SuiteTable.__struct_fields__ if field != "budget"},
            "budget_s": budget_s,
            "interleave": separate if table.interleave is None else table.interleave,
        },
        prompt=file.prompt,
        chats=file.chats,
        routes=routes,
    )


def _budget_s(name: str, text: str | None) -> float | None:
    if text is None:
        return None
    from bench.plan.durations import parse_duration

    try:
        return parse_duration(text)
    except SuiteError as error:
        raise SuiteError(f"{name}: [suite] budget: {error}") from None


def _problems(suite: Suite) -> Iterable[str]:
    """What a type cannot say, most basic first."""
    if not _NAME.fullmatch(suite.name):
        yield f"[suite] name = {suite.name!r}: {_NAME_MEANS}"
    yield from _number_problems(suite)
    yield from _condition_problems(suite)
    yield from _task_problems(suite.prompt.tasks)
    yield from chat_problems(suite)
    names = [route.name for route in suite.routes]
    if not names:
        yield "[[route]]: at least one route is needed"
    for number, route in enumerate(suite.routes):
        where = f"[[route]] number {number + 1}"
        if names.index(route.name) < number:
            yield f"{where}: name = {route.name!r} is taken by an earlier route"
        yield from _route_problems(where, route)
        if route.server is not None:
            yield from server_problems(where, route.server)
    yield from together_problems(suite)
    yield from command_problems("[suite] on_finish", suite.on_finish)


def _task_problems(tasks: tuple[str, ...]) -> Iterable[str]:
    if not tasks or not all(tasks):
        yield "[prompt] task: the name of a task, or a list of them"
    names = [task_name(task) for task in tasks]
    for task, name in zip(tasks, names, strict=True):
        if names.count(name) > 1:
            yield f"[prompt] task: two are called {name!r}: each needs a name of its own"
        elif len(tasks) > 1 and not _NAME.fullmatch(name):
            yield f"[prompt] task = {task!r}: among several a name is {_NAME_MEANS}"


def _number_problems(suite: Suite) -> Iterable[str]:
    limits = {
        "output_tokens": (1, 1_000_000),
        "repeats": (1, 1000),
        "replays": (1, 100),
        "retry_invalid": (0, 10),
    }
    for key, (low, high) in limits.items():
        value = getattr(suite, key)
        if not low <= value <= high:
            yield f"[suite] {key} = {value}: allowed are {low} to {high}"
    if not suite.tiers:
        yield "[suite] tiers = []: at least one prompt length in tokens is needed"
    for tier in suite.tiers:
        if not 16 <= tier <= 16_000_000:
            yield f"[suite] tiers: {tier} is not between 16 and 16,000,000 tokens"
    if len(set(suite.tiers)) < len(suite.tiers):
        yield f"[suite] tiers = {list(suite.tiers)}: a length stands there twice"
    yield from _concurrency_problems(suite.concurrency)


def _concurrency_problems(levels: tuple[int, ...]) -> Iterable[str]:
    if not levels:
        yield "[suite] concurrency = []: at least one level is needed, e.g. [1, 2, 4]"
    for level in levels:
        if not 1 <= level <= MOST_TOGETHER:
            yield f"[suite] concurrency: {level} is not between 1 and {MOST_TOGETHER:,} requests at once"
    if len(set(levels)) < len(levels):
        yield f"[suite] concurrency = {list(levels)}: a level stands there twice"


def _condition_problems(suite: Suite) -> Iterable[str]:
    if not suite.conditions:
        yield f"[suite] conditions = []: choose from {', '.join(get_args(SuiteCondition))}"
    if len(set(suite.conditions)) < len(suite.conditions):
        yield f"[suite] conditions = {list(suite.conditions)}: one stands there twice"
    if "replay" in suite.conditions and "cold" not in suite.conditions:
        yield '[suite] conditions: "replay" repeats a cold prompt, so "cold" is needed too'
    if "salted" in suite.conditions and "cold" not in suite.conditions:
        yield '[suite] conditions: "salted" is a cold prompt behind another salt, so "cold" is needed too'
    if "over-limit" in suite.conditions and not any(route.speculation for route in suite.routes):
        yield '[suite] conditions: "over-limit" needs a route with speculation: none declares any'


def _address_problems(where: str, route: Route) -> Iterable[str]:
    of_key, of_proxy = "keys belong into api_key_env or headers", 'write { from_env = "NAME OF A VARIABLE" }'
    for key, value, instead in (
        ("base_url", route.base_url, of_key),
        ("metrics_url", route.metrics_url, of_key),
        ("proxy", route.proxy, of_proxy),
    ):
        if isinstance(value, FromEnv):
            if not _VARIABLE.fullmatch(value.from_env):
                yield f"{where}: {key}: from_env is the name of an environment variable"
        elif value is not None and (problem := address_problem(key, value, instead)):
            yield f"{where}: {problem}"
    for problem in exporter_problems("exporters", route.exporters):
        yield f"{where}: {problem}"


def _route_problems(where: str, route: Route) -> Iterable[str]:
    if not _NAME.fullmatch(route.name):
        yield f"{where}: name = {route.name!r}: {_NAME_MEANS}"
    yield from _address_problems(where, route)
    if route.api_key_env is not None and not _VARIABLE.fullmatch(route.api_key_env):
        # Most likely the key itself: do not repeat it.
        yield f"{where}: api_key_env is the name of an environment variable, never the key itself"
    if route.engine is not None and route.engine not in DIALECTS:
        hint = _nearest(route.engine.lower(), list(DIALECTS))
        yield f"{where}: engine = {route.engine[:40]!r}: no engine is called that; {hint}"
    yield from header_problems(where, route.headers, with_key=route.api_key_env is not None)
    if route.speculation and not 1 <= route.speculation.num_speculative_tokens <= 64:
        yield f"{where}: speculation.num_speculative_tokens: 1 to 64; for target only leave speculation out"
    limit = route.drafter_limit
    if limit is not None and not (route.speculation and 16 <= limit <= 16_000_000):
        yield f"{where}: drafter_limit = {limit}: 16 to 16,000,000 tokens, beside a speculation"
    if route.log == "-":
        yield f"{where}: log = '-': a file, docker:NAME or journal:UNIT; standard input cannot be split"
    timeouts = route.request.timeouts
    for key in timeouts.__struct_fields__:
        value = getattr(timeouts, key)
        if value is not None and not 0 < value <= 1_000_000:
            yield f"{where}: request.timeouts.{key} = {value}: seconds above 0"
    if not 0 <= route.request.temperature <= 10:
        yield f"{where}: request.temperature = {route.request.temperature}: allowed are 0 to 10"


# --- messages ------------------------------------------------------------------------------------


def _refuse_unknown_keys(
    name: str, place: str, table: object, kind: type[Struct], also: tuple[str, ...] = ()
) -> None:
    """Raises `SuiteError` naming the first unknown key and the nearest known one."""
    if not isinstance(table, Mapping):
        return  # the conversion says what is wrong with it
    known = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for key, value in table.items():
        here = f"{place}.{key}" if place else str(key)
        if key not in known:
            allowed = (*known, *also)
            raise SuiteError(f"{name}: unknown key {here!r}; {_nearest(str(key), sorted(allowed))}")
        for inner in _structs_in(known[key]):
            for item in value if isinstance(value, list) else [value]:
                _refuse_unknown_keys(name, here, item, inner)


def _nearest(word: str, allowed: Sequence[str]) -> str:
    """The question whether the nearest of the allowed words was meant; all of them where none is near."""
    near = difflib.get_close_matches(word, allowed, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(allowed)}"


def _structs_in(kind: Any) -> list[type[Struct]]:
    """The record types in an annotation such as `Speculation | None` or `tuple[Route, ...]`."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        return [kind]
    if get_origin(kind) is dict:
        return []  # its keys are the user's own
    return [found for part in get_args(kind) for found in _structs_in(part)]


def _explain(name: str, error: msgspec.ValidationError, tables: Mapping[str, Any]) -> str:
    """msgspec's message with the key's path as TOML writes it, and the value that stands there."""
    message, _, path = str(error).partition(" - at `$")
    key = re.sub(r"\[\.\.\.\]", "", path.removesuffix("`").lstrip("."))
    if missing := re.fullmatch(r"Object missing required field `(\w+)`", message):
        tables_of_a_file = {"suite": "the table [suite]", "route": "a table [[route]]"}
        what = f"{key}.{missing[1]}" if key else tables_of_a_file.get(missing[1], missing[1])
        return f"{name}: {what} is missing; `ctxbench routes llama` prints a whole suite"
    value = _value_at(tables, key)
    shown = "" if value is None or re.search(r"api_key|\benv\b|\bheaders\b", key) else f" = {value!r}"[:80]
    allowed = ", ".join(_allowed(key)) if message.startswith("Invalid enum value") else ""
    said = f"allowed are {allowed}" if allowed else message[0].lower() + message[1:]
    return f"{name}: {key or 'the file'}{shown}: {said}"


def _allowed(key: str) -> list[str]:
    """The words that may stand at a key such as `suite.conditions[0]`."""
    kind: Any = SuiteFile
    for part in re.findall(r"[a-z_]+", key):
        fields = [field for found in _structs_in(kind) for field in msgspec.structs.fields(found)]
        kind = next((field.type for field in fields if field.name == part), None)
    return list(_words(kind))


def _words(kind: Any) -> Iterator[str]:
    """The words of every `Literal` in an annotation."""
    for part in get_args(kind):
        if isinstance(part, str):
            yield part
        else:
            yield from _words(part)


def _value_at(tables: Any, key: str) -> Any:
    for part in re.findall(r"[^.\[\]]+", key):
        if isinstance(tables, list) and part.isdecimal() and int(part) < len(tables):
            tables = tables[int(part)]
        elif isinstance(tables, Mapping):
            tables = tables.get(part)
        else:
            return None
    return tables
