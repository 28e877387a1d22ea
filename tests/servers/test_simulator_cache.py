"""Blocks: found by content and everything before it, evicted least recently used first."""

from __future__ import annotations

import numpy as np

from bench.servers.simulator.cache import BlockCache, chain

TOKENS = np.arange(100, dtype=np.uint32)


def test_a_chain_has_one_hash_per_full_block() -> None:
    assert len(chain(TOKENS, 16)) == 6


def test_a_hash_covers_everything_before_it() -> None:
    changed = TOKENS.copy()
    changed[0] = 99
    assert not set(chain(TOKENS, 16)) & set(chain(changed, 16))
    changed = TOKENS.copy()
    changed[50] = 0  # in block 3
    assert [a == b for a, b in zip(chain(TOKENS, 16), chain(changed, 16), strict=True)] == [True] * 3 + [
        False
    ] * 3


def test_another_salt_is_another_chain() -> None:
    assert not set(chain(TOKENS, 16, "a")) & set(chain(TOKENS, 16, "b"))


def test_a_chain_can_be_continued() -> None:
    whole = chain(TOKENS, 10)
    assert chain(TOKENS[30:], 10, after=whole[2]) == whole[3:]


def test_the_broken_cache_finds_a_body_behind_another_salt() -> None:
    salted = TOKENS.copy()
    salted[:8] = 7
    assert chain(TOKENS, 16, "a", linked=False) == chain(salted, 16, "b", linked=False)


def held(cache: BlockCache, names: list[bytes]) -> None:
    assert cache.take([], len(names))
    for name in names:
        assert cache.name(name)


def test_released_blocks_are_free_and_still_found() -> None:
    cache = BlockCache(10)
    held(cache, [b"a", b"b"])
    assert cache.usage == 0.2
    cache.release([b"a", b"b"], 0)
    assert cache.usage == 0
    assert cache.matched([b"a", b"b", b"c"]) == 2


def test_a_gap_ends_the_match() -> None:
    cache = BlockCache(10)
    held(cache, [b"a", b"c"])
    assert cache.matched([b"a", b"b", b"c"]) == 1


def test_the_tail_of_the_least_recently_used_chain_goes_first() -> None:
    cache = BlockCache(4)
    held(cache, [b"a", b"b"])
    cache.release([b"a", b"b"], 0)
    held(cache, [b"x"])
    cache.release([b"x"], 0)
    assert cache.take([], 2)  # four blocks: two new, two of the three kept
    assert (cache.matched([b"a"]), cache.matched([b"b"]), cache.matched([b"x"])) == (1, 0, 1)


def test_a_hit_makes_a_chain_recent() -> None:
    cache = BlockCache(3)
    for name in (b"a", b"b"):
        held(cache, [name])
        cache.release([name], 0)
    assert cache.take([b"a"], 0)
    cache.release([b"a"], 0)
    assert cache.take([], 2)
    assert (cache.matched([b"a"]), cache.matched([b"b"])) == (1, 0)


def test_what_does_not_fit_changes_nothing() -> None:
    cache = BlockCache(3)
    held(cache, [b"a", b"b"])
    cache.release([b"a"], 0)
    assert not cache.take([b"a"], 2)
    assert cache.used == 1
    assert cache.matched([b"a"]) == 1


def test_forgetting_waits_for_the_last_holder() -> None:
    cache = BlockCache(3)
    held(cache, [b"a"])
    assert not cache.forget()
    cache.release([b"a"], 0)
    assert cache.forget()
    assert cache.matched([b"a"]) == 0
