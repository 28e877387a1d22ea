"""No claim where the laws of decoding do not carry it: routes that may never meet, leads that may end."""

from __future__ import annotations

import numpy as np
import pytest
from decision_samples import trial
from msgspec import structs

from bench.analysis.decisions.crossover import crossovers, one_way
from bench.analysis.decisions.lines import report_lines
from bench.analysis.decisions.meeting import with_end
from bench.analysis.decisions.reused import Reuse, reuse_crossovers
from bench.records import Crossover, Estimate, Measurement
from bench.report.choice import spans
from bench.report.words import crossover_line

Law = tuple[float, float, float, float, float]
"""TTFT a + b t + c t^2 of a prompt of t tokens; a step of d0 + d1 times the context."""

TANGENT: dict[str, Law] = {  # of 64,000 tokens A comes as near as 6.6 s to B, at 15,504 output tokens
    "A": (0.0967181674461916, 0.0003250531425584551, 1.39632989915439e-09, 0.009414469328374846, 2.5874e-07),
    "B": (0.12388632142946993, 0.00017312691142032, 8.860848422151626e-10, 0.01286691055772026, 2.1532e-07),
}
TWICE: dict[str, Law] = {  # behind 64,000 tokens C leads from 6,395 to 12,300, by 0.9 s at most
    "C": (0.0846, 0.00059849, 7.468e-10, 0.0107859, 2.22733e-07),
    "B": (0.2603, 0.00046692, 7.28e-10, 0.0263129, 1.10377e-08),
}
TIERS = (8_000, 64_000, 256_000)


def measured(laws: dict[str, Law], *, seed: int, noise: float, trials: int = 6) -> list[Measurement]:
    rng = np.random.default_rng(seed)
    return [
        trial(
            name,
            (a + b * tier + c * tier**2) * rng.lognormal(0, noise),
            (d0 + d1 * (tier + 256)) * rng.lognormal(0, noise),
            tier=tier,
            output=512,
            number=number + 1,
        )
        for name, (a, b, c, d0, d1) in laws.items()
        for tier in TIERS
        for number in range(trials)
    ]


def gap(laws: dict[str, Law], tier: int, outputs: np.ndarray) -> np.ndarray:
    """Latency of the first route less that of the second one."""
    one, other = (
        a + b * tier + c * tier**2 + (outputs - 1) * (d0 + d1 * (tier + outputs / 2))
        for a, b, c, d0, d1 in laws.values()
    )
    return np.asarray(one - other)


def at(found: list[Crossover], tier: int, route: str) -> Crossover:
    (one,) = [one for one in found if (one.tier, one.route) == (tier, route)]
    return one


def test_where_decode_slows_so_much_that_routes_never_meet_no_crossover_is_claimed() -> None:
    assert (gap(TANGENT, 64_000, np.arange(1.0, 1e6)) > 6).all()
    rows = measured(TANGENT, seed=138, noise=0.003)
    found = crossovers(rows)
    for route in ("A", "B"):
        one = at(found, 64_000, route)
        assert (one.status, one.wins, one.basis) == ("undecided", None, None)
        assert (one.output_tokens, one.low, one.high, one.until) == (None, None, None, None)
        assert any("so much that the routes may never meet" in text for text in one.warnings)
        # straight lines are trusted up to twice the 512 measured tokens: so far B is faster
        assert (one.ahead, one.ahead_from, one.ahead_to) == ("B", None, 1_024.0)
    mine = [one for one in one_way(found) if one.tier == 64_000]
    assert report_lines([], crossovers=mine) == ["B beats A up to 1,020 output tokens at least at 64,000"]
    assert "undecided: straight lines meet at about 17," in crossover_line(mine[0])
    first, second = spans(mine, ["A", "B"])
    assert (first.routes, first.end, second.routes) == (("B",), 1_024.0, ("A", "B"))


@pytest.mark.parametrize("by_laws", [False, True])
def test_a_lead_whose_end_is_not_sure_is_told_as_one_that_may_end(by_laws: bool) -> None:
    k = np.arange(1.0, 100_000.0)
    assert k[1:][np.diff(np.sign(gap(TWICE, 64_000, k))) != 0] == pytest.approx([6_395, 12_300], abs=2)
    rows = measured(TWICE, seed=6, noise=0.002)
    found = reuse_crossovers(rows, Reuse(share=0.0)) if by_laws else crossovers(rows)
    for route in ("C", "B"):
        one = at(found, 64_000, route)
        assert (one.status, one.high) == ("crosses", None)
        assert (one.until, one.until_low, one.until_high) == (None, None, None)
        assert one.may_end == pytest.approx(11_630, abs=30)
        place = f"from about {one.may_end:,.0f} output tokens on"
        assert f"the lead of C may end {place}: the spread of that place is open" in one.warnings
    (one,) = [one for one in one_way(found) if one.tier == 64_000]
    met, may_end = one.output_tokens or 0.0, one.may_end or 0.0
    (line,) = report_lines([], crossovers=[one])
    assert line.startswith(
        f"C beats B from about {round(met, -1):,.0f} to perhaps {round(may_end, -2):,.0f} "
    )
    assert f" to perhaps {may_end:,.0f}; extrapolated" in crossover_line(one)
    stretches = spans([one], ["B", "C"])
    assert [each.routes for each in stretches] == [("B",), ("C",), ("B", "C")]
    assert [each.start for each in stretches] == [1.0, met, may_end]


PAIR = Crossover(
    route="a", base="b", tier=1_000, condition="cold", status="crosses", wins="above", output_tokens=300.0,
    low=250.0, high=350.0, spread="interval", samples=(6, 6),
)  # fmt: skip


def ending_at(low: float | None, high: float | None, known: float = 20_000.0) -> Crossover:
    return with_end(PAIR, Estimate(value=9_000.0, low=low, high=high, spread="interval", samples=6), known)


@pytest.mark.parametrize(("low", "high"), [(None, 9_500.0), (8_000.0, None), (None, None)])
def test_an_end_is_a_fact_only_where_both_ends_of_its_spread_are_known(
    low: float | None, high: float | None
) -> None:
    sure = ending_at(8_000.0, 9_500.0)
    assert (sure.until, sure.until_low, sure.until_high) == (9_000.0, 8_000.0, 9_500.0)
    assert (sure.may_end, sure.warnings) == (None, ())
    one = ending_at(low, high)
    assert (one.until, one.until_low, one.until_high, one.may_end) == (None, None, None, 9_000.0)
    (told,) = one.warnings
    assert told.startswith("the lead of a may end from about 9,000 output tokens on")


def test_an_unsure_end_behind_unmeasured_contexts_is_a_warning_alone() -> None:
    one = ending_at(8_000.0, None, known=5_000.0)
    assert (one.until, one.may_end) == (None, None)
    (told,) = one.warnings
    assert told.endswith("more context than any that was measured: the spread of that place is open")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"wins": "below"}, "a beats b below about 300 output tokens and again beyond perhaps 9,000 at"),
        ({"status": "always", "wins": None}, "a beats b up to perhaps 9,000 output tokens at"),
        (
            {"output_tokens": 1.5, "low": 1.2, "high": 1.8},
            "a beats b from the second output token up to perhaps 9,000 at",
        ),
        (
            {"status": "undecided", "wins": None, "ahead": "a", "ahead_from": 5.2},
            "a beats b from at most 5.2 to perhaps 9,000 output tokens at",
        ),
    ],
)
def test_every_headline_says_that_a_lead_may_end(changes: dict[str, object], said: str) -> None:
    one = structs.replace(PAIR, may_end=9_000.0, **changes)
    (line,) = report_lines([], crossovers=[one])
    assert line.startswith(said)
    assert "perhaps 9,000" in crossover_line(one)
