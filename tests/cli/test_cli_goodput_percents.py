"""Whole percents of `goodput`: a share that is one prints as itself, whatever its product by 100 comes to."""

from __future__ import annotations

from fractions import Fraction

from msgspec import structs

from bench.analysis.decisions.goodput import Goodput
from bench.cli.goodput_table import goodput_table

LEVEL = Goodput(
    route="r",
    tier=1000,
    condition="cold",
    task="continue",
    concurrency=50,
    waves=2,
    waves_kept=0,
    texts=2,
    left_out={},
    requests=100,
    failed=0,
    met=58,
    share=0.58,
    lowest_share=0.58,
    low=0.5,
    high=0.6,
    requests_s=1.0,
    verdict="missed",
    shown_from=None,
)


def cells(share: float, low: float, high: float) -> tuple[str, str]:
    """Worst and interval of the one row."""
    text = goodput_table([structs.replace(LEVEL, lowest_share=share, low=low, high=high)], 0.9)
    (row,) = [line for line in text.splitlines() if line.startswith("r ")]
    words = row.split()
    end = words.index("to")
    return words[end - 2], " ".join(words[end - 1 : end + 2])


def test_the_worst_wave_and_the_interval_are_whole_percents_of_the_counts() -> None:
    """29 of 50 are 58%, though 0.58 * 100 is below 58; what lies between goes outwards, and down."""
    assert cells(29 / 50, 29 / 50, 7 / 100) == ("58%", "58 to 7%")  # 0.07 * 100 is above 7
    assert cells(63 / 64, 0.581, 0.9701) == ("98%", "58 to 98%")
    for requests in range(1, 101):
        for met in range(requests + 1):
            exact = Fraction(100 * met, requests)
            if exact.denominator == 1:
                assert f"{100 * met // requests}%" == _worst(met / requests), (met, requests)


def _worst(share: float) -> str:
    from bench.cli.goodput_table import _waves

    return _waves(structs.replace(LEVEL, lowest_share=share))[1]
