"""The table of faults: names, limits, documentation, and a test on the wire for each."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.errors import SuiteError
from bench.servers.simulator.faults import FAULTS, Faults, FaultUse, parse_fault

HERE = Path(__file__).parent
DOCS = HERE.parent.parent / "docs" / "simulator.md"


def test_a_fault_strikes_always_once_in_a_range_or_from_some_request_on() -> None:
    assert parse_fault("hang-stream") == FaultUse(name="hang-stream")
    assert parse_fault("hang-stream@3") == FaultUse(name="hang-stream", first=3, last=3)
    assert parse_fault("hang-stream@2-4") == FaultUse(name="hang-stream", first=2, last=4)
    assert parse_fault("hang-stream@2-") == FaultUse(name="hang-stream", first=2)


def test_ranges_count_from_one_and_include_both_ends() -> None:
    faults = Faults(["hang-stream@2-3", "crlf"])
    assert [sorted(faults.at(number)) for number in (1, 2, 3, 4)] == [
        ["crlf"],
        ["crlf", "hang-stream"],
        ["crlf", "hang-stream"],
        ["crlf"],
    ]


@pytest.mark.parametrize("text", ["", "no-such", "hang-stream@", "hang-stream@0", "hang-stream@x", "@2"])
def test_what_is_no_fault_is_refused_with_all_names(text: str) -> None:
    with pytest.raises(SuiteError, match="reset-upload"):
        parse_fault(text)


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(SuiteError, match="ends before"):
        parse_fault("crlf@4-2")


def test_a_fault_for_life_cannot_be_limited() -> None:
    with pytest.raises(SuiteError, match="as long as the server"):
        parse_fault("evicts@2")


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_has_a_test_on_the_wire(name: str) -> None:
    known = "".join(path.read_text(encoding="utf-8") for path in HERE.glob("test_simulator_fault_wire_*.py"))
    assert f"def test_{name.replace('-', '_')}__" in known


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_documented_in_the_words_of_the_table(name: str) -> None:
    fault = FAULTS[name]
    row = f"| `{name}` | {fault.about} | {'*' if fault.whole_life else ''} |"
    assert row in DOCS.read_text(encoding="utf-8")


def test_the_documentation_knows_no_other_faults() -> None:
    section = DOCS.read_text(encoding="utf-8").partition("## Faults")[2].partition("\n## ")[0]
    rows = [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]
    assert rows == list(FAULTS)
