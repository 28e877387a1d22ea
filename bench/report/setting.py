"""The setting table: what each route was, with who says so."""

from __future__ import annotations

from bench.records import Route, RunInfo, ServerFacts
from bench.report import sources
from bench.report.content import Content
from bench.report.quantities import MISSING
from bench.report.told import Told


def setting_rows(content: Content) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the setting table: a property a row, a route a column; plain texts."""
    pairs = [(run.info, route) for run in content.runs for route in run.info.suite.routes]
    columns = [_setting(info, route) for info, route in pairs]
    names = list(dict.fromkeys(name for column in columns for name in column))
    missing = Told(MISSING, sources.UNTOLD)
    rows = [[name, *(column.get(name, missing) for column in columns)] for name in names]
    return ["", *(route.name for _, route in pairs)], [row for row in rows if set(row[1:]) != {MISSING}]


_FACTS = {
    "model": "model",
    "engine": "version",
    "k seen": "num_speculative_tokens",
    "served limit (tok)": "max_model_len",
    "drafter limit (tok)": "drafter_limit",
    "prefix block (tok)": "block_size",
    "KV capacity (tok)": "kv_capacity_tokens",
    "prefix caching": "prefix_caching",
}
"""Rows that the server tells, and the fact behind each."""


def _setting(info: RunInfo, route: Route) -> dict[str, str]:
    facts = info.facts.get(route.name, ServerFacts())
    speculation, request = route.speculation, route.request
    tokenizer = info.tokenizers.get(route.name)
    declared = f"{speculation.method}, k = {speculation.num_speculative_tokens}" if speculation else "none"
    rows = {
        "model": facts.model or route.model,
        "engine": " ".join(part for part in (facts.engine, facts.version) if part),
        "speculation declared": declared,
        "k seen": _count(facts.num_speculative_tokens),
        "served limit (tok)": _count(facts.max_model_len),
        "drafter limit (tok)": _count(facts.drafter_limit),
        "prefix block (tok)": _count(facts.block_size),
        "KV capacity (tok)": _count(facts.kv_capacity_tokens),
        "prefix caching": None if facts.prefix_caching is None else ("on" if facts.prefix_caching else "off"),
        **route.setting,
        "tokenizer": f"{tokenizer.kind} {tokenizer.name} {tokenizer.sha256[:12]}" if tokenizer else None,
        "request": f"{request.endpoint}, temperature {request.temperature:g}"
        + (", ignore_eos" if request.ignore_eos else ""),
        "TLS": "not verified" if route.insecure else None,
    }
    return {name: Told(text, _source(name, facts, route)) for name, text in rows.items() if text}


def _source(name: str, facts: ServerFacts, route: Route) -> str:
    """Who says so: the server, and where, or the suite."""
    if name in route.setting or name not in {*_FACTS, "tokenizer"}:
        return sources.SUITE
    if name == "tokenizer":
        return sources.TOKENIZER
    witness = facts.sources.get(_FACTS[name], "its facts in run.json")
    return f"What the server says of itself. Witness: {witness}."


def _count(value: int | None) -> str | None:
    return None if value is None else f"{value:,}"
