"""Whose fault a failed request is."""

from __future__ import annotations

import pytest

from bench.records import Failure
from bench.run.blame import is_servers_fault


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
