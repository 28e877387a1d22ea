"""The table of `crossover` says in words where a lead ends again."""

from __future__ import annotations

import pytest
from leads import lead_that_ends

from bench.cli.decide_tables import crossover_table
from bench.records import Crossover


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "the lead of a ends at 9,000: then b is faster again"),
        ({"wins": "below"}, "the lead of b ends at 9,000: then a is faster again"),
        (
            {"until_low": 8_000.0, "until_high": 9_500.0},
            "the lead of a ends at 9,000 (8,000 to 9,500): then b is faster again",
        ),
        ({"status": "always", "wins": None}, "the lead of a ends at 9,000: then b is faster"),
        ({"status": "never", "wins": None}, "the lead of b ends at 9,000: then a is faster"),
    ],
)
def test_the_end_of_a_lead_stands_below_the_table(changes: dict[str, object], said: str) -> None:
    one = lead_that_ends(**changes)
    assert f"- a against b, 1,000 cold: {said}\n" in crossover_table([one])


def test_with_a_cached_part_what_is_said_of_a_pair_names_it_and_what_is_said_of_a_route_does_not() -> None:
    one = Crossover(
        route="a",
        base="b",
        tier=1_000,
        condition="replay",
        status="crosses",
        samples=(6, 6),
        reused_tokens=500,
        may_end=9_000.0,
        warnings=("the lead of a may end: its spread is open", "b: two tiers fit a law exactly"),
    )
    shown = crossover_table([one])
    assert "- a against b, 1,000 tokens, 500 cached: the lead of a may end" in shown
    assert "\n- b: two tiers fit a law exactly" in shown
