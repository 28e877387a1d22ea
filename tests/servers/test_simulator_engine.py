"""Scheduling, caching and speculation of the engine core, on a clock that is only a number."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.servers.simulator.drafting import Rates
from bench.servers.simulator.engine import Engine
from bench.servers.simulator.profiles import Profile, Speculation
from bench.servers.simulator.sequence import Behaviour, Emission, Job, Sequence
from bench.servers.simulator.timing import Timing

# Round numbers: tokenising is free, a prompt token costs 10 ms, a decode step 1 s.
LAWS = Timing(tokenize_tok_s=1e18, start_s=0.0, token_s=0.01, token2_s=0.0, step_s=1.0)
PLAIN = Profile(
    name="plain",
    model="m",
    max_model_len=1000,
    max_num_seqs=2,
    max_num_batched_tokens=100,
    block_size=10,
    kv_capacity_tokens=2000,
    timing=LAWS,
)
DRAFTER = Speculation(
    method="mtp",
    num_speculative_tokens=2,
    drafter_limit=1000,
    acceptance=(Rates(context=0, per_position=(1.0, 1.0)),),
)
DRAFTING = msgspec.structs.replace(PLAIN, speculation=DRAFTER)


def ids(length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 8192, length).astype(np.uint32)


def put(
    engine: Engine, length: int, output: int, at_s: float = 0.0, *, seed: int = 0, salt: str = ""
) -> Sequence:
    job = Job(
        id=f"{length}-{seed}-{at_s}-{salt}",
        prompt=ids(length, seed),
        answer=np.arange(output, dtype=np.uint32),
        arrived_s=at_s,
        seed=seed,
        salt=salt,
    )
    return engine.submit(job)


def run(
    engine: Engine, length: int, output: int, at_s: float = 0.0, *, seed: int = 0, salt: str = ""
) -> Sequence:
    sequence = put(engine, length, output, at_s, seed=seed, salt=salt)
    engine.advance(1e9)
    return sequence


def times(emissions: list[Emission], job: str) -> list[float]:
    return [emission.at_s for emission in emissions if emission.job == job]


def test_the_first_token_ends_the_prefill_and_each_step_gives_one_more() -> None:
    engine = Engine(PLAIN)
    put(engine, 50, 3)
    emissions = engine.advance(100)
    assert [(e.at_s, e.start, e.count, e.first, e.finish) for e in emissions] == [
        (pytest.approx(0.5), 0, 1, True, None),
        (pytest.approx(1.5), 1, 1, False, None),
        (pytest.approx(2.5), 2, 1, False, "length"),
    ]


def test_nothing_is_told_before_its_time() -> None:
    engine = Engine(PLAIN)
    put(engine, 50, 3)
    assert engine.next_s() == pytest.approx(0.0)
    assert engine.advance(0.49) == []
    assert engine.next_s() == pytest.approx(0.5)
    assert len(engine.advance(0.51)) == 1


def test_a_late_look_changes_nothing() -> None:
    """Events carry the times of the laws, however seldom the caller looks."""
    fine, coarse = Engine(PLAIN), Engine(PLAIN)
    put(fine, 250, 20)
    put(coarse, 250, 20)
    often = [emission for tick in range(400) for emission in fine.advance(tick / 10)]
    assert often == coarse.advance(40.0)


def test_a_third_request_waits_for_a_place() -> None:
    engine = Engine(PLAIN)
    put(engine, 10, 3, seed=1)
    put(engine, 10, 5, seed=2)
    third = put(engine, 10, 2, seed=3)
    engine.advance(0.05)
    assert (len(engine.running), len(engine.waiting)) == (2, 1)
    engine.advance(1e9)
    # both prefill in 0.2 s; the first ends after two more steps of 1 s
    assert third.scheduled_s == pytest.approx(2.2)


def test_requests_are_served_in_the_order_of_arrival() -> None:
    engine = Engine(PLAIN)
    served = [put(engine, 50, 2, at_s=index / 100, seed=index) for index in range(6)]
    engine.advance(1e9)
    starts = [sequence.scheduled_s for sequence in served]
    assert starts == sorted(starts, key=lambda s: s or 0.0)


def test_a_long_prompt_prefills_in_chunks_beside_a_decoding_one() -> None:
    engine = Engine(PLAIN)
    short = put(engine, 50, 100, seed=1)
    long = put(engine, 500, 2, at_s=0.6, seed=2)
    engine.advance(1e9)
    # From 1.5 on (the step under way at 0.6 ends there) each step takes 1 s and a chunk of 99 tokens
    # (0.99 s): 5 full ones and the last 5 tokens.
    assert long.first_s == pytest.approx(1.5 + 5 * 1.99 + 1.05)
    assert short.emitted == 100


def test_two_prefills_share_the_tokens_of_a_step() -> None:
    engine = Engine(PLAIN)
    first, second = put(engine, 150, 1, seed=1), put(engine, 150, 1, seed=2)
    engine.advance(1e9)
    # 100 of the first; its last 50 and 50 of the second; the other 100: a second each
    assert (first.first_s, second.first_s) == (pytest.approx(2.0), pytest.approx(3.0))


def test_an_idle_engine_starts_a_request_when_it_was_ready_even_if_told_later() -> None:
    engine = Engine(PLAIN)
    engine.advance(5.0)
    assert run(engine, 50, 1, at_s=4.0).first_s == pytest.approx(4.5)


def test_a_replay_computes_what_the_cache_lacks() -> None:
    engine = Engine(PLAIN)
    run(engine, 105, 1)
    again = run(engine, 105, 1, at_s=100.0)
    assert again.cached == 100
    assert again.first_s == pytest.approx(100.05)


@pytest.mark.parametrize(
    ("length", "plain", "drafting"), [(100, 90, 80), (101, 100, 90), (19, 10, 0), (10, 0, 0)]
)
def test_the_last_token_is_never_cached_and_a_drafter_loses_a_block(
    length: int, plain: int, drafting: int
) -> None:
    for profile, cached in ((PLAIN, plain), (DRAFTING, drafting)):
        engine = Engine(profile)
        run(engine, length, 1)
        assert run(engine, length, 1, at_s=100.0).cached == cached


def test_an_answer_is_found_again_as_part_of_the_next_prompt() -> None:
    engine = Engine(PLAIN)
    first = run(engine, 45, 30)
    turn = np.concatenate([first.job.prompt, first.job.answer, ids(20, seed=9)])
    job = Job(id="turn", prompt=turn, answer=np.arange(1, dtype=np.uint32), arrived_s=500.0)
    second = engine.submit(job)
    engine.advance(1e9)
    assert second.cached == 70  # 45 + 29 computed tokens, in whole blocks


def test_the_cache_forgets_the_prompt_used_longest_ago() -> None:
    engine = Engine(msgspec.structs.replace(PLAIN, kv_capacity_tokens=1010))
    for index in range(3):
        run(engine, 405, 1, at_s=100.0 * index, seed=index)
    assert run(engine, 405, 1, at_s=900.0, seed=2).cached == 400
    # 101 blocks: the third prompt's 41 left room for 60 of the 80 kept; the oldest lost its last 20
    assert run(engine, 405, 1, at_s=1000.0, seed=0).cached == 200


def test_a_prompt_waits_until_the_cache_has_room() -> None:
    engine = Engine(msgspec.structs.replace(PLAIN, kv_capacity_tokens=1010))
    first = put(engine, 600, 3, seed=1)
    second = put(engine, 600, 3, seed=2)
    engine.advance(1e9)
    assert second.scheduled_s == first.ended_s


def test_a_full_cache_preempts_the_youngest_which_then_ends_with_every_token() -> None:
    engine = Engine(msgspec.structs.replace(PLAIN, kv_capacity_tokens=1010))
    old = put(engine, 480, 100, seed=1)
    young = put(engine, 480, 100, seed=2)
    emissions = engine.advance(1e9)
    assert (old.preemptions, young.preemptions) == (0, engine.stats.preemptions)
    assert young.preemptions >= 1
    for sequence in (old, young):
        mine = [e for e in emissions if e.job == sequence.job.id]
        assert sum(e.count for e in mine) == 100
        assert times(mine, sequence.job.id) == sorted(times(mine, sequence.job.id))
    assert engine.cache.used == 0


def test_a_preempted_sequence_goes_before_those_that_wait() -> None:
    engine = Engine(msgspec.structs.replace(PLAIN, kv_capacity_tokens=1010))
    old, young = put(engine, 480, 100, seed=1), put(engine, 480, 100, seed=2)
    small = put(engine, 20, 100, 1.0, seed=3)
    engine.advance(1e9)
    assert young.preemptions
    assert old.ended_s is not None and small.scheduled_s is not None
    assert small.scheduled_s >= old.ended_s, "it would fit, but is not first"


def test_usage_counts_what_requests_hold() -> None:
    engine = Engine(PLAIN)
    put(engine, 95, 5)
    engine.advance(1.0)
    assert engine.cache.usage == pytest.approx(10 / 200)
    engine.advance(1e9)
    assert engine.cache.usage == 0


def test_an_aborted_request_frees_its_place_and_is_not_counted() -> None:
    engine = Engine(PLAIN)
    gone = put(engine, 50, 1000, seed=1)
    engine.advance(3.0)
    engine.abort(gone.job.id, 3.0)
    assert engine.advance(1e9) == []
    assert (engine.cache.used, len(engine.running)) == (0, 0)
    assert not any(engine.stats.finished.values())
    assert gone.finish == "abort"


def test_a_drafting_step_gives_all_accepted_tokens_and_one_more() -> None:
    engine = Engine(DRAFTING)
    told = put(engine, 50, 10)
    counts = [emission.count for emission in engine.advance(1e9)]
    assert sum(counts) == 10
    assert counts[0] == 1
    assert all(1 <= count <= 3 for count in counts)
    assert len(counts) == 1 + told.drafts
    trimmed = 1 + told.drafts + told.accepted - 10
    assert told.draft_tokens == 2 * told.drafts
    assert 0 <= trimmed <= 2


def test_identities_of_the_counters_hold() -> None:
    engine = Engine(DRAFTING)
    for index in range(5):
        run(engine, 50 + index, 40 + index, at_s=1000.0 * index, seed=index)
    stats = engine.stats
    assert sum(stats.accepted_per_position) == stats.accepted_tokens
    assert stats.draft_tokens == 2 * stats.drafts
    assert stats.histograms["itl"].count == stats.drafts
    assert stats.finished["length"] == 5
    assert stats.histograms["prompt_tokens"].sum == sum(range(50, 55)) == stats.prompt_tokens


@pytest.mark.parametrize(("past", "drafts", "per_draft"), [("no-drafts", 0, 0), ("zero-accepted", 9, 2)])
def test_past_its_limit_the_drafter_stops_or_accepts_nothing(past: str, drafts: int, per_draft: int) -> None:
    engine = Engine(DRAFTING, behaviour=Behaviour(drafter_limit=40, past_limit=past))
    told = run(engine, 50, 10)
    assert (told.drafts, told.draft_tokens, told.accepted) == (drafts, drafts * per_draft, 0)
    assert told.over_limit_steps == 9


def test_a_request_may_cross_the_limit_while_decoding() -> None:
    engine = Engine(DRAFTING, behaviour=Behaviour(drafter_limit=60))
    told = run(engine, 50, 30)
    # 51, 54, 57 tokens + 2 fit in 60; from 60 on nothing is drafted
    assert (told.drafts, told.accepted, told.over_limit_steps) == (3, 6, 20)


@pytest.mark.parametrize(("limit", "drafts"), [(58, 2), (59, 3)])
def test_the_limit_counts_the_drafted_tokens_and_includes_its_last_place(limit: int, drafts: int) -> None:
    # The third step starts at 57 tokens and drafts 2.
    assert run(Engine(DRAFTING, behaviour=Behaviour(drafter_limit=limit)), 50, 30).drafts == drafts


def test_the_longest_sequence_decides_for_the_whole_batch() -> None:
    engine = Engine(DRAFTING, behaviour=Behaviour(drafter_limit=100, past_limit="zero-accepted"))
    short = put(engine, 30, 20, seed=1)
    put(engine, 200, 200, seed=2)
    engine.advance(1e9)
    assert short.accepted == 0
    assert run(engine, 31, 20, at_s=5000.0, seed=3).accepted > 0


def test_warnings_come_once_or_with_every_step() -> None:
    for every, expected in ((False, 1), (True, 9)):
        engine = Engine(DRAFTING, behaviour=Behaviour(drafter_limit=40, warns_every_step=every))
        run(engine, 50, 10)
        assert len(engine.warnings) == expected
        assert "effective_drafter_max_model_len=40" in engine.warnings[0][1]


def test_speculation_that_is_off_leaves_its_counters_at_zero() -> None:
    engine = Engine(DRAFTING, behaviour=Behaviour(never_drafts=True))
    assert run(engine, 50, 10).drafts == engine.stats.draft_tokens == 0


def test_an_ignored_salt_lets_a_cold_prompt_hit() -> None:
    for ignored, cached in ((False, 0), (True, 100)):
        engine = Engine(PLAIN, behaviour=Behaviour(salt_ignored=ignored))
        run(engine, 105, 1, salt="a")
        assert run(engine, 105, 1, at_s=100.0, salt="b").cached == cached


def test_an_evicting_cache_misses_every_replay() -> None:
    engine = Engine(PLAIN, behaviour=Behaviour(evicts=True))
    run(engine, 105, 1)
    assert run(engine, 105, 1, at_s=100.0).cached == 0


def test_a_first_replay_can_miss_where_the_second_hits() -> None:
    engine = Engine(PLAIN, behaviour=Behaviour(first_replay_misses=True))
    assert [run(engine, 105, 1, at_s=100.0 * index).cached for index in range(3)] == [0, 0, 100]


def test_larger_real_blocks_reuse_less() -> None:
    engine = Engine(PLAIN, behaviour=Behaviour(block_extra=22))
    run(engine, 105, 1)
    assert run(engine, 105, 1, at_s=100.0).cached == 96


requests = st.lists(
    st.tuples(st.integers(1, 400), st.integers(1, 60), st.floats(0, 50), st.integers(0, 3)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=40, deadline=None)
@given(requests, st.integers(1, 4))
def test_any_load_is_served_whole_in_order_and_the_same_way_twice(
    load: list[tuple[int, int, float, int]], seats: int
) -> None:
    profile = msgspec.structs.replace(DRAFTING, max_num_seqs=seats, kv_capacity_tokens=1100)

    def serve() -> tuple[list[Emission], list[Sequence], Engine]:
        engine = Engine(profile)
        sequences = []
        for index, (length, output, at_s, seed) in enumerate(sorted(load, key=lambda r: r[2])):
            job = Job(
                id=str(index),
                prompt=ids(length, seed),
                answer=np.arange(output, dtype=np.uint32),
                arrived_s=at_s,
                seed=seed,
            )
            sequences.append(engine.submit(job))
        return engine.advance(1e9), sequences, engine

    emissions, sequences, engine = serve()
    assert serve()[0] == emissions
    assert [e.at_s for e in emissions] == sorted(e.at_s for e in emissions)
    for sequence in sequences:
        mine = [e for e in emissions if e.job == sequence.job.id]
        assert [e.start for e in mine] == [sum(e.count for e in mine[:i]) for i in range(len(mine))]
        assert sum(e.count for e in mine) == len(sequence.job.answer)
        assert mine[-1].finish == "length"
    assert engine.cache.used == 0
    assert engine.next_s() is None
