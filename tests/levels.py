"""Waves of requests for the tests of goodput."""

from __future__ import annotations

from bench.records import Measurement, Verdict, Window


def level(together: int, waves: int, *, beyond: int = 0, texts: int | None = None) -> list[Measurement]:
    """Waves of a level, `beyond` of the requests of each slower than 2 s to their first token.

    `texts`: how many texts the waves take turns with; `None`: their texts are not known.
    """
    return [
        Measurement(
            trial_id=f"a/{together}/{wave}",
            route="a",
            tier=1000,
            condition="cold",
            concurrency=together,
            ttft_s=3.0 if place < beyond else 1.0,
            tpot_s=0.02,
            total_s=4.0,
            text_key="" if texts is None else f"{wave % texts}",
            window=Window(id=f"{together}/{wave}", size=together, span_s=4.0),
            verdict=Verdict(valid=True),
        )
        for wave in range(waves)
        for place in range(together)
    ]
