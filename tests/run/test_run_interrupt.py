"""Ctrl-C once an answer has come: it is in the journal, sent alone or in a wave, whatever was waited for.

And before it has: the request is cut off, which is not called a failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from run_helpers import exchanges, interrupted, only_run, suite_text

from bench.analysis.decisions.claims import many
from bench.cli.watch import status as status_command
from bench.journal import Entry
from bench.plan.suite import parse_suite
from bench.records import Exchange
from bench.report.write import write_report
from bench.run.books import Books
from bench.run.progress import Progress
from bench.run.status import status
from bench.run.study import Order, start
from bench.run.wave import Released, release
from bench.servers.simulator import start as simulate

TOGETHER = pytest.mark.parametrize("together", [1, 4])


def order(base_url: str, results: Path, together: int) -> Order:
    """One cold prompt, or one wave of them."""
    keys = f'concurrency = [{together}]\nwarmup = "none"\nconditions = ["cold"]'
    text = suite_text({"a": base_url}, suite=keys)
    text = text.replace("[256, 512]", "[512]").replace("repeats = 2", "repeats = 1")
    return Order(suite=parse_suite(text), suite_text=text, results=results)


@TOGETHER
def test_while_counters_settle(tmp_path: Path, together: int) -> None:
    # Pages come half a second late, so that there is time to interrupt.
    server = simulate("toy-target-only", speed=0.25, faults=["metrics-late"])
    with server, pytest.raises(asyncio.CancelledError):
        one = order(server.base_url, tmp_path, together)
        asyncio.run(interrupted(one, lambda now: now.phase == "settling" and now.trial is not None))
    found = exchanges(only_run(tmp_path))
    assert [exchange.failure for exchange in found] == [None] * together
    assert [exchange.after is not None for exchange in found] == [True] + [False] * (together - 1)


@TOGETHER
def test_right_behind_the_last_byte(tmp_path: Path, together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = Progress()

    async def released(*args: Any, **kwargs: Any) -> Released:
        out = await release(*args, **kwargs)
        task = asyncio.current_task()
        if progress.path is not None and task is not None:  # not the request of the checks
            asyncio.get_running_loop().call_soon(task.cancel)
        return out

    monkeypatch.setattr("bench.run.exchange.release", released)
    with simulate("toy-target-only") as server, pytest.raises(asyncio.CancelledError):
        asyncio.run(start(order(server.base_url, tmp_path, together), progress))
    found = exchanges(only_run(tmp_path))
    assert [exchange.failure for exchange in found] == [None] * together
    assert found[0].samples is not None and found[0].client is not None


@TOGETHER
def test_while_the_journal_is_written(tmp_path: Path, together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    append = Books.append
    running: list[asyncio.Task[Any]] = []

    async def cut(books: Books, entries: Sequence[Entry]) -> None:
        if isinstance(entries[0], Exchange):
            asyncio.get_running_loop().call_soon(running[0].cancel)
        await append(books, entries)

    async def main(one: Order) -> None:
        running.append(asyncio.create_task(start(one, Progress())))
        await running[0]

    monkeypatch.setattr(Books, "append", cut)
    with simulate("toy-target-only") as server, pytest.raises(asyncio.CancelledError):
        asyncio.run(main(order(server.base_url, tmp_path, together)))
    assert [exchange.failure for exchange in exchanges(only_run(tmp_path))] == [None] * together


@TOGETHER
def test_what_is_cut_off_is_counted_as_such_and_not_called_invalid(
    tmp_path: Path, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = Progress()

    async def released(*args: Any, **kwargs: Any) -> Released:
        task = asyncio.current_task()
        if progress.path is not None and task is not None:  # not the request of the checks
            # Due timers come behind what is ready: the exchanges have begun by then.
            asyncio.get_running_loop().call_later(0, task.cancel)
        return await release(*args, **kwargs)

    monkeypatch.setattr("bench.run.exchange.release", released)
    with simulate("toy-target-only") as server, pytest.raises(asyncio.CancelledError):
        asyncio.run(start(order(server.base_url, tmp_path, together), progress))
    run = only_run(tmp_path)
    assert {exchange.failure and exchange.failure.kind for exchange in exchanges(run)} == {"cancelled"}
    assert not [note for note in progress.notes if "invalid" in note]
    found = status(run)
    assert (found.valid, found.invalid, found.failed, found.cut_off) == (0, 0, 0, together)
    assert (found.reasons, found.left) == ({"cut_off": together}, together)
    said = CliRunner().invoke(status_command, [str(run)]).stdout
    assert f"0 valid, 0 invalid (0 failed), {together} cut off" in " ".join(said.split())
    assert "invalid by" not in said
    # The report gives the same account.
    write_report(run, plots=False)
    summary = msgspec.json.decode((run / "summary.json").read_bytes())
    assert (summary["valid"], summary["excluded"]) == (0, found.reasons)
    told = (run / "report.md").read_text(encoding="utf-8")
    assert f"; {together} cut off; left for ctxbench run --resume: {many(together, 'trial')}" in told
    assert "Read the failure and the kept body" not in told
