"""What a person sees while a run is running."""

from __future__ import annotations

import msgspec
import pytest

from bench.cli.show import describe, left, shown
from bench.records import Trial
from bench.run.progress import Progress

TRIAL = Trial(id="mtp4/564577/cold/1", route="mtp4", tier=564_577, condition="cold", repeat=1)
SECOND = 1_000_000_000


def progress() -> Progress:
    made = Progress(total=18, done=4, expected_ttft_s=690.4, left_s=3600.0, kv_usage=0.352)
    made.begin(TRIAL, 100 * SECOND)
    made.enter("prefill", 110 * SECOND)
    return made


def test_a_long_prefill_is_shown_beside_its_estimate() -> None:
    assert describe(progress(), 322 * SECOND) == ("mtp4 564,577 cold: prefill 212 s of about 690 s, KV 35%")


def test_from_the_first_text_on_bytes_are_shown_while_no_rate_is_known() -> None:
    made = progress()
    made.enter("decode", 800 * SECOND)
    made.bytes_read = 123_456
    assert describe(made, 810 * SECOND) == "mtp4 564,577 cold: decode 123 kB, KV 35%"


def test_a_long_wait_for_a_server_is_told_by_its_length() -> None:
    made = progress()
    made.enter("waiting for the server to come back", 500 * SECOND)
    assert describe(made, 504 * SECOND) == "mtp4 564,577 cold: waiting for the server to come back"
    assert describe(made, 812 * SECOND) == "mtp4 564,577 cold: waiting for the server to come back 5 min"


def test_the_decode_rate_takes_the_place_of_the_bytes_and_is_marked_where_it_is_reckoned() -> None:
    made = progress()
    made.enter("decode", 800 * SECOND)
    made.bytes_read = 123_456
    made.pace.begin(200.0)
    made.pace.received(800 * SECOND, 1_000)
    made.pace.received(804 * SECOND, 1_000 + 4 * 200 * 31)
    assert describe(made, 810 * SECOND) == "mtp4 564,577 cold: decode ~31.0 tok/s, KV 35%"
    made.pace.counted(801 * SECOND, 100)
    made.pace.counted(803 * SECOND, 2_600)
    assert describe(made, 810 * SECOND) == "mtp4 564,577 cold: decode 1,250 tok/s, KV 35%"


def test_a_wave_is_shown_with_its_level_and_the_streams_that_have_text() -> None:
    made = progress()
    made.begin(msgspec.structs.replace(TRIAL, concurrency=4, stream=1), 100 * SECOND)
    made.together, made.with_text, made.bytes_read = 4, 1, 2_000
    made.enter("decode", 800 * SECOND)
    assert describe(made, 810 * SECOND) == ("mtp4 564,577 cold x4: decode 2 kB, 1 of 4 have text, KV 35%")


def test_time_left_runs_down_within_a_trial_and_never_below_nothing() -> None:
    assert left(progress(), 400 * SECOND) == 3300.0
    assert left(progress(), 9000 * SECOND) == 0.0
    assert left(Progress(), 0) is None


def test_without_a_terminal_a_line_tells_of_every_trial_and_every_note(
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = progress()
    with shown(made):
        made.notes.append("a note")
        made.done += 1
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "a note"
    assert told[1].startswith("5/18 trials done, about")


def test_long_lines_are_wrapped_within_a_hundred_columns(capsys: pytest.CaptureFixture[str]) -> None:
    made = progress()
    made.begin(msgspec.structs.replace(TRIAL, route="a-route-with-a-long-name-" * 3), 100 * SECOND)
    with shown(made):
        made.notes.append("a route is lost since its server does not answer " * 4)
        made.done += 1
    told = capsys.readouterr().err.splitlines()
    assert max(map(len, told)) <= 100
    assert told[0].startswith("a route is lost") and told[1].startswith("    ")
    assert " ".join(" ".join(told).split()).count("is lost since its server does not answer") == 4
    (last,) = (line for line in told if line.startswith("5/18 trials done"))
    assert told[told.index(last) + 1].startswith("    ")


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    made = progress()
    with shown(made, quiet=True):
        made.done += 1
        made.notes.append("a note")
    assert capsys.readouterr().err == ""
