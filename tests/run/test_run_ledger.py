"""What counts as done, tried and left."""

from __future__ import annotations

import msgspec

from bench.records import (
    Event,
    Exchange,
    Failure,
    Measurement,
    PromptRecipe,
    Trial,
    Verdict,
)
from bench.run.ledger import STARTED, Ledger

COLD = Trial(id="a/1/cold/1", route="a", tier=1, condition="cold", repeat=1)
REPLAY = Trial(id="a/1/replay/1.1", route="a", tier=1, condition="replay", repeat=1, replay=1)
RECIPE = PromptRecipe(sha256="", tokens=1, endpoint="chat", corpus="", corpus_sha256="", task="", start=0)


def exchange(trial: Trial = COLD, failure: str | None = None) -> Exchange:
    made = Exchange(trial=trial, prompt=RECIPE, url="", sent_ns=1, ended_ns=1)
    if failure is None:
        return made
    return msgspec.structs.replace(made, failure=Failure(kind=failure, message="m"))  # type: ignore[arg-type]


def measurement(trial: Trial = COLD, *, valid: bool) -> Measurement:
    return Measurement(
        trial_id=trial.id, route="a", tier=1, condition=trial.condition, verdict=Verdict(valid=valid)
    )


def test_a_valid_trial_is_done_and_an_invalid_one_is_repeated_once() -> None:
    ledger = Ledger(retry_invalid=1)
    assert ledger.left([COLD, REPLAY]) == [COLD, REPLAY]
    ledger.note_exchange(exchange(), measurement(valid=True))
    ledger.note_exchange(exchange(REPLAY), measurement(REPLAY, valid=False))
    assert ledger.left([COLD, REPLAY]) == [REPLAY]
    ledger.note_exchange(exchange(REPLAY), measurement(REPLAY, valid=False))
    assert ledger.left([COLD, REPLAY]) == []


def test_a_cut_off_attempt_uses_up_its_number_but_is_no_try() -> None:
    ledger = Ledger(retry_invalid=0)
    ledger.note_event(Event(name=STARTED, at="", data={"trial": COLD.id}))
    assert ledger.next_attempt(COLD) == 2
    ledger.note_exchange(exchange(failure="cancelled"), measurement(valid=False))
    assert not ledger.is_tried(COLD)
    assert ledger.left([COLD]) == [COLD]


def test_only_a_cold_that_was_answered_can_be_replayed() -> None:
    ledger = Ledger(retry_invalid=0)
    ledger.note_exchange(exchange(failure="idle_timeout"), measurement(valid=False))
    assert ledger.last_sent([COLD, REPLAY]) is None
    answered = msgspec.structs.replace(exchange(), attempt=2)
    ledger.note_exchange(answered, measurement(valid=True))
    assert ledger.last_sent([COLD, REPLAY]) == answered


def test_primings_are_remembered_but_are_no_tries() -> None:
    ledger = Ledger(retry_invalid=0)
    primed = msgspec.structs.replace(exchange(), purpose="prime")
    ledger.note_exchange(primed, None)
    assert ledger.last_sent([COLD]) == primed
    assert not ledger.is_done(COLD)
