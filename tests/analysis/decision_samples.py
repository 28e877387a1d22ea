"""Measurements with known truth for the tests of statistics and decisions."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bench.analysis.decisions.baseline import read_table
from bench.records import Condition, Measurement, Reason, Verdict

DATA = Path(__file__).resolve().parent.parent / "data"


def seed(kind: str = "csv") -> list[Measurement]:
    """The published study."""
    text = (DATA / f"seed_study.{kind}").read_text("utf-8")
    return read_table(text, kind="json" if kind == "json" else "csv", source=f"seed_study.{kind}")


def trial(
    route: str = "a",
    ttft: float | None = 1.0,
    tpot: float | None = 0.01,
    *,
    tier: int = 1000,
    condition: Condition = "cold",
    output: int = 101,
    number: int = 1,
    **more: object,
) -> Measurement:
    """One measurement of `output` tokens, c0 = 1."""
    values: dict[str, object] = {
        "trial_id": f"{route}/{tier}/{condition}/{number}",
        "route": route,
        "tier": tier,
        "condition": condition,
        "repeat": number,
        "order": number - 1,
        "prompt_tokens": tier,
        "output_tokens": output,
        "ttft_s": ttft,
        "total_s": None if ttft is None or tpot is None else ttft + (output - 1) * tpot,
        "tpot_s": tpot,
        "decode_tok_s": None if not tpot else 1 / tpot,
        "verdict": Verdict(valid=True),
    }
    return Measurement(**(values | more))  # type: ignore[arg-type]


def invalid(row: Measurement, reason: str = "cold_hit") -> Measurement:
    from msgspec import structs

    return structs.replace(row, verdict=Verdict(valid=False, reasons=(Reason(id=reason),)))


def study(
    route: str,
    ttft: float,
    tpot: float,
    trials: int,
    rng: np.random.Generator,
    *,
    noise: tuple[float, float] = (0.01, 0.03),
    **more: object,
) -> list[Measurement]:
    """Trials around known medians, log-normal noise on both times."""
    return [
        trial(
            route,
            ttft * rng.lognormal(0, noise[0]),
            tpot * rng.lognormal(0, noise[1]),
            number=i + 1,
            **more,  # type: ignore[arg-type]
        )
        for i in range(trials)
    ]


TIERS = (8_000, 64_000, 256_000)
# a, b, c of the prefill law; d0, d1 of the step time
ROUTES = {"slow": (0.1, 4e-4, 1e-9, 0.020, 1e-7), "fast": (0.1, 6e-4, 1.5e-9, 0.005, 3e-8)}


def two_routes(trials: int = 5, noise: float = 0.01) -> list[Measurement]:
    """Two routes over three tiers; the second starts later and decodes faster."""
    rng = np.random.default_rng(3)
    return [
        trial(
            name,
            (a + b * n + c * n * n) * rng.lognormal(0, noise),
            (d0 + d1 * (n + 256)) * rng.lognormal(0, noise),
            tier=n,
            output=512,
            number=i + 1,
        )
        for name, (a, b, c, d0, d1) in ROUTES.items()
        for n in TIERS
        for i in range(trials)
    ]


def truth(name: str, n: float, k: float, m: float = 0.0) -> float:
    """Total latency of k tokens behind n, m of them cached."""
    a, b, c, d0, d1 = ROUTES[name]
    return a + b * (n - m) + c * (n * n - m * m) + (k - 1) * (d0 + d1 * (n + k / 2))
