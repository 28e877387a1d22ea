"""Client times by the definitions of DESIGN section 2, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from analysis_cases import MS, exchange, measure, page, run, stream
from hypothesis import given
from hypothesis import strategies as st

from bench.analysis.verdicts.timing import repeats_one_piece, times
from bench.records import (
    Chunks,
    ClientHealth,
    Exchange,
    RunInfo,
    Samples,
    Scrape,
    ServerFacts,
    Speculation,
    Usage,
)


def chunked(
    *events: tuple[float, int], tokens: tuple[int, ...] = (), finish: int | None = None, **more: Any
) -> Exchange:
    """Events as (milliseconds, characters)."""
    chunks = Chunks(
        at_ns=tuple(int(at * MS) for at, _ in events),
        chars=tuple(chars for _, chars in events),
        kinds="".join("c" if chars else "e" for _, chars in events),
        tokens=tokens,
        finish=finish,
    )
    return exchange(chunks=chunks, **more)


def test_ttft_is_the_first_text_and_not_the_first_event() -> None:
    m = times(chunked((100, 0), (500, 3), (700, 3), (710, 0)), 3)
    assert m.first_response_s == 0.1 and m.ttft_s == 0.5
    assert m.total_s == 0.71  # the finish event
    assert m.decode_tok_s == 2 / 0.2  # 3 tokens, one of them in the first chunk
    assert m.tpot_s == pytest.approx(0.1)


def test_tokens_of_the_first_chunk_are_not_decoded_in_the_span() -> None:
    m = times(chunked((500, 12), (700, 9), (900, 9), tokens=(4, 7, 10)), 10)
    assert m.first_chunk_tokens == 4 and m.decode_tok_s == 6 / 0.4
    # without the server's word it is one token
    assert times(chunked((500, 12), (700, 9), (900, 9)), 10).first_chunk_tokens == 1


def test_below_two_text_chunks_there_is_no_rate() -> None:
    m = times(chunked((500, 12), (600, 0)), 10)
    assert m.decode_tok_s is None and m.tpot_s is None and m.icl_p50_s is None
    assert m.absent["decode_tok_s"] == m.absent["tpot_s"] == "fewer than two text chunks"
    assert m.ttft_s == 0.5 and m.text_chunks == 1


@pytest.mark.parametrize(
    ("last_ms", "served_s", "rate"),
    [
        (500.032, None, None),  # 32 microseconds of a client that is sure to 0.3 ms
        (500.3, None, None),
        (500.4, None, 63 / 0.0004),
        (505, 0.0101, None),  # 5 ms where the server took 10.1: 5.1 are lacking
        (505, 0.0099, 63 / 0.005),
    ],
)
def test_a_decode_time_within_its_uncertainty_gives_no_rate(
    last_ms: float, served_s: float | None, rate: float | None
) -> None:
    quick = ClientHealth(loop_lag_p50_ms=0.1, loop_lag_p99_ms=0.2, loop_lag_max_ms=1.0, cpu_share=0.1)
    for client in (quick, None):  # an exchange shorter than a knock of the lag meter was not watched
        m = times(chunked((500, 3), (last_ms, 3), client=client), 64, served_s)
        assert m.decode_tok_s == pytest.approx(rate) and (m.tpot_s is None) == (rate is None)
        assert (m.icl_p50_s is None) == (rate is None)
        assert m.ttft_s == 0.5
        for name in ("decode_tok_s", "tpot_s", "icl_p50_s"):
            assert ("is known to ±" in m.absent.get(name, "")) == (rate is None)


def test_the_servers_own_decode_time_unmasks_a_client_that_read_late() -> None:
    late = Chunks(at_ns=tuple(MS * 500 + n * 20_000 for n in range(64)), chars=(4,) * 64, kinds="c" * 64)
    sides = {
        "before": page(decode_sum=0.0, decode_count=0.0),
        "after": page(decode_sum=0.0124, decode_count=1.0),
    }
    m = measure(exchange(chunks=late, **sides))  # 1.26 ms where the server took 12.4
    assert m.decode_tok_s is None and m.ttft_s == 0.5
    warning = next(one for one in m.verdict.warnings if one.id == "below_uncertainty")
    assert warning.detail == "decode time; client ±11.1 ms"


def test_gaps_are_between_text_chunks_and_bursts_are_gaps_of_zero() -> None:
    m = times(chunked((100, 1), (100, 1), (150, 0), (200, 1), (400, 1)), 4)
    # gaps: 0, 0.1, 0.2
    assert m.icl_p50_s == pytest.approx(0.1) and m.icl_max_s == pytest.approx(0.2)
    assert m.icl_p99_s == pytest.approx(0.198)  # linear between the second and third
    assert m.arrivals == 3


def test_a_trailing_run_of_empty_chunks_ends_at_the_finish_chunk() -> None:
    m = times(chunked((500, 3), (600, 3), (700, 0), (800, 0), (900, 0)), 5)
    assert m.unseen_tail and m.decode_tok_s == 4 / 0.4
    alone = times(chunked((500, 3), (600, 3), (900, 0)), 2)
    assert not alone.unseen_tail and alone.decode_tok_s == 1 / 0.1


def test_the_servers_count_per_chunk_settles_what_trails() -> None:
    done = times(chunked((500, 3), (600, 3), (700, 0), (800, 0), tokens=(1, 4, 4, 4)), 4)
    assert not done.unseen_tail and done.decode_tok_s == 3 / 0.1
    more = times(chunked((500, 3), (600, 3), (800, 0), tokens=(1, 4, 6)), 6)
    assert more.unseen_tail and more.decode_tok_s == 5 / 0.3


def test_the_clock_stops_at_the_finish_event_whatever_comes_behind_it() -> None:
    events = ((500, 3), (600, 3), (700, 0), (1500, 0), (1600, 0))
    m = times(chunked(*events, finish=2), 2)
    assert (m.total_s, m.decode_tok_s, m.unseen_tail) == (0.7, 1 / 0.1, False)
    tailed = times(chunked(*events, finish=3), 5)  # three tokens without text before it
    assert (tailed.total_s, tailed.decode_tok_s, tailed.unseen_tail) == (1.5, 4 / 1.0, True)
    late = times(chunked((500, 3), (600, 0), (900, 3), finish=1), 2)
    assert (late.total_s, late.decode_tok_s) == (0.9, 1 / 0.4)  # text is an answer wherever it stands


def test_an_answer_that_was_cut_off_ends_with_its_last_text() -> None:
    assert times(chunked((500, 3), (600, 3), (900, 0), finish_reason=None), 3).total_s == 0.6


def test_output_tokens_are_never_the_number_of_chunks() -> None:
    m = measure(exchange(usage=None, chunks=stream(64)))
    assert m.output_tokens is None and m.decode_tok_s is None
    assert m.absent["output_tokens"] == "no usage in the reply, and no other witness"
    assert m.absent["decode_tok_s"] == "the number of output tokens is unknown"


def test_without_usage_the_last_count_in_the_stream_is_the_output() -> None:
    m = measure(chunked((500, 3), (600, 3), tokens=(1, 5), usage=None))
    assert m.output_tokens == 5 and m.sources["output_tokens"] == "chunks"


def test_every_missing_number_has_its_reason() -> None:
    m = measure(exchange(engine="generic", usage=Usage()))
    fields = [
        "prompt_tokens",
        "output_tokens",
        "decode_tok_s",
        "tpot_s",
        "drafts",
        "draft_tokens",
        "accepted_tokens",
        "acceptance",
        "acceptance_length",
        "acceptance_per_position",
        "cached_tokens",
        "prefix_reuse",
        "kv_usage_peak",
        "running_peak",
        "waiting_peak",
        "preemptions",
        "server_ttft_s",
        "queue_s",
        "prefill_s",
        "server_decode_s",
    ]
    assert [name for name in fields if getattr(m, name) is None and not m.absent.get(name)] == []
    assert all(getattr(m, name) is None for name in fields)


def test_peaks_are_those_of_the_samples() -> None:
    samples = Samples(
        at_ns=(0, 1, 2),
        took_ns=(1, 1, 1),
        kv_usage=(0.1, 0.7, None),
        running=(0.0, 1.0, 1.0),
        waiting=(1.0, 0.0, None),
    )
    m = measure(exchange(samples=samples, before=page(kv_usage=0.0), after=page(kv_usage=0.9)))
    assert (m.kv_usage_peak, m.running_peak, m.waiting_peak) == (0.9, 1.0, 1.0)
    assert m.kv_usage_mean == pytest.approx(0.4)  # (0.1 + 0.7) / 2: missing samples are no zeros


def test_the_text_is_hashed_with_reasoning_and_calls() -> None:
    same = measure(exchange(text="b", reasoning="a", tool_text="c"))
    assert same.text_sha256 == measure(exchange(text="abc")).text_sha256
    assert measure(exchange(text="")).text_sha256 is None
    assert measure(exchange(text="\ud800")).text_sha256  # a lone surrogate of a broken server


@given(
    st.lists(st.tuples(st.integers(0, 10**10), st.integers(0, 9)), min_size=1, max_size=30),
    st.integers(1, 200),
)
def test_times_are_ordered_and_finite_whatever_the_stream(events: list[tuple[int, int]], tokens: int) -> None:
    ordered = sorted(at for at, _ in events)
    chunks = Chunks(at_ns=tuple(ordered), chars=tuple(chars for _, chars in events), kinds="c" * len(events))
    m = times(exchange(chunks=chunks), tokens)
    if m.ttft_s is None:
        assert all(chars == 0 for _, chars in events)
        return
    assert m.first_response_s is not None and m.total_s is not None
    assert m.first_response_s <= m.ttft_s <= m.total_s
    assert m.decode_tok_s is None or 0 < m.decode_tok_s < float("inf")
    if m.icl_max_s is not None and m.icl_p50_s is not None and m.icl_p99_s is not None:
        assert 0 <= m.icl_p50_s <= m.icl_p99_s <= m.icl_max_s * (1 + 1e-9)


@given(st.text(alphabet="ab ", min_size=1, max_size=8), st.integers(130, 200))
def test_a_repeated_piece_is_found_behind_any_beginning(piece: str, times_: int) -> None:
    assert repeats_one_piece("Once upon a time." + piece * times_) is not None


def test_ordinary_text_does_not_repeat() -> None:
    code = "\n".join(f"    value_{n} = compute({n})" for n in range(100))
    assert repeats_one_piece(code) is None
    assert repeats_one_piece("") is None


def six_digits(drafts: int) -> Scrape:
    """The page of a server that drafted two tokens that often, and accepted 0.8 and 0.5 of them."""

    def printed(count: float) -> float:
        return float(f"{count:.6g}")

    return page(
        drafts=printed(drafts),
        draft_tokens=printed(2 * drafts),
        accepted_tokens=printed(1.3 * drafts),
        pos__0=printed(0.8 * drafts),
        pos__1=printed(0.5 * drafts),
    )


@pytest.mark.parametrize(("earlier", "known"), [(1000, True), (1_400_003, False)])
def test_what_six_digits_leave_open_is_no_number(earlier: int, known: bool) -> None:
    """30 drafts: exact up to a million, and afterwards 30 give or take 10."""
    one = exchange(
        output=70,
        cached=0,
        engine="llamacpp",
        before=six_digits(earlier),
        after=six_digits(earlier + 30),
        reported={"timings.predicted_n": 70.0, "timings.draft_n": 60.0, "timings.draft_n_accepted": 39.0},
    )
    m = measure(one, info=run(Speculation(method="draft", num_speculative_tokens=2)))
    assert (m.draft_tokens, m.accepted_tokens, m.acceptance) == (60, 39, 0.65)  # the reply's own
    if known:
        assert (m.drafts, m.acceptance_length) == (30, 1 + 39 / 30)
        assert m.acceptance_per_position == (24 / 30, 15 / 30)
        return
    assert (m.drafts, m.acceptance_length, m.acceptance_per_position) == (None, None, None)
    for name in ("drafts", "acceptance_length", "acceptance_per_position"):
        assert m.absent[name].startswith("the server prints few digits of its counters")
        assert name not in m.sources


def test_gauges_that_lag_count_from_their_first_change_on() -> None:
    """What eight earlier requests left on the page is neither ours nor anybody's of now."""
    seen = {
        "running": (8.0, 8.0, 0.0, 1.0),
        "waiting": (2.0, 2.0, 0.0, 0.0),
        "kv_usage": (0.9, 0.9, 0.1, 0.2),
    }
    samples = Samples(at_ns=(0, 1, 2, 3), took_ns=(1,) * 4, **seen)
    before = page(running=8, waiting=2, kv_usage=0.9, requests_finished=4)
    after = page(running=1, waiting=0, kv_usage=0.3, requests_finished=5)
    m = measure(exchange(engine="sglang", samples=samples, before=before, after=after))
    assert (m.running_peak, m.waiting_peak, m.kv_usage_peak) == (1, 0, 0.3)
    assert m.kv_usage_mean == pytest.approx(0.15)
    assert not m.verdict.reasons
    never = Samples(at_ns=(0,), took_ns=(1,), running=(8.0,), waiting=(2.0,), kv_usage=(0.9,))
    m = measure(exchange(engine="sglang", samples=never, before=before, after=after))
    assert m.running_peak is None and m.absent["running_peak"] == "the gauge was not renewed"


def test_a_route_without_speculation_lacks_no_counter_of_drafts() -> None:
    """vLLM has these counters where it speculates, and only there."""
    names = ("drafts", "draft_tokens", "accepted_tokens", "acceptance", "acceptance_length")
    moved = {"before": page(generation_tokens=0.0), "after": page(generation_tokens=64.0)}
    idle = {"before": page(drafts=0.0, draft_tokens=0.0), "after": page(drafts=0.0, draft_tokens=0.0)}
    mtp = Speculation(method="mtp", num_speculative_tokens=2)

    def why(pages: dict[str, Scrape], info: RunInfo) -> set[str]:
        absent = measure(exchange(**pages), info=info).absent
        return {absent[name] for name in (*names, "acceptance_per_position") if name in absent}

    assert why(moved, run()) == {"no speculation on this route"}
    assert why(idle, run()) == {"no speculation on this route"}
    assert why(moved, run(mtp)) == {"the engine does not count it"}
    # Undeclared, but the server says that it drafts
    assert why(moved, run(facts=ServerFacts(num_speculative_tokens=2))) == {"the engine does not count it"}
    assert why({}, run()) == {"no metrics page before the exchange"}
