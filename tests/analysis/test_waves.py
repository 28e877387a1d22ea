"""Waves: what the client saw belongs to each request, what counters say to all of them together."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from analysis_cases import exchange, ids, page, run, stream
from wave_cases import SEC, measured, pages, wave, with_start

from bench.analysis.statistics.cells import alone, labelled, sound, usable
from bench.analysis.statistics.summary import summarise
from bench.analysis.verdicts.measure import Measurer, measure_all
from bench.records import Chunks, Failure, Measurement, Samples, ServerFacts, Speculation, Usage

MTP = Speculation(method="mtp", num_speculative_tokens=4)


def test_counts_of_a_wave_stand_in_its_window_and_clocks_in_each_request() -> None:
    before, after = pages(2, drafts=40, draft_tokens=160, accepted_tokens=86, queue_sum=0.5, queue_count=2)
    samples = Samples(at_ns=(1, 2), kv_usage=(0.2, 0.4), running=(2.0, 2.0), waiting=(1.0, 0.0))
    one, two = wave(2, before=before, after=after, members=[{"ttft_ms": 1000}, {"ttft_ms": 1500}])
    one = msgspec.structs.replace(one, samples=samples)
    first, second = measured([one, two], info=run(MTP))
    assert first.verdict.valid and second.verdict.valid
    assert (first.ttft_s, second.ttft_s) == (1.0, 1.5)
    assert first.drafts is None and first.absent["acceptance"] == "counted for the wave of 2"
    assert first.absent["kv_usage_peak"] == "counted for the wave of 2"
    plain = measured([one, two])[0]
    assert plain.absent["acceptance"] == "no speculation on this route"
    window = first.window
    assert window is not None and window == second.window
    assert (window.prompt_tokens, window.output_tokens) == (2000, 128)
    assert (window.drafts, window.draft_tokens, window.accepted_tokens) == (40, 160, 86)
    assert (window.queue_s, window.waiting_peak, window.waiting_mean) == (0.25, 1.0, 0.5)
    # The second is sent 2 ms after the release; its 64th token comes 63 gaps of 10 ms after the first.
    assert window.span_s == pytest.approx(0.002 + 1.5 + 0.63)
    assert (first.concurrency, first.stream, second.stream) == (2, 1, 2)


def decoded(spans_ms: Sequence[float], server_s: float) -> list[Measurement]:
    """A wave of requests of 64 tokens with these decode times, of which the server knows the sum."""
    size = len(spans_ms)
    before, after = pages(size, decode_sum=server_s, decode_count=size)
    members = [{"chunks": stream(64, gap_ms=span / 63)} for span in spans_ms]
    return measured(wave(size, before=before, after=after, members=members))


@pytest.mark.parametrize(
    ("spans_ms", "server_s", "hidden"),
    [
        # The last of four prefills: it decodes alone, in less than half of the mean (0.312 s).
        ((475, 378, 250, 145), 1.2475, []),
        ((475, 378, 250, 145), 1.2480, []),  # 0.5 ms are less than four clocks are uncertain by
        ((475, 378, 250, 145), 1.3, []),  # 52 ms are lacking: not one of these can be short by half
        # One that came late, at once: 300 ms are lacking, and it is far faster than the others.
        ((300, 300, 300, 2), 1.2, [3]),
        ((300, 300, 250, 2), 1.2, [3]),
        # A client that slept through most of the wave
        ((2, 2, 2, 2), 0.05, [0, 1, 2, 3]),
        # 64 that lack 3 ms each, 192 ms together, are no reason to doubt any of them.
        ((100,) * 64, 64 * 0.103, []),
    ],
)
def test_a_requests_rate_is_hidden_only_where_the_wave_lacks_as_much_as_it_shows(
    spans_ms: Sequence[float], server_s: float, hidden: list[int]
) -> None:
    found = decoded(spans_ms, server_s)
    assert [place for place, one in enumerate(found) if one.decode_tok_s is None] == hidden
    warned = [place for place, one in enumerate(found) if "below_uncertainty" in ids(one)[1]]
    assert warned == hidden
    for one, span in zip(found, spans_ms, strict=True):
        if one.decode_tok_s is not None:
            assert one.decode_tok_s == pytest.approx(63 / span * 1000)


def test_what_a_hidden_rate_lacks_is_told_by_the_waves_pace() -> None:
    late = decoded((2, 2), 2 * 0.0124)[0]
    (warning,) = late.verdict.warnings
    assert (warning.id, warning.detail) == ("below_uncertainty", "decode time; client ±10.4 ms")


def test_a_wave_lasts_until_its_last_request_is_over_answered_or_not() -> None:
    failure = Failure(kind="idle_timeout", message="nothing came")
    given_up = {"failure": failure, "chunks": Chunks(), "ended_ns": 9 * SEC}
    refused = {**given_up, "ended_ns": 5_000_000}
    spans = []
    broken = {"failure": failure, "ended_ns": 7 * SEC}  # with the text of a whole answer
    for members in ([{}, refused], [{}, given_up], [refused, refused], [{}, broken]):
        window = measured(wave(2, members=members))[0].window
        assert window is not None
        spans.append(window.span_s)
    # sent 1 and 2 ms after the release; an answer takes 1 s and 63 gaps of 10 ms
    assert spans == pytest.approx([0.001 + 1.63, 0.002 + 9, 0.002 + 0.005, 0.002 + 7])


def test_nothing_is_known_of_a_wave_before_its_last_request_is_in() -> None:
    before, after = pages(3)
    measurer = Measurer(run())
    found = [measurer.take(one) for one in wave(3, before=before, after=after)]
    assert [len(one) for one in found] == [0, 0, 3]
    assert [one.order for one in found[2]] == [0, 1, 2]
    assert measurer.end() == []


def test_a_foreign_request_makes_the_whole_wave_invalid() -> None:
    before, after = pages(3)  # three were finished, two are ours
    found = measured(wave(2, before=before, after=after))
    assert [ids(one)[0] for one in found] == [["foreign_traffic"]] * 2


def test_more_running_than_the_wave_has_is_foreign_and_as_many_is_not() -> None:
    before, after = pages(2)
    verdicts = []
    for running in (2.0, 3.0):
        first, second = wave(2, before=before, after=after)
        first = msgspec.structs.replace(first, samples=Samples(at_ns=(1,), running=(running,)))
        verdicts.append(measured([first, second])[1].verdict.valid)
    assert verdicts == [True, False]


def test_one_request_that_failed_spoils_its_wave() -> None:
    before, after = pages(2)
    failure = Failure(kind="idle_timeout", message="nothing came")
    found = measured(wave(2, before=before, after=after, members=[{}, {"failure": failure}]))
    assert [ids(one)[0] for one in found] == [["wave_spoilt"], ["failed"]]
    assert found[0].verdict.reasons[0].detail == "1 of 2 answered"


def test_one_invalid_request_spoils_its_wave_and_is_named() -> None:
    before, after = pages(2, output=60)
    early = {"usage": Usage(prompt_tokens=1000, completion_tokens=56), "finish_reason": "stop"}
    found = measured(wave(2, before=before, after=after, members=[{}, early]))
    assert [ids(one)[0] for one in found] == [["wave_spoilt"], ["early_stop"]]
    assert found[0].verdict.reasons[0].detail == "1 of 2, first r/1000/cold/1@2.2: early_stop"


def test_a_wave_whose_rest_never_came_is_incomplete_whatever_comes_behind_it() -> None:
    before, after = pages(2)
    torn = wave(2, before=before, after=after)[:1]
    whole = wave(2, before=after, after=pages(4)[1], name="w2")
    follow_ups = ([], whole, [exchange(sha="other")], [exchange(sha="warm", purpose="warmup")])
    for follow_up in follow_ups:
        found = list(measure_all(run(), [*torn, *follow_up]))
        assert ids(found[0])[0] == ["wave_incomplete"]
        assert found[0].verdict.reasons[0].detail == "1 of 2 answered"
    assert [one.verdict.valid for one in measure_all(run(), [*torn, *whole])] == [False, True, True]


def test_a_wave_cut_off_by_ctrl_c_is_incomplete_for_those_that_had_ended_too() -> None:
    failure = Failure(kind="cancelled", message="interrupted")
    found = measured(wave(2, members=[{}, {"failure": failure}]))
    assert [ids(one)[0] for one in found] == [["wave_incomplete"], ["cut_off"]]


def test_replays_are_judged_each_by_usage_and_together_by_counters() -> None:
    facts = ServerFacts(engine="vllm", version="0.20.0", block_size=16)
    start, cold_end = pages(2)
    cold = wave(2, before=start, after=cold_end)
    hit = {"usage": Usage(prompt_tokens=1000, completion_tokens=64, cached_tokens=992)}
    missed = {"usage": Usage(prompt_tokens=1000, completion_tokens=64, cached_tokens=0)}
    for members, cached, wanted in (
        ([hit, hit], 1984, [[], []]),
        ([hit, missed], 992, [["wave_spoilt"], ["replay_missed"]]),
        ([hit, hit], 992, [["witnesses_disagree"]] * 2),
        ([{}, {}], 1984, [[], []]),  # usage does not tell: the sums do
        ([{}, {}], 992, [["replay_missed"]] * 2),
    ):
        before, after = pages(2, cached=cached, since=cold_end)
        replay = wave(2, before=before, after=after, condition="replay", name="w2", members=members)
        found = measured(cold, replay, info=run(facts=facts))
        assert [ids(one)[0] for one in found] == wanted
        window = found[0].window
        assert window is not None and window.expected_cached == 1984  # twice floor(999 / 16) * 16
        assert found[0].cached_tokens == (None if members == [{}, {}] else 992)


def test_what_replies_tell_stands_in_for_counters_that_a_server_lacks() -> None:
    """As older llama.cpp: no cached tokens in usage, no counters of drafts, but `timings` in the reply."""
    ngram = Speculation(method="ngram", num_speculative_tokens=4)
    usage = Usage(prompt_tokens=1000, completion_tokens=64)
    timings = {"timings.cache_n": 3.0, "timings.prompt_n": 997.0, "timings.predicted_n": 64.0}
    members = [
        {"reported": {**timings, "timings.draft_n": drafted, "timings.draft_n_accepted": accepted}}
        for drafted, accepted in ((20.0, 10.0), (30.0, 25.0))
    ]
    before = page(prompt_tokens=0, generation_tokens=0)
    after = page(prompt_tokens=1994, generation_tokens=128)  # prompt tokens without the cached ones
    found = measured(
        wave(2, before=before, after=after, members=members, usage=usage, engine="llamacpp"), info=run(ngram)
    )
    assert [ids(one)[0] for one in found] == [[], []]
    assert [(one.draft_tokens, one.accepted_tokens, one.cached_tokens) for one in found] == [
        (20, 10, 3),
        (30, 25, 3),
    ]
    window = found[0].window
    assert window is not None
    assert (window.draft_tokens, window.accepted_tokens, window.cached_tokens) == (50, 35, 6)
    assert [one.verdict.speculation for one in found] == ["as declared"] * 2


def test_a_cold_wave_that_hits_a_block_without_usage_is_no_cold_wave() -> None:
    facts = ServerFacts(engine="vllm", version="0.20.0", block_size=16)
    before, after = pages(2, cached=16)
    found = measured(wave(2, before=before, after=after), info=run(facts=facts))
    assert [ids(one)[0] for one in found] == [["cold_hit"]] * 2


def test_ttft_of_a_loaded_server_is_no_witness_of_reuse() -> None:
    before, after = pages(2)
    fast = {"ttft_ms": 100, "usage": Usage(prompt_tokens=1000, completion_tokens=64, cached_tokens=0)}
    measurer = Measurer(run())
    measurer.add(exchange(cached=0, ttft_ms=2000))
    found = [
        m for one in wave(2, before=before, after=after, members=[fast, fast]) for m in measurer.take(one)
    ]
    assert all(one.verdict.valid and one.verdict.reuse == "held" for one in found)
    # ... nor does the wave's own TTFT judge the next request that is sent alone.
    assert measurer.add(exchange(cached=0, ttft_ms=2000, sha="q")).verdict.reuse == "held"


@pytest.mark.parametrize(
    ("longest", "drafts", "state", "reason"),
    [
        (1000, 40, "as declared", None),
        (7900, 0, "fallback", "speculation_fallback"),
        (1000, 0, "off", "speculation_off"),
        (7900, 40, "as declared", "drafts_past_limit"),
        (7500, 40, "as declared", None),  # both together are past the limit, neither alone is
        (7500, 0, "off", "speculation_off"),
    ],
)
def test_a_short_request_beside_a_long_one_is_judged_by_the_batch(
    longest: int, drafts: int, state: str, reason: str | None
) -> None:
    """The drafter's limit of 7,900 holds for the longest sequence of the wave."""
    facts = ServerFacts(engine="vllm", version="0.20.0", drafter_limit=7900)
    accepted = 60 if drafts else 0
    before, after = pages(
        2, prompt=(1000 + longest) / 2, drafts=drafts, draft_tokens=4 * drafts, accepted_tokens=accepted
    )
    members = [{}, {"prompt": longest}]
    found = measured(wave(2, before=before, after=after, members=members), info=run(MTP, facts))
    assert [one.verdict.speculation for one in found] == [state, state]
    for one in found:
        against, warnings = ids(one)
        assert [r for r in (*against, *warnings) if r.startswith(("speculation", "drafts"))] == (
            [reason] if reason else []
        )


def test_preemption_is_a_finding_about_the_level_not_an_error() -> None:
    before, after = pages(2, preemptions=3)
    found = measured(wave(2, before=before, after=after))
    assert [ids(one) for one in found] == [([], ["wave_preempted"])] * 2


def test_a_restart_within_a_wave_is_found_on_the_pages_of_its_first_request() -> None:
    before, after = pages(2)
    found = measured(wave(2, before=with_start(before, 1.0), after=with_start(after, 2.0)))
    assert ["restart" in ids(one)[0] for one in found] == [True, True]


def test_a_restart_within_a_wave_leaves_no_cold_prompt_from_before_it() -> None:
    start, cold_end = (with_start(one, 1.0) for one in pages(2))
    end = with_start(pages(2)[1], 2.0)
    _, last = pages(2, since=end, cached=1984)
    found = measured(
        wave(2, before=start, after=cold_end),
        wave(2, before=cold_end, after=end, name="w2", members=[{"sha": "p3"}, {"sha": "p4"}]),
        wave(2, before=end, after=with_start(last, 2.0), name="w3", condition="replay"),
    )
    assert ["cold_before_restart" in ids(one)[0] for one in found] == [True, True]


def test_waves_are_in_no_statistic_but_the_one_of_levels() -> None:
    before, after = pages(2)
    single = exchange(before=before, after=pages(1)[1])
    rows = list(measure_all(run(), [single, *wave(2, before=after, after=pages(4)[1])]))
    assert len(rows) == 3 and all(row.verdict.valid for row in rows)
    assert [row.trial_id for row in alone(rows)] == ["r/1000/cold/1"]
    assert [usable(row) for row in rows] == [True, False, False] and all(map(sound, rows))
    assert len(labelled(rows)) == 1
    (summary,) = summarise(rows)
    assert summary.valid == 1 and summary.estimates["ttft_s"].samples == 1
