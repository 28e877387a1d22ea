"""The comparison table: as many digits as its spreads need, and no spread promised that there is none of."""

from __future__ import annotations

import pytest
import report_samples as samples
from msgspec import structs

from bench.records import Estimate
from bench.report import compared
from bench.report.tables import comparison


@pytest.mark.parametrize(
    ("value", "low", "high", "said"),
    [
        (3.56, 3.504, 3.66, "3.56x (3.50-3.66)"),
        (1.0106, 1.0072, 1.0139, "1.011x (1.007-1.014)"),
        (0.9997, 0.9994, 0.9998, "0.9997x (0.9994-0.9998)"),
        (1.002, 0.998, 1.003, "1.002x (0.998-1.003)"),
        (1.5, 1.5, 1.5, "1.50x (1.50)"),
        (1.00001, 1.00001, 1.00002, "1.0000x (1.0000)"),
    ],
)
def test_digits_suffice_to_tell_the_ends_apart_and_a_difference_from_none(
    value: float, low: float, high: float, said: str
) -> None:
    assert compared.factor(Estimate(value=value, low=low, high=high, spread="interval", samples=6)) == said


def test_a_ratio_without_a_spread_has_two_digits() -> None:
    assert compared.factor(Estimate(value=1.267, samples=1)) == "1.27x"


def test_a_spread_is_promised_only_where_a_ratio_has_one() -> None:
    lone = tuple(
        structs.replace(one, ratio=Estimate(value=3.56, samples=1), difference=None)
        for one in samples.COMPARISONS
    )
    assert compared.note_of(samples.content(comparisons=lone)).startswith(
        "ratios of medians (single texts have no spread)"
    )
    assert compared.note_of(samples.content(comparisons=(*lone, samples.COMPARISONS[0]))).startswith(
        "ratios of medians with their spread"
    )
    text = comparison(samples.content(comparisons=lone), 80)
    assert "single texts have no spread" in text and "with their spread" not in text
