"""Lines for people are no wider than their terminal, whatever they are given."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.cli.layout import columns, hanging, table

WORDS = st.lists(st.text("abc-/.", min_size=1, max_size=120), max_size=30).map(" ".join)


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


@pytest.mark.parametrize(("terminal", "used"), [("250", 100), ("100", 100), ("72", 72), ("10", 40)])
def test_a_line_fits_the_terminal_but_is_never_wider_than_a_hundred(
    terminal: str, used: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", terminal)
    assert columns() == used


def test_what_does_not_fit_goes_on_below_the_text() -> None:
    assert hanging("fail  a  ", "word " * 30).splitlines() == [
        "fail  a  " + ("word " * 18).rstrip(),
        "         " + ("word " * 12).rstrip(),
    ]


def test_a_head_that_leaves_no_room_stands_alone() -> None:
    head = "x" * 80 + "  "
    assert hanging(head, "some words").splitlines() == ["x" * 80, "    some words"]
    assert hanging(head, "") == "x" * 80


def test_a_path_that_is_longer_than_a_line_is_broken_and_lost_nowhere() -> None:
    path = "/results" * 40
    lines = hanging("in: ", path).splitlines()
    assert max(map(len, lines)) == 100
    assert "".join(line.strip() for line in lines) == f"in: {path}"


@given(head=st.text("ab ", max_size=150), text=WORDS, width=st.integers(1, 300))
def test_no_line_is_too_wide_and_no_letter_is_lost(head: str, text: str, width: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        shown, most = hanging(head, text), columns()
    assert all(len(line) <= most for line in shown.splitlines())
    assert "".join(shown.split()) == "".join((head + text).split())


def test_a_table_wraps_its_last_column() -> None:
    lines = "\n".join(table(("n", "what", "why"), [("7", "refused", "word " * 40)], right=1)).splitlines()
    assert lines[0] == "n  what     why" and lines[1].startswith("7  refused  word word")
    assert all(line.startswith(" " * 12 + "word") for line in lines[2:])
    assert max(map(len, lines)) <= 100
