"""What a run has done so far and what is left: the same answer live, after a resume and in a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec
from msgspec import Struct

from bench.analysis.verdicts.blame import End, is_servers_fault, turned_away
from bench.records import Event, Exchange, Measurement, PromptRecipe, Trial
from bench.records.events import FORCED, SERVER_BACK, SERVER_FELL, SERVER_STARTED, STARTED

_ENOUGH = 2
"""Waves of a level that were turned away: one more would say nothing new."""

_Level = tuple[str, int, str, int, str]
"""Route, tier, task, concurrency, condition: what a server's limit holds for."""
_Group = tuple[str, int, str, int, int]
"""Route, tier, task, concurrency, repeat: the waves of the same texts."""


class Sent(Struct, frozen=True, kw_only=True):
    """A prompt that the server has answered: what is needed to send it again."""

    trial: Trial
    prompt: PromptRecipe
    wave: str | None = None
    """Id of its wave."""
    server_started: float | None = None
    """Start of the server's process, as the page behind it says."""


class Ledger:
    """Attempts by trial. `note_*` is fed every entry of the journal, in order.

    A request that failed by the server's fault, or was cut off, is no attempt: its trial stays left. A wave
    that was turned away for its size is an attempt, and repeated once for all repeats of its level; what
    would have followed its cold prompts is done with them.
    """

    def __init__(self, retry_invalid: int) -> None:
        self._allowed = 1 + retry_invalid
        self._started: Counter[str] = Counter()
        self._finished: Counter[str] = Counter()
        self._valid: set[str] = set()
        self._counted: dict[str, bool] = {}  # whether the last measurement of a trial was an attempt
        self._sent: dict[str, Sent] = {}
        self._ends: dict[tuple[str, int], End] = {}  # of the last wave, by its id and the place in it
        self._away: dict[_Level, set[str]] = {}  # the waves that were turned away
        self._turned_away: set[str] = set()  # their trials
        self._uncached: dict[_Group, str] = {}  # a trial of the cold wave that was turned away
        self.undecided: str | None = None
        """Trial that was sent, and is judged by what comes next."""

    def note_event(self, event: Event) -> None:
        """Counts the start of an attempt, and takes back what a fallen server spoilt."""
        trial = event.data.get("trial")
        if event.name == STARTED and isinstance(trial, str):
            self._started[trial] += 1
        elif event.name == SERVER_FELL and isinstance(trial, str) and event.data.get("purpose") == "trial":
            self._finished[trial] -= self._counted.pop(trial, False)
        elif event.name in (SERVER_STARTED, SERVER_BACK, FORCED):
            route = event.data.get("route")  # `None`: all of them
            self._sent = {
                name: sent for name, sent in self._sent.items() if route not in (None, sent.trial.route)
            }

    def note_sent(self, exchange: Exchange) -> None:
        """Remembers what is in the server's cache now (cold prompts that were answered), and how a request
        of a wave ended."""
        if exchange.wave is not None:
            wave = exchange.wave.id
            self._ends = {key: end for key, end in self._ends.items() if key[0] == wave}
            self._ends[wave, exchange.trial.stream] = End.of(exchange)
        if exchange.failure is None and exchange.trial.condition == "cold":
            self._sent[exchange.trial.id] = Sent(
                trial=exchange.trial,
                prompt=exchange.prompt,
                wave=exchange.wave.id if exchange.wave else None,
                server_started=exchange.after.values.get("process_start") if exchange.after else None,
            )

    def note_measured(self, found: Sequence[Measurement]) -> None:
        """Counts finished attempts. The requests of a wave are told together; what was held back may stand
        before others, and is no part of their wave."""
        for _, together in groupby(found, key=_wave_of):
            self._note_together(list(together))

    def _note_together(self, found: Sequence[Measurement]) -> None:
        if all(one.verdict.valid for one in found):  # nobody was cut off or turned away
            for one in found:
                self._count(one, True)
            return
        refused = turned_away([self._end(one) for one in found])
        away = {place for place in refused if not is_of_cut_off_wave(found[place])}
        no_attempt = [_is_no_attempt(one) and place not in away for place, one in enumerate(found)]
        at_fault = {one.window.id for one, none in zip(found, no_attempt, strict=True) if one.window and none}
        for one, none in zip(found, no_attempt, strict=True):
            counts = not none and not (one.window and one.window.id in at_fault)
            self._count(one, counts)
            if away and counts:
                self._note_turned_away(one)

    def _count(self, one: Measurement, counts: bool) -> None:
        """`counts`: it was an attempt."""
        self._counted[one.trial_id] = counts
        self._finished[one.trial_id] += counts
        if one.verdict.valid:
            self._valid.add(one.trial_id)

    def _end(self, one: Measurement) -> End:
        known = self._ends.get((one.window.id, one.stream)) if one.window else None
        return known or End(one.failure)

    def _note_turned_away(self, one: Measurement) -> None:
        self._turned_away.add(one.trial_id)
        self._away.setdefault(_level(one), set()).add(one.window.id if one.window else one.trial_id)
        if one.condition == "cold":
            self._uncached[_group(one)] = one.trial_id

    def next_attempt(self, trial: Trial) -> int:
        """Number of the next attempt, from 1; a cut-off attempt has used up its number and salt."""
        return self._started[trial.id] + 1

    def is_done(self, trial: Trial) -> bool:
        """Valid, or tried as often as allowed, or not to be had at this level."""
        if trial.id in self._valid or self._finished[trial.id] >= self._allowed:
            return True
        if trial.id in self._turned_away:
            return len(self._away[_level(trial)]) >= _ENOUGH
        return self._is_without_cold(trial)

    def _is_without_cold(self, trial: Trial) -> bool:
        """Whether the cold wave that it needs was turned away, and will not be sent again."""
        if trial.concurrency == 1 or trial.condition == "cold":
            return False
        cold = self._uncached.get(_group(trial))
        if cold is None or cold in self._valid:
            return False
        away = self._away[_level(msgspec.structs.replace(trial, condition="cold"))]
        return self._finished[cold] >= self._allowed or len(away) >= _ENOUGH

    def unmeasured(self, trials: Iterable[Trial]) -> int:
        """How many of the trials are done without one valid measurement."""
        return sum(trial.id not in self._valid and self.is_done(trial) for trial in trials)

    def is_tried(self, trial: Trial) -> bool:
        """At least one attempt came to an end, well or not."""
        return self._finished[trial.id] > 0 or trial.id == self.undecided

    def left(self, trials: Iterable[Trial]) -> list[Trial]:
        """The trials that still need an attempt, in order."""
        return [trial for trial in trials if not self.is_done(trial)]

    def last_sent(self, cold: Sequence[Trial]) -> list[Sent]:
        """What put a cold prompt, or all prompts of a cold wave, into the cache last; else nothing."""
        found = [self._sent[trial.id] for trial in cold if trial.id in self._sent]
        together = len({sent.wave for sent in found}) == 1
        return found if len(found) == len(cold) and together else []


def _wave_of(one: Measurement) -> tuple[str, int]:
    return (one.window.id, 0) if one.window else (one.trial_id, one.attempt)


def _level(one: Trial | Measurement) -> _Level:
    return one.route, one.tier, one.task, one.concurrency, one.condition


def _group(one: Trial | Measurement) -> _Group:
    return one.route, one.tier, one.task, one.concurrency, one.repeat


CUT_OFF = ("cut_off", "wave_incomplete")
"""Reasons of what a session's end left unfinished: it is sent again, and nothing is wrong with it."""


def is_cut_off(one: Measurement) -> bool:
    """Whether Ctrl-C ended it: neither it nor its server failed, and its trial stays left."""
    return one.failure is not None and one.failure.kind == "cancelled"


def is_of_cut_off_wave(one: Measurement) -> bool:
    """Whether another request of its wave was cut off, or never came."""
    return any(reason.id == "wave_incomplete" for reason in one.verdict.reasons)


def was_cut_off(one: Measurement) -> bool:
    """Whether the end of a session cut it off, alone or with its wave."""
    return is_cut_off(one) or is_of_cut_off_wave(one)


def _is_no_attempt(one: Measurement) -> bool:
    """Whether it was cut off, or failed by the server's fault."""
    return was_cut_off(one) or (one.failure is not None and is_servers_fault(one.failure))
