"""Every record that travels between the floors of the house.

All records are frozen, keyword-only and slotted (`msgspec.Struct`), and can be written as JSON.
The order below is the order in which they come into being::

    Suite -> Trial -> Exchange (+ Scrape, Samples) -> Measurement (+ Verdict)
          -> Summary, Comparison, Crossover

Units stand in the names: `_s` seconds, `_ms` milliseconds, `_ns` nanoseconds, `_tok_s` tokens per
second. Missing is `None` (its reason in `Measurement.absent`), never 0 and never NaN.
"""

from bench.records.exchange import (
    Chunks,
    ClientHealth,
    Event,
    Exchange,
    Failure,
    LogExcerpt,
    MachineSamples,
    Purpose,
    Samples,
    Scrape,
    Usage,
    Wave,
)
from bench.records.measurement import (
    Measurement,
    Reason,
    Speculated,
    Verdict,
    Window,
)
from bench.records.run import (
    RunInfo,
    ServerFacts,
    TokenizerIdentity,
)
from bench.records.statistics import (
    Chat,
    ChatTurn,
    Comparison,
    Crossover,
    Estimate,
    Level,
    Percentiles,
    Summary,
)
from bench.records.suite import (
    ChatSettings,
    Condition,
    Endpoint,
    FromEnv,
    PromptSettings,
    RequestSettings,
    Route,
    RouteServer,
    SaltMethod,
    Speculation,
    Spread,
    Suite,
    SuiteCondition,
    Timeouts,
)
from bench.records.trial import (
    Needle,
    PromptRecipe,
    Trial,
)

__all__ = [
    "Chat",
    "ChatSettings",
    "ChatTurn",
    "Chunks",
    "ClientHealth",
    "Comparison",
    "Condition",
    "Crossover",
    "Endpoint",
    "Estimate",
    "Event",
    "Exchange",
    "Failure",
    "FromEnv",
    "Level",
    "LogExcerpt",
    "MachineSamples",
    "Measurement",
    "Needle",
    "Percentiles",
    "PromptRecipe",
    "PromptSettings",
    "Purpose",
    "Reason",
    "RequestSettings",
    "Route",
    "RouteServer",
    "RunInfo",
    "SaltMethod",
    "Samples",
    "Scrape",
    "ServerFacts",
    "Speculated",
    "Speculation",
    "Spread",
    "Suite",
    "SuiteCondition",
    "Summary",
    "Timeouts",
    "TokenizerIdentity",
    "Trial",
    "Usage",
    "Verdict",
    "Wave",
    "Window",
]
