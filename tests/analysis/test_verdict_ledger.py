"""What counts as done, tried and left."""

from __future__ import annotations

import msgspec

from bench.analysis.verdicts.ledger import Ledger
from bench.records import (
    Event,
    Exchange,
    Failure,
    Measurement,
    PromptRecipe,
    Reason,
    Scrape,
    Trial,
    Verdict,
    Wave,
    Window,
)
from bench.records.events import SERVER_BACK, SERVER_FELL, STARTED

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
    ledger.note_measured([measurement(valid=True)])
    ledger.note_measured([measurement(REPLAY, valid=False)])
    assert ledger.left([COLD, REPLAY]) == [REPLAY]
    ledger.note_measured([measurement(REPLAY, valid=False)])
    assert ledger.left([COLD, REPLAY]) == []


def test_a_cut_off_attempt_uses_up_its_number_but_is_no_try() -> None:
    ledger = Ledger(retry_invalid=0)
    ledger.note_event(Event(name=STARTED, at="", data={"trial": COLD.id}))
    assert ledger.next_attempt(COLD) == 2
    failure = Failure(kind="cancelled", message="m")
    ledger.note_measured([msgspec.structs.replace(measurement(valid=False), failure=failure)])
    assert not ledger.is_tried(COLD)
    assert ledger.left([COLD]) == [COLD]


def test_only_a_cold_that_was_answered_can_be_replayed() -> None:
    ledger = Ledger(retry_invalid=0)
    ledger.note_sent(exchange(failure="idle_timeout"))
    assert ledger.last_sent([COLD]) == []
    ledger.note_sent(exchange())
    assert [sent.prompt for sent in ledger.last_sent([COLD])] == [RECIPE]
    ledger.note_sent(exchange(REPLAY))
    assert len(ledger.last_sent([COLD])) == 1


def test_a_wave_can_be_replayed_when_all_its_prompts_were_answered_together() -> None:
    trials = [msgspec.structs.replace(COLD, id=f"{n}", concurrency=2, stream=n) for n in (1, 2)]
    wave = Wave(id="w1", size=2, released_ns=0)
    ledger = Ledger(retry_invalid=0)
    for trial, after in zip(
        trials, (Scrape(at_ns=0, took_ns=0, values={"process_start": 7.0}), None), strict=True
    ):
        ledger.note_sent(msgspec.structs.replace(exchange(trial), wave=wave, after=after))
    assert [sent.server_started for sent in ledger.last_sent(trials)] == [7.0, None]
    later = msgspec.structs.replace(wave, id="w2")
    ledger.note_sent(msgspec.structs.replace(exchange(trials[0]), wave=later))
    assert ledger.last_sent(trials) == []  # one of the second wave, one of the first


def test_a_wave_that_was_cut_off_is_no_try() -> None:
    ledger = Ledger(retry_invalid=0)
    torn = Verdict(valid=False, reasons=(Reason(id="wave_incomplete"),))
    ledger.note_measured([msgspec.structs.replace(measurement(valid=False), verdict=torn)])
    assert ledger.left([COLD]) == [COLD]


def test_primings_are_remembered_but_are_no_tries() -> None:
    ledger = Ledger(retry_invalid=0)
    primed = msgspec.structs.replace(exchange(), purpose="prime")
    ledger.note_sent(primed)
    assert len(ledger.last_sent([COLD])) == 1
    assert not ledger.is_done(COLD)


def failed(trial: Trial, kind: str, status: int | None = None) -> Measurement:
    failure = Failure(kind=kind, message="m", status=status)  # type: ignore[arg-type]
    return msgspec.structs.replace(measurement(trial, valid=False), failure=failure)


def test_what_failed_by_the_servers_fault_is_no_try_and_stays_left() -> None:
    ledger = Ledger(retry_invalid=0)
    for one in (failed(COLD, "idle_timeout"), failed(COLD, "status", 502), failed(COLD, "refused")):
        ledger.note_measured([one])
    assert ledger.left([COLD]) == [COLD] and not ledger.is_tried(COLD)
    assert ledger.unmeasured([COLD]) == 0
    ledger.note_measured([failed(COLD, "status", 400)])
    assert ledger.left([COLD]) == [] and ledger.unmeasured([COLD]) == 1


def test_no_request_of_a_wave_is_a_try_where_the_server_failed_one_of_them() -> None:
    spoilt = msgspec.structs.replace(
        measurement(REPLAY, valid=False), verdict=Verdict(valid=False, reasons=(Reason(id="wave_spoilt"),))
    )
    for kind, left in (("reset", [COLD, REPLAY]), ("no_tokens", [])):
        ledger = Ledger(retry_invalid=0)
        wave = [spoilt, failed(COLD, kind)]
        ledger.note_measured([msgspec.structs.replace(one, window=Window(id="w", size=2)) for one in wave])
        assert ledger.left([COLD, REPLAY]) == left


def test_a_fall_takes_back_only_an_attempt_that_was_counted() -> None:
    fell = Event(name=SERVER_FELL, at="", data={"trial": COLD.id, "purpose": "trial"})
    for kind in ("truncated", "malformed"):  # by the server's fault, and an answer of sorts
        ledger = Ledger(retry_invalid=0)
        ledger.note_measured([failed(COLD, kind)])
        ledger.note_event(fell)
        assert ledger.left([COLD]) == [COLD]
        ledger.note_measured([measurement(valid=False)])
        assert ledger.left([COLD]) == []


def test_nothing_in_the_cache_of_a_server_that_was_away_is_relied_upon() -> None:
    ledger = Ledger(retry_invalid=0)
    ledger.note_sent(exchange())
    ledger.note_event(Event(name=SERVER_BACK, at="", data={"route": "another"}))
    assert len(ledger.last_sent([COLD])) == 1
    ledger.note_event(Event(name=SERVER_BACK, at="", data={"route": "a"}))
    assert ledger.last_sent([COLD]) == []


def level(condition: str, repeat: int = 1, replay: int = 0) -> list[Trial]:
    """A wave of two."""
    name = f"a/1/{condition}/{repeat}"
    return [
        Trial(
            id=f"{name}@2.{n}",
            route="a",
            tier=1,
            condition=condition,  # type: ignore[arg-type]
            repeat=repeat,
            replay=replay,
            concurrency=2,
            stream=n,
        )
        for n in (1, 2)
    ]


def wave_of(trials: list[Trial], name: str, *failures: Failure | None) -> list[Measurement]:
    """What became of a wave: one failure makes all of it invalid."""
    return [
        Measurement(
            trial_id=trial.id,
            route="a",
            tier=1,
            condition=trial.condition,
            repeat=trial.repeat,
            concurrency=2,
            stream=trial.stream,
            failure=failure,
            verdict=Verdict(valid=not any(failures)),
            window=Window(id=name, size=2),
        )
        for trial, failure in zip(trials, failures, strict=True)
    ]


FULL = Failure(kind="status", message="m", status=429)


def test_a_wave_that_is_turned_away_is_repeated_once_whatever_is_allowed() -> None:
    ledger, cold = Ledger(retry_invalid=5), level("cold")
    ledger.note_measured(wave_of(cold, "w1", None, FULL))
    assert ledger.left(cold) == cold
    ledger.note_measured(wave_of(cold, "w2", FULL, None))
    assert ledger.left(cold) == []
    assert ledger.unmeasured(cold) == 2


def test_a_bare_503_is_an_attempt_only_beside_an_answer_that_came_later() -> None:
    bare = Failure(kind="status", message="m", status=503)

    def after(ends_ns: tuple[int, int]) -> Ledger:
        ledger, cold = Ledger(retry_invalid=0), level("cold")
        for trial, failure, ended_ns in zip(cold, (None, bare), ends_ns, strict=True):
            wave = Wave(id="w1", size=2, released_ns=0)
            one = msgspec.structs.replace(exchange(trial), wave=wave, failure=failure, ended_ns=ended_ns)
            ledger.note_sent(one)
        ledger.note_measured(wave_of(cold, "w1", None, bare))
        return ledger

    assert after((9, 1)).left(level("cold")) == []
    assert after((1, 9)).left(level("cold")) == level("cold")


def test_without_retries_it_is_not_repeated() -> None:
    ledger, cold = Ledger(retry_invalid=0), level("cold")
    ledger.note_measured(wave_of(cold, "w1", None, FULL))
    assert ledger.left([*cold, *level("replay", replay=1)]) == []


def test_later_repeats_of_a_level_that_was_turned_away_twice_are_sent_once() -> None:
    ledger, second, others = Ledger(retry_invalid=5), level("cold", 2), level("salted", 2)
    for name in ("w1", "w2"):
        ledger.note_measured(wave_of(level("cold"), name, FULL, FULL))
    assert ledger.left(second) == second
    ledger.note_measured(wave_of(second, "w3", FULL, FULL))
    assert ledger.left([*second, *others]) == []


def test_replays_and_twins_of_cold_prompts_that_were_turned_away_are_done_with_them() -> None:
    ledger, cold = Ledger(retry_invalid=5), level("cold")
    behind = [*level("replay", replay=1), *level("salted")]
    ledger.note_measured(wave_of(cold, "w1", FULL, FULL))
    assert ledger.left(behind) == behind
    ledger.note_measured(wave_of(cold, "w2", FULL, FULL))
    assert ledger.left(behind) == []
    assert ledger.left(level("replay", 2, replay=1)) != []  # of another repeat
    ledger.note_measured(wave_of(cold, "w3", None, None))
    assert ledger.left([*cold, *behind]) == behind  # the limit was raised meanwhile


def test_a_wave_that_was_turned_away_and_cut_off_is_no_attempt() -> None:
    ledger, cold = Ledger(retry_invalid=0), level("cold")
    ledger.note_measured(wave_of(cold, "w1", FULL, Failure(kind="reset", message="m")))
    ledger.note_measured(wave_of(cold, "w2", FULL, Failure(kind="cancelled", message="m")))
    assert ledger.left(cold) == cold
    assert not ledger.is_tried(cold[0])
