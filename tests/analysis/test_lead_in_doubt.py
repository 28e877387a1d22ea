"""No claim where the laws of decoding do not carry it: routes that may never meet, leads that may end."""

from __future__ import annotations

import numpy as np
from decision_samples import trial

from bench.analysis.decisions.crossover import crossovers, one_way
from bench.analysis.decisions.lines import report_lines
from bench.records import Crossover, Measurement
from bench.report.choice import spans
from bench.report.words import crossover_line

Law = tuple[float, float, float, float, float]
"""TTFT a + b t + c t^2 of a prompt of t tokens; a step of d0 + d1 times the context."""

TANGENT: dict[str, Law] = {  # of 64,000 tokens A comes as near as 6.6 s to B, at 15,504 output tokens
    "A": (0.0967181674461916, 0.0003250531425584551, 1.39632989915439e-09, 0.009414469328374846, 2.5874e-07),
    "B": (0.12388632142946993, 0.00017312691142032, 8.860848422151626e-10, 0.01286691055772026, 2.1532e-07),
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
