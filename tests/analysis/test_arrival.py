"""Every measurement beside its exchange, however long it was held back; pages are compared once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from analysis_cases import exchange, page, run
from msgspec import structs
from wave_cases import pages, wave

from bench.analysis.statistics.arrival import curve_of, measured_with_curves, with_exchanges
from bench.analysis.verdicts import continuity, measure
from bench.analysis.verdicts.counters import Deltas, difference
from bench.analysis.verdicts.firstreplay import is_first_miss
from bench.analysis.verdicts.measure import measure_all
from bench.engines.base import Dialect
from bench.records import Exchange, Measurement, Scrape, ServerFacts

FACTS = ServerFacts(
    engine="vllm", version="0.32.0", block_size=16, prefix_caching=True, reports_cached_tokens=True
)


def replay(number: int, cached: int) -> Exchange:
    one = exchange("replay", cached=cached, ttft_ms=50 if cached else 1000)
    return structs.replace(one, trial=structs.replace(one.trial, id=f"replay/{number}", replay=number))


def session() -> list[Exchange]:
    """A cold prompt, a first replay that misses as this server's do, one that hits, and a wave."""
    return [exchange("cold", cached=0, sha="p1"), replay(1, 0), replay(2, 992), *wave(3, cached=0)]


def flat(found: Iterable[list[tuple[Measurement, Exchange]]]) -> list[tuple[Measurement, Exchange]]:
    return [pair for together in found for pair in together]


def test_each_measurement_comes_with_its_own_exchange() -> None:
    info = run(facts=FACTS)
    found = flat(with_exchanges(info, session()))
    assert [one for one, _ in found] == list(measure_all(info, session()))
    assert len(found) == 6
    assert [one.trial_id for one, _ in found] == [beside.trial.id for _, beside in found]
    assert is_first_miss(found[1][0])  # held back until the second replay was there


def test_a_first_replay_that_was_held_back_keeps_its_curve() -> None:
    rows, curves = measured_with_curves(run(facts=FACTS), session())
    assert is_first_miss(rows[1])
    assert {trial for _, trial, _ in curves} == {row.trial_id for row in rows}


def test_two_attempts_of_a_trial_are_two_exchanges() -> None:
    again = [structs.replace(exchange(sha=f"p{attempt}"), attempt=attempt) for attempt in (1, 2)]
    assert [beside.attempt for _, beside in flat(with_exchanges(run(), again))] == [1, 2]


def test_a_long_curve_is_thinned_and_keeps_its_ends() -> None:
    long = exchange(output=1000)
    ((row, beside),) = flat(with_exchanges(run(), [long]))
    whole, thinned = curve_of(row, beside), curve_of(row, beside, most=100)
    assert whole is not None and thinned is not None
    assert (len(whole[0]), len(thinned[0])) == (1000, 100)
    assert (thinned[0][0], thinned[0][-1]) == (1, 1000)


def compared(monkeypatch: pytest.MonkeyPatch, exchanges: Iterable[Exchange]) -> Counter[tuple[int, int]]:
    """How often each pair of pages was compared while these were measured."""
    seen: Counter[tuple[int, int]] = Counter()

    def counting(before: Scrape | None, after: Scrape | None, dialect: Dialect) -> Deltas:
        if before is not None and after is not None:
            seen[before.at_ns, after.at_ns] += 1
        return difference(before, after, dialect)

    monkeypatch.setattr(measure, "difference", counting)
    monkeypatch.setattr(continuity, "difference", counting)
    list(measure_all(run(facts=FACTS), exchanges))
    return seen


def paged(number: int, one: Exchange) -> Exchange:
    """The exchange between two pages whose times tell them apart."""
    before, after = (
        structs.replace(page(generation_tokens=64.0 * (number + end)), at_ns=10 * number + end)
        for end in (0, 1)
    )
    return structs.replace(one, before=before, after=after)


def test_the_pages_of_an_exchange_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    primed = structs.replace(replay(2, 992), purpose="prime")
    alone = [exchange("cold", cached=0), replay(1, 0), primed, exchange("salted", sha="p2")]
    seen = compared(monkeypatch, [paged(number, one) for number, one in enumerate(alone)])
    assert {pair: count for pair, count in seen.items() if count > 1} == {}
    assert len(seen) == 4 + 3  # within each, and between each and the next


def test_the_pages_of_a_wave_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = (structs.replace(one, at_ns=place) for place, one in enumerate(pages(3), 1))
    assert compared(monkeypatch, wave(3, before=before, after=after)) == {(1, 2): 1}
