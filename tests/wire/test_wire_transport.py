"""Addresses, request heads and headers: what every transport is given and gives."""

from __future__ import annotations

import pytest

from bench.wire.transport import kept_headers, read_url, request_of


@pytest.mark.parametrize(
    ("text", "whole", "place"),
    [
        ("http://Host:8000/v1", "http://host:8000/v1", "host:8000"),
        ("http://host:80/v1", "http://host/v1", "host:80"),
        ("https://host", "https://host/", "host:443"),
        ("https://host:80/", "https://host:80/", "host:80"),
        ("http://[::1]:8000/v1?a=b c#top", "http://[::1]:8000/v1?a=b%20c", "[::1]:8000"),
        ("http://me:key@host/v1", "http://host/v1", "host:80"),
        ("http://b\u00fccher.example/\u00e9t\u00e9", "http://xn--bcher-kva.example/%C3%A9t%C3%A9", None),
        ("http://host/a%2Fb/~c", "http://host/a%2Fb/~c", "host:80"),
        ("HTTP://host:/v1", "http://host/v1", "host:80"),
        ("http://host/a/./b/../v1/", "http://host/a/v1/", None),
        ("http://host/../a/..", "http://host/", None),
        ("http://host//a;b=c/", "http://host//a;b=c/", None),
        ("http://host?a=1&b=%26+\u00e9", "http://host/?a=1&b=%26+%C3%A9", None),
        ("http://[fe80::1%25eth0]:8000/", "http://[fe80::1%eth0]:8000/", "[fe80::1%eth0]:8000"),
        ("http://[fe80::1%eth0]/", "http://[fe80::1%eth0]/", None),
        ("http://me:p@ss%2Fword@host/", "http://host/", None),
    ],
)
def test_an_address_is_told_as_a_request_has_it(text: str, whole: str, place: str | None) -> None:
    url = read_url(text)

    assert str(url) == whole
    assert read_url(whole) == url
    assert place is None or url.place == place


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host:8000",
        "ftp://host/",
        "http://",
        "http://host:0/",
        "http://host:70000/",
        "http://[::1/",
        "http://ho\nst/",
        "http://host/\x00",
        f"http://host/{'a' * 70_000}",
        f"http://{'ü' * 80}.de/",
        "ftp://host:80/",
        "socks5://host:1080",
        "http://ho st/",
        "http://host:+80/",
        "http://stra\u00dfe.de/",
        "http://\u2100.de/",
        "http://me:se/cret@host/",
        "http://me:secret@host:port/",
        "http://me:secret@\u2100.de/",
    ],
)
def test_what_is_no_address_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        read_url(text)
    assert "se" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_request_has_its_head_before_it_is_sent() -> None:
    url = read_url("http://host:8000/v1/chat?x=1")

    posted = request_of("POST", url, {"Accept": "*/*", "X-Key": "s\u00e9same"}, b"{}")
    asked = request_of("GET", read_url("http://host/"), {})

    assert posted.head == (
        b"POST /v1/chat?x=1 HTTP/1.1\r\nHost: host:8000\r\nAccept: */*\r\nX-Key: s\xe9same\r\n"
        b"Content-Length: 2\r\n\r\n"
    )
    assert asked.head == b"GET / HTTP/1.1\r\nHost: host\r\n\r\n"
    assert asked.body == b""
    by_interface = request_of("GET", read_url("http://[fe80::1%25eth0]:8000/"), {})
    assert by_interface.head == b"GET / HTTP/1.1\r\nHost: [fe80::1]:8000\r\n\r\n"
    assert "same" not in repr(posted)


def test_headers_are_kept_without_cookies_and_in_measure() -> None:
    many = [(b"X-%d" % number, b"v") for number in range(100)]
    headers = [(b"Via", b"a"), (b"via", b"b"), (b"Set-Cookie", b"c=1"), (b"Transfer-Encoding", b"chunked")]

    kept = kept_headers([*headers, (b"X-Long", b"y" * 5000), *many])

    assert kept["via"] == "a, b"
    assert len(kept["x-long"]) == 1024
    assert len(kept) == 64
    assert not {"set-cookie", "transfer-encoding"} & set(kept)
