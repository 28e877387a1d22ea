"""A server's log beside its exchanges: what cannot be kept of it stops nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec import Struct

from bench.records import Exchange, PromptRecipe, Trial
from bench.run.lifecycle.serverlog import ServerLog
from bench.wire.logs import Excerpt

LINES = b"INFO 11-30 10:00:00 one\nERROR 11-30 10:00:01 two\n"


class Said(Struct):
    """A log that says the same after every mark."""

    data: bytes = LINES

    def mark(self) -> None: ...

    def excerpt(self, limit: int) -> Excerpt:
        return Excerpt(data=self.data[:limit])


def exchange() -> Exchange:
    trial = Trial(id="r/256/cold/1", route="r", tier=256, condition="cold", repeat=1)
    recipe = PromptRecipe(sha256="", tokens=1, endpoint="chat", corpus="", corpus_sha256="", task="", start=0)
    return Exchange(trial=trial, prompt=recipe, url="", sent_ns=1, ended_ns=1)


def test_an_excerpt_is_kept_beside_the_exchange(tmp_path: Path) -> None:
    found = asyncio.run(ServerLog(Said(), tmp_path).excerpt_for(exchange())).log
    assert found is not None and found.file is not None and found.problem is None
    assert (tmp_path / found.file).read_bytes() == LINES


def test_a_folder_that_is_gone_costs_the_text_and_not_the_exchange(tmp_path: Path) -> None:
    found = asyncio.run(ServerLog(Said(), tmp_path / "gone").excerpt_for(exchange())).log
    assert found is not None and found.file is None and found.lines == 2
    assert found.problem is not None and "No such file" in found.problem and "r-256-cold-1" in found.problem


def test_a_full_disk_costs_the_text_and_not_the_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object, **_more: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    found = asyncio.run(ServerLog(Said(), tmp_path).excerpt_for(exchange())).log
    assert found is not None and found.file is None and found.levels.get("ERROR") == 1
    assert found.problem is not None and found.problem.endswith("No space left on device")
