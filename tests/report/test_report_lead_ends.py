"""A report tells where a lead ends again: in the first answer, in the sentence, and nowhere against it."""

from __future__ import annotations

import msgspec
import pytest
import report_samples as samples

from bench.records import Crossover
from bench.report import words
from bench.report.choice import choices, said

LEAD = msgspec.structs.replace(
    samples.CROSSOVERS[0], output_tokens=300.0, low=250.0, high=350.0, until=9_000.0, extrapolation=0.5
)
FAST, SLOW = LEAD.route, LEAD.base


@pytest.mark.parametrize(
    ("changes", "stretches", "borders"),
    [
        (
            {},
            (f"{SLOW} up to 300", f"{FAST} from 300 to 9,000", f"{SLOW} from 9,000"),
            "300 (250 to 350), 9,000",
        ),
        (
            {"until_low": 8_000.0, "until_high": 9_500.0},
            (f"{SLOW} up to 300", f"{FAST} from 300 to 9,000", f"{SLOW} from 9,000"),
            "300 (250 to 350), 9,000 (8,000 to 9,500)",
        ),
        (
            {"until": None, "may_end": 9_000.0},
            (
                f"{SLOW} up to 300",
                f"{FAST} from 300 to 9,000",
                f"{FAST} or {SLOW} (not told apart) from 9,000",
            ),
            "300 (250 to 350), perhaps 9,000",
        ),
        (
            {"status": "always", "wins": None, "output_tokens": None, "until": None, "may_end": 9_000.0},
            (f"{FAST} up to 9,000", f"{FAST} or {SLOW} (not told apart) from 9,000"),
            "perhaps 9,000",
        ),
        (
            {"wins": "below"},
            (f"{FAST} up to 300", f"{SLOW} from 300 to 9,000", f"{FAST} from 9,000"),
            "300 (250 to 350), 9,000",
        ),
        (
            {"status": "always", "wins": None, "output_tokens": None, "low": None, "high": None},
            (f"{FAST} up to 9,000", f"{SLOW} from 9,000"),
            "9,000",
        ),
        (
            {
                "status": "undecided",
                "wins": None,
                "output_tokens": None,
                "low": None,
                "high": None,
                "ahead": FAST,
                "ahead_from": 5.2,
            },
            (
                f"{FAST} or {SLOW} (not told apart) up to 5.20",
                f"{FAST} from at most 5.20 to 9,000",
                f"{SLOW} from 9,000",
            ),
            "at most 5.20, 9,000",
        ),
    ],
)
def test_the_first_answer_changes_again_where_the_lead_ends(
    changes: dict[str, object], stretches: tuple[str, ...], borders: str
) -> None:
    one = msgspec.structs.replace(LEAD, **changes)
    (choice,) = choices(samples.content(crossovers=(one,)))
    assert tuple(said(span).split(", in the range")[0] for span in choice.spans) == stretches
    assert choice.borders.split("; ")[0] == borders


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "faster from 300 output tokens (range 250 to 350) to 9,000"),
        (
            {"until_low": 8_000.0, "until_high": 9_500.0},
            "faster from 300 output tokens (range 250 to 350) to 9,000 (8,000 to 9,500)",
        ),
        (
            {"until": None, "may_end": 9_000.0},
            "faster from 300 output tokens (range 250 to 350) to perhaps 9,000",
        ),
        ({"wins": "below"}, "faster up to 300 output tokens (range 250 to 350) and from 9,000 on"),
        ({"status": "always"}, "faster up to 9,000 output tokens"),
        ({"status": "never"}, "slower up to 9,000 output tokens"),
        (
            {"status": "undecided", "output_tokens": None, "ahead": FAST, "ahead_from": 5.2},
            f"from at most 5.20 to 9,000 output tokens {FAST} is faster",
        ),
    ],
)
def test_the_sentence_tells_the_end(changes: dict[str, object], told: str) -> None:
    one: Crossover = msgspec.structs.replace(LEAD, **changes)
    assert told in words.crossover_line(one)
