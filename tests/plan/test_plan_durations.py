"""Durations as people write and read them."""

from __future__ import annotations

import pytest

from bench.errors import SuiteError
from bench.plan.durations import parse_duration, told_apart, words


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("4h", 14_400),
        ("90 min", 5_400),
        ("90min", 5_400),
        ("1h 30m", 5_400),
        ("1h30m", 5_400),
        ("45s", 45),
        ("1.5h", 5_400),
        (" 2d ", 172_800),
    ],
)
def test_durations_are_read_with_and_without_a_bare_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == parse_duration(text, bare="s") == seconds


@pytest.mark.parametrize(
    "text", ["", "4", "h", "4 hours", "-4h", "0h", "4h later", "1e3s", "9" * 400 + "h", "٤h"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(SuiteError):
        parse_duration(text)


def test_a_bare_number_has_the_unit_that_is_given() -> None:
    assert [parse_duration(text, bare="s") for text in ("90", " 0.5 ")] == [90, 0.5]
    assert parse_duration("2", bare="h") == 7_200
    for text in ("0", "-1", "1h 30", "1e3", "9" * 400, ""):
        with pytest.raises(SuiteError):
            parse_duration(text, bare="s")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (47, "47 s"),
        (89.4, "89 s"),
        (90, "2 min"),
        (720, "12 min"),
        (1_800, "30 min"),
        (5_399, "1 h 30 min"),
        (5_400, "1 h 30 min"),
        (7_500, "2 h 05 min"),
        (11_100, "3 h 05 min"),
    ],
)
def test_durations_are_told_as_people_do(seconds: float, text: str) -> None:
    assert words(seconds) == text


@pytest.mark.parametrize(
    ("first_s", "second_s", "told"),
    [
        (720.0, 300.0, ("12 min", "5 min")),
        (1.3, 0.9, ("1.3 s", "0.9 s")),
        (0.95, 0.9, ("0.95 s", "0.90 s")),
        (0.7, 0.2, ("0.7 s", "0.2 s")),  # not 1 s and 0 s
        (725.5, 720.0, ("725.5 s", "720.0 s")),
    ],
)
def test_two_durations_never_look_alike(first_s: float, second_s: float, told: tuple[str, str]) -> None:
    assert told_apart(first_s, second_s) == told
