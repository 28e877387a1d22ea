"""Every derived figure of the published study comes out of its raw columns."""

from __future__ import annotations

import json

import numpy as np
import pytest
from decision_samples import DATA, seed

from bench.analysis.decisions.advise import advise
from bench.analysis.decisions.baseline import read_observations
from bench.analysis.decisions.crossover import as_json, crossovers, one_way
from bench.analysis.decisions.lines import report_lines
from bench.analysis.decisions.workload import Request
from bench.analysis.statistics.compare import compare
from bench.records import Comparison

STUDY = json.loads((DATA / "seed_study.json").read_text("utf-8"))


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_each_row_gives_its_published_decode_rate_and_acceptance(kind: str) -> None:
    rows = {row.trial_id: row for row in seed(kind)}
    assert len(rows) == 6
    for published in STUDY["requests"]:
        row = rows[published["id"]]
        # the published rates are rounded: mtp2 and target-only to three decimals
        assert row.decode_tok_s == pytest.approx(published["decode_tok_s"], rel=5e-5)
        if published["acceptance"] is None:
            assert row.acceptance is None
            assert row.absent["acceptance"] == "no drafts"
        else:
            assert row.acceptance == pytest.approx(published["acceptance"], abs=5e-4)


def test_the_replay_hits_follow_the_block_rule() -> None:
    (replay,) = [row for row in seed() if row.condition == "replay"]
    assert (564_576 // 1_616 - 1) * 1_616 == replay.cached_tokens == 562_368
    assert replay.prefix_reuse == pytest.approx(STUDY["derived"]["replay_prefix_reuse"], abs=1e-6)


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_mtp4_overtakes_target_only_near_1766_tokens(kind: str) -> None:
    (one,) = [c for c in as_json(crossovers(seed(kind), "target-only")) if c["route"] == "mtp4"]
    # by hand: 1 + (690.966 - 545.395) / (58.252/511 - 16.3685/511), and with 690.7554 and 15.9278
    assert one["high"] == pytest.approx(1 + 145.571 * 511 / (58.252 - 16.3685))
    assert one["low"] == pytest.approx(1 + 145.3604 * 511 / (58.252 - 15.9278))
    assert 1755 < one["low"] < one["output_tokens"] < one["high"] < 1778  # type: ignore[operator]
    assert (one["status"], one["wins"], one["spread"]) == ("crosses", "above", "range")
    assert one["extrapolation"] == pytest.approx(one["output_tokens"] / 512)  # type: ignore[operator]
    assert one["samples"] == (2, 1)


def test_mtp4_overtakes_mtp2_between_11054_and_11888_tokens() -> None:
    found = {c.route: c for c in crossovers(seed(), "mtp2")}
    mtp4, target = found["mtp4"], found["target-only"]
    assert (round(mtp4.low or 0), round(mtp4.high or 0)) == (11_054, 11_888)
    assert mtp4.wins == "above"
    assert target.output_tokens == pytest.approx(96.18, abs=0.01)
    assert (target.status, target.wins, target.spread) == ("crosses", "below", None)
    assert "one trial a side: no spread is known" in target.warnings


def _one(found: list[Comparison], route: str, quantity: str) -> Comparison:
    (one,) = [c for c in found if (c.route, c.quantity, c.tier) == (route, quantity, 564_575)]
    return one


def test_decode_ratios_and_ttft_differences_are_the_published_ones() -> None:
    against_target = _one(compare(seed(), "target-only"), "mtp4", "decode_tok_s")
    against_mtp2 = _one(compare(seed(), "mtp2"), "mtp4", "decode_tok_s")
    assert against_target.ratio is not None and against_mtp2.ratio is not None
    assert (round(against_target.ratio.low or 0, 2), round(against_target.ratio.high or 0, 2)) == (3.56, 3.66)
    assert against_mtp2.ratio.low == pytest.approx(1.365, abs=5e-4)
    assert against_mtp2.ratio.high == pytest.approx(1.4025, abs=5e-4)
    slowest = _one(compare(seed(), "target-only"), "mtp4", "ttft_s").difference
    least = _one(compare(seed(), "mtp2"), "mtp4", "ttft_s").difference
    assert slowest is not None and least is not None
    assert slowest.high == pytest.approx(145.571) and least.low == pytest.approx(138.6714)
    assert all(c.verdict == "undecided" for c in compare(seed(), "target-only"))


def test_the_production_case_is_advised_from_what_was_observed() -> None:
    observed = read_observations((DATA / "seed_study.json").read_text("utf-8"), source="seed")
    case = STUDY["production_observation"]
    request = Request(
        prompt_tokens=case["prompt_tokens"],
        reused_tokens=case["prefix_reused_tokens"],
        output_tokens=case["output_tokens"],
    )
    (target,) = [a for a in advise(seed("json"), request, observed) if a.route == "target-only"]
    assert target.decode_s is not None
    assert (round(target.decode_s.low or 0), round(target.decode_s.high or 0)) == (2_579, 2_791)
    assert target.decode_s.spread == "range"
    assert target.ttft_s is None and target.total_s is None
    assert target.absent["ttft_s"] == "one tier (564,575 tokens) gives no law"
    assert target.basis["decode_s"] == "observed at 733,366 tokens"


def test_the_study_tells_its_own_result() -> None:
    rows = seed()
    limits = dict.fromkeys(("mtp4", "target-only", "mtp2"), STUDY["boundary"]["configured_limit"])
    found = compare(rows, "target-only") + compare(rows, "mtp2")
    lines = report_lines(rows, found, one_way(crossovers(rows)), limits)
    for expected in (
        "mtp4 decode is 3.56x-3.66x target-only at 564,575, in the range seen",
        "mtp4 decode is 1.36x-1.40x mtp2 at 564,575, in the range seen",
        "TTFT of mtp4 is 145-146 s slower than target-only's at 564,575, in the range seen",
        "TTFT of mtp4 is 139 s slower than mtp2's at 564,575, in the range seen",
        "mtp4 beats target-only beyond about 1,770 output tokens at 564,575 (1,756 to 1,777, range); "
        "extrapolated 3.5-fold from 512 measured",
        "mtp4 beats mtp2 beyond about 11,500 output tokens at 564,575 (11,054 to 11,888, range); "
        "extrapolated 22.4-fold from 512 measured",
        "replays reuse 99.6% of their prompts",
        "tested up to 564,580 tokens, 56% of the served limit; nothing measured above",
    ):
        assert expected in lines


def test_several_sources_with_equal_route_names_are_told_apart() -> None:
    both = seed("csv") + seed("json")
    found = crossovers(both, "mtp2")
    assert {c.base for c in found} == {"seed_study.csv:mtp2", "seed_study.json:mtp2"}
    numbers = [c.output_tokens for c in found if c.route.endswith(":mtp4")]
    assert len(numbers) == 4 and np.ptp(np.array(numbers, dtype=float)) == 0
