"""One answer to "which server is this?", and to "is this an address?"."""

from __future__ import annotations

import pytest

from bench.address import address_problem, exporter_problems, is_here, is_loopback, server_at

SAME = [
    ("http://h/v1", "http://h:80/v1", "http://H:80", "http://h./metrics", "http://h:80?x#y"),
    ("https://h/v1", "https://h:443"),
    (
        "http://localhost:8000/v1",
        "http://LocalHost:8000",
        "http://127.0.0.1:8000/v1",
        "http://127.9.9.9:8000/v1",
        "http://[::1]:8000/v1",
        "http://[0:0:0:0:0:0:0:1]:8000",
        "http://[::ffff:127.0.0.1]:8000",
        "http://0.0.0.0:8000",
        "http://[::]:8000",
    ),
    ("http://[2001:DB8::1]:1", "http://[2001:db8:0:0::1]:1"),
    ("http://[::ffff:10.0.0.1]:1", "http://10.0.0.1:1"),
]


@pytest.mark.parametrize("addresses", SAME, ids=lambda one: one[0])
def test_all_spellings_of_an_address_are_one_server(addresses: tuple[str, ...]) -> None:
    assert len({server_at(address) for address in addresses}) == 1


def test_other_hosts_and_ports_are_other_servers() -> None:
    first = [addresses[0] for addresses in SAME]
    more = [
        "http://h:81",
        "http://127.example.com:8000",
        "http://127.0.0.1:8001",
        "http://[::1",
        "http://h:x",
    ]
    assert len({server_at(address) for address in [*first, *more]}) == len(first) + len(more)


def test_a_server_is_named_as_one_would_write_it() -> None:
    assert str(server_at("http://GPU/v1")) == "gpu:80"
    assert str(server_at("http://127.0.0.1:8000/v1")) == "localhost:8000"
    assert str(server_at("http://[2001:db8::1]:8000/v1")) == "[2001:db8::1]:8000"


@pytest.mark.parametrize(
    ("host", "loopback", "here"),
    [
        ("localhost", True, True),
        ("127.0.0.1", True, True),
        ("127.1.2.3", True, True),
        ("::1", True, True),
        ("0.0.0.0", False, True),  # noqa: S104 - nothing is bound
        ("::", False, True),
        ("127.example.com", False, False),
        ("localhost.example.com", False, False),
        ("10.0.0.1", False, False),
        ("", False, False),
    ],
)
def test_loopback_is_what_is_a_number_of_it_or_its_name(host: str, loopback: bool, here: bool) -> None:
    assert (is_loopback(host), is_here(host)) == (loopback, here)


@pytest.mark.parametrize(
    "address",
    [
        "http://a..b:8000/v1",
        "https://.example.com/v1",
        "http://[::1",
        "http://h:x/v1",
        "http://h:0/v1",
        "http://h:65536/v1",
        "http:///v1",
        "h:8000",
        "ftp://h",
        "http://h /v1",
        "http://h/\x01",
        f"http://{'a' * 64}.com",
        "",
    ],
)
def test_what_no_connection_can_be_opened_to_is_no_address(address: str) -> None:
    assert "an http:// or https:// address" in (address_problem("base_url", address) or "")


@pytest.mark.parametrize(
    "address", ["http://h", "https://h.:8000/v1", "http://[::1]:8000/v1", "http://bücher.example/v1"]
)
def test_an_address_is_let_through(address: str) -> None:
    assert address_problem("base_url", address) is None


@pytest.mark.parametrize("address", ["http://h?k=sk-secret", "http://h#sk-secret", "http://sk-secret@h"])
def test_what_may_hold_a_key_is_refused_and_not_repeated(address: str) -> None:
    problem = address_problem("proxy", address)
    assert problem is not None and "would be kept in the run" in problem and "secret" not in problem


def test_exporters_are_at_most_sixteen_each_once() -> None:
    assert not list(exporter_problems("exporters", tuple(f"http://h{n}/m" for n in range(16))))
    for many in (tuple(f"http://h{n}/m" for n in range(17)), ("http://h/m",) * 2):
        assert list(exporter_problems("exporters", many)) == [
            "exporters: at most 16 addresses, each of them once"
        ]
