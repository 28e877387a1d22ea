"""The requests of a llama.cpp log, and what they add to what its counters tell."""

from __future__ import annotations

import pytest
from msgspec import structs

from bench.analysis.logs.llamacpp import Alone, alone, logged
from bench.analysis.watch.described import Watched
from bench.analysis.watch.logged import with_log

# As b11549 wrote it, the sampler's lines left out; 853 of 1,200 tokens from the cache.
REQUEST = """\
1.51.303.534 I srv  server_strea: conv_id= (empty=1)
1.51.305.942 I slot get_availabl: id  0 | task -1 | selected slot by LRU, t_last = -1
1.51.306.014 I slot launch_slot_: id  0 | task -1 | sampler params:
\trepeat_last_n = 64, repeat_penalty = 1.000
1.51.306.025 I slot launch_slot_: id  0 | task 255 | processing task, is_child = 0
1.51.331.825 I slot   operator(): id  0 | task 255 | new prompt, n_ctx_slot = 8192, task.n_tokens = 1200
1.55.003.000 I slot print_timing: id  0 | task 255 | prompt processing, n_tokens = 256, progress = 0.7
1.58.577.257 I slot print_timing: id  0 | task 255 | prompt eval time =    6033.90 ms /   347 tokens (...)
1.58.577.269 I slot print_timing: id  0 | task 255 |        eval time =    1211.43 ms /     4 tokens (...)
1.58.577.270 I slot print_timing: id  0 | task 255 |       total time =    7245.33 ms /   351 tokens
1.58.577.349 I slot      release: id  0 | task 255 | stop processing: n_tokens = 350, truncated = 0
"""
SEEN = Watched(
    kind="request",
    span_s=8.0,
    pages=3,
    requests=1,
    prompt_tokens=1200,
    cached_tokens=853,
    output_tokens=4,
    prefill_s=6.034,
    server_decode_s=1.211,
    absent={"server_ttft_s": "no histogram of it", "server_total_s": "no histogram of it", "queue_s": "none"},
)


def test_ttft_runs_from_the_request_being_read_to_its_first_token() -> None:
    # First token: 111.331825 + 6.0339 = 117.365725 (118.577257 - 1.21143 = 117.365827 is later).
    found = alone(logged(REQUEST.encode()))
    assert isinstance(found, Alone)
    assert found.ttft_s == pytest.approx(117.365725 - 111.303534, abs=1e-9)
    assert found.total_s == pytest.approx(7.273723, abs=1e-9)
    assert (found.computed_tokens, found.output_tokens) == (347, 4)
    assert (found.prefill_s, found.decode_s) == pytest.approx((6.0339, 1.21143))


def test_all_lines_of_a_request_are_read() -> None:
    portion = logged(REQUEST.encode())
    assert list(portion.arrivals) == pytest.approx([111.303534])
    assert portion.strangers == 0 and not portion.unfinished
    (one,) = portion.requests
    assert (one.task, one.prompt_tokens, one.computed_tokens, one.output_tokens) == (255, 1_200, 347, 4)
    assert one.length == 350
    times = (one.launched_s, one.begun_s, one.prefill_s, one.told_s, one.decode_s)
    assert times == pytest.approx((111.306025, 111.331825, 6.0339, 118.577257, 1.21143))


def test_a_line_that_was_written_late_does_not_make_a_ttft_longer() -> None:
    late_end = REQUEST.replace("1.58.577", "1.58.599")
    late_begin = REQUEST.replace("1.51.331.825", "1.51.333.000")
    assert alone(logged(late_end.encode())).ttft_s == pytest.approx(6.062191)  # type: ignore[union-attr]
    assert alone(logged(late_begin.encode())).ttft_s == pytest.approx(6.062293)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "before", ["llama-1  | ", "2026-11-29T14:55:33.123456789Z ", "2026-11-29T14:55:33+0000 host llama[7]: "]
)
def test_what_docker_and_journald_put_before_a_line_does_not_matter(before: str) -> None:
    lines = "".join(f"{before}{line}\n" for line in REQUEST.splitlines())
    assert alone(logged(lines.encode())) == alone(logged(REQUEST.encode()))


def test_colours_and_any_other_bytes_do_not_matter() -> None:
    coloured = REQUEST.replace(" I ", " \x1b[32mI \x1b[0m").encode()
    assert alone(logged(b"\xff\x00 slot \n" + coloured + b"torn line of an")) == alone(
        logged(REQUEST.encode())
    )


def without(*needles: str) -> str:
    return "".join(
        line for line in REQUEST.splitlines(keepends=True) if not any(needle in line for needle in needles)
    )


@pytest.mark.parametrize(
    ("log", "why"),
    [
        ("", "holds no request"),
        ("INFO all is well\n", "holds no request"),
        (REQUEST + REQUEST.replace("task 255", "task 260"), "several requests"),
        (REQUEST.splitlines()[0] + "\n" + REQUEST, "several requests"),
        (without("conv_id="), "--verbosity 4"),
        (without("processing task"), "without its begin or end"),
        (without("release"), "without its begin or end"),
        (without("prompt eval time"), "without its begin or end"),
        (REQUEST.replace("1.51.303.534", "1.51.306.534"), "not in order"),
        ("".join(line.partition(" ")[2] + "\n" for line in REQUEST.splitlines()), "--log-timestamps"),
    ],
)
def test_a_log_that_does_not_show_one_request_whole_gives_none(log: str, why: str) -> None:
    found = alone(logged(log.encode()))
    assert isinstance(found, str) and why in found


def test_a_request_that_is_not_at_its_end_is_unfinished() -> None:
    assert logged(without("release").encode()).unfinished
    assert logged(without("processing task").encode()).strangers == 1


def test_a_flood_of_requests_is_bounded() -> None:
    line = "1.51.306.025 I slot launch_slot_: id  0 | task {} | processing task, is_child = 0\n"
    portion = logged("".join(line.format(number) for number in range(1_500)).encode())
    assert len(portion.requests) == 1_000


def test_the_log_gives_a_watched_request_its_ttft_and_says_that_it_did() -> None:
    one = with_log(SEEN, REQUEST.encode())
    assert one.server_ttft_s == pytest.approx(6.062191) and one.server_total_s == pytest.approx(7.273723)
    assert one.sources["server_ttft_s"] == "log: request read, before tokenising, to its first token"
    assert one.absent == {"queue_s": "none"} and one.notes == ()
    assert one.prefill_s == 6.034  # the counters' own stay


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"prompt_tokens": 1201, "cached_tokens": 854}, "1,200 prompt tokens in the log, 1,201 counted"),
        ({"output_tokens": 5}, "4 output tokens in the log, 5 counted"),
        ({"cached_tokens": 850}, "347 computed prompt tokens in the log, 350 counted"),
        ({"prefill_s": 6.5}, "prefill 6.034 s in the log, 6.500 s counted"),
        ({"server_decode_s": 1.0}, "decode 1.211 s in the log, 1.000 s counted"),
    ],
)
def test_where_log_and_counters_contradict_each_other_that_is_said_and_no_ttft_taken(
    changed: dict[str, float], what: str
) -> None:
    one = with_log(structs.replace(SEEN, **changed), REQUEST.encode())
    (note,) = one.notes
    assert note == f"log and counters contradict each other: {what}"
    assert one.server_ttft_s is None and what in one.absent["server_ttft_s"]


def test_what_the_counters_do_not_tell_exactly_the_log_does() -> None:
    """A server past a million tokens and a thousand seconds: six digits give tens of tokens."""
    vague = structs.replace(
        SEEN,
        prompt_tokens=1_210,
        cached_tokens=860,
        prefix_reuse=860 / 1_210,
        output_tokens=10,
        slack_tokens=20.0,
        prefill_s=None,
        server_decode_s=None,
        absent={"prefill_s": "too coarse", "server_decode_s": "too coarse", "decode_tok_s": "too coarse"},
        notes=("counts may be off: llamacpp prints 6 digits", "another note"),
    )
    one = with_log(vague, REQUEST.encode())
    assert one.server_ttft_s == pytest.approx(6.062191)
    assert (one.prompt_tokens, one.cached_tokens, one.output_tokens) == (1_200, 853, 4)
    assert (one.slack_tokens, one.prefix_reuse, one.absent) == (0.0, 853 / 1_200, {})
    assert one.notes == ("another note",) and "slack_tokens" not in one.sources
    assert (one.prefill_s, one.server_decode_s) == pytest.approx((6.0339, 1.21143))
    assert one.decode_tok_s == pytest.approx(3 / 1.21143)
    assert one.sources["output_tokens"] == one.sources["prefill_s"] == "log: timings of the request"


def test_what_the_counters_tell_exactly_stays_theirs() -> None:
    one = with_log(
        structs.replace(SEEN, decode_tok_s=2.5, sources={"prefill_s": "counter"}), REQUEST.encode()
    )
    assert (one.prefill_s, one.decode_tok_s, one.sources["prefill_s"]) == (6.034, 2.5, "counter")


def test_windows_and_logs_with_gaps_get_no_ttft() -> None:
    window = structs.replace(SEEN, kind="window")
    assert with_log(window, REQUEST.encode()) is window
    cut = with_log(SEEN, REQUEST.encode(), omitted=1)
    assert cut.server_ttft_s is None and "too much was logged" in cut.absent["server_ttft_s"]
    told = structs.replace(SEEN, server_ttft_s=6.0)
    assert with_log(told, REQUEST.encode()) is told
