"""Pages of a watched server become requests and windows, with numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from analysis_cases import scrape
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.analysis.watch.described import Watched, describe, slot_lengths
from bench.analysis.watch.totals import total
from bench.analysis.watch.windows import Segment, Segmenter
from bench.engines import get
from bench.errors import EngineError
from bench.records import Scrape, ServerFacts

SECOND = 1_000_000_000
ZERO = {
    name: 0.0
    for name in (
        "prompt_tokens",
        "cached_tokens",
        "generation_tokens",
        "requests_finished",
        "requests_aborted",
        "running",
        "waiting",
    )
}


def at(second: float, values: dict[str, float], took: float = 0.0) -> Scrape:
    return Scrape(at_ns=round(second * SECOND), took_ns=round(took * SECOND), status=200, values=values)


def series(engine: str, pages: Sequence[Scrape]) -> list[Segment]:
    segmenter = Segmenter(get(engine))
    found = [segmenter.add(page) for page in pages]
    return [segment for segment in (*found, segmenter.finish()) if segment is not None]


def watched(engine: str, pages: Sequence[Scrape], slots: list[int] | None = None) -> list[Watched]:
    facts = ServerFacts(engine=engine)
    return [describe(s, get(engine), facts, slot_lengths=slots) for s in series(engine, pages)]


def vllm(second: float, **values: float) -> Scrape:
    """A vLLM page; a histogram `h` of n observations and sum s is `h_count=n, h_sum=s`."""
    return at(second, {**ZERO, **values})


def llama(second: float, **values: float) -> Scrape:
    start = {"prompt_tokens": 0.0, "cached_tokens": 0.0, "generation_tokens": 0.0, "running": 0.0}
    return at(second, {**start, "waiting": 0.0, "prefill_seconds": 0.0, "decode_seconds": 0.0, **values})


ONE = {
    "prompt_tokens": 1000,
    "cached_tokens": 600,
    "generation_tokens": 41,
    "requests_finished": 1,
    "ttft_count": 1,
    "ttft_sum": 0.5,
    "queue_count": 1,
    "queue_sum": 0.1,
    "decode_count": 1,
    "decode_sum": 2.0,
    "e2e_count": 1,
    "e2e_sum": 2.5,
}


# --- Recorded pages -----------------------------------------------------------------------------------


def recorded(engine: str, *names: str) -> list[Watched]:
    pages = [scrape(engine, name) for name in names]
    return watched(
        engine, [msgspec.structs.replace(page, at_ns=n * 100 * SECOND) for n, page in enumerate(pages)]
    )


def test_each_recorded_request_of_vllm_is_derived_with_its_exact_counts() -> None:
    folder = "vllm-0.32-mtp4/metrics_"
    names = [f"{folder}{n}.prom" for n in ("0_before", "1_after_cold", "2_after_salted", "3_after_replay")]
    cold, salted, replay = recorded("vllm", *names)
    assert [one.kind for one in (cold, salted, replay)] == ["request"] * 3
    assert [(one.prompt_tokens, one.cached_tokens, one.output_tokens) for one in (cold, salted, replay)] == [
        (4793, 0, 96),
        (4794, 0, 96),
        (4793, 4608, 96),
    ]
    assert cold.server_ttft_s == pytest.approx(3.7098734378814697)
    assert replay.server_ttft_s == pytest.approx(8.075851440429688 - 7.863232612609863)
    assert cold.decode_tok_s == pytest.approx(95 / 0.7461910890006038)
    assert (cold.drafts, cold.draft_tokens, cold.accepted_tokens) == (29, 116, 66)
    assert cold.acceptance_per_position == (24 / 29, 22 / 29, 13 / 29, 7 / 29)
    assert cold.prefix_reuse == 0 and replay.prefix_reuse == 4608 / 4793


def test_each_recorded_request_of_sglang_is_derived_though_its_gauges_are_stale() -> None:
    names = [f"others/sglang_0.5.23_mtp_{n}.prom" for n in ("before", "after_cold", "after_replay")]
    cold, replay = recorded("sglang", *names)
    assert (cold.kind, cold.prompt_tokens, cold.cached_tokens, cold.output_tokens) == ("request", 6000, 0, 66)
    assert (replay.kind, replay.cached_tokens) == ("request", 5999)
    assert cold.server_ttft_s == 1.874
    assert replay.server_ttft_s == pytest.approx(1.935 - 1.874)
    # No histogram of decoding: the whole time without the first token's.
    assert cold.decode_tok_s == pytest.approx(65 / (2.52 - 1.874))
    # 24 verify steps and one token of the prompt make 25 of 66; the others were accepted.
    assert (cold.drafts, cold.accepted_tokens) == (24, 41)
    assert "may hide" in cold.proof


def test_each_recorded_request_of_llamacpp_is_derived_and_what_it_lacks_is_absent_with_a_reason() -> None:
    folder = "llamacpp-11549-ngram4/metrics_"
    pages = [scrape("llamacpp", f"{folder}{name}.prom") for name in ("0_before", "1_after_cold")]
    before, after = (msgspec.structs.replace(p, at_ns=n * SECOND) for n, p in enumerate(pages))
    (unseen,) = watched("llamacpp", [before, after])
    assert unseen.kind == "window" and "no page fell into this window" in unseen.why
    (cold,) = watched("llamacpp", [before, after], slots=[4813 + 96 - 1])
    assert cold.kind == "request" and cold.proof.startswith("/slots")
    assert (cold.prompt_tokens, cold.cached_tokens, cold.output_tokens) == (4813, 0, 96)
    assert cold.prefill_s == 40.5594
    assert cold.decode_tok_s == pytest.approx(95 / 7.74275)
    assert (cold.drafts, cold.draft_tokens, cold.accepted_tokens) == (39, 146, 41)
    assert cold.server_ttft_s is None and "no histogram" in cold.absent["server_ttft_s"]
    assert cold.kv_usage_peak is None and cold.absent["kv_usage_peak"]
    assert cold.requests == 1


# --- One request, alone ---------------------------------------------------------------------------------


def test_a_request_alone_has_all_its_numbers_and_the_peaks_of_its_pages() -> None:
    pages = [
        vllm(0),
        vllm(1, running=1, kv_usage=0.2),
        vllm(2, running=1, kv_usage=0.3, prompt_tokens=1000, cached_tokens=600, generation_tokens=7),
        vllm(3, **ONE),
        vllm(4, **ONE),
    ]
    (one,) = watched("vllm", pages)
    assert one.kind == "request" and one.proof
    assert (one.prompt_tokens, one.cached_tokens, one.output_tokens) == (1000, 600, 41)
    assert (one.server_ttft_s, one.queue_s, one.server_decode_s, one.server_total_s) == (0.5, 0.1, 2.0, 2.5)
    assert one.decode_tok_s == 20.0  # 40 tokens after the first in 2 s
    assert (one.kv_usage_peak, one.in_flight_peak) == (0.3, 1)
    assert one.span_s == 3.0
    assert one.acceptance is None and one.absent["acceptance"]


def test_waiting_in_the_queue_alone_is_still_alone() -> None:
    pages = [vllm(0), vllm(1, waiting=1), vllm(2, running=1), vllm(3, **ONE)]
    (one,) = watched("vllm", pages)
    assert (one.kind, one.waiting_peak, one.in_flight_peak) == ("request", 1, 1)


def test_finish_time_counters_that_lag_are_waited_for() -> None:
    late = {**ONE, "requests_finished": 0, "e2e_count": 0, "e2e_sum": 0.0, "decode_count": 0}
    found = watched("vllm", [vllm(0), vllm(1, running=1), vllm(2, **late), vllm(3, **ONE)])
    assert [one.kind for one in found] == ["request"]
    assert found[0].server_total_s == 2.5


def test_two_requests_with_a_quiet_page_between_them_are_two() -> None:
    both = {name: 2 * value for name, value in ONE.items()}
    found = watched("vllm", [vllm(0), vllm(3, **ONE), vllm(4, running=1, **ONE), vllm(9, **both)])
    assert [(one.kind, one.prompt_tokens) for one in found] == [("request", 1000), ("request", 1000)]


def test_a_long_quiet_time_does_not_lengthen_the_window_of_the_next_request() -> None:
    (one,) = watched("vllm", [*(vllm(second) for second in range(500)), vllm(503, **ONE)])
    assert one.span_s == 4.0


# --- What cannot be split ---------------------------------------------------------------------------------


def two(second: float, **values: float) -> Scrape:
    return vllm(second, **{**{name: 2 * value for name, value in ONE.items()}, **values})


def test_requests_that_overlapped_are_not_split_but_summed() -> None:
    (window,) = watched("vllm", [vllm(0), vllm(1, running=2), vllm(2, running=1, **ONE), two(3)])
    assert (window.kind, window.why) == ("window", "2 requests overlapped")
    assert (window.requests, window.prompt_tokens, window.output_tokens) == (2, 2000, 82)
    assert window.prefix_reuse == 0.6
    assert window.server_ttft_s == 0.5  # the mean of two
    assert window.decode_tok_s == 20.0  # 80 tokens after the first ones in 2 times 2 s
    assert window.proof == ""


def test_more_requests_than_ever_seen_at_once_say_both_figures() -> None:
    three = {name: 3 * value for name, value in ONE.items()}
    (window,) = watched("vllm", [vllm(0), vllm(1, running=2), vllm(9, **three)])
    assert window.why == "3 requests overlapped, up to 2 at once"


def test_overlap_shows_in_the_times_even_where_no_page_saw_it() -> None:
    (window,) = watched("vllm", [vllm(0), two(3)])  # 2 x 2.5 s do not fit into 3 s
    assert window.why == "2 requests overlapped: together they took longer than the window"
    (window,) = watched("vllm", [vllm(0), two(6)])
    assert window.why == "2 requests without a quiet page between them: look more often"


def test_a_client_that_hung_up_beside_another_request_is_noticed() -> None:
    """vLLM does not count it as finished, but its first token, or its look-up, is counted."""
    (window,) = watched("vllm", [vllm(0), vllm(5, **{**ONE, "ttft_count": 2, "ttft_sum": 0.9}), *[
        vllm(6, **{**ONE, "ttft_count": 2, "ttft_sum": 0.9})
    ]])  # fmt: skip
    assert window.kind == "window" and window.why.startswith("2 requests overlapped")
    (window,) = watched("vllm", [vllm(0), vllm(5, prefix_queries=1700, **ONE)])
    assert "looked up" in window.why
    (again,) = watched("vllm", [vllm(0), vllm(5, prefix_queries=2000, **ONE)])
    assert again.kind == "request"  # its own prompt, twice


def test_a_client_that_hung_up_alone_is_cut_off_and_not_a_request() -> None:
    half = {"prompt_tokens": 1000, "generation_tokens": 7, "ttft_count": 1, "ttft_sum": 0.5}
    (window,) = watched("vllm", [vllm(0), vllm(1, running=1), vllm(2, **half), vllm(3, **half)])
    assert window.kind == "window" and window.why.startswith("cut off by its client")
    aborted = {**half, "requests_aborted": 1}
    (window,) = watched("vllm", [vllm(0), vllm(1, running=1), vllm(2, **aborted), vllm(3, **aborted)])
    assert window.why == "cut off: the engine counts it as aborted" and window.aborted == 1


def test_what_ran_before_watching_began_or_runs_when_it_ends_is_no_request() -> None:
    begun, open_ = watched("vllm", [vllm(0, running=1), vllm(1, **ONE), vllm(2, running=1, **ONE)])
    assert begun.why == "it began before watching did"
    assert open_.why == "still running when watching ended"
    assert open_.prefix_reuse is None


def test_a_request_that_took_longer_than_anybody_watched_is_not_alone() -> None:
    """Stale gauges hide a request that began beside the one before: its own time tells."""
    pages = [vllm(0), vllm(3, **ONE), two(4)]
    values = [{n: v for n, v in page.values.items() if n not in ("running", "waiting")} for page in pages]
    first, second = watched("sglang", [at(t, v) for t, v in zip((0, 3, 4), values, strict=True)])
    assert first.kind == "request"
    assert second.why.startswith("it began before this window")  # 2.5 s, but the window has 1 s


def test_llamacpp_requests_are_told_apart_by_gauges_and_steps_of_its_counters() -> None:
    done = {"prompt_tokens": 300, "generation_tokens": 16, "prefill_seconds": 1.5, "decode_seconds": 0.5}
    (one,) = watched("llamacpp", [llama(0), llama(1, running=1), llama(2, **done)])
    assert one.kind == "request" and one.proof.startswith("gauges")
    assert (one.prompt_tokens, one.output_tokens, one.prefill_s) == (300, 16, 1.5)
    assert one.decode_tok_s == 30.0  # 15 tokens after the first in 0.5 s
    (window,) = watched(
        "llamacpp", [llama(0), llama(1, running=1, **done), llama(2, **done, cached_tokens=9)]
    )
    assert window.kind == "request"  # one step of every counter of work
    again = {**done, "prompt_tokens": 600, "generation_tokens": 32}
    (window,) = watched("llamacpp", [llama(0), llama(1, running=1, **done), llama(2, **again)])
    assert window.why.startswith("requests followed each other")
    (window,) = watched("llamacpp", [llama(0), llama(1, running=2), llama(2, **again)])
    assert window.why == "2 requests overlapped"
    assert window.prefill_s is None and "all its slots" in window.absent["prefill_s"]


def test_counts_of_few_digits_carry_their_slack() -> None:
    was = {"prompt_tokens": 1.04858e6, "generation_tokens": 100.0}
    now = {"prompt_tokens": 1.06457e6, "generation_tokens": 116.0}
    pages = [llama(0, **was), llama(1, running=1, **was), llama(2, **now)]
    (one,) = watched("llamacpp", pages, slots=[15990 + 16 - 1])
    assert (one.prompt_tokens, one.slack_tokens) == (15990, 10.0)  # half of the last digit, twice
    assert "6 digits" in one.notes[0]
    assert one.proof.startswith("gauges")  # rounded counts prove nothing beside a length


def test_seconds_coarser_than_the_request_are_absent() -> None:
    was = {"prefill_seconds": 12345.6, "decode_seconds": 10.0}
    now = {"prefill_seconds": 12346.1, "decode_seconds": 11.0, "prompt_tokens": 5, "generation_tokens": 3}
    (one,) = watched("llamacpp", [llama(0, **was), llama(1, running=1, **was), llama(2, **now)])
    assert one.prefill_s is None and "too coarse" in one.absent["prefill_s"]
    assert one.server_decode_s == 1.0


def test_a_server_that_is_never_quiet_is_summed_at_intervals() -> None:
    def busy(second: int) -> Scrape:
        done = second // 10  # one request of a hundred prompt tokens ends every ten seconds
        counts = {"requests_finished": done, "prompt_tokens": 100 * done, "generation_tokens": 5 * done}
        return vllm(second, running=2, **counts)

    found = watched("vllm", [vllm(0), *(busy(second) for second in range(1, 200))])
    assert [one.requests for one in found] == [6, 6, 6, 1]
    assert found[0].why == "busy all the time, up to 2 requests at once"
    assert found[1].span_s == 60.0
    assert sum(one.prompt_tokens or 0 for one in found) == 1900


def test_one_long_request_is_not_cut_however_long_it_takes() -> None:
    (one,) = watched("vllm", [vllm(0), *(vllm(s, running=1) for s in range(1, 700)), vllm(700, **ONE)])
    assert (one.kind, one.pages) == ("request", 700)


def test_a_request_that_failed_before_its_first_token_says_so() -> None:
    (one,) = watched(
        "vllm", [vllm(0, ttft_count=0), vllm(1, requests_finished=1, requests_failed=1, ttft_count=0)]
    )
    assert (one.kind, one.why, one.failed) == ("window", "it failed before its first token", 1)


# --- Restarts, replicas, missing pages ----------------------------------------------------------------------


def test_a_restart_ends_what_was_open_and_says_what_shows_it() -> None:
    pages = [
        vllm(0, process_start=100),
        vllm(1, process_start=100, running=1, generation_tokens=5),
        vllm(9, process_start=200),
        vllm(12, process_start=200, **ONE),
    ]
    restart, one = watched("vllm", pages)
    assert restart.kind == "restart" and restart.why.startswith("process start 100")
    assert restart.output_tokens == 5
    assert one.kind == "request" and one.prompt_tokens == 1000


def test_several_servers_behind_one_address_are_refused() -> None:
    pages = [vllm(n, process_start=100 + n % 2) for n in range(3)]
    with pytest.raises(EngineError, match="several servers answer under this address"):
        series("vllm", pages)
    saw = [at(n, {**ZERO, "generation_tokens": 1000.0 * (n % 2) + n}) for n in range(8)]
    with pytest.raises(EngineError, match="several servers"):
        series("vllm", saw)


def test_missing_pages_are_counted_and_change_no_number() -> None:
    gone = Scrape(at_ns=2 * SECOND, took_ns=0, problem="no answer within 30 s")
    (one,) = watched("vllm", [vllm(0), vllm(1, running=1), gone, vllm(3, **ONE)])
    assert one.kind == "request"
    assert one.notes == ("1 page could not be had meanwhile: peaks may be higher",)


@pytest.mark.parametrize("answer", [None, {}, "x", [1], [{"is_processing": True}], [{"id_task": 3}]])
def test_slots_that_say_nothing_prove_nothing(answer: object) -> None:
    assert slot_lengths(answer) is None


def test_slots_tell_the_last_sequence_first() -> None:
    slots = [
        {"id": 0, "is_processing": False, "id_task": 2, "n_prompt_tokens": 416},
        {"id": 1, "is_processing": False},
        {"id": 2, "is_processing": False, "id_task": 22, "n_prompt_tokens": 90},
    ]
    assert slot_lengths(slots) == [90, 416]


# --- Any traffic ----------------------------------------------------------------------------------------

REQUESTS = st.lists(
    st.tuples(
        st.integers(0, 400),  # arrives
        st.integers(1, 60),  # prefill
        st.integers(1, 60),  # decode
        st.integers(1, 900),  # prompt
        st.integers(1, 50),  # output
    ),
    min_size=1,
    max_size=7,
)


def page_of(now: int, requests: list[tuple[int, int, int, int, int]], engine: str) -> Scrape:
    """What a server that computes all requests side by side shows at a moment."""
    first = [r for r in requests if r[0] + r[1] <= now]
    ended = [r for r in requests if r[0] + r[1] + r[2] <= now]
    running = sum(r[0] <= now for r in requests) - len(ended)
    values = {
        "prompt_tokens": float(sum(r[3] for r in (ended if engine == "sglang" else first))),
        "cached_tokens": 0.0,
        "generation_tokens": float(sum(r[4] for r in ended)),
        "running": 7.0 if engine == "sglang" else float(running),  # stale there
        "waiting": 0.0,
    }
    if engine != "llamacpp":
        values |= {
            "requests_finished": float(len(ended)),
            "ttft_count": float(len(first)),
            "ttft_sum": sum(r[1] for r in first) / 1000,
            "e2e_count": float(len(ended)),
            "e2e_sum": sum(r[1] + r[2] for r in ended) / 1000,
        }
    return Scrape(at_ns=now * 1_000_000, took_ns=0, status=200, values=values)


def overlap(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return one[0] < other[0] + other[1] + other[2] and other[0] < one[0] + one[1] + one[2]


@settings(max_examples=200, deadline=None)
@given(
    REQUESTS,
    st.lists(st.integers(0, 700), max_size=60),
    st.sampled_from(["vllm", "sglang", "llamacpp"]),
    st.sampled_from([0.01, 0.05, 60.0]),
)
def test_no_request_is_ever_called_alone_that_was_not_and_no_token_is_lost(
    requests: list[tuple[int, int, int, int, int]], moments: list[int], engine: str, busy_s: float
) -> None:
    requests = [(a + 1, *rest) for a, *rest in requests]  # type: ignore[misc]
    segmenter = Segmenter(get(engine), busy_s=busy_s)
    facts, found = ServerFacts(engine=engine), []
    for now in [0, *sorted(set(moments) - {0}), 701, 702, 703]:
        segment = segmenter.add(page_of(now, requests, engine))
        if segment is None:
            continue
        ended = [r for r in requests if r[0] + r[1] + r[2] <= now]
        quiet = len(ended) == sum(r[0] <= now for r in requests)
        last = max(ended, key=lambda r: r[0], default=None)
        lengths = [last[3] + last[4] - 1] if last and quiet else None
        one = describe(segment, get(engine), facts, slot_lengths=lengths)
        found.append(one)
        if one.kind != "request" or one.proof.startswith("gauges"):
            continue
        (alone,) = [r for r in ended if (r[0] + r[1] + r[2]) * 1_000_000 > segment.before.at_ns]
        assert (one.prompt_tokens, one.output_tokens) == (alone[3], alone[4])
        if engine != "llamacpp":
            assert one.server_ttft_s == pytest.approx(alone[1] / 1000)
        if engine != "sglang":  # whose gauges are stale: a prefill beside it may hide, as its proof says
            assert not any(overlap(alone, other) for other in requests if other is not alone)
    assert segmenter.finish() is None
    totals = total(found)
    assert totals.sums["prompt_tokens"] == sum(r[3] for r in requests)
    assert totals.sums["output_tokens"] == sum(r[4] for r in requests)
    if engine != "llamacpp":
        assert totals.requests == len(requests)
