"""What share of a prompt counts as cached, and which prompts have nothing left to tell of."""

from __future__ import annotations

import pytest
from decision_samples import trial, two_routes
from msgspec import structs

from bench.analysis.decisions import reused
from bench.analysis.decisions.reused import Reuse, reuse_crossovers
from bench.analysis.statistics.bootstrap import Floats
from bench.analysis.statistics.latency import steps_to
from bench.errors import SuiteError


@pytest.mark.parametrize(
    ("share", "prompt", "cached"),
    [
        (0.97, 16, 15),  # 15.52 would be all of it
        (0.97, 8, 7),
        (0.75, 64_000, 48_000),
        (0.29, 100, 29),  # 28.999999999999996 in floating point
        (0.999999999, 256_000, 255_999),
        (0.97, 1, 0),
        (0.0, 1, 0),
        (1.0, 16, 16),
    ],
)
def test_a_share_below_the_whole_leaves_something_to_prefill(share: float, prompt: int, cached: int) -> None:
    assert Reuse(share=share).of(prompt) == cached


def test_short_prompts_have_crossovers_for_any_share() -> None:
    rows = [
        trial(name, ttft * tier, step, tier=tier, number=number)
        for tier in (8, 16)
        for number in (1, 2)
        for name, ttft, step in (("a", 0.06, 0.009), ("b", 0.05, 0.01))
    ]
    found = reuse_crossovers(rows, Reuse(share=0.97))
    assert {(one.tier, one.reused_tokens) for one in found} == {(8, 7), (16, 15)}


def test_prompts_that_are_no_longer_than_the_cached_part_are_named() -> None:
    rows = two_routes()
    found = reuse_crossovers(rows, Reuse(tokens=64_000))
    assert {one.tier for one in found} == {256_000}
    for name in ("fast", "slow"):
        told = f"{name}: prompts of 8,000 and 64,000 tokens are no longer than the cached part"
        assert all(any(text.startswith(told) for text in one.warnings) for one in found)
    every = reuse_crossovers(rows, Reuse(tokens=1))
    assert not any("no longer than" in text for one in every for text in one.warnings)


@pytest.mark.parametrize(("reuse", "asked"), [(Reuse(tokens=256_000), "256,000"), (Reuse(share=1.0), "100%")])
def test_without_a_longer_prompt_the_longest_is_named(reuse: Reuse, asked: str) -> None:
    told = f"--reused {asked}: no measured prompt is longer than that; the longest has 256,000 tokens"
    with pytest.raises(SuiteError) as caught:
        reuse_crossovers(two_routes(), reuse)
    assert str(caught.value) == told


def test_decoding_is_reckoned_once_a_route_and_prompt_length_however_many_pairs_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float] = []

    def counting(outputs: Floats, first_chunk_tokens: float) -> Floats:
        asked.append(first_chunk_tokens)
        return steps_to(outputs, first_chunk_tokens)

    monkeypatch.setattr(reused, "steps_to", counting)
    rows = [
        structs.replace(row, route=f"{row.route}{copy}") for copy in range(3) for row in two_routes(noise=0.0)
    ]
    assert len(reuse_crossovers(rows, Reuse(share=0.5))) == 6 * 5 * 3
    assert len(asked) == 6 * 3
