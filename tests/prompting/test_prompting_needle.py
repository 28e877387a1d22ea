from __future__ import annotations

import pytest

from bench.errors import SuiteError
from bench.prompting.needle import needles, piece_of, trial_needles
from bench.records import Trial


def test_needles_are_seeded_and_all_different() -> None:
    depths = [n / 50 for n in range(51)]
    one = needles("s", depths)
    assert one == needles("s", depths) != needles("t", depths)
    assert len({n.vault for n in one}) == len({n.code for n in one}) == 51
    assert all(len(n.code) == 6 for n in one)
    assert [n.depth for n in one] == depths


@pytest.mark.parametrize("depths", [[], [1.5], [-0.1], [0.5] * 101])
def test_depths_outside_the_text_are_refused(depths: list[float]) -> None:
    with pytest.raises(SuiteError, match="depths must be"):
        needles(1, depths)


def test_a_needle_is_one_line_with_its_vault_and_its_code() -> None:
    needle = needles(1, [0.25])[0]
    piece = piece_of(needle)
    assert needle.vault in piece.text and f" {needle.code}." in piece.text and "\n" not in piece.text
    assert piece.depth == 0.25


def test_repeats_and_tiers_hide_other_needles_and_replays_the_same() -> None:
    def of(tier: int, repeat: int, condition: str = "cold") -> tuple[object, ...]:
        trial = Trial(id="x", route="r", tier=tier, condition=condition, repeat=repeat, task="needle")
        return trial_needles(trial, 7)

    assert of(500, 1) == of(500, 1, "replay") == of(500, 1, "salted")
    assert len({of(500, 1), of(500, 2), of(600, 1)}) == 3
