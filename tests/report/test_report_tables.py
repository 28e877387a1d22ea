"""The terminal table: narrow, complete, honest about what is missing."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest
import report_samples as samples

from bench.records import Crossover, Measurement, Reason, Verdict
from bench.report import compared, words
from bench.report.grid import grid
from bench.report.quantities import significant, spread_percent, write
from bench.report.tables import WIDTH, comparison, performance, terminal
from bench.report.told import Told


def row(text: str, *names: str) -> str:
    return next(line for line in text.splitlines() if all(name in line.split() for name in names))


def test_the_table_fits_its_width_and_shows_every_column() -> None:
    text = terminal(samples.content())
    assert max(map(len, text.splitlines())) <= WIDTH
    head = text.splitlines()[0].split()
    assert head == [
        "route", "tier", "condition", "prompt", "TTFT", "decode", "accept", "length", "reuse", "total",
        "verdict",
    ]  # fmt: skip
    cells = row(text, "mtp4", "564,580", "cold").split()
    # medians of 690.966 and 1.004 times that; of 31.22 and 1% less
    assert cells[:5] == ["mtp4", "564,580", "cold", "564,580", "692.3"]
    assert "79.7%" in cells and "4.19" in cells and cells[-2:] == ["2", "ok"]


def test_long_route_names_are_shortened_rather_than_breaking_the_width() -> None:
    name = "mtp4-on-eight-gpus-with-a-very-long-description-of-itself-that-nobody-should-choose"
    found = tuple(msgspec.structs.replace(m, route=name) for m in samples.measurements() if m.route == "mtp4")
    text = terminal(samples.content(found, crossovers=(), comparisons=()))
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "…" in text


@pytest.mark.parametrize("scale", [1, 1_000_000])
def test_a_table_of_long_numbers_and_verdicts_keeps_the_width(scale: int) -> None:
    slow = tuple(
        msgspec.structs.replace(
            one,
            route=one.route * 4,
            ttft_s=(one.ttft_s or 0) * scale,
            total_s=(one.total_s or 0) * scale,
            decode_tok_s=(one.decode_tok_s or 0) * scale,
            verdict=msgspec.structs.replace(one.verdict, speculation="fallback"),
        )
        for one in samples.measurements()
    )
    text = terminal(samples.content(slow), show_all=True)
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "verdict" in text.splitlines()[0] and "fallback" in text


def brief() -> tuple[Measurement, ...]:
    """Times with many places, so that a table with all its columns needs 117 columns."""
    return tuple(
        msgspec.structs.replace(one, ttft_s=(one.ttft_s or 0) / 1e5, total_s=(one.total_s or 0) / 1e5)
        for one in samples.measurements()
    )


def test_columns_go_before_spreads_and_what_went_is_named() -> None:
    content = samples.content(brief())
    for width, gone in ((140, ""), (100, "length"), (80, "length, prompt, accept, reuse")):
        text = terminal(content, width)
        table = text.partition("\n\nmedians")[0]
        assert max(map(len, table.splitlines())) <= width
        assert "0.006923 ±<1%" in table and "± is the larger half of the spread" in text
        assert f"no room for {gone}: see report.md" in text if gone else "no room" not in text


def test_spreads_without_room_are_not_explained_but_said_to_be_missing() -> None:
    slow = tuple(
        msgspec.structs.replace(one, ttft_s=(one.ttft_s or 0) * 1e9, total_s=(one.total_s or 0) * 1e9)
        for one in samples.measurements()
    )
    text = terminal(samples.content(slow), 80)
    assert "±" not in text and "medians of valid trials; no room for spreads: see report.md" in text


def test_a_note_on_a_column_without_room_goes_with_it() -> None:
    text = terminal(samples.content(brief()), 80)
    assert "no drafts were made" not in text and "² excluded: 1 x a replay reused less" in text


def test_prose_is_wrapped_at_the_width_of_the_terminal_and_tables_are_not() -> None:
    text = terminal(samples.content(), 40)
    prose = text[text.index("medians of valid trials") : text.index("compared with")]
    prose += text[text.index("ratios of medians") :]
    assert max(map(len, prose.splitlines())) <= 40
    assert 40 < max(map(len, text.splitlines())) <= 50


@pytest.mark.parametrize("width", [50, 60, 70])
def test_a_narrow_terminal_gets_tables_of_its_own_width(width: int) -> None:
    text = terminal(samples.content(), width)
    assert max(map(len, text.splitlines())) <= width
    head, *_, first = text.partition("\n\n")[0].splitlines()[:4]
    assert head.split()[:5] == ["route", "tier", "condition", "TTFT", "decode"]
    assert ("total" in head.split()) == (width > 50)
    assert first.split()[:2] == ["mtp4", "6,316"]


def test_what_a_narrow_terminal_lacks_is_said() -> None:
    told = " ".join(terminal(samples.content(), 50).split())
    assert "no room for spreads: see report.md" in told
    assert "no room for length, prompt, accept, reuse, total: see report.md" in told
    assert "(no room for their spread: see report.md)" in told
    assert "; no room for the difference of TTFT: see report.md" in told
    assert "+146 s" not in told and "+146 s" in terminal(samples.content(), 80)


def test_ratios_without_room_for_their_spread_do_not_promise_it() -> None:
    many = tuple(
        msgspec.structs.replace(one, route=one.route * 9, base=one.base * 4) for one in samples.COMPARISONS
    )
    for width, said in ((140, "with their spread"), (80, "(no room for their spread: see report.md)")):
        text = comparison(samples.content(comparisons=many), width)
        assert ("3.56x (3.50-3.66)" in text) == (width == 140) and f"ratios of medians {said}" in text


def test_a_column_without_any_entry_is_left_out_of_the_comparison() -> None:
    same = msgspec.structs.replace(samples.COMPARISONS[1], verdict="~")
    several = compared.table_of(samples.content())
    alike = compared.table_of(samples.content(comparisons=(same,)))
    assert several is not None and several.head[5] == "later by" and several.right == (2, 5)
    assert alike is not None and "later by" not in alike.head and alike.right == (2,)
    assert {len(row) for row in alike.rows} == {len(alike.head)} == {7}


def test_tasks_stand_above_their_rows_and_not_in_them() -> None:
    found = samples.measurements()
    both = samples.summaries(found) + tuple(
        msgspec.structs.replace(one, task="edit-code") for one in samples.summaries(found)
    )
    lines = performance(grid(samples.content(found, summaries=both))).text.splitlines()
    assert [line for line in lines if line.startswith("task ")] == ["task continue:", "task edit-code:"]
    assert not [line for line in lines[3:] if "cold" in line and "edit-code" in line]


def test_missing_is_a_dash_with_its_reason_in_a_footnote() -> None:
    text = terminal(samples.content())
    assert "-¹" in row(text, "target-only", "564,580", "cold")
    assert "¹ no drafts were made" in text
    assert "nan" not in text.lower() and "None" not in text


def test_excluded_trials_are_counted_and_named_with_reason_and_figures() -> None:
    text = terminal(samples.content())
    assert "1/2 ok²" in row(text, "mtp2", "564,580", "replay")
    line = " ".join(text.split())
    assert "mtp2/564580/replay/1.1: a replay reused less" in line
    assert "(0 of 562,368 expected tokens); TTFT 551.9 s, reuse 0.0%" in line
    assert "35 of 36 planned trials measured and valid; 1 measurement excluded." in line


def test_a_cell_without_a_valid_trial_is_invalid_and_says_why() -> None:
    bad = Verdict(valid=False, reasons=(Reason(id="cold_hit", detail="512 tokens"),))
    found = tuple(
        msgspec.structs.replace(m, verdict=bad) if (m.route, m.condition) == ("mtp4", "cold") else m
        for m in samples.measurements()
    )
    table = grid(samples.content(found))
    cell = next(r for r in table.rows if (r.route, r.tier, r.condition) == ("mtp4", 6_316, "cold"))
    assert cell.verdict.text == "invalid" and cell.state == "invalid"
    assert {value.text for value in cell.values.values()} == {"-"}
    assert "no valid trial in this cell" in table.notes


def test_nothing_measured_is_said_and_not_an_error() -> None:
    text = terminal(samples.content((), crossovers=(), comparisons=()))
    assert text.startswith("nothing measured yet")
    assert "0 of 36 planned trials" in text and "nothing is claimed" in text
    assert performance(grid(samples.content(()))).text == "nothing measured yet"


def test_only_failures_give_a_table_of_dashes() -> None:
    text = terminal(samples.content((samples.failed(),), crossovers=(), comparisons=()))
    assert "invalid" in row(text, "mtp4", "6,316", "cold")
    assert "nobody listens on 127.0.0.1:8000" in " ".join(text.split())


def crossing(**changes: object) -> Crossover:
    return msgspec.structs.replace(samples.CROSSOVERS[0], **changes)


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (
            crossing(),
            "faster from 1,766 output tokens (range 1,756 to 1,777); extrapolated: 3.5x the longest",
        ),
        (crossing(spread="interval"), "(95% interval 1,756 to 1,777)"),
        (crossing(low=None, high=None, spread=None, samples=(1, 1)), "(a single text: no spread)"),
        (crossing(wins="below", output_tokens=96.4), "faster up to 96.4 output tokens"),
        (crossing(extrapolation=0.5, measured=4_096), "inside the measured 4,096"),
        (crossing(basis="slowing", line_tokens=1_600.0), "straight lines give 1,600"),
        (samples.CROSSOVERS[1], "faster at every output length"),
        (samples.CROSSOVERS[1], "in the range seen of 2 and 2 trials"),
        (crossing(status="never", wins=None, output_tokens=None), "slower at every output length"),
        (
            crossing(status="undecided", output_tokens=None, ahead="mtp4", ahead_from=5.2),
            "undecided; from at most 5.20 output tokens on mtp4 is faster",
        ),
        (
            crossing(status="undecided", output_tokens=None, warnings=("no difference shown in TTFT",)),
            "undecided: no difference shown in TTFT",
        ),
    ],
)
def test_a_crossover_is_one_sentence_with_its_limits(one: Crossover, said: str) -> None:
    assert said in words.crossover_line(one)


def test_no_difference_is_a_tilde_in_comparisons() -> None:
    same = msgspec.structs.replace(samples.COMPARISONS[1], verdict="~", lacking="both")
    few = msgspec.structs.replace(samples.COMPARISONS[0], verdict="undecided", lacking="trials")
    (row,) = compared.rows_of(samples.content(comparisons=(same, few)))
    assert row[4:] == ("~ 1.27x (1.26-1.27)", "", "? 3.56x (3.50-3.66)", "-")


@pytest.mark.parametrize(
    ("lacking", "mark", "said"),
    [
        ("test", "~t ", "the interval is without 1, but the test finds none"),
        ("interval", "~i ", "the test finds one, but the interval holds 1"),
        ("both", "~ ", "the test finds none, and the interval holds 1"),
    ],
)
def test_a_cell_without_a_difference_says_what_it_lacks(
    lacking: Literal["test", "interval", "both"], mark: str, said: str
) -> None:
    same = msgspec.structs.replace(samples.COMPARISONS[0], verdict="~", lacking=lacking, p_value=0.06)
    table = compared.table_of(samples.content(comparisons=(same,)))
    assert table is not None
    cell = next(cell for cell in table.rows[0] if "3.56x" in cell)
    assert cell.startswith(f"{mark}3.56x")
    assert isinstance(cell, Told) and said in cell.source
    assert f"{mark.strip()} " in table.note


def test_comparisons_carry_ratio_and_difference() -> None:
    (row,) = compared.rows_of(samples.content())
    assert row[:4] == ("mtp4", "target-only", "564,580", "cold")
    assert row[4:] == ("1.27x (1.26-1.27)", "+146 s", "3.56x (3.50-3.66)", "-")
    assert "compared with target-only" in terminal(samples.content())


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (690.966, 4, "691.0"), (2.9538, 4, "2.954"), (0.01234, 4, "0.01234"), (12_345.6, 4, "12,346"),
        (0.0, 4, "0"), (87.04, 3, "87.0"), (1.5e-10, 3, "1.50e-10"),
    ],
)  # fmt: skip
def test_numbers_keep_their_significant_digits(value: float, digits: int, text: str) -> None:
    assert significant(value, digits) == text


def test_what_is_not_finite_is_shown_as_missing() -> None:
    assert write(float("nan"), "seconds") == write(float("inf"), "rate") == write(None, "share") == "-"


def test_a_spread_is_the_larger_half_in_percent() -> None:
    assert spread_percent(10.0, 9.0, 10.5) == "±10%"
    assert spread_percent(10.0, 9.99, 10.0) == "±<1%"
    assert spread_percent(10.0, None, None) == ""
