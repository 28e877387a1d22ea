"""The winner map and the measured crossovers: where they part, it is told."""

from __future__ import annotations

import numpy as np
import pytest
from decision_samples import TIERS, trial
from decision_samples import two_routes as rows
from msgspec import structs

from bench.analysis.decisions.agreement import parted
from bench.analysis.decisions.crossover import crossovers, one_way
from bench.records import Crossover, Measurement


def measured(found: list[Measurement]) -> list[Crossover]:
    return one_way(crossovers(found))


def test_laws_that_fit_their_tiers_part_from_no_crossover() -> None:
    found = rows()
    assert len(measured(found)) == len(TIERS)
    assert parted(found, measured(found)) == ()


def test_a_crossover_beyond_both_spreads_is_told_with_where_the_map_has_it() -> None:
    """1 + 0.02 (k - 1) and 3 + 0.01 (k - 1) are equal at 201; curves are said to meet at 120."""
    rng = np.random.default_rng(5)
    found = [
        trial(name, ttft * tier / 1_000 * rng.lognormal(0, 0.001), tpot, tier=tier, number=number)
        for name, ttft, tpot in (("a", 1.0, 0.02), ("b", 3.0, 0.01))
        for tier in (1_000, 2_000)
        for number in range(1, 7)
    ]
    one = measured(found)[0]
    assert one.output_tokens == pytest.approx(201, rel=0.01)
    moved = structs.replace(one, output_tokens=120.0, low=110.0, high=130.0, basis="curve")
    (told,) = parted(found, [moved])
    assert told.crossover == moved and told.on_map == pytest.approx(201, rel=0.01)
    assert parted(found, [structs.replace(moved, high=210.0)]) == ()
    assert parted(found, [structs.replace(moved, low=None)]) == ()


def test_the_spread_of_the_map_counts_where_it_is_known() -> None:
    found = rows(noise=0.05)
    one = next(one for one in measured(found) if one.tier == 64_000)
    assert one.output_tokens is not None
    near, far = one.output_tokens * 0.97, one.output_tokens / 3
    assert parted(found, [structs.replace(one, low=near - 1, high=near)]) == ()
    assert len(parted(found, [structs.replace(one, low=far - 1, high=far)])) == 1


def test_routes_that_do_not_meet_on_the_map_are_told_so() -> None:
    """The first is ahead at every length, whatever the crossover claims."""
    found = [
        trial(name, ttft, tpot, tier=tier, number=number)
        for name, ttft, tpot in (("a", 1.0, 0.01), ("b", 2.0, 0.02))
        for tier in (1_000, 2_000)
        for number in (1, 2)
    ]
    claimed = Crossover(
        route="b", base="a", tier=1_000, condition="cold", task="continue", status="crosses", wins="above",
        samples=(2, 2), output_tokens=50.0, low=40.0, high=60.0, spread="range",
    )  # fmt: skip
    (told,) = parted(found, [claimed])
    assert told.on_map is None
