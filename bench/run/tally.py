"""What the lines of a journal come to: the same for the run that writes them and for whoever looks at it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.analysis.verdicts.ledger import Ledger
from bench.analysis.verdicts.measure import Measurer
from bench.journal import Entry
from bench.plan.times import RouteModel
from bench.records import Event, Exchange, Measurement, RunInfo
from bench.run.forecast.outlook import Outlook


class Tally:
    """Attempts and what is left of the plan, measurements, and expected times.

    `take` is given every entry once, in order; it and the other methods return what was measured with it.
    """

    def __init__(self, info: RunInfo, models: Mapping[str, RouteModel] | None = None) -> None:
        """`models`: what is known of the routes' times."""
        self.ledger = Ledger(info.suite.retry_invalid)
        self.outlook = Outlook([route.name for route in info.suite.routes], models)
        self._measurer = Measurer(info)

    @property
    def undecided(self) -> str | None:
        """Id of a trial, a first replay that missed, whose verdict waits for the next one of its prompt."""
        return self._measurer.undecided

    def take(self, entry: Entry) -> Sequence[Measurement]:
        """The next line."""
        if isinstance(entry, Event):
            self.ledger.note_event(entry)
            return ()
        self.ledger.note_sent(entry)
        if entry.purpose == "trial":
            return self._judged(self._measurer.take(entry))
        found = self._judged(self._measurer.skip(entry))
        self._warmed_up(entry)
        return found

    def decide(self) -> Sequence[Measurement]:
        """No more replays of the prompt at hand follow: what waited for one is judged without."""
        return self._judged(self._measurer.decide())

    def close_wave(self) -> Sequence[Measurement]:
        """A session has ended: no more requests of the wave at hand follow."""
        return self._judged(self._measurer.close_wave())

    def end(self) -> Sequence[Measurement]:
        """No more lines follow."""
        return self._judged(self._measurer.end())

    def _warmed_up(self, exchange: Exchange) -> None:
        if exchange.purpose == "warmup" and exchange.chunks.at_ns:
            first_s = exchange.chunks.at_ns[0] / 1e9
            self.outlook.warmed_up(exchange.trial.route, exchange.prompt.tokens, first_s)

    def _judged(self, found: Sequence[Measurement]) -> Sequence[Measurement]:
        self.ledger.undecided = self._measurer.undecided
        self.ledger.note_measured(found)
        for one in found:
            self.outlook.measured(one)
        return found
