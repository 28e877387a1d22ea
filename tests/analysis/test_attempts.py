"""What is told of a trial beside another one says nothing of a wave."""

from __future__ import annotations

import pytest
from analysis_cases import exchange, run
from msgspec import structs

from bench.analysis.verdicts.ledger import Ledger
from bench.analysis.verdicts.measure import Measurer
from bench.records import Exchange, Failure, ServerFacts

FACTS = ServerFacts(
    engine="vllm", version="0.32.0", block_size=16, prefix_caching=True, reports_cached_tokens=True
)


def replay(number: int, **more: object) -> Exchange:
    one = exchange("replay", cached=0, **more)  # type: ignore[arg-type]
    return structs.replace(one, trial=structs.replace(one.trial, id=f"replay/{number}", replay=number))


@pytest.mark.parametrize("status", [429, 503])
def test_a_refusal_after_a_replay_that_was_held_back_is_the_servers_fault(status: int) -> None:
    measurer, ledger = Measurer(run(facts=FACTS)), Ledger(retry_invalid=0)
    failure = Failure(kind="status", message="m", status=status, body="queue full")
    refused = replay(2, failure=failure, usage=None)
    sent = [exchange("cold", cached=0), replay(1), refused]
    for one in sent:
        ledger.note_sent(one)
        ledger.note_measured(measurer.take(one))
    assert [trial.id for trial in ledger.left(one.trial for one in sent)] == ["replay/2"]
