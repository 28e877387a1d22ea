from __future__ import annotations

import pytest

from bench.errors import SuiteError
from bench.plan.suite import parse_suite
from bench.records import FromEnv

SUITE = """
[suite]
name = "s"
tiers = [512]
[[route]]
name = "a"
base_url = "http://h:1/v1"
{line}
"""


def test_headers_are_kept_as_written_and_secrets_as_the_name_of_their_variable() -> None:
    line = 'headers = { X-data-parallel-rank = 0, X-Note = "a b", X-Api-Key = { from_env = "GATE" } }'
    [route] = parse_suite(SUITE.format(line=line)).routes
    assert route.headers == {
        "X-data-parallel-rank": "0",
        "X-Note": "a b",
        "X-Api-Key": FromEnv(from_env="GATE"),
    }


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ('{ X-Gateway-Token = "hush-hush" }', "holds a key, and the suite is kept"),
        ('{ authorization = "Basic hush-hush" }', "holds a key, and the suite is kept"),
        ('{ "X Y" = "a" }', "is no name of an HTTP header"),
        ('{ Content-Length = "5" }', "is set by this program"),
        ('{ X = "a\\r\\nY: b" }', "holds characters that no header can carry"),
        ('{ X = "\u00e9" }', "holds characters that no header can carry"),
        ('{ X = " a" }', "is blank, begins or ends with a space"),
        ('{ X = "a", x = "b" }', "a name stands there twice"),
        ('{ X = { from_env = "no name" } }', "from_env is the name of an environment variable"),
        ('{ X = ["hush-hush"] }', "headers"),
    ],
)
def test_headers_that_cannot_be_or_would_give_a_secret_away_are_refused(headers: str, message: str) -> None:
    with pytest.raises(SuiteError, match=message) as caught:
        parse_suite(SUITE.format(line=f"headers = {headers}"))
    assert "hush" not in str(caught.value)


def test_a_key_is_given_once() -> None:
    line = 'api_key_env = "K"\nheaders = { Authorization = { from_env = "A" } }'
    with pytest.raises(SuiteError, match="api_key_env both say it"):
        parse_suite(SUITE.format(line=line))
