"""What every number of a watch is called, how it is written, what it means and who witnessed it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from bench.analysis.watch.described import Watched
from bench.report.escape import visible
from bench.report.quantities import MISSING, Style, write
from bench.report.told import Told

_GAUGES = "the server's gauges, highest page"
_UNTOLD = "the server does not show it"


class Number(Struct, frozen=True, kw_only=True):
    """A field of `Watched`, and how people read it."""

    key: str
    head: str
    """Column head, with its unit."""
    style: Style
    definition: str
    made_of: tuple[str, ...] = ()
    """Fields whose witnesses are its own."""
    gauge: bool = False
    """Read off the pages in between, not off the counters."""


NUMBERS: tuple[Number, ...] = (
    Number(
        key="prompt_tokens",
        head="prompt (tok)",
        style="count",
        definition="Prompt tokens as the server counted them.",
    ),
    Number(
        key="cached_tokens",
        head="reused (tok)",
        style="count",
        definition="Prompt tokens that were taken from the prefix cache.",
    ),
    Number(
        key="prefix_reuse",
        head="reuse",
        style="share",
        definition="Reused tokens / prompt tokens.",
        made_of=("cached_tokens", "prompt_tokens"),
    ),
    Number(
        key="output_tokens",
        head="output (tok)",
        style="count",
        definition="Tokens generated, as the server counted them.",
    ),
    Number(
        key="server_ttft_s",
        head="server TTFT (s)",
        style="seconds",
        definition=(
            "From arrival at the server (llama.cpp's log: from the request being read, before it is "
            "tokenised) to the first token; a client sees the network on top."
        ),
    ),
    Number(
        key="queue_s",
        head="queue (s)",
        style="seconds",
        definition="Time in the server's queue, part of its TTFT.",
    ),
    Number(
        key="prefill_s",
        head="prefill (s)",
        style="seconds",
        definition="The server's own prefill time; from a counter of seconds (llama.cpp) a lower bound.",
    ),
    Number(
        key="decode_tok_s",
        head="decode (tok/s)",
        style="rate",
        definition="(output tokens - 1) / decode time: the first token belongs to the prefill.",
    ),
    Number(
        key="acceptance",
        head="accept",
        style="share",
        definition="Accepted / drafted tokens; missing without drafts, never 0.",
    ),
    Number(
        key="acceptance_length",
        head="length",
        style="length",
        definition="Tokens per verification step: 1 + accepted tokens / drafts.",
    ),
    Number(
        key="kv_usage_peak",
        head="KV peak",
        style="share",
        definition="Highest share of the KV cache in use on any page meanwhile, by whomever.",
        gauge=True,
    ),
    Number(
        key="in_flight_peak",
        head="at once",
        style="count",
        definition="Most requests running or waiting on any page meanwhile.",
        gauge=True,
    ),
)
"""Columns of the tables, in order."""


def cell(one: Watched, number: Number) -> Told:
    """A number with its definition and witness, or a dash with the reason."""
    value = getattr(one, number.key)
    if value is None:
        why = visible(one.absent.get(number.key, _UNTOLD), 200)
        return Told(MISSING, f"{number.definition} Missing: {why}.")
    mean = " Mean over the requests of the window." if _is_mean(one, number) else ""
    text = write(value, number.style)
    if one.slack_tokens and number.key in ("prompt_tokens", "cached_tokens", "output_tokens"):
        text += f" ±{one.slack_tokens:.0f}"
    return Told(text, f"{number.definition}{mean} Witness: {witness((one,), number)}.")


def witness(watched: Iterable[Watched], number: Number) -> str:
    """Who saw a number, over all that have it; empty where none has."""
    found: dict[str, None] = {}
    for one in watched:
        if getattr(one, number.key) is not None:
            for name in number.made_of or (number.key,):
                found[visible(one.sources.get(name, _GAUGES if number.gauge else "counters"), 120)] = None
    return ", ".join(sorted(found))


def told(watched: Iterable[Watched]) -> list[Number]:
    """The numbers that at least one of them has."""
    rows = list(watched)
    return [one for one in NUMBERS if any(getattr(row, one.key) is not None for row in rows)]


def missing(watched: Iterable[Watched]) -> list[str]:
    """`reuse: no prompt was counted (3 x)` for every number and reason, in the order of the columns."""
    counts: dict[tuple[str, str], int] = {}
    rows = list(watched)
    for number in NUMBERS:
        for row in rows:
            if getattr(row, number.key) is None:
                why = visible(row.absent.get(number.key, _UNTOLD), 200)
                key = (number.head.partition(" (")[0], why)
                counts[key] = counts.get(key, 0) + 1
    return [f"{name}: {why} ({count} x)" for (name, why), count in counts.items()]


def _is_mean(one: Watched, number: Number) -> bool:
    timed = number.key.endswith("_s") and not number.gauge
    return one.kind == "window" and timed and (one.requests or 0) != 1
