"""ctxbench: measures LLM servers at long context and says which route to serve.

suite -> plan (trials) -> prompting -> wire (exchanges) -> journal          the doing wing
journal -> measure (numbers, verdicts) -> summary, comparison, crossover -> report
`bench.load(run)` opens a run for the second line; `ctxbench run` does the first.
Importing this package loads nothing; a name is fetched when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.api import (
        PrefillLaw,
        Run,
        Verified,
        WinnerMap,
        compare,
        crossovers,
        figure,
        frame,
        load,
        load_table,
        one_way,
        prefill_laws,
        summarise,
        winner_map,
        write_report,
    )
    from bench.errors import BenchError, CheckFailed, EngineError, JournalError, SuiteError
    from bench.records import (
        Chat,
        Comparison,
        Crossover,
        Estimate,
        Exchange,
        Level,
        Measurement,
        RunInfo,
        Summary,
        Verdict,
    )

__all__ = [  # noqa: RUF022 - grouped by what they are for
    # read
    "load",
    "load_table",
    "Run",
    "frame",
    # understand
    "summarise",
    "compare",
    "crossovers",
    "one_way",
    "prefill_laws",
    "winner_map",
    # show
    "figure",
    "write_report",
    # records
    "RunInfo",
    "Exchange",
    "Measurement",
    "Verdict",
    "Estimate",
    "Summary",
    "Comparison",
    "Crossover",
    "Verified",
    "WinnerMap",
    "PrefillLaw",
    "Level",
    "Chat",
    # errors
    "BenchError",
    "SuiteError",
    "JournalError",
    "EngineError",
    "CheckFailed",
]

_HOMES = ("errors", "records", "api")  # the lightest first


def __getattr__(name: str) -> object:
    """Fetches a public name on first use (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    homes = (import_module(f"{__name__}.{home}") for home in _HOMES)
    value: object = next(getattr(home, name) for home in homes if hasattr(home, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
