"""The worked example of docs/engines.md does what the document says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import bench.engines as engines
from bench.engines.base import Dialect
from bench.engines.metrics import read_page
from bench.records import ServerFacts, Usage

DOCUMENT = (Path(__file__).parent.parent.parent / "docs" / "engines.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)
    assert found
    return found[1]


def example() -> Dialect:
    names: dict[str, Any] = {}
    exec(compile(block("python"), "docs/engines.md", "exec"), names)  # noqa: S102 - our own document
    dialect = names["DIALECT"]
    assert isinstance(dialect, Dialect)
    return dialect


def test_the_example_is_a_whole_dialect(monkeypatch: Any) -> None:
    dialect = example()
    monkeypatch.setattr(engines, "DIALECTS", {"acme": dialect, **engines.DIALECTS})
    text = block("text")
    assert engines.get("acme") is dialect
    assert engines.detect({}, text) is dialect
    assert engines.detect({"/version": {"acme_build": "2.0"}}, None) is dialect

    page = read_page(text, dialect)
    assert page.problem is None
    assert page.values == {
        "prompt_tokens": 6000,
        "generation_tokens": 64,
        "requests_finished": 1,
        "running": 0,
        "ttft_sum": 1.5,
        "ttft_count": 1,
    }
    facts = dialect.facts({"/version": {"acme_build": "2.0"}}, page.values, page.info)
    assert facts == ServerFacts(
        engine="acme",
        version="2.0",
        block_size=64,
        sources={"version": "/version", "block_size": "acme_config"},
    )
    assert dialect.expected_cached(6000, 6000, facts, None) == (5952, 5952)
    assert dialect.settled({}, page.values, Usage(prompt_tokens=6000, completion_tokens=64))
    assert dialect.is_idle(page.values) is True
    assert dialect.tokenize_request("a", "m") is None


def test_the_document_names_every_dialect() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", DOCUMENT, re.MULTILINE)
    assert set(rows) == set(engines.DIALECTS)
