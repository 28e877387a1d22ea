"""The setting table: what each route was, with who says so."""

from __future__ import annotations

from bench.records import Route, RunInfo, ServerFacts
from bench.report import sources
from bench.report.content import Content
from bench.report.labels import shown_name
from bench.report.quantities import MISSING
from bench.report.told import Told


def setting_rows(content: Content) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the setting table: a property a row, a route a column; plain texts."""
    pairs = [(run.info, route) for run in content.runs for route in run.info.suite.routes]
    columns = [_setting(info, route) for info, route in pairs]
    names = list(dict.fromkeys(name for column in columns for name in column))
    missing = Told(MISSING, sources.UNTOLD)
    rows = [[name, *(column.get(name, missing) for column in columns)] for name in names]
    names_shown = [shown_name(content.labels, info, route.name) for info, route in pairs]
    return ["", *names_shown], [row for row in rows if set(row[1:]) != {MISSING}]


def told_facts(facts: ServerFacts) -> dict[str, str]:
    """What a server says of itself, and where it says so; what it is silent about is left out."""
    said = {
        "model": (facts.model, "model"),
        "engine": (" ".join(part for part in (facts.engine, facts.version) if part), "version"),
        "k seen": (_count(facts.num_speculative_tokens), "num_speculative_tokens"),
        "served limit (tok)": (_count(facts.max_model_len), "max_model_len"),
        "drafter limit (tok)": (_count(facts.drafter_limit), "drafter_limit"),
        "prefix block (tok)": (_count(facts.block_size), "block_size"),
        "KV capacity (tok)": (_count(facts.kv_capacity_tokens), "kv_capacity_tokens"),
        "prefix caching": (_switch(facts.prefix_caching), "prefix_caching"),
    }
    return {
        name: Told(text, f"What the server says of itself. Witness: {_witness(facts, fact)}.")
        for name, (text, fact) in said.items()
        if text
    }


def _setting(info: RunInfo, route: Route) -> dict[str, str]:
    """Texts that are not `Told` are the suite's own."""
    speculation, request = route.speculation, route.request
    tokenizer = info.tokenizers.get(route.name)
    rows: dict[str, str | None] = {
        "model": route.model,
        "engine": None,  # holds the place
        "speculation declared": f"{speculation.method}, k = {speculation.num_speculative_tokens}"
        if speculation
        else "none",
        **told_facts(info.facts.get(route.name, ServerFacts())),
        **route.setting,
        "tokenizer": Told(f"{tokenizer.kind} {tokenizer.name} {tokenizer.sha256[:12]}", sources.TOKENIZER)
        if tokenizer
        else None,
        "request": f"{request.endpoint}, temperature {request.temperature:g}"
        + (", ignore_eos" if request.ignore_eos else ""),
        "headers": "; ".join(f"{name}: {value}" for name, value in route.headers.items()),
        "TLS": "not verified" if route.insecure else None,
    }
    return {
        name: text if isinstance(text, Told) else Told(text, sources.SUITE)
        for name, text in rows.items()
        if text
    }


def _witness(facts: ServerFacts, fact: str) -> str:
    return facts.sources.get(fact, "its facts in run.json")


def _switch(value: bool | None) -> str | None:
    return None if value is None else ("on" if value else "off")


def _count(value: int | None) -> str | None:
    return None if value is None else f"{value:,}"
