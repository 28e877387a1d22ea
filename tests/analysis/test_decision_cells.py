from __future__ import annotations

import pytest
from decision_samples import invalid, trial
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from bench.analysis.statistics.cells import (
    by_cell,
    label_in_run,
    labelled,
    merged_tiers,
    named,
    routes_of,
    same_tier,
)
from bench.errors import SuiteError
from bench.records import Verdict


def test_tiers_within_a_thousandth_are_one_named_by_the_most_frequent() -> None:
    assert merged_tiers([564_577, 564_580, 564_577, 564_575]) == dict.fromkeys(
        (564_575, 564_577, 564_580), 564_577
    )
    assert merged_tiers([1000, 1001]) == {1000: 1000, 1001: 1000}
    assert merged_tiers([999, 1000]) == {999: 999, 1000: 1000}  # a thousandth is no longer below it


@settings(deadline=None)
@given(st.lists(st.integers(1, 2_000_000), min_size=1))
def test_merging_tiers_is_stable_and_never_spans_more_than_a_thousandth(tiers: list[int]) -> None:
    merged = merged_tiers(tiers)
    assert set(merged) == set(tiers)
    assert all(same_tier(tier, name) for tier, name in merged.items())
    assert merged_tiers(merged[t] for t in tiers).keys() == set(merged.values())


def test_equal_names_of_two_sources_are_told_apart_and_labelling_twice_changes_nothing() -> None:
    rows = [trial("a", source="x"), trial("a", source="y"), trial("b", source="y")]
    once = labelled(rows)
    assert routes_of(once) == ["x:a", "y:a", "b"]
    assert labelled(once) == once
    assert named(routes_of(once), "a") == ["x:a", "y:a"]
    assert named(routes_of(once), "y:a") == ["y:a"]
    with pytest.raises(SuiteError, match=r"no route 'c'.*x:a, y:a, b"):
        named(routes_of(once), "c")


def test_a_route_past_its_drafter_limit_is_a_route_of_its_own() -> None:
    fallen = structs.replace(trial("mtp4"), verdict=Verdict(valid=True, speculation="fallback"))
    assert routes_of(labelled([trial("mtp4"), fallen])) == ["mtp4", "mtp4 (fallback)"]
    assert [label_in_run(row) for row in (trial("mtp4"), fallen)] == ["mtp4", "mtp4 (fallback)"]
    assert label_in_run(structs.replace(fallen, route="mtp4 (fallback)")) == "mtp4 (fallback)"


def test_salted_samples_join_the_cold_cell_and_invalid_ones_none() -> None:
    rows = [trial(), trial(condition="salted"), invalid(trial()), trial(condition="replay")]
    cells = by_cell(rows)
    assert {cell.condition: len(sides["a"]) for cell, sides in cells.items()} == {"cold": 2, "replay": 1}
