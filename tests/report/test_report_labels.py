"""A report over several runs, and one with routes past their drafter limit: no figure loses its route."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import report_samples as samples
from msgspec import structs

import bench
from bench.analysis.statistics.cells import renamed
from bench.analysis.verdicts.ledger import Ledger
from bench.records import Event, Failure, Reason, ServerFacts, Verdict
from bench.records.events import TOKENIZED
from bench.report import export, words
from bench.report.conditions import client_table
from bench.report.content import Content, assemble, collect
from bench.report.figures_more import gaps
from bench.report.load import client_lines
from bench.report.setting import setting_rows

SMALL = Path("tests/data/run-small")
ROUTES = ("target-only", "mtp2", "mtp4")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Content:
    """A run and the same under another id."""
    other = tmp_path_factory.mktemp("runs") / "other"
    shutil.copytree(SMALL, other)
    text = json.loads((other / "run.json").read_text("utf-8"))
    (other / "run.json").write_text(json.dumps({**text, "id": "other"}), encoding="utf-8")
    return collect([SMALL, other])


def test_every_route_of_two_runs_keeps_its_exchanges(two: Content) -> None:
    alone = {one.route: (one.exchanges, one.scrapes) for one in client_lines(collect([SMALL]))}
    found = {one.route: (one.exchanges, one.scrapes) for one in client_lines(two)}
    assert all(count > 0 for pair in alone.values() for count in pair)
    assert len(found) == 6
    assert all(counts == alone[route.rpartition(":")[2]] for route, counts in found.items())
    table = client_table(two)
    assert table is not None
    assert [row[1] for row in table.rows] == [str(found[name][0]) for name in two.routes]


def test_rows_of_two_runs_keep_what_their_suites_declare(two: Content) -> None:
    made = export.table(two)
    declared = dict(zip(made["route"], made["num_speculative_tokens"], strict=True))
    assert declared == {
        route: {"target-only": None, "mtp2": 2, "mtp4": 4}[route.rpartition(":")[2]] for route in two.routes
    }


def test_gaps_of_two_runs_stay_apart_and_have_their_legend(two: Content) -> None:
    single = collect([SMALL]).gaps
    assert set(two.gaps) == set(two.routes)
    assert all(counts.total == single[name.rpartition(":")[2]].total for name, counts in two.gaps.items())
    figure = gaps(two)
    assert figure is not None
    assert len(figure.legends[0].get_texts()) == 6


def test_two_runs_are_compared_with_the_first_route_without_speculation_in_suite_order(two: Content) -> None:
    first, _ = (run.info.id for run in two.runs)
    assert two.base == f"{first}:target-only"
    assert two.routes[0].startswith(f"{first}:") and two.routes[-1].startswith("other:")
    head, _ = setting_rows(two)
    assert set(head[1:]) == set(two.routes)


def past_limit() -> Content:
    """The study with all of mtp4 past its drafter limit."""
    rows = [
        structs.replace(one, verdict=Verdict(valid=True, speculation="fallback"))
        if one.route == "mtp4"
        else one
        for one in samples.measurements()
    ]
    run = samples.content().runs[0]
    event = Event(
        name=TOKENIZED,
        at="2026-11-29T14:00:00Z",
        data={"route": "mtp4", "tier": 564_580, "tokens": 564_580, "seconds": 6.0},
    )
    named = tuple(
        structs.replace(one, route=other.route) for one, other in zip(rows, renamed(rows), strict=True)
    )
    return assemble(runs=(structs.replace(run, events=(event,)),), measurements=named)


def test_a_route_past_its_drafter_limit_keeps_its_declaration_and_its_tokenizer() -> None:
    made = past_limit()
    table = export.table(made)
    declared = dict(zip(table["route"], table["num_speculative_tokens"], strict=True))
    assert declared["mtp4 (fallback)"] == 4
    (line,) = [text for text in words.tokenisation_lines(made) if "/tokenize" in text]
    assert line.startswith("mtp4: ") and "of the TTFT of cold" in line


def test_the_limit_of_another_server_is_not_the_one_tested_against() -> None:
    """Two servers: 6,316 tokens of 8,192 are 77%, and 300,000 would make 2% of them."""
    rows = [one for one in samples.measurements() if one.tier < 10_000]
    facts = {name: ServerFacts(max_model_len=8_192) for name in ROUTES}
    run = samples.content().runs[0]

    def line(**changed: int) -> str:
        known = {**facts, **{name: ServerFacts(max_model_len=most) for name, most in changed.items()}}
        info = structs.replace(run.info, facts=known)
        made = samples.content(tuple(rows), runs=(structs.replace(run, info=info),))
        return words.boundary_lines(made)[0]

    most = rows[0].tier
    same = f"{most:,} prompt tokens, {most / 8_192 * 100:.0f}% of the served limit of 8,192"
    assert line() == f"Tested up to {same}; nothing was measured above."
    both = line(mtp4=300_000)
    assert same in both and f"{most / 3_000:.0f}% of the served limit of 300,000 (mtp4)" in both


def test_what_was_cut_off_is_left_and_not_excluded() -> None:
    rows = samples.measurements()[:2]
    cut = structs.replace(
        rows[1], verdict=Verdict(valid=False), failure=Failure(kind="cancelled", message="Ctrl-C")
    )
    assert state(2, rows[0], cut) == (
        "1 of 2 planned trials measured and valid; 1 cut off; left for ctxbench run --resume: 1 trial."
    )


def test_an_attempt_that_was_repeated_stands_for_no_other_trial() -> None:
    """Four planned, two of them valid at the second attempt, two never sent."""
    rows = samples.measurements()[:2]
    bad = Verdict(valid=False, reasons=(Reason(id="replay_missed"),))
    first = [structs.replace(one, verdict=bad) for one in rows]
    again = [structs.replace(one, attempt=2) for one in rows]
    line = state(4, *first, *again)
    assert line.startswith("2 of 4 planned trials measured and valid; 2 measurements excluded")
    assert line.endswith("; left for ctxbench run --resume: 2 trials.")


def state(planned: int, *rows: bench.records.Measurement) -> str:
    run = samples.content().runs[0]
    trials = tuple(trial_of(one.trial_id) for one in samples.measurements()[:planned])
    ledger = Ledger(run.info.suite.retry_invalid)
    ledger.note_measured(rows)
    info = structs.replace(run.info, plan=trials)
    return words.state_line(structs.replace(run, info=info, left=len(ledger.left(trials))), rows)


def trial_of(name: str) -> bench.records.Trial:
    return bench.records.Trial(
        id=name, route=name.split("/")[0], tier=1, condition="cold", repeat=1, output_tokens=1
    )


def test_the_api_compares_with_the_base_of_the_report_where_a_route_is_past_its_limit() -> None:
    run = bench.load(SMALL)
    fell = [
        structs.replace(one, verdict=structs.replace(one.verdict, speculation="fallback"))
        if one.route == "mtp4"
        else one
        for one in run.measurements
        if one.route != "target-only"
    ]
    run.measurements = fell  # what the cached property would have read
    named = renamed(fell)
    assert {one.base for one in run.comparisons()} == {
        assemble(runs=collect([SMALL]).runs, measurements=tuple(named)).base
    }
