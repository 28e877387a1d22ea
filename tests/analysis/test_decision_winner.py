from __future__ import annotations

import numpy as np
import pytest
from decision_samples import TIERS, seed, trial, truth
from decision_samples import two_routes as rows
from msgspec import structs

from bench.analysis.decisions.crossover import crossovers
from bench.analysis.decisions.replayed import replayed
from bench.analysis.decisions.winner import WinnerMap, replayed_share, winner_map
from bench.analysis.statistics import decode, prefill
from bench.records import Measurement


def the_map(measurements: list[Measurement], **more: object) -> WinnerMap:
    found = winner_map(measurements, **more)  # type: ignore[arg-type]
    assert isinstance(found, WinnerMap)
    return found


def test_the_map_gives_the_latencies_and_winners_of_the_truth() -> None:
    prompts, outputs = np.array([8_000.0, 100_000.0]), np.array([10.0, 5_000.0])
    found = the_map(rows(noise=0.0), prompts=prompts, outputs=outputs)
    assert found.routes == ("slow", "fast")
    for r, name in enumerate(found.routes):
        for i, n in enumerate(prompts):
            for j, k in enumerate(outputs):
                assert found.latency_s[r, i, j] == pytest.approx(truth(name, n, k), rel=1e-6)
    assert found.winner.tolist() == [[0, 1], [0, 1]]
    assert found.margin[0, 0] == pytest.approx(truth("fast", 8e3, 10) / truth("slow", 8e3, 10) - 1, rel=1e-6)
    assert found.beyond.tolist() == [[False, True], [False, True]]


def test_the_boundary_agrees_with_the_crossover_of_a_tier() -> None:
    measurements = rows(noise=0.0)
    prompts = np.array([8_000.0, 64_000.0, 256_000.0])
    found = the_map(measurements, prompts=prompts, outputs=np.geomspace(1, 20_000, 400))
    line = {prompt: (output, below, above) for prompt, output, below, above in found.boundary}
    for one in crossovers(measurements, "slow"):
        output, below, above = line[float(one.tier)]
        assert (below, above) == ("slow", "fast")
        assert output == pytest.approx(one.output_tokens, rel=0.02)


def test_noise_leaves_a_band_around_the_boundary_where_nothing_is_certain() -> None:
    found = the_map(rows(noise=0.05))
    assert 0.01 < 1 - found.certain.mean() < 0.5
    output, _ = found.boundary[0][1], None
    place = int(np.searchsorted(found.outputs, output))
    assert not found.certain[0, place] or not found.certain[0, place - 1]


def test_single_trials_make_nothing_certain() -> None:
    assert not the_map(rows(trials=1)).certain.any()


def test_a_reused_prefix_moves_the_boundary_down() -> None:
    cold, warm = the_map(rows()), the_map(rows(), reused_share=0.9)
    assert warm.reused_share == 0.9

    def at_longest(one: WinnerMap) -> float:
        return one.boundary[-1][1]

    assert at_longest(warm) < at_longest(cold)


def test_a_number_of_reused_tokens_is_taken_off_every_longer_prompt() -> None:
    prompts = np.array([8_000.0, 50_000.0, 64_000.0, 256_000.0])
    found = the_map(rows(noise=0.0), reused_tokens=50_000, prompts=prompts, outputs=np.array([1.0, 500.0]))
    assert found.prompts.tolist() == [64_000.0, 256_000.0] and found.reused_tokens == 50_000
    for r, name in enumerate(found.routes):
        for i, n in enumerate(found.prompts):
            assert found.latency_s[r, i, 1] == pytest.approx(truth(name, n, 500.0, 50_000), rel=1e-6)
    none = winner_map(rows(), reused_tokens=50_000, prompts=np.array([8_000.0]))
    assert none == "a winner map needs prompts longer than the 50,000 tokens that are cached"


def test_only_cells_with_about_that_part_cached_are_marked_as_measured() -> None:
    replays = [
        structs.replace(row, condition="replay", prefix_reuse=0.98 if row.tier > 8_000 else 0.5)
        for row in rows()
    ]
    both = [*rows(), *replays]
    assert the_map(both).measured == tuple((n, 512) for n in TIERS)
    assert the_map(both, reused_share=0.99).measured == tuple((n, 512) for n in TIERS[1:])
    assert the_map(both, reused_share=0.75).measured == ()
    assert the_map(both, reused_tokens=4_100).measured == ((8_000, 512), (256_000, 512))


def test_default_axes_span_what_was_measured_and_mark_the_rest() -> None:
    found = the_map(rows())
    assert found.prompts[0] <= 8_000 and found.prompts[-1] >= 256_000
    inside = (found.prompts >= 8_000) & (found.prompts <= 256_000)
    assert not found.beyond[np.ix_(inside, found.outputs <= 512)].any()
    assert found.beyond[~inside].all()
    assert found.measured == tuple((n, 512) for n in TIERS)


def test_too_few_laws_give_the_reason_instead_of_a_map() -> None:
    found = winner_map(seed())
    assert isinstance(found, str)
    assert "needs two routes" in found and "target-only: one tier (564,575 tokens) gives no law" in found


def test_the_measured_reuse_is_the_median_of_valid_replays() -> None:
    assert replayed_share(seed()) == pytest.approx(0.996087, abs=1e-6)
    assert replayed_share([trial()]) is None


def test_the_decode_law_gives_back_step_times_between_and_beyond_tiers() -> None:
    law = decode.fit(rows(noise=0.0))["slow"]
    assert (law.base_s, law.slope_s) == pytest.approx((0.020, 1e-7), rel=1e-6)
    assert law.at(np.array([1_000.0, 100_000.0, 1_000_000.0])) == pytest.approx([0.0201, 0.03, 0.12])
    assert law.longest_output == 512 and law.tiers == 3


def test_beyond_its_tiers_the_spread_of_a_step_time_is_that_of_the_line_through_them() -> None:
    """Tiers at contexts 1,050.5 and 3,050.5: at 5,050.5 the line is 2 t2 - t1, at 50.5 1.5 t1 - t2 / 2."""
    near = [trial(tpot=t, tier=1_000, number=i) for i, t in enumerate((0.019, 0.020, 0.021))]
    far = [trial(tpot=t, tier=3_000, number=i) for i, t in enumerate((0.037, 0.040, 0.043))]
    law = decode.fit([*near, *far])["a"]
    assert law.half_at(np.array([1_050.5, 3_050.5])) == pytest.approx([0.001, 0.003])
    assert law.at(5_050.5) == pytest.approx(0.06)
    assert law.half_at(5_050.5) == pytest.approx(np.hypot(2 * 0.003, 0.001))
    assert law.half_at(50.5) == pytest.approx(np.hypot(1.5 * 0.001, 0.5 * 0.003))
    one = decode.fit(near)["a"]
    assert one.half_at(10_000.0) == pytest.approx(0.001)  # of a slope nothing is known: a warning says so


def test_the_map_of_two_tiers_is_certain_of_nothing_and_says_why() -> None:
    found = the_map([row for row in rows(noise=0.05) if row.tier in TIERS[:2]])
    for route in found.routes:
        assert any(
            text.startswith(f"{route}: two tiers") and "spread is not known, a third would test it" in text
            for text in found.warnings
        )
    assert not found.certain.any()


def test_one_tier_or_decode_that_quickens_gives_no_slope() -> None:
    one = decode.fit([trial()])["a"]
    assert one.slope_s == 0 and "unknown" in one.warnings[0]
    odd = decode.fit([trial(tpot=0.02, tier=1_000), trial(tpot=0.01, tier=9_000)])["a"]
    assert odd.slope_s == 0 and any("faster with context" in text for text in odd.warnings)


def test_tasks_are_mapped_one_by_one_and_pooled_only_with_a_word_about_it() -> None:
    echo = [structs.replace(row, task="echo", tpot_s=(row.tpot_s or 0.0) / 4) for row in rows(noise=0.0)]
    both = [*rows(noise=0.0), *echo]
    alone = the_map(both, task="continue")
    assert np.array_equal(alone.latency_s, the_map(rows(noise=0.0)).latency_s)
    assert (the_map(both, task="echo").latency_s[:, :, -1] < alone.latency_s[:, :, -1]).all()
    assert "the tasks continue, echo are pooled" in the_map(both).warnings
    assert not any("pooled" in text for text in alone.warnings)


def replay_of(row: Measurement, cached: int, ttft: float) -> Measurement:
    return structs.replace(
        row, condition="replay", replay=1, ttft_s=ttft, cached_tokens=cached, prefix_reuse=cached / row.tier
    )


def uneven_replays() -> list[Measurement]:
    """Of the slow route all but 500 tokens are cached, of the fast one all but 2,000 and 3,000; and a cached
    token costs neither route what the other tiers say it does."""
    begins = {
        ("slow", 8_000): (7_500, 0.5),
        ("slow", 64_000): (63_500, 2.0),
        ("slow", 256_000): (255_500, 3.0),
        ("fast", 8_000): (6_000, 1.7),
        ("fast", 64_000): (61_000, 4.4),
        ("fast", 256_000): (253_000, 9.0),
    }
    return [replay_of(row, *begins[row.route, row.tier]) for row in rows(noise=0.0)]


def test_the_map_of_replays_has_what_each_route_reused_and_its_ttft() -> None:
    both = [*rows(noise=0.0), *uneven_replays()]
    found = the_map(both, replays=True, prompts=np.array([8_000.0, 64_000.0]), outputs=np.array([1.0, 512.0]))
    assert found.replays and found.routes == ("slow", "fast")
    assert found.latency_s[:, :, 0] == pytest.approx(np.array([[0.5, 2.0], [1.7, 4.4]]))
    assert found.measured == tuple((n, 512) for n in TIERS)


def test_the_map_of_replays_agrees_with_their_crossovers() -> None:
    both = [*rows(noise=0.0), *uneven_replays()]
    outputs = np.geomspace(1, 2_000, 800)
    found = the_map(both, replays=True, prompts=np.array(TIERS, dtype=float), outputs=outputs)
    line = {prompt: output for prompt, output, _, _ in found.boundary}
    replays = [one for one in crossovers(both, "slow") if one.condition == "replay"]
    assert len(replays) == 3
    for one in replays:
        assert line[float(one.tier)] == pytest.approx(one.output_tokens, rel=0.02)


def test_between_tiers_replays_keep_what_stays_uncached_and_stray_as_far_from_the_law() -> None:
    both = [*rows(noise=0.0), *uneven_replays()]
    law = prefill.fit(both)["fast"]
    own = replayed([row for row in both if row.route == "fast"], law)
    assert own is not None
    middle = np.array([np.sqrt(8_000 * 64_000), 1e6, 500.0])
    assert own.cached(middle) == pytest.approx([middle[0] - 2_500, 1e6 - 3_000, 0.0])
    stray = [1.7 / law.ttft_s(8_000.0, 6_000.0), 4.4 / law.ttft_s(64_000.0, 61_000.0)]
    value, half = own.ttft(law, middle[:1])
    assert value == pytest.approx(law.ttft_s(middle[:1], middle[:1] - 2_500) * np.mean(stray))
    assert np.isfinite(half).all()  # the law has three tiers, a cell five trials


def test_a_route_without_replays_is_not_on_their_map() -> None:
    both = [*rows(), *(row for row in uneven_replays() if row.route == "slow")]
    found = winner_map(both, replays=True)
    assert isinstance(found, str) and "fast: no replay that tells what was cached" in found


def test_a_dot_stands_only_where_every_route_was_measured() -> None:
    """With 98% cached the fast route was measured at 64,000 and 256,000 tokens, the slow one everywhere."""
    both = [*rows(noise=0.0), *uneven_replays()]
    assert the_map(both, reused_share=0.98).measured == ((64_000, 512), (256_000, 512))
    assert the_map(both, reused_share=0.75).measured == ()
    short = [structs.replace(row, output_tokens=100) if row.route == "fast" else row for row in rows()]
    assert the_map(short).measured == tuple((n, 100) for n in TIERS)
