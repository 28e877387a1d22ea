"""What a report says is left of a run is what the run would do next."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import report_runs
from msgspec import structs

from bench.journal import Journal, read_run
from bench.records import Event, Exchange, Failure, Usage
from bench.records.events import SERVER_FELL
from bench.report.content import collect
from bench.report.words import state_line
from bench.run.status import status

CLAMPED = Usage(prompt_tokens=1, completion_tokens=65)
"""A prompt of which the server read one token: no measurement of it is valid."""


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Exchange]]:
    """A whole run of nine trials, of which an invalid one is repeated once, and its exchanges."""
    run = report_runs.make_run(tmp_path_factory.mktemp("runs") / "whole", tiers=(256,), repeats=1)
    _, entries = read_run(run)
    return run, [entry for entry in entries if isinstance(entry, Exchange)]


def journal(whole: Path, path: Path, *entries: Exchange | Event) -> Path:
    info, _ = read_run(whole)
    with Journal.create(path, structs.replace(info, id=path.name)) as kept:
        for entry in entries:
            kept.append(entry)
    return path


def invalid(one: Exchange, attempt: int = 1) -> Exchange:
    return structs.replace(one, usage=CLAMPED, attempt=attempt)


def failed(one: Exchange, kind: str, code: int | None = None, attempt: int = 1) -> Exchange:
    failure = Failure(kind=kind, message="m", status=code)  # type: ignore[arg-type]
    return structs.replace(one, failure=failure, finish_reason=None, done=False, attempt=attempt)


def fell(one: Exchange) -> Event:
    data: dict[str, object] = {"trial": one.trial.id, "route": one.trial.route, "purpose": "trial"}
    return Event(name=SERVER_FELL, at="2026-11-29T10:00:00Z", data=data)


Entries = list[Exchange | Event]

CASES: dict[str, tuple[Callable[[Exchange], Entries], int]] = {
    "measured": (lambda one: [one], 0),
    "never sent": (lambda one: [], 1),
    "invalid once": (lambda one: [invalid(one)], 1),
    "invalid twice": (lambda one: [invalid(one), invalid(one, 2)], 0),
    "valid at last": (lambda one: [invalid(one), structs.replace(one, attempt=2)], 0),
    "cut off": (lambda one: [failed(one, "cancelled")], 1),
    "nobody listens": (lambda one: [failed(one, "refused", attempt=number) for number in (1, 2, 3)], 1),
    "refused for good": (lambda one: [failed(one, "status", 400, number) for number in (1, 2)], 0),
    "spoilt by a fall": (lambda one: [invalid(one), fell(one), invalid(one, 2)], 1),
}
"""What became of the last trial, and how many trials are left then."""


@pytest.mark.parametrize("name", CASES)
def test_it_names_what_a_resumed_run_would_do_and_nothing_else(
    name: str, sent: tuple[Path, list[Exchange]], tmp_path: Path
) -> None:
    whole, (*others, last) = sent
    made, left = CASES[name]
    run = journal(whole, tmp_path / "run", *others, *made(last))
    content = collect([run])
    line = state_line(content.runs[0], content.everything)
    assert content.runs[0].left == left == status(run).left
    assert ("left for ctxbench run --resume: 1 trial" in line) is (left > 0)
    assert ("--resume" in line) is (left > 0)
