"""The table of reasons is whole, and docs/verdicts.md is its print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.analysis.verdicts.document import as_markdown
from bench.analysis.verdicts.reasons import GROUPS, REASONS, effect_of, sentence_of
from bench.records import Reason

ROOT = Path(__file__).parent.parent.parent


def test_the_document_is_the_table() -> None:
    written = (ROOT / "docs" / "verdicts.md").read_text(encoding="utf-8")
    assert written == as_markdown(), (
        "write it anew: see the first lines of bench/analysis/verdicts/reasons.py"
    )


def test_every_reason_is_given_somewhere_and_every_given_reason_is_in_the_table() -> None:
    source = "".join(
        (ROOT / "bench" / "analysis" / "verdicts" / f"{name}.py").read_text(encoding="utf-8")
        for name in ("verdict", "reuse", "speculated", "continuity", "firstreplay")
    )
    literals = set(re.findall(r'"([a-z_]+)"', source))
    assert set(REASONS) <= literals
    given = set(re.findall(r'Reason\(\s*id="([a-z_]+)"', source))
    assert given <= set(REASONS)


def test_entries_are_sentences_and_their_groups_exist() -> None:
    for name, entry in REASONS.items():
        assert re.fullmatch(r"[a-z_]+", name)
        assert entry.sentence.endswith(".") and entry.todo.endswith("."), name
        assert entry.group in GROUPS, name
        assert "|" not in entry.sentence + entry.todo, name
    assert {entry.group for entry in REASONS.values()} == set(GROUPS)


def test_a_reason_reads_with_its_figures() -> None:
    assert effect_of(Reason(id="cold_hit")) == "invalidates"
    assert sentence_of(Reason(id="cold_hit")) == "A cold prompt was found in a cache."
    assert sentence_of(Reason(id="cold_hit", detail="16 of 20")).endswith("in a cache. (16 of 20)")
    with pytest.raises(KeyError):
        effect_of(Reason(id="nonsense"))
