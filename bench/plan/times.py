"""What is known of a route's times: from earlier measurements, a calibration, or the run itself. Pure.

A calibration (two small cold prompts) gives b and c of the prefill law. Where a route was only measured
with requests sent together, each counts as its share of the wave.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from msgspec import Struct, structs

from bench.analysis.statistics import decode, prefill
from bench.analysis.statistics.cells import is_turn
from bench.analysis.statistics.decode import DecodeLaw
from bench.analysis.statistics.prefill import PrefillLaw
from bench.records import Measurement, Verdict

TIMING_ERROR = 0.05
"""Assumed error of a single timing, for the range."""
UNCACHED_TOKENS = 2_048
"""Tokens that a replay computes anew where none has shown it: a block or two of a large-block model."""
_CALIBRATION_MIN, _CALIBRATION_MAX = 8_192, 65_536


class RouteModel(Struct, frozen=True, kw_only=True):
    """What is known of one route's times."""

    route: str
    basis: str
    """Where it is from, in words; empty when nothing is known."""
    law: PrefillLaw | None = None
    tilted: tuple[PrefillLaw, ...] = ()
    """The law had the timings erred by +-5% against each other: its range."""
    decode: DecodeLaw | None = None
    ttft_s: dict[str, float] = {}
    """`condition/tier` -> median TTFT measured there (salted counts as cold)."""
    uncached_tokens: int = UNCACHED_TOKENS
    """What a replay computes anew."""
    scale: float = 1.0
    """Measured / expected in this run so far."""
    around_s: float | None = None
    """What one exchange takes beside itself: composing, idle check, scrapes, settling."""

    @property
    def known(self) -> bool:
        return self.law is not None

    def seen_s(self, condition: str, tier: int) -> float | None:
        """The TTFT that was measured there."""
        return self.ttft_s.get(_key(condition, tier))


def learn(route: str, measurements: Iterable[Measurement], *, basis: str = "earlier runs") -> RouteModel:
    """A route's model from measurements of it (others are ignored, invalid and failed ones too).

    With one tier only, TTFT is taken as proportional to the prompt: too short for longer prompts. Waves
    count where no cold prompt was sent alone.
    """
    rows, how = _rows(route, measurements)
    cold = [m for m in rows if m.condition != "replay"]
    if not cold:
        return RouteModel(route=route, basis="")
    law, words = _law(route, rows)
    shift = (1 + TIMING_ERROR, 1 - TIMING_ERROR)
    tilted = [_law(route, _tilted(rows, first, last))[0] for first, last in (shift, shift[::-1])]
    anew = [m.prompt_tokens - m.cached_tokens for m in rows if m.prompt_tokens and m.cached_tokens]
    seen: dict[str, list[float]] = {}
    for m in rows:
        if m.ttft_s is not None and not (m.condition == "replay" and m.cached_tokens == 0):
            seen.setdefault(_key(m.condition, m.tier), []).append(m.ttft_s)
    return RouteModel(
        route=route,
        basis=f"{basis}{how}{words}",
        law=law,
        tilted=tuple(tilted),
        decode=decode.fit(rows).get(route),
        ttft_s={key: median(times) for key, times in seen.items()},
        uncached_tokens=round(median(anew)) if anew else UNCACHED_TOKENS,
    )


def calibration_lengths(tiers: Sequence[int]) -> tuple[int, int]:
    """Two prompt lengths that show b and c cheaply: an eighth of the largest tier, and a quarter of that.

    Kept within 8,192 and 65,536 tokens (and the largest tier), since attention must show beside the
    weights: at 16,384 tokens it may be 5% of the time, no more than the timing error.
    """
    largest = max(tiers)
    long = min(largest, max(_CALIBRATION_MIN, min(_CALIBRATION_MAX, largest // 8)))
    return max(1, long // 4), long


def calibrated(route: str, points: Sequence[tuple[int, float]], tpot_s: float | None = None) -> RouteModel:
    """A route's model from calibration: (prompt tokens, TTFT in seconds) of cold prompts, and a step time."""
    rows = [
        Measurement(
            trial_id=f"{route}/{tokens}/calibration",
            route=route,
            tier=tokens,
            condition="cold",
            prompt_tokens=tokens,
            output_tokens=1,
            ttft_s=ttft_s,
            tpot_s=tpot_s,
            verdict=Verdict(valid=True),
        )
        for tokens, ttft_s in points
        if ttft_s > 0
    ]
    return learn(route, rows, basis="calibration")


def refined(model: RouteModel, done: Iterable[Measurement]) -> RouteModel:
    """The model after what this run has measured: two tiers make a law of their own, one scales the old."""
    rows, how = _rows(model.route, done)
    cold = [m for m in rows if m.condition != "replay" and m.ttft_s is not None]
    if not cold:
        return model
    mine = structs.replace(learn(model.route, rows, basis=f"this run{how}"), around_s=model.around_s)
    if model.law is None or len({m.tier for m in cold}) > 1:
        return mine
    ratios = [
        m.ttft_s / float(model.law.ttft_s(m.prompt_tokens or m.tier)) for m in cold if m.ttft_s is not None
    ]
    return structs.replace(
        model,
        basis=f"{model.basis}, scaled by this run",
        scale=median(ratios),
        decode=_better(mine.decode, model.decode),
        ttft_s={**_rescaled(model.ttft_s, median(ratios)), **mine.ttft_s},
        uncached_tokens=mine.uncached_tokens if any(m.cached_tokens for m in rows) else model.uncached_tokens,
    )


# --- helpers ------------------------------------------------------------------------------------------


def _rows(route: str, measurements: Iterable[Measurement]) -> tuple[list[Measurement], str]:
    """What counts of a route, and in words how, where it is not as it was measured."""
    usable = [m for m in measurements if m.route == route and _usable(m)]
    alone = [m for m in usable if m.concurrency == 1]
    if len(alone) == len(usable) or any(m.condition != "replay" for m in alone):
        return [_plain(m) for m in alone], ""
    return [_plain(m) for m in [*alone, *_shares(usable)]], ", requests sent together: each its share"


def _usable(m: Measurement) -> bool:
    if is_turn(m):
        return False
    return m.verdict.valid and m.failure is None and m.ttft_s is not None and m.ttft_s > 0


def _shares(rows: Iterable[Measurement]) -> list[Measurement]:
    """For every whole wave one request as if alone: the time to its last first token, over its prompts.

    By then all of them are computed, one after another or in turns, and the tokens that were decoded
    meanwhile are in that time: for long prompts it is no less than what one alone takes.
    """
    waves: dict[tuple[object, ...], list[Measurement]] = {}
    for m in rows:
        if m.concurrency > 1:
            cell = (m.tier, m.condition, m.task, m.concurrency)
            waves.setdefault((m.source, *cell, m.repeat, m.replay, m.attempt), []).append(m)
    found = []
    for wave in waves.values():
        if len(wave) == wave[0].concurrency:
            last_s = max(m.ttft_s or 0.0 for m in wave)
            steps = [m.tpot_s for m in wave if m.tpot_s is not None]
            found.append(
                structs.replace(
                    wave[0],
                    concurrency=1,
                    stream=0,
                    ttft_s=last_s / len(wave),
                    tpot_s=median(steps) if steps else None,
                )
            )
    return found


def _plain(m: Measurement) -> Measurement:
    """One route, one name: where the numbers are from, and whether drafts stopped, is all one for a clock."""
    speculation = "none" if m.verdict.speculation == "fallback" else m.verdict.speculation
    return structs.replace(m, source="", verdict=structs.replace(m.verdict, speculation=speculation))


def _key(condition: str, tier: int) -> str:
    return f"{'cold' if condition == 'salted' else condition}/{tier}"


def _law(route: str, rows: Sequence[Measurement]) -> tuple[PrefillLaw, str]:
    law = prefill.fit(rows)[route]
    if law.terms:
        return law, ""
    cold = [m for m in rows if m.condition != "replay"]
    lengths = [m.prompt_tokens or m.tier for m in cold]
    slope = median((m.ttft_s or 0.0) / n for m, n in zip(cold, lengths, strict=True))
    proportional = structs.replace(
        law, terms=(1,), coefficients=(0.0, slope, 0.0), longest=max(lengths), absent=None
    )
    return proportional, ", one tier: taken as proportional, too short for longer prompts"


def _tilted(rows: Sequence[Measurement], first: float, last: float) -> list[Measurement]:
    """The rows with the shortest prompt's times multiplied by `first`, the longest's by `last`."""
    lengths = [m.prompt_tokens or m.tier for m in rows if m.condition != "replay"]
    low, high = min(lengths), max(lengths)

    def factor(m: Measurement) -> float:
        share = ((m.prompt_tokens or m.tier) - low) / (high - low) if high > low else 1.0
        return first + (last - first) * min(1.0, max(0.0, share))

    return [structs.replace(m, ttft_s=(m.ttft_s or 0.0) * factor(m)) for m in rows]


def _better(mine: DecodeLaw | None, old: DecodeLaw | None) -> DecodeLaw | None:
    """This run's decode law once it has as many tiers as the old one, else the old one."""
    if mine is None or (old is not None and old.tiers > mine.tiers):
        return old
    return mine


def _rescaled(times: Mapping[str, float], ratio: float) -> dict[str, float]:
    return {key: value * ratio for key, value in times.items()}
