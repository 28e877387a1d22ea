"""The lines of a journal, added up."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

import bench
from bench.analysis.verdicts.measure import measure_all
from bench.journal import read_entries
from bench.records import Event, Exchange
from bench.records.events import STARTED
from bench.run.tally import Tally

SMALL = Path(__file__).parents[1] / "data" / "run-small"


def test_every_trial_is_measured_with_its_line_and_then_none_is_left() -> None:
    info = bench.load(SMALL).info
    tally, found = Tally(info), []
    for entry in read_entries(SMALL):
        rows = tally.take(entry)
        assert len(rows) == isinstance(entry, Exchange)
        found += rows
    assert not tally.end() and tally.undecided is None
    exchanges = [entry for entry in read_entries(SMALL) if isinstance(entry, Exchange)]
    assert found == list(measure_all(info, exchanges))
    assert tally.ledger.left(info.plan) == []
    assert tally.outlook.left_s(info.plan) is not None


def test_what_was_begun_alone_is_still_left_and_has_used_its_attempt() -> None:
    info = bench.load(SMALL).info
    tally, trial = Tally(info), info.plan[0]
    begun = Event(name=STARTED, at="", data={"trial": trial.id, "attempt": 1, "purpose": "trial"})
    assert tally.take(begun) == ()
    assert tally.ledger.left(info.plan) == list(info.plan)
    assert tally.ledger.next_attempt(trial) == 2


def test_a_warm_up_gives_the_first_idea_of_a_route_and_no_measurement() -> None:
    info = bench.load(SMALL).info
    first = next(entry for entry in read_entries(SMALL) if isinstance(entry, Exchange))
    tally = Tally(info)
    assert tally.outlook.left_s(info.plan) is None
    assert not tally.take(structs.replace(first, purpose="warmup"))
    assert tally.outlook.left_s(info.plan) is not None
