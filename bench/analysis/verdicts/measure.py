"""Exchanges -> measurements: every number once, with its witness, and a verdict on all of them.

A `Measurer` reads the exchanges of one run in their order, since a replay is judged beside its cold
prompt and a restart shows between two exchanges. It needs nothing but the run's record: facts that
the run does not hold are read from the scrapes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache

import msgspec
from msgspec import Struct

from bench.analysis.verdicts.case import Case, History
from bench.analysis.verdicts.counters import (
    Deltas,
    SpeculationCount,
    cached_prompt_tokens,
    difference,
    mean_of_one,
    speculation,
)
from bench.analysis.verdicts.firstreplay import FirstReplays
from bench.analysis.verdicts.history import RouteHistory
from bench.analysis.verdicts.numbers import Draft, Tokens, numbers_of
from bench.analysis.verdicts.timing import times
from bench.analysis.verdicts.verdict import judge, judge_wave
from bench.analysis.verdicts.waves import (
    WaveBook,
    as_one,
    completed,
    drafted_in,
    expected_of,
    longest_of,
    not_split,
    on_its_own,
    served_in,
    window_of,
)
from bench.engines import DIALECTS
from bench.engines.base import Dialect
from bench.records import Exchange, Measurement, RunInfo, ServerFacts, Speculation


class Measurer:
    """Measures the exchanges of one run, one after the other."""

    def __init__(self, info: RunInfo) -> None:
        self._info = info
        self._routes: defaultdict[str, RouteHistory] = defaultdict(RouteHistory)
        self._order = 0
        self._waves = WaveBook()
        self._first = FirstReplays()

    def take(self, exchange: Exchange) -> list[Measurement]:
        """What is known with the next exchange of a trial: its own measurement, or those of its wave
        once all of them are in. A wave whose rest never came is told with what comes after it, and so is
        a first replay that missed."""
        found = self._torn(self._waves.torn_by(exchange))
        if exchange.wave is None:
            return [*found, *self._first.take(self.add(exchange), exchange.prompt.sha256)]
        members = self._waves.take(exchange)
        whole = self._wave(members, complete=True) if members else []
        return [*found, *self._first.decide(), *whole]

    @property
    def undecided(self) -> str | None:
        """Id of a trial whose measurement is held back: a first replay that missed (`firstreplay.py`)."""
        return self._first.undecided

    def close_wave(self) -> list[Measurement]:
        """The requests of a wave that was cut off, when a session of the run has ended."""
        return self._torn(self._waves.close())

    def decide(self) -> list[Measurement]:
        """What is held back, when nothing more comes that it could be judged by."""
        return self._first.decide()

    def end(self) -> list[Measurement]:
        """What is left when there are no more exchanges."""
        return [*self.close_wave(), *self.decide()]

    def add(self, exchange: Exchange) -> Measurement:
        """Numbers and verdict of the next exchange of the run, which was sent alone."""
        dialect = dialect_of(exchange)
        history = self._routes[exchange.trial.route]
        history.observe(exchange, dialect)
        moved = difference(exchange.before, exchange.after, dialect)
        past = history.before(exchange, dialect, moved)
        case = self._case(exchange, _Beside(history=past, deltas=moved))
        verdict = judge(case)
        measured = msgspec.structs.replace(case.numbers, verdict=verdict)
        history.remember(exchange, measured, case.history.change is not None)
        return measured

    def _torn(self, members: list[Exchange]) -> list[Measurement]:
        return [*self._first.decide(), *self._wave(members, complete=False)] if members else []

    def _wave(self, members: list[Exchange], *, complete: bool) -> list[Measurement]:
        """Each request by itself, and what was counted for all of them together."""
        whole = as_one(members)
        wave, dialect = members[0].wave, dialect_of(whole)
        assert wave is not None  # noqa: S101 - it is a wave
        history = self._routes[whole.trial.route]
        history.observe(whole, dialect)
        moved = difference(whole.before, whole.after, dialect)
        change, detail = history.change_within(whole, dialect, moved)
        facts = facts_of(self._info.facts.get(whole.trial.route), whole, dialect)
        cases, unsplit = [], not_split(wave.size)
        for member, served_s in zip(map(on_its_own, members), served_in(moved, members), strict=True):
            past = msgspec.structs.replace(
                history.before(member, dialect, unsplit), cold_ttft_s=None, tier_ttft_s=None
            )
            beside = _Beside(history=past, facts=facts, deltas=unsplit, served_s=served_s)
            cases.append(self._case(member, beside))
        together = _Beside(
            history=History(change=change, change_detail=detail),
            deltas=moved,
            facts=facts,
            requests=wave.size,
            longest=longest_of([case.numbers for case in cases]),
            expected=expected_of([case.expected for case in cases]),
            drafted=drafted_in([case.counted for case in cases]),
        )
        whole = completed(whole, [case.numbers for case in cases])
        case = self._case(whole, together, counted=False)
        window = window_of(case.numbers, case.deltas, members, [one.numbers for one in cases])
        verdicts = judge_wave(case, cases, complete=complete)
        history.remember_wave(members, restarted=change is not None)
        return [
            msgspec.structs.replace(one.numbers, verdict=verdict, window=window)
            for one, verdict in zip(cases, verdicts, strict=True)
        ]

    def skip(self, exchange: Exchange) -> list[Measurement]:
        """Take notice of a warm-up or priming exchange: its pages and prompt matter, its numbers do not.
        What is known with it of earlier ones."""
        found = self._torn(self._waves.torn_by(exchange))
        dialect = dialect_of(exchange)
        history = self._routes[exchange.trial.route]
        moved = difference(exchange.before, exchange.after, dialect)
        change, _ = history.change_within(exchange, dialect, moved)
        history.observe(exchange, dialect)
        if exchange.purpose == "prime":
            found += self._first.decide(hit=self._decides(exchange) and self._holds(exchange, moved))
            history.primed(exchange)
        history.turn_page(exchange, restarted=change is not None)
        return found

    def _decides(self, exchange: Exchange) -> bool:
        replayed = exchange.trial.condition == "replay" and exchange.wave is None
        return replayed and self._first.waits_for(exchange.trial.route, exchange.prompt.sha256)

    def _holds(self, exchange: Exchange, moved: Deltas) -> bool:
        """Whether a replay that is not measured reused what it should."""
        past = self._routes[exchange.trial.route].before(exchange, dialect_of(exchange), moved)
        verdict = judge(self._case(exchange, _Beside(history=past, deltas=moved), counted=False))
        return verdict.valid and verdict.reuse == "held"

    def _case(self, exchange: Exchange, beside: _Beside, *, counted: bool = True) -> Case:
        """`counted`: it has a place of its own in the order of the run."""
        dialect = dialect_of(exchange)
        declared = self._declared(exchange.trial.route)
        facts = beside.facts or facts_of(self._info.facts.get(exchange.trial.route), exchange, dialect)
        deltas = beside.deltas
        reported = dialect.reported(exchange.reported)
        tokens = Tokens.of(exchange, deltas, reported, dialect)
        clock = times(exchange, tokens.output, _served_s(deltas, reported, beside.served_s))
        cached = cached_prompt_tokens(deltas, facts, tokens.prompt, beside.requests)
        drafted = _drafted(beside, reported, facts, tokens.output)
        expected = beside.expected
        if exchange.trial.follows and beside.requests == 1:
            prompt = tokens.prompt or exchange.prompt.tokens
            shared = exchange.prompt.shared or (prompt, prompt)
            expected = _expected(shared, prompt, dialect, facts, declared)
        draft = Draft(
            exchange=exchange,
            deltas=deltas,
            reported=reported,
            tokens=tokens,
            clock=clock,
            cached=cached,
            counted=drafted,
            expected=expected,
            speculates=declared is not None or bool(facts.num_speculative_tokens),
        )
        numbers = numbers_of(draft, self._info.id, self._order)
        self._order += counted
        return Case(
            exchange=exchange,
            numbers=numbers,
            dialect=dialect,
            facts=facts,
            declared=declared,
            deltas=deltas,
            cached=cached,
            counted=drafted,
            times=clock,
            expected=expected,
            history=beside.history,
            requests=beside.requests,
            longest=beside.longest,
        )

    def _declared(self, route: str) -> Speculation | None:
        try:
            return self._info.suite.route(route).speculation
        except KeyError:
            return None


def measure_all(info: RunInfo, exchanges: Iterable[Exchange]) -> Iterator[Measurement]:
    """Measurements of all trials of a run, in order; warm-ups and primings are only taken notice of.

    Those of a wave come together, after its last exchange.
    """
    for found in measure_each(info, exchanges):
        yield from found


def measure_each(info: RunInfo, exchanges: Iterable[Exchange]) -> Iterator[list[Measurement]]:
    """The same, as what is known with each exchange, and with the end of them."""
    measurer = Measurer(info)
    for exchange in exchanges:
        yield measurer.take(exchange) if exchange.purpose == "trial" else measurer.skip(exchange)
    yield measurer.end()


def _drafted(
    beside: _Beside, reported: dict[str, float], facts: ServerFacts, output: int | None
) -> SpeculationCount:
    """What counters tell of drafts; where they do not, what was found of the wave's members."""
    # Each request's prefill yields a token without a step.
    stepped = None if output is None else output - (beside.requests - 1)
    found = speculation(beside.deltas, reported, facts, stepped)
    return beside.drafted if found.draft_tokens is None and beside.drafted is not None else found


def _expected(
    shared: tuple[int, int],
    prompt: int,
    dialect: Dialect,
    facts: ServerFacts,
    declared: Speculation | None,
) -> tuple[int, int] | None:
    """Least and most tokens that a prompt reuses which has `shared` (least, most) ones in common with what
    the server has computed."""
    ends = [dialect.expected_cached(tokens, prompt, facts, declared) for tokens in shared]
    known = [one for one in ends if one is not None]
    return (known[0][0], known[-1][1]) if len(known) == len(ends) else None


def dialect_of(exchange: Exchange) -> Dialect:
    """The dialect that explains an exchange; `generic` for an engine this version does not know."""
    return DIALECTS.get(exchange.engine, DIALECTS["generic"])


def facts_of(known: ServerFacts | None, exchange: Exchange, dialect: Dialect) -> ServerFacts:
    """What the run recorded of a server, completed from the exchange's own pages."""
    pages = [page for page in (exchange.after, exchange.before) if page is not None and page.values]
    scraped = dialect.facts({}, pages[0].values, pages[0].info) if pages else _facts_untold(dialect)
    if known is None:
        return scraped
    missing = {
        field: getattr(scraped, field)
        for field in ServerFacts.__struct_fields__
        if getattr(known, field) is None and getattr(scraped, field) is not None
    }
    flags = {**scraped.flags, **known.flags}
    return msgspec.structs.replace(known, **missing, flags=flags)


@cache
def _facts_untold(dialect: Dialect) -> ServerFacts:
    """Where there is no page to read them from."""
    return dialect.facts({}, {}, {})


def _served_s(deltas: Deltas, reported: dict[str, float], at_most_s: float | None) -> float | None:
    """How long the server itself says it decoded this request; in a wave, how long it can have been."""
    own = reported.get("decode_s")
    if own is None:
        own = mean_of_one(deltas, "decode")
    return at_most_s if own is None else own


class _Beside(Struct, frozen=True, kw_only=True):
    """What a case needs beside its exchange, where that is not in it."""

    history: History
    deltas: Deltas
    facts: ServerFacts | None = None
    expected: tuple[int, int] | None = None
    drafted: SpeculationCount | None = None
    """What replies say, where counters say nothing."""
    served_s: float | None = None
    """The longest that the server can have decoded this request of a wave."""
    requests: int = 1
    longest: tuple[int, int] | None = None
