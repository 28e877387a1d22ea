"""The section on recorded chats: there when turns were sent, and nowhere else."""

from __future__ import annotations

import json

from msgspec import structs
from report_samples import content, suite

from bench.analysis.decisions.baseline import read_table
from bench.records import Measurement, Reason, Trial, Verdict
from bench.report import chats as section
from bench.report import html, markdown, words
from bench.report.chats import chat_table
from bench.report.content import Content, assemble
from bench.report.export import measurements_csv, summary_json, table
from bench.report.tables import terminal
from bench.report.told import source_of

ROUTE, SOURCE = suite().routes[0].name, content().measurements[0].source


def turn(number: int, *, chat: str = "x.jsonl line 1", valid: bool = True, repeat: int = 1) -> Measurement:
    """Turns of 1,000, 2,000, ... tokens; each finds the one before."""
    reasons = () if valid else (Reason(id="turn_missed", detail="0 of 2,000"),)
    return Measurement(
        trial_id=f"{ROUTE}/chat-1/turn-{number}/{repeat}",
        source=SOURCE,
        route=ROUTE,
        tier=suite().tiers[0],
        condition="turn",
        task="conversation",
        chat=chat,
        turn=number,
        repeat=repeat,
        order=1000 + number,
        prompt_tokens=1000 * number,
        cached_tokens=1000 * (number - 1) + 8,
        expected_cached=None if number == 1 else 1000 * (number - 1),
        prefix_reuse=(1000 * (number - 1) + 8) / (1000 * number),
        output_tokens=100,
        ttft_s=0.5 * number,
        decode_tok_s=50.0,
        tpot_s=0.02,
        total_s=2.0 * number,
        verdict=Verdict(valid=valid, reasons=reasons),
    )


def planned(*turns: tuple[str, int]) -> tuple[Trial, ...]:
    return tuple(
        Trial(
            id=f"{ROUTE}/{chat}/{number}",
            route=ROUTE,
            tier=9,
            condition="turn",
            repeat=1,
            chat=chat,
            turn=number,
        )
        for chat, number in turns
    )


def mixed(*more: Measurement, plan: tuple[Trial, ...] = ()) -> Content:
    sample = content()
    runs = tuple(
        structs.replace(run, info=structs.replace(run.info, plan=(*run.info.plan, *plan)))
        for run in sample.runs
    )
    return assemble(runs=runs, measurements=(*sample.measurements, *more))


def test_without_chats_nothing_of_a_report_speaks_of_them() -> None:
    one = mixed()
    assert one.chats == () and chat_table(one) is None
    for text in (markdown.render(one), html.render(one), terminal(one)):
        assert "Chats" not in text and "chats:" not in text
    assert json.loads(summary_json(one))["chats"] == []


def test_a_chat_stands_turn_by_turn_and_as_a_whole_in_every_output() -> None:
    one = mixed(turn(1), turn(2))
    found = chat_table(one)
    assert found is not None
    first, second, whole = found.rows
    assert first == (ROUTE, "x.jsonl line 1", "1", "1", "1,000", "0.8%", "-", "0.500", "50.0", "2.00", "ok")
    assert second[2:] == ("2", "1", "2,000", "50.4%", "50.0%", "1.00", "50.0", "4.00", "ok")
    # 3,000 prompt tokens, of which 8 + 1,008 were cached.
    assert whole[2:] == ("all", "1", "3,000", "33.9%", "-", "-", "-", "6.00", "ok")
    page, text = html.render(one), markdown.render(one)
    assert "<h3>Chats</h3>" in page and "50.4%" in page and "## Chats" in text and "| 50.4% |" in text
    assert f"{ROUTE}, x.jsonl line 1: 2 turns in 6.00 s, 33.9% of their prompt tokens reused" in terminal(one)
    (chat,) = json.loads(summary_json(one))["chats"]
    assert (chat["whole"], chat["total_s"], [t["turn"] for t in chat["turns"]]) == (1, 6.0, [1, 2])


def test_repeats_of_a_chat_stand_with_their_range_and_their_names() -> None:
    slower = structs.replace(turn(2, repeat=2), ttft_s=1.2, total_s=5.0, decode_tok_s=40.0)
    one = mixed(turn(1), turn(2), turn(1, repeat=2), slower, turn(1, repeat=3, valid=False))
    found = chat_table(one)
    assert found is not None
    first, second, whole = found.rows
    assert [row[3] for row in found.rows] == ["2 of 3", "2", "2 of 3"]
    assert first[7] == "0.500 ±0%"
    # medians 1.1 s, 45 tok/s and 4.5 s, each in the middle of its two repeats
    assert second[7:10] == ("1.10 ±9%", "45.0 ±11%", "4.50 ±11%")
    assert whole[9] == "6.50 ±8%"  # 6 s and 7 s
    hover = dict(zip(found.head, map(source_of, second), strict=True))
    assert f"{ROUTE}/chat-1/turn-2/1, {ROUTE}/chat-1/turn-2/2." in hover["repeats"]
    assert "Median of 2 valid repeats, range 1.000 to 1.200." in hover["TTFT (s)"]
    assert hover["TTFT (s)"].endswith("Witness: client clock (monotonic, stamped when the bytes arrived).")
    assert "in 6.50 s (median of 2 repeats, 6.00 to 7.00 s)" in " ".join(terminal(one).split())


def test_nothing_else_of_a_report_changes_when_chats_are_added() -> None:
    without, with_chats = mixed(), mixed(turn(1), turn(2))
    for field in ("measurements", "summaries", "comparisons", "crossovers", "routes", "levels", "cells"):
        assert getattr(without, field) == getattr(with_chats, field)
    assert len(table(with_chats)["trial_id"]) == len(table(without)["trial_id"]) + 2
    before = markdown.render(without).partition("## Performance")[2].partition("\n## ")[0]
    assert before and before in markdown.render(with_chats)


def test_turns_that_missed_are_listed_and_leave_a_chat_without_a_sum() -> None:
    one = mixed(turn(1), turn(2, valid=False), plan=planned(("x.jsonl line 1", 3)))
    found = chat_table(one)
    assert found is not None
    assert [row[-1] for row in found.rows] == [
        "ok",
        "invalid: 1 x turn_missed",
        "not measured",
        "never whole",
    ]
    assert [row[3] for row in found.rows] == ["1", "0 of 1", "0", "0 of 1"]
    assert found.rows[-1][4:10] == ("-",) * 6
    assert any("a turn of a chat reused less" in words.excluded_line(bad) for bad in words.excluded(one))
    assert "3 turns, 1 of them valid: no sum" in terminal(one)


def test_a_name_from_a_file_has_no_power_over_a_page() -> None:
    hostile = "<script>alert(1)</script>|x\x1b[31m line 1"
    one = mixed(turn(1, chat=hostile))
    page, text = html.render(one), markdown.render(one)
    assert "<script>alert" not in page and "\x1b" not in page + text + terminal(one)
    assert "<script>alert" not in text


def test_of_very_many_turns_only_whole_chats_are_shown() -> None:
    turns = [turn(number) for number in range(1, section.MOST_ROWS + 2)]
    found = chat_table(mixed(*turns))
    assert found is not None and [row[2] for row in found.rows] == ["all"]
    assert found.note.endswith("301 turns stand in summary.json alone.")


def test_a_report_of_turns_alone_does_not_say_that_nothing_was_measured() -> None:
    one = assemble(runs=content().runs, measurements=(turn(1),))
    assert "Nothing was measured" not in markdown.render(one) + html.render(one)
    assert "nothing measured yet" not in terminal(one)


def test_turns_come_back_from_the_table_of_measurements_as_what_they_are() -> None:
    rows = read_table(measurements_csv(mixed(turn(1), turn(2))), kind="csv", source="m.csv")
    assert [(row.condition, row.chat, row.turn) for row in rows if row.turn] == [
        ("turn", "x.jsonl line 1", 1),
        ("turn", "x.jsonl line 1", 2),
    ]
