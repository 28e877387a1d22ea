"""A watch for machines: watched.csv and summary.json."""

from __future__ import annotations

import csv
import io
from collections import Counter
from typing import Any

from msgspec import Struct

from bench.analysis.watch.described import Watched
from bench.analysis.watch.journal import LogLine, Note, Seen
from bench.analysis.watch.spread import spreads
from bench.analysis.watch.totals import Totals
from bench.engines.machine import GAUGES
from bench.records import Percentiles, ServerFacts
from bench.report.escape import csv_text, visible
from bench.report.export import pretty, published
from bench.report.watch.content import WatchContent

WATCH_SCHEMA = 1
"""Version of a watch's summary.json; docs/schema/watch-1.json describes it."""

_NESTED = {"sources", "absent", "notes", "acceptance_per_position", "machine"}


class WatchTotals(Struct, frozen=True, kw_only=True):
    """Sums over everything that was watched; `None` where nothing had the number."""

    requests: int
    """Finished requests, those in windows included."""
    uncounted_windows: int
    """Windows of an unknown number of requests."""
    alone: int
    windows: int
    restarts: int
    failed: int | None = None
    aborted: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    drafts: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    preemptions: int | None = None
    prefix_reuse: float | None = None
    """Of prompts that are counted whole."""
    acceptance: float | None = None
    acceptance_length: float | None = None
    kv_usage_peak: float | None = None


class Restart(Struct, frozen=True, kw_only=True):
    """A restart of the server."""

    at: str
    why: str


class WatchMachine(Struct, frozen=True, kw_only=True):
    """What one gauge of the machine under the server did, over all requests alone or all windows."""

    kind: str
    """`request` or `window`."""
    gauge: str
    """With the unit of `machine` in a run's summary.json."""
    devices: int
    mean: float
    """Over all looks between the quiet pages before and after."""
    peak: float
    looks: int


class WatchSummary(Struct, frozen=True, kw_only=True):
    """summary.json of a watch: what was watched, and what it came to."""

    schema: int
    kind: str
    """`watch`."""
    id: str
    created_at: str
    address: str | None
    """The metrics page."""
    facts: ServerFacts
    environment: dict[str, str]
    notes: tuple[str, ...]
    watched_s: float
    whole: bool
    """False: the watch was killed, so it lasted at least `watched_s`."""
    pages: int | None
    missed: int | None
    totals: WatchTotals
    alone: dict[str, Percentiles]
    """Field of `Watched` -> its percentiles over the requests that ran alone."""
    unsplit: dict[str, int]
    """Why windows could not be split -> how many."""
    absent: dict[str, dict[str, int]]
    """Field -> why requests alone do not have it -> how many."""
    restarts: tuple[Restart, ...] = ()
    told: tuple[Note, ...] = ()
    """Lines about the watching itself."""
    log: tuple[LogLine, ...] = ()
    machine: tuple[WatchMachine, ...] = ()
    """Empty where no machine was looked at."""


def columns() -> tuple[str, ...]:
    """The columns of watched.csv, in order."""
    plain = [name for name in Watched.__struct_fields__ if name not in _NESTED]
    gauges = (f"{gauge}_{kind}" for gauge in GAUGES for kind in ("mean", "peak"))
    return (
        "at", *plain, "acceptance_per_position", *gauges, "notes", "witnesses", "missing", "before", "after",
    )  # fmt: skip


def watched_csv(content: WatchContent) -> str:
    """watched.csv: a line for each request, window and restart; empty where missing, full precision."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns())
    writer.writerows(_row(one) for one in content.seen)
    return out.getvalue()


def watch_summary(content: WatchContent) -> WatchSummary:
    """The summary as a record."""
    info, ended = content.info, content.ended
    return WatchSummary(
        schema=WATCH_SCHEMA,
        kind="watch",
        id=info.id,
        created_at=info.created_at,
        address=content.route.metrics_url,
        facts=content.facts,
        environment=info.environment,
        notes=info.notes,
        watched_s=ended.watched_s,
        whole=ended.whole,
        pages=ended.pages,
        missed=ended.missed,
        totals=_totals(content.totals, len(content.windows)),
        alone=spreads(one.watched for one in content.seen),
        unsplit=dict(sorted(Counter(one.watched.why for one in content.windows).items())),
        absent=_absent(content),
        restarts=tuple(Restart(at=one.at, why=one.watched.why) for one in content.restarts),
        told=content.notes,
        log=content.log,
        machine=tuple(
            WatchMachine(
                kind=kind,
                gauge=use.gauge,
                devices=use.devices,
                mean=use.mean,
                peak=use.peak,
                looks=use.looks,
            )
            for kind, use in content.machine
        ),
    )


def watch_json(content: WatchContent) -> bytes:
    """summary.json; missing values are null, never NaN."""
    return pretty(watch_summary(content))


def watch_schema() -> bytes:
    """The JSON schema of a watch's summary.json, as published in docs/schema."""
    return published(WatchSummary, f"ctxbench summary.json of a watch, schema {WATCH_SCHEMA}")


def _totals(totals: Totals, windows: int) -> WatchTotals:
    return WatchTotals(
        requests=totals.requests,
        uncounted_windows=totals.uncounted_windows,
        alone=totals.alone,
        windows=windows,
        restarts=totals.restarts,
        prefix_reuse=totals.prefix_reuse,
        acceptance=totals.acceptance,
        acceptance_length=totals.acceptance_length,
        kv_usage_peak=totals.spans["kv_usage_peak"][1] if "kv_usage_peak" in totals.spans else None,
        **{name: round(value) for name, value in totals.sums.items()},
    )


def _absent(content: WatchContent) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = {}
    for one in content.alone:
        for name, why in one.watched.absent.items():
            found.setdefault(name, Counter())[why] += 1
    return {name: dict(sorted(counts.items())) for name, counts in sorted(found.items())}


def _row(one: Seen) -> list[Any]:
    watched = one.watched
    positions = watched.acceptance_per_position
    flat = {name: getattr(watched, name) for name in Watched.__struct_fields__ if name not in _NESTED}
    flat |= {f"{gauge}_{kind}": None for gauge in GAUGES for kind in ("mean", "peak")}
    for use in watched.machine:
        flat |= {f"{use.gauge}_mean": use.mean, f"{use.gauge}_peak": use.peak}
    flat |= {
        "at": one.at,
        "acceptance_per_position": " ".join(f"{share:.6g}" for share in positions) if positions else None,
        "notes": "; ".join(watched.notes) or None,
        "witnesses": _pairs(watched.sources),
        "missing": _pairs(watched.absent),
        "before": one.before,
        "after": one.after,
    }
    values = (flat[name] for name in columns())
    return [csv_text(value) if isinstance(value, str) else value for value in values]


def _pairs(mapping: dict[str, str]) -> str | None:
    return "; ".join(f"{key}: {visible(value, 200)}" for key, value in sorted(mapping.items())) or None
