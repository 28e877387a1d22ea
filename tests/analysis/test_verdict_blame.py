"""Whose fault a failed request is."""

from __future__ import annotations

import msgspec
import pytest

from bench.analysis.verdicts.blame import End, asked_to_wait_s, is_servers_fault, turned_away
from bench.records import Exchange, Failure, PromptRecipe, Trial


@pytest.mark.parametrize(
    "kind",
    [
        "refused",
        "connect_timeout",
        "upload_timeout",
        "first_token_timeout",
        "idle_timeout",
        "reset",
        "truncated",
    ],
)
def test_a_server_that_gives_no_answer_is_at_fault(kind: str) -> None:
    assert is_servers_fault(Failure(kind=kind, message=""))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["malformed", "no_tokens", "too_large", "cancelled"])
def test_an_answer_that_is_none_is_an_answer(kind: str) -> None:
    assert not is_servers_fault(Failure(kind=kind, message=""))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("status", "at_fault"),
    [
        (500, True),
        (502, True),
        (503, True),
        (504, True),
        (599, True),
        (408, True),
        (425, True),
        (429, True),
        (501, False),
        (505, False),
        (400, False),
        (401, False),
        (404, False),
        (413, False),
        (422, False),
        (301, False),
    ],
)
def test_a_status_speaks_of_the_server_or_of_the_request(status: int, at_fault: bool) -> None:
    assert is_servers_fault(Failure(kind="status", message="", status=status)) is at_fault


@pytest.mark.parametrize(
    ("event", "at_fault"),
    [
        ('{"error": {"message": "EngineCore encountered an issue", "code": 500}}', True),
        ('{"error": {"message": "the prompt is too long", "code": 400}}', False),
        ('{"object": "error", "message": "too long", "code": 400}', False),
        ('{"error": {"message": "too long", "code": "400"}}', False),
        ('{"error": {"message": "it died", "code": "500"}}', True),
        ('{"error": "it died"}', True),
        ('{"error": {"code": "insufficient"}}', True),
        ("[1, 2]", True),
        ("died", True),
    ],
)
def test_an_error_inside_a_stream_is_the_servers_unless_its_code_is_of_the_request(
    event: str, at_fault: bool
) -> None:
    assert is_servers_fault(Failure(kind="error_event", message="", status=200, body=event)) is at_fault


def status(code: int, body: str = "") -> Failure:
    return Failure(kind="status", message="", status=code, body=body)


QUEUE = '{"error": {"message": "The request queue is full.", "type": "Service Unavailable", "code": 503}}'
"""As SGLang sends it: instead of an answer, or inside a stream whose headers said 200."""
STARTING = '{"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}'


BARE = status(503, "<h1>503 Service Temporarily Unavailable</h1>")
LATE = status(504, "upstream request timeout")


def at(seconds: float, failure: Failure | None = None) -> End:
    return End(failure, round(seconds * 1e9))


@pytest.mark.parametrize(
    ("wave", "places"),
    [
        ([at(9), at(0, status(429)), at(9), at(0, status(429))], {1, 3}),
        ([at(1, status(429)), at(1, status(429))], {0, 1}),
        ([End(status(429)), End(None)], {0}),
        ([at(1, status(503, QUEUE)), at(1, status(503, QUEUE))], {0, 1}),
        ([at(9, Failure(kind="error_event", message="", status=200, body=QUEUE)), at(5)], {0}),
        ([at(1, status(503, "reset reason: overflow")), at(1, status(503, "Too many"))], {0, 1}),
        ([at(1, status(503, STARTING)), at(1, status(503, STARTING))], set()),
        ([at(1, status(503)), at(1, status(503, "no healthy upstream"))], set()),
        ([at(1, status(503, "time limit exceeded")), at(1, status(503, "full restart"))], set()),
        # A gateway says no more than 503: its server was there if it answered another request after that.
        ([at(9), at(0.1, BARE)], {1}),
        ([at(5), at(9, BARE)], set()),
        ([at(5), at(0.1, BARE), at(9, BARE)], {1}),
        ([End(None), End(BARE)], set()),
        ([at(90), at(60, LATE)], {1}),
        ([at(50), at(60, LATE)], set()),
        ([at(9), at(1, status(502, "Bad Gateway"))], set()),
        ([at(9), at(1, status(500, "queue")), at(1, Failure(kind="reset", message=""))], set()),
        ([at(1, Failure(kind="cancelled", message="")), at(1, status(400))], set()),
        ([at(1, status(429))], set()),  # it was sent alone: the server cannot take it now
        ([], set()),
    ],
)
def test_a_wave_is_turned_away_by_what_tells_of_a_load_or_came_from_a_server_at_work(
    wave: list[End], places: set[int]
) -> None:
    assert turned_away(wave) == places


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "30"}, 30.0),
        ({"retry-after": " 7 "}, 7.0),
        (
            {"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT", "date": "Fri, 31 Dec 1999 23:58:29 GMT"},
            90.0,
        ),
        ({"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT", "date": "Sat, 01 Jan 2000 00:10:00 GMT"}, 0.0),
        ({"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}, 0.0),
        ({"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT", "date": "Fri, 31 Dec 1999 23:58:29 -0000"}, 0.0),
        ({"retry-after": "soon", "date": "now"}, 0.0),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "9" * 400}, 999_999_999.0),
        ({"retry-after": "Mon, 01 Jan 2024 00:00:00 +99999999999999999999", "date": "now"}, 0.0),
        ({"retry-after": "Mon, 01 Jan 99999999999999999999 00:00:00 GMT", "date": "now"}, 0.0),
        ({}, 0.0),
    ],
)
def test_an_answer_asks_to_be_left_alone_in_seconds_or_until_a_date(
    headers: dict[str, str], seconds: float
) -> None:
    assert asked_to_wait_s(_failed(headers)) == seconds


def test_an_answer_that_is_none_of_a_failure_asks_for_nothing() -> None:
    answered = msgspec.structs.replace(_failed({"retry-after": "30"}), failure=None)
    assert asked_to_wait_s(answered) == 0.0


def _failed(headers: dict[str, str]) -> Exchange:
    return Exchange(
        trial=Trial(id="t", route="a", tier=1, condition="cold", repeat=1),
        prompt=PromptRecipe(
            sha256="s", tokens=1, endpoint="chat", corpus="", corpus_sha256="", task="continue", start=0
        ),
        url="",
        sent_ns=0,
        ended_ns=1,
        headers=headers,
        failure=status(429),
    )
