"""Do the intervals hold where it is hard? Four cases that pull at their assumptions, counted.

    python -m benchmarks.coverage [--studies 300]

Texts that differ from one another, crossovers near the end of the measured window, crossovers far out by
decode laws, and reports of many comparisons. Prints the tables of docs/statistics.md, "Hard cases".
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator

import numpy as np
from msgspec import structs

from bench.analysis.decisions.crossover import crossovers
from bench.analysis.statistics.compare import SIGNIFICANT, compare
from bench.analysis.statistics.curves import Arrival, curve_key
from bench.analysis.statistics.summary import summarise
from bench.records import Condition, Crossover, Measurement, Verdict
from benchmarks.intervals import contains

TIER = 8_000
OUTPUT = 128
PAIR = {"base": (1.0, 0.020), "route": (2.0, 0.010)}
"""TTFT and time per token: they meet at 101 tokens."""
BY_TEXT, BETWEEN, TRIAL = 0.08, 0.03, 0.005
"""Log-normal noise on the step time: of a text on all routes, of a text on one route, of a trial."""


def row(
    route: str, tier: int, condition: Condition, repeat: int, ttft: float, tpot: float, pair: str | None
) -> Measurement:
    """One measurement as the runner would have made it."""
    return Measurement(
        trial_id=f"{route}/{tier}/{condition}/{repeat}",
        route=route,
        tier=tier,
        condition=condition,
        repeat=repeat,
        pair=pair,
        prompt_tokens=tier,
        output_tokens=OUTPUT,
        ttft_s=ttft,
        total_s=ttft + (OUTPUT - 1) * tpot,
        tpot_s=tpot,
        decode_tok_s=1 / tpot,
        verdict=Verdict(valid=True),
    )


# --- Texts that differ ----------------------------------------------------------------------------


def of_texts(
    rng: np.random.Generator, laws: dict[str, tuple[float, float]], texts: int, alike: bool
) -> Iterator[Measurement]:
    """A cold prompt and its salted twin for every text; `alike`: both routes find the same texts hard."""
    common = rng.lognormal(0, BY_TEXT, texts)
    for route, (ttft, tpot) in laws.items():
        own = rng.lognormal(0, BETWEEN, texts) * (common if alike else rng.lognormal(0, BY_TEXT, texts))
        for repeat in range(texts):
            for condition in ("cold", "salted"):
                start, step = (ttft, tpot * own[repeat]) * rng.lognormal(0, TRIAL, 2)
                yield row(route, TIER, condition, repeat + 1, start, step, f"{condition}{repeat}")


def texts_counted(studies: int, texts: int, by_text: bool) -> dict[str, str]:
    """Coverage where texts differ, and how often equal routes are told apart."""
    hits: Counter[str] = Counter()
    for number in range(studies):
        rng = np.random.default_rng((number, texts))
        rows = list(of_texts(rng, PAIR, texts, alike=True))
        equal = list(of_texts(rng, dict.fromkeys("ab", (1.0, 0.020)), texts, alike=False))
        if not by_text:  # as if nothing told which trials share a text
            rows, equal = ([structs.replace(one, pair=None) for one in some] for some in (rows, equal))
        step = next(one for one in summarise(rows) if one.condition == "cold").estimates["tpot_s"]
        ratio = next(one.ratio for one in compare(rows, "base") if one.quantity == "tpot_s")
        (met,) = crossovers(rows, "base")
        assert ratio is not None
        hits["said"] += step.spread == "interval"
        hits["median"] += contains(step.low, step.high, PAIR["base"][1])
        hits["ratio"] += contains(ratio.low, ratio.high, 0.5)
        hits["crossover"] += met.output_tokens is not None and contains(met.low, met.high, 101.0)
        hits["told apart"] += any(
            one.verdict in ("higher", "lower")
            for one in compare(equal, "a")
            if one.quantity == "decode_tok_s"
        )
    kind = "95% interval" if hits["said"] else "range"
    names = ("median", "ratio", "crossover", "told apart")
    return {"said": kind} | {name: f"{hits[name] / studies:.1%}" for name in names}


# --- Crossovers near the end of the window, and far out -------------------------------------------


def near_the_end(studies: int, meeting: int, curves_known: bool) -> dict[str, str]:
    """Coverage of crossovers at `meeting` of 128 measured tokens; six trials a side, 5% noise."""
    laws = {"base": (1.0, 0.015), "route": (1.0 + 0.005 * (meeting - 1), 0.010)}
    tokens = np.arange(1.0, OUTPUT + 1)
    told = held = by_curve = 0
    for number in range(studies):
        rng = np.random.default_rng((number, meeting))
        rows, curves = [], dict[tuple[str, str, int], Arrival]()
        for route, (ttft, tpot) in laws.items():
            for repeat in range(6):
                start, step = (ttft, tpot) * (1 + 0.05 * rng.standard_normal(2))
                one = row(route, TIER, "cold", repeat + 1, start, step, None)
                rows.append(one)
                curves[curve_key(one)] = (tokens, start + step * (tokens - 1))
        (met,) = crossovers(rows, "base", curves=curves if curves_known else None)
        told += met.status == "crosses"
        by_curve += met.basis == "curve"
        held += met.status == "crosses" and contains(met.low, met.high, float(meeting))
    return {"by curve": f"{by_curve / told:.0%}", "held": f"{held / told:.1%}"}


FAR = {"route": (150.0, 0.010, 4e-8), "base": (0.0, 0.016, 1e-8)}
"""What is added to the TTFT, d0 and d1: the faster decoding slows sooner."""


def far_out(studies: int, tiers: tuple[int, int], noise: float) -> dict[str, str]:
    """Coverage of a crossover 220 times beyond the measured output, by decode laws through two tiers."""
    n = np.arange(2, 400_000)
    gap = FAR["route"][0] + (n - 1) * (-0.006 + 3e-8 * (tiers[0] + n / 2))
    truth = float(n[np.argmax(gap < 0)])
    told = held = 0
    for number in range(studies):
        rng = np.random.default_rng((number, tiers[1]))
        rows = [
            row(route, tier, "cold", repeat + 1, start, step, None)
            for route, (late, d0, d1) in FAR.items()
            for tier in tiers
            for repeat in range(6)
            for start, step in [
                (tier / 270 + late, d0 + d1 * (tier + OUTPUT / 2)) * rng.lognormal(0, noise, 2)
            ]
        ]
        one: Crossover = next(c for c in crossovers(rows, "base") if c.tier == tiers[0])
        told += one.basis == "slowing"
        held += one.basis == "slowing" and contains(one.low, one.high, truth)
    return {"told": f"{told / studies:.1%}", "held": f"{held / told:.1%}"}


# --- Many comparisons -----------------------------------------------------------------------------

QUANTITIES = ("ttft_s", "decode_tok_s", "total_s")
TIERS = (1_000, 2_000, 4_000, 8_000)


def families(studies: int, texts: int) -> dict[str, str]:
    """Reports of twelve paired comparisons: false differences, and found ones of 10% at two tiers of four."""
    false, any_false, holm_false = 0, 0, 0
    found = holm_found = 0
    for number in range(studies):
        rng = np.random.default_rng((number, texts))
        told, corrected = _told(_report(rng, texts, {}))
        false, any_false, holm_false = (
            false + sum(told),
            any_false + any(told),
            holm_false + any(corrected),
        )
        told, corrected = _told(_report(rng, texts, dict.fromkeys(TIERS[:2], 1.10)))
        found, holm_found = found + sum(told[:6]), holm_found + sum(corrected[:6])
    return {
        "each": f"{false / studies / 12:.1%}",
        "any": f"{any_false / studies:.0%}",
        "found": f"{found / studies / 6:.0%}",
        "any, Holm": f"{holm_false / studies:.0%}",
        "found, Holm": f"{holm_found / studies / 6:.0%}",
    }


def _report(rng: np.random.Generator, texts: int, slower: dict[int, float]) -> list[Measurement]:
    rows = []
    for tier in TIERS:
        for route in "ab":
            factor = slower.get(tier, 1.0) if route == "b" else 1.0
            for repeat in range(texts):
                start, step = (factor, 0.01 * factor) * rng.lognormal(0, 0.03, 2)
                rows.append(row(route, tier, "cold", repeat + 1, start, step, f"{tier}/{repeat}"))
    return rows


def _told(rows: list[Measurement]) -> tuple[list[bool], list[bool]]:
    """Which comparisons show a difference, and which still do when corrected after Holm; by tier."""
    found = [one for one in compare(rows, "a") if one.quantity in QUANTITIES]
    told = [one.verdict in ("higher", "lower") for one in found]
    corrected = [False] * len(found)
    for place, i in enumerate(sorted(range(len(found)), key=lambda i: found[i].p_value or 0.0)):
        if (found[i].p_value or 0.0) >= SIGNIFICANT / (len(found) - place):
            break
        corrected[i] = told[i]
    return told, corrected


def main() -> None:
    """Prints everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=300)
    studies = parser.parse_args().studies
    print(
        "| texts, two trials each | counted by | spread | step median | step ratio | crossover | "
        "equal routes told apart in decode |\n|---|---|---|---|---|---|---|"
    )
    for texts in (3, 5, 6, 10):
        for by_text in (False, True):
            _line(texts, "text" if by_text else "trial", *texts_counted(studies, texts, by_text).values())
    print("\n| crossover at, of 128 | read by | by curve | held |\n|---|---|---|---|")
    for meeting in (60, 110, 126):
        for known in (True, False):
            _line(meeting, "curves" if known else "lines", *near_the_end(studies, meeting, known).values())
    print("\n| tiers | noise | told | held |\n|---|---|---|---|")
    for tiers, noise in (((8_000, 12_000), 0.02), ((8_000, 16_000), 0.02), ((8_000, 64_000), 0.04)):
        _line(f"{tiers[0]:,} and {tiers[1]:,}", f"{noise:.0%}", *far_out(studies, tiers, noise).values())
    print(
        "\n| pairs | each comparison | any of twelve | 10% found | any, Holm | 10% found, Holm |"
        "\n|---|---|---|---|---|---|"
    )
    for texts in (5, 6, 8, 10):
        _line(texts, *families(studies, texts).values())


def _line(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
