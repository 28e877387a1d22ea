from __future__ import annotations

import csv
import json
from typing import Any, get_args

import msgspec
import pytest
from decision_samples import DATA, seed
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.analysis.decisions.baseline import read_observations, read_table, write_table
from bench.analysis.decisions.columns import COLUMNS, CONDITIONS, NEEDED
from bench.analysis.decisions.guard import guarded, unguarded
from bench.errors import SuiteError
from bench.records import Measurement, Speculated

HEAD = "route,condition,prompt_tokens,output_tokens,ttft_s,total_s"


def table(*rows: str, head: str = HEAD) -> str:
    return "\n".join((head, *rows)) + "\n"


def test_a_minimal_row_becomes_a_measurement() -> None:
    (row,) = read_table(table("a,cold,1000,101,2,4"), kind="csv", source="t")
    assert (row.route, row.tier, row.condition, row.source) == ("a", 1000, "cold", "t")
    assert (row.tpot_s, row.decode_tok_s) == (0.02, 50.0)
    assert row.verdict.valid and row.prefix_reuse is None and row.acceptance is None


def test_csv_and_json_of_the_study_say_the_same() -> None:
    fields = ("route", "condition", "tier", "ttft_s", "total_s", "tpot_s", "acceptance", "cached_tokens")
    both = zip(seed("csv"), seed("json"), strict=True)
    assert all(getattr(a, f) == getattr(b, f) for a, b in both for f in fields)


def test_written_tables_read_back_the_same() -> None:
    rows = seed()
    again = read_table(write_table(rows), kind="csv", source="seed_study.csv")
    fields = (*NEEDED, "tpot_s", "drafts", "accepted_tokens", "acceptance", "cached_tokens", "prefix_reuse")
    assert [[getattr(r, f) for f in fields] for r in again] == [[getattr(r, f) for f in fields] for r in rows]


_OF_KIND: dict[str, st.SearchStrategy[Any]] = {
    "a whole number, 0 or more": st.integers(0, 10**9),
    "a whole number, 1 or more": st.integers(1, 10**9),
    "a finite number, 0 or more": st.floats(1e-6, 1e6),
    "a number from 0 to 1": st.floats(0, 1),
    "true or false": st.booleans(),
    "texts separated by ;": st.sampled_from(["cold_hit", "restart; over", "ttft_s: no text; pair: =1+1"]),
    COLUMNS["condition"]: st.sampled_from(CONDITIONS),
    COLUMNS["speculation_seen"]: st.sampled_from(get_args(Speculated)),
    COLUMNS["route"]: st.text(
        st.characters(exclude_categories=["C", "Z"], include_characters=" ='+@-#,;\""), min_size=1, max_size=9
    ).map(lambda text: f"{text}."),
}


@st.composite
def full_rows(draw: st.DrawFn) -> dict[str, Any]:
    """A row with a value in every column, but for those left out; none contradicts another."""
    row = {name: draw(_OF_KIND[allowed]) for name, allowed in COLUMNS.items()}
    row |= {"route": row["route"].strip(), "total_s": row["ttft_s"] + row["total_s"]}
    row["prefix_hits"] = row["cached_tokens"] = min(row["cached_tokens"], row["prompt_tokens"])
    row["accepted_tokens"] = min(row["accepted_tokens"], row["draft_tokens"])
    left_out = draw(st.sets(st.sampled_from(sorted(set(COLUMNS) - set(NEEDED)))))
    return {name: value.strip() if isinstance(value, str) else value for name, value in row.items()} | (
        dict.fromkeys(left_out)
    )


@settings(max_examples=150, deadline=None)
@given(full_rows())
def test_every_column_survives_writing_and_reading(row: dict[str, Any]) -> None:
    (first,) = read_table(json.dumps([row]), kind="json", source="t")
    (again,) = read_table(write_table([first]), kind="csv", source="t")
    assert plain(again) == plain(first)
    # what a measurement has under the same name, and nothing else of the row tells better, is the row's
    better = {"trial_id", "acceptance", "acceptance_length", "cached_tokens", "prefix_reuse", "decode_tok_s"}
    for name in set(COLUMNS) & set(Measurement.__struct_fields__) - better:
        assert row[name] is None or getattr(first, name) == row[name], name
    assert row["speculation_seen"] in (None, again.verdict.speculation)


def plain(one: Measurement) -> Measurement:
    """A measurement without what tells of the place in a table."""
    reasons = tuple(msgspec.structs.replace(reason, detail="") for reason in one.verdict.reasons)
    return msgspec.structs.replace(
        one, sources={}, verdict=msgspec.structs.replace(one.verdict, reasons=reasons)
    )


def test_a_measurement_past_the_drafter_limit_stays_one() -> None:
    head = HEAD + ",drafts,draft_tokens,accepted_tokens,speculation_seen"
    rows = read_table(table("mtp4,cold,9000,101,2,4,25,100,75,fallback", head=head), kind="csv", source="t")
    (again,) = read_table(write_table(rows), kind="csv", source="t")
    assert again.verdict.speculation == "fallback"


def test_no_cell_that_is_written_is_a_formula_to_a_spreadsheet() -> None:
    link = '=HYPERLINK("http://x")'
    row = {"route": link, "condition": "cold", **dict.fromkeys(NEEDED[2:], 5), "pair": "@x", "task": "+a"}
    (found,) = read_table(json.dumps([row]), kind="json", source="t")
    text = write_table([found])
    cells = [cell for line in csv.reader(text.splitlines()) for cell in line]
    assert "'" + link in cells and not [cell for cell in cells if cell[:1] in "=+-@|%" and cell]
    (again,) = read_table(text, kind="csv", source="t")
    assert (again.route, again.pair, again.task) == (link, "@x", "+a")


@given(st.text(st.sampled_from("'=+-@|%ax\t"), max_size=6))
def test_the_guard_of_a_text_comes_off_again(text: str) -> None:
    assert unguarded(guarded(text)) == text
    assert guarded(text)[:1] not in set("=+-@|%\t")


def test_requests_of_a_wave_are_still_known_as_such_after_writing() -> None:
    text = table("a,cold,10,5,1,2,1", "a,cold,10,5,3,4,2", head=HEAD + ",concurrency")
    rows = read_table(text, kind="csv", source="t")
    again = read_table(write_table(rows), kind="csv", source="t")
    assert [row.concurrency for row in again] == [1, 2]


def test_a_rate_that_a_run_left_out_is_not_made_up_from_its_times() -> None:
    text = table("a,cold,10,5,1,2,tpot_s: one chunk holds half the answer", head=HEAD + ",missing")
    (row,) = read_table(text, kind="csv", source="t")
    assert (row.total_s, row.tpot_s, row.decode_tok_s) == (2, None, None)
    (again,) = read_table(write_table([row]), kind="csv", source="t")
    assert again.tpot_s is None and "tpot_s" in again.absent


def test_an_invalid_row_stays_invalid_and_may_lack_its_counts() -> None:
    head = "tier,valid,reasons," + HEAD
    (row,) = read_table(
        table("64,false,cold_hit (12); restart,a,cold,,,,", head=head), kind="csv", source="t"
    )
    assert not row.verdict.valid
    assert [reason.id for reason in row.verdict.reasons] == ["cold_hit", "restart"]
    assert (row.tier, row.prompt_tokens, row.ttft_s) == (64, None, None)


def test_a_time_that_was_not_observed_is_absent_with_a_reason() -> None:
    (row,) = read_table(table("a,cold,1000,101,,"), kind="csv", source="t")
    assert (row.ttft_s, row.total_s, row.tpot_s) == (None, None, None)
    assert row.absent["ttft_s"] == "not in the table"


def test_comments_blank_lines_windows_ends_and_a_byte_order_mark_are_read_over() -> None:
    text = "\ufeff# source: a paper\r\n" + HEAD + "\r\n\r\na,cold,10,2,1,2\r\n# end\r\n"
    assert len(read_table(text, kind="csv", source="t")) == 1


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,warm,1000,101,2,4", "t, line 2, column condition: 'warm' is not one of cold, salted, replay"),
        ("a,cold,1000.5,101,2,4", "column prompt_tokens: '1000.5' is not a whole number, 1 or more"),
        ("a,cold,0,101,2,4", "column prompt_tokens: '0' is not a whole number, 1 or more"),
        ("a,cold,1000,,2,4", "column output_tokens: None is not a whole number, 1 or more"),
        ("a,cold,1000,101,nan,4", "column ttft_s: 'nan' is not a finite number, 0 or more"),
        ("a,cold,1000,101,inf,4", "column ttft_s: 'inf' is not a finite number"),
        ("a,cold,1000,101,-1,4", "column ttft_s: '-1' is not a finite number"),
        ("a,cold,1000,101,5,4", r"column total_s: 4.0 is not at least ttft_s \(5.0\)"),
        ("a,cold,1000,101,2", "5 cells.*the 6 cells of the header"),
        (",cold,1000,101,2,4", "column route: None is not a printable text"),
        ("\x1b[31mred,cold,1000,101,2,4", "column route: .*is not a printable text"),
        ('a,cold,1000,101,2,"4', "not CSV: unexpected end"),
    ],
)
def test_a_bad_value_is_refused_with_its_place_and_what_is_allowed(row: str, message: str) -> None:
    with pytest.raises(SuiteError, match=message):
        read_table(table(row), kind="csv", source="t")


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (HEAD.replace("ttft_s", "ttft"), "the column ttft_s is missing.*is it 'ttft'"),
        (HEAD + ",acepted_tokens", "'acepted_tokens' is unknown: is it 'accepted_tokens'"),
        (HEAD + ",route", "the column route stands there twice"),
    ],
)
def test_a_wrong_header_is_refused_with_the_nearest_name(head: str, message: str) -> None:
    with pytest.raises(SuiteError, match=message):
        read_table(table(head=head), kind="csv", source="t")


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("prefix_hits", "11", r"column prefix_hits: 11 is not at most prompt_tokens \(10\)"),
        ("draft_tokens,accepted_tokens", "4,5", r"accepted_tokens: 5 is not at most draft_tokens \(4\)"),
        ("acceptance", "1.5", "column acceptance: '1.5' is not a number from 0 to 1"),
        ("valid", "maybe", "column valid: 'maybe' is not true or false"),
    ],
)
def test_columns_that_contradict_each_other_are_refused(column: str, values: str, message: str) -> None:
    with pytest.raises(SuiteError, match=message):
        read_table(table(f"a,cold,10,2,1,2,{values}", head=f"{HEAD},{column}"), kind="csv", source="t")


def test_a_suite_in_place_of_a_table_is_said_to_be_one() -> None:
    with pytest.raises(SuiteError, match=r"mine\.toml: a suite says .* the directory of its run"):
        read_table('[suite]\nname = "mine"\n', kind="json", source="mine.toml")


def test_a_column_of_notes_is_ignored() -> None:
    assert read_table(table("a,cold,10,2,1,2,fine", head=HEAD + ",remark"), kind="csv", source="t")


@pytest.mark.parametrize(
    "text", ["", "\n", HEAD + "\n", "{", "[]", "[1]", '{"rows": []}', "null", "[" * 5000]
)
@pytest.mark.parametrize("kind", ["csv", "json"])
def test_no_table_is_one_clear_error(text: str, kind: str) -> None:
    with pytest.raises(SuiteError, match=r"^t\b"):
        read_table(text, kind=kind, source="t")  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200), st.sampled_from(["csv", "json"]))
def test_any_text_is_read_or_refused(text: str, kind: str) -> None:
    for candidate in (text, HEAD + "\n" + text):
        try:
            read_table(candidate, kind=kind, source="t")  # type: ignore[arg-type]
        except SuiteError as error:
            assert str(error).startswith("t")


_leaf = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from([*NEEDED, "id", "k", "drafts", "valid"]), _leaf))
def test_any_json_row_is_read_or_refused(row: dict[str, object]) -> None:
    text = json.dumps([{"route": "a", "condition": "cold", **dict.fromkeys(NEEDED[2:], 5), **row}])
    try:
        (found,) = read_table(text, kind="json", source="t")
    except SuiteError as error:
        assert str(error).startswith("t, row 1")
    else:
        assert found.tpot_s is None or found.tpot_s > 0


def test_observations_are_rates_without_a_time_to_first_token() -> None:
    rows = read_observations((DATA / "seed_study.json").read_text("utf-8"), source="s")
    assert [row.decode_tok_s for row in rows] == pytest.approx([8.5, 9.2])
    assert {(row.route, row.tier, row.cached_tokens, row.ttft_s) for row in rows} == {
        ("target-only", 733_366, 720_000, None)
    }
    assert read_observations("[]", source="s") == []
    with pytest.raises(SuiteError, match="observation 1, column route"):
        read_observations('{"production_observation": {"decode_tok_s": 3}}', source="s")
