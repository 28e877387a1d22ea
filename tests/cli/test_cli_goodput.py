"""What `goodput` says of levels of which nothing is known, and of what is left out."""

from __future__ import annotations

import pytest
from levels import level
from msgspec import structs

from bench.analysis.decisions.goodput import Promise, goodput
from bench.cli.goodput_table import goodput_table
from bench.records import Measurement, Reason, Verdict


def invalid(rows: list[Measurement]) -> list[Measurement]:
    verdict = Verdict(valid=False, reasons=(Reason(id="cold_hit", detail=""),))
    return [structs.replace(row, verdict=verdict) for row in rows]


def unknown(rows: list[Measurement]) -> list[Measurement]:
    return [structs.replace(row, tpot_s=None) for row in rows]


@pytest.mark.parametrize(
    ("rows", "headline", "noted"),
    [
        (
            level(1, 36) + unknown(level(4, 12)),
            "kept with up to 1 at once; 4 at once: cannot be told",
            ["4 at once: 12 waves are left out: time per output token not known"],
        ),
        (
            level(1, 2, beyond=1) + unknown(level(2, 1)) + unknown(level(4, 1)),
            "missed already with 1 at once; 2 and 4 at once: cannot be told",
            ["2 at once; a, 1,000 cold, 4 at once: 1 wave is left out: time per output token not known"],
        ),
        (unknown(level(1, 3)), "no request can be judged", ["3 requests are left out: time per output"]),
        (
            level(2, 39)[:72] + invalid(level(2, 39)[72:]),
            "kept with up to 2 at once",
            ["2 at once: 3 waves are left out: a cold prompt was found in a cache"],
        ),
    ],
)
def test_goodput_says_of_which_levels_nothing_can_be_told_and_what_was_missing(
    rows: list[Measurement], headline: str, noted: list[str]
) -> None:
    text = goodput_table(goodput(rows, Promise(ttft_s=2.0, tpot_s=0.05)), 0.9)
    said = " ".join(text.split())
    assert said.startswith(f"a, 1,000 cold: {headline} route")
    assert all(one in said for one in noted)
    assert "tpot_s" not in text
