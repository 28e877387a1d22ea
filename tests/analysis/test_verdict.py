"""Each reason of the table, brought about once, and what must not bring it about."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from analysis_cases import MS, exchange, ids, measure, page, run, stream

from bench.analysis.verdicts.measure import Measurer, measure_all
from bench.analysis.verdicts.reasons import REASONS
from bench.records import (
    Chunks,
    ClientHealth,
    Exchange,
    Failure,
    Measurement,
    Samples,
    Scrape,
    ServerFacts,
    Speculation,
    Usage,
)

MTP2 = Speculation(method="mtp", num_speculative_tokens=2)
MTP4 = Speculation(method="mtp", num_speculative_tokens=4)
NGRAM4 = Speculation(method="ngram", num_speculative_tokens=4)
B16 = ServerFacts(engine="vllm", version="0.32.0", block_size=16)

START = {
    "requests_finished": 10.0,
    "generation_tokens": 1000.0,
    "prompt_tokens": 50_000.0,
    "cached_tokens": 0.0,
    "external_cached_tokens": 0.0,
    "running": 0.0,
    "waiting": 0.0,
    "preemptions": 0.0,
    "process_start": 111.0,
}


def pages(prompt: int = 1000, output: int = 64, cached: int = 0, **changes: float) -> dict[str, Any]:
    """Two pages between which exactly one request of ours was served; `changes` are added to the second."""
    ours = {
        "requests_finished": 1,
        "generation_tokens": output,
        "prompt_tokens": prompt,
        "cached_tokens": cached,
    }
    after = {name: value + ours.get(name, 0) + changes.get(name, 0) for name, value in START.items()}
    after |= {name: value for name, value in changes.items() if name not in START}
    before = dict(START) | {name: 0.0 for name in changes if name not in START}
    return {"before": page(**before), "after": page(**after)}


def drafting(drafts: int, drafted: int, accepted: int, **more: Any) -> dict[str, Any]:
    return pages(drafts=drafts, draft_tokens=drafted, accepted_tokens=accepted, **more)


def good(condition: str = "cold", cached: int = 0, **more: Any) -> Exchange:
    return exchange(condition, cached=cached, **(pages(cached=cached) | more))


def unseen(**more: Any) -> Exchange:
    """A cold prompt without pages: nothing for a later page to be compared with."""
    return exchange(cached=0, **more)


def of(one: Exchange, **info: Any) -> Measurement:
    return measure(one, info=run(**({"facts": B16} | info)))


def test_a_clean_exchange_is_valid_without_a_word() -> None:
    m = of(good())
    assert ids(m) == ([], [])
    assert (m.verdict.reuse, m.verdict.speculation) == ("held", "none")


# --- The answer ---------------------------------------------------------------------------------------


def test_a_failed_request_is_invalid_with_its_failure_and_nothing_else() -> None:
    failure = Failure(kind="idle_timeout", message="nothing for 120 s")
    m = of(good(failure=failure, chunks=Chunks(), usage=None, finish_reason=None))
    assert ids(m) == (["failed"], [])
    assert m.verdict.reasons[0].detail == "idle_timeout: nothing for 120 s"
    assert m.failure == failure
    assert m.ttft_s is None and m.absent["ttft_s"] == "nothing for 120 s"


def test_a_stream_without_text_cannot_be_timed() -> None:
    m = of(good(chunks=Chunks(at_ns=(MS, 2 * MS), chars=(0, 0), kinds="ee"), text=""))
    assert ids(m)[0] == ["no_text"]
    assert m.first_response_s == 0.001


@pytest.mark.parametrize(
    ("finish", "ignore_eos", "reason", "invalid"),
    [
        ("stop", True, "early_stop", True),
        ("stop", False, "short_answer", False),
        ("length", True, "clamped_output", True),
        ("length", False, "clamped_output", True),
    ],
)
def test_an_answer_shorter_than_asked_for(finish: str, ignore_eos: bool, reason: str, invalid: bool) -> None:
    one = exchange(output=64, cached=0, **pages(output=8))
    short = msgspec.structs.replace(
        one,
        chunks=stream(8),
        usage=Usage(prompt_tokens=1000, completion_tokens=8, cached_tokens=0),
        finish_reason=finish,
        request={"temperature": 0.0, "ignore_eos": ignore_eos},
    )
    against, warnings = ids(of(short))
    assert (against if invalid else warnings) == [reason]


def test_one_piece_for_ever_is_no_good_answer() -> None:
    assert ids(of(good(text="Well then. " + "ha " * 300)))[1] == ["repeating_answer"]
    assert ids(of(good(text="= " * 20)))[1] == []  # too short to say so


def test_a_replay_with_another_text_is_information_only() -> None:
    cold = unseen()
    replay = good("replay", cached=992, ttft_ms=50, text=cold.text[:100] + "X" + cold.text[101:])
    m = measure(cold, replay, info=run(facts=ServerFacts(engine="vllm", version="0.32.0", block_size=16)))
    assert m.verdict.valid and ids(m)[1] == ["text_differs"]
    assert "character 100" in m.verdict.warnings[0].detail
    assert REASONS["text_differs"].effect == "informs"
    warm = msgspec.structs.replace(replay, request={"temperature": 0.7, "ignore_eos": True})
    assert ids(measure(cold, warm, info=run(facts=B16)))[1] == []


# --- Counts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counted", "against", "warnings"),
    [
        (10_000, [], []),
        (10_010, [], ["prompt_count_off"]),
        (9_990, [], ["prompt_count_off"]),
        (9_989, ["truncated_prompt"], []),
        (10_011, ["prompt_too_long"], []),
        (4_096, ["truncated_prompt"], []),
    ],
)
def test_the_servers_prompt_count_may_differ_by_a_thousandth(
    counted: int, against: list[str], warnings: list[str]
) -> None:
    usage = Usage(prompt_tokens=counted, completion_tokens=64, cached_tokens=0)
    one = exchange(prompt=10_000, **pages(prompt=counted))
    assert ids(of(msgspec.structs.replace(one, usage=usage))) == (against, warnings)


def test_without_usage_the_counters_count() -> None:
    m = of(good(usage=None))
    assert (m.prompt_tokens, m.output_tokens) == (1000, 64)
    assert m.sources["output_tokens"] == "counter generation_tokens"
    assert ids(m) == ([], ["no_usage"])


# --- Exclusive ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"requests_finished": 1.0},
        {"generation_tokens": 1.0},
        {"prompt_tokens": 7.0},
        {"requests_aborted": 1.0},
    ],
)
def test_anything_that_is_not_ours_is_foreign_traffic(changes: dict[str, float]) -> None:
    assert ids(of(exchange(cached=0, **pages(**changes))))[0] == ["foreign_traffic"]


def test_two_requests_at_once_are_foreign_traffic() -> None:
    busy = Samples(at_ns=(0, 1), took_ns=(1, 1), running=(1.0, 2.0), waiting=(0.0, None))
    m = of(good(samples=busy))
    assert ids(m)[0] == ["foreign_traffic"] and m.running_peak == 2 and m.waiting_peak == 0


def test_foreign_cache_hits_do_not_make_the_witnesses_disagree() -> None:
    one = exchange(cached=0, **pages(requests_finished=1, prompt_tokens=900, cached_tokens=896))
    assert ids(of(one))[0] == ["foreign_traffic"]


def test_a_server_that_was_still_working_is_busy() -> None:
    one = exchange(cached=0, **pages())
    before = msgspec.structs.replace(one.before, values={**one.before.values, "running": 1.0})  # type: ignore[union-attr]
    assert ids(of(msgspec.structs.replace(one, before=before)))[0] == ["busy_before"]


def test_gauges_that_go_stale_do_not_make_a_server_busy() -> None:
    stale = page(running=1.0, waiting=0.0)
    m = measure(exchange(engine="sglang", cached=0, before=stale, after=stale), info=run(facts=B16))
    assert "busy_before" not in ids(m)[0]


def test_counters_that_lag_behind_are_a_warning() -> None:
    one = exchange(cached=0, **pages(generation_tokens=-10, requests_finished=-1))
    m = of(one)
    assert ids(m) == ([], ["not_settled"])
    assert "0 requests finished of 1" in m.verdict.warnings[0].detail


def test_no_metrics_is_said_once() -> None:
    m = of(exchange(cached=0))
    assert ids(m) == ([], ["no_metrics"])
    refused = Scrape(at_ns=0, took_ns=0, status=401, problem="401 Unauthorized")
    m = of(exchange(cached=0, before=refused, after=refused))
    assert "401 Unauthorized" in m.verdict.warnings[0].detail


def test_a_preempted_request_is_invalid() -> None:
    assert ids(of(exchange(cached=0, **pages(preemptions=1))))[0] == ["preempted"]


def test_waiting_in_the_queue_is_shown() -> None:
    m = of(exchange(cached=0, **pages(queue_sum=0.2, queue_count=1)))
    assert m.queue_s == 0.2 and ids(m) == ([], ["queued"])
    assert ids(of(exchange(cached=0, **pages(queue_sum=0.04, queue_count=1)))) == ([], [])


# --- Impossible usage ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "detail"),
    [
        (Usage(prompt_tokens=1000, completion_tokens=65, cached_tokens=0), "65 tokens out, 64 asked for"),
        (
            Usage(prompt_tokens=1000, completion_tokens=64, cached_tokens=1001),
            "1,001 of 1,000 prompt tokens cached",
        ),
    ],
)
def test_usage_that_cannot_be_true_invalidates(usage: Usage, detail: str) -> None:
    m = of(exchange(usage=usage))
    assert "impossible_usage" in ids(m)[0]
    assert detail in [reason.detail for reason in m.verdict.reasons]


# --- Restart ------------------------------------------------------------------------------------------


def test_another_process_start_is_a_restart() -> None:
    one = exchange(cached=0, **pages())
    after = page(**{**one.after.values, "process_start": 222.0})  # type: ignore[union-attr]
    m = of(msgspec.structs.replace(one, after=after))
    assert ids(m)[0] == ["restart"] and m.verdict.reasons[0].detail == "process start 111.00 became 222.00"


def test_process_starts_in_unix_seconds_are_told_as_times() -> None:
    one = exchange(cached=0, **pages())
    before = page(**{**one.before.values, "process_start": 1_795_985_024.41})  # type: ignore[union-attr]
    after = page(**{**one.after.values, "process_start": 1_795_985_035.0})  # type: ignore[union-attr]
    m = of(msgspec.structs.replace(one, before=before, after=after))
    said = "process start 2026-11-29 20:43:44.41 UTC became 2026-11-29 20:43:55.00 UTC"
    assert [reason.detail for reason in m.verdict.reasons if reason.id == "restart"] == [said]


def test_counters_of_a_server_that_restarted_are_no_witness_of_speculation() -> None:
    before = page(generation_tokens=5000.0, drafts=900.0, accepted_tokens=1500.0, pos__0=900.0, pos__1=1.0)
    fresh = page(generation_tokens=40.0, drafts=0.0, accepted_tokens=0.0, pos__0=0.0, pos__1=2.0)
    m = of(exchange(cached=0, before=before, after=fresh), speculation=MTP2)
    assert ids(m) == (["restart"], []) and m.verdict.speculation == "unknown"


def test_counters_that_start_again_are_a_restart_without_any_process_start() -> None:
    before = page(generation_tokens=5000.0, prompt_tokens=9000.0)
    fresh = page(generation_tokens=64.0, prompt_tokens=1000.0)
    m = of(exchange(cached=0, before=before, after=fresh))
    assert ids(m)[0] == ["restart"] and "fell from 5000 to 64" in m.verdict.reasons[0].detail


def test_counters_that_fall_to_another_height_are_several_replicas() -> None:
    one = exchange(
        cached=0,
        before=page(generation_tokens=5000.0, prompt_tokens=9000.0),
        after=page(generation_tokens=3000.0, prompt_tokens=7000.0),
    )
    assert ids(of(one))[0] == ["replicas"]


def torn(whole: Scrape | None) -> Scrape:
    """The page with a line of prompt tokens that cannot be read."""
    assert whole is not None
    left = {name: value for name, value in whole.values.items() if name != "prompt_tokens"}
    return msgspec.structs.replace(whole, values=left, unknown=("prompt_tokens",), problem="1 line(s)")


def test_a_line_that_cannot_be_read_is_no_restart_and_no_foreign_traffic() -> None:
    one = good()
    assert ids(of(msgspec.structs.replace(one, before=torn(one.before)))) == ([], [])
    assert ids(of(msgspec.structs.replace(one, after=torn(one.after)))) == ([], [])


def test_a_page_with_such_a_line_between_two_exchanges_is_no_restart_either() -> None:
    cold = good()
    assert cold.after is not None
    ours = {"requests_finished": 1, "generation_tokens": 64, "prompt_tokens": 1000, "cached_tokens": 992}
    after = {name: value + ours.get(name, 0) for name, value in cold.after.values.items()}
    replay = exchange("replay", cached=992, ttft_ms=100, before=torn(cold.after), after=page(**after))
    assert ids(measure(cold, replay, info=run(facts=B16))) == ([], [])


def test_a_process_start_that_comes_back_is_several_replicas() -> None:
    def at(start: float, tokens: float) -> Scrape:
        return page(process_start=start, generation_tokens=tokens, prompt_tokens=tokens)

    first = exchange(cached=0, sha="a", output=1, prompt=1, before=at(1, 10), after=at(1, 11))
    second = exchange(cached=0, sha="b", before=at(2, 50), after=at(1, 12))
    assert ids(measure(first, second, info=run(facts=B16)))[0] == ["replicas"]


def test_a_changed_configuration_is_a_restart() -> None:
    one = exchange(cached=0, **pages())
    before, after = (
        msgspec.structs.replace(side, info={"num_gpu_blocks": blocks})  # type: ignore[type-var]
        for side, blocks in ((one.before, "100"), (one.after, "90"))
    )
    assert ids(of(msgspec.structs.replace(one, before=before, after=after)))[0] == ["restart"]


def test_a_replay_after_a_restart_has_lost_its_cold() -> None:
    cold = good()
    later = {name: 0.0 for name in START} | {"process_start": 222.0}
    replay = exchange(
        "replay",
        cached=0,
        before=page(**later),
        after=page(**later | {"requests_finished": 1.0, "generation_tokens": 64.0, "prompt_tokens": 1000.0}),
    )
    assert ids(measure(cold, replay, info=run(facts=B16)))[0] == ["cold_before_restart"]


def test_a_restart_before_a_cold_is_no_fault_of_the_cold() -> None:
    first = good(sha="a")
    fresh = {name: 0.0 for name in START} | {"process_start": 222.0}
    cold = exchange(
        cached=0,
        sha="b",
        before=page(**fresh),
        after=page(**fresh | {"requests_finished": 1.0, "generation_tokens": 64.0, "prompt_tokens": 1000.0}),
    )
    assert ids(measure(first, cold, info=run(facts=B16))) == ([], [])
    after = cold.after.values  # type: ignore[union-attr]
    more = {"requests_finished": 1, "generation_tokens": 64, "prompt_tokens": 1000, "cached_tokens": 992}
    replay = exchange(
        "replay",
        cached=992,
        sha="b",
        ttft_ms=50,
        before=page(**after),
        after=page(**{name: value + more.get(name, 0) for name, value in after.items()}),
    )
    assert ids(measure(first, cold, replay, info=run(facts=B16))) == ([], [])


def test_a_cold_that_hit_is_no_yardstick_for_others() -> None:
    warm = unseen(ttft_ms=60)
    warm = msgspec.structs.replace(
        warm, usage=Usage(prompt_tokens=1000, completion_tokens=64, cached_tokens=900)
    )
    replay = exchange("replay", cached=992, ttft_ms=58)  # as fast as its "cold": no contradiction
    m = measure(warm, replay, info=run(facts=B16))
    assert m.verdict.reuse == "held"


def test_a_replay_of_a_failed_cold_is_invalid_and_one_of_a_primed_prompt_is_not() -> None:
    broken = unseen(failure=Failure(kind="truncated", message="cut off"))
    replay = good("replay", cached=992)
    assert ids(measure(broken, replay, info=run(facts=B16)))[0] == ["no_cold"]
    prime = unseen(purpose="prime")
    *_, last = measure_all(run(facts=B16), [broken, prime, replay])
    assert ids(last)[0] == []


# --- Condition ----------------------------------------------------------------------------------------


def reused(condition: str, usage: int | None, counter: int | None, **more: Any) -> Measurement:
    both = pages(cached=counter or 0)
    if counter is None:
        for side, scrape in both.items():
            kept = {n: v for n, v in scrape.values.items() if "cached" not in n}
            both[side] = page(**kept)
    facts = more.pop("facts", B16)
    cold = unseen(ttft_ms=more.pop("cold_ms", 1000))
    return measure(cold, exchange(condition, cached=usage, **(both | more)), info=run(facts=facts))


@pytest.mark.parametrize(
    ("cached", "fixed_prefix", "state"),
    [
        (0, 0, "held"),
        (8, 0, "held"),  # part of the salt, under one block
        (9, 0, "missed"),
        (16, 20, "held"),  # the template's own block
        (32, 20, "missed"),
        (992, 20, "missed"),
    ],
)
def test_a_cold_prompt_may_share_template_and_salt_and_nothing_else(
    cached: int, fixed_prefix: int, state: str
) -> None:
    m = reused("salted", cached, cached, fixed_prefix=fixed_prefix, sha="p2")
    assert m.verdict.reuse == state
    assert ids(m)[0] == ([] if state == "held" else ["cold_hit"])


def test_a_whole_block_behind_the_template_is_a_hit_even_if_the_salt_could_reach_it() -> None:
    assert reused("salted", 16, 16, fixed_prefix=10, sha="p2").verdict.reuse == "missed"


def test_external_hits_make_a_cold_warm() -> None:
    m = reused("salted", None, 0, sha="p2", **pages(cached=0, external_cached_tokens=512))
    assert m.cached_counter == 512 and ids(m)[0] == ["cold_hit"]
    assert "512 of them external" in m.verdict.reasons[0].detail


@pytest.mark.parametrize(
    ("cached", "state", "against"),
    [(992, "held", []), (976, "missed", ["replay_missed"]), (0, "missed", ["replay_missed"])],
)
def test_a_replay_must_reuse_what_the_rule_says(cached: int, state: str, against: list[str]) -> None:
    # floor(999 / 16) * 16 = 992
    ttft = 50 if state == "held" else 1000
    m = reused("replay", cached, cached, ttft_ms=ttft)
    assert m.expected_cached == 992
    assert m.verdict.reuse == state and ids(m)[0] == against


def test_usage_against_counter_is_a_disagreement() -> None:
    m = reused("replay", 992, 0, ttft_ms=50)
    assert m.verdict.reuse == "disagree" and ids(m)[0] == ["witnesses_disagree"]
    assert "usage says 992 cached tokens, counter cached_tokens says 0" in m.verdict.reasons[0].detail


@pytest.mark.parametrize(
    ("usage", "counter", "ttft_ms", "state"),
    [
        (992, 992, 950, "disagree"),
        (0, None, 60, "disagree"),
        (None, 0, 60, "disagree"),
        (0, 0, 60, "missed"),  # a miss that is counted twice
    ],
)
def test_time_against_counts_is_a_disagreement(
    usage: int | None, counter: int | None, ttft_ms: float, state: str
) -> None:
    assert reused("replay", usage, counter, ttft_ms=ttft_ms).verdict.reuse == state


def test_a_salted_prompt_as_fast_as_a_replay_was_not_computed_whatever_the_counters_say() -> None:
    m = reused("salted", 0, 0, ttft_ms=60, sha="p2")
    assert m.verdict.reuse == "disagree"


@pytest.mark.parametrize(
    ("usage", "ttft_ms", "state"),
    [
        (0, 240, "held"),
        (0, 100, "held"),
        (0, 99, "disagree"),  # a tenth of a first prompt that was slow is no time to compute it in
        (None, 240, "disagree"),  # one count alone
    ],
)
def test_a_tiers_first_cold_prompt_may_be_slow_where_two_counts_say_that_the_next_was_computed(
    usage: int | None, ttft_ms: float, state: str
) -> None:
    m = reused("salted", usage, 0, ttft_ms=ttft_ms, sha="p2")
    assert m.verdict.reuse == state
    assert ids(m) == ((["witnesses_disagree"], []) if state == "disagree" else ([], ["cold_faster"]))


def test_two_slow_cold_prompts_are_no_accident() -> None:
    cold = [unseen(), unseen(sha="p3")]
    m = measure(
        *cold, exchange("salted", cached=0, sha="p2", ttft_ms=240, **pages(cached=0)), info=run(facts=B16)
    )
    assert m.verdict.reuse == "disagree"


@pytest.mark.parametrize(
    ("condition", "ttft_ms", "state", "reason"),
    [
        ("replay", 60, "held", "reuse_by_time_only"),
        ("replay", 950, "missed", "replay_missed"),
        ("replay", 650, "unknown", "reuse_unknown"),
        ("salted", 60, "missed", "cold_hit"),
        ("salted", 950, "held", "reuse_by_time_only"),
    ],
)
def test_time_alone_decides_where_nobody_counts(
    condition: str, ttft_ms: float, state: str, reason: str
) -> None:
    sha = "p1" if condition == "replay" else "p2"
    m = reused(condition, None, None, ttft_ms=ttft_ms, sha=sha)
    assert m.cached_tokens is None and m.prefix_reuse is None
    assert m.verdict.reuse == state
    assert reason in ids(m)[0] + ids(m)[1]


def test_a_replay_whose_cold_was_never_seen_is_timed_against_the_tier() -> None:
    other = unseen(sha="other")
    replay = exchange("replay", cached=None, sha="p9", ttft_ms=60)
    m = measure(other, replay, info=run(facts=B16))
    assert m.verdict.reuse == "held" and "reuse_by_time_only" in ids(m)[1]


def test_times_too_short_or_shares_too_small_prove_nothing() -> None:
    m = reused("replay", None, None, ttft_ms=60, cold_ms=240)
    assert m.verdict.reuse == "unknown"
    large = ServerFacts(engine="vllm", version="0.32.0", block_size=512)  # 512 of 1,000 expected
    m = reused("replay", 512, 512, ttft_ms=900, facts=large)
    assert m.verdict.reuse == "held"


def test_a_prompt_shorter_than_a_block_proves_nothing() -> None:
    large = ServerFacts(engine="vllm", version="0.32.0", block_size=1616)
    m = reused("replay", 0, 0, facts=large)
    assert m.verdict.reuse == "unprovable" and ids(m) == ([], ["reuse_unprovable"])
    assert m.expected_cached == 0


def test_an_unknown_block_is_judged_by_half_the_prompt() -> None:
    unknown = ServerFacts(engine="vllm", version="0.32.0")
    assert reused("replay", 600, 600, ttft_ms=50, facts=unknown).verdict.reuse == "held"
    assert reused("replay", 0, 0, facts=unknown).verdict.reuse == "unprovable"  # may be under one block
    one = exchange("replay", prompt=20_000, cached=0, **pages(prompt=20_000))
    assert of(one, facts=unknown).verdict.reuse == "missed"


def test_more_than_the_rule_allows_is_shown() -> None:
    m = reused("replay", 999, 999, ttft_ms=50)
    assert m.verdict.valid and ids(m)[1] == ["reuse_above_rule"]


@pytest.mark.parametrize(
    ("ttft_ms", "warnings"), [(499, []), (502, ["reuse_not_faster"]), (799, ["reuse_not_faster"])]
)
def test_a_replay_that_was_reused_but_hardly_faster_is_flagged(ttft_ms: float, warnings: list[str]) -> None:
    m = reused("replay", 992, 992, ttft_ms=ttft_ms)  # cold: 1 s
    assert m.verdict.reuse == "held" and ids(m) == ([], warnings)
    if ttft_ms == 502:
        said = "992 of 1,000 tokens cached by count, but TTFT is 0.502 s against 1.000 s cold"
        assert m.verdict.warnings[0].detail == said


def test_a_reuse_that_should_not_save_much_is_not_asked_to_be_faster() -> None:
    large = ServerFacts(engine="vllm", version="0.32.0", block_size=512)  # 512 of 1,000 expected
    assert ids(reused("replay", 512, 512, ttft_ms=700, facts=large)) == ([], [])


def test_llamacpp_counters_above_a_million_do_not_disagree_within_their_digits() -> None:
    before = page(prompt_tokens=1.00002e6, cached_tokens=2.09715e6, generation_tokens=100.0)
    after = page(prompt_tokens=1.00002e6, cached_tokens=2.09815e6, generation_tokens=164.0)
    m = measure(exchange("replay", engine="llamacpp", cached=999, before=before, after=after))
    assert m.cached_counter == 1000 and m.verdict.reuse == "held" and m.verdict.valid


# --- Speculation --------------------------------------------------------------------------------------


def limited(limit: int | None) -> ServerFacts:
    return ServerFacts(engine="vllm", version="0.32.0", block_size=16, drafter_limit=limit)


def speculating(
    drafts: int,
    drafted: int,
    accepted: int,
    speculation: Speculation = MTP2,
    limit: int | None = None,
    **more: Any,
) -> Measurement:
    pages_ = drafting(drafts, drafted, accepted, **more.pop("counters", {}))
    one = exchange(cached=0, **(pages_ | more))
    return measure(one, info=run(speculation, limited(limit)))


def test_a_route_that_drafts_and_accepts_is_as_declared() -> None:
    m = speculating(30, 60, 33)
    assert m.verdict.speculation == "as declared" and ids(m) == ([], [])
    assert m.acceptance == 33 / 60 and m.acceptance_length == 1 + 33 / 30


def test_speculation_that_is_off_is_invalid() -> None:
    m = speculating(0, 0, 0)
    assert m.verdict.speculation == "off" and ids(m)[0] == ["speculation_off"]
    assert m.acceptance is None and m.absent["acceptance"] == "nothing was drafted"


def test_a_look_up_drafter_may_find_nothing() -> None:
    m = speculating(0, 0, 0, NGRAM4)
    assert m.verdict.valid and ids(m)[1] == ["nothing_drafted"]
    m = speculating(9, 36, 0, NGRAM4)
    assert m.verdict.valid and ids(m)[1] == ["nothing_accepted"]


def test_a_target_only_route_that_drafts_is_invalid() -> None:
    one = exchange(cached=0, **drafting(30, 60, 33))
    assert ids(of(one))[0] == ["speculation_undeclared"]


def test_counters_that_stay_at_zero_are_no_speculation() -> None:
    assert of(exchange(cached=0, **drafting(0, 0, 0))).verdict.speculation == "none"


def test_speculation_without_a_witness_is_unknown() -> None:
    m = measure(good(), info=run(MTP2, B16))
    assert m.verdict.speculation == "unknown" and ids(m) == ([], ["speculation_unseen"])


@pytest.mark.parametrize(
    ("drafts", "drafted", "accepted", "limit", "state", "reason"),
    [
        (63, 126, 0, 1000, "fallback", "speculation_fallback"),  # known to be over
        (0, 0, 0, 1000, "fallback", "speculation_fallback"),  # versions that stop drafting
        (63, 126, 0, None, "off", "speculation_off"),  # 1,064 tokens are under any limit
        (62, 124, 1, None, "as declared", "drafts_rejected"),
        (62, 124, 1, 4096, "as declared", "drafts_rejected"),
        (40, 80, 20, 1034, "crosses", "speculation_crosses"),  # room for 32 of 64 tokens
        (63, 126, 0, 4096, "off", "speculation_off"),  # under the limit: out of order
    ],
)
def test_the_drafter_limit_and_its_signatures(
    drafts: int, drafted: int, accepted: int, limit: int | None, state: str, reason: str
) -> None:
    m = speculating(drafts, drafted, accepted, limit=limit)
    assert m.verdict.speculation == state
    assert reason in ids(m)[0] + ids(m)[1]
    assert m.verdict.valid == (state != "off")


@pytest.mark.parametrize(("drafts", "accepted"), [(63, 0), (62, 1)])
@pytest.mark.parametrize("prompt", [1983, 4000])
def test_empty_drafts_of_a_drafter_with_an_unknown_limit_are_not_said_to_be_past_it(
    drafts: int, accepted: int, prompt: int
) -> None:
    """1,983 + 64 + 2 are one more than 2,048."""
    counters = {"prompt": prompt}
    m = speculating(drafts, 2 * drafts, accepted, prompt=prompt, counters=counters)
    assert m.verdict.valid and m.verdict.speculation == "fallback"
    (warning,) = m.verdict.warnings
    assert warning.id == "drafts_rejected"
    seen = f"{drafts} drafts, {accepted} of {2 * drafts} tokens accepted; drafter limit unknown"
    assert warning.detail == seen
    short = speculating(drafts, 2 * drafts, accepted, prompt=1982, counters={"prompt": 1982})
    assert short.verdict.speculation == ("as declared" if accepted else "off")


def test_what_the_version_does_past_a_limit_stands_beside_empty_drafts() -> None:
    facts = msgspec.structs.replace(limited(None), past_drafter_limit=("no drafts",))
    one = exchange(cached=0, prompt=4000, **drafting(63, 126, 0, prompt=4000))
    (warning,) = measure(one, info=run(MTP2, facts)).verdict.warnings
    assert warning.detail.endswith("; past one vllm 0.32.0 is known for: no drafts")


def test_a_few_drafts_without_acceptance_are_too_few_to_say() -> None:
    one = exchange(output=6, cached=0, **drafting(5, 10, 0, output=6))
    m = measure(one, info=run(MTP2, limited(None)))
    assert m.verdict.speculation == "as declared" and ids(m) == ([], ["nothing_accepted"])


def test_the_limit_holds_for_the_batch() -> None:
    beside = Samples(at_ns=(0,), took_ns=(1,), running=(2.0,), waiting=(0.0,))
    m = speculating(63, 126, 0, limit=4096, samples=beside)
    assert m.verdict.speculation == "fallback"
    assert "speculation_batch_limit" in ids(m)[1] and "speculation_off" not in ids(m)[0]


def test_samples_show_where_acceptance_stops_within_one_answer() -> None:
    samples = Samples(
        at_ns=(0, 1, 2, 3),
        took_ns=(1, 1, 1, 1),
        drafts=(0.0, 10.0, 20.0, 40.0),
        accepted_tokens=(0.0, 12.0, 23.0, 23.0),
    )
    m = speculating(40, 80, 23, samples=samples)
    assert m.verdict.speculation == "crosses"
    assert m.verdict.warnings[0].detail == "nothing accepted in the last 20 of 40 drafts"


def test_a_short_flat_tail_is_chance() -> None:
    samples = Samples(
        at_ns=(0, 1, 2),
        took_ns=(1, 1, 1),
        drafts=(0.0, 30.0, 38.0),
        accepted_tokens=(0.0, 25.0, 25.0),
    )
    assert speculating(38, 76, 25, samples=samples).verdict.speculation == "as declared"


def test_tokens_that_came_without_a_draft_show_a_version_that_stops() -> None:
    m = speculating(10, 20, 13)  # 1 + 10 + 13 of 64 tokens
    assert m.verdict.speculation == "crosses" and "40 of 64" in m.verdict.warnings[0].detail


@pytest.mark.parametrize(("places", "against"), [(2, []), (4, ["speculation_differs"])])
def test_the_number_of_positions_is_the_k_that_runs(places: int, against: list[str]) -> None:
    by_place = [20, 13, 0, 0][:places]
    counters = {f"pos__{place}": float(count) for place, count in enumerate(by_place)}
    m = speculating(30, 60, 33, counters=counters)
    assert ids(m)[0] == against
    assert m.acceptance_per_position == tuple(count / 30 for count in by_place)


def test_llamacpp_places_that_were_never_reached_do_not_show() -> None:
    both = pages(drafts=10, draft_tokens=20, accepted_tokens=15, pos__0=9, pos__1=6)
    one = exchange(engine="llamacpp", cached=0, **both)
    assert "speculation_differs" not in ids(measure(one, info=run(NGRAM4)))[0]
    fewer = Speculation(method="draft", num_speculative_tokens=1)
    assert "speculation_differs" in ids(measure(one, info=run(fewer)))[0]


# --- Identities ---------------------------------------------------------------------------------------


def test_up_to_k_tokens_may_be_trimmed_and_no_more() -> None:
    assert ids(speculating(30, 60, 35))[0] == []  # 66 = 64 + k
    assert ids(speculating(30, 60, 36))[0] == ["tokens_differ"]


def test_positions_must_add_up() -> None:
    m = speculating(30, 60, 33, counters={"pos__0": 20.0, "pos__1": 12.0})
    assert ids(m)[0] == ["positions_differ"]
    assert m.verdict.reasons[0].detail == "32 over positions, 33 accepted"


# --- Clocks -------------------------------------------------------------------------------------------


def test_chunks_that_arrive_all_at_once_are_buffered() -> None:
    at_once = Chunks(at_ns=(MS,) * 64, chars=(4,) * 64, kinds="c" * 64)
    m = of(good(chunks=at_once))
    assert ids(m)[0] == ["buffered"] and m.decode_tok_s is None
    assert m.absent["decode_tok_s"] == "all text arrived at once"
    whole = Chunks(at_ns=(1000 * MS,), chars=(300,), kinds="c")
    assert ids(of(good(chunks=whole)))[0] == ["buffered"]


@pytest.mark.parametrize(
    ("decode_s", "against"), [(None, []), (0.04, []), (0.06, ["buffered"])], ids=["untold", "quick", "slow"]
)
def test_a_few_chunks_in_one_read_are_judged_by_the_servers_own_time(
    decode_s: float | None, against: list[str]
) -> None:
    few = Chunks(at_ns=(MS,) * 3, chars=(4,) * 3, kinds="c" * 3)
    told = {} if decode_s is None else {"decode_sum": decode_s, "decode_count": 1}
    assert ids(of(exchange(cached=0, chunks=few, **pages(**told)))) == (against, [])


def test_a_client_that_slept_through_a_short_answer_is_the_bottleneck_and_no_buffer() -> None:
    at_once = Chunks(at_ns=(MS,) * 64, chars=(4,) * 64, kinds="c" * 64)
    health = ClientHealth(loop_lag_p50_ms=0.1, loop_lag_p99_ms=30, loop_lag_max_ms=30, cpu_share=0.1)
    asleep = exchange(cached=0, chunks=at_once, client=health, **pages(decode_sum=0.05, decode_count=1))
    assert ids(of(asleep))[0] == ["client_bottleneck"]
    long_answer = exchange(cached=0, chunks=at_once, client=health, **pages(decode_sum=5, decode_count=1))
    assert ids(of(long_answer))[0] == ["buffered"]


def test_bursts_of_accepted_drafts_are_not_buffering() -> None:
    bursts = tuple((1000 + 10 * (place // 5)) * MS for place in range(64))
    assert ids(of(good(chunks=Chunks(at_ns=bursts, chars=(4,) * 64, kinds="c" * 64)))) == ([], [])


@pytest.mark.parametrize(
    ("p50", "p99", "cpu", "against", "warnings"),
    [
        # TTFT is 1 s, the decode time 630 ms: 1% of that is 6.3 ms, 10% are 63 ms.
        (0.5, 4.9, 0.7, [], []),
        (0.5, 6.2, 0.2, [], []),
        (0.5, 6.4, 0.2, [], ["client_slow"]),
        (0.5, 1.0, 0.9, [], ["client_slow"]),
        (62.0, 200.0, 0.2, [], ["client_slow"]),
        (64.0, 200.0, 0.2, ["client_bottleneck"], []),
    ],
)
def test_a_busy_client(p50: float, p99: float, cpu: float, against: list[str], warnings: list[str]) -> None:
    health = ClientHealth(loop_lag_p50_ms=p50, loop_lag_p99_ms=p99, loop_lag_max_ms=p99, cpu_share=cpu)
    m = of(good(client=health))
    assert ids(m) == (against, warnings)
    assert m.client_uncertainty_s == p99 / 1000


def test_a_few_late_knocks_in_a_short_exchange_are_a_warning() -> None:
    """Half a second holds ten knocks; of fewer the median is the lag of one or two moments."""
    health = ClientHealth(loop_lag_p50_ms=40, loop_lag_p99_ms=40, loop_lag_max_ms=40, cpu_share=0.2)
    times: dict[str, Any] = {"chunks": stream(32, ttft_ms=100), "output": 32, **pages(output=32)}
    short = exchange(cached=0, client=health, ended_ns=499 * MS, **times)
    assert ids(of(short)) == ([], ["client_slow"])
    assert ids(of(msgspec.structs.replace(short, ended_ns=500 * MS)))[0] == ["client_bottleneck"]


def test_a_lag_longer_than_the_gap_between_chunks_is_shown_however_long_the_answer() -> None:
    slow = stream(64, ttft_ms=60_000, gap_ms=1000)
    health = ClientHealth(loop_lag_p50_ms=0.5, loop_lag_p99_ms=20, loop_lag_max_ms=20, cpu_share=0.2)
    assert ids(of(good(chunks=slow, client=health))) == ([], [])
    quick = stream(1024, ttft_ms=60_000, gap_ms=10)
    quick_answer = exchange(cached=0, chunks=quick, client=health, output=1024, **pages(output=1024))
    assert ids(of(quick_answer)) == ([], ["client_slow"])


@pytest.mark.parametrize(("server", "flagged"), [(0.96, False), (0.94, True), (1.06, True)])
def test_client_and_server_time_may_differ_by_a_twentieth(server: float, flagged: bool) -> None:
    m = of(exchange(cached=0, **pages(ttft_sum=server, ttft_count=1)))
    assert m.server_ttft_s == server
    assert ids(m) == ([], ["server_time_differs"] if flagged else [])


# --- The run ------------------------------------------------------------------------------------------


def test_warmups_are_not_measured_but_their_pages_are_seen() -> None:
    warmup = good(purpose="warmup", sha="w")
    cold = good(sha="a")
    measured = list(measure_all(run(facts=B16), [warmup, cold]))
    assert [m.order for m in measured] == [0]
    assert measured[0].pair == "a" and measured[0].source == "run"


def test_an_engine_of_the_future_is_measured_by_the_client_alone() -> None:
    m = measure(exchange(engine="someday", before=page(x=1.0), after=page(x=2.0)))
    assert m.ttft_s == 1.0 and m.decode_tok_s == pytest.approx(100.0)


def test_measuring_twice_gives_the_same() -> None:
    trials = [good(), good("replay", cached=992, ttft_ms=50)]
    assert list(measure_all(run(facts=B16), trials)) == list(measure_all(run(facts=B16), trials))


def test_a_measurer_needs_no_facts() -> None:
    info = {"block_size": "16", "enable_prefix_caching": "True"}
    both = {side: msgspec.structs.replace(scrape, info=info) for side, scrape in pages(cached=992).items()}
    m = Measurer(run()).add(exchange("replay", cached=992, **both))
    assert m.expected_cached == 992 and m.verdict.reuse == "held"


@pytest.mark.parametrize(("pause_ms", "warnings"), [(90.0, []), (630.0, ["below_uncertainty"])])
def test_times_that_the_clients_own_pauses_may_hide_are_flagged(pause_ms: float, warnings: list[str]) -> None:
    # TTFT is 1 s, the decode time 630 ms.
    health = ClientHealth(
        loop_lag_p50_ms=0.1,
        loop_lag_p99_ms=0.2,
        loop_lag_max_ms=1.0,
        cpu_share=0.1,
        gc_pause_max_ms=pause_ms,
    )
    m = of(good(client=health))
    assert ids(m) == ([], warnings)
    assert m.client_uncertainty_s == pause_ms / 1000
    if warnings:
        assert m.verdict.warnings[0].detail == "decode time; client ±630.0 ms"
