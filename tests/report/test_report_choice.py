"""The first answer of a report: which route is fastest, from which output length on, and how sure that is."""

from __future__ import annotations

import re
from math import inf

import msgspec
import report_samples as samples

from bench.analysis.statistics.summary import summarise
from bench.records import Crossover, Reason, Verdict
from bench.report import html
from bench.report.choice import choice_table, choices, said, spans
from bench.report.words import boundary_lines

NAMES = ("mtp4", "mtp2", "plain")


def pair(
    route: str, base: str, status: str = "crosses", at: float | None = None, **more: object
) -> Crossover:
    fields = {
        "route": route,
        "base": base,
        "tier": 6_316,
        "condition": "cold",
        "status": status,
        "wins": "above" if status == "crosses" else None,
        "output_tokens": at,
        "samples": (2, 2),
        **more,
    }
    return Crossover(**fields)  # type: ignore[arg-type]


def told(*found: Crossover) -> list[str]:
    return [said(one) for one in spans(found, NAMES)]


def test_the_fastest_route_changes_at_the_crossovers_of_the_fastest_only() -> None:
    # latencies: plain 10 + 4n, mtp2 20 + 2n, mtp4 60 + n meet at 5, 16.7 and 40
    found = (pair("mtp2", "plain", at=5.0), pair("mtp4", "plain", at=16.7), pair("mtp4", "mtp2", at=40.0))
    assert told(*found) == ["plain up to 5.00", "mtp2 from 5.00 to 40.0", "mtp4 from 40.0"]


def test_the_order_in_which_a_pair_is_named_changes_nothing() -> None:
    found = (pair("plain", "mtp2", at=5.0, wins="below"), pair("plain", "mtp4", at=16.7, wins="below"))
    turned = pair("mtp2", "mtp4", at=40.0, wins="below")
    assert told(*found, turned) == ["plain up to 5.00", "mtp2 from 5.00 to 40.0", "mtp4 from 40.0"]


def test_a_route_that_is_always_faster_has_every_output_length() -> None:
    assert told(pair("mtp4", "plain", "always")) == ["mtp4 at every output length"]
    assert told(pair("mtp4", "plain", "never")) == ["plain at every output length"]


def test_routes_without_a_shown_difference_stand_together() -> None:
    found = (
        pair("mtp2", "mtp4", "undecided"),
        pair("mtp4", "plain", at=30.0),
        pair("mtp2", "plain", at=30.0),
    )
    assert told(*found) == ["plain up to 30.0", "mtp4 or mtp2 (not told apart) from 30.0"]


def test_an_undecided_start_leaves_the_longer_outputs_to_the_faster_decoding() -> None:
    start = pair("mtp4", "plain", "undecided", ahead="mtp4", ahead_from=5.2)
    assert told(start) == ["mtp4 or plain (not told apart) up to 5.20", "mtp4 from at most 5.20"]
    steps = pair("mtp4", "plain", "undecided", ahead="plain", ahead_to=40.0)
    assert told(steps) == ["plain up to 40.0", "mtp4 or plain (not told apart) from 40.0"]
    (one,) = choices(samples.content(crossovers=(msgspec.structs.replace(start, base="target-only"),)))
    assert one.borders == "at most 5.20; range, 2 trials a side"


def test_single_trials_make_no_headline_but_are_told_as_points() -> None:
    point = pair("mtp4", "target-only", at=30.0, samples=(1, 1))
    (one,) = choices(samples.content(crossovers=(point,)))
    assert [said(span) for span in one.spans] == ["target-only or mtp4 (not told apart)"]
    points = "target-only up to 30.0; mtp4 from 30.0"
    assert one.borders == f"by the points alone: {points}; 1 trial a side: no spread"


def test_a_spread_from_several_trials_against_one_is_a_range() -> None:
    uneven = pair("mtp4", "target-only", at=2.13, low=1.22, high=2.47, spread="range", samples=(6, 1))
    (one,) = choices(samples.content(crossovers=(uneven,)))
    assert one.borders == "2.13 (1.22 to 2.47); range, 1 to 6 trials a side"
    assert said(one.spans[-1]).endswith("from 2.13, in the range seen of 6 and 1 trials")


def test_a_route_without_a_valid_trial_is_named_as_not_measured() -> None:
    bad = Verdict(valid=False, reasons=(Reason(id="replay_missed"),))
    rows = tuple(
        msgspec.structs.replace(row, verdict=bad) if row.route == "mtp2" else row
        for row in samples.measurements()
    )
    (one,) = choices(samples.content(rows, crossovers=(pair("mtp4", "target-only", at=30.0),)))
    assert one.excluded == "4 of 12; mtp2 not measured (4 of 4 excluded)"


def test_routes_that_meet_almost_at_once_leave_no_gap() -> None:
    # between 96 and 100 each is beaten by another: each border was estimated by itself
    found = (pair("mtp2", "plain", at=96.0), pair("mtp4", "mtp2", at=95.0), pair("mtp4", "plain", at=100.0))
    assert told(*found) == ["plain up to 100", "mtp4 from 100"]


def test_a_crossover_below_one_token_is_none() -> None:
    (only,) = spans([pair("mtp4", "plain", at=0.4)], NAMES)
    assert (only.routes, only.start, only.end, only.border) == (("mtp4",), 1.0, inf, None)


def test_the_answer_carries_spread_reach_trials_and_exclusions() -> None:
    far = pair(
        "mtp4", "target-only", at=1_766.4, low=1_756.0, high=1_777.0, spread="range", extrapolation=3.45
    )
    bad = Verdict(valid=False, reasons=(Reason(id="replay_missed"),))
    first, *others = samples.measurements()
    excluded = (msgspec.structs.replace(first, verdict=bad), *others)
    (one,) = choices(samples.content(excluded, crossovers=(far,)))
    assert one.borders == "1,766 (1,756 to 1,777; 3.5x the longest measured); range, 2 trials a side"
    assert one.excluded == "1 of 12"  # three routes, two cold and two salted trials each
    table = choice_table(samples.content(excluded, crossovers=(far,)))
    assert table is not None
    answer = "target-only up to 1,766; mtp4 from 1,766, in the range seen of 2 and 2 trials"
    assert table.rows[0][:3] == ("6,316", "cold", answer)


def test_tasks_are_answered_apart_and_in_the_order_of_the_tables() -> None:
    found = (
        pair("mtp4", "target-only", at=30.0, task="edit-code"),
        pair("mtp4", "target-only", "never", task="open-ended"),
        pair("mtp4", "target-only", at=9.0, tier=564_580),
    )
    rows = choices(samples.content(crossovers=found))
    assert [(one.tier, one.condition) for one in rows] == [
        (6_316, "cold edit-code"),
        (6_316, "cold open-ended"),
        (564_580, "cold continue"),
    ]


def test_the_longest_prompts_are_open_and_the_others_folded_before_them() -> None:
    found = tuple(pair("mtp4", "target-only", at=30.0, tier=1_000 * size) for size in (1, 2, 4, 8, 16, 32))
    page = html.render(samples.content(crossovers=found))
    folded, _, open_ = page.partition('<div class="answers">')[2].partition("</details>")
    answers = open_.partition("</div>")[0]
    assert "2 more, of prompts not longer than these" in folded
    assert re.findall(r">(\d+,000)<", folded) == ["1,000", "2,000"]
    assert re.findall(r">(\d+,000)<", answers) == ["4,000", "8,000", "16,000", "32,000"]


def test_one_route_leaves_nothing_to_choose() -> None:
    assert choice_table(samples.content(crossovers=())) is None


def test_texts_are_told_where_a_text_had_several_trials() -> None:
    found = pair("mtp4", "target-only", at=30.0, samples=(3, 3), trials=(6, 5), low=28.0, high=33.0)
    (one,) = choices(samples.content(crossovers=(found,)))
    assert one.borders == "30.0 (28.0 to 33.0); range, 3 texts a side (5 to 6 trials)"
    assert one.spans[-1].hedge == "in the range seen of 3 and 3 texts (6 and 5 trials)"
    single = pair("mtp4", "target-only", at=30.0, samples=(1, 1), trials=(2, 2))
    (point,) = choices(samples.content(crossovers=(single,)))
    assert point.borders.endswith("1 text a side: no spread")


def test_the_boundary_counts_texts_where_they_are_fewer_than_trials() -> None:
    first = samples.measurements()[0]
    rows = tuple(
        msgspec.structs.replace(first, condition="replay", replay=replay, pair="a", trial_id=f"r{replay}")
        for replay in (2, 3)
    )
    lines = boundary_lines(samples.content(rows, summaries=tuple(summarise(rows))))
    assert "Fewest prompt texts in a cell: 1; below five, spreads are ranges" in " ".join(lines)
    assert any("Fewest valid trials in a cell: " in line for line in boundary_lines(samples.content()))
