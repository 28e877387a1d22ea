"""The table of faults in the documentation tells what the harness really says of each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from test_faults_every_one import SAYS, Says, invalidates

from bench.servers.simulator import FAULTS

DOCS = Path(__file__).parent.parent.parent / "docs" / "simulator.md"


def words(one: Says) -> str:
    """The last column: what fails, is invalid or carries a warning, and under which name."""
    if one.stops is not None:
        return f"the run is refused: {one.stops}"
    return "; ".join(parts(one)) or "nothing; every number is exact"


def parts(one: Says) -> Iterator[str]:
    failed = any(said.startswith("failed: ") for said in one.cold)
    only_cold = failed or one.conditions == ("cold",)  # nothing else was sent: it is no matter of condition
    of = {"": one.each | (one.cold if only_cold else set())}
    if not only_cold:
        of |= {"cold: ": one.cold, "salted: ": one.salted, "replay: ": one.replay}
    for place, said in of.items():
        # "fails" comes before "invalid", and that before "warning"
        outcomes = sorted(map(outcome_of, said))
        yield from (
            place + outcome + ", an outage" * (one.outage and outcome[0] == "f") for outcome in outcomes
        )


def outcome_of(said: str) -> str:
    if said.startswith("failed: "):
        return f"fails, `{said.removeprefix('failed: ')}`"
    return f"{'invalid' if invalidates(said) else 'warning'}, `{said}`"


@pytest.mark.parametrize("name", FAULTS)
def test_the_documentation_tells_what_the_harness_says_of_a_fault(name: str) -> None:
    (row,) = (line for line in DOCS.read_text("utf-8").splitlines() if line.startswith(f"| `{name}` |"))
    assert row.split(" | ")[-1].removesuffix(" |") == words(SAYS[name])
