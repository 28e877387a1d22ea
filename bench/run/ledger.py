"""What a run has done so far and what is left: the same answer live and after a resume."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from bench.records import Event, Exchange, Measurement, Trial

SERVER_STARTED = "server-started"
"""Name of the event that a server of ours is up: `route`. Nothing is in its cache yet."""
SERVER_FELL = "server-fell"
"""Name of the event that a server of ours has ended by itself: `route`, and the attempt it cut off."""
STARTED = "started"
"""Name of the event that is written before every exchange, so that a cut-off one is known."""


class Ledger:
    """Attempts by trial. `note_*` is fed every entry of the journal, in order."""

    def __init__(self, retry_invalid: int) -> None:
        self._allowed = 1 + retry_invalid
        self._started: Counter[str] = Counter()
        self._finished: Counter[str] = Counter()
        self._valid: set[str] = set()
        self._sent: dict[str, list[Exchange]] = defaultdict(list)

    def note_event(self, event: Event) -> None:
        """Counts the start of an attempt, and takes back what a fallen server spoilt."""
        trial = event.data.get("trial")
        if event.name == STARTED and isinstance(trial, str):
            self._started[trial] += 1
        elif event.name == SERVER_FELL and isinstance(trial, str) and event.data.get("purpose") == "trial":
            self._finished[trial] -= 1
        elif event.name == SERVER_STARTED:
            route = event.data.get("route")
            for sent in self._sent.values():
                sent[:] = [exchange for exchange in sent if exchange.trial.route != route]

    def note_exchange(self, exchange: Exchange, measurement: Measurement | None) -> None:
        """Counts a finished attempt; `measurement` is `None` unless its purpose is `trial`."""
        if exchange.failure is None:
            self._sent[exchange.trial.id].append(exchange)
        cut_off = exchange.failure is not None and exchange.failure.kind == "cancelled"
        if measurement is not None and not cut_off:
            self._finished[exchange.trial.id] += 1
            if measurement.verdict.valid:
                self._valid.add(exchange.trial.id)

    def next_attempt(self, trial: Trial) -> int:
        """Number of the next attempt, from 1; a cut-off attempt has used up its number and salt."""
        return self._started[trial.id] + 1

    def is_done(self, trial: Trial) -> bool:
        """Valid, or tried as often as allowed; cut-off attempts do not count."""
        return trial.id in self._valid or self._finished[trial.id] >= self._allowed

    def is_tried(self, trial: Trial) -> bool:
        """At least one attempt came to an end, well or not."""
        return self._finished[trial.id] > 0

    def left(self, trials: Iterable[Trial]) -> list[Trial]:
        """The trials that still need an attempt, in order."""
        return [trial for trial in trials if not self.is_done(trial)]

    def last_sent(self, group: Sequence[Trial]) -> Exchange | None:
        """The latest exchange that put a group's cold prompt into the cache, if any did."""
        sent = [exchange for trial in group if trial.condition == "cold" for exchange in self._sent[trial.id]]
        return sent[-1] if sent else None
