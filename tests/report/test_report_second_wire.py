"""Entries from one process to another: nothing that is measured or shown is changed by it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import report_runs
import report_samples as samples
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from bench.analysis.verdicts.timing import times
from bench.records import Chunks, Event, Exchange, PromptRecipe, Trial
from bench.report.entries import Seen, read_here
from bench.report.gaps import GapCounts
from bench.report.second.wire import (
    WireError,
    content_bytes,
    content_of,
    entries_of,
    entry_bytes,
    entry_of,
    length_of,
    with_length,
)

PROMPT = PromptRecipe(
    sha256="0", tokens=1, endpoint="chat", corpus="synthetic", corpus_sha256="0", task="continue", start=0
)
TRIAL = Trial(id="a/1/cold/1", route="a", tier=1, condition="cold", repeat=1, output_tokens=8)


def passed_on(seen: Seen) -> Seen:
    return entry_of(memoryview(entry_bytes(seen)))


def as_read(seen: Seen) -> Seen:
    """With tuples again in the place of columns."""
    entry = seen.entry
    if isinstance(entry, Event):
        return seen
    chunks = entry.chunks
    columns = (tuple(column) for column in (chunks.at_ns, chunks.chars, chunks.tokens))
    names = ("at_ns", "chars", "tokens")
    plain = structs.replace(chunks, **dict(zip(names, columns, strict=True)))
    return Seen(structs.replace(entry, chunks=plain), seen.detail)


def test_entries_of_a_run_come_over_whole_but_for_the_letters_of_chunks(tmp_path: Path) -> None:
    run = report_runs.make_run(tmp_path / "run", tiers=(256,), repeats=1)
    entries = list(read_here(run))
    assert any(isinstance(one.entry, Event) for one in entries)
    assert any(one.detail is not None for one in entries)
    for seen in entries:
        entry = seen.entry
        if isinstance(entry, Exchange):
            seen = Seen(structs.replace(entry, chunks=structs.replace(entry.chunks, kinds="")), seen.detail)
        got = as_read(passed_on(seen))
        assert structs.asdict(got.entry) == structs.asdict(seen.entry) and got.detail == seen.detail


@given(
    events=st.lists(
        st.tuples(st.integers(0, 2**62), st.integers(0, 40), st.integers(0, 2**31)), min_size=1, max_size=12
    ),
    counted=st.booleans(),
    finished=st.booleans(),
)
def test_a_stream_is_timed_alike_on_both_sides(
    events: list[tuple[int, int, int]], counted: bool, finished: bool
) -> None:
    at_ns, chars, tokens = zip(*events, strict=True)
    at_ns = tuple(sorted(at_ns))
    chunks = Chunks(
        at_ns=at_ns,
        chars=chars,
        tokens=tuple(sorted(tokens)) if counted else (),
        finish=len(events) - 1 if finished else None,
    )
    exchange = Exchange(
        trial=TRIAL, prompt=PROMPT, url="", sent_ns=0, ended_ns=at_ns[-1], chunks=chunks, status=200
    )
    got = passed_on(Seen(exchange, None)).entry
    assert isinstance(got, Exchange)
    assert times(got, 9) == times(exchange, 9)
    here, there = GapCounts(), GapCounts()
    here.add(chunks)
    there.add(got.chunks)
    assert here.total == there.total and np.array_equal(here.below, there.below)


def test_a_number_of_more_than_64_bits_is_refused() -> None:
    event = Event(name="odd", at="", data={"seed": 2**80})
    with pytest.raises(OverflowError):
        entry_bytes(Seen(event, None))


def test_a_content_comes_over_but_for_what_no_plot_shows() -> None:
    anything = {"word": "b", "pair": [1, 2], "nested": {"c": None, "d": [0.5, {"e": True}]}}
    whole = samples.content(details=(samples.detail("a"),))
    settings = structs.replace(whole.runs[0].info.suite.routes[0].request, extra_body=anything)
    routes = [structs.replace(route, request=settings) for route in whole.runs[0].info.suite.routes]
    suite = structs.replace(whole.runs[0].info.suite, routes=tuple(routes))
    run = structs.replace(whole.runs[0], info=structs.replace(whole.runs[0].info, suite=suite))
    gaps = GapCounts()
    gaps.add(Chunks(at_ns=(1_000, 2_000_000, 5_000_000), chars=(1, 1, 1)))
    sent = structs.replace(whole, runs=(run,), gaps={"mtp4": gaps})
    got = content_of(content_bytes(sent))
    assert {name: list(one.counts) for name, one in got.gaps.items()} == {"mtp4": list(gaps.counts)}
    bare = structs.replace(run, events=())
    assert got == structs.replace(sent, runs=(bare,), details=(), gaps=got.gaps)


@pytest.mark.parametrize(
    "block",
    [
        b"no block",
        with_length(b"no entry"),
        with_length(b"\x93\xc0\xc0\xc0"),
        with_length(b"")[:5],
        (-8).to_bytes(8, sys.byteorder, signed=True),
    ],
)
def test_what_is_no_block_of_entries_is_refused(block: bytes) -> None:
    with pytest.raises(WireError, match="no entries"):
        entries_of(block)


@pytest.mark.parametrize("length", [-2, -(2**63), 2**32, 2**63 - 1])
def test_what_is_no_length_is_refused(length: int) -> None:
    with pytest.raises(WireError, match=f"^{length} is no length"):
        length_of(length.to_bytes(8, sys.byteorder, signed=True))
