"""What is hidden in texts, and what is too short to be a secret."""

from __future__ import annotations

from bench.masking import hide, worth_hiding


def test_the_longest_value_is_hidden_first_and_leaves_nothing_of_itself() -> None:
    secrets = worth_hiding(["abcdef", "abcdef123456", "abcdef"])
    assert secrets == ("abcdef123456", "abcdef")
    assert hide("token abcdef123456 and abcdef refused", secrets) == "token *** and *** refused"
    assert hide(b"token abcdef123456 refused", secrets) == b"token *** refused"


def test_what_is_no_secret_stays_in_every_text() -> None:
    secrets = worth_hiding(["1", "", None, "12345", "123456"])
    assert secrets == ("123456",)
    assert hide("HTTP 401: 10 requests, 12345 tokens", secrets) == "HTTP 401: 10 requests, 12345 tokens"


def test_bytes_are_searched_as_utf_8() -> None:
    assert hide("schlüssel!".encode(), worth_hiding(["schlüssel"])) == b"***!"
