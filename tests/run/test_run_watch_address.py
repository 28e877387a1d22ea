"""What is no address ends a watch in one line."""

from __future__ import annotations

import pytest

from bench.errors import SuiteError
from bench.run.watch.order import exporters_of, metrics_address


@pytest.mark.parametrize("address", ["http://[::1", "http://a..b:8000", "http://h:x", "http://h:0", "h:8000"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(SuiteError, match="is neither like"):
        metrics_address(address)
    with pytest.raises(SuiteError, match=r"--exporter = .*: an http:// or https:// address"):
        exporters_of((address,))


def test_seventeen_exporters_are_too_many() -> None:
    with pytest.raises(SuiteError, match="--exporter: at most 16 addresses"):
        exporters_of(tuple(f"http://h{n}/metrics" for n in range(17)))
