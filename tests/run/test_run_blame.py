"""Whose fault a failed request is."""

from __future__ import annotations

import pytest

from bench.records import Failure
from bench.run.blame import is_servers_fault, turned_away


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


@pytest.mark.parametrize(
    ("failures", "places"),
    [
        ([None, status(429), None, status(429)], {1, 3}),
        ([status(429), status(429)], {0, 1}),
        ([status(503, QUEUE), status(503, QUEUE)], {0, 1}),
        ([Failure(kind="error_event", message="", status=200, body=QUEUE), None], {0}),
        ([status(503, "upstream connect error, reset reason: overflow"), status(503, "Too many")], {0, 1}),
        ([None, status(503, "<h1>503 Service Temporarily Unavailable</h1>")], {1}),
        ([status(503, STARTING), status(503, STARTING)], set()),
        ([status(503), status(503, "no healthy upstream")], set()),
        ([None, status(500, "queue"), Failure(kind="reset", message="")], set()),
        ([Failure(kind="cancelled", message=""), status(400)], set()),
        ([status(429)], set()),  # it was sent alone: the server cannot take it now
        ([], set()),
    ],
)
def test_a_wave_is_turned_away_by_429_and_by_a_503_that_tells_of_a_load(
    failures: list[Failure | None], places: set[int]
) -> None:
    assert turned_away(failures) == places
