"""Do the intervals hold what they promise? Studies with known truth, counted.

    python benchmarks/intervals.py [--studies 400]

Generates seeded studies from the simulator's laws (prefill a + b n + c n^2, step time d0 + d1 n,
log-normal noise between trials), hands them to the public functions of `bench.analysis`, and counts
how often the 95% intervals contain the truth and how often identical routes are called different.
Prints the table of docs/statistics.md, and the time a run of 10,000 trials takes.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Mapping

import numpy as np

from bench.analysis.decisions.crossover import crossovers
from bench.analysis.decisions.reused import Reuse, reuse_crossovers
from bench.analysis.decisions.winner import winner_map
from bench.analysis.statistics import decode, prefill
from bench.analysis.statistics.compare import compare
from bench.analysis.statistics.summary import summarise
from bench.records import Condition, Estimate, Measurement, Verdict

TIERS = (8_000, 64_000, 256_000, 564_000)
# a s, b s/token, c s/token^2, d0 s, d1 s/token of context
LAWS = {"target-only": (0.2, 4.0e-4, 1.0e-9, 0.022, 1.6e-7), "mtp4": (0.2, 4.8e-4, 1.36e-9, 0.008, 4.0e-8)}
NOISE = {"log-normal": (0.01, 0.04), "skewed": (0.01, 0.04)}
OUTPUT = 512
REUSED = 0.75
UNSEEN = 128_000  # the TTFT law is asked between its tiers
BEYOND = 1_000_000  # the decode law beyond them


def truth(law: tuple[float, ...], tier: int) -> tuple[float, float]:
    """TTFT and time per token."""
    a, b, c, d0, d1 = law
    return a + b * tier + c * tier**2, d0 + d1 * (tier + OUTPUT / 2)


def draw(rng: np.random.Generator, kind: str, scale: float, trials: int) -> np.ndarray:
    """Factors with median 1."""
    if kind == "log-normal":
        return rng.lognormal(0, scale, trials)
    # one-sided, as queues and other tenants make it: exponential delays moved to median 1
    return 1 + scale * (rng.exponential(1, trials) - math.log(2))


def measurements(
    rng: np.random.Generator,
    laws: Mapping[str, tuple[float, ...]],
    tiers: tuple[int, ...],
    trials: int,
    kind: str,
    conditions: tuple[Condition, ...] = ("cold",),
) -> list[Measurement]:
    """A study as the runner would have measured it."""
    rows: list[Measurement] = []
    for route, law in laws.items():
        for tier in tiers:
            ttft, tpot = truth(law, tier)
            for condition in conditions:
                starts = ttft * draw(rng, kind, NOISE[kind][0], trials)
                steps = tpot * draw(rng, kind, NOISE[kind][1], trials)
                for i in range(trials):
                    rows.append(_row(route, tier, condition, i, float(starts[i]), float(steps[i])))
    return rows


def _row(route: str, tier: int, condition: Condition, i: int, ttft: float, tpot: float) -> Measurement:
    return Measurement(
        trial_id=f"{route}/{tier}/{condition}/{i + 1}",
        route=route,
        tier=tier,
        condition=condition,
        repeat=i + 1,
        order=i,
        prompt_tokens=tier,
        output_tokens=OUTPUT,
        ttft_s=ttft,
        total_s=ttft + (OUTPUT - 1) * tpot,
        tpot_s=tpot,
        decode_tok_s=1 / tpot,
        verdict=Verdict(valid=True),
    )


def holds(estimate: Estimate | None, value: float) -> bool:
    """Whether there is an interval that contains a value."""
    if estimate is None or estimate.spread != "interval":
        return False
    return contains(estimate.low, estimate.high, value)


def contains(low: float | None, high: float | None, value: float) -> bool:
    """Whether an interval contains a value; an open end contains everything on its side."""
    return (-math.inf if low is None else low) <= value <= (math.inf if high is None else high)


def _reuse_truth(tier: int) -> float:
    """Crossover with a share of the prompt cached, by bisection on the true latencies."""

    def total(law: tuple[float, ...], k: float) -> float:
        a, b, c, d0, d1 = law
        m = REUSED * tier
        return a + b * (tier - m) + c * (tier**2 - m**2) + (k - 1) * (d0 + d1 * (tier + k / 2))

    low, high = 1.0, 1e6
    for _ in range(60):
        middle = (low + high) / 2
        ahead = total(LAWS["mtp4"], middle) > total(LAWS["target-only"], middle)
        low, high = (middle, high) if ahead else (low, middle)
    return low


def coverage(studies: int, trials: int, kind: str) -> dict[str, float]:
    """Share of studies whose interval contains the truth, by what it is an interval of."""
    tier = TIERS[2]
    (ttft_b, tpot_b), (ttft_a, tpot_a) = (truth(LAWS[name], tier) for name in ("target-only", "mtp4"))
    crossing = 1 + (ttft_a - ttft_b) / (tpot_b - tpot_a)
    a, b, c, d0, d1 = LAWS["mtp4"]
    hits = dict.fromkeys(("crossover", "ratio", "difference", "median", "law", "decode", "reuse"), 0)
    reused = _reuse_truth(tier)
    decided = 0
    for number in range(studies):
        rng = np.random.default_rng((number, trials, len(kind)))
        rows = measurements(rng, LAWS, (tier,), trials, kind)
        (one,) = crossovers(rows, "target-only")
        decided += one.status == "crosses"
        if one.output_tokens is not None:
            found = Estimate(value=one.output_tokens, low=one.low, high=one.high, spread=one.spread)
            hits["crossover"] += holds(found, crossing)
        compared = {x.quantity: x for x in compare(rows, "target-only")}
        hits["ratio"] += holds(compared["decode_tok_s"].ratio, tpot_b / tpot_a)
        hits["difference"] += holds(compared["ttft_s"].difference, ttft_a - ttft_b)
        hits["median"] += holds(summarise(rows)[0].estimates["ttft_s"], ttft_b)
        wide = measurements(rng, LAWS, TIERS, trials, kind)
        law, steps = prefill.fit(wide)["mtp4"], decode.fit(wide)["mtp4"]
        for one in reuse_crossovers(wide, Reuse(share=REUSED), "target-only"):
            if one.tier == tier and one.output_tokens is not None:
                found = Estimate(value=one.output_tokens, low=one.low, high=one.high, spread=one.spread)
                hits["reuse"] += holds(found, reused)
        hits["law"] += holds(law.predict(UNSEEN), a + b * UNSEEN + c * UNSEEN**2)
        far = abs(float(steps.at(BEYOND)) - (d0 + d1 * BEYOND))
        hits["decode"] += far <= float(steps.half_at(BEYOND))
    shares = {name: count / studies for name, count in hits.items()}
    shares["crossover"] = hits["crossover"] / decided if decided else math.nan
    return shares | {"decided": decided / studies}


def false_alarms(studies: int, trials: int, kind: str) -> dict[str, float]:
    """Share of studies of two identical routes that are called different, or given a crossover."""
    laws = {"a": LAWS["mtp4"], "b": LAWS["mtp4"]}
    alarms = dict.fromkeys(("ttft_s", "decode_tok_s", "crossover decided"), 0)
    for number in range(studies):
        rows = measurements(np.random.default_rng((number, trials, 77)), laws, (TIERS[2],), trials, kind)
        compared = {x.quantity: x for x in compare(rows, "a")}
        for quantity in ("ttft_s", "decode_tok_s"):
            alarms[quantity] += compared[quantity].verdict != "~"
        (one,) = crossovers(rows, "a")
        alarms["crossover decided"] += one.status != "undecided"
    return {name: count / studies for name, count in alarms.items()}


PARTLY = {
    "from": {"base": (100.0, 0.030), "route": (100.0, 0.015)},
    "to": {"base": (21.0, 0.030), "route": (20.0, 0.030)},
}
"""TTFT and time per token of pairs that differ in one of them only: decided from, or up to, an output."""
OFF = (0.0, 0.005, 0.01, 0.02, 0.04)
"""How much larger the other one is made on the winning route, in turn: seen in few studies, or in many."""


def partly(studies: int, trials: int, kind: str) -> dict[str, float]:
    """Of undecided pairs that are called decided from or up to an output length: share that holds.

    "From n on" holds where the true lines meet at n or earlier, "up to n" where they meet at n or later.
    """
    found: dict[str, float] = {}
    for side, laws in PARTLY.items():
        said = held = 0
        for number in range(studies):
            rng = np.random.default_rng((number, trials, len(kind), len(side)))
            more = OFF[number % len(OFF)]
            ttft, tpot = laws["route"]
            pair = {
                "base": laws["base"],
                "route": (ttft * (1 + more), tpot) if side == "from" else (ttft, tpot * (1 + more)),
            }
            (one,) = crossovers(_pair(rng, pair, trials, kind), "base")
            late, slow = (pair["route"][i] - pair["base"][i] for i in (0, 1))
            if side == "from" and one.ahead_from is not None:
                said += 1
                held += one.ahead == "route" and 1 - late / slow <= one.ahead_from
            if side == "to" and one.ahead_to is not None:
                said += 1
                held += one.ahead == "route" and (slow <= 0 or 1 - late / slow >= one.ahead_to)
        found[f"{side}, said"] = said / studies
        found[side] = held / said if said else math.nan
    return found


def _pair(
    rng: np.random.Generator, pair: Mapping[str, tuple[float, float]], trials: int, kind: str
) -> list[Measurement]:
    """Trials of two routes on one tier."""
    rows = []
    for route, (ttft, tpot) in pair.items():
        starts, steps = (
            ttft * draw(rng, kind, NOISE[kind][0], trials),
            tpot * draw(rng, kind, NOISE[kind][1], trials),
        )
        rows += [_row(route, TIERS[2], "cold", i, float(starts[i]), float(steps[i])) for i in range(trials)]
    return rows


def speed() -> dict[str, float]:
    """CPU seconds for each step over a run of 10,000 trials."""
    base = LAWS["mtp4"]
    laws = {f"r{i}": (*base[:3], base[3] * (1 + i / 2), base[4] * (1 + i / 2)) for i in range(5)}
    tiers = tuple(int(t) for t in np.geomspace(1000, 1_000_000, 10))
    rows = measurements(np.random.default_rng(1), laws, tiers, 67, "log-normal", ("cold", "salted", "replay"))
    steps: dict[str, Callable[[], object]] = {
        "summarise": lambda: summarise(rows),
        "compare": lambda: compare(rows, "r0"),
        "crossovers": lambda: crossovers(rows, "r0"),
        "winner map": lambda: winner_map(rows),
    }
    taken = {}
    for name, step in steps.items():
        start = time.process_time()  # of this process: the machine may be busy with others
        step()
        taken[name] = time.process_time() - start
    return {"trials": float(len(rows)), **taken, "all": sum(taken.values())}


def main() -> None:
    """Prints everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=400)
    studies = parser.parse_args().studies
    print(
        "| noise | trials a side | crossover | ratio | difference | median | TTFT law | decode law, beyond | "
        "crossover, reused | crossover decided |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for kind in NOISE:
        for trials in (5, 10):
            found = coverage(studies, trials, kind)
            print(
                f"| {kind} | {trials} | " + " | ".join(f"{share:.1%}" for share in found.values()) + " |",
                flush=True,
            )
    print("\n| noise | trials a side | TTFT called different | decode called different | crossover decided |")
    print("|---|---|---|---|---|")
    for kind in NOISE:
        for trials in (5, 10):
            found = false_alarms(studies, trials, kind)
            print(
                f"| {kind} | {trials} | " + " | ".join(f"{share:.1%}" for share in found.values()) + " |",
                flush=True,
            )
    print("\n| noise | trials a side | said from | holds | said up to | holds |\n|---|---|---|---|---|---|")
    for kind in NOISE:
        for trials in (2, 3, 5, 10):
            found = partly(studies, trials, kind)
            print(f"| {kind} | {trials} | " + " | ".join(f"{share:.1%}" for share in found.values()) + " |")
    print()
    for name, value in speed().items():
        print(f"{name}: {value:,.2f}" + ("" if name == "trials" else " s"))


if __name__ == "__main__":
    main()
